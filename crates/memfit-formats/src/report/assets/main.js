// One range of the axis that all panels share, and the keys, wheel and pointer that move it.

const VIEWS = [["overview", "Overview"], ["memory", "Memory"], ["addresses", "Addresses"], ["lanes", "Timeline"], ["compare", "Before and after"], ["buffers", "Buffers"]];

class View {
  constructor(data) {
    this.data = data;
    this.by = "role";
    this.axis = data.times ? "time" : data.axis;
    this.pointer = null;
    this.hovered = "";
    this.setAxis(this.axis);
    const groups = data.groups.role;
    this.peakOp = data.times ? this.opAt(data.times[groups.peakAt]) : "";
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.open(document.documentElement.dataset.view));
  }

  // The op that the first lane runs at a time.
  opAt(time) {
    const { slices, names } = this.data;
    const at = slices.start.findIndex((start, at) => slices.lane[at] === 0 && start <= time && time < start + slices.time[at]);
    return at < 0 ? "" : names[slices.name[at]];
  }

  setAxis(axis) {
    this.axis = axis;
    this.xs = axis === "time" ? this.data.times : this.data.steps;
    this.end = Math.max(1, this.xs[this.data.ends]);
    [this.x0, this.x1] = [0, this.end];
  }

  label(ticks) {
    return this.axis === "time" ? timeLabels(ticks) : ticks.map((tick) => (ticks.length > 1 ? countText(tick) : `${this.axis} ${countText(Math.floor(tick))}`));
  }

  toScreen(x, width) {
    return LEFT + ((x - this.x0) / (this.x1 - this.x0)) * (width - LEFT - RIGHT);
  }

  fromScreen(x, width) {
    return this.x0 + ((x - LEFT) / (width - LEFT - RIGHT)) * (this.x1 - this.x0);
  }

  // A time in the units of the axis.
  ofTime(time) {
    if (this.axis === "time") return time;
    const { times, steps } = this.data;
    const at = lastAt(times, time);
    if (at >= this.data.ends) return steps[this.data.ends];
    const share = times[at + 1] > times[at] ? (time - times[at]) / (times[at + 1] - times[at]) : 0;
    return steps[at] + share * (steps[at + 1] - steps[at]);
  }

  show(from, until) {
    const span = Math.min(this.end, Math.max(until - from, this.end / 1e6, 1e-3));
    this.x0 = Math.max(0, Math.min(from, this.end - span));
    this.x1 = this.x0 + span;
    // What was under the pointer has moved away.
    this.pointer = null;
    find("tip").hidden = true;
    this.draw();
  }

  zoom(times, around = (this.x0 + this.x1) / 2) {
    const span = (this.x1 - this.x0) * times;
    const from = around - ((around - this.x0) / (this.x1 - this.x0)) * span;
    this.show(from, from + span);
  }

  all() {
    this.addresses.all();
    this.show(0, this.end);
  }

  // Shows where most is live, closely.
  peak() {
    const x = this.xs[this.data.groups[this.by].peakAt];
    const span = Math.min(this.end, Math.max(this.end / 12, 1e-3));
    this.show(x - span / 2, x + span / 2);
  }

  hover(who, x, title, rows, clientX, clientY) {
    this.hovered = who;
    this.pointer = x;
    const tip = find("tip"), list = element("dl");
    rows.forEach(([name, text]) => list.append(element("dt", name), element("dd", text)));
    tip.replaceChildren(element("div", title, "head"), list);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${clientX + 16 + width > innerWidth ? Math.max(4, clientX - width - 14) : clientX + 16}px`;
    tip.style.top = `${clientY + 14 + height > innerHeight ? Math.max(4, clientY - height - 12) : clientY + 14}px`;
    this.draw(who);
  }

  leave() {
    this.hovered = "";
    this.pointer = null;
    find("tip").hidden = true;
    this.draw();
  }

  // At the next frame, once however often it is asked for. The memory is not drawn anew for a pointer.
  draw(hovered = "") {
    this.whole ||= !hovered;
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => this.paint());
  }

  paint() {
    const started = performance.now();
    this.waits = false;
    if (this.whole) this.memory.draw();
    this.whole = false;
    this.addresses.draw();
    this.lanes.draw();
    find("range").textContent = `${this.label([this.x0])[0]} – ${this.label([this.x1])[0]}`;
    const told = document.documentElement.dataset;
    told.frames = String(Number(told.frames ?? 0) + 1);
    told.frameMs = (performance.now() - started).toFixed(2);
  }

  open(name) {
    const root = document.documentElement;
    if (root.dataset.view !== name) find("tip").hidden = true;
    root.dataset.view = name;
    // Paper is light.
    this.dark = name !== "print" && matchMedia("(prefers-color-scheme: dark)").matches;
    this.theme = `${name === "print"} ${this.dark}`;
    for (const button of document.querySelectorAll("nav button")) button.setAttribute("aria-current", String(button.dataset.view === name));
    if (name === "compare" || name === "print") comparison(this.data);
    if (name === "buffers" || name === "print") this.buffers.draw();
    this.draw();
  }
}

// How many times as much a turn of the wheel shows; with Shift browsers turn it sideways.
function wheeled(event) {
  return Math.exp(Math.max(-120, Math.min(120, event.deltaY || event.deltaX)) * 0.0035);
}

// Wheel, drag and touch on a canvas. `rises` where its other axis moves, too.
function listen(canvas, panel, view, rises) {
  const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top, box]; };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x, y, box] = at(event);
    const times = wheeled(event);
    if (rises && !event.altKey) panel.zoom(y, times);
    if (!event.shiftKey) view.zoom(times, view.fromScreen(x, box.width)); else view.draw();
  }, { passive: false });
  let last = null;
  canvas.addEventListener("pointerdown", (event) => { last = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); canvas.classList.add("drags"); });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y, box] = at(event);
    if (last === null) return panel.hover(x, y, event.clientX, event.clientY);
    const byX = ((event.clientX - last[0]) / (box.width - LEFT - RIGHT)) * (view.x1 - view.x0);
    if (rises) panel.move(panel.y0 + ((event.clientY - last[1]) / (box.height - TOP - BOTTOM)) * (panel.y1 - panel.y0));
    last = [event.clientX, event.clientY];
    view.show(view.x0 - byX, view.x1 - byX);
  });
  const release = () => { last = null; canvas.classList.remove("drags"); };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => view.leave());
  canvas.addEventListener("dblclick", () => view.all());
}

function listenToKeys(view, open) {
  const keys = {
    "+": () => view.zoom(0.7), "=": () => view.zoom(0.7), "-": () => view.zoom(1 / 0.7), "0": () => view.all(), p: () => view.peak(),
    ArrowLeft: () => view.show(view.x0 - (view.x1 - view.x0) / 8, view.x1 - (view.x1 - view.x0) / 8),
    ArrowRight: () => view.show(view.x0 + (view.x1 - view.x0) / 8, view.x1 + (view.x1 - view.x0) / 8),
    ArrowUp: () => { view.addresses.move(view.addresses.y0 + (view.addresses.y1 - view.addresses.y0) / 8); view.draw(); },
    ArrowDown: () => { view.addresses.move(view.addresses.y0 - (view.addresses.y1 - view.addresses.y0) / 8); view.draw(); },
    "/": () => { open("buffers"); find("search").focus(); },
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing) { if (event.key === "Escape") event.target.blur(); return; }
    const chosen = [...document.querySelectorAll("nav button")].find((button) => button.dataset.key === event.key);
    if (chosen) open(chosen.dataset.view);
    else if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
  });
}

function start(data) {
  figures(data);
  const view = new View(data);
  view.memory = new MemoryPanel(data, view);
  view.addresses = new AddressPanel(data, view);
  view.lanes = new LanePanel(data, view);
  view.buffers = new BufferTable(data, (at) => { open(data.placed ? "addresses" : "overview"); if (data.placed) view.addresses.focus(at); });
  const open = (name) => view.open(name);
  const has = { memory: data.count > 0, addresses: data.placed, lanes: data.slices.lane.length > 0, compare: true, buffers: data.count > 0 };
  has.overview = has.memory;
  for (const name of ["memory", "addresses", "lanes"]) find(name).classList.toggle("has", has[name]);
  find("tools").classList.toggle("has", has.memory);
  VIEWS.filter(([name]) => has[name]).forEach(([name, text], at) => {
    const button = element("button", text);
    button.append(element("kbd", String(at + 1)));
    [button.type, button.dataset.view, button.dataset.key] = ["button", name, String(at + 1)];
    button.addEventListener("click", () => open(name));
    document.querySelector("nav").append(button);
  });
  const axes = data.times ? [["time", "time"], [data.axis, `${data.axis}s`]] : [[data.axis, `${data.axis}s`]];
  axes.forEach(([value, text]) => { const option = element("option", text); option.value = value; find("axis").append(option); });
  find("axis").addEventListener("change", (event) => { view.setAxis(event.target.value); view.draw(); });
  find("by").addEventListener("change", (event) => { view.by = event.target.value; view.draw(); });
  find("in").addEventListener("click", () => view.zoom(0.7));
  find("out").addEventListener("click", () => view.zoom(1 / 0.7));
  find("all").addEventListener("click", () => view.all());
  listen(view.addresses.raster.canvas, view.addresses, view, true);
  listen(view.lanes.raster.canvas, view.lanes, view, false);
  find("memory-chart").addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = find("memory-chart").getBoundingClientRect();
    view.zoom(wheeled(event), view.fromScreen(event.clientX - box.left, box.width));
  }, { passive: false });
  listenToKeys(view, open);
  new ResizeObserver(() => view.draw()).observe(document.querySelector("main"));
  addEventListener("beforeprint", () => { view.before = document.documentElement.dataset.view; view.open("print"); view.paint(); });
  addEventListener("afterprint", () => view.open(view.before ?? "overview"));
  open(has.overview ? "overview" : "compare");
  document.documentElement.dataset.ready = "yes";
}

unpack().then(start).catch((error) => {
  find("failed").hidden = false;
  find("failed").textContent = `This page can't be shown: ${error.message}. It needs a browser that is not older than 2023.`;
  console.error(error);
});
