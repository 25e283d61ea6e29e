// What stands on the page in words and figures: the tiles, the reasons of releases and refusals, how to make traffic.

import { added, count, counted, ms, percent, quantile, short, span, sum } from "./numbers.js";
import { say, spoken, when } from "./time.js";

const byId = (id) => document.getElementById(id);

function made(name, class_name, ...children) {
  const element = document.createElement(name);
  if (class_name) element.className = class_name;
  element.append(...children);
  return element;
}

// ------------------------------------------------------------------------------------------------------------ tiles

const GAUGE_HIGH = 0.8; // of its bound: shown in the colour of warning

function tile(name, figure, unit, under, gauge) {
  const bar = made("i", gauge > 1 ? "over" : gauge > GAUGE_HIGH ? "high" : "");
  bar.style.width = `${100 * Math.min(1, gauge || 0)}%`;
  return made("div", "", made("dt", "", name), made("dd", "figure", figure, " ", made("small", "", unit)),
    made("dd", "gauge", bar), made("dd", "under", under));
}

export function drawTiles(model) {
  const { history, latency_edges_ms: edges, max_latency_ms: cap, batch_edges, max_batch_size, queue, runners } = model;
  const { from, to, seconds, name } = spoken(history);
  const over = (key) => sum(history[key].slice(from, to));
  const [on_time, late, refused] = [over("on_time"), over("late"), over("refused")], offered = on_time + late + refused;
  const latency = quantile(added(history.latency.slice(from, to), edges.length + 1), edges, 0.99);
  const sizes = added(history.batches.slice(from, to), batch_edges.length), half = quantile(sizes, batch_edges, 0.5);
  const rows = half ? Math.ceil(half.value) : NaN;
  const busy = sum(history.busy.slice(from, to)) / Math.max(1, to - from);
  const waiting = Math.max(0, ...history.queue_rows.slice(from, to));
  const totals = model.totals, good = totals.on_time, all = good + totals.late + totals.shed + totals.full + totals.failed;
  const [p99, p99_unit] = latency ? ms(latency.value).split(" ") : ["–", ""];
  byId("tiles").replaceChildren(
    tile("On time", percent(on_time / offered), "", `${percent(good / all)} since start`, NaN),
    tile("Answers", short((on_time + late) / seconds), "a second", `${short(refused / seconds)} a second refused`, NaN),
    tile("99 % answered within", p99, p99_unit, `of at most ${ms(cap)}`, latency ? latency.value / cap : NaN),
    tile("Half of the batches up to", short(rows), rows === 1 ? "row" : "rows", `of at most ${count(max_batch_size)}`, rows / max_batch_size),
    tile("Waiting, at most", count(waiting), waiting === 1 ? "row" : "rows", `the bound is ${count(queue.max_rows)}`, waiting / queue.max_rows),
    tile("Runners busy", percent(busy), "", `${counted(runners, "runner")}; ${name}`, busy),
  );
}

// ---------------------------------------------------------------------------------------------------------- reasons

const RELEASES = { full: "full", ripe: "ripe", deadline: "deadline", draining: "draining", probe: "probe" };
const REFUSALS = {
  expired: "expired", batch_too_late: "batch too late", queue_too_long: "queue too long",
  rows_bound: "queue full, rows", bytes_bound: "queue full, bytes",
};

/** A cell; its name is shown beside it where the table's head is not. */
function cell(name, words, class_name = "") {
  const td = made("td", class_name, words);
  if (name) td.dataset.name = name;
  return td;
}

function why(reason, sentence) {
  return made("td", "why", made("b", "", reason), sentence);
}

/** A word for how far a time was from its prediction. */
function off(predicted_ms, took_ms) {
  if (!(predicted_ms > 0) || !Number.isFinite(took_ms)) return "";
  const share = took_ms / predicted_ms - 1;
  return ` (${share < 0 ? "−" : "+"}${Math.round(100 * Math.abs(share))} %)`;
}

function shown(value) {
  return value === null || value === undefined ? "–" : ms(value);
}

export function drawReasons({ releases, refusals }) {
  byId("releases").querySelector("tbody").replaceChildren(...releases.map((release) => made("tr", "",
    cell("", span(release.ago_s)),
    why(RELEASES[release.reason] ?? release.reason, release.why),
    cell("rows", count(release.rows)),
    cell("held", release.held_ms > 0 ? ms(release.held_ms, 2) : "–"),
    cell("predicted", shown(release.predicted_ms)),
    made("td", "", shown(release.took_ms), made("span", "off", off(release.predicted_ms, release.took_ms))),
  )));
  for (const row of byId("releases").querySelectorAll("tbody tr")) row.lastChild.dataset.name = "took";
  byId("refusals").querySelector("tbody").replaceChildren(...refusals.map((refusal) => made("tr", "",
    cell("", span(refusal.ago_s)),
    why(REFUSALS[refusal.reason] ?? refusal.reason, refusal.why),
    cell("requests", count(refusal.requests)),
  )));
  for (const [id, list, none] of [["releases", releases, "No batch was released yet."], ["refusals", refusals, "No request was refused so far."]]) {
    byId(id).querySelector("table").hidden = list.length === 0;
    byId(`${id}-words`).textContent = list.length === 0 ? none : "";
    byId(`${id}-words`).hidden = list.length > 0;
  }
}

// --------------------------------------------------------------------------------------------------- without traffic

const MOST_ELEMENTS = 256; // of a row that is written into a command line
const LOAD_PER_SECOND = 200;

/** The commands that make traffic for a model of which `metadata` says inputs and outputs (null: unknown). */
export function drawQuiet(model, metadata) {
  const server = new URL(".", document.baseURI).href.replace(/\/$/, "");
  const named = /^[\w.-]+$/.test(model.name) ? model.name : `'${model.name.replaceAll("'", `'\\''`)}'`;
  byId("quiet-load").textContent =
    `uncork loadtest ${server} --model ${named} --rate ${LOAD_PER_SECOND} --for 30s --slo 'p99<=${model.max_latency_ms}ms'`;
  const infer = `${server}/v2/models/${encodeURIComponent(model.name)}/infer`;
  const inputs = metadata?.inputs?.map((input) => {
    const shape = input.shape.map((length) => (length < 0 ? 1 : length)), elements = shape.reduce((a, b) => a * b, 1);
    const value = input.datatype === "BYTES" ? "" : input.datatype === "BOOL" ? false : 0;
    return elements <= MOST_ELEMENTS ? { name: input.name, shape, datatype: input.datatype, data: new Array(elements).fill(value) } : null;
  });
  byId("quiet-curl").textContent = inputs && !inputs.includes(null)
    ? `curl ${infer} -d '${JSON.stringify({ inputs }).replaceAll("'", `'\\''`)}'`
    : `curl ${infer} -d @request.json    # GET ${infer.replace(/\/infer$/, "")} says which tensors it takes`;
}
