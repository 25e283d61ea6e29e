// Plots over the last two minutes or the last hour, and the cursor that they share: where it stands in one, it stands in all.

import { Plot, band, path } from "./plot.js";
import { span } from "./numbers.js";
import { made, say } from "./words.js";

const COLUMNS = 120;
const CALM_COLUMNS = 10; // over which the words speak while nobody points anywhere: single seconds would flicker
const TICKS = [1, 1 / 2, 3 / 4, 1 / 4]; // of the time that is shown, the most needed first
const NARROW_PX = 300; // from which on all of them have room

/** The column that is pointed at, counted back from the present one (0), or null. */
export const cursor = {
  column: null,
  by_keyboard: false, // then the words of the plot in focus are read aloud
  moved() {}, // called after each change
  set(column, by_keyboard = false) {
    if (column === cursor.column) return;
    Object.assign(cursor, { column, by_keyboard });
    cursor.moved();
  },
};

/** Seconds, or minutes where there are more than two. */
const written = (seconds) => (seconds <= 120 ? `${seconds} s` : `${seconds / 60} min`);

/** The columns from..to that words are about: the one under the cursor, or the last complete ones. */
export function spokenRange({ batches, step_s }) {
  const { column } = cursor, last = Math.max(0, batches.length - 1);
  if (column === null) {
    const from = Math.max(0, last - CALM_COLUMNS);
    return { from, to: last, seconds: Math.max(1, last - from) * step_s, about: `last ${span(CALM_COLUMNS * step_s)}` };
  }
  const to = Math.max(0, batches.length - column); // before the history began, nothing
  return { from: Math.max(0, to - 1), to, seconds: step_s, about: column === 0 ? (step_s === 1 ? "this second" : `these ${step_s} s`) : `${written(column * step_s)} ago` };
}

/** A plot whose horizontal axis is time; the present is at its right edge. */
export class TimePlot extends Plot {
  constructor(id, options) {
    const name = `${options.name} over time`;
    super(id, { ...options, name });
    const { holder } = this;
    holder.classList.add("time");
    holder.tabIndex = 0;
    for (const [key, value] of [["role", "group"], ["aria-label", `${name}. The arrow keys go through its steps.`], ["aria-describedby", this.words.id]]) {
      holder.setAttribute(key, value);
    }
    const point = (event) => {
      const column = Math.floor((this.x1 - event.clientX + holder.getBoundingClientRect().left) / this.column_px);
      cursor.set(column >= 0 && column < COLUMNS ? column : null);
    };
    holder.addEventListener("pointermove", point);
    holder.addEventListener("pointerdown", point);
    // A finger that is lifted leaves as well; what it chose stays until it taps elsewhere.
    holder.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") cursor.set(null); });
    holder.addEventListener("blur", () => cursor.set(null));
    holder.addEventListener("keydown", (event) => {
      const column = cursor.column ?? 0;
      const to = { ArrowLeft: column + 1, ArrowRight: column - 1, PageUp: column + 10, PageDown: column - 10, Home: COLUMNS - 1, End: 0 }[event.key];
      if (event.key === "Escape") cursor.set(null);
      if (to === undefined) return;
      event.preventDefault();
      cursor.set(Math.max(0, Math.min(COLUMNS - 1, to)), true);
    });
  }

  begin(history, height) {
    super.begin(height);
    Object.assign(this, spokenRange(history), { columns: history.batches.length, column_px: (this.x1 - this.x0) / COLUMNS });
    this.shown_s = COLUMNS * history.step_s;
    for (const share of this.x1 - this.x0 < NARROW_PX ? TICKS.slice(0, 2) : TICKS) {
      this.tickX(this.x1 - share * COLUMNS * this.column_px, `−${written(share * this.shown_s)}`, share === 1 ? "start" : "middle");
    }
    this.tickX(this.x1, "now", "end");
  }

  /** The left edge of a column of the history. */
  left(at) { return this.x1 - (this.columns - at) * this.column_px; }

  middle(at) { return this.left(at) + this.column_px / 2; }

  /** What words are about, of a list with a value for each column. */
  spoken(values) { return values.slice(this.from, this.to); }

  /** A line through the columns' values with the area below it. */
  area(values, scale) {
    const upper = values.map((value, at) => [this.middle(at), scale(value)]);
    this.path("area", band(upper, upper.map(([x]) => [x, this.y1])));
    this.path("stroke", path(upper), values.filter((value) => value > 0).length);
  }

  empty(what) { super.empty(`${what} in the last ${this.shown_s > 120 ? "hour" : "two minutes"}`); }

  /** The last step of drawing: the words, which begin with the time that they are about, and the hairline of the cursor. */
  say(...parts) {
    this.words.setAttribute("aria-live", cursor.by_keyboard && document.activeElement === this.holder ? "polite" : "off");
    say(this.words, made("span", "", `${this.about}: `), ...parts);
    if (cursor.column === null) return;
    const x = this.x1 - (cursor.column + 0.5) * this.column_px;
    this.add("line", { class: "cursor", x1: x, x2: x, y1: this.y0, y2: this.y1 });
  }
}
