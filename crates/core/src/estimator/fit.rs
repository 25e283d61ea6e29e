//! The estimate that decisions are made with: t(n) = base + n · per_row, and how far to trust it.

use std::sync::Arc;
use std::time::Duration;

use super::curve::{Curve, SizeClasses};
use super::noise::leaving_room;
use super::regression::{self, Point, Regression};

/// An affine estimate of the batch time, with a margin for execution noise.
///
/// Both coefficients are finite and never negative, so t(n) never shrinks with n.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    base: f64,
    per_row: f64,
    noise: f64,
    /// The smallest factor that may stand for it, where callers give less.
    least_noise: f64,
    /// How many times as long as expected the slowest of the latest batches took, at least 1.
    slowest: f64,
    knowledge: Knowledge,
    /// Where the times are clearly no line.
    curve: Option<Arc<Curve>>,
    /// Rows of the smallest and the largest batch that this was learned from.
    timed: (usize, usize),
}

/// How much has been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    /// No batch has been timed.
    Nothing,
    /// Too few batches were timed to act on; they had about so many rows.
    Guess { rows: usize },
    /// All timed batches had about one size, this: how the time grows with the size is not known.
    OneSize { rows: usize },
    /// Sizes differed enough to tell base and slope apart.
    Line,
}

/// How many times larger than all timed batches the next may be while it is not known how the time grows with the size.
/// More: a batch far too large for its deadlines, and all of it late. Less: a burst after quiet waits for a small one.
const GROWTH: usize = 6;

/// How many times as fast as a larger batch a smaller one must be for batches to end there.
const CLEARLY: f64 = 1.03;

/// No batch time is estimated above an hour: keeps every later sum far from overflow.
const LONGEST: f64 = 3600.0;

impl Fit {
    /// Before the first batch: every prediction is `None`.
    pub const UNKNOWN: Fit = Fit {
        base: 0.0,
        per_row: 0.0,
        noise: 1.0,
        least_noise: 1.0,
        slowest: 1.0,
        knowledge: Knowledge::Nothing,
        curve: None,
        timed: (0, 0),
    };

    /// A line through batches of different sizes: `base` and `per_row` in seconds, `noise` ≥ 1 as the factor by which a
    /// cautious prediction exceeds the mean. Values that are not finite or negative are taken as the nearest sound one.
    #[must_use]
    pub fn line(base: f64, per_row: f64, noise: f64) -> Fit {
        let (base, per_row, noise) = (sane(base), sane(per_row), sane_noise(noise));
        Fit { base, per_row, noise, least_noise: noise, knowledge: Knowledge::Line, ..Fit::UNKNOWN }
    }

    /// The line through batches that were timed side by side, all of which count alike: rows and time of each. Errors are
    /// minimised relative to the time taken. One mean where the sizes do not differ enough for a slope.
    #[must_use]
    pub fn through(batches: &[(usize, Duration)]) -> Fit {
        let point =
            |&(rows, time): &(usize, Duration)| Point { rows: rows as f64, seconds: time.as_secs_f64(), weight: 1.0 };
        match regression::fit(&batches.iter().map(point).collect::<Vec<_>>()) {
            Regression::Nothing => Fit::UNKNOWN,
            Regression::Mean { rows, seconds } => Fit::one_size(rows, seconds),
            Regression::Line { base, per_row } => Fit::line(base, per_row, 1.0),
        }
    }

    /// The mean of batches of about so many rows: a guess at every other size, marked as such.
    pub(super) fn one_size(rows: f64, seconds: f64) -> Fit {
        let knowledge = Knowledge::OneSize { rows: rows.ceil() as usize };
        Fit { base: sane(seconds), knowledge, ..Fit::UNKNOWN }
    }

    /// The same numbers of one size, marked as resting on too few batches.
    pub(super) fn guess(self) -> Fit {
        match self.knowledge {
            Knowledge::OneSize { rows } => Fit { knowledge: Knowledge::Guess { rows }, ..self },
            _ => self,
        }
    }

    /// The same, learned from batches of so many rows.
    pub(super) fn timed(self, least: usize, most: usize) -> Fit {
        Fit { timed: (least, most), ..self }
    }

    /// Rows of the smallest and the largest batch that this was learned from: at other sizes it is a guess. Of a fit that was
    /// written down and not learned, (0, 0).
    #[must_use]
    pub fn timed_rows(&self) -> (usize, usize) {
        self.timed
    }

    /// Another noise factor, the smallest that may stand for it, and how many times as long as expected the slowest of the latest batches took.
    pub(super) fn set_noise(&mut self, noise: f64, least: f64, slowest: f64) {
        (self.noise, self.least_noise, self.slowest) = (sane_noise(noise), sane_noise(least), slowest.clamp(1.0, 1e3));
    }

    /// α: seconds that a batch takes however small it is.
    #[must_use]
    pub fn base_seconds(&self) -> f64 {
        self.base
    }

    /// β: seconds that each row adds.
    #[must_use]
    pub fn per_row_seconds(&self) -> f64 {
        self.per_row
    }

    /// z: what a cautious prediction multiplies the mean by.
    #[must_use]
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// How many times as long as expected a batch may take that is no hung one: as the slowest of late.
    pub(crate) fn slowest(&self) -> f64 {
        self.slowest
    }

    /// Whether base and slope are known, rather than one mean for all sizes.
    #[must_use]
    pub fn is_line(&self) -> bool {
        self.knowledge == Knowledge::Line
    }

    /// Whether enough batches were timed to refuse a request on a prediction.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        matches!(self.knowledge, Knowledge::OneSize { .. } | Knowledge::Line)
    }

    /// The most rows that the next batch should have: a few times those of the batches timed so far, while these do not tell
    /// how long a larger one takes.
    #[must_use]
    pub fn most_rows(&self) -> usize {
        match self.knowledge {
            Knowledge::Guess { rows } | Knowledge::OneSize { rows } => rows.saturating_mul(GROWTH),
            Knowledge::Nothing | Knowledge::Line => usize::MAX,
        }
    }

    /// t(rows), the mean; `None` before the first batch.
    #[must_use]
    pub fn predict(&self, rows: usize) -> Option<Duration> {
        self.seconds(rows).map(duration)
    }

    /// z · t(rows): a time that a batch of `rows` rarely exceeds; `None` before the first batch.
    #[must_use]
    pub fn predict_cautiously(&self, rows: usize) -> Option<Duration> {
        self.seconds(rows).map(|t| duration(t * self.noise))
    }

    /// The same for a request of so many rows that goes alone, whose caller gives it so much time: where it has hardly more than it takes, the
    /// margin is smaller. By the whole margin no request of its size would ever be answered.
    pub(crate) fn predict_alone(&self, rows: usize, given: Duration) -> Option<Duration> {
        let seconds = self.seconds(rows)?;
        let room = if seconds > 0.0 { given.as_secs_f64() / seconds } else { f64::INFINITY };
        Some(duration(seconds * leaving_room(self.noise, self.least_noise, room)))
    }

    /// t(rows) in seconds, the mean; `None` before the first batch.
    pub(super) fn seconds(&self, rows: usize) -> Option<f64> {
        let known = self.knowledge != Knowledge::Nothing;
        known.then(|| self.mean_seconds(rows).min(LONGEST))
    }

    /// t(rows) in seconds; 0 before the first batch.
    #[inline]
    pub(crate) fn mean_seconds(&self, rows: usize) -> f64 {
        let line = |rows: f64| self.base + self.per_row * rows;
        self.curve.as_ref().map_or_else(|| line(rows as f64), |curve| curve.seconds(rows as f64, line))
    }

    /// The same with what the sizes took themselves.
    pub(super) fn curved(self, curve: Option<Curve>) -> Fit {
        Fit { curve: curve.map(Arc::new), ..self }
    }

    /// A line through batches of these rows and times, rising in rows, and the times themselves where they are off it.
    #[must_use]
    pub fn curve(batches: &[(usize, Duration)]) -> Fit {
        let points = batches.iter().map(|(rows, time)| (*rows as f64, time.as_secs_f64(), 1.0));
        Fit::through(batches).curved(Some(Curve::through(points)))
    }

    /// The line through the medians of batches that were timed side by side, several of each size; and the curve where these are
    /// clearly no line, as a server would learn it.
    #[must_use]
    pub fn side_by_side(batches: &[(usize, &[Duration])]) -> Fit {
        let median = |times: &[Duration]| {
            let mut times = times.to_vec();
            times.sort_unstable();
            times.get((times.len().max(1) - 1) / 2).copied()
        };
        let medians: Vec<_> = batches.iter().filter_map(|(rows, times)| Some((*rows, median(times)?))).collect();
        let fit = Fit::through(&medians);
        let curve = if fit.is_line() { SizeClasses::side_by_side(batches).curve(fit.on_line()) } else { None };
        fit.curved(curve)
    }

    /// Where the times are known to be no line, the sizes between which they are straight, rising; else none.
    #[must_use]
    pub fn bends(&self) -> Vec<usize> {
        let rows = self.curve.iter().flat_map(|curve| curve.rows());
        let mut rows: Vec<usize> = rows.map(|rows| rows.round().max(1.0) as usize).collect();
        rows.dedup();
        rows
    }

    /// Seconds by α and β alone.
    pub(super) fn on_line(&self) -> impl Fn(f64) -> f64 + Copy + use<> {
        let (base, per_row) = (self.base, self.per_row);
        move |rows| base + per_row * rows
    }

    /// Whether the times are known to be no line: α and β are what comes nearest to them then.
    #[must_use]
    pub fn is_curved(&self) -> bool {
        self.curve.is_some()
    }

    /// A size below `rows` that makes clearly more rows a second than a batch of `rows`: where there are several, the fastest.
    #[inline]
    #[must_use]
    pub fn faster_size(&self, rows: usize) -> Option<usize> {
        let speed = |rows: usize| rows as f64 / self.mean_seconds(rows).max(1e-12);
        self.curve.as_ref()?.fastest_below(rows).filter(|size| speed(*size) > CLEARLY * speed(rows))
    }
}

/// To the nearest nanosecond; at most a few hours, so no sum overflows. Several times as fast as `Duration::from_secs_f64`,
/// and asked for several times for each request.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9 + 0.5) as u64)
}

fn sane(seconds: f64) -> f64 {
    if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, LONGEST) }
}

/// A margin beyond this would refuse more than it protects; what scatters more is drift.
const MOST_NOISE: f64 = 3.0;

fn sane_noise(noise: f64) -> f64 {
    if noise.is_nan() { 1.0 } else { noise.clamp(1.0, MOST_NOISE) }
}
