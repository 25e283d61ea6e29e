// Numbers for people: how they are written, and what a histogram's buckets say. Pure: values in, values out.

const thousands = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Three digits that matter, or all before the point: 0.31, 4.2, 17.5, 128, 4,096. */
export function short(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  return value >= 10 ** (digits - 1) ? thousands.format(value) : value < 1e-6 ? "0" : String(Number(value.toPrecision(digits)));
}

export const count = (value) => (Number.isFinite(value) ? thousands.format(value) : "–");

/** "17 rows", "1 row". */
export const counted = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;

/** Milliseconds; from ten seconds on as seconds. */
export function ms(value, digits = 3) {
  return value >= 10_000 ? `${short(value / 1000, digits)} s` : `${short(value, digits)} ms`;
}

/** A share as percentage. Never rounds to 100 % or 0 % what is neither. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  if (share > 0.9999 && share < 1) return "> 99.99 %";
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  return `${Number((100 * share).toFixed(share > 0.99 || share < 0.01 ? 2 : 1))} %`;
}

/** How long something takes or took: "0.02 s", "12 s", "4 min", "26 h", "9 days". */
export function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  const [unit, size] = seconds < 120 ? ["s", 1] : seconds < 7200 ? ["min", 60] : seconds < 172_800 ? ["h", 3600] : ["days", 86_400];
  return `${Math.round(seconds / size)} ${unit}`;
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Columns of buckets, added up bucket by bucket. */
export function added(columns, buckets) {
  return Array.from({ length: buckets }, (_, at) => sum(columns.map((column) => column[at])));
}

/**
 * The quantile of a histogram, by straight lines within its buckets as Prometheus does it, but in the first: it holds all
 * that is `under` its edge, however far. `counts` may have one bucket more than `edges`, the open one: a quantile in there is
 * `beyond` the last edge. Null where nothing was counted.
 */
export function quantile(counts, edges, share) {
  const wanted = share * sum(counts);
  let below = 0;
  for (let at = 0; at < edges.length; at++) {
    if (counts[at] > 0 && below + counts[at] >= wanted) {
      const low = edges[at - 1] ?? edges[at];
      return { value: low + (edges[at] - low) * (wanted - below) / counts[at], under: at === 0, beyond: false };
    }
    below += counts[at];
  }
  return wanted > 0 ? { value: edges.at(-1), under: false, beyond: true } : null;
}

/** A quantile in milliseconds, as far as it is known. */
export const bounded = ({ value, under, beyond }) => `${under ? "< " : beyond ? "> " : ""}${ms(value)}`;

/** The rows of the batches in a bucket, as "17–32". */
export function bucketName(edges, at) {
  const low = (edges[at - 1] ?? 0) + 1;
  return low < edges[at] ? `${low}–${edges[at]}` : String(edges[at]);
}

/** The first of 1, 2, 5, 10, 20 … that is not below the value. */
export function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((factor) => factor * power >= value * 0.999) * power;
}

/** 0 and the steps of 1, 2, 5, 10 … after it, about `parts`, up to `top`. */
export function ticks(top, parts) {
  const step = roundedUp(top / parts);
  return Array.from({ length: Math.floor(top / step * 1.0001) + 1 }, (_, at) => Number((at * step).toPrecision(12)));
}

/** Ever larger counts from 1 on, eight at most, of which the last is not above `most`: where a new colour begins. */
export function colourSteps(most) {
  for (const factors of [[1, 2, 5], [1, 3], [1]]) {
    const steps = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((power) => factors.map((factor) => factor * 10 ** power));
    const fitting = steps.filter((step) => step <= Math.max(1, most));
    if (fitting.length <= 8) return fitting;
  }
}

/** The height at x of a line through points [x, y] that rise in x, level beyond its ends. */
export function along(points, x) {
  const at = points.findIndex((point) => point[0] >= x);
  if (at <= 0) return points.at(at)[1];
  const [[left, low], [right, high]] = points.slice(at - 1, at + 1);
  return low + (x - left) / (right - left) * (high - low);
}
