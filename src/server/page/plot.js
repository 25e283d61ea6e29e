// What all plots share: SVG elements, scales, and the frame with its axes. Drawn in CSS pixels and redrawn at each width.

const NAMESPACE = "http://www.w3.org/2000/svg";

/** An SVG element with attributes and children; text becomes text, never markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const round = (value) => Math.round(value * 10) / 10;

/** A scale from a domain of values to a range of pixels. */
export function linear([low, high], [start, end]) {
  return (value) => start + (value - low) / (high - low || 1) * (end - start);
}

export function logarithmic([low, high], [start, end]) {
  const scale = linear([Math.log(low), Math.log(high)], [start, end]);
  return (value) => scale(Math.log(Math.min(high, Math.max(low, value))));
}

/** An SVG path through points [x, y]; a null begins a new piece. A lone point becomes a short dash. */
export function path(points) {
  let text = "", pen_down = false;
  points.forEach((point, at) => {
    if (point === null) { pen_down = false; return; }
    const lone = !pen_down && (points[at + 1] ?? null) === null;
    text += pen_down ? `L${round(point[0])} ${round(point[1])}` : `M${round(point[0] - (lone ? 1.5 : 0))} ${round(point[1])}`;
    if (lone) text += `h3`;
    pen_down = true;
  });
  return text;
}

/** The area between two lines of equal length, piece by piece. */
export function band(upper, lower) {
  let text = "", from = 0;
  for (let at = 0; at <= upper.length; at++) {
    if (at < upper.length && upper[at] !== null) continue;
    if (at > from) {
      const around = [...upper.slice(from, at), ...lower.slice(from, at).reverse()];
      text += "M" + around.map(([x, y]) => `${round(x)} ${round(y)}`).join("L") + "Z";
    }
    from = at + 1;
  }
  return text;
}

/** Bars from `base` up, as one path: [x, width, y, height]. */
export function bars(boxes) {
  return boxes.filter(([, , , height]) => height > 0)
    .map(([x, y, width, height]) => `M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}z`).join("");
}

const WIDTH_BEFORE_LAYOUT = 320; // px; of a plot that is not shown yet

/** One plot in a `.plot` element. `draw(plot)` fills it; `plot` knows the box that is left for data. */
export class Plot {
  constructor(holder, { height, left = 44, right = 10, top = 8, bottom = 22, name }) {
    Object.assign(this, { holder, height, margin: { left, right, top, bottom } });
    this.svg = element("svg", { role: "img", "aria-label": name });
    holder.replaceChildren(this.svg);
  }

  /** Empties the plot and measures it again. */
  begin() {
    this.width = this.holder.clientWidth || WIDTH_BEFORE_LAYOUT;
    const { left, right, top, bottom } = this.margin;
    Object.assign(this, { x0: left, x1: this.width - right, y0: top, y1: this.height - bottom });
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    this.svg.replaceChildren(element("rect", {
      class: "ground", x: this.x0, y: this.y0, width: Math.max(0, this.x1 - this.x0), height: this.y1 - this.y0,
    }));
  }

  add(name, attributes, ...children) {
    const made = element(name, attributes, ...children);
    this.svg.append(made);
    return made;
  }

  text(x, y, words, anchor = "start", more = {}) {
    return this.add("text", { x: round(x), y: round(y), "text-anchor": anchor, ...more }, words);
  }

  /** A horizontal line at y, with its name to the left of the axis. */
  gridY(y, words) {
    this.add("line", { class: "grid", x1: this.x0, x2: this.x1, y1: round(y), y2: round(y) });
    this.text(this.x0 - 6, y + 4, words, "end");
  }

  tickX(x, words, anchor = "middle") {
    this.add("line", { class: "axis", x1: round(x), x2: round(x), y1: this.y1, y2: this.y1 + 4 });
    this.text(x, this.y1 + 16, words, anchor);
  }

  /** A bound that is kept: a dashed line across, named above its right end, or below where there is no room. */
  bound(y, words) {
    this.add("line", { class: "bound", x1: this.x0, x2: this.x1, y1: round(y), y2: round(y) });
    const above = y - this.y0 > 16;
    this.text(this.x1 - 5, above ? y - 5 : y + 13, words, "end", { class: "bound-name halo" });
  }

  /** Words in the middle of an empty plot. */
  empty(words) {
    this.text((this.x0 + this.x1) / 2, (this.y0 + this.y1) / 2 + 4, words, "middle", { class: "empty" });
  }
}
