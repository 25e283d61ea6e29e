// The plots. Each is made once and gives the function that draws a model, says it in words, and returns its tiles.

import { added, along, bounded, bucketName, colourSteps, count, counted, ms, percent, quantile, roundedUp, short, span, sum, ticks } from "./numbers.js";
import { moodOf } from "./models.js";
import { Plot, band, bars, linear, logarithmic, path } from "./plot.js";
import { TimePlot } from "./time.js";
import { byId, made, say, tile } from "./words.js";

const COLOURS = 8;
const BAND_PX = { least: 15, most: 30, all: 200 }; // heights of a band of sizes, and of all together where these allow

export function batchSizes() {
  const plot = new TimePlot("batches", { left: 52, name: "Batch sizes" });
  return ({ history, batch_edges: edges, max_batch_size }) => {
    const band_px = Math.min(BAND_PX.most, Math.max(BAND_PX.least, Math.floor(BAND_PX.all / edges.length)));
    plot.begin(history, band_px * edges.length);
    const top = (bucket) => plot.y1 - (bucket + 1) * band_px;
    edges.forEach((_, bucket) => plot.gridY(top(bucket) + band_px, bucketName(edges, bucket), band_px / 2));

    const most = Math.max(0, ...history.batches.flat()), steps = colourSteps(most);
    const shade = (step) => `h${steps.length === 1 ? COLOURS / 2 : Math.round(step * (COLOURS - 1) / (steps.length - 1))}`;
    // Edges are rounded, so that neighbouring cells neither overlap nor leave seams of half a pixel.
    const cells = steps.map(() => []), gap = plot.column_px > 4 ? 1 : 0;
    history.batches.forEach((column, at) => {
      const x = Math.round(plot.left(at)), width = Math.round(plot.left(at + 1)) - x - gap;
      column.forEach((batches, bucket) => {
        if (batches > 0) cells[steps.findLastIndex((step) => batches >= step)].push([x, top(bucket) + 1, width, band_px - 1]);
      });
    });
    cells.forEach((boxes, step) => plot.path(shade(step), bars(boxes), boxes.length));
    if (most === 0) plot.empty("no batch");
    byId("batches-legend").replaceChildren(...(most === 0 ? [] : [`batches in ${history.step_s === 1 ? "a second" : `${history.step_s} s`} of as many rows:`, ...steps.map((step, at) => {
      const last = at + 1 < steps.length ? steps[at + 1] - 1 : most;
      return made("span", "", made("i", `swatch ${shade(at)}`), last > step ? `${count(step)}–${count(last)}` : count(step));
    })]));

    // Rows are counted, not read off the bands: a band of 9 to 16 does not tell which.
    const batches = sum(plot.spoken(history.batches).flat()), mean = sum(plot.spoken(history.rows)) / batches;
    const largest = Math.max(0, ...plot.spoken(history.largest)), mean_rows = `${short(mean)} row${mean === 1 ? "" : "s"}`;
    if (batches === 0) plot.say("no batch");
    else plot.say([short(batches / plot.seconds)], batches === plot.seconds ? " batch" : " batches", " a second, of ", [mean_rows], " on average, the largest of ", [count(largest)]);
    return tile("Mean batch", batches ? mean_rows : "–", `of at most ${count(max_batch_size)}`, mean / max_batch_size);
  };
}

const QUANTILES = { p50: 0.5, p90: 0.9, p99: 0.99 };
const LEAST_MS = 0.01; // on the logarithmic axis
const NAMES_APART_PX = 12;

export function latency() {
  const plot = new TimePlot("latency", { height: 200, left: 52, right: 32, name: "Latency" });
  return ({ history, latency_edges_ms: edges, max_latency_ms: cap }) => {
    plot.begin(history);
    const names = Object.keys(QUANTILES);
    const lines = names.map((name) => history.latency.map((column) => quantile(column, edges, QUANTILES[name])?.value));
    const values = lines.flat().filter((value) => value !== undefined);
    const low = Math.max(LEAST_MS, Math.min(cap / 20, ...values) * 0.8), high = Math.max(cap * 1.6, ...values);
    const scale = logarithmic([low, high], [plot.y1, plot.y0]);
    for (const tick of logTicks(low, high)) plot.gridY(scale(tick), ms(tick));
    const points = lines.map((line) => line.map((value, at) => value !== undefined && [plot.middle(at), scale(value)]));
    plot.path("band", band(points[2], points[0]));
    let name_y = Infinity; // of the last name at the right ends of the lines
    names.forEach((name, at) => {
      const shown = points[at].filter(Boolean);
      plot.path(`stroke ${name}`, path(points[at]), shown.length);
      if (!shown.length) return;
      name_y = Math.min(shown.at(-1)[1] + 4, name_y - NAMES_APART_PX);
      plot.text(plot.x1 + 5, name_y, name);
    });
    plot.bound(scale(cap), `cap ${ms(cap)}`);
    if (values.length === 0) plot.empty("no answer");

    const total = added(plot.spoken(history.latency), edges.length + 1);
    if (sum(total) === 0) plot.say("no answer");
    else plot.say(...names.flatMap((name) => [`${name} `, [bounded(quantile(total, edges, QUANTILES[name]))], " "]), `of at most ${ms(cap)}`);
    const p99 = quantile(total, edges, 0.99);
    return tile("99 % answered in", p99 ? bounded(p99) : "–", `of at most ${ms(cap)}`, p99?.value / cap);
  };
}

/** 1, 2, 5 times powers of ten between two values; where these are many, the powers only. */
function logTicks(low, high) {
  const from = Math.floor(Math.log10(low)), powers = Array.from({ length: 12 }, (_, at) => 10 ** (from + at));
  const inside = (list) => list.filter((tick) => tick >= low && tick <= high);
  const all = inside(powers.flatMap((power) => [power, 2 * power, 5 * power]));
  return all.length <= 8 ? all : inside(powers);
}

const OUTCOMES = { on_time: "on-time", late: "late", refused: "refused", failed: "failed" }; // of the history, with their colours
// Outcomes of the totals with their words and colours. The first three are always shown, others once they happened.
const TOTALS = [
  ["on_time", "on time", "on-time"], ["late", "late", "late"], ["shed", "refused, no answer in time", "refused"],
  ["full", "refused, queue full", "refused"], ["shutting_down", "refused, shutting down", "refused"],
  ["own_deadline", "refused, caller's own deadline", ""],
  ["failed", "failed in the model", "failed"], ["invalid", "not valid", ""], ["departed", "caller left", ""],
];

export function outcomes() {
  const plot = new TimePlot("outcomes", { height: 120, name: "Requests a second" });
  return ({ history, totals }) => {
    plot.begin(history);
    const keys = Object.keys(OUTCOMES), bases = history.on_time.map(() => 0), gap = plot.column_px > 3 ? 0.6 : 0;
    const top = Math.max(1, ...bases.map((_, at) => 1.05 / history.step_s * sum(keys.map((key) => history[key][at]))));
    const scale = plot.zeroTo(top, 4, count);
    for (const key of keys) {
      const boxes = history[key].map((requests, at) => {
        const base = scale(bases[at]);
        bases[at] += requests / history.step_s;
        // What happened is seen, be it one in thousands: a bar is a pixel high at least.
        const height = requests && Math.max(1, base - scale(bases[at]));
        return [plot.left(at), base - height, plot.column_px - gap, height];
      });
      plot.path(OUTCOMES[key], bars(boxes), boxes.filter((box) => box[3] > 0).length);
    }
    const [on_time, late, refused, failed] = keys.map((key) => sum(plot.spoken(history[key]))), all = on_time + late + refused + failed;
    if (!bases.some(Boolean)) plot.empty("no request");
    if (all === 0) plot.say("no request");
    else plot.say([short(all / plot.seconds)], " a second: ", [percent(on_time / all)], ` on time, ${percent(late / all)} late, ${percent(refused / all)} refused${failed ? `, ${percent(failed / all)} failed` : ""}`);
    byId("totals").replaceChildren(...TOTALS.filter(([key], at) => at < 3 || totals[key] > 0)
      .map(([key, words, colour]) => made("tr", "", made("td", "", made("i", `swatch ${colour}`), words), made("td", "", count(totals[key])))));
    const since_start = totals.on_time / (totals.on_time + totals.late + totals.shed + totals.full + totals.failed);
    return [tile(`On time, ${plot.about}`, percent(on_time / all), `${percent(since_start)} since start`, on_time / all, moodOf(on_time, all)),
      tile("Answers a second", short((on_time + late) / plot.seconds), `${short(refused / plot.seconds)} refused${failed ? `, ${short(failed / plot.seconds)} failed` : ""}`)];
  };
}

const BOUND_SHOWN = 3; // times the longest queue: a bound above that would flatten the queue

export function waiting() {
  const plot = new TimePlot("waiting", { height: 82, name: "Rows in the queue" });
  return ({ history: { queue_rows }, history, queue: { max_rows } }) => {
    plot.begin(history);
    const most = Math.max(1, ...queue_rows), bound_shown = max_rows <= BOUND_SHOWN * most;
    const scale = plot.zeroTo(1.05 * (bound_shown ? Math.max(max_rows, most) : most), 3, count);
    plot.area(queue_rows, scale);
    if (bound_shown) plot.bound(scale(max_rows), `bound ${count(max_rows)}`);
    const rows = Math.max(0, ...plot.spoken(queue_rows)), bound = `of at most ${count(max_rows)}`;
    plot.say("up to ", [counted(rows, "row")], ` ${bound}`);
    return tile("Waiting, up to", counted(rows, "row"), bound, rows / max_rows);
  };
}

export function busy() {
  const plot = new TimePlot("busy", { height: 82, name: "Share of the runners' time that is busy" });
  return ({ history, runners, in_flight }) => {
    plot.begin(history);
    plot.area(history.busy, plot.zeroTo(100, 2, (tick) => `${tick} %`, 100));
    const shares = plot.spoken(history.busy), share = sum(shares) / Math.max(1, shares.length), now = `${in_flight} of ${counted(runners, "runner")}`;
    plot.say([percent(share)], ` busy; now ${now}`);
    return tile("Runners busy", percent(share), `now ${now}`, share);
  };
}

const USUAL = 0.94; // of the samples fit into the plot
const GUESS_PX = 60; // of the line, from which on it is labelled
const CAP_SHOWN = 2; // times the highest point: a cap above that stands in words only

export function fit() {
  const plot = new Plot("fit", { height: 178, left: 52, right: 14, bottom: 36, name: "Time of batches by their rows, with the fitted line" });
  return ({ estimate, max_batch_size, max_latency_ms: cap }) => {
    plot.begin();
    say(byId("fit-more"));
    if (!estimate) {
      plot.empty("no batch yet");
      say(plot.words, "What a batch costs is learned from the first ones.");
      return [];
    }
    const { base_ms, per_row_ms, noise, samples, timed_rows: [least, most], is_line, curve } = estimate;
    const time = curve ? (rows) => along(curve, rows) : (rows) => base_ms + per_row_ms * rows;
    // Of one size alone it is not known what a row adds: nothing at least, and at most so much that a batch is all rows.
    const at_most = (rows) => is_line ? time(rows) : time(rows) * Math.max(1, rows / most);
    const widest = Math.max(1, most, ...samples.map(([rows]) => rows));
    const right = widest * 2 > max_batch_size ? max_batch_size : Math.min(max_batch_size, roundedUp(widest * 1.2));
    // Some stragglers would flatten all else: they stand at the upper edge.
    const usual = samples.map(([, took]) => took).sort((a, b) => a - b)[Math.floor(samples.length * USUAL)] ?? 0;
    const tallest = Math.max(time(right) * noise, at_most(right), usual), cap_shown = cap <= CAP_SHOWN * tallest;
    const top = 1.08 * (cap_shown ? Math.max(cap, tallest) : tallest);
    const x = linear([0, right], [plot.x0, plot.x1]), y = plot.zeroTo(top, 4, ms);
    for (const tick of ticks(right, 5)) if (Number.isInteger(tick) && right - tick > right / 12) plot.tickX(x(tick), count(tick));
    plot.tickX(plot.x1, count(right), "end");
    plot.text(plot.x1, plot.y1 + 33, `rows in the batch${right === max_batch_size ? ", up to max_batch_size" : ""}`, "end");
    samples.forEach(([rows, took], at) => {
      const opacity = 0.2 + 0.6 * (at + 1) / samples.length; // the newest strongest
      plot.add("circle", { class: "on-time sample", cx: x(rows), cy: y(Math.min(top, took)), r: 3, "fill-opacity": opacity });
    });
    const bends = (from, to) => (curve ?? []).map(([rows]) => rows).filter((rows) => from < rows && rows < to);
    const line = (from, to, factor = 1) => path([from, ...bends(from, to), to].map((rows) => [x(rows), y(time(rows) * factor)]));
    if (noise > 1) plot.path("line promise", line(0, right, noise));
    // Between the sizes that were timed the line is known, beyond them it is a guess, and looks like one.
    plot.path("line guess", line(0, least));
    plot.path("line guess", line(most, right));
    if (!is_line) plot.path("line guess", path([most, right].map((rows) => [x(rows), y(at_most(rows))])));
    plot.path("line", line(least, most));
    const beyond = x(right) - x(most) > GUESS_PX ? [most, right] : null;
    if (beyond) plot.text(x((beyond[0] + beyond[1]) / 2), y(time((beyond[0] + beyond[1]) / 2)) - 7, "a guess", "middle", "guess-name");
    if (is_line && !curve) plot.add("circle", { class: "intercept", cx: plot.x0, cy: y(base_ms), r: 3.5 });
    if (cap_shown) plot.bound(y(cap), `cap ${ms(cap)}`);

    if (curve) say(plot.words, "A batch costs ", [ms(time(1), 2)], " for 1 row, ", [ms(time(max_batch_size), 2)], ` for ${count(max_batch_size)}, and no line between.`);
    else if (is_line) say(plot.words, "A batch costs ", [ms(base_ms, 2)], " + ", [ms(per_row_ms, 2)], " a row.");
    else say(plot.words, "A batch of ", [least === most ? counted(most, "row") : `${count(least)} to ${counted(most, "row")}`], " costs ", [ms(base_ms, 2)], most < max_batch_size ? ". What more rows add is not known yet." : ".");
    const full_ms = time(max_batch_size), rate = count(Number((max_batch_size / full_ms * 1000).toPrecision(2)));
    const full = (took) => most === max_batch_size ? `${took}, ${rate} rows a second. `
      : is_line ? `${took}, ${rate} rows a second: a guess, none was timed. ` : `from ${took} to ${ms(at_most(max_batch_size), 2)}, none was timed. `;
    say(byId("fit-more"), `Learned from batches of ${least === most ? counted(most, "row") : `${count(least)} to ${counted(most, "row")}`}, the last ${span(estimate.age_s)} ago. `,
      curve ? "The curve goes through what each size took. " : "",
      estimate.trusted ? `Decisions count on ${short(noise)} × that (dotted). ` : "Too few batches yet to refuse anything on this. ",
      `A full batch of ${counted(max_batch_size, "row")}: ${full(ms(full_ms, 2))}`,
      cap_shown ? "" : `The cap of ${ms(cap)} is far above.`);
    return [];
  };
}
