// Words on the page: elements made of text, never of markup.

export const byId = (id) => document.getElementById(id);

export function made(name, class_name, ...children) {
  const element = document.createElement(name);
  if (class_name) element.className = class_name;
  element.append(...children);
  return element;
}

/** Fills an element with words; those in arrays are bold. */
export function say(holder, ...parts) {
  holder.replaceChildren(...parts.map((part) => (Array.isArray(part) ? made("b", "", ...part) : part)));
}

const GAUGE_HIGH = 0.8; // of a bound: from there on in the colour of warning

/** A figure with its unit, what it is and what bounds it; `share` says how much of the bound that is, `mood` how good it is. */
export function tile(name, figure, under, share, mood) {
  const [value, unit = ""] = figure.endsWith("%") ? [figure] : figure.split(/ (?=[a-z]+$)/);
  const bar = made("i", mood ? `health ${mood}` : share > 1 ? "refused" : share > GAUGE_HIGH ? "late" : "on-time");
  bar.style.width = `${100 * Math.min(1, share || 0)}%`;
  return made("div", "", made("dt", "", name), made("dd", `figure ${mood ?? ""}`, value, " ", made("small", "", unit)),
    made("dd", "gauge", bar), made("dd", "small", under));
}
