// The address map: a box for each stay, as wide as it lives and as high as it is large.

const SHADES = [0, 0.2, 0.1];

class AddressPanel {
  constructor(data, view) {
    this.data = data;
    this.view = view;
    this.raster = new Raster(document.querySelector("#addresses canvas"));
    this.chosen = -1;
    this.y0 = 0;
    this.top = Math.max(data.height, ...data.levels.filter(([name]) => name === "budget").map(([, bytes]) => bytes).filter((bytes) => bytes < 1.5 * data.height)) * 1.02;
    this.y1 = this.top;
  }

  all() {
    [this.y0, this.y1] = [0, this.top];
  }

  // Bytes at a height of the canvas, in pixels from its top.
  bytesAt(y) {
    const high = this.raster.height - TOP - BOTTOM;
    return this.y1 - ((y - TOP) / high) * (this.y1 - this.y0);
  }

  draw() {
    const { data, view, raster } = this;
    if (!data.placed || !raster.begin(colour("--card"))) return;
    const { stays } = data;
    const { of, colours } = data.groups[view.by];
    // Neighbours differ a little.
    const fills = SHADES.flatMap((share) => colours.map((hex) => pixel(mixed(hex, view.dark ? "#000000" : "#ffffff", share))));
    const edges = colours.map((hex) => pixel(mixed(hex, view.dark ? "#15181b" : "#ffffff", 0.55)));
    const { scale } = raster;
    const wide = (raster.width - LEFT - RIGHT) * scale, high = (raster.height - TOP - BOTTOM) * scale;
    const perX = wide / (view.x1 - view.x0), perY = high / (this.y1 - this.y0);
    const originX = LEFT * scale - view.x0 * perX, originY = TOP * scale + this.y1 * perY;
    const xs = view.xs;
    const { x0, x1 } = view, { y0, y1 } = this;
    const named = [];
    for (let at = 0; at < data.count; at++) {
      const low = stays.low[at], size = stays.size[at];
      if (low > y1 || low + size < y0 || size === 0 || stays.from[at] >= stays.until[at]) continue;
      const from = xs[stays.from[at]], until = xs[stays.until[at]];
      if (from > x1 || until < x0) continue;
      const left = originX + from * perX, right = originX + until * perX;
      const top = originY - (low + size) * perY, bottom = originY - low * perY;
      raster.rect(left, top, right, bottom, fills[of[at] + colours.length * (at % SHADES.length)], edges[of[at]]);
      if (bottom - top > 15 * scale && right - left > 60 * scale && named.length < 400) named.push(at);
    }
    raster.show();
    this.names(named, (x) => (originX + x * perX) / scale, (bytes) => (originY - bytes * perY) / scale);
    this.axis((bytes) => (originY - bytes * perY) / scale);
    raster.frame(view);
  }

  names(named, toX, toY) {
    const { data, view, raster } = this;
    const { stays } = data;
    const { of, colours } = data.groups[view.by];
    const { context } = raster;
    context.textBaseline = "middle";
    for (const at of named) {
      const left = Math.max(LEFT, toX(view.xs[stays.from[at]])), right = Math.min(raster.width - RIGHT, toX(view.xs[stays.until[at]]));
      const top = Math.max(TOP, toY(stays.low[at] + stays.size[at])), bottom = Math.min(raster.height - BOTTOM, toY(stays.low[at]));
      if (bottom - top > 13 && right - left > 50) raster.label(data.names[stays.name[at]], left + 5, (top + bottom) / 2, right - left - 10, inkOn(colours[of[at]]));
    }
    if (this.chosen >= 0) {
      const at = this.chosen;
      context.strokeStyle = colour("--ink");
      context.lineWidth = 2;
      const left = toX(view.xs[stays.from[at]]), top = toY(stays.low[at] + stays.size[at]);
      context.save();
      context.beginPath();
      context.rect(LEFT, TOP, raster.width - LEFT - RIGHT, raster.height - TOP - BOTTOM);
      context.clip();
      context.strokeRect(left, top, Math.max(3, toX(view.xs[stays.until[at]]) - left), Math.max(3, toY(stays.low[at]) - top));
      context.restore();
    }
  }

  axis(toY) {
    const { raster, data } = this;
    const { context, width } = raster;
    const ticks = byteTicks(this.y0, this.y1, Math.max(3, raster.height / 60));
    const labels = byteLabels(ticks);
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = colour("--soft");
    ticks.forEach((tick, at) => { if (toY(tick) < raster.height - BOTTOM + 2) context.fillText(labels[at], LEFT - 8, Math.max(8, toY(tick))); });
    context.textAlign = "left";
    for (const [name, bytes] of data.levels) {
      const y = toY(bytes);
      if (name !== "budget" || y < TOP || y > raster.height - BOTTOM) continue;
      context.strokeStyle = colour("--warm");
      context.lineWidth = 1.5;
      context.setLineDash([7, 4]);
      context.beginPath();
      context.moveTo(LEFT, y);
      context.lineTo(width - RIGHT, y);
      context.stroke();
      context.setLineDash([]);
    }
  }

  // The stay under a point of the canvas, or −1. Of what is too small to hit the nearest within two pixels.
  at(x, y) {
    const { data, view, raster } = this;
    const { stays } = data;
    const here = view.fromScreen(x, raster.width), bytes = this.bytesAt(y);
    const nearX = (2 * (view.x1 - view.x0)) / (raster.width - LEFT - RIGHT), nearY = (2 * (this.y1 - this.y0)) / (raster.height - TOP - BOTTOM);
    let near = -1;
    for (let at = 0; at < data.count; at++) {
      const low = stays.low[at], high = low + stays.size[at];
      if (bytes < low - nearY || bytes >= high + nearY) continue;
      const from = view.xs[stays.from[at]], until = view.xs[stays.until[at]];
      if (here < from - nearX || here >= until + nearX) continue;
      if (bytes >= low && bytes < high && here >= from && here < until) return at;
      near = at;
    }
    return near;
  }

  hover(x, y, clientX, clientY) {
    const { data, view, raster } = this;
    const at = this.at(x, y);
    const here = view.fromScreen(x, raster.width);
    if (at < 0) return view.hover("addresses", here, view.label([here])[0], [["address", bytesText(Math.max(0, this.bytesAt(y)))], ["", "free"]], clientX, clientY);
    view.hover("addresses", here, data.names[data.stays.name[at]], stayRows(data, view, at), clientX, clientY);
  }

  zoom(y, times) {
    const middle = this.bytesAt(y);
    const span = Math.min(this.top, Math.max(64, (this.y1 - this.y0) * times));
    const low = middle - ((middle - this.y0) / (this.y1 - this.y0)) * span;
    this.move(low, span);
  }

  move(low, span = this.y1 - this.y0) {
    this.y0 = Math.max(0, Math.min(low, this.top - span));
    this.y1 = this.y0 + span;
  }

  // Shows one stay, with a little of what is around it.
  focus(at) {
    const { data, view } = this;
    const { stays } = data;
    this.chosen = at;
    const from = view.xs[stays.from[at]], until = view.xs[stays.until[at]];
    const around = Math.max((until - from) * 0.6, view.end / 200);
    const span = Math.min(this.top, Math.max(stays.size[at] * 6, this.top / 50));
    this.move(stays.low[at] + stays.size[at] / 2 - span / 2, span);
    view.show(from - around, until + around);
  }
}

// What is told of a stay.
function stayRows(data, view, at) {
  const { stays, names } = data;
  const rows = [["role", names[stays.role[at]]], ["bytes", `${bytesText(stays.bytes[at])} (${countText(stays.bytes[at])} B)`]];
  const optional = [["shape", names[stays.shape[at]]], ["module", names[stays.module[at]]], ["made by", names[stays.madeBy[at]] || "there from the start"]];
  rows.push(...optional.filter(([, text]) => text));
  if (data.placed) rows.push(["address", `${countText(stays.low[at])} … ${countText(stays.low[at] + stays.size[at])}`]);
  rows.push(["life", lifeText(data, at)]);
  return rows;
}

function lifeText(data, at) {
  const { stays, steps, times, axis } = data;
  const [from, until] = [stays.from[at], stays.until[at]];
  const text = `${axis} ${countText(steps[from])} – ${until >= data.ends ? "the end" : countText(steps[until])}`;
  return times ? `${timeText(times[from])} – ${timeText(times[until])} (${text})` : text;
}
