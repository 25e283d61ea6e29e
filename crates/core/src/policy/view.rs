//! All that a decision may look at.

use std::time::Duration;

use super::{BatchSizes, Entry, LaneId, Priority, Queue, Spread};
use crate::estimator::{Fit, Instant, KnownCrowd};

/// The state of one pool at one instant.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Whose decision this is, among those whose batches are `running`.
    pub lane: LaneId,
    /// What waits.
    pub queue: &'a Queue,
    /// Batches that are running now, in any order.
    pub running: &'a [Running],
    /// Runners of the pool, free and busy.
    pub runners: usize,
    /// Most rows that a batch may have now: the cap, or what was tried.
    pub max_batch: usize,
    /// The sizes that batches are padded to.
    pub sizes: &'a BatchSizes,
    /// What is known of batch times.
    pub fit: &'a Fit,
    /// c ≥ 0: a hold ends c·α/n after the last arrival, with n rows ready (see [`Patience`](super::Patience)).
    pub patience: f64,
    /// Whether free runners share what waits (see [`Patience`](super::Patience)).
    pub spread: Spread,
    /// How long the queue may be.
    pub reach: Reach,
    /// The crowd that the callers are, if they are one.
    pub crowd: Option<KnownCrowd>,
    /// When a batch of this lane last came back and left its runner free; the epoch if none ever ran.
    pub free_since: Instant,
    /// Whether a stale estimate is tested with rows that are nobody's, and so by no caller.
    pub rehearses: bool,
    /// Whether nothing will arrive any more.
    pub draining: bool,
    /// How late the driver may ask again, as it did of late: a hold that would last until the last moment ends so much sooner.
    pub late_by: Duration,
    /// What the other lanes of the pool mean for this one.
    pub standing: Standing,
}

/// How a lane stands among the others of its pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Runner time of the other lanes' batches that go before this lane's next one. Zero while a runner is free: whose
    /// batch it gets is settled among those that want it. Whoever rides in the next batch is not judged by it.
    pub before: Duration,
    /// The part of the pool that this lane can count on while it has batches to run: more than 0, at most 1.
    pub share: f64,
    /// Runner time that it can have before its share bounds it.
    pub lead: Duration,
    /// Until when a batch that need not go yet had better wait, where a runner is free: callers of another lane are refused who are in more of a
    /// hurry and need that runner, and meanwhile more join it. [`Instant::EPOCH`] where nobody is in need.
    pub gives_way_until: Instant,
    /// Whether another lane takes the last free runner from a batch that is held back, which would be late on the next. Then a hold saves nothing.
    pub is_contested: bool,
    /// Whether runners that are free are left to the other lanes: the next batch waits for one that is busy.
    pub stands_back: bool,
}

impl Standing {
    /// A lane that has the pool to itself.
    pub const ALONE: Standing = Standing {
        before: Duration::ZERO,
        share: 1.0,
        lead: Duration::ZERO,
        gives_way_until: Instant::EPOCH,
        is_contested: false,
        stands_back: false,
    };
}

/// How long a queue may be: less than deadlines allow where one stands that is longer than it need be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// The part, at most 1, of the time to its deadline within which whoever stands last has to be answered, behind full batches.
    pub part: f64,
    /// Since when it is less than 1. Who has come before has been let in.
    pub since: Instant,
    /// The most urgent of whom too many ask: the queue is not made shorter for those who are more urgent.
    pub urgent: Priority,
}

impl Reach {
    /// As long as deadlines allow.
    pub const WHOLE: Reach = Reach { part: 1.0, since: Instant::EPOCH, urgent: Priority::HIGHEST };

    /// Whether that is as long as deadlines allow.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.part >= 1.0
    }

    /// When this entry, the last of the queue, has to be answered.
    #[must_use]
    pub fn due(&self, now: Instant, last: &Entry) -> Instant {
        let is_let_in = last.arrival < self.since || last.priority < self.urgent;
        if self.is_whole() || is_let_in { last.deadline } else { now + last.deadline.since(now).mul_f64(self.part) }
    }
}

/// A batch that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Tells batches apart.
    pub ticket: u64,
    /// The lane that it came from.
    pub lane: LaneId,
    /// When it was released.
    pub since: Instant,
    /// Its requests; none if it is a rehearsal.
    pub entries: usize,
    /// Its rows.
    pub rows: usize,
    /// How long the first of its entries had waited by then.
    pub waited: Duration,
    /// The mean batch time expected of it when it was released; `None` if that was a guess.
    pub expected: Option<Duration>,
}

impl Running {
    /// Whether its rows are nobody's.
    #[must_use]
    pub fn is_rehearsal(&self) -> bool {
        self.entries == 0
    }
}

/// A share below this is taken as this: keeps predictions finite.
const SMALLEST_SHARE: f64 = 1e-6;

/// How many times as long as the slowest of late a batch may take before it counts as hung. Less: all who wait are refused shortly before a
/// straggler ends, and nobody is there when it does.
const BEYOND: f64 = 1.5;

impl View<'_> {
    /// Whether a batch released now would start at once.
    #[must_use]
    pub fn has_free_runner(&self) -> bool {
        self.free_runners() > 0
    }

    /// Runners for which a batch could go now.
    pub(super) fn free_runners(&self) -> usize {
        if self.standing.stands_back { 0 } else { self.runners.saturating_sub(self.running.len()) }
    }

    /// When the batch with `ahead` full batches before it is expected to start: now if a runner is free for it. The batches
    /// ahead go to whichever runner comes free first, each for its batch time, and before and between them go the other lanes'.
    ///
    /// A lane can have its share in two ways: all runners take turns between it and the others, or some are its alone while the others'
    /// long batches occupy the rest. The sooner of the two counts: what is refused on the other would have been in time. For the same reason
    /// the next batch counts on the first runner that comes free, whoever else may want that: it is refused when it has not got one.
    #[must_use]
    pub fn start_after(&self, now: Instant, ahead: usize) -> Instant {
        self.start_behind(now, ahead, self.max_batch)
    }

    /// The same behind `ahead` batches of so many rows.
    pub(super) fn start_behind(&self, now: Instant, ahead: usize, rows: usize) -> Instant {
        if ahead == 0 {
            return self.start_alone(now, 0, Duration::ZERO);
        }
        let Standing { before, share, lead, .. } = self.standing;
        let full = self.mean_batch_time(rows);
        let runners = u32::try_from(self.runners).unwrap_or(u32::MAX).max(1);
        let start = if share < 1.0 {
            let share = share.max(SMALLEST_SHARE);
            let work = full.as_secs_f64() * ahead as f64;
            let at_once = lead.as_secs_f64().min(work);
            let each = Duration::try_from_secs_f64((at_once + (work - at_once) / share) / ahead as f64)
                .unwrap_or(Duration::MAX);
            let by_share = (each / runners).saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
            let alone = self.start_alone(now, ahead, full).max(self.start_alone(now, 0, full) + by_share);
            self.start_alone(now, ahead, each).min(alone)
        } else {
            self.start_alone(now, ahead, full)
        };
        if before.is_zero() { start } else { start + before / runners }
    }

    /// The start behind `ahead` batches of this lane alone that each take `full`.
    fn start_alone(&self, now: Instant, ahead: usize, full: Duration) -> Instant {
        let earliest = |starts: &[Instant]| starts.iter().copied().min().unwrap_or(now);
        if self.runners <= 1 {
            let start = self.running.first().map_or(now, |r| self.completion(now, r));
            return start + full.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
        }
        let idle = std::iter::repeat_n(now, self.free_runners());
        let starts: Vec<Instant> = self.running.iter().map(|r| self.completion(now, r)).chain(idle).collect();
        if ahead == 0 || full.is_zero() {
            return earliest(&starts);
        }
        // Within `span` of the earliest start, each runner can start its share; the wanted span is the shortest in which
        // `ahead` + 1 batches can start. One runner alone would need `ahead` times a full batch.
        let first = earliest(&starts);
        let started_within = |span: Duration| -> u128 {
            let until = first + span;
            let on_one = |&at: &Instant| if at > until { 0 } else { until.since(at).as_nanos() / full.as_nanos() + 1 };
            starts.iter().map(on_one).sum()
        };
        let (mut short, mut long) = (0, full.as_nanos().saturating_mul(ahead as u128).min(u128::from(u64::MAX)) as u64);
        while short < long {
            let middle = short + (long - short) / 2;
            if started_within(Duration::from_nanos(middle)) > ahead as u128 {
                long = middle;
            } else {
                short = middle + 1;
            }
        }
        first + Duration::from_nanos(long)
    }

    fn completion(&self, now: Instant, running: &Running) -> Instant {
        let Some(expected) = running.expected else { return now };
        let due = running.since + expected;
        if due > now { due } else { self.end_of_overdue(now, due, expected, running.lane) }
    }

    /// A batch that has outlasted its prediction may end at any moment, and is expected to: who waits is refused when it is too late, not when it
    /// is likely to be. One that is overdue by more than callers give, and by more than any of this lane was of late, is expected to take as long again:
    /// whoever was there when it was due has given up by then, a hung runner stops promising anything, and what comes while it hangs is refused at
    /// once.
    #[cold]
    fn end_of_overdue(&self, now: Instant, due: Instant, expected: Duration, lane: LaneId) -> Instant {
        let (overdue, given) = (now.since(due), self.queue.first().map_or(Duration::ZERO, Entry::given));
        let is_own = lane == self.lane;
        let longest = if is_own { expected.mul_f64(self.fit.slowest() * BEYOND - 1.0) } else { Duration::ZERO };
        if overdue <= given.max(longest) { now } else { now + overdue }
    }

    /// The runners that are expected to be free by `soon`, and when the last of them is, not before `start`.
    pub(super) fn free_by(&self, start: Instant, soon: Instant) -> (usize, Instant) {
        let idle = self.free_runners();
        let ends = self.running.iter().map(|running| self.completion(start, running)).filter(|end| *end <= soon);
        ends.fold((idle, start), |(free, last), end| (free + 1, last.max(end)))
    }

    /// The mean batch time of `rows`, padded; zero while the estimate is a guess.
    pub(super) fn mean_batch_time(&self, rows: usize) -> Duration {
        self.fit.is_trusted().then(|| self.fit.predict(self.sizes.padded(rows))).flatten().unwrap_or_default()
    }

    /// The most rows, below `rows`, of which a batch that starts at `start` ends by `deadline`; 0 if none does.
    pub(super) fn rows_in_time(&self, start: Instant, deadline: Instant, rows: usize) -> usize {
        // The batch time never shrinks with the rows: halve until one row apart.
        let (mut fits, mut late) = (0, rows);
        while fits + 1 < late {
            let middle = fits + (late - fits) / 2;
            let in_time = start + self.batch_time(middle) <= deadline;
            if in_time { fits = middle } else { late = middle }
        }
        fits
    }

    /// The cautious batch time of `rows`, padded, or of as many as fit into one batch; zero while the estimate is a guess,
    /// so that nothing is refused on one.
    #[must_use]
    pub fn batch_time(&self, rows: usize) -> Duration {
        let rows = self.sizes.padded(rows.min(self.max_batch));
        let trusted = self.fit.is_trusted().then(|| self.fit.predict_cautiously(rows));
        trusted.flatten().unwrap_or_default()
    }

    /// The same of a request that goes alone. Its margin is smaller where its caller gives it hardly more time than it takes.
    #[must_use]
    pub fn time_alone(&self, entry: &Entry) -> Duration {
        let rows = self.sizes.padded(entry.rows.min(self.max_batch));
        let trusted = self.fit.is_trusted().then(|| self.fit.predict_alone(rows, entry.given()));
        trusted.flatten().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    /// Of a lane alone at one runner, whose batches have at most 4 rows.
    fn view<'a>(queue: &'a Queue, running: &'a [Running], fit: &'a Fit) -> View<'a> {
        View {
            lane: 0,
            queue,
            running,
            runners: 1,
            max_batch: 4,
            sizes: BatchSizes::ANY,
            fit,
            patience: 0.0,
            spread: Spread::Never,
            reach: Reach::WHOLE,
            crowd: None,
            free_since: Instant::EPOCH,
            rehearses: false,
            draining: false,
            late_by: Duration::ZERO,
            standing: Standing::ALONE,
        }
    }

    /// Starts, in ms, of the batches behind 0, 1, 2 … full ones; a batch of any size takes 10 ms.
    fn starts(runners: usize, running_since_ms: &[u64], now_ms: u64) -> Vec<u128> {
        starts_among_others(Standing::ALONE, runners, running_since_ms, now_ms)
    }

    fn starts_among_others(standing: Standing, runners: usize, running_since_ms: &[u64], now_ms: u64) -> Vec<u128> {
        starts_by(&Fit::line(0.010, 0.0, 1.0), standing, runners, running_since_ms, now_ms)
    }

    fn starts_by(fit: &Fit, standing: Standing, runners: usize, running_since_ms: &[u64], now_ms: u64) -> Vec<u128> {
        let expected = fit.is_trusted().then_some(Duration::from_millis(10));
        let running = running_since_ms.iter().zip(0..);
        let running = running.map(|(&ms, ticket)| Running {
            ticket,
            lane: 0,
            since: at(ms),
            entries: 1,
            rows: 1,
            waited: Duration::ZERO,
            expected,
        });
        let running: Vec<_> = running.collect();
        let queue = Queue::new();
        let view = View { runners, standing, ..view(&queue, &running, fit) };
        (0..6).map(|ahead| view.start_after(at(now_ms), ahead).since(Instant::EPOCH).as_millis()).collect()
    }

    #[test]
    fn batches_ahead_take_the_runners_as_these_come_free() {
        assert_eq!(starts(1, &[], 100), [100, 110, 120, 130, 140, 150]);
        assert_eq!(starts(1, &[96], 100), [106, 116, 126, 136, 146, 156]);
        assert_eq!(starts(2, &[96], 100), [100, 106, 110, 116, 120, 126]);
        assert_eq!(starts(3, &[96, 92, 98], 100), [102, 106, 108, 112, 116, 118]);
    }

    #[test]
    fn other_lanes_batches_go_before_and_between_all_but_the_next() {
        let standing = Standing { before: Duration::from_millis(4), share: 0.5, ..Standing::ALONE };
        assert_eq!(starts_among_others(standing, 1, &[96], 100), [106, 130, 150, 170, 190, 210]);
        assert_eq!(starts_among_others(standing, 2, &[96, 92], 100), [102, 108, 124, 128, 144, 148]);
    }

    #[test]
    fn a_runner_that_comes_free_alone_is_not_shared_with_others_whose_batches_are_long() {
        // The other three come free in 90 ms, and half of four runners are more than one.
        let half = Standing { share: 0.5, ..Standing::ALONE };
        assert_eq!(starts_among_others(half, 4, &[96, 190, 190, 190], 100), [106, 116, 126, 136, 146, 156]);
        // An eighth of four is less than one: what the lane runs alone does not exceed its share.
        let eighth = Standing { share: 0.125, ..Standing::ALONE };
        assert_eq!(starts_among_others(eighth, 4, &[96, 190, 190, 190], 100), [106, 126, 146, 166, 186, 206]);
    }

    /// When a batch of 10 ms that runs since 0 is expected to end, for callers who give 20 ms.
    fn end_of_overdue(now_ms: u64) -> Instant {
        let (fit, mut queue) = (Fit::line(0.010, 0.0, 1.0), Queue::new());
        queue.insert(Entry::new(0, at(now_ms), at(now_ms + 20)));
        let expected = Some(Duration::from_millis(10));
        let waited = Duration::ZERO;
        let running = [Running { ticket: 0, lane: 1, since: at(0), entries: 1, rows: 1, waited, expected }];
        view(&queue, &running, &fit).start_after(at(now_ms), 0)
    }

    #[test]
    fn an_overdue_batch_may_end_at_any_moment() {
        assert_eq!([11, 20, 30].map(end_of_overdue), [11, 20, 30].map(at));
    }

    #[test]
    fn a_hung_runner_is_left_out_of_account() {
        assert_eq!(end_of_overdue(31), at(52), "overdue by more than callers give");
        assert_eq!(
            end_of_overdue(u64::MAX / 1_200_000),
            Instant::FAR_FUTURE,
            "no prediction is beyond the end of time"
        );
    }

    #[test]
    fn one_that_is_as_slow_as_others_were_of_late_is_no_hung_runner() {
        let mut times = crate::estimator::BatchTimes::new();
        for batch in 0..40 {
            let ms = if batch == 20 { 80 } else { 10 };
            times.observe(at(batch * 100), 1, Duration::from_millis(ms));
        }
        let (now, mut queue) = (at(5_000), Queue::new());
        queue.insert(Entry::new(0, now, now + Duration::from_millis(20)));
        let start = |lane, overdue: u64| {
            let since = now - Duration::from_millis(10 + overdue);
            let (waited, expected) = (Duration::ZERO, Some(Duration::from_millis(10)));
            let running = [Running { ticket: 0, lane, since, entries: 1, rows: 1, waited, expected }];
            view(&queue, &running, times.fit()).start_after(now, 0).since(now).as_millis()
        };
        assert_eq!([70, 100, 120].map(|overdue| start(0, overdue)), [0, 0, 120]);
        assert_eq!(start(1, 70), 70, "another lane's batches are another matter");
    }

    #[test]
    fn a_guess_puts_nothing_off() {
        let mut times = crate::estimator::BatchTimes::new();
        times.observe(at(0), 1, Duration::from_millis(10));
        assert!(times.fit().predict(1).is_some() && !times.fit().is_trusted());
        assert_eq!(starts_by(times.fit(), Standing::ALONE, 1, &[], 100), [100; 6]);
        assert_eq!(starts_by(times.fit(), Standing::ALONE, 2, &[96, 92], 100), [100; 6]);
    }

    #[test]
    fn more_rows_than_fit_take_the_time_of_a_full_batch() {
        let queue = Queue::new();
        let fit = Fit::line(0.010, 0.001, 1.5);
        let view = view(&queue, &[], &fit);
        assert_eq!([3, 4, 5].map(|rows| view.batch_time(rows).as_micros()), [19_500, 21_000, 21_000]);
    }
}
