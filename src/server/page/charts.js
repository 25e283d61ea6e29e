// The plots: batch sizes, latency, outcomes, queue, runners, and the line of batch times.

import { added, bucketName, colourSteps, count, counted, highest, ms, percent, quantile, roundedUp, short, span, sum, ticks } from "./numbers.js";
import { Plot, band, bars, linear, logarithmic, path } from "./plot.js";
import { TimePlot, say, spoken, when } from "./time.js";

const byId = (id) => document.getElementById(id);
const plotOf = (id) => byId(id).querySelector(".plot");

// ------------------------------------------------------------------------------------------------------ batch sizes

const COLOURS = 8;
const ROWS_PX = [15, 30, 200]; // of one band of sizes: least, most; of all together, where these allow

export class BatchSizes {
  constructor() {
    this.words = byId("batches-words");
    this.plot = new TimePlot(plotOf("batches"), { height: 240, left: 56, name: "Batch sizes over the last two minutes", words: this.words });
  }

  draw({ history, batch_edges: edges, max_batch_size }) {
    const { plot } = this, buckets = edges.length;
    const band_px = Math.min(ROWS_PX[1], Math.max(ROWS_PX[0], Math.floor(ROWS_PX[2] / buckets)));
    plot.height = band_px * buckets + plot.margin.top + plot.margin.bottom;
    plot.begin(history);
    const top = (bucket) => plot.y1 - (bucket + 1) * band_px;
    for (let bucket = 0; bucket < buckets; bucket++) {
      plot.text(plot.x0 - 6, top(bucket) + band_px / 2 + 4, bucketName(edges, bucket), "end");
      if (bucket > 0) plot.add("line", { class: "grid", x1: plot.x0, x2: plot.x1, y1: top(bucket - 1), y2: top(bucket - 1) });
    }

    const most = Math.max(0, ...history.batches.map((column) => Math.max(...column)));
    const steps = colourSteps(most);
    const shade = (step) => (steps.length === 1 ? COLOURS / 2 : Math.round(step * (COLOURS - 1) / (steps.length - 1)));
    // Pixel edges are rounded, so that neighbouring cells neither overlap nor leave seams of half a pixel.
    const boxes = steps.map(() => []);
    const gap = plot.column_px > 4 ? 1 : 0;
    history.batches.forEach((column, at) => {
      const x = Math.round(plot.left(at)), width = Math.round(plot.left(at + 1)) - x - gap;
      column.forEach((batches, bucket) => {
        if (batches <= 0) return;
        boxes[Math.max(0, steps.findLastIndex((step) => batches >= step))].push([x, top(bucket) + 1, width, band_px - 1]);
      });
    });
    boxes.forEach((cells, step) => {
      if (cells.length) plot.add("path", { class: `cells h${shade(step)}`, d: bars(cells), "data-marks": cells.length });
    });
    if (most === 0) plot.empty("no batch in the last two minutes");
    plot.end();
    this.legend(steps, shade, most);
    this.say(history, edges, max_batch_size);
  }

  legend(steps, shade, most) {
    const made = ["rows, from bottom to top; colour: batches a second"];
    steps.forEach((step, at) => {
      const item = document.createElement("span"), swatch = document.createElement("i");
      swatch.className = `swatch h${shade(at)}`;
      const last = (steps[at + 1] ?? Infinity) - 1;
      item.append(swatch, at === steps.length - 1 ? `${count(step)}${most > step ? " and more" : ""}` : last > step ? `${count(step)}–${count(last)}` : count(step));
      made.push(item);
    });
    byId("batches-legend").replaceChildren(...(most > 0 ? made : []));
  }

  say(history, edges, max_batch_size) {
    const { from, to, seconds, name } = spoken(history);
    const sizes = added(history.batches.slice(from, to), edges.length), batches = sum(sizes);
    if (batches === 0) return say(this.words, when(name), " no batch");
    const half = Math.ceil(quantile(sizes, edges, 0.5).value);
    say(this.words, when(name), " ", [short(batches / seconds)], " batches a second; half of them up to ", [counted(half, "row")],
      ", the largest ", [bucketName(edges, highest(sizes))], ` of at most ${count(max_batch_size)}`);
  }
}

// ---------------------------------------------------------------------------------------------------------- latency

const QUANTILES = [["p50", 0.5], ["p90", 0.9], ["p99", 0.99]];
const LATENCY_TICKS = 7; // at most
const LEAST_MS = 0.01; // on the logarithmic axis

export class Latency {
  constructor() {
    this.words = byId("latency-words");
    this.plot = new TimePlot(plotOf("latency"), { height: 236, left: 56, right: 32, name: "Latency over the last two minutes", words: this.words });
  }

  draw({ history, latency_edges_ms: edges, max_latency_ms: cap }) {
    const { plot } = this;
    plot.begin(history);
    const lines = QUANTILES.map(([, share]) => history.latency.map((column) => quantile(column, edges, share)?.value ?? null));
    const values = lines.flat().filter((value) => value !== null);
    const low = lowest(Math.max(LEAST_MS, Math.min(cap / 20, ...values))), high = Math.max(cap * 1.6, ...values);
    const scale = logarithmic([low, high], [plot.y1, plot.y0]);
    for (const tick of logTicks(low, high)) plot.gridY(scale(tick), ms(tick));

    const points = lines.map((line) => line.map((value, at) => (value === null ? null : [plot.middle(at), scale(value)])));
    plot.add("path", { class: "band", d: band(points[2], points[0]) });
    points.forEach((line, at) => {
      plot.add("path", { class: QUANTILES[at][0], d: path(line), "data-marks": line.filter((point) => point !== null).length });
    });
    plot.bound(scale(cap), `cap ${ms(cap)}`);
    this.nameLines(points);
    if (values.length === 0) plot.empty("no answer in the last two minutes");
    plot.end();

    const { from, to, name } = spoken(history);
    const total = added(history.latency.slice(from, to), edges.length + 1);
    if (sum(total) === 0) return say(this.words, when(name), " no answer");
    const parts = QUANTILES.flatMap(([label, share]) => {
      const { value, beyond } = quantile(total, edges, share);
      return [` ${label} `, [`${beyond ? "> " : ""}${ms(value)}`], ","];
    });
    say(this.words, when(name), ...parts.slice(0, -1), ` of at most ${ms(cap)}`);
  }

  /** Names at the right ends of the lines, pushed apart where the lines are close. */
  nameLines(points) {
    const ends = points.map((line, at) => [QUANTILES[at][0], line.findLast((point) => point !== null)?.[1]]).filter(([, y]) => y !== undefined);
    let last = Infinity;
    for (const [label, y] of ends) {
      last = Math.min(y + 4, last - 12);
      this.plot.text(this.plot.x1 + 5, last, label);
    }
  }
}

/** The largest of 1, 2, 5 times a power of ten that is not above the value. */
function lowest(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [5, 2, 1].find((factor) => factor * power <= value * 1.0001);
}

function logTicks(low, high) {
  const all = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) all.push(...[1, 2, 5].map((factor) => factor * power));
  const inside = all.filter((tick) => tick >= low * 0.999 && tick <= high);
  return inside.length <= LATENCY_TICKS ? inside : inside.filter((tick) => Math.abs(Math.log10(tick) % 1) < 1e-6 || Math.abs(Math.log10(tick) % 1) > 1 - 1e-6);
}

// --------------------------------------------------------------------------------------------------------- outcomes

const OUTCOMES = [["on_time", "on-time", "on time"], ["late", "late", "late"], ["refused", "refused", "refused"]];
// Every outcome of the server's totals, in words; `of` names the row of OUTCOMES with its colour and rate.
const TOTALS = [
  ["on_time", "on time", "on_time"], ["late", "late", "late"], ["shed", "refused: it would have been late", "refused"],
  ["full", "refused: the queue was full", "refused"], ["shutting_down", "refused: shutting down", null], ["failed", "failed in the model", null],
  ["invalid", "invalid", null], ["departed", "caller left", null],
];

export class Outcomes {
  constructor() {
    this.words = byId("outcomes-words");
    this.plot = new TimePlot(plotOf("outcomes"), { height: 150, name: "Requests a second over the last two minutes", words: this.words });
  }

  draw({ history, totals }) {
    const { plot } = this;
    plot.begin(history);
    const rates = OUTCOMES.map(([key]) => history[key].map((requests) => requests / history.step_s));
    const most = Math.max(...rates[0].map((_, at) => sum(rates.map((rate) => rate[at]))), 0);
    const scale = linear([0, roundedUp(Math.max(1, most))], [plot.y1, plot.y0]);
    for (const tick of ticks(roundedUp(Math.max(1, most)), 4)) if (Number.isInteger(tick)) plot.gridY(scale(tick), short(tick, 4));
    const gap = plot.column_px > 3 ? 0.6 : 0;
    const heights = new Array(history.batches.length).fill(0);
    OUTCOMES.forEach(([, name], which) => {
      const boxes = rates[which].map((rate, at) => {
        const base = heights[at];
        heights[at] += rate;
        // What happened is seen, be it one in thousands: a bar is a pixel high at least.
        const height = rate > 0 ? Math.max(1, scale(base) - scale(base + rate)) : 0;
        return [plot.left(at), scale(base) - height, plot.column_px - gap, height];
      });
      plot.add("path", { class: name, d: bars(boxes), "data-marks": boxes.filter((box) => box[3] > 0).length });
    });
    if (most === 0) plot.empty("no request in the last two minutes");
    plot.end();

    const { from, to, seconds, name } = spoken(history);
    const [on_time, late, refused] = OUTCOMES.map(([key]) => sum(history[key].slice(from, to)));
    const all = on_time + late + refused;
    if (all === 0) say(this.words, when(name), " no request");
    else say(this.words, when(name), " ", [short(all / seconds)], " a second, ", [percent(on_time / all)], " on time");
    this.table(totals, { on_time: on_time / seconds, late: late / seconds, refused: refused / seconds }, name);
  }

  table(totals, rates, name) {
    byId("totals-when").textContent = `a second, ${name}`;
    let refused_rate_shown = false;
    // The first three always, the others once they happened.
    const rows = TOTALS.filter(([key], at) => at < 3 || totals[key] > 0).map(([key, words, of]) => {
      const row = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      const swatch = document.createElement("i");
      swatch.className = `swatch ${OUTCOMES.find(([outcome]) => outcome === of)?.[1] ?? ""}`;
      head.append(swatch, words);
      const [rate, total] = [document.createElement("td"), document.createElement("td")];
      // Both kinds of refusals share a colour and a rate, which stands at the first of them.
      rate.textContent = of && !(of === "refused" && refused_rate_shown) ? short(rates[of]) : "";
      refused_rate_shown ||= of === "refused";
      total.textContent = count(totals[key] ?? 0);
      row.append(head, rate, total);
      return row;
    });
    byId("totals").tBodies[0].replaceChildren(...rows);
  }
}

// ------------------------------------------------------------------------------------------------ queue and runners

/** A line with the area below it. */
function area(plot, values, scale) {
  const upper = values.map((value, at) => [plot.middle(at), scale(value)]);
  const lower = upper.map(([x]) => [x, plot.y1]);
  plot.add("path", { class: "area", d: band(upper, lower) });
  plot.add("path", { class: "edge", d: path(upper), "data-marks": values.filter((value) => value > 0).length });
}

const BOUND_SHOWN = 3; // times the longest queue: a bound higher than that would flatten the queue

export class Waiting {
  constructor() {
    this.words = byId("waiting-words");
    this.plot = new TimePlot(byId("waiting"), { height: 112, name: "Rows in the queue over the last two minutes", words: this.words });
  }

  draw({ history, queue }) {
    const { plot } = this;
    plot.begin(history);
    const most = Math.max(1, ...history.queue_rows), bound_shown = queue.max_rows <= BOUND_SHOWN * most;
    const top = bound_shown ? queue.max_rows * 1.05 : roundedUp(most);
    const scale = linear([0, top], [plot.y1, plot.y0]);
    for (const tick of ticks(top, 3)) if (Number.isInteger(tick)) plot.gridY(scale(tick), short(tick, 4));
    area(plot, history.queue_rows, scale);
    if (bound_shown) plot.bound(scale(queue.max_rows), `bound ${count(queue.max_rows)}`);
    plot.end();

    const { from, to, name } = spoken(history);
    const longest = Math.max(0, ...history.queue_rows.slice(from, to));
    say(this.words, when(name), " at most ", [counted(longest, "row")], ` waiting; the bound is ${count(queue.max_rows)}`);
  }
}

export class Busy {
  constructor() {
    this.words = byId("busy-words");
    this.plot = new TimePlot(byId("busy"), { height: 112, name: "Share of the runners' time that was busy", words: this.words });
  }

  draw({ history, runners, in_flight }) {
    const { plot } = this;
    plot.begin(history);
    const scale = linear([0, 1], [plot.y1, plot.y0]);
    for (const tick of [0, 0.5, 1]) plot.gridY(scale(tick), `${100 * tick} %`);
    area(plot, history.busy.map((share) => Math.min(1, share)), scale);
    plot.end();

    const { from, to, name } = spoken(history);
    const busy = sum(history.busy.slice(from, to)) / Math.max(1, to - from);
    say(this.words, when(name), " ", [percent(busy)], ` busy; now ${in_flight} of ${counted(runners, "runner")}`);
  }
}

// ------------------------------------------------------------------------------------------------------- batch time

const CAP_SHOWN = 2.5; // times the highest point: a cap above that stands in words only

export class Fit {
  constructor() {
    this.words = byId("fit-words");
    this.plot = new Plot(plotOf("fit"), { height: 226, left: 56, right: 14, bottom: 34, name: "Time of batches by their rows, with the fitted line" });
  }

  draw({ estimate, max_batch_size, max_latency_ms: cap }) {
    const { plot } = this;
    plot.begin();
    if (!estimate) {
      plot.empty("no batch yet");
      say(this.words, "What a batch costs is learned from the first ones.");
      byId("fit-more").textContent = "";
      return;
    }
    const { base_ms, per_row_ms, noise, samples } = estimate;
    const time = (rows) => base_ms + per_row_ms * rows;
    const widest = Math.max(1, ...samples.map(([rows]) => rows));
    const right = widest * 2 > max_batch_size ? max_batch_size : Math.min(max_batch_size, roundedUp(widest * 1.2));
    const tallest = Math.max(time(right) * noise, ...samples.map(([, took]) => took));
    const cap_shown = cap <= CAP_SHOWN * tallest;
    const top = Math.max(tallest * 1.08, cap_shown ? cap * 1.08 : 0);
    const x = linear([0, right], [plot.x0, plot.x1]), y = linear([0, top], [plot.y1, plot.y0]);
    for (const tick of ticks(top, 4)) plot.gridY(y(tick), ms(tick));
    for (const tick of ticks(right, 5)) if (Number.isInteger(tick) && right - tick > right / 12) plot.tickX(x(tick), count(tick));
    plot.tickX(x(right), count(right), "end");
    plot.text(plot.x1, plot.height - 3, right === max_batch_size ? "rows in the batch, up to max_batch_size" : "rows in the batch", "end");

    samples.forEach(([rows, took], at) => {
      const opacity = 0.2 + 0.6 * (at + 1) / samples.length; // the newest strongest
      plot.add("circle", { class: "sample", cx: x(rows).toFixed(1), cy: y(took).toFixed(1), r: 3, "fill-opacity": opacity.toFixed(2) });
    });
    if (noise > 1) plot.add("path", { class: "promise", d: path([[x(0), y(base_ms * noise)], [x(right), y(time(right) * noise)]]) });
    plot.add("path", { class: "line", d: path([[x(0), y(base_ms)], [x(right), y(time(right))]]) });
    plot.add("circle", { class: "intercept", cx: x(0), cy: y(base_ms), r: 3.5 });
    if (cap_shown) plot.bound(y(cap), `cap ${ms(cap)}`);

    say(this.words, "A batch costs ", [ms(base_ms)], " + ", [ms(per_row_ms)], " a row.");
    const full_ms = time(max_batch_size);
    byId("fit-more").textContent = [
      estimate.trusted ? `Decisions count on ${short(noise)} × that (dotted).` : "Too few batches so far: nothing is refused on this estimate.",
      `A full batch of ${counted(max_batch_size, "row")}: ${ms(full_ms)}, ${short(max_batch_size / full_ms * 1000)} rows a second.`,
      cap_shown ? "" : `The cap, ${ms(cap)}, is far above.`,
      `Last batch learned from ${span(estimate.age_s)} ago.`,
    ].filter(Boolean).join(" ");
  }
}
