// What all plots share: scales, paths, and the frame with its axes. Drawn in CSS pixels, and anew at each width.

import { count, ticks } from "./numbers.js";
import { byId, made } from "./words.js";

const round = (value) => Math.round(value * 10) / 10;

/** A scale from a domain of values to a range of pixels. */
export function linear([low, high], [start, end]) {
  return (value) => start + (value - low) / (high - low) * (end - start);
}

export function logarithmic([low, high], range) {
  const scale = linear([Math.log(low), Math.log(high)], range);
  return (value) => scale(Math.log(Math.min(high, Math.max(low, value))));
}

/** A path through points [x, y]; a null begins a new piece, and a lone point becomes a short dash. */
export function path(points) {
  return points.map((point, at) => {
    if (!point) return "";
    const [x, y] = point.map(round);
    if (points[at - 1]) return `L${x} ${y}`;
    return points[at + 1] ? `M${x} ${y}` : `M${x - 1.5} ${y}h3`;
  }).join("");
}

/** The area between two lines of equal length, piece by piece. */
export function band(upper, lower) {
  let text = "", from = 0;
  for (let at = 0; at <= upper.length; at++) {
    if (upper[at]) continue;
    if (at > from) text += `M${[...upper.slice(from, at), ...lower.slice(from, at).reverse()].map((point) => point.map(round).join(" ")).join("L")}Z`;
    from = at + 1;
  }
  return text;
}

/** Boxes [x, y, width, height] as one path. */
export function bars(boxes) {
  return boxes.filter((box) => box[3] > 0).map((box) => {
    const [x, y, width, height] = box.map(round);
    return `M${x} ${y}h${width}v${height}h${-width}z`;
  }).join("");
}

const WIDTH_BEFORE_LAYOUT = 320; // px; of a plot that is not shown yet

/** A plot below the heading of an element, after a line that says the same in words. */
export class Plot {
  constructor(id, { height, left = 44, right = 10, bottom = 22, name }) {
    Object.assign(this, { height, x0: left, y0: 8, right, bottom, words: made("p", "readout"), holder: made("div", "plot") });
    this.words.id = `${id}-words`;
    byId(id).querySelector("h3").after(this.words, this.holder);
    this.svg = this.holder.appendChild(this.element("svg", { role: "img", "aria-label": name }));
  }

  element(name, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, typeof value === "number" ? Math.round(value * 100) / 100 : value);
    return element;
  }

  add(name, attributes) {
    return this.svg.appendChild(this.element(name, attributes));
  }

  /** Empties the plot and measures it again: data goes between x0 and x1, y0 and y1, `height` pixels high. */
  begin(height = this.height) {
    const width = this.holder.clientWidth || WIDTH_BEFORE_LAYOUT;
    this.x1 = width - this.right;
    this.y1 = this.y0 + height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.y1 + this.bottom}`);
    this.svg.setAttribute("height", this.y1 + this.bottom);
    this.svg.replaceChildren();
    this.add("rect", { class: "ground", x: this.x0, y: this.y0, width: Math.max(0, this.x1 - this.x0), height });
  }

  /** A vertical axis from 0 to `top` with about `parts` lines; gives its scale, for values `unit` times as small. */
  zeroTo(top, parts, write, unit = 1) {
    const scale = linear([0, top], [this.y1, this.y0]);
    for (const tick of ticks(top, parts)) if (write !== count || Number.isInteger(tick)) this.gridY(scale(tick), write(tick));
    return (value) => scale(value * unit);
  }

  /** A path; `marks` says how many values it shows. */
  path(kind, d, marks = 0) {
    if (d) this.add("path", { class: kind, d, "data-marks": marks });
  }

  text(x, y, words, anchor = "start", kind = "") {
    this.add("text", { x, y, "text-anchor": anchor, class: kind }).textContent = words;
  }

  /** A horizontal line at y, with its name left of the axis and `up` pixels higher. */
  gridY(y, words, up = 0) {
    this.add("line", { class: "grid", x1: this.x0, x2: this.x1, y1: y, y2: y });
    this.text(this.x0 - 6, y - up + 4, words, "end");
  }

  tickX(x, words, anchor = "middle") {
    this.add("line", { class: "axis", x1: x, x2: x, y1: this.y1, y2: this.y1 + 4 });
    this.text(x, this.y1 + 16, words, anchor);
  }

  /**
   * A bound that is kept: a dashed line, named above its right end, or below it where there is no room above. What is kept
   * only just is drawn along the line: the name stands back from it as far as it can.
   */
  bound(y, words) {
    this.add("line", { class: "bound", x1: this.x0, x2: this.x1, y1: y, y2: y });
    this.text(this.x1 - 5, y - this.y0 > 16 ? Math.max(this.y0 + 11, y - 14) : y + 13, words, "end", "bound-name");
  }

  /** Words in the middle of an empty plot. */
  empty(words) {
    this.text((this.x0 + this.x1) / 2, (this.y0 + this.y1) / 2 + 4, words, "middle", "empty");
  }
}
