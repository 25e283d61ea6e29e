// Numbers for people: how they are written, and what a histogram's buckets say. Pure: values in, values out.

const thousands = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Three digits that matter, or all before the point: 0.31, 4.2, 17.5, 128, 4,096. */
export function short(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 10 ** (digits - 1)) return thousands.format(value);
  const text = value.toPrecision(digits);
  return text.includes("e") ? "0" : String(Number(text));
}

export const count = (value) => thousands.format(value);

/** "17 rows", "1 row". */
export const counted = (value, one, many = one + "s") => `${count(value)} ${value === 1 ? one : many}`;

/** Milliseconds; from ten seconds on as seconds. */
export function ms(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  return value >= 10_000 ? `${short(value / 1000, digits)} s` : `${short(value, digits)} ms`;
}

/** A share as percentage. Never rounds to 100 % or 0 % what is neither. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  if (share > 0.9999 && share < 1) return "> 99.99 %";
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  const value = 100 * share;
  return `${value === 100 || value === 0 ? value : value.toFixed(value > 99 || value < 1 ? 2 : 1)} %`;
}

/** How long something takes or took: "0.02 s", "12 s", "4 min", "26 h", "9 days". */
export function span(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Columns of buckets, added up bucket by bucket. */
export function added(columns, buckets) {
  const total = new Array(buckets).fill(0);
  for (const column of columns) column.forEach((value, at) => { total[at] += value; });
  return total;
}

/**
 * The quantile of a histogram, by straight lines within its buckets as Prometheus does it. `counts` may have one bucket
 * more than `edges`, the open one: a quantile in there is `beyond` the last edge. Null where nothing was counted.
 */
export function quantile(counts, edges, share) {
  const total = sum(counts);
  if (total === 0) return null;
  let below = 0;
  for (let at = 0; at < edges.length; at++) {
    if (counts[at] > 0 && below + counts[at] >= share * total) {
      const low = at === 0 ? 0 : edges[at - 1];
      return { value: low + (edges[at] - low) * Math.max(0, share * total - below) / counts[at], beyond: false };
    }
    below += counts[at];
  }
  return { value: edges.at(-1), beyond: true };
}

/** The highest bucket that counted something, or -1. */
export const highest = (counts) => counts.findLastIndex((value) => value > 0);

/** The rows of the batches in a bucket, as "17–32". */
export function bucketName(edges, at) {
  const low = at === 0 ? 1 : edges[at - 1] + 1;
  return low >= edges[at] ? String(edges[at]) : `${low}–${edges[at]}`;
}

/** Steps 1, 2, 5, 10 … such that about `parts` of them make `highest`. */
export function ticks(highest, parts) {
  if (!(highest > 0)) return [0];
  const rough = highest / parts, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const all = [];
  for (let at = 0; at * step <= highest * 1.0001; at++) all.push(Number((at * step).toPrecision(12)));
  return all;
}

/** The first of 1, 2, 5, 10, 20 … that is not below the value. */
export function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((factor) => factor * power >= value * 0.9999) * power;
}

/** Ever larger counts from 1 on, eight at most, of which the last is not above `most`: where a new colour begins. */
export function colourSteps(most) {
  for (const factors of [[1, 2, 5], [1, 3], [1]]) {
    const steps = [];
    for (let power = 1; power <= most; power *= 10) steps.push(...factors.map((factor) => factor * power));
    const fitting = steps.filter((step) => step <= Math.max(1, most));
    if (fitting.length <= 8) return fitting.length ? fitting : [1];
  }
  return [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7];
}
