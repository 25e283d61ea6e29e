// The digit to draw: pen and canvas, one question to the model at a time, and its answer with what the server did for it.

import { pixelsOf } from "./pixels.js";

const byId = (id) => document.getElementById(id);
const REQUEST_TIMEOUT_MS = 10_000; // gives up on an answer; the server's own limit is far shorter
let model_path = "v2/models/digits"; // of the model that is asked

/** Whether a model takes 64 pixels and gives ten probabilities under the names of the digits model. */
function takesDigits(tensors) {
  const is = (list, name, length) => list?.some((t) => t.name === name && t.datatype === "FP32" && t.shape.length === 2 && t.shape[1] === length);
  return tensors?.name === "digits" && is(tensors.inputs, "pixels", 64) && is(tensors.outputs, "probabilities", 10);
}

/** Shows the drawing if the model, of which `tensors` is what the server says, is one to draw for; says whether it is. */
export function showDrawing(tensors, version) {
  const fits = takesDigits(tensors);
  const section = byId("drawing"), was_hidden = section.hidden;
  section.hidden = !fits;
  if (!fits) return false;
  const newest = tensors.versions?.at(-1) ?? version;
  const path = newest === version ? "v2/models/digits" : `v2/models/digits/versions/${encodeURIComponent(version)}`;
  if (path !== model_path || was_hidden) {
    model_path = path;
    clear(); // an answer of another version would be taken for this one's
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------- the drawing

const canvas = byId("canvas");
const PEN = 0.06;         // breadth of the pen on the page, as a share of the canvas's side
const NEAREST = 0.008;    // a point nearer than this to the last one is left out; bounds the work for one drawing
const MOST_POINTS = 4000; // of one drawing; further ones are left out
let strokes = [];         // of points [x, y], both from 0 to 1, so that a resize keeps the drawing
let pointer = null;       // the id of the pointer that is drawing

function addPoint(event) {
  const box = canvas.getBoundingClientRect();
  const point = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  const stroke = strokes.at(-1), last = stroke.at(-1);
  if (last && Math.hypot(point[0] - last[0], point[1] - last[1]) < NEAREST) return;
  if (!last || strokes.flat().length < MOST_POINTS) stroke.push(point); // a stroke is never empty
}

canvas.addEventListener("pointerdown", (event) => {
  if (pointer !== null || event.button !== 0) return;
  event.preventDefault();
  pointer = event.pointerId;
  canvas.setPointerCapture(pointer);
  strokes.push([]);
  addPoint(event);
  drawingChanged();
});

canvas.addEventListener("pointermove", (event) => {
  if (event.pointerId !== pointer) return;
  const events = event.getCoalescedEvents?.() ?? [];
  (events.length ? events : [event]).forEach(addPoint);
  drawingChanged();
});

for (const end of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(end, (event) => {
    if (event.pointerId !== pointer) return;
    pointer = null;
    drawingChanged();
  });
}

function clear() {
  strokes = [];
  pointer = null;
  drawingChanged();
}
byId("clear").addEventListener("click", clear);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });

/** Paints the strokes in the canvas's text colour, at the screen's own resolution. */
function paint() {
  const side = Math.round(canvas.clientWidth * devicePixelRatio);
  if (canvas.width !== side || canvas.height !== side) canvas.width = canvas.height = side;
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, side, side);
  pen.strokeStyle = getComputedStyle(canvas).color;
  pen.lineWidth = PEN * side;
  pen.lineCap = pen.lineJoin = "round";
  for (const stroke of strokes) {
    pen.beginPath();
    pen.moveTo(stroke[0][0] * side, stroke[0][1] * side);
    for (const [x, y] of stroke) pen.lineTo(x * side, y * side);
    pen.stroke();
  }
}

/** Paints the 8 x 8 image that is sent; nothing where there is none. */
function paintSeen(pixels) {
  const pen = byId("seen").getContext("2d");
  pen.clearRect(0, 0, 8, 8);
  pen.fillStyle = getComputedStyle(byId("seen")).color;
  pixels?.forEach((value, at) => {
    pen.globalAlpha = value / 16;
    pen.fillRect(at % 8, Math.floor(at / 8), 1, 1);
  });
}

/** Repaints, once per frame however often the pen moves, and asks the model. */
let frame = 0;
function drawingChanged() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    const pixels = strokes.length ? pixelsOf(strokes) : null;
    paint();
    paintSeen(pixels);
    byId("hint").hidden = pixels !== null;
    ask(pixels);
  });
}
new ResizeObserver(paint).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawingChanged);

// ----------------------------------------------------------------------------------------------------- the answer

const bars = Array.from({ length: 10 }, (_, digit) => {
  const row = document.createElement("li");
  const [label, track, fill, percent] = ["span", "div", "div", "span"].map((tag) => document.createElement(tag));
  label.textContent = digit;
  track.className = "track";
  fill.className = "fill";
  percent.textContent = "–";
  track.append(fill);
  row.append(label, track, percent);
  byId("bars").append(row);
  return { row, fill, percent };
});

const DOUBT = 0.6; // below this probability the answer is shown in grey
const PAUSE_MS = 30; // between an answer and the next question, while the pen moves
const PAUSE_AFTER_ERROR_MS = 300; // the same after a refusal or an error: a busy server is not pressed
let wanted = null; // the newest image that has not been sent
let asking = false; // whether a request is under way: one at a time, the newest image next
let drawing = 0; // counts the images, so that an answer to a cleared drawing is not shown

/** Sends an image to the model and shows its answer; with null, shows that there is none. */
async function ask(pixels) {
  drawing += pixels ? 0 : 1;
  wanted = pixels;
  if (!pixels) {
    showNothing();
    notice(null);
  }
  if (asking || !wanted) return;

  asking = true;
  byId("answer").setAttribute("aria-busy", "true");
  while (wanted) {
    const image = wanted, asked = drawing;
    wanted = null;
    let show, pause_ms = PAUSE_MS;
    try {
      const answer = await infer(image);
      show = () => { notice(null); showAnswer(image, answer); };
    } catch (error) {
      show = () => { showNothing(); notice(error.message); };
      pause_ms = PAUSE_AFTER_ERROR_MS;
    }
    if (asked === drawing) show();
    await new Promise((resume) => setTimeout(resume, pause_ms));
  }
  asking = false;
  byId("answer").setAttribute("aria-busy", "false");
}

/** One inference: {probabilities, timing in milliseconds}. Throws an error whose message is fit to be shown. */
async function infer(pixels) {
  const started = performance.now();
  let response, body;
  try {
    response = await fetch(`${model_path}/infer`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(requestFor(pixels)),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
    body = await response.json();
  } catch (error) {
    if (response && !response.ok) throw new Error(`The server answered ${response.status}.`);
    throw new Error(`No answer from the server: ${error.message}`);
  }
  const round_trip_ms = performance.now() - started;
  if (response.status === 503) throw new Error(`The server is busy (503): ${body.error}`);
  if (!response.ok) throw new Error(`The server answered ${response.status}: ${body.error}`);
  const probabilities = body.outputs?.find((output) => output.name === "probabilities")?.data;
  if (probabilities?.length !== 10) throw new Error("The model's answer is not ten probabilities.");

  // Such as `queue;dur=0.03, batch;dur=0.41;desc="17 rows"`.
  const header = response.headers.get("Server-Timing") ?? "";
  return {
    probabilities,
    round_trip_ms,
    queue_ms: header.match(/queue;dur=([\d.]+)/)?.[1],
    batch_ms: header.match(/batch;dur=([\d.]+)/)?.[1],
    rows: header.match(/desc="(\d+) rows?"/)?.[1],
  };
}

function requestFor(pixels) {
  return { inputs: [{ name: "pixels", shape: [1, 64], datatype: "FP32", data: pixels }] };
}

function showAnswer(pixels, { probabilities, round_trip_ms, queue_ms, batch_ms, rows }) {
  const best = probabilities.indexOf(Math.max(...probabilities));
  const exactly = (share) => `${(100 * share).toFixed(1)} %`;
  const timing = (value) => (value === undefined ? "–" : `${Number(value).toFixed(2)} ms`);
  byId("digit").textContent = best;
  mark(probabilities[best] < DOUBT ? "unsure" : "");
  bars.forEach((bar, digit) => {
    bar.row.className = digit === best ? "best" : "";
    bar.fill.style.width = `${100 * probabilities[digit]}%`;
    bar.percent.textContent = exactly(probabilities[digit]);
  });
  byId("round-trip").textContent = timing(round_trip_ms);
  byId("queue").textContent = timing(queue_ms);
  byId("batch").textContent = timing(batch_ms);
  byId("rows").textContent = rows ?? "–";
  byId("details").hidden = false;
  const address = new URL(`${model_path}/infer`, document.baseURI).href;
  byId("curl").textContent = `curl ${address} -d '${JSON.stringify(requestFor(pixels))}'`;
  if (pointer === null) byId("spoken").textContent = `The answer is ${best}, ${exactly(probabilities[best])}.`;
}

/** How the answer is shown: "none", "unsure", or "" for one that the model is sure of. */
function mark(kind) {
  for (const name of ["none", "unsure"]) byId("drawing").classList.toggle(name, name === kind);
}

function showNothing() {
  byId("digit").textContent = "?";
  mark("none");
  for (const bar of bars) {
    bar.row.className = "";
    bar.fill.style.width = "0";
    bar.percent.textContent = "–";
  }
  for (const id of ["round-trip", "queue", "batch", "rows"]) byId(id).textContent = "–";
  byId("details").hidden = true;
  byId("spoken").textContent = "";
}

/** Shows an error in plain words above the answer; null takes it away. */
function notice(text) {
  byId("notice").hidden = text === null;
  byId("notice").textContent = text ?? "";
}

showNothing();
