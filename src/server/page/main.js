// The page as a whole: which model is shown, what is drawn when, and what is said about the server itself.

import { BatchSizes, Busy, Fit, Latency, Outcomes, Waiting } from "./charts.js";
import { showDrawing } from "./digit.js";
import { Live } from "./live.js";
import { counted, ms, short, span, sum } from "./numbers.js";
import { cursor, spoken } from "./time.js";
import { drawQuiet, drawReasons, drawTiles } from "./words.js";

const byId = (id) => document.getElementById(id);

let status = null;      // the last answer
let chosen = null;      // the key of the model that is shown
let first_version;      // of the server, when the page was loaded
let seen_at = null;     // when the last answer came
let charts = [];        // made once there is something to draw
const metadata = new Map(); // by model key: what GET /v2/models/… said, or null while it is asked

const keyOf = (model) => `${model.name}@${model.version}`;

function fromAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/** The model that is shown: the chosen one, or the first where that is gone. */
function current() {
  return status.models.find((model) => keyOf(model) === chosen) ?? status.models[0];
}

// ------------------------------------------------------------------------------------------------------- the server

function showServer() {
  const { version, uptime_s, ready } = status.server;
  byId("server").textContent = `version ${version}, up ${span(uptime_s)}`;
  byId("dot").className = ready ? "ready" : "not-ready";
  write(byId("state"), live.paused ? "paused" : ready ? "ready" : "not ready");
  byId("lost").hidden = true;
  document.body.classList.remove("stale");
  first_version ??= version;
  byId("newer").hidden = version === first_version;
  write(byId("newer"), `The server is now version ${version}. Reload this page, which is of version ${first_version}.`);
}

/** Changes text only where it differs: what is read aloud is read once. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function lost(error) {
  byId("dot").className = "not-ready";
  write(byId("state"), "no answer");
  const at = seen_at && new Intl.DateTimeFormat(undefined, { timeStyle: "medium" }).format(seen_at);
  const why = error.name === "TimeoutError" ? "it takes too long to answer" : error instanceof TypeError ? "it cannot be reached" : error.message;
  write(byId("lost"), `No answer from the server: ${why}. This page keeps trying.${at ? ` What it shows is from ${at}.` : ""}`);
  byId("lost").hidden = false;
  document.body.classList.add("stale");
}

// ------------------------------------------------------------------------------------------------- models to choose

function showChoice() {
  const { models } = status, holder = byId("models");
  holder.hidden = models.length < 2;
  const keys = models.map(keyOf);
  const labels = [...holder.querySelectorAll("label")];
  if (labels.map((label) => label.dataset.key).join("\n") !== keys.join("\n")) {
    labels.forEach((label) => label.remove());
    holder.append(...models.map((model) => {
      const label = document.createElement("label"), radio = document.createElement("input");
      Object.assign(radio, { type: "radio", name: "model", value: keyOf(model) });
      radio.addEventListener("change", () => choose(radio.value));
      const [name, rate] = ["model", "rate"].map((class_name) => {
        const made = document.createElement("span");
        made.className = class_name;
        return made;
      });
      name.textContent = model.name;
      label.title = model.name;
      label.dataset.key = keyOf(model);
      label.append(radio, name, rate);
      return label;
    }));
  }
  holder.querySelectorAll("label").forEach((label, at) => {
    const model = models[at], { from, to, seconds } = spoken(model.history);
    const answers = sum(model.history.on_time.slice(from, to)) + sum(model.history.late.slice(from, to));
    label.querySelector("input").checked = model === current();
    label.querySelector(".rate").textContent = `version ${model.version} · ${short(answers / seconds)} a second`;
  });
}

function choose(key) {
  chosen = key;
  history.replaceState(null, "", `#${encodeURIComponent(key)}`);
  draw();
}

/** What a model takes and gives; asked for once. Null where that is not known. */
function tensorsOf(model) {
  const key = keyOf(model);
  if (!metadata.has(key)) {
    metadata.set(key, null);
    fetch(`v2/models/${encodeURIComponent(model.name)}/versions/${encodeURIComponent(model.version)}`)
      .then((response) => (response.ok ? response.json() : Promise.reject(new Error(`${response.status}`))))
      .then((body) => { metadata.set(key, body); requestDraw(); })
      .catch(() => metadata.delete(key)); // the next answer asks again
  }
  return metadata.get(key);
}

// ---------------------------------------------------------------------------------------------------------- drawing

function showModel(model) {
  byId("name").textContent = `${model.name}`;
  const caps = byId("caps");
  const bold = (words) => Object.assign(document.createElement("b"), { textContent: words });
  caps.replaceChildren(`version ${model.version}, ${model.platform} · `, bold(`max_latency ${ms(model.max_latency_ms, 6)}`), " · ",
    bold(`max_batch_size ${counted(model.max_batch_size, "row")}`), " · ", bold(counted(model.runners, "runner")));
}

function draw() {
  if (!status) return;
  const model = current();
  byId("main").hidden = !model;
  if (!model) return;
  if (charts.length === 0) charts = [new BatchSizes(), new Latency(), new Fit(), new Outcomes(), new Waiting(), new Busy()];
  const tensors = tensorsOf(model);
  showChoice();
  showModel(model);
  const quiet = sum(Object.values(model.totals)) === 0;
  byId("quiet").hidden = !quiet;
  if (quiet) drawQuiet(model, tensors);
  byId("main").classList.toggle("with-digits", showDrawing(tensors, model.version));
  drawTiles(model);
  charts.forEach((chart) => chart.draw(model));
  drawReasons(model);
}

let frame = 0;
function requestDraw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(draw);
}

cursor.listeners.push(requestDraw);
window.addEventListener("hashchange", () => { chosen = fromAddress(); requestDraw(); });
let width = 0; // heights follow from what is drawn and need no new drawing
new ResizeObserver(([entry]) => {
  if (entry.contentRect.width === width) return;
  width = entry.contentRect.width;
  requestDraw();
}).observe(byId("main"));

const live = new Live((answer) => {
  status = answer;
  seen_at = new Date();
  showServer();
  draw();
}, lost);

byId("pause").addEventListener("click", () => {
  live.pause(!live.paused);
  byId("pause").textContent = live.paused ? "Resume" : "Pause";
  byId("pause").classList.toggle("paused", live.paused);
  if (status) showServer();
});

chosen = fromAddress();
live.ask();
