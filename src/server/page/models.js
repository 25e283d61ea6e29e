// All models at a glance, each with how it fares; whoever is chosen is shown below.

import { added, bounded, ms, percent, quantile, short, sum } from "./numbers.js";
import { spokenRange } from "./time.js";
import { byId, made } from "./words.js";

const GOOD = 0.99, FAIR = 0.9; // shares of requests that are answered in time

/** What to think of so many answers in time of so many requests: the colour of words and dots. */
export const moodOf = (on_time, all) => (all === 0 ? "idle" : on_time / all >= GOOD ? "good" : on_time / all >= FAIR ? "fair" : "bad");

/** How a model fares in the time that the words are about, and its figures. */
function figuresOf({ history, latency_edges_ms, max_latency_ms, stuck, warning }) {
  const { from, to, seconds } = spokenRange(history), all = (key) => sum(history[key].slice(from, to));
  const on_time = all("on_time"), answers = on_time + all("late"), requests = answers + all("refused") + all("failed");
  const batches = sum(history.batches.slice(from, to).flat()), busy = history.busy.slice(from, to);
  const p99 = quantile(added(history.latency.slice(from, to), latency_edges_ms.length + 1), latency_edges_ms, 0.99);
  const mood = moodOf(on_time, requests);
  return {
    mood: stuck ? "bad" : warning && mood !== "bad" ? "fair" : mood,
    cells: [
      [requests ? `${percent(on_time / requests)} on time` : stuck ? "stuck" : warning ? "too slow" : "no request", `share ${mood}`],
      [`${short(answers / seconds)} a second`],
      [p99 ? `p99 ${bounded(p99)} of ${ms(max_latency_ms)}` : `cap ${ms(max_latency_ms)}`, "more"],
      [batches ? `${short(all("rows") / batches)} rows a batch` : "no batch", "more"],
      [`${percent(sum(busy) / Math.max(1, busy.length))} busy`, "more"],
    ],
  };
}

export const keyOf = (model) => `${model.name}@${model.version}`;

/** The path of a model, with its version where several are shown: without one, another may answer. */
export function pathOf(models, { name, version }) {
  const several = models.filter((one) => one.name === name).length > 1;
  return `models/${encodeURIComponent(name)}${several ? `/versions/${encodeURIComponent(version)}` : ""}`;
}

/** The model that the address names. Where its version is gone it is the highest of the same name, and else the first of all. */
export function chosenOf(models, key) {
  const name = key.replace(/@[^@]*$/, "");
  return models.find((one) => keyOf(one) === key) ?? models.findLast((one) => one.name === name) ?? models[0];
}

/** The models to choose from, where there are several. */
export function showModels(models, shown, choose) {
  const holder = byId("models");
  holder.hidden = models.length < 2;
  const labels = () => [...holder.querySelectorAll("label")];
  if (labels().map((label) => label.dataset.key).join("\n") !== models.map(keyOf).join("\n")) {
    labels().forEach((label) => label.remove());
    holder.append(...models.map((model) => {
      const radio = Object.assign(document.createElement("input"), { type: "radio", name: "model" });
      radio.addEventListener("change", () => choose(keyOf(model)));
      const label = made("label", "", radio, made("i", "health"), made("span", "model", model.name), made("span", "small"));
      label.title = model.name;
      label.dataset.key = keyOf(model);
      return label;
    }));
  }
  labels().forEach((label, at) => {
    const { mood, cells } = figuresOf(models[at]);
    label.querySelector("input").checked = models[at] === shown;
    label.querySelector("i").className = `health ${mood}`;
    label.querySelectorAll(".cell").forEach((cell) => cell.remove());
    label.lastChild.textContent = `version ${models[at].version}`;
    label.append(...cells.map(([words, kind = ""]) => made("span", `cell ${kind}`, words)));
  });
}
