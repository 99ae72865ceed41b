// Memory over time: areas on one another, lines for what must be kept to, the step without memfit as a dashed line.

const POINTS = 1600;

class MemoryPanel {
  constructor(data, view) {
    this.data = data;
    this.view = view;
    this.place = find("memory-chart");
    const groups = data.groups.role;
    const peak = groups.total[groups.peakAt];
    const before = data.before && data.times ? Math.max(...data.before.y) : 0;
    const near = data.levels.map(([, bytes]) => bytes).filter((bytes) => bytes < 2.2 * peak);
    this.most = Math.max(peak, before, ...near, 1) * 1.07;
  }

  // Instants to draw: all in view, or of each of many spans the one at which most is live.
  sample() {
    const { view, data } = this;
    const { total } = data.groups[view.by];
    const xs = view.xs;
    const first = Math.max(0, lastAt(xs, view.x0)), last = Math.min(data.ends, lastAt(xs, view.x1) + 1);
    if (last - first <= POINTS) return Array.from({ length: last - first + 1 }, (_, at) => [xs[first + at], first + at]);
    const picked = [];
    const width = (view.x1 - view.x0) / POINTS;
    for (let at = first; at <= last;) {
      const start = at, edge = xs[at] + width;
      let most = at;
      for (; at <= last && (xs[at] < edge || at === start); at++) if (total[at] > total[most]) most = at;
      picked.push([xs[start], most]);
    }
    return picked;
  }

  rows() {
    const { view, data } = this;
    const groups = data.groups[view.by];
    const picked = this.sample();
    const rows = [picked.map(([x]) => x)];
    for (let group = groups.names.length - 1; group >= 0; group--) rows.push(picked.map(([, at]) => groups.cumulated[group][at]));
    if (this.hasBefore()) {
      const { x, y } = data.before;
      rows.push(picked.map(([at]) => (at <= x[x.length - 1] ? y[lastAt(x, at)] : null)));
    }
    return rows;
  }

  hasBefore() {
    return Boolean(this.data.before && this.data.times && this.view.axis === "time");
  }

  draw() {
    const { width, height } = this.place.getBoundingClientRect();
    if (width < 2) return;
    const key = `${this.view.by} ${this.view.axis} ${this.view.theme}`;
    if (this.chart && this.key === key) {
      if (this.chart.width !== Math.floor(width) || this.chart.height !== Math.floor(height)) this.chart.setSize({ width: Math.floor(width), height: Math.floor(height) });
      this.chart.setData(this.rows());
      return;
    }
    this.key = key;
    this.chart?.destroy();
    this.chart = new uPlot(this.options(Math.floor(width), Math.floor(height)), this.rows(), this.place);
    this.legend();
  }

  options(width, height) {
    const { view, data } = this;
    const groups = data.groups[view.by];
    const stepped = uPlot.paths.stepped({ align: 1 });
    const series = [{}];
    for (let group = groups.names.length - 1; group >= 0; group--) {
      const fill = groups.colours[group];
      series.push({ fill, stroke: fill, width: 0, paths: stepped, points: { show: false } });
    }
    if (this.hasBefore()) series.push({ stroke: colour("--ink"), width: 1.5, dash: [5, 4], paths: stepped, points: { show: false } });
    const axis = { stroke: colour("--soft"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    return {
      width, height, series,
      padding: [TOP + 8, RIGHT, 0, 0],
      legend: { show: false },
      scales: { x: { time: false, range: () => [view.x0, view.x1] }, y: { range: () => [0, this.most] } },
      axes: [
        { ...axis, size: BOTTOM, gap: 4, splits: (chart, at, least, most) => roundTicks(least, most, Math.max(2, Math.floor(width / 130))), values: (chart, ticks) => view.label(ticks) },
        { ...axis, size: LEFT, gap: 8, splits: (chart, at, least, most) => byteTicks(least, most, Math.max(3, height / 60)), values: (chart, ticks) => byteLabels(ticks) },
      ],
      cursor: {
        y: false, points: { show: false }, drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => { view.all(); return null; } },
      },
      hooks: {
        setSelect: [(chart) => {
          const { left, width: selected } = chart.select;
          if (selected > 4) view.show(chart.posToVal(left, "x"), chart.posToVal(left + selected, "x"));
          chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
        setCursor: [(chart) => this.hover(chart)],
        draw: [(chart) => this.lines(chart)],
      },
    };
  }

  // Levels with their names, and the peak.
  lines(chart) {
    const { ctx } = chart;
    const scale = window.devicePixelRatio || 1;
    const { left, top, width } = chart.bbox;
    const colours = { budget: colour("--warm"), floor: colour("--good") };
    ctx.save();
    [ctx.textAlign, ctx.textBaseline] = ["left", "alphabetic"];
    ctx.font = `600 ${12 * scale}px system-ui, sans-serif`;
    for (const [name, bytes] of this.data.levels) {
      if (bytes > this.most) continue;
      const y = Math.round(chart.valToPos(bytes, "y", true));
      ctx.strokeStyle = ctx.fillStyle = colours[name] ?? colour("--soft");
      ctx.lineWidth = 1.5 * scale;
      ctx.setLineDash([7 * scale, 4 * scale]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      this.sign(ctx, `${name} ${bytesText(bytes)}`, left + 8 * scale, y - 6 * scale < top + 8 * scale ? y + 14 * scale : y - 6 * scale, scale);
    }
    ctx.setLineDash([]);
    const groups = this.data.groups[this.view.by];
    const x = this.view.xs[groups.peakAt], bytes = groups.total[groups.peakAt];
    if (x >= this.view.x0 && x <= this.view.x1) {
      const [at, y] = [chart.valToPos(x, "x", true), chart.valToPos(bytes, "y", true)];
      ctx.fillStyle = colour("--ink");
      ctx.beginPath();
      ctx.arc(at, y, 4 * scale, 0, 7);
      ctx.fill();
      const text = `peak ${bytesText(bytes)}${this.view.peakOp ? ` at ${this.view.peakOp}` : ""}`;
      const wide = ctx.measureText(text).width;
      this.sign(ctx, text, Math.min(at + 9 * scale, left + width - wide - 8 * scale), Math.max(top + 12 * scale, y - 5 * scale), scale);
    }
    ctx.restore();
  }

  // Text on a ground of its own, so that it can be read on every colour.
  sign(ctx, text, x, y, scale) {
    const ink = ctx.fillStyle;
    const wide = ctx.measureText(text).width;
    ctx.fillStyle = colour("--card");
    ctx.globalAlpha = 0.86;
    ctx.fillRect(x - 4 * scale, y - 12 * scale, wide + 8 * scale, 16 * scale);
    ctx.globalAlpha = 1;
    ctx.fillStyle = ink;
    ctx.fillText(text, x, y);
  }

  hover(chart) {
    const { view, data } = this;
    if (chart.cursor.left < 0) { if (view.hovered === "memory") view.leave(); return; }
    const x = chart.posToVal(chart.cursor.left, "x");
    const at = lastAt(view.xs, x);
    const groups = data.groups[view.by];
    const rows = [["live", bytesText(groups.total[at])]];
    for (let group = groups.names.length - 1; group >= 0; group--) {
      if (groups.levels[group][at] > 0) rows.push([groups.names[group], bytesText(groups.levels[group][at])]);
    }
    const box = chart.over.getBoundingClientRect();
    view.hover("memory", x, view.label([x])[0], rows, box.left + chart.cursor.left, box.top + chart.cursor.top);
  }

  // What is live at the peak, by group.
  legend() {
    const { view, data } = this;
    const groups = data.groups[view.by];
    const legend = find("legend");
    legend.replaceChildren();
    const title = element("span", "at the peak:");
    legend.append(title);
    for (let group = groups.names.length - 1; group >= 0; group--) {
      const bytes = groups.levels[group][groups.peakAt];
      const share = Math.round((bytes / groups.total[groups.peakAt]) * 100);
      legend.append(key(groups.colours[group], groups.names[group], bytesText(bytes) + (share ? ` · ${share} %` : "")));
    }
    if (this.hasBefore()) {
      const made = element("span", "", "key");
      const dash = element("span", "", "dash");
      dash.style.borderColor = colour("--ink");
      made.append(dash, element("span", data.before.name));
      legend.append(made);
    }
  }
}

// Index of the last entry that is not above `x`; entries never fall.
function lastAt(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle - 1;
  }
  return low;
}

function key(hex, name, text = "") {
  const made = element("span", "", "key");
  const dot = element("span", "", "dot");
  dot.style.background = hex;
  made.append(dot, element("b", name));
  if (text) made.append(element("span", text));
  return made;
}
