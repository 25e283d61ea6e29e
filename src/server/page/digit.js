// The digit to draw: pen and canvas, one question to the model at a time, and its answer with what the server did for it.

import { pixelsOf } from "./pixels.js";
import { byId, made } from "./words.js";

let model_path = ""; // of the model that is asked

/** Shows the drawing if the model at `path`, of which `tensors` is what the server says, is one to draw for; says whether it is. */
export function showDrawing(tensors, path) {
  const has = (list, name, length) => list?.some((t) => t.name === name && t.datatype === "FP32" && t.shape.length === 2 && t.shape[1] === length);
  const fits = tensors?.name === "digits" && has(tensors.inputs, "pixels", 64) && has(tensors.outputs, "probabilities", 10);
  const section = byId("drawing");
  if (fits && (section.hidden || path !== model_path)) {
    model_path = path;
    clear(); // an answer of another version would be taken for this one's
  }
  section.hidden = !fits;
  return fits;
}

// The drawing

const canvas = byId("canvas");
const PEN = 0.06;         // breadth of the pen on the page, as a share of the canvas's side
const NEAREST = 0.008;    // a point nearer than this to the last one is left out; bounds the work for one drawing
const MOST_POINTS = 4000; // of one drawing; further ones are left out
let strokes = [];         // of points [x, y], both from 0 to 1, so that a resize keeps the drawing
let pointer = null;       // the id of the pointer that is drawing
let box = null;           // where the canvas was when the stroke began: should it move, the stroke stays whole

function addPoint(event) {
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
  box = canvas.getBoundingClientRect();
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
function penUp(event) {
  if (event.pointerId !== pointer) return;
  pointer = null;
  drawingChanged();
}
canvas.addEventListener("pointerup", penUp);
canvas.addEventListener("pointercancel", penUp);

function clear() {
  strokes = [];
  pointer = null;
  drawingChanged();
}
byId("clear").addEventListener("click", clear);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });

/** Paints the strokes in the canvas's text colour, at the screen's own resolution. */
function paint() {
  const side = Math.round(canvas.clientWidth * devicePixelRatio), pen = canvas.getContext("2d");
  canvas.width = canvas.height = side;
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

// The answer

const bars = Array.from({ length: 10 }, (_, digit) => {
  const fill = made("div", "fill"), share = made("span", "small");
  const row = made("li", "", made("span", "", digit), made("div", "track", fill), share);
  byId("bars").append(row);
  return { row, fill, share };
});

const REQUEST_TIMEOUT_MS = 10_000; // gives up on an answer; the server's own limit is far shorter
const PAUSE_MS = 30;              // between an answer and the next question, while the pen moves
const PAUSE_AFTER_ERROR_MS = 300; // the same after a refusal or an error: a busy server is not pressed
const DOUBT = 0.6;  // below this probability the answer is shown in grey
let wanted = null;  // the newest image that has not been sent
let asking = false; // whether a request is under way: one at a time, the newest image next
let drawing = 0;    // counts the drawings, so that an answer to a cleared one is not shown

/** Sends an image to the model and shows its answer; with null, shows that there is none. */
async function ask(pixels) {
  wanted = pixels;
  if (!pixels) {
    drawing += 1;
    show(null);
  }
  if (asking || !wanted) return;
  asking = true;
  byId("answer").setAttribute("aria-busy", "true");
  while (wanted) {
    const image = wanted, asked = drawing;
    wanted = null;
    let answer = null, problem = "";
    try {
      answer = await infer(image);
    } catch (error) {
      problem = error.message;
    }
    if (asked === drawing) show(answer, problem);
    await new Promise((resume) => setTimeout(resume, problem ? PAUSE_AFTER_ERROR_MS : PAUSE_MS));
  }
  asking = false;
  byId("answer").setAttribute("aria-busy", "false");
}

/** One inference. Throws an error whose message is fit to be shown. */
async function infer(pixels) {
  const started = performance.now();
  const request = JSON.stringify({ inputs: [{ name: "pixels", shape: [1, 64], datatype: "FP32", data: pixels }] });
  let response, body;
  try {
    response = await fetch(`${model_path}/infer`, { method: "POST", body: request, signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
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
  const timing = (pattern) => (response.headers.get("Server-Timing") ?? "").match(pattern)?.[1];
  return {
    request, probabilities, round_trip_ms,
    queue_ms: timing(/queue;dur=([\d.]+)/), batch_ms: timing(/batch;dur=([\d.]+)/), rows: timing(/desc="(\d+) rows?"/),
  };
}

/** Shows an answer, or none and the problem in plain words. */
function show(answer, problem = "") {
  const { probabilities } = answer ?? {}, best = probabilities?.indexOf(Math.max(...probabilities)) ?? -1;
  const percent = (share) => `${(100 * share).toFixed(1)} %`, ms = (value) => (value === undefined ? "–" : `${Number(value).toFixed(2)} ms`);
  byId("digit").textContent = answer ? best : "?";
  byId("drawing").classList.toggle("blank", !answer);
  byId("drawing").classList.toggle("unsure", probabilities?.[best] < DOUBT);
  bars.forEach(({ row, fill, share }, digit) => {
    row.className = digit === best ? "best" : "";
    fill.style.width = answer ? `${100 * probabilities[digit]}%` : "0";
    share.textContent = answer ? percent(probabilities[digit]) : "–";
  });
  byId("round-trip").textContent = ms(answer?.round_trip_ms);
  byId("queue").textContent = ms(answer?.queue_ms);
  byId("batch").textContent = ms(answer?.batch_ms);
  byId("rows").textContent = answer?.rows ?? "–";
  byId("details").hidden = !answer;
  byId("curl").textContent = answer ? `curl ${new URL(`${model_path}/infer`, document.baseURI).href} -d '${answer.request}'` : "";
  if (pointer === null) byId("spoken").textContent = answer ? `The answer is ${best}, ${percent(probabilities[best])}.` : "";
  byId("notice").hidden = !problem;
  byId("notice").textContent = problem;
}

show(null);
