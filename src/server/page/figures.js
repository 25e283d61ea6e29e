// The reasons of releases and refusals, and the commands that make traffic.

import { count, ms, short, span } from "./numbers.js";
import { byId, made } from "./words.js";

/** A cell of a table; `name` is shown beside it where the table has no head. */
function cell(name, ...words) {
  const td = made("td", name === "why" ? "why" : "", ...words);
  if (name !== "why") td.dataset.name = name;
  return td;
}

/** A reason as a sentence, and below it what the last caller was told. */
const why = ({ reason, why, told = "" }) => cell("why", made("b", "", reason.replaceAll("_", " ")), " · ", why, made("div", "small", told));
const known = (value) => (value === null ? "–" : ms(value));

export function drawReasons({ releases, refusals }) {
  const fill = (id, list, cells, none) => {
    const section = byId(id);
    section.querySelector("tbody").replaceChildren(...list.map((item) => made("tr", "", ...cells(item))));
    section.querySelector("table").hidden = list.length === 0;
    section.classList.toggle("none", list.length === 0);
    byId(`${id}-words`).textContent = list.length === 0 ? none : "";
  };
  fill("releases", releases, (release) => [
    cell("", span(release.ago_s)), why(release), cell("rows", count(release.rows)),
    cell("held", release.held_ms > 0 ? ms(release.held_ms, 2) : "–"), cell("predicted", known(release.predicted_ms)),
    cell("took", known(release.took_ms), release.took_ms && release.predicted_ms ? made("span", "small", ` (× ${short(release.took_ms / release.predicted_ms, 2)})`) : ""),
  ], "No batch was released yet.");
  fill("refusals", refusals, (refusal) => [cell("", span(refusal.ago_s)), why(refusal), cell("requests", count(refusal.requests))],
    "No request was refused so far.");
}

const MOST_ELEMENTS = 256; // of a row that is written into a command line

/** A word of a POSIX shell. */
const quoted = (text) => (/^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** Whether a model takes any body, and has no tensors that a caller could know. */
function isOpaque({ inputs, outputs }) {
  const is = (list, name) => list.length === 1 && list[0].name === name && list[0].datatype === "BYTES" && list[0].shape.length === 1;
  return is(inputs, "request") && is(outputs, "answer");
}

/** The commands that make traffic for the model at `below`; `tensors` is what the server says about it, or null. */
export function drawQuiet(model, tensors, below) {
  const server = new URL(".", document.baseURI).href.replace(/\/$/, "");
  const opaque = tensors && isOpaque(tensors), several = below.includes("/versions/");
  // A load by name is for whichever version answers.
  const whom = opaque ? `${server}/${below} --body FILE` : several ? `${server}/v2/${below}/infer --body FILE` : `${server} --model ${quoted(model.name)}`;
  byId("quiet-load").textContent = `uncork loadtest ${whom} --rate 200 --for 30s --slo 'p99<=${model.max_latency_ms}ms'`;
  if (opaque) {
    byId("quiet-curl").textContent = `curl ${server}/${below} -d BODY  # with a BODY that it takes`;
    return;
  }
  const path = `${server}/v2/${below}`;
  const inputs = tensors?.inputs.map(({ name, datatype, shape }) => {
    const one = shape.map((length) => Math.max(1, length)), elements = one.reduce((a, b) => a * b, 1);
    const value = { BYTES: "", BOOL: false }[datatype] ?? 0;
    return elements <= MOST_ELEMENTS && { name, datatype, shape: one, data: new Array(elements).fill(value) };
  });
  byId("quiet-curl").textContent = inputs?.every(Boolean)
    ? `curl ${path}/infer -d ${quoted(JSON.stringify({ inputs }))}`
    : `curl ${path}/infer -d @request.json  # ${path} says which tensors it takes`;
}
