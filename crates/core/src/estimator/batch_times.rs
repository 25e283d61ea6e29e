//! Timed batches, remembered so that every size class keeps a voice, and the line through them.

use std::collections::VecDeque;
use std::time::Duration;

use super::caution::Answers;
use super::curve::SizeClasses;
use super::drift::Drift;
use super::noise::Noise;
use super::regression::{self, Point, Regression};
use super::{Fit, Instant};

/// Batches kept for each size class. More: steadier; fewer: quicker to follow a change too small to count as drift.
const PER_CLASS: usize = 12;
/// Size classes: powers of two up to 2^31 rows.
const CLASSES: usize = 32;
/// Age at which a batch counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// No remembered batch ever counts less than this share of a fresh one. Without a floor, an hour of lone requests would
/// silence the large batches of the last burst, and the next burst would meet a fit that knows one size.
const LEAST_WEIGHT: f64 = 0.02;

/// How many batches a test stands for that took no longer than was feared. While everybody is refused nothing else runs, one test in five
/// batch times: what was slow would be remembered five times as long. Fewer than five, since who is served too early is late.
const TEST_COUNTS: usize = 2;

/// Batches below which an estimate is a guess: a first batch can take twenty times its due.
const ENOUGH: u64 = 2;

/// Batches after a start or a change that are each followed by a regression; afterwards every [`SELDOM`]-th is. A
/// regression costs microseconds, as much as many requests.
const YOUNG: usize = 64;
const SELDOM: usize = 16;

/// Learns t(n) from batches as they complete.
///
/// Memory is one small ring for each power of two of the batch size: however long the server has seen one size only, the
/// others are still there to hold the line. Time lowers a batch's weight, drift throws away what came before it.
#[derive(Debug, Clone)]
pub struct BatchTimes {
    classes: Vec<VecDeque<Sample>>,
    observed: u64,
    /// The size of all batches so far, if they had one.
    only_size: Option<usize>,
    /// Batches since the start or the last change, and since the last regression.
    age: usize,
    unused: usize,
    drift: Drift,
    noise: Noise,
    /// The latest line: its shape still serves when the batches left tell one size only.
    shape: Option<(f64, f64)>,
    sizes: SizeClasses,
    fit: Fit,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    number: u64,
    at: Instant,
    rows: usize,
    seconds: f64,
}

impl Default for BatchTimes {
    fn default() -> BatchTimes {
        BatchTimes::new()
    }
}

impl BatchTimes {
    /// Knows nothing.
    #[must_use]
    pub fn new() -> BatchTimes {
        BatchTimes {
            classes: vec![VecDeque::new(); CLASSES],
            observed: 0,
            only_size: None,
            age: 0,
            unused: 0,
            drift: Drift::default(),
            noise: Noise::new(),
            shape: None,
            sizes: SizeClasses::new(),
            fit: Fit::UNKNOWN,
        }
    }

    /// The current estimate.
    #[must_use]
    pub fn fit(&self) -> &Fit {
        &self.fit
    }

    /// What callers give, and the rows that one of them asks for. A margin by which not even that would ever be in time is cut: it would refuse everybody.
    pub fn callers_give(&mut self, time: Duration, rows: usize) {
        let alone = self.fit.seconds(rows).filter(|alone| *alone > 0.0);
        self.noise.set_room(alone.map_or(f64::INFINITY, |alone| time.as_secs_f64() / alone));
    }

    /// Takes in that a batch of `rows`, completed at `now`, took `time`. Feed only batches that succeeded: a model that
    /// fails fast would look fast. Costs a few microseconds; a batch of no rows or no time is passed over.
    pub fn observe(&mut self, now: Instant, rows: usize, time: Duration) {
        self.observe_answered(now, rows, time, Answers::default());
    }

    /// The same of a batch with requests in it, some of which were perhaps answered late.
    pub fn observe_answered(&mut self, now: Instant, rows: usize, time: Duration, answers: Answers) {
        self.take_in(now, rows, time, Some(answers));
    }

    /// The same of a batch of nobody's rows. While all are refused there are no others, so each is learned from at once.
    pub fn observe_test(&mut self, now: Instant, rows: usize, time: Duration) {
        self.take_in(now, rows, time, None);
    }

    /// The same of a batch of which parts ran again, since rows were refused: it tells no more than how far batches go beyond what is predicted.
    pub fn observe_repeated(&mut self, rows: usize, time: Duration, answers: Answers) {
        let Some(predicted) = self.fit.seconds(rows).filter(|&t| t > 0.0) else { return };
        self.noise.observe(time.as_secs_f64() / predicted, answers);
        self.noise.measure();
        self.fit.set_noise(self.noise.factor(), self.noise.least(), self.noise.slowest());
    }

    fn take_in(&mut self, now: Instant, rows: usize, time: Duration, answers: Option<Answers>) {
        let seconds = time.as_secs_f64();
        if rows == 0 || seconds <= 0.0 {
            return;
        }
        self.observed += 1;
        // Of a size that was never timed, one size's mean is no prediction: being off says nothing about noise or drift.
        if (self.fit.is_line() || self.only_size == Some(rows))
            && let Some(predicted) = self.fit.seconds(rows).filter(|&t| t > 0.0)
        {
            // A size that takes as long as it ever did has not drifted, however far it is off the line.
            let usual = if self.fit.is_line() { self.sizes.usual_seconds(rows, self.fit.on_line()) } else { None };
            if let Some(length) = self.drift.observe(seconds / usual.unwrap_or(predicted)) {
                self.forget_before(self.observed - length as u64 + 1);
                self.noise.restart();
                self.age = 0;
            } else {
                self.noise.observe(seconds / predicted, answers.unwrap_or_default());
            }
        }
        self.sizes.observe(rows, seconds, self.fit.on_line());
        self.only_size = (self.observed == 1 || self.only_size == Some(rows)).then_some(rows);
        let is_test = answers.is_none();
        let class = &mut self.classes[rows.ilog2().min(CLASSES as u32 - 1) as usize];
        if is_test && self.fit.predict_cautiously(rows).is_some_and(|feared| time <= feared) {
            self.noise.forget(TEST_COUNTS - 1);
            class.drain(..class.len().min(TEST_COUNTS - 1));
        }
        if class.len() == PER_CLASS {
            class.pop_front();
        }
        class.push_back(Sample { number: self.observed, at: now, rows, seconds });
        (self.age, self.unused) = (self.age + 1, self.unused + 1);
        let is_due = self.age <= YOUNG || self.unused >= SELDOM || is_test;
        if is_due || (!self.fit.is_line() && self.only_size.is_none()) {
            self.unused = 0;
            self.noise.measure();
            let fit = self.refit(now);
            let fit = if self.observed < ENOUGH { fit.guess() } else { fit };
            let curve = if fit.is_line() { self.sizes.curve(fit.on_line()) } else { None };
            let sizes = || self.classes.iter().flatten().map(|sample| sample.rows);
            let (least, most) = (sizes().min().unwrap_or(rows), sizes().max().unwrap_or(rows));
            self.fit = fit.curved(curve).timed(least, most);
        }
        self.fit.set_noise(self.noise.factor(), self.noise.least(), self.noise.slowest());
    }

    fn forget_before(&mut self, number: u64) {
        for class in &mut self.classes {
            class.retain(|s| s.number >= number);
        }
        self.sizes.clear();
        for sample in self.classes.iter().flatten() {
            self.sizes.observe(sample.rows, sample.seconds, self.fit.on_line());
        }
    }

    fn refit(&mut self, now: Instant) -> Fit {
        let mut points = Vec::with_capacity(self.classes.iter().map(VecDeque::len).sum());
        points.extend(self.classes.iter().flatten().map(|s| s.point(now)));
        match (regression::fit(&points), self.shape) {
            (Regression::Nothing, _) => Fit::UNKNOWN,
            (Regression::Line { base, per_row }, _) => {
                self.shape = Some((base, per_row));
                Fit::line(base, per_row, 1.0)
            }
            // The line keeps its shape and is scaled to pass through what is seen now: a device that has become twice as
            // slow is slower at every size, also at those that it has not shown yet.
            (Regression::Mean { rows, seconds }, Some((base, per_row))) if base + per_row * rows > 0.0 => {
                let scale = seconds / (base + per_row * rows);
                Fit::line(base * scale, per_row * scale, 1.0)
            }
            (Regression::Mean { rows, seconds }, _) => Fit::one_size(rows, seconds),
        }
    }
}

impl Sample {
    fn point(&self, now: Instant) -> Point {
        let half_lives = now.since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let weight = (-half_lives).exp2().max(LEAST_WEIGHT);
        Point { rows: self.rows as f64, seconds: self.seconds, weight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn affine(rows: usize, factor: f64) -> Duration {
        Duration::from_secs_f64((0.002 + 0.00005 * rows as f64) * factor)
    }

    fn assert_close(fit: &Fit, rows: usize, expected: Duration, tolerance: f64) {
        let predicted = fit.predict(rows).expect("known").as_secs_f64();
        let error = predicted / expected.as_secs_f64() - 1.0;
        assert!(error.abs() <= tolerance, "t({rows}) is off by {:.1} %: {fit:?}", error * 100.0);
    }

    #[test]
    fn nothing_is_predicted_before_the_first_batch() {
        assert_eq!(BatchTimes::new().fit().predict(1), None);
        assert_eq!(BatchTimes::new().fit().predict_cautiously(1), None);
    }

    #[test]
    fn one_size_predicts_its_own_time_for_every_size() {
        let mut times = BatchTimes::new();
        for i in 0..100 {
            times.observe(at(i * 10), 1, affine(1, 1.0));
        }
        // Extrapolating a slope from one size is how a burst after quiet is refused whole.
        assert_close(times.fit(), 128, affine(1, 1.0), 1e-6);
        assert!(!times.fit().is_line());
    }

    #[test]
    fn batches_that_run_again_widen_the_margin_and_do_not_move_the_estimate() {
        let mut times = BatchTimes::new();
        let z = |times: &BatchTimes| {
            let fit = times.fit();
            fit.predict_cautiously(16).unwrap().as_secs_f64() / fit.predict(16).unwrap().as_secs_f64()
        };
        let mut number = 0;
        let mut ask = |times: &mut BatchTimes, count: usize, repeated: usize| {
            for i in 0..count {
                let rows = [4, 16, 9, 12][i % 4];
                number += 1;
                match i % repeated.max(1) == 1 {
                    true => times.observe_repeated(rows, affine(rows, 2.5), Answers { all: 10, late: 10 }),
                    false => times.observe(at(number * 10), rows, affine(rows, 1.0)),
                }
            }
        };
        ask(&mut times, 200, 0);
        assert!(z(&times) < 1.1, "{}", z(&times));
        ask(&mut times, 200, 10);
        assert!((2.4..4.0).contains(&z(&times)), "one in ten takes two and a half times as long: {}", z(&times));
        assert_close(times.fit(), 16, affine(16, 1.0), 0.01);
        ask(&mut times, 200, 0);
        assert!(z(&times) < 1.5, "{}", z(&times));
    }

    #[test]
    fn it_says_between_which_sizes_it_was_learned() {
        let mut times = BatchTimes::new();
        for i in 0..200 {
            let rows = [4, 16, 9, 12][i % 4];
            times.observe(at(i as u64 * 10), rows, affine(rows, 1.0));
        }
        assert_eq!(times.fit().timed_rows(), (4, 16));
        // What a change made worthless counts no more.
        for i in 0..12 {
            times.observe(at(2000 + i * 10), 12, affine(12, 4.0));
        }
        assert_eq!(times.fit().timed_rows(), (12, 12));
    }

    #[test]
    fn an_hour_of_lone_requests_does_not_make_it_forget_what_large_batches_take() {
        let mut times = BatchTimes::new();
        for (i, rows) in [1, 4, 16, 64, 128].into_iter().enumerate() {
            times.observe(at(i as u64 * 10), rows, affine(rows, 1.0));
        }
        for i in 0..36_000 {
            // One or two rows: sizes that tell a slope from noise badly.
            let rows = 1 + i as usize % 2;
            times.observe(at(1000 + i * 100), rows, affine(rows, if i % 2 == 0 { 1.02 } else { 0.98 }));
        }
        assert_close(times.fit(), 128, affine(128, 1.0), 0.2);
        assert_close(times.fit(), 1, affine(1, 1.0), 0.05);
    }

    #[test]
    fn a_device_twice_as_slow_is_followed_within_a_few_batches_at_every_size() {
        let mut times = BatchTimes::new();
        for i in 0..200 {
            let rows = [1, 8, 32, 128][i % 4];
            times.observe(at(i as u64 * 10), rows, affine(rows, 1.0));
        }
        for i in 0..6 {
            times.observe(at(2000 + i * 10), 32, affine(32, 2.0));
        }
        assert_close(times.fit(), 32, affine(32, 2.0), 0.05);
        assert_close(times.fit(), 128, affine(128, 2.0), 0.1);
    }

    #[test]
    fn the_batches_that_showed_a_change_are_what_is_known_after_it() {
        let mut times = BatchTimes::new();
        for i in 0..200 {
            let rows = [1, 8, 32, 128][i % 4];
            times.observe(at(i as u64 * 10), rows, affine(rows, 1.0));
        }
        // Only the rows have become slower, so the old line's shape is of no use.
        let slower = |rows: usize| Duration::from_secs_f64(0.002 + 0.00015 * rows as f64);
        for (i, rows) in [128, 64, 128].into_iter().enumerate() {
            times.observe(at(2000 + i as u64 * 10), rows, slower(rows));
        }
        assert_close(times.fit(), 128, slower(128), 0.01);
        assert_close(times.fit(), 1, slower(1), 0.01);
    }

    #[test]
    fn a_change_too_small_to_count_as_drift_is_followed_as_the_old_batches_age() {
        let mut times = BatchTimes::new();
        for i in 0..24 {
            let rows = [1, 128][i % 2];
            times.observe(at(i as u64 * 10), rows, affine(rows, 1.0));
        }
        for i in 0..6 {
            let rows = [1, 128][i % 2];
            times.observe(at(60_000 + i as u64 * 10), rows, affine(rows, 1.09));
        }
        assert_close(times.fit(), 1, affine(1, 1.09), 0.02);
    }

    /// Off by so many per cent at `seen` rows and at 128, after so many batches of `seen` rows that take `factor` times as long.
    fn off_after_a_change(factor: f64, seen: usize, batches: u64) -> [f64; 2] {
        let mut times = BatchTimes::new();
        // A warm-up, then traffic of one size.
        (0..24).for_each(|i| times.observe(at(i), 1 << (i / 3), affine(1 << (i / 3), 1.0)));
        (0..400).for_each(|i| times.observe(at(100 + 10 * i), seen, affine(seen, 1.0)));
        (0..batches).for_each(|i| times.observe(at(5000 + 10 * i), seen, affine(seen, factor)));
        [seen, 128].map(|rows| {
            let predicted = times.fit().predict(rows).expect("known").as_secs_f64();
            (predicted / affine(rows, factor).as_secs_f64() - 1.0).abs() * 100.0
        })
    }

    #[test]
    fn a_device_a_third_slower_or_faster_is_so_at_sizes_that_did_not_run_since() {
        for (factor, seen) in [1.3, 1.5, 0.7].into_iter().flat_map(|factor| [1, 32, 100].map(|seen| (factor, seen))) {
            let [here, there] = off_after_a_change(factor, seen, 40);
            assert!(here < 3.0 && there < 5.0, "times {factor}, {seen} rows: {here:.1} and {there:.1} % off");
        }
    }

    #[test]
    fn a_change_of_a_tenth_is_learned_for_the_size_that_runs() {
        for (factor, seen) in [1.1, 0.9].into_iter().flat_map(|factor| [1, 32, 100].map(|seen| (factor, seen))) {
            let [here, _] = off_after_a_change(factor, seen, 400);
            assert!(here < 3.0, "times {factor}, {seen} rows: {here:.1} % off");
        }
    }

    #[test]
    fn a_first_batch_of_twenty_times_its_due_spoils_little() {
        let mut times = BatchTimes::new();
        times.observe(at(0), 1, affine(1, 20.0));
        for i in 1..10u64 {
            let rows = 1 << (i % 6);
            times.observe(at(i * 10), rows, affine(rows, 1.0));
        }
        assert_close(times.fit(), 128, affine(128, 1.0), 0.1);
    }

    #[test]
    fn the_noise_factor_covers_the_scatter_of_the_batches() {
        let mut times = BatchTimes::new();
        for i in 0..400u64 {
            let rows = [1, 16, 64][i as usize % 3];
            times.observe(at(i * 10), rows, affine(rows, 0.8 + 0.4 * ((i * 37 % 101) as f64 / 100.0)));
        }
        let z = times.fit().noise();
        assert!((1.15..1.35).contains(&z), "times scatter by ±20 %, z is {z}");
        for i in 400..440u64 {
            let rows = [1, 16, 64][i as usize % 3];
            times.observe(at(i * 10), rows, affine(rows, 3.0));
        }
        let z = times.fit().noise();
        assert!(z < 1.05, "times have tripled and scatter no more, z is {z}");
    }

    #[test]
    fn how_far_one_size_scatters_is_known_when_sizes_first_differ() {
        let mut times = BatchTimes::new();
        for i in 0..100 {
            times.observe(at(i * 10), 1, affine(1, 1.0));
        }
        times.observe(at(2000), 100, affine(100, 1.0));
        // A burst after quiet would otherwise be met with the margin of somebody who has seen nothing.
        assert!(times.fit().noise() < 1.001, "{:?}", times.fit());
        assert_close(times.fit(), 100, affine(100, 1.0), 0.001);
    }

    #[test]
    fn sizes_that_are_off_the_line_are_no_drift_and_are_known_for_what_they_take() {
        // 32 rows run at once; one more takes a second round.
        let steps = |rows: usize| Duration::from_millis(10 * rows.div_ceil(32) as u64);
        let mut times = BatchTimes::new();
        for i in 0..81 {
            let rows = [1, 2, 4, 8, 16, 32, 40, 64, 128][i / 3 % 9];
            times.observe(at(i as u64 * 10), rows, steps(rows));
        }
        for rows in [1, 16, 32, 64, 128] {
            assert_close(times.fit(), rows, steps(rows), 0.03);
        }
        assert_eq!(times.fit().faster_size(40), Some(32));
        // And slower they are all.
        for i in 0..24 {
            let rows = [32, 64, 128][i % 3];
            times.observe(at(1000 + i as u64 * 10), rows, steps(rows) * 3);
        }
        assert_close(times.fit(), 64, steps(64) * 3, 0.05);
    }

    #[test]
    fn degenerate_batches_are_passed_over() {
        let mut times = BatchTimes::new();
        times.observe(at(0), 0, Duration::from_millis(1));
        times.observe(at(0), 5, Duration::ZERO);
        assert_eq!(times.fit(), &Fit::UNKNOWN);
        times.observe(at(0), usize::MAX, Duration::MAX);
        assert!(times.fit().predict(usize::MAX).is_some());
        let absurd = Fit::line(f64::MAX, f64::MAX, f64::MAX).predict_cautiously(usize::MAX);
        assert_eq!(absurd, Some(Duration::from_secs(3 * 3600)));
    }
}
