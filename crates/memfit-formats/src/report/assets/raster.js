// Rectangles drawn straight into pixels. Boxes do not overlap, so a frame costs a pass over the boxes and one over the pixels,
// however many boxes there are; what is smaller than a pixel becomes one.

const LEFT = 84, RIGHT = 26, BOTTOM = 26, TOP = 4;

// Of six digits.
function rgb(hex) {
  const number = parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

// A colour as the pixels hold it: little-endian, opaque.
function pixel([red, green, blue]) {
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

function mixed(hex, other, share) {
  const [a, b] = [rgb(hex), rgb(other)];
  return a.map((part, at) => Math.round(part * (1 - share) + b[at] * share));
}

// Black or white, whichever is easier to read on a colour.
function inkOn(hex) {
  const [red, green, blue] = rgb(hex);
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#14181b" : "#ffffff";
}

class Raster {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  // Fits the canvas to its place; false where it has none.
  begin(back) {
    const { width, height } = this.canvas.getBoundingClientRect();
    this.scale = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * this.scale), Math.round(height * this.scale)];
    if (wide < 2 || high < 2) return false;
    if (this.canvas.width !== wide || this.canvas.height !== high || !this.image) {
      this.canvas.width = wide;
      this.canvas.height = high;
      this.image = this.context.createImageData(wide, high);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.width = width;
    this.height = height;
    this.wide = wide;
    // Where rectangles may be, in pixels.
    this.clip = [Math.round(LEFT * this.scale), Math.round(TOP * this.scale), wide - Math.round(RIGHT * this.scale), high - Math.round(BOTTOM * this.scale)];
    this.pixels.fill(pixel(rgb(back)));
    return true;
  }

  // In pixels of the screen; the edge keeps neighbours apart where there is room for one.
  rect(left, top, right, bottom, fill, edge) {
    const [least, highest, most, lowest] = this.clip;
    let x0 = Math.floor(left), x1 = Math.max(x0 + 1, Math.floor(right));
    let y0 = Math.floor(top), y1 = Math.max(y0 + 1, Math.floor(bottom));
    const edged = x1 - x0 > 4 && y1 - y0 > 4;
    const [edgeX, edgeY] = [x1 - 1, y1 - 1];
    if (x0 < least) x0 = least;
    if (x1 > most) x1 = most;
    if (y0 < highest) y0 = highest;
    if (y1 > lowest) y1 = lowest;
    if (x0 >= x1) return;
    const { pixels, wide } = this;
    for (let y = y0; y < y1; y++) {
      const start = y * wide;
      if (x1 - x0 < 12) for (let x = x0; x < x1; x++) pixels[start + x] = fill;
      else pixels.fill(fill, start + x0, start + x1);
      if (edged && edgeX < x1) pixels[start + edgeX] = edge;
    }
    if (edged && edgeY < y1) pixels.fill(edge, edgeY * wide + x0, edgeY * wide + x1);
  }

  // Shows the pixels; then text and lines may be drawn on them.
  show() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.putImageData(this.image, 0, 0);
    this.context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    this.context.font = "12px system-ui, sans-serif";
  }

  label(text, x, y, most, ink) {
    const { context } = this;
    let shown = text;
    while (shown.length > 3 && context.measureText(shown).width > most) shown = `${shown.slice(0, Math.floor(shown.length * 0.8) - 1)}…`;
    if (shown.length <= 3 && shown !== text) return;
    context.fillStyle = ink;
    context.fillText(shown, x, y);
  }

  // The axis below, and a line through the panels at the pointer.
  frame(view) {
    const { context, width, height } = this;
    const ticks = roundTicks(view.x0, view.x1, Math.max(2, Math.floor((width - LEFT - RIGHT) / 120)));
    const labels = view.label(ticks);
    context.fillStyle = colour("--soft");
    context.textAlign = "center";
    context.textBaseline = "middle";
    ticks.forEach((tick, at) => {
      const x = view.toScreen(tick, width);
      if (x >= LEFT - 1 && x <= width - RIGHT + 1) context.fillText(labels[at], Math.min(x, width - 26), height - 11);
    });
    context.textAlign = "left";
    if (view.pointer !== null && view.pointer >= view.x0 && view.pointer <= view.x1) {
      context.fillStyle = colour("--soft");
      context.fillRect(Math.round(view.toScreen(view.pointer, width)), TOP, 1, height - TOP - BOTTOM);
    }
  }
}
