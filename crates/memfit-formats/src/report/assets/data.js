// The data of the page: unpacked, and turned from columns of differences into arrays that are quick to draw from.

async function unpack() {
  const packed = Uint8Array.from(atob(find("data").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return prepare(JSON.parse(await new Response(stream).text()));
}

function summed(deltas) {
  const sums = new Float64Array(deltas.length);
  let sum = 0;
  deltas.forEach((delta, at) => { sum += delta; sums[at] = sum; });
  return sums;
}

// Okabe and Ito's colours, which people who see colours differently tell apart.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7a6bb0", "#8c6d46", "#5aa17f"];
const ROLE_COLOURS = {
  parameter: "#0072b2", state: "#cc79a7", constant: "#8a8f94", input: "#56b4e9", activation: "#e69f00", gradient: "#009e73",
  output: "#b5a900", workspace: "#d55e00", encoded: "#7a6bb0", value: "#0072b2", other: "#8c6d46", unknown: "#8a8f94",
  "out of memory": "#d00020",
};
// What stays for long lies below.
const ROLE_ORDER = ["parameter", "state", "constant", "encoded", "input", "gradient", "activation", "output", "value", "other", "unknown", "workspace", "out of memory"];
const KIND_COLOURS = ["#56b4e9", "#0072b2", "#009e73", "#e69f00", "#7a6bb0", "#b59ad6", "#d55e00", "#cc79a7", "#b8bcc0"];
const REST = "smaller buffers";
const GROUPS = 9;

function prepare(data) {
  const { stays, slices } = data;
  for (const column of ["name", "role", "module", "shape", "madeBy", "from"]) stays[column] = summed(stays[column]);
  slices.name = summed(slices.name);
  const count = stays.name.length;
  data.count = count;
  if (!data.before?.x.length) data.before = null;
  data.ends = Math.max(1, (data.at.length || data.instants + 1) - 1);
  stays.until = stays.from.map((from, at) => from + stays.for[at]);
  stays.size = Float64Array.from(stays.bytes, (bytes, at) => bytes + stays.pad[at]);
  data.placed = stays.offset.length === count && count > 0;
  placeBanks(data);
  data.steps = data.at.length ? Float64Array.from(data.at) : Float64Array.from({ length: data.ends + 1 }, (_, at) => at);
  data.times = data.times.length ? summed(data.times) : null;
  slices.start = summed(slices.start);
  data.groups = { role: byRole(data), module: byModule(data) };
  return data;
}

// One bank after the other, as one range of addresses.
function placeBanks(data) {
  const { stays } = data;
  const heights = [];
  for (let at = 0; at < stays.offset.length; at++) {
    const bank = stays.bank[at] ?? 0;
    heights[bank] = Math.max(heights[bank] ?? 0, stays.offset[at] + stays.size[at]);
  }
  const starts = [];
  let next = 0;
  for (let bank = 0; bank < heights.length; bank++) { starts[bank] = next; next += heights[bank] ?? 0; }
  data.height = next;
  stays.low = Float64Array.from(stays.offset, (offset, at) => offset + starts[stays.bank[at] ?? 0]);
}

// Groups of stays: names, colours, the group of each stay, and cumulated live bytes at each instant.
function grouped(data, names, colours, of) {
  const { stays, ends } = data;
  if (data.rest.length) { names.push(REST); colours.push("#a9adb1"); }
  const levels = names.map(() => new Float64Array(ends + 1));
  for (let at = 0; at < data.count; at++) {
    levels[of[at]][stays.from[at]] += stays.size[at];
    levels[of[at]][stays.until[at]] -= stays.size[at];
  }
  levels.forEach((level) => { for (let at = 1; at <= ends; at++) level[at] += level[at - 1]; });
  if (data.rest.length) levels[levels.length - 1].set(data.rest);
  levels.forEach((level) => { level[ends] = ends ? level[ends - 1] : 0; });
  const cumulated = levels.map((level) => Float64Array.from(level));
  for (let group = 1; group < cumulated.length; group++) {
    for (let at = 0; at <= ends; at++) cumulated[group][at] += cumulated[group - 1][at];
  }
  const total = cumulated[cumulated.length - 1] ?? new Float64Array(ends + 1);
  let peakAt = 0;
  for (let at = 0; at < ends; at++) if (total[at] > total[peakAt]) peakAt = at;
  return { names, colours, of, levels, cumulated, total, peakAt };
}

function byRole(data) {
  const { stays } = data;
  const seen = [...new Set(stays.role)];
  const rank = (role) => { const at = ROLE_ORDER.indexOf(data.names[role]); return at < 0 ? ROLE_ORDER.length : at; };
  seen.sort((a, b) => rank(a) - rank(b));
  const names = seen.map((role) => data.names[role]);
  const own = new Map(Object.entries(ROLE_COLOURS));
  const colours = names.map((name, at) => own.get(name) ?? PALETTE[at % PALETTE.length]);
  const group = new Map(seen.map((role, at) => [role, at]));
  return grouped(data, names, colours, Uint16Array.from(stays.role, (role) => group.get(role)));
}

// Modules are cut to as many components as give a few groups; the largest have colours of their own.
function byModule(data) {
  const { stays } = data;
  const cut = (depth) => Array.from(stays.module, (module) => data.names[module].split(".").slice(0, depth).join(".") || "(none)");
  let parts = cut(1);
  for (let depth = 2; depth <= 4 && new Set(parts).size < 4; depth++) parts = cut(depth);
  const held = new Map();
  parts.forEach((part, at) => held.set(part, (held.get(part) ?? 0) + stays.size[at] * Math.sqrt(1 + stays.for[at])));
  const ranked = [...held].sort((a, b) => b[1] - a[1]).slice(0, GROUPS).map(([part]) => part).sort();
  const names = held.size > ranked.length ? [...ranked, "(others)"] : ranked;
  const colours = names.map((name, at) => (name === "(others)" ? "#8a8f94" : PALETTE[at % PALETTE.length]));
  const group = new Map(names.map((name, at) => [name, at]));
  return grouped(data, names, colours, Uint16Array.from(parts, (part) => group.get(part) ?? names.length - 1));
}
