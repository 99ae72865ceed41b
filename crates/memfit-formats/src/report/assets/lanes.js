// The timeline: what each lane and each direction of a link does, on the axis of the memory above it.

const ROW = 30;
// Drawn after the others, so that they are seen where many slices share a pixel.
const LATE = new Set(["run again", "encode", "decode", "wait"]);

class LanePanel {
  constructor(data, view) {
    this.data = data;
    this.view = view;
    this.raster = new Raster(document.querySelector("#lanes canvas"));
    const height = TOP + BOTTOM + ROW * data.lanes.length;
    document.documentElement.style.setProperty("--lanes", `${height}px`);
    document.documentElement.style.setProperty("--lanes-tall", `${TOP + BOTTOM + 64 * data.lanes.length}px`);
    const order = Array.from(data.slices.lane, (_, at) => at);
    const late = (at) => LATE.has(data.kinds[data.slices.kind[at]]);
    this.order = [...order.filter((at) => !late(at)), ...order.filter(late)];
    this.legend();
  }

  legend() {
    const { data } = this;
    const spent = data.kinds.map(() => 0);
    data.slices.kind.forEach((kind, at) => { spent[kind] += data.slices.time[at]; });
    const kinds = find("kinds");
    spent.forEach((time, kind) => { if (time > 0) kinds.append(key(KIND_COLOURS[kind], data.kinds[kind], timeText(time))); });
  }

  // A slice in the units of the axis.
  span(at) {
    const { slices } = this.data;
    return [this.view.ofTime(slices.start[at]), this.view.ofTime(slices.start[at] + slices.time[at])];
  }

  row(lane) {
    const high = (this.raster.height - TOP - BOTTOM) / Math.max(1, this.data.lanes.length);
    return [TOP + lane * high + 2, TOP + (lane + 1) * high - 3];
  }

  draw() {
    const { data, view, raster } = this;
    if (!data.slices.lane.length || !raster.begin(colour("--card"))) return;
    const { scale } = raster;
    const fills = KIND_COLOURS.map((hex) => pixel(rgb(hex)));
    const edges = KIND_COLOURS.map((hex) => pixel(mixed(hex, view.dark ? "#15181b" : "#ffffff", 0.5)));
    const rows = data.lanes.map((_, lane) => this.row(lane));
    const ground = pixel(rgb(colour("--grid")));
    for (const [top, bottom] of rows) raster.rect(LEFT * scale, top * scale, (raster.width - RIGHT) * scale, bottom * scale, ground, ground);
    const named = [];
    for (const at of this.order) {
      const [from, until] = this.span(at);
      if (from > view.x1 || until < view.x0) continue;
      const [top, bottom] = rows[data.slices.lane[at]];
      const left = view.toScreen(from, raster.width), right = view.toScreen(until, raster.width);
      const kind = data.slices.kind[at];
      raster.rect(left * scale, top * scale, right * scale, bottom * scale, fills[kind], edges[kind]);
      if (right - left > 46 && named.length < 400) named.push([at, left, right]);
    }
    raster.show();
    const { context } = raster;
    context.textBaseline = "middle";
    for (const [at, left, right] of named) {
      const start = Math.max(left, LEFT), end = Math.min(right, raster.width - RIGHT);
      const [top, bottom] = rows[data.slices.lane[at]];
      if (end - start > 40) raster.label(data.names[data.slices.name[at]], start + 4, (top + bottom) / 2, end - start - 8, inkOn(KIND_COLOURS[data.slices.kind[at]]));
    }
    context.textAlign = "right";
    data.lanes.forEach((lane, at) => { const [top, bottom] = rows[at]; raster.label(lane, LEFT - 8, (top + bottom) / 2, LEFT - 10, colour("--soft")); });
    context.textAlign = "left";
    raster.frame(view);
  }

  at(x, y) {
    const { data, view, raster } = this;
    const here = view.fromScreen(x, raster.width), near = (1.5 * (view.x1 - view.x0)) / (raster.width - LEFT - RIGHT);
    const lane = data.lanes.findIndex((_, at) => { const [top, bottom] = this.row(at); return y >= top && y < bottom; });
    let found = -1;
    for (const at of this.order) {
      if (data.slices.lane[at] !== lane) continue;
      const [from, until] = this.span(at);
      if (here >= from && here < until) return at;
      if (here >= from - near && here < until + near) found = at;
    }
    return found;
  }

  hover(x, y, clientX, clientY) {
    const { data, view, raster } = this;
    const here = view.fromScreen(x, raster.width), at = this.at(x, y);
    if (at < 0) return view.hover("lanes", here, view.label([here])[0], [["", "idle"]], clientX, clientY);
    const { slices } = data;
    const start = slices.start[at];
    const rows = [["what", data.kinds[slices.kind[at]]], ["lane", data.lanes[slices.lane[at]]], ["takes", timeText(slices.time[at])], ["from", `${timeText(start)} – ${timeText(start + slices.time[at])}`]];
    if (slices.bytes[at]) rows.push(["bytes", bytesText(slices.bytes[at])]);
    view.hover("lanes", here, data.names[slices.name[at]] || data.kinds[slices.kind[at]], rows, clientX, clientY);
  }
}
