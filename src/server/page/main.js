// The page as a whole: which model is shown, what is drawn when, and what is said about the server itself.

import { batchSizes, busy, fit, latency, outcomes, waiting } from "./charts.js";
import { showDrawing } from "./digit.js";
import { drawQuiet, drawReasons } from "./figures.js";
import { Live } from "./live.js";
import { chosenOf, keyOf, pathOf, showModels } from "./models.js";
import { counted, ms, span, sum } from "./numbers.js";
import { cursor } from "./time.js";
import { byId, made, say } from "./words.js";

let status = null;    // the last answer
let seen_at = null;   // when it came
let is_lost = false;  // whether the last question got no answer
let why_lost = "";    // and why
let chosen = "";      // the key of the model that is shown
let charts = null;    // made once there is something to draw
const tensors = new Map(); // by model key: what the server says about the model or null, and when it is asked again
const AGAIN_MS = 30_000;   // from a question about a model to the next one, where it got no answer

/** Changes text only where it differs: what is read aloud is read once. */
function write(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function seen(answer) {
  forget(answer);
  status = answer;
  seen_at = new Date();
  is_lost = false;
  byId("lost").hidden = true;
  document.body.classList.remove("stale");
  draw();
}

function lost(error) {
  is_lost = true;
  why_lost = error.name === "TimeoutError" ? "it takes too long" : error instanceof TypeError ? "it cannot be reached" : error.message;
  showLost();
}

function showLost() {
  byId("dot").className = "";
  write("state", "no answer");
  const tries = live.paused ? "is paused" : "keeps trying", from = seen_at ? ` What it shows is from ${seen_at.toLocaleTimeString()}.` : "";
  write("lost", `No answer from the server: ${why_lost}. This page ${tries}.${from}`);
  byId("lost").hidden = false;
  document.body.classList.add("stale");
}

const live = new Live(seen, lost);

function showServer({ version, uptime_s, ready }) {
  write("server", `version ${version}, up ${span(uptime_s)}`);
  if (is_lost) return; // that was before
  byId("dot").className = ready ? "ready" : "";
  write("state", live.paused ? "paused" : status.models.length === 0 ? "serves no model" : ready ? "ready" : "not ready");
}

/** Forgets models that are no longer served, and all of them where another server answers. */
function forget({ server, models }) {
  const is_other = server.uptime_s < status?.server.uptime_s, served = new Set(models.map(keyOf));
  for (const key of tensors.keys()) if (is_other || !served.has(key)) tensors.delete(key);
}

/** What a model takes and gives; asked for once, and again after a while where that failed. Null where it is not known. */
function tensorsOf(model) {
  const key = keyOf(model), now = performance.now();
  const known = tensors.get(key);
  if (known && (known.body || now < known.again_at)) return known.body;
  const asked = { body: null, again_at: now + AGAIN_MS };
  tensors.set(key, asked);
  fetch(`v2/models/${encodeURIComponent(model.name)}/versions/${encodeURIComponent(model.version)}`)
    .then((response) => (response.ok ? response.json() : Promise.reject(response)))
    .then((body) => { asked.body = body; requestDraw(); })
    .catch(() => {}); // it may not be asked
  return null;
}

function draw() {
  if (!status) return;
  showServer(status.server);
  const model = chosenOf(status.models, chosen);
  byId("main").hidden = !model;
  if (!model) return;
  charts ??= [outcomes, latency, batchSizes, waiting, busy, fit].map((make) => make());
  showModels(status.models, model, (key) => { location.hash = encodeURIComponent(key); });
  write("name", model.name);
  say(byId("caps"), `version ${model.version}, ${model.platform} · `, [`max_latency ${ms(model.max_latency_ms, 6)}`], " · ",
    [`max_batch_size ${counted(model.max_batch_size, "row")}`], " · ", [counted(model.runners, "runner")], model.shadow ? " · a shadow: it gets copies of requests and answers nobody" : "");
  const trouble = model.stuck ?? model.warning;
  write("trouble", trouble ? `${model.stuck ? "It does not answer at present" : "It cannot keep its cap"}: ${trouble}.` : "");
  byId("trouble").hidden = !trouble;
  const known = model.shadow ? null : tensorsOf(model), path = pathOf(status.models, model), { for_operators } = status.server;
  const quiet = !model.shadow && sum(Object.values(model.totals)) === 0; // whoever asked a shadow would be told that it is not there
  byId("quiet").hidden = !quiet;
  byId("main").classList.toggle("is-quiet", quiet);
  byId("quiet-elsewhere").hidden = !for_operators;
  byId("quiet-commands").hidden = for_operators;
  if (quiet) drawQuiet(model, known, path);
  byId("main").classList.toggle("with-digits", showDrawing(for_operators ? null : known, `v2/${path}`));
  byId("tiles").replaceChildren(...charts.flatMap((drawChart) => drawChart(model)));
  drawReasons(model);
}

let frame = 0;
function requestDraw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(draw);
}
cursor.moved = requestDraw;

let width = 0; // heights follow from what is drawn and need no new drawing
new ResizeObserver(([{ contentRect }]) => {
  if (contentRect.width !== width) requestDraw();
  width = contentRect.width;
}).observe(byId("main"));

function readAddress() {
  try {
    chosen = decodeURIComponent(location.hash.slice(1));
  } catch {
    chosen = ""; // written by hand, and wrongly
  }
  requestDraw();
}
addEventListener("hashchange", readAddress);

byId("pause").addEventListener("click", () => {
  live.pause(!live.paused);
  byId("pause").textContent = live.paused ? "Resume" : "Pause";
  if (is_lost) showLost();
  requestDraw();
});

for (const radio of document.querySelectorAll("#window input")) {
  radio.addEventListener("change", () => {
    cursor.set(null);
    live.show(radio.value === "hour");
  });
}

readAddress();
live.ask();
