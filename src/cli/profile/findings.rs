//! What the times say: the line through them, where they leave it, and which caps make sense. Pure.

use std::time::Duration;

use super::measure::{Measured, Series, Timed};
use crate::estimator::Fit;

/// A throughput that is as good as the best one: what lies beyond it costs latency and memory for little.
pub(in crate::cli) const GOOD: f64 = 0.9;
/// A larger number of threads must gain this much over a smaller one.
const WORTH: f64 = 1.05;
/// Residuals beyond this are worth a word.
pub(in crate::cli) const OFF: f64 = 0.1;
/// Batch times that a latency cap should hold: one that runs, one that waits already, one's own, and one for noise.
const BATCH_TIMES: u32 = 4;
/// Batch times below which full batches cannot be kept up: the one that runs and one's own.
const FEWEST_BATCH_TIMES: u32 = 2;
/// What each batch takes in a server beside its own time, to its runner and back: docs/performance.md. It is what makes
/// batches worth while for models that are faster than that.
pub(in crate::cli) const HAND_OVER: Duration = Duration::from_micros(100);
/// For the way in and out.
const WAY: Duration = Duration::from_millis(1);

/// One size with one number of threads.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Point {
    pub(in crate::cli) rows: usize,
    /// Batches that were timed.
    pub(in crate::cli) batches: usize,
    pub(in crate::cli) median: Duration,
    pub(in crate::cli) p95: Duration,
    /// Bytes in memory, where that is known.
    pub(in crate::cli) memory: Option<u64>,
    /// What the line says.
    pub(in crate::cli) predicted: Duration,
}

/// All sizes with one number of threads.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Curve {
    pub(in crate::cli) threads: usize,
    pub(in crate::cli) points: Vec<Point>,
    /// The line through the medians.
    pub(in crate::cli) fit: Fit,
    /// What a server would go by: that line, or a curve where it is clearly none.
    pub(in crate::cli) learned: Fit,
}

/// Which caps to set, and what they mean.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Advice {
    /// Index of the curve.
    pub(in crate::cli) curve: usize,
    pub(in crate::cli) max_batch_size: usize,
    pub(in crate::cli) max_latency_ms: f64,
    /// Below this the capacity falls.
    pub(in crate::cli) least_latency_ms: f64,
}

impl Point {
    fn new(timed: &Timed, fit: &Fit) -> Point {
        let (median, p95) = (quantile(&timed.times, 0.5), quantile(&timed.times, 0.95));
        let predicted = fit.predict(timed.rows).unwrap_or(median);
        Point { rows: timed.rows, batches: timed.times.len(), median, p95, memory: timed.memory, predicted }
    }

    /// Rows a second, one batch after the other.
    pub(in crate::cli) fn throughput(&self) -> f64 {
        self.rows as f64 / self.median.as_secs_f64().max(1e-9)
    }

    /// Rows a second in a server, where each batch is handed over.
    pub(in crate::cli) fn served(&self) -> f64 {
        self.rows as f64 / (self.median + HAND_OVER).as_secs_f64()
    }

    /// By which part the median is above the line; negative below it.
    pub(in crate::cli) fn residual(&self) -> f64 {
        self.median.as_secs_f64() / self.predicted.as_secs_f64().max(1e-9) - 1.0
    }
}

impl Curve {
    fn new(series: &Series) -> Curve {
        let medians: Vec<_> = series.sizes.iter().map(|timed| (timed.rows, quantile(&timed.times, 0.5))).collect();
        let fit = Fit::through(&medians);
        let batches: Vec<_> = series.sizes.iter().map(|timed| (timed.rows, timed.times.as_slice())).collect();
        Curve {
            threads: series.threads,
            points: series.sizes.iter().map(|timed| Point::new(timed, &fit)).collect(),
            fit,
            learned: Fit::side_by_side(&batches),
        }
    }

    /// What the server would go by, drawn from one end to the other, at most `right` rows, in ms; nothing without a line.
    pub(in crate::cli) fn drawn(&self, right: usize) -> Vec<(f64, f64)> {
        let line = |rows: f64| (rows, 1e3 * (self.fit.base_seconds() + self.fit.per_row_seconds() * rows));
        let bends = self.learned.bends();
        match (self.fit.is_line(), bends.is_empty()) {
            (false, _) => Vec::new(),
            (true, true) => [0.0, right as f64].map(line).into(),
            (true, false) => {
                let at =
                    |rows: usize| (rows as f64, self.learned.predict(rows).unwrap_or_default().as_secs_f64() * 1e3);
                let inside = bends.into_iter().filter(|rows| (2..right).contains(rows));
                [1].into_iter().chain(inside).chain([right]).map(at).collect()
            }
        }
    }

    /// The size with the most rows a second, as served.
    pub(in crate::cli) fn best(&self) -> &Point {
        let faster = |a: &&Point, b: &&Point| a.served().total_cmp(&b.served());
        self.points.iter().max_by(faster).expect("every curve has a point")
    }

    /// The smallest size that is as good as the best.
    pub(in crate::cli) fn good(&self) -> &Point {
        let enough = GOOD * self.best().served();
        self.points.iter().find(|point| point.served() >= enough).expect("the best is one")
    }

    /// The largest size of which full batches are in time under this latency cap, and is at most `rows`.
    pub(in crate::cli) fn within(&self, cap: Duration, rows: usize) -> Option<&Point> {
        let fits = |point: &&Point| point.rows <= rows && point.p95 * FEWEST_BATCH_TIMES + WAY <= cap;
        self.points.iter().rev().find(fits)
    }

    /// The largest measured size of at most `rows`.
    pub(in crate::cli) fn at_most(&self, rows: usize) -> Option<&Point> {
        self.points.iter().rev().find(|point| point.rows <= rows)
    }
}

/// The curves of what was measured, fewest threads first.
pub(in crate::cli) fn curves(measured: &Measured) -> Vec<Curve> {
    measured.series.iter().map(Curve::new).collect()
}

/// The caps for the thread count that is the fastest where its batches are as good as they get.
pub(in crate::cli) fn advise(curves: &[Curve]) -> Advice {
    let mut best = 0;
    for (i, curve) in curves.iter().enumerate() {
        if curve.good().served() > WORTH * curves[best].good().served() {
            best = i;
        }
    }
    let point = curves[best].good();
    let cap = |times: u32| nice((point.p95 * times + WAY).as_secs_f64() * 1e3);
    Advice {
        curve: best,
        max_batch_size: point.rows,
        max_latency_ms: cap(BATCH_TIMES),
        least_latency_ms: cap(FEWEST_BATCH_TIMES),
    }
}

/// The next larger number that people write down: 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15 …
fn nice(x: f64) -> f64 {
    let power = 10f64.powf(x.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    // A millionth less: 3 * 10 must not become 40 for the last bit.
    steps.iter().map(|step| step * power).find(|nice| *nice >= x * (1.0 - 1e-6)).unwrap_or(x)
}

/// Of sorted times; they are never empty.
fn quantile(sorted: &[Duration], q: f64) -> Duration {
    sorted.get(((sorted.len() - 1) as f64 * q).round() as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(threads: usize, time_us: impl Fn(usize) -> usize) -> Series {
        let timed = |rows| Timed { rows, times: vec![Duration::from_micros(time_us(rows) as u64); 3], memory: None };
        Series { threads, sizes: [1, 2, 4, 8, 16, 32, 64, 128].map(timed).into() }
    }

    fn curves_of(series: Vec<Series>) -> Vec<Curve> {
        curves(&Measured { series, stopped: None })
    }

    #[test]
    fn the_cap_is_the_smallest_size_that_is_nearly_as_good_as_the_best() {
        let curves = curves_of(vec![series(1, |n| 2000 + 50 * n)]);
        // 128 rows: 15,238 a second; 64 rows: 12,308, which is 81 %.
        let advice = advise(&curves);
        assert_eq!((advice.max_batch_size, advice.max_latency_ms, advice.least_latency_ms), (128, 40.0, 20.0));
        assert!((curves[0].fit.base_seconds() - 0.002).abs() < 1e-9);
        assert!(curves[0].points.iter().all(|point| point.residual().abs() < 1e-6));
        // Where rows cost everything, nothing is gained by batches, unless handing them over costs more still.
        let of_rows_alone = |us: usize| advise(&curves_of(vec![series(1, move |n| us * n)])).max_batch_size;
        assert_eq!((of_rows_alone(10_000), of_rows_alone(10)), (1, 64));
        // A size beyond which it gets worse.
        let worse = advise(&curves_of(vec![series(1, |n| if n > 16 { 200 * n } else { 2000 + 50 * n })]));
        assert_eq!(worse.max_batch_size, 16);
    }

    #[test]
    fn more_threads_must_be_worth_it() {
        let one = |n: usize| 1000 + 100 * n;
        let of =
            |factor: usize| advise(&curves_of(vec![series(1, one), series(2, move |n| one(n) * factor / 100)])).curve;
        assert_eq!((of(60), of(97), of(120)), (1, 0, 0));
    }

    #[test]
    fn a_size_off_the_line_stands_out() {
        let curves = curves_of(vec![series(1, |n| if n == 8 { 4000 } else { 2000 + 50 * n })]);
        let off: Vec<usize> = curves[0].points.iter().filter(|p| p.residual().abs() > OFF).map(|p| p.rows).collect();
        assert_eq!(off, [8]);
    }

    #[test]
    fn times_that_are_no_line_are_drawn_as_the_server_learns_them() {
        let knee = |n: usize| if n <= 16 { 10_000 } else { 10_000 + 2000 * (n - 16) };
        let curves = curves_of(vec![series(1, knee), series(2, |n| 2000 + 50 * n)]);
        let drawn = curves[0].drawn(128);
        assert_eq!((drawn[0], drawn[4], *drawn.last().unwrap()), ((1.0, 10.0), (16.0, 10.0), (128.0, 234.0)));
        assert_eq!(curves[0].learned.faster_size(128), Some(16));
        assert_eq!(curves[1].drawn(100).len(), 2);
        assert_eq!(
            (curves[1].learned.is_curved(), curves_of(vec![series(1, |_| 1)])[0].learned.is_curved()),
            (false, false)
        );
    }

    #[test]
    fn lower_caps_leave_smaller_batches() {
        let curve = &curves_of(vec![series(1, |n| 2000 + 50 * n)])[0];
        let within = |ms| curve.within(Duration::from_millis(ms), 128).map(|point| point.rows);
        assert_eq!((within(20), within(10), within(5)), (Some(128), Some(32), None));
        assert_eq!(curve.at_most(100).map(|point| point.rows), Some(64));
    }

    #[test]
    fn suggested_times_are_numbers_that_people_write_down() {
        assert_eq!([0.9, 1.0, 1.1, 7.0, 10.0, 34.6, 612.0].map(nice), [1.0, 1.0, 1.5, 8.0, 10.0, 40.0, 800.0]);
    }
}
