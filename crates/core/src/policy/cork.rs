//! The policy that the server runs: release when releasing beats waiting, and refuse early what would be late.
//!
//! In order: refuse what has expired; refuse from the front of the queue what the next batch would answer late; refuse from
//! its end what the batches before it make late; with a free runner, hold as long as patience and the crowd say, or release.
//!
//! The front is judged before the end: those who leave there make room. docs/policy.md has the reasons and the figures.

use std::ops::Range;
use std::time::Duration;

use super::{BatchSizes, Decision, Entry, Policy, Queue, ReleaseReason, ShedReason, View};
use crate::estimator::{Fit, Instant, KnownCrowd};

/// All holds for one batch together last no longer than this many α: an end to arrivals that each renew the hold, and to
/// timers that ring late.
const LONGEST_HOLD: f64 = 1.0;

/// Idle time after which an estimate is put to the test, in batch times of one row. Less: quicker back from a stall. More:
/// a model that is truly too slow for its cap answers fewer requests late.
const PROBE_AFTER: u32 = 4;
/// The longest that an estimate by which everything is late goes untested.
const LONGEST_WITHOUT_PROBE: Duration = Duration::from_secs(1);

/// Adaptive micro-batching under a latency cap. Has no settings: all it needs is in the [`View`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Cork;

impl Policy for Cork {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        if view.queue.is_empty() {
            return Decision::Park;
        }
        if let Some(entries) = expired(now, view.queue) {
            let retry_at = view.start_after(now, view.queue.rows_of(entries.end) / view.max_batch);
            return Decision::Shed { entries, reason: ShedReason::Expired, forecast: now, retry_at };
        }
        let start = view.start_after(now, 0);
        let (entries, rows) = match in_time(start, &view, next_batch(start, &view)) {
            Ok(batch) => batch,
            Err(Late { position, end: forecast }) => {
                return match lossless_smaller_batch(now, start, &view, position) {
                    Some(entries) if view.has_free_runner() => {
                        Decision::Release { entries, reason: ReleaseReason::Deadline }
                    }
                    // Wait for the runner: what arrives meanwhile does not lengthen the smaller batch.
                    Some(_) => wait_for_runner(&view, 1, 1),
                    None if estimate_may_be_stale(now, &view) => {
                        Decision::Release { entries: 1, reason: ReleaseReason::Probe }
                    }
                    None => {
                        let (entries, reason) = (position..position + 1, ShedReason::BatchTooLate);
                        // Once that batch is over, the same can have one without the others.
                        Decision::Shed { entries, reason, forecast, retry_at: forecast }
                    }
                };
            }
        };
        if let Some((Late { position, end: forecast }, retry_at)) = late_behind_others(now, &view) {
            let (entries, reason) = (position..position + 1, ShedReason::QueueTooLong);
            return Decision::Shed { entries, reason, forecast, retry_at };
        }
        if !view.has_free_runner() {
            return wait_for_runner(&view, entries, rows);
        }
        match hold(now, &view, entries, rows) {
            Hold::Until(instant) => Decision::WaitUntil(instant),
            Hold::No(reason) => Decision::Release { entries, reason },
        }
    }
}

/// The entries and rows of the next batch: all that fit, with care while it is not known how long a large one takes; or
/// fewer, where the model runs some sizes only, if the padding of all that wait makes a batch of an allowed size faster.
///
/// That size is best at which most rows are in time for each second of the runner, those aside that are late at that size.
/// While more wait than fit, nothing is faster than a full batch.
fn next_batch(start: Instant, view: &View<'_>) -> (usize, usize) {
    let first_rows = view.queue.first().map_or(1, |first| first.rows);
    let whole = view.queue.prefix(view.fit.most_rows().max(first_rows).min(view.max_batch));
    if view.sizes.is_any() || !view.fit.is_trusted() || whole.0 < view.queue.len() {
        return whole;
    }
    let speed = |rows| {
        let time = view.batch_time(rows);
        let in_time = view.queue.rows() - view.queue.rows_due_before(start + time);
        in_time.min(rows) as f64 / time.as_secs_f64()
    };
    fastest(view.sizes, whole, |size| view.queue.prefix(size), speed)
}

/// The fastest of a batch of all that wait and those of the smaller allowed sizes, as entries and rows: `prefix` gives the
/// batch of at most so many rows, `speed` how many rows that are in time one of so many rows runs a second.
pub(super) fn fastest(
    sizes: &BatchSizes,
    whole: (usize, usize),
    prefix: impl Fn(usize) -> (usize, usize),
    speed: impl Fn(usize) -> f64,
) -> (usize, usize) {
    let faster =
        |best: (usize, usize), batch: (usize, usize)| if speed(batch.1) > speed(best.1) { batch } else { best };
    let smaller = sizes.iter().rev().filter(|&size| size < whole.1).map(prefix);
    smaller.filter(|(entries, _)| *entries > 0).fold(whole, faster)
}

/// How long after the newest arrival a hold with so many rows ready ends, in seconds, if nobody else arrives.
pub(super) fn hold_after_newest(patience: f64, fit: Fit, sizes: &BatchSizes, rows: usize) -> f64 {
    patience * sizes.saving(fit, rows).max(0.0) / rows as f64
}

/// How long after it could first be released a batch is held at most, in seconds.
pub(super) fn longest_hold(fit: Fit) -> f64 {
    LONGEST_HOLD * fit.base_seconds()
}

/// Those of the most urgent level with any whose deadlines have passed.
fn expired(now: Instant, queue: &Queue) -> Option<Range<usize>> {
    let has_expired = |level: &Range<usize>| queue.get(level.start).is_some_and(|first| first.deadline <= now);
    queue.levels().find(has_expired).map(|level| queue.due_before(level, after(now)))
}

/// An entry that will be late: where it stands, and when the batch that it would ride in ends.
struct Late {
    position: usize,
    end: Instant,
}

/// This batch, if it is in time for whoever in it is due first. Where that is not so, less urgent entries stay behind, as
/// many as it takes. If it takes more than those, the one that is due first and will be late.
fn in_time(start: Instant, view: &View<'_>, (entries, rows): (usize, usize)) -> Result<(usize, usize), Late> {
    let queue = view.queue;
    let Some((position, due_first)) = queue.due_first(entries).and_then(|at| Some((at, queue.get(at)?))) else {
        return Ok((entries, rows));
    };
    let end = |rows| start + view.batch_time(rows);
    if end(rows) <= due_first.deadline {
        return Ok((entries, rows));
    }
    let own = queue.level_end(position).unwrap_or(entries);
    let end_of_own = if own < entries { end(queue.rows_of(own)) } else { end(rows) };
    if end_of_own > due_first.deadline {
        return Err(Late { position, end: end_of_own });
    }
    Ok(queue.prefix(view.rows_in_time(start, due_first.deadline, rows)))
}

/// The most urgent entry that stands first or last of its level and will be late by all that is known now, although the
/// batches before its own run full; and when its own would start.
///
/// The first of a level is late where more urgent ones take the runners; it would otherwise wait for its deadline.
fn late_behind_others(now: Instant, view: &View<'_>) -> Option<(Late, Instant)> {
    let late = |position: usize| {
        let entry = view.queue.get(position)?;
        let before = view.queue.rows_of(position);
        if before + entry.rows <= view.max_batch {
            return None; // it rides in the next batch, which the rules for the front of the queue judge
        }
        let (mut ahead, mut rows) = (before / view.max_batch, before % view.max_batch + entry.rows);
        if rows > view.max_batch {
            (ahead, rows) = (ahead + 1, entry.rows);
        }
        let start = view.start_after(now, ahead);
        let end = start + view.batch_time(rows);
        (end > entry.deadline).then_some((Late { position, end }, start))
    };
    view.queue.levels().flat_map(|level| [level.start, level.end - 1]).find_map(late)
}

/// A batch that is small enough to be in time for the first entry, where that is the one that is late, if the rest can
/// follow it without being late.
///
/// This serves a caller with a tight deadline of its own under light load. Where the rest would be late, the first entry
/// is the one to go: a batch shrunk for its sake would cost more answers than it saves.
fn lossless_smaller_batch(now: Instant, start: Instant, view: &View<'_>, late: usize) -> Option<usize> {
    let first = view.queue.first().filter(|_| late == 0)?;
    let (mut entries, mut rows) = (0, 0);
    // Ends within the next batch: the whole of that is late.
    for entry in view.queue.iter() {
        if start + view.batch_time(rows + entry.rows) > first.deadline {
            break;
        }
        (entries, rows) = (entries + 1, rows + entry.rows);
    }
    // Those who are less urgent have no say in it.
    let end_of_level = view.queue.level_end(0)?;
    let (next, last) = (view.queue.get(entries)?, view.queue.get(end_of_level - 1)?);
    let within = |entry: &Entry| entry.deadline.since(entry.arrival);
    if within(next) <= within(first) {
        return None; // the first is in no greater hurry than the others, it has waited longer
    }
    let own = view.mean_batch_time(rows);
    let rest = view.queue.rows_of(end_of_level).checked_sub(rows).filter(|rest| *rest > 0)?;
    let ahead = (rest - 1) / view.max_batch;
    let end = |ahead, rows| view.start_after(now, ahead) + own + view.batch_time(rows);
    // With an α to spare for those who will come: the runner has time for a batch more than it would have needed.
    let spare = Duration::from_secs_f64(view.fit.base_seconds());
    let in_time = end(0, rest) + spare <= next.deadline && end(ahead, rest - ahead * view.max_batch) <= last.deadline;
    (entries > 0 && in_time).then_some(entries)
}

/// Whether not even a batch of the first entry alone would be in time, and none of this lane has run for so long that a free
/// runner is worth finding out with. A burst after quiet, of more than one batch can answer in time, is no sign of a stale
/// estimate. What other lanes run does not matter: beside a busy one, the pool is never idle. A lane with rows of its own tests
/// its estimate with those.
///
/// A stall of the machine can leave an estimate by which nothing is ever in time. Were everything refused on it, no batch
/// would run, nothing would be learned, and the server would refuse for ever.
fn estimate_may_be_stale(now: Instant, view: &View<'_>) -> bool {
    let batch = view.fit.predict(view.sizes.padded(1)).unwrap_or_default();
    let wait = batch.saturating_mul(PROBE_AFTER).min(LONGEST_WITHOUT_PROBE);
    let hopeless = view.queue.first().is_some_and(|first| now + view.batch_time(first.rows) > first.deadline);
    let has_one_running = view.running.iter().any(|batch| batch.lane == view.lane);
    let by_caller = !view.rehearses && hopeless;
    by_caller && view.has_free_runner() && !has_one_running && now.since(view.free_since) >= wait
}

/// Nothing before the batch of these entries could not start in time any more, or anybody's deadline passes. The next
/// arrival or completion asks again; only a runner that does not come back needs the timer.
fn wait_for_runner(view: &View<'_>, entries: usize, rows: usize) -> Decision {
    let too_late = after(latest_start(view, entries, rows));
    Decision::WaitUntil(too_late.min(first_deadline(view.queue, view.queue.len())))
}

/// The last instant at which a batch of the first `entries` can start and be in time for all, if it has `rows`.
fn latest_start(view: &View<'_>, entries: usize, rows: usize) -> Instant {
    first_deadline(view.queue, entries) - view.batch_time(rows)
}

/// When the one of the first `entries` is due that is due first.
fn first_deadline(queue: &Queue, entries: usize) -> Instant {
    queue.due_first(entries).and_then(|at| queue.get(at)).map_or(Instant::FAR_FUTURE, |e| e.deadline)
}

/// The instant after `at`.
fn after(at: Instant) -> Instant {
    at + Duration::from_nanos(1)
}

enum Hold {
    Until(Instant),
    No(ReleaseReason),
}

/// Whether to hold the cork, with a runner free and `entries` of `rows` rows ready.
fn hold(now: Instant, view: &View<'_>, entries: usize, rows: usize) -> Hold {
    if view.draining {
        return Hold::No(ReleaseReason::Draining);
    }
    if rows >= view.max_batch || entries < view.queue.len() {
        return Hold::No(ReleaseReason::Full);
    }
    if !(view.fit.is_line() && view.fit.is_trusted()) {
        return Hold::No(ReleaseReason::Ripe); // what another row would save is not known
    }
    let ripe = match view.crowd {
        Some(crowd) if is_worth_waiting_for(crowd, view) => crowd_is_back(crowd, view),
        _ => {
            let wait = hold_after_newest(view.patience, view.fit, view.sizes, rows);
            let heads = view.queue.levels().filter_map(|level| view.queue.get(level.start));
            let held_since = heads.map(|head| head.arrival).min().unwrap_or(now).max(view.free_since);
            let give_up = held_since + Duration::from_secs_f64(longest_hold(view.fit));
            (view.queue.newest_arrival() + Duration::from_secs_f64(wait)).min(give_up)
        }
    };
    let latest = latest_start(view, entries, rows + 1);
    if ripe <= now {
        Hold::No(ReleaseReason::Ripe)
    } else if latest <= now {
        Hold::No(ReleaseReason::Deadline)
    } else {
        Hold::Until(ripe.min(latest))
    }
}

/// Whether a fixed crowd should stay together.
///
/// All answers of a batch go out at once, and so come the next requests in. Whoever is released before the others are back
/// will not meet them again: N callers split into 1 and N − 1 stay so for ever, and every round costs another α. Waiting
/// for them is worth up to that.
fn is_worth_waiting_for(crowd: KnownCrowd, view: &View<'_>) -> bool {
    view.running.is_empty() && crowd.returns < Duration::from_secs_f64(view.fit.base_seconds())
}

/// When to wait for the crowd no longer: now if all are here, or when even a slow one would be back.
fn crowd_is_back(crowd: KnownCrowd, view: &View<'_>) -> Instant {
    if view.queue.len() >= crowd.size {
        return Instant::EPOCH;
    }
    view.free_since + (crowd.returns * 2).min(Duration::from_secs_f64(view.fit.base_seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::BatchTimes;
    use crate::policy::{Priority, Running, Standing};

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    /// One runner that is free and has been idle for 1 ms, batches of at most 8 rows, t(n) = 10 ms + n · 1 ms.
    struct State {
        queue: Queue,
        running: Vec<Running>,
        sizes: BatchSizes,
        fit: Fit,
        patience: f64,
        crowd: Option<KnownCrowd>,
        free_since: Instant,
        draining: bool,
    }

    /// That state with entries that came 8 ms ago, are due in so many µs and have so many rows.
    fn state(due_us_rows: &[(u64, usize)]) -> State {
        let mut queue = Queue::new();
        for (id, &(due, rows)) in (0..).zip(due_us_rows) {
            queue.insert(Entry {
                id,
                arrival: NOW - us(8000),
                deadline: NOW + us(due),
                rows,
                priority: Priority::DEFAULT,
            });
        }
        let (sizes, fit) = (BatchSizes::default(), Fit::line(0.010, 0.001, 1.0));
        let free_since = NOW - us(1000);
        State { queue, running: Vec::new(), sizes, fit, patience: 0.0, crowd: None, free_since, draining: false }
    }

    impl State {
        /// Patience c, the rows having come 8 ms ago.
        fn patience(self, patience: f64) -> State {
            State { patience, ..self }
        }

        /// The callers are a crowd of this size that is back within so many µs.
        fn crowd(self, size: usize, returns: u64) -> State {
            State { crowd: Some(KnownCrowd { size, returns: us(returns) }), ..self }
        }

        /// The runner has a batch of one row that is due in so many µs.
        fn busy_for(mut self, due_us: u64) -> State {
            let (since, expected) = (NOW + us(due_us) - us(11_000), Some(us(11_000)));
            self.running.push(Running { ticket: 0, lane: 0, since, entries: 1, rows: 1, waited: us(0), expected });
            self
        }

        fn view(&self) -> View<'_> {
            View {
                lane: 0,
                queue: &self.queue,
                running: &self.running,
                runners: 1,
                max_batch: 8,
                sizes: &self.sizes,
                fit: self.fit,
                patience: self.patience,
                crowd: self.crowd,
                free_since: self.free_since,
                rehearses: false,
                draining: self.draining,
                standing: Standing::ALONE,
            }
        }

        fn decide(&self) -> Decision {
            bare(Cork.decide(NOW, self.view()))
        }
    }

    fn release(entries: usize, reason: ReleaseReason) -> Decision {
        Decision::Release { entries, reason }
    }

    fn shed(entries: std::ops::Range<usize>, reason: ShedReason) -> Decision {
        Decision::Shed { entries, reason, forecast: NOW, retry_at: NOW }
    }

    /// A decision but for what those are told whom it refuses.
    fn bare(decision: Decision) -> Decision {
        if let Decision::Shed { entries, reason, .. } = decision { shed(entries, reason) } else { decision }
    }

    #[test]
    fn until_it_is_known_how_the_time_grows_a_batch_is_at_most_six_times_as_large_as_those_before() {
        let mut times = BatchTimes::new();
        let mut decide = |queue: &[(u64, usize)], rows| {
            times.observe(NOW, rows, us(10_000 + 1000 * rows as u64));
            let state = State { fit: times.fit(), ..state(queue) };
            Cork.decide(NOW, View { max_batch: 64, ..state.view() })
        };
        let ten = [(90_000, 1); 10];
        assert_eq!(decide(&ten, 1), release(6, ReleaseReason::Full));
        assert_eq!(decide(&[(90_000, 10), (90_000, 1)], 1), release(1, ReleaseReason::Full), "none is ever split");
        assert_eq!(decide(&ten, 6), release(10, ReleaseReason::Ripe));
        let unknown = State { fit: Fit::UNKNOWN, ..state(&ten) };
        assert_eq!(Cork.decide(NOW, View { max_batch: 64, ..unknown.view() }), release(10, ReleaseReason::Ripe));
    }

    #[test]
    fn what_has_expired_is_refused_as_such_even_on_a_guess() {
        let expired = state(&[(0, 1), (0, 1), (50_000, 1)]);
        assert_eq!(expired.decide(), shed(0..2, ShedReason::Expired));
        assert_eq!(State { fit: Fit::UNKNOWN, ..expired }.decide(), shed(0..2, ShedReason::Expired));
    }

    #[test]
    fn a_hold_lasts_as_long_as_patience_has_it_and_is_shared_by_those_who_wait() {
        // c·α/n after the arrival 8 ms ago: 10 ms for one row, 5 ms for two.
        assert_eq!(state(&[(90_000, 1)]).patience(1.0).decide(), Decision::WaitUntil(NOW + us(2000)));
        assert_eq!(state(&[(90_000, 2)]).patience(1.0).decide(), release(1, ReleaseReason::Ripe));
        assert_eq!(state(&[(90_000, 2)]).patience(2.0).decide(), Decision::WaitUntil(NOW + us(2000)));
        assert_eq!(state(&[(90_000, 1)]).decide(), release(1, ReleaseReason::Ripe), "without patience");
    }

    #[test]
    fn nothing_is_held_before_it_is_known_what_another_row_saves() {
        let mut times = BatchTimes::new();
        (0..9).for_each(|_| times.observe(NOW, 1, us(11_000)));
        let one_size = State { fit: times.fit(), ..state(&[(90_000, 1)]).patience(1.5).crowd(4, 5000) };
        assert_eq!(one_size.decide(), release(1, ReleaseReason::Ripe));
    }

    #[test]
    fn a_crowd_is_waited_for_until_all_are_back_or_it_would_cost_more_than_a_batch() {
        let three = [(90_000, 1), (90_000, 1), (90_000, 1)];
        // Back within 3 ms on average: twice that after the runner came free, 1 ms ago.
        assert_eq!(state(&three).crowd(4, 3000).decide(), Decision::WaitUntil(NOW + us(5000)));
        assert_eq!(state(&three).crowd(4, 9000).decide(), Decision::WaitUntil(NOW + us(9000)), "no longer than α");
        assert_eq!(state(&three).crowd(4, 10_000).decide(), release(3, ReleaseReason::Ripe), "not worth it");
        assert_eq!(state(&three).crowd(3, 3000).decide(), release(3, ReleaseReason::Ripe), "all are here");
    }

    #[test]
    fn a_crowd_is_not_waited_for_while_part_of_it_is_with_another_runner() {
        let waits = state(&[(90_000, 1)]).crowd(4, 3000);
        assert_eq!(waits.decide(), Decision::WaitUntil(NOW + us(5000)));
        let split = waits.busy_for(5000);
        let two_runners = View { runners: 2, ..split.view() };
        assert_eq!(Cork.decide(NOW, two_runners), release(1, ReleaseReason::Ripe));
    }

    #[test]
    fn a_crowd_that_is_all_here_is_released_without_patience() {
        let held = state(&[(90_000, 1)]).patience(1.0);
        assert_eq!(held.crowd(2, 20_000).decide(), Decision::WaitUntil(NOW + us(2000)), "too slow to be waited for");
        let two = state(&[(90_000, 1), (90_000, 1)]).patience(9.0).crowd(2, 3000);
        assert_eq!(two.decide(), release(2, ReleaseReason::Ripe));
    }

    #[test]
    fn a_hold_ends_where_the_batch_with_one_more_row_would_be_late() {
        // t(2) = 12 ms.
        let soon = state(&[(13_000, 1)]).patience(1.0);
        assert_eq!(soon.decide(), Decision::WaitUntil(NOW + us(1000)));
        assert_eq!(state(&[(12_000, 1)]).patience(1.0).decide(), release(1, ReleaseReason::Deadline));
        assert_eq!(state(&[(13_000, 1)]).crowd(4, 5000).decide(), Decision::WaitUntil(NOW + us(1000)));
    }

    #[test]
    fn nothing_is_held_that_nothing_can_join() {
        assert_eq!(state(&[(90_000, 8)]).patience(9.0).decide(), release(1, ReleaseReason::Full));
        // The second does not fit: whoever comes next does not ride with the first.
        assert_eq!(state(&[(90_000, 4), (90_000, 5)]).patience(9.0).decide(), release(1, ReleaseReason::Full));
        let draining = State { draining: true, ..state(&[(90_000, 1)]).patience(1.0) };
        assert_eq!(draining.decide(), release(1, ReleaseReason::Draining));
    }

    #[test]
    fn waiting_for_a_runner_that_is_due_now_ends_in_the_future() {
        let at_the_last_moment = state(&[(11_000, 1)]).busy_for(0);
        assert_eq!(at_the_last_moment.decide(), Decision::WaitUntil(NOW + Duration::from_nanos(1)));
    }

    #[test]
    fn a_smaller_batch_goes_first_where_nobody_loses_by_it() {
        assert_eq!(state(&[(11_000, 1), (90_000, 5)]).decide(), release(1, ReleaseReason::Deadline));
        // The runner comes free in 2 ms.
        let busy = state(&[(13_000, 1), (90_000, 5)]).busy_for(2000);
        assert_eq!(busy.decide(), Decision::WaitUntil(NOW + us(2000) + Duration::from_nanos(1)));
        // Behind the smaller batch, the other would end after 11 + 15 ms.
        assert_eq!(state(&[(11_000, 1), (25_000, 5)]).decide(), shed(0..1, ShedReason::BatchTooLate));
    }

    #[test]
    fn a_batch_must_be_in_time_even_if_it_takes_as_long_as_batches_sometimes_do() {
        let noisy = State { fit: Fit::line(0.010, 0.001, 1.5), ..state(&[(16_000, 1)]) };
        assert_eq!(noisy.decide(), shed(0..1, ShedReason::BatchTooLate));
        assert_eq!(state(&[(16_000, 1)]).decide(), release(1, ReleaseReason::Ripe));
    }

    #[test]
    fn an_entry_behind_a_full_batch_is_judged_by_its_own() {
        // The full batch ahead ends in 18 ms, and t(1) = 11 ms.
        let opens = |due| state(&[(20_000, 8), (due, 1)]).decide();
        assert_eq!(opens(28_000), shed(1..2, ShedReason::QueueTooLong));
        assert_eq!(opens(29_000), release(1, ReleaseReason::Full));
        // Five rows behind five do not fit into a batch of eight: two batches are ahead.
        assert_eq!(state(&[(45_000, 8), (45_000, 5), (45_000, 5)]).decide(), shed(2..3, ShedReason::QueueTooLong));
    }

    #[test]
    fn where_padding_takes_too_long_a_batch_of_the_size_below_goes_first() {
        let padded = |queue: &[(u64, usize)]| {
            let sizes = BatchSizes::rising(vec![1, 4, 8]).expect("they rise");
            State { sizes, fit: Fit::line(0.001, 0.010, 1.0), ..state(queue) }.decide()
        };
        // t(1) = 11, t(4) = 41, t(8) = 81 ms.
        assert_eq!(padded(&[(900_000, 1); 5]), release(4, ReleaseReason::Full), "4 in 41 ms is faster than 5 in 81");
        assert_eq!(padded(&[(900_000, 1); 8]), release(8, ReleaseReason::Full));
        assert_eq!(padded(&[(80_000, 1); 7]), release(4, ReleaseReason::Full), "all would be late in a batch of 8");
        // Only two of four are in time at 41 ms, which is less for each ms than one at 11 ms.
        let hurried = [(40_000, 1), (40_000, 1), (50_000, 1), (50_000, 1)];
        assert_eq!(padded(&hurried), release(1, ReleaseReason::Full));
        // More wait than fit: the full batch is the fastest, and those go who would be late in it.
        let queue: Vec<_> = [(80_000, 1); 9].into_iter().chain([(900_000, 1)]).collect();
        assert_eq!(padded(&queue), shed(0..1, ShedReason::BatchTooLate));
    }

    #[test]
    fn a_hold_is_worth_the_batch_that_an_arrival_saves_by_taking_the_place_of_padding() {
        let sizes = BatchSizes::rising(vec![1, 4, 8]).expect("they rise");
        let held = |rows| State { sizes: sizes.clone(), ..state(&[(90_000, rows)]).patience(4.0) }.decide();
        // c·(α + β)/2 after the arrival 8 ms ago; a fifth row would make four rows of padding: c·(α − 2β)/4 is no more.
        assert_eq!(held(2), Decision::WaitUntil(NOW + us(9_000)));
        assert_eq!(held(4), release(1, ReleaseReason::Ripe));
    }

    /// That state with entries of one row that are due in so many µs, each of this priority.
    fn state_of_levels(due_us_levels: &[(u64, u64)]) -> State {
        let mut queue = Queue::new();
        for (id, &(due, level)) in (0..).zip(due_us_levels) {
            let priority = Priority::new(level).expect("a level");
            queue.insert(Entry { id, arrival: NOW - us(8000), deadline: NOW + us(due), rows: 1, priority });
        }
        State { queue, ..state(&[]) }
    }

    #[test]
    fn the_urgent_go_first_and_those_who_do_not_fit_beside_them_wait() {
        // t(8) = 18 ms.
        let queue: Vec<_> = [(90_000, 5); 6].into_iter().chain([(90_000, 1); 6]).collect();
        let state = state_of_levels(&queue);
        assert_eq!(state.queue.iter().map(|e| e.id).collect::<Vec<_>>(), [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]);
        assert_eq!(state.decide(), release(8, ReleaseReason::Full));
    }

    #[test]
    fn the_less_urgent_stand_back_as_far_as_they_would_make_the_urgent_late() {
        // t(1) = 11, t(3) = 13, t(5) = 15 ms.
        let of = |due| state_of_levels(&[(due, 1), (90_000, 5), (90_000, 5), (90_000, 5), (90_000, 5)]).decide();
        assert_eq!(of(13_999), release(3, ReleaseReason::Full));
        assert_eq!(of(11_000), release(1, ReleaseReason::Full));
        assert_eq!(of(10_999), shed(0..1, ShedReason::BatchTooLate));
        // One of the own level is not to be shrunk for.
        let equals = state_of_levels(&[(11_000, 1), (12_000, 1), (90_000, 5)]);
        assert_eq!(equals.decide(), shed(0..1, ShedReason::BatchTooLate));
    }

    #[test]
    fn a_less_urgent_one_that_the_next_batch_makes_late_does_not_hold_it_up() {
        let queue = state_of_levels(&[(90_000, 1), (90_000, 1), (12_000, 5), (90_000, 5)]);
        assert_eq!(queue.decide(), shed(2..3, ShedReason::BatchTooLate));
    }

    #[test]
    fn what_the_urgent_leave_no_time_for_is_refused_before_its_deadline() {
        // The full batch of the urgent ends after 18 ms, the next one's first row after 29.
        let full = |due| state_of_levels(&[&[(90_000, 1); 8][..], &[(due, 5), (90_000, 5)]].concat()).decide();
        assert_eq!(full(28_999), shed(8..9, ShedReason::QueueTooLong));
        assert_eq!(full(29_000), release(8, ReleaseReason::Full));
    }

    #[test]
    fn nobody_is_forgotten_behind_the_urgent() {
        let expired = state_of_levels(&[(90_000, 1), (0, 5), (90_000, 5)]);
        assert_eq!(expired.decide(), shed(1..2, ShedReason::Expired));
        // A hung runner: the timer rings when the first of all deadlines passes.
        let hung = State { fit: Fit::UNKNOWN, ..state_of_levels(&[(90_000, 1), (7_000, 5)]).busy_for(0) };
        assert_eq!(hung.decide(), Decision::WaitUntil(NOW + us(7_000)));
    }

    #[test]
    fn those_who_are_late_at_the_front_leave_before_anyone_at_the_end_is_judged() {
        // t(8) = 18 ms: without the late one, the last rides in the next batch.
        let queue: Vec<_> = [(17_000, 1)].into_iter().chain([(20_000, 1); 8]).collect();
        assert_eq!(state(&queue).decide(), shed(0..1, ShedReason::BatchTooLate));
    }

    #[test]
    fn a_smaller_batch_never_makes_the_last_of_the_queue_late() {
        // Without the first, two batches end after 18 and 35 ms; behind it, after 29 and 46 ms.
        let queue: Vec<_> = [(11_000, 1)].into_iter().chain([(40_000, 1); 15]).collect();
        assert_eq!(state(&queue).decide(), shed(0..1, ShedReason::BatchTooLate));
        let patient: Vec<_> = [(11_000, 1)].into_iter().chain([(50_000, 1); 15]).collect();
        assert_eq!(state(&patient).decide(), release(1, ReleaseReason::Deadline));
    }

    #[test]
    fn what_does_not_fit_into_the_next_batch_is_judged_by_the_one_after_it() {
        // Five rows and five do not share a batch of eight: the second ends after 15 + 15 ms.
        assert_eq!(state(&[(29_000, 5), (29_000, 5)]).decide(), shed(1..2, ShedReason::QueueTooLong));
        assert_eq!(state(&[(37_000, 5), (37_000, 5)]).decide(), release(1, ReleaseReason::Full));
    }

    #[test]
    fn an_idle_second_is_enough_to_put_a_hopeless_estimate_to_the_test() {
        let hopeless = State { fit: Fit::line(0.5, 0.0, 1.0), ..state(&[(50_000, 1), (50_000, 1)]) };
        assert_eq!(hopeless.decide(), shed(0..1, ShedReason::BatchTooLate));
        assert_eq!(State { free_since: Instant::EPOCH, ..hopeless }.decide(), release(1, ReleaseReason::Probe));
    }

    #[test]
    fn all_holds_for_one_batch_together_last_no_longer_than_a_batch_of_no_rows() {
        let renewed = |free_us| {
            let mut held = State { free_since: NOW - us(free_us), ..state(&[(90_000, 1)]).patience(2.5) };
            held.queue.insert(Entry {
                id: 9,
                arrival: NOW,
                deadline: NOW + us(90_000),
                rows: 1,
                priority: Priority::DEFAULT,
            });
            held.decide()
        };
        // The newest, come now, would renew the hold for 12.5 ms. The first came 8 ms ago.
        assert_eq!(renewed(1000), Decision::WaitUntil(NOW + us(9000)), "the runner came free 1 ms ago");
        assert_eq!(renewed(100_000), Decision::WaitUntil(NOW + us(2000)), "it was free before");
    }

    #[test]
    fn what_is_left_of_the_running_batch_counts_and_who_will_be_late_is_told_at_once() {
        assert_eq!(state(&[(15_999, 1)]).busy_for(5000).decide(), shed(0..1, ShedReason::BatchTooLate));
        let in_time = state(&[(16_000, 1)]).busy_for(5000).decide();
        assert_eq!(in_time, Decision::WaitUntil(NOW + us(5000) + Duration::from_nanos(1)));
    }

    #[test]
    fn a_smaller_batch_leaves_the_time_of_a_batch_to_spare_for_those_who_will_come() {
        // Behind the smaller batch, the other ends after 11 + 15 ms; α is 10 ms.
        assert_eq!(state(&[(11_000, 1), (35_999, 5)]).decide(), shed(0..1, ShedReason::BatchTooLate));
        assert_eq!(state(&[(11_000, 1), (36_000, 5)]).decide(), release(1, ReleaseReason::Deadline));
    }

    #[test]
    fn who_is_in_a_hurry_for_having_waited_does_not_shrink_the_batch() {
        let mut waited = state(&[]);
        for (id, age, rows) in [(0, 80_000, 1), (1, 0, 5)] {
            let arrival = NOW - us(age);
            waited.queue.insert(Entry {
                id,
                arrival,
                deadline: arrival + us(91_000),
                rows,
                priority: Priority::DEFAULT,
            });
        }
        assert_eq!(waited.decide(), shed(0..1, ShedReason::BatchTooLate));
    }

    #[test]
    fn a_hopeless_estimate_is_put_to_the_test_after_four_batch_times_and_while_none_of_its_batches_runs() {
        let idle = |us_idle| State {
            fit: Fit::line(0.1, 0.0, 1.0),
            free_since: NOW - us(us_idle),
            ..state(&[(50_000, 1), (50_000, 1)])
        };
        assert_eq!(idle(399_999).decide(), shed(0..1, ShedReason::BatchTooLate));
        assert_eq!(idle(400_000).decide(), release(1, ReleaseReason::Probe));
        assert_eq!(idle(400_000).busy_for(60_000).decide(), shed(0..1, ShedReason::BatchTooLate));
        let mut beside = idle(400_000).busy_for(60_000);
        let on_two = |state: &State| bare(Cork.decide(NOW, View { runners: 2, ..state.view() }));
        assert_eq!(on_two(&beside), shed(0..1, ShedReason::BatchTooLate), "one test at a time");
        beside.running[0].lane = 1;
        assert_eq!(on_two(&beside), release(1, ReleaseReason::Probe), "it is another lane's batch that runs");
    }

    #[test]
    fn a_burst_after_quiet_is_no_sign_of_a_stale_estimate() {
        // t(8) = 18 ms, t(1) = 11 ms.
        let burst = State { free_since: Instant::EPOCH, ..state(&[(17_000, 1); 8]) };
        assert_eq!(burst.decide(), shed(0..1, ShedReason::BatchTooLate));
    }
}
