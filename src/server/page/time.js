// Plots over the last two minutes, and the cursor that they share: where it stands in one, it stands in all.

import { Plot, element } from "./plot.js";

export const COLUMNS = 120;
const CALM_COLUMNS = 10; // over which the words speak while nobody points anywhere: single seconds would flicker

/** The column that is pointed at, counted back from the present one (0), or null. */
export const cursor = {
  column: null,
  spoken: false, // moved by the keyboard: the words of the plot in focus are then read aloud
  listeners: [],
  set(column, spoken = false) {
    if (column === cursor.column) return;
    cursor.column = column;
    cursor.spoken = spoken;
    cursor.listeners.forEach((listener) => listener());
  },
};

/** The columns that words are about: those under the cursor, or the last complete ones. */
export function spoken(history) {
  const length = history.batches.length, step_s = history.step_s;
  if (cursor.column !== null) {
    const at = length - 1 - cursor.column;
    return {
      from: Math.max(0, at), to: Math.max(0, at + 1), seconds: step_s,
      name: cursor.column === 0 ? "this second" : `${Math.round(cursor.column * step_s)} s ago`,
    };
  }
  const to = Math.max(0, length - 1), from = Math.max(0, to - CALM_COLUMNS);
  return { from, to, seconds: Math.max(1, to - from) * step_s, name: `last ${CALM_COLUMNS * step_s} s` };
}

/** A plot whose horizontal axis is time; the present is at its right edge. */
export class TimePlot extends Plot {
  constructor(holder, options) {
    super(holder, options);
    holder.dataset.time = "";
    holder.tabIndex = 0;
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", `${options.name}. The arrow keys go through the seconds.`);
    if (options.words) {
      holder.setAttribute("aria-describedby", options.words.id);
      cursor.listeners.push(() => {
        const aloud = cursor.spoken && document.activeElement === holder;
        options.words.setAttribute("aria-live", aloud ? "polite" : "off");
      });
    }
    const at = (event) => {
      const x = event.clientX - holder.getBoundingClientRect().left;
      const column = Math.floor((this.x1 - x) / this.column_px);
      cursor.set(column >= 0 && column < COLUMNS ? column : null);
    };
    holder.addEventListener("pointermove", at);
    holder.addEventListener("pointerdown", at);
    // A finger that is lifted leaves as well; what it chose stays until it taps elsewhere.
    holder.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") cursor.set(null); });
    holder.addEventListener("blur", () => cursor.set(null));
    holder.addEventListener("keydown", (event) => {
      const column = cursor.column ?? 0;
      const to = {
        ArrowLeft: cursor.column === null ? 1 : column + 1, ArrowRight: column - 1,
        PageUp: column + 10, PageDown: column - 10, Home: COLUMNS - 1, End: 0,
      }[event.key];
      if (event.key === "Escape") cursor.set(null);
      if (to === undefined) return;
      event.preventDefault();
      cursor.set(Math.max(0, Math.min(COLUMNS - 1, to)), true);
    });
  }

  begin(history) {
    super.begin();
    this.length = history.batches.length;
    this.column_px = (this.x1 - this.x0) / COLUMNS;
    for (const ago of [120, 90, 60, 30]) {
      const x = this.x1 - ago / history.step_s * this.column_px;
      if (x >= this.x0 - 1) this.tickX(x, `−${ago} s`, ago === 120 ? "start" : "middle");
    }
    this.tickX(this.x1, "now", "end");
  }

  /** The left edge of a column of the history. */
  left(at) { return this.x1 - (this.length - at) * this.column_px; }

  /** The middle of a column. */
  middle(at) { return this.left(at) + this.column_px / 2; }

  /** The hairline under the cursor, above all else. */
  end() {
    if (cursor.column === null || cursor.column >= this.length) return;
    const x = this.x1 - (cursor.column + 0.5) * this.column_px;
    this.svg.append(element("line", { class: "cursor", x1: x, x2: x, y1: this.y0, y2: this.y1 }));
  }
}

/** Words with some of them bold: parts that are arrays are. The first says when. */
export function say(holder, ...parts) {
  holder.replaceChildren(...parts.map((part) => {
    if (!Array.isArray(part)) return part;
    const bold = document.createElement("b");
    bold.append(...part);
    return bold;
  }));
}

export function when(name) {
  const made = document.createElement("span");
  made.className = "when";
  made.textContent = `${name}:`;
  return made;
}
