// What is read and not drawn: figures at the top, before and after, what each means would give, and the buffers.

const SHOWN = 300;

function figures(data) {
  find("title").textContent = data.title || "(no name)";
  document.title = `${data.title || "report"} · memfit`;
  find("kind").textContent = data.kind;
  for (const [name, cell, note] of data.cards) {
    const card = element("div", "", name === "saved" || cellText(cell) === "identical" ? "card good" : "card");
    card.append(element("div", name, "name"), element("div", cellText(cell), "value"), element("div", note, "note"));
    find("cards").append(card);
  }
  const notes = [...data.notes];
  if (data.left) notes.push(`The ${countText(data.left)} smallest buffers are not drawn one by one: they are the grey part of the memory.`);
  if (data.slicesLeft) notes.push(`The ${countText(data.slicesLeft)} shortest slices of the timeline are drawn together with those beside them.`);
  find("notes").textContent = notes.join("\n");
  for (const [name, text] of data.facts) find("facts").append(element("dt", name), element("dd", text));
}

function tableOf({ head, rows }) {
  const table = element("table"), top = element("tr"), body = element("tbody");
  const isNumber = head.map((_, column) => rows.some((row) => Array.isArray(row[column]) || row[column] === "–"));
  head.forEach((text, column) => top.append(element("th", text, isNumber[column] ? "number" : "")));
  const most = Math.max(...rows.map((row) => (Array.isArray(row[1]) && row[1][1] === "bytes" ? row[1][0] : 0)), 1);
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, column) => {
      const made = element("td", cellText(cell), isNumber[column] ? "number" : "");
      if (Array.isArray(cell) && cell[1] === "change" && Math.abs(cell[0]) >= 0.0005) made.classList.add(cell[0] < 0 ? "less" : "more");
      if (column === 1 && head[0] === "means" && Array.isArray(cell)) {
        const bar = element("span", "", "bar");
        bar.style.width = `${Math.max(1, (cell[0] / most) * 90)}px`;
        const room = element("span");
        room.style.cssText = "display:inline-block;width:100px;text-align:left";
        room.append(bar);
        made.append(room);
      }
      line.append(made);
    });
    body.append(line);
  }
  const head_ = element("thead");
  head_.append(top);
  table.append(head_, body);
  return table;
}

// Lines over one axis.
function lineChart(place, curves, { xs, ys, xLabel, yLabel, stepped, height = 260 }) {
  const all = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const rows = [all, ...curves.map((curve) => {
    const at = new Map(curve.x.map((x, index) => [x, curve.y[index]]));
    let before = null;
    const last = curve.x[curve.x.length - 1];
    return all.map((x) => { if (at.has(x)) before = at.get(x); return stepped ? (x <= last ? before : null) : (at.get(x) ?? null); });
  })];
  const axis = { stroke: colour("--soft"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, labelFont: "12px system-ui, sans-serif", labelSize: 22 };
  const width = Math.max(320, Math.floor(place.getBoundingClientRect().width));
  const ink = ["--soft", "--accent", "--warm", "--good"].map(colour);
  const series = [{}, ...curves.map((curve, at) => ({ stroke: ink[(curves.length > 1 ? at : at + 1) % ink.length], width: 2, spanGaps: true, paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined, points: { show: !stepped, size: 7 } }))];
  place.replaceChildren();
  const legend = element("div", "", "key");
  legend.style.cssText = "gap:16px;font-size:12.5px";
  if (curves.length > 1) curves.forEach((curve, at) => legend.append(key(series[at + 1].stroke, curve.name)));
  place.append(legend);
  new uPlot({
    width, height, series, legend: { show: false }, cursor: { show: false }, padding: [10, 12, 0, 0],
    scales: { x: { time: false }, y: { range: (chart, least, most) => (stepped ? [0, most * 1.06] : [least - (most - least || 1) * 0.08, most + (most - least || 1) * 0.08]) } },
    axes: [
      { ...axis, label: xLabel, size: 26, splits: (chart, at, least, most) => xs.ticks(least, most, width / 120), values: (chart, ticks) => xs.labels(ticks) },
      { ...axis, label: yLabel, size: 76, splits: (chart, at, least, most) => ys.ticks(least, most, height / 50), values: (chart, ticks) => ys.labels(ticks) },
    ],
  }, rows, place);
}

const TIME_AXIS = { ticks: roundTicks, labels: timeLabels };
const BYTE_AXIS = { ticks: byteTicks, labels: byteLabels };
const COUNT_AXIS = { ticks: (least, most, wanted) => roundTicks(least, most, wanted).filter(Number.isInteger), labels: (ticks) => ticks.map(countText) };
const PLAIN_AXIS = { ticks: roundTicks, labels: (ticks) => ticks.map((tick) => String(+tick.toPrecision(6))) };

// Drawn anew when the view is opened or the colours change.
function comparison(data) {
  find("compared").replaceChildren();
  if (data.compared.rows.length) find("compared").append(tableOf(data.compared));
  if (data.before && data.times) {
    const { total } = data.groups.role;
    const every = Math.max(1, Math.ceil(data.ends / 2000));
    const now = { name: "this plan", x: [], y: [] };
    for (let at = 0; at < data.ends; at += every) {
      let most = 0;
      for (let next = at; next < Math.min(at + every, data.ends); next++) most = Math.max(most, total[next]);
      now.x.push(data.times[at]);
      now.y.push(most);
    }
    now.x.push(data.times[data.ends]);
    now.y.push(now.y[now.y.length - 1]);
    lineChart(find("before-chart"), [data.before, now], { xs: TIME_AXIS, ys: BYTE_AXIS, xLabel: "time in the step", yLabel: "live bytes", stepped: true });
  }
  if (data.losses.length) lineChart(find("losses-chart"), data.losses, { xs: COUNT_AXIS, ys: PLAIN_AXIS, xLabel: "step", yLabel: "loss", height: 240 });
  find("what-if-part").classList.toggle("has", data.whatIf.rows.length > 0);
  find("what-if").replaceChildren(...(data.whatIf.rows.length ? [tableOf(data.whatIf)] : []));
  find("front-part").classList.toggle("has", data.front.length > 0);
  if (data.front.length) lineChart(find("front-chart"), data.front, { xs: BYTE_AXIS, ys: TIME_AXIS, xLabel: "device memory", yLabel: "time of a step" });
}

// The table of buffers: the largest of those that hold what is searched for.
class BufferTable {
  constructor(data, open) {
    this.data = data;
    this.open = open;
    this.sortedBy = "bytes";
    this.down = true;
    const { stays, names } = data;
    const lower = names.map((name) => name.toLowerCase());
    this.text = (at) => `${lower[stays.name[at]]}\n${lower[stays.role[at]]}\n${lower[stays.module[at]]}\n${lower[stays.madeBy[at]]}\n${lower[stays.shape[at]]}`;
    this.columns = [
      ["name", (at) => names[stays.name[at]]], ["role", (at) => names[stays.role[at]]], ["bytes", (at) => stays.size[at], (at) => bytesText(stays.bytes[at])],
      ["shape", (at) => names[stays.shape[at]]], ["made by", (at) => names[stays.madeBy[at]]], ["life", (at) => stays.from[at], (at) => lifeText(data, at)],
    ];
    if (data.placed) this.columns.push(["address", (at) => stays.low[at], (at) => countText(stays.low[at])]);
    find("search").addEventListener("input", () => this.draw());
  }

  draw() {
    const { data } = this;
    const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (let at = 0; at < data.count; at++) {
      const text = words.length ? this.text(at) : "";
      if (words.every((word) => text.includes(word))) found.push(at);
    }
    const [, of] = this.columns.find(([name]) => name === this.sortedBy);
    const compare = (a, b) => { const [left, right] = [of(a), of(b)]; return left < right ? -1 : left > right ? 1 : a - b; };
    found.sort(this.down ? (a, b) => compare(b, a) || a - b : compare);
    const sum = found.reduce((sum, at) => sum + data.stays.size[at], 0);
    const more = found.length > SHOWN ? `, the first ${SHOWN} are shown` : "";
    find("found").textContent = `${countText(found.length)} of ${countText(data.count)} buffers, ${bytesText(sum)} together${more}`;
    this.show(found.slice(0, SHOWN));
  }

  show(found) {
    const table = element("table"), top = element("tr"), body = element("tbody");
    for (const [name] of this.columns) {
      const cell = element("th", "", ["bytes", "address"].includes(name) ? "number" : "");
      const button = element("button", name + (name === this.sortedBy ? (this.down ? " ↓" : " ↑") : ""));
      button.type = "button";
      button.addEventListener("click", () => { this.down = name === this.sortedBy ? !this.down : name === "bytes"; this.sortedBy = name; this.draw(); });
      cell.append(button);
      top.append(cell);
    }
    for (const at of found) {
      const line = element("tr");
      for (const [name, of, shown] of this.columns) line.append(element("td", (shown ?? of)(at), ["bytes", "address"].includes(name) ? "number" : name));
      line.addEventListener("click", () => this.open(at));
      body.append(line);
    }
    const head = element("thead");
    head.append(top);
    table.append(head, body);
    find("table").replaceChildren(table);
  }
}
