// Numbers as people read them, and elements that hold text and nothing else.

const BINARY = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
const TIMES = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

// Three significant digits.
function digits(number) {
  const size = Math.abs(number);
  return number.toFixed(size >= 100 || Number.isInteger(number) ? 0 : size >= 10 ? 1 : 2);
}

function inUnits(number, units) {
  if (number === 0) return "0";
  const [unit, one] = units.find(([, one]) => Math.abs(number) >= one) ?? units[units.length - 1];
  return `${digits(number / one)} ${unit}`;
}

const bytesText = (bytes) => inUnits(bytes, BINARY);
const timeText = (nanos) => inUnits(nanos, TIMES);
const countText = (number) => number.toLocaleString("en-US");

function changeText(change) {
  const percent = change * 100;
  const text = percent.toFixed(Math.abs(percent) >= 100 ? 0 : 1);
  return `${percent >= 0 ? "+" : "−"}${text.replace("-", "")} %`;
}

// A cell of the data: a text, or a number with its unit.
function cellText(cell) {
  if (typeof cell === "string") return cell;
  const [number, unit] = cell;
  return { bytes: bytesText, ns: timeText, change: changeText, count: countText }[unit](number);
}

// Ticks of an axis of bytes: multiples of a power of two.
function byteTicks(least, most, wanted) {
  const rough = (most - least) / Math.max(1, wanted);
  let step = 2 ** Math.ceil(Math.log2(Math.max(1, rough)));
  const ticks = [];
  for (let tick = Math.ceil(least / step) * step; tick <= most; tick += step) ticks.push(tick);
  return ticks;
}

// Ticks of an axis of times or counts: 1, 2 or 5 times a power of ten.
function roundTicks(least, most, wanted) {
  const rough = (most - least) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(Math.max(1e-9, rough)));
  const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough) ?? rough;
  const ticks = [];
  for (let tick = Math.ceil(least / step) * step; tick <= most; tick += step) ticks.push(tick);
  return ticks;
}

// All texts of a byte axis in the unit of its largest tick.
function byteLabels(ticks) {
  const largest = Math.max(...ticks.map(Math.abs), 1);
  const [unit, one] = BINARY.find(([, one]) => largest >= one) ?? ["B", 1];
  return ticks.map((tick) => (tick === 0 ? "0" : `${+(tick / one).toFixed(3)} ${unit}`));
}

function timeLabels(ticks) {
  const largest = Math.max(...ticks.map(Math.abs), 1);
  const [unit, one] = TIMES.find(([, one]) => largest >= one) ?? ["ns", 1];
  const step = ticks.length > 1 ? (ticks[1] - ticks[0]) / one : 1;
  const decimals = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return ticks.map((tick) => (tick === 0 ? "0" : `${(tick / one).toFixed(decimals)} ${unit}`));
}

const find = (id) => document.getElementById(id);

// Text goes in as text, whatever it is.
function element(name, text = "", className = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
