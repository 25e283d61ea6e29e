//! The policy that the server runs: release when releasing beats waiting, and refuse early what would be late.
//!
//! In order: refuse what has expired; refuse from the end of the queue what the batches before it make late; refuse
//! from its front what even the next batch would answer late; with a free runner, release unless the next arrival is
//! expected soon enough to be worth the wait.

use std::time::Duration;

use super::{Decision, Policy, Queue, ReleaseReason, ShedReason, View};
use crate::estimator::Instant;

/// A hold asks to be woken no sooner than this: below it the timer costs more than the arrival it waits for.
const SHORTEST_HOLD: Duration = Duration::from_micros(20);

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
        let Some(&first) = view.queue.first() else { return Decision::Park };
        if first.deadline <= now {
            let expired = view.queue.iter().take_while(|e| e.deadline <= now).count();
            return Decision::Shed { entries: 0..expired, reason: ShedReason::Expired };
        }
        if last_is_late(now, &view) {
            let last = view.queue.len() - 1;
            return Decision::Shed { entries: last..last + 1, reason: ShedReason::QueueTooLong };
        }
        let start = view.start_after(now, 0);
        let (entries, rows) = view.queue.prefix(view.max_batch);
        if start + view.batch_time(rows) > first.deadline {
            return match lossless_smaller_batch(now, start, &view) {
                Some(entries) if view.has_free_runner() => {
                    Decision::Release { entries, reason: ReleaseReason::Deadline }
                }
                // Wait for the runner: what arrives meanwhile does not lengthen the smaller batch.
                Some(_) => Decision::WaitUntil(after(latest_start(&view, 1))),
                None if estimate_may_be_stale(now, &view) => {
                    Decision::Release { entries: 1, reason: ReleaseReason::Probe }
                }
                None => Decision::Shed { entries: 0..1, reason: ShedReason::BatchTooLate },
            };
        }
        if !view.has_free_runner() {
            // The next arrival or completion asks again; only a runner that does not come back needs the timer.
            return Decision::WaitUntil(after(latest_start(&view, rows)));
        }
        match hold(now, &view, entries, rows) {
            Hold::Until(instant) => Decision::WaitUntil(instant),
            Hold::No(reason) => Decision::Release { entries, reason },
        }
    }
}

/// Whether the least urgent entry will be late by all that is known now, although the batches before its own run full.
///
/// What arrives later may still lengthen its batch. That matters to the entry that opens a batch: let in with room for
/// itself alone, it would later be dropped for the sake of those behind it, after a long wait. So it is let in only with
/// room for the rows that are expected to join.
fn last_is_late(now: Instant, view: &View<'_>) -> bool {
    let Some(last) = view.queue.last() else { return false };
    let before = view.queue.rows() - last.rows;
    if before + last.rows <= view.max_batch {
        return false; // it rides in the next batch, which the rules for the front of the queue judge
    }
    let (mut ahead, mut rows) = (before / view.max_batch, before % view.max_batch + last.rows);
    if rows > view.max_batch {
        (ahead, rows) = (ahead + 1, last.rows);
    }
    let start = view.start_after(now, ahead);
    if rows == last.rows {
        let joining = view.gaps.rows_per_second(now).unwrap_or(0.0) * start.since(now).as_secs_f64();
        rows = rows.saturating_add(joining as usize);
    }
    start + view.batch_time(rows) > last.deadline
}

/// A batch that is small enough to be in time for the first entry, if the rest can follow it without being late.
///
/// This serves a caller with a tight deadline of its own under light load. Where the rest would be late, the first entry
/// is the one to go: a batch shrunk for its sake would cost more answers than it saves.
fn lossless_smaller_batch(now: Instant, start: Instant, view: &View<'_>) -> Option<usize> {
    let first = view.queue.first()?;
    let (mut entries, mut rows) = (0, 0);
    // Ends within the next batch: the whole of that is late.
    for entry in view.queue.iter() {
        if start + view.batch_time(rows + entry.rows) > first.deadline {
            break;
        }
        (entries, rows) = (entries + 1, rows + entry.rows);
    }
    let (next, last) = (view.queue.get(entries)?, view.queue.last()?);
    let own = view.fit.predict(rows).unwrap_or_default();
    let rest = view.queue.rows() - rows;
    let ahead = (rest - 1) / view.max_batch;
    let end = |ahead, rows| view.start_after(now, ahead) + own + view.batch_time(rows);
    let in_time = end(0, rest) <= next.deadline && end(ahead, rest - ahead * view.max_batch) <= last.deadline;
    (entries > 0 && in_time).then_some(entries)
}

/// Whether all runners have been idle for so long that one batch is worth finding out with.
///
/// A stall of the machine can leave an estimate by which nothing is ever in time. Were everything refused on it, no batch
/// would run, nothing would be learned, and the server would refuse for ever.
fn estimate_may_be_stale(now: Instant, view: &View<'_>) -> bool {
    let batch = view.fit.predict(1).unwrap_or_default();
    let wait = batch.saturating_mul(PROBE_AFTER).min(LONGEST_WITHOUT_PROBE);
    view.running.is_empty() && now.since(view.free_since) >= wait
}

/// The last instant at which a batch of `rows` can start and still be in time for the first entry.
fn latest_start(view: &View<'_>, rows: usize) -> Instant {
    let deadline = view.queue.first().map_or(Instant::FAR_FUTURE, |e| e.deadline);
    deadline - view.batch_time(rows)
}

/// The instant after `at`.
fn after(at: Instant) -> Instant {
    at + Duration::from_nanos(1)
}

enum Hold {
    Until(Instant),
    No(ReleaseReason),
}

/// Whether to hold the cork for the next arrival, with a runner free and `entries` of `rows` rows ready.
///
/// A row that comes g later and rides along saves its α of runner time, costs the n that wait g each, and lengthens their
/// batch by β: worth it while g < (α − nβ)/(n + 1). All waits for one batch together stay below α.
fn hold(now: Instant, view: &View<'_>, entries: usize, rows: usize) -> Hold {
    if view.draining {
        return Hold::No(ReleaseReason::Draining);
    }
    if rows >= view.max_batch || entries < view.queue.len() {
        return Hold::No(ReleaseReason::Full);
    }
    let (base, per_row) = (view.fit.base_seconds(), view.fit.per_row_seconds());
    let worth = (base - rows as f64 * per_row) / (rows as f64 + 1.0);
    let gap = view.gaps.expected(now).filter(|gap| view.fit.is_line() && gap.as_secs_f64() < worth);
    let Some(gap) = gap else { return Hold::No(ReleaseReason::Ripe) };
    let held_since = view.free_since.max(oldest_arrival(view.queue));
    let give_up = held_since + Duration::from_secs_f64(base);
    let latest = latest_start(view, rows + 1);
    if latest <= now {
        Hold::No(ReleaseReason::Deadline)
    } else if give_up <= now {
        Hold::No(ReleaseReason::Ripe)
    } else {
        Hold::Until((now + gap.max(SHORTEST_HOLD)).min(give_up).min(latest))
    }
}

fn oldest_arrival(queue: &Queue) -> Instant {
    // The first by deadline is the oldest unless callers shortened theirs; then it is merely one of the older ones.
    queue.first().map_or(Instant::EPOCH, |e| e.arrival)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::{BatchTimes, Fit, Gaps};
    use crate::policy::{Entry, Running, Standing};

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    /// One runner that is free and has been idle for 1 ms, batches of at most 8 rows, t(n) = 10 ms + n · 1 ms.
    struct State {
        queue: Queue,
        running: Vec<Running>,
        fit: Fit,
        gaps: Gaps,
        free_since: Instant,
        draining: bool,
    }

    /// That state with entries that came 8 ms ago, are due in so many µs and have so many rows.
    fn state(due_us_rows: &[(u64, usize)]) -> State {
        let mut queue = Queue::new();
        for (id, &(due, rows)) in (0..).zip(due_us_rows) {
            queue.insert(Entry { id, arrival: NOW - us(8000), deadline: NOW + us(due), rows });
        }
        let fit = Fit::line(0.010, 0.001, 1.0);
        let free_since = NOW - us(1000);
        State { queue, running: Vec::new(), fit, gaps: Gaps::new(), free_since, draining: false }
    }

    impl State {
        /// One row came every `gap_us` until now.
        fn arrivals_every(mut self, gap_us: u64) -> State {
            for i in (0..20).rev() {
                self.gaps.observe(NOW - us(i * gap_us), 1);
            }
            self
        }

        /// The runner has a batch of one row that is due in so many µs.
        fn busy_for(mut self, due_us: u64) -> State {
            let (since, expected) = (NOW + us(due_us) - us(11_000), Some(us(11_000)));
            self.running.push(Running { ticket: 0, lane: 0, since, rows: 1, expected });
            self
        }

        fn decide(&self) -> Decision {
            let view = View {
                queue: &self.queue,
                running: &self.running,
                runners: 1,
                max_batch: 8,
                fit: self.fit,
                gaps: &self.gaps,
                free_since: self.free_since,
                draining: self.draining,
                standing: Standing::ALONE,
            };
            Cork.decide(NOW, view)
        }
    }

    fn release(entries: usize, reason: ReleaseReason) -> Decision {
        Decision::Release { entries, reason }
    }

    fn shed(entries: std::ops::Range<usize>, reason: ShedReason) -> Decision {
        Decision::Shed { entries, reason }
    }

    #[test]
    fn what_has_expired_is_refused_as_such_even_on_a_guess() {
        let expired = state(&[(0, 1), (0, 1), (50_000, 1)]);
        assert_eq!(expired.decide(), shed(0..2, ShedReason::Expired));
        assert_eq!(State { fit: Fit::UNKNOWN, ..expired }.decide(), shed(0..2, ShedReason::Expired));
    }

    #[test]
    fn a_hold_is_for_an_arrival_that_saves_more_than_the_wait_for_it_costs() {
        // Worth the wait of one row: (10 − 1) / 2 = 4.5 ms.
        assert_eq!(state(&[(90_000, 1)]).arrivals_every(1400).decide(), Decision::WaitUntil(NOW + us(1400)));
        let ripe = release(1, ReleaseReason::Ripe);
        assert_eq!(state(&[(90_000, 1)]).decide(), ripe, "nothing is known of arrivals");
        assert_eq!(state(&[(90_000, 1)]).arrivals_every(4600).decide(), ripe, "too far away");
        let mut times = BatchTimes::new();
        (0..9).for_each(|_| times.observe(NOW, 1, us(11_000)));
        let one_size = State { fit: times.fit(), ..state(&[(90_000, 1)]).arrivals_every(1400) };
        assert_eq!(one_size.decide(), ripe, "what a neighbour saves is not known");
    }

    #[test]
    fn all_holds_for_a_batch_together_take_no_longer_than_its_base_time() {
        // The row came 8 ms ago: 2 ms are left, from when it met a free runner.
        let held = State { free_since: Instant::EPOCH, ..state(&[(90_000, 1)]).arrivals_every(4000) };
        assert_eq!(held.decide(), Decision::WaitUntil(NOW + us(2000)));
        assert_eq!(State { free_since: NOW - us(9000), ..held }.decide(), Decision::WaitUntil(NOW + us(2000)));
        let just_free = State { free_since: NOW, ..state(&[(90_000, 1)]).arrivals_every(4000) };
        assert_eq!(just_free.decide(), Decision::WaitUntil(NOW + us(4000)), "it could not start before");
    }

    #[test]
    fn a_hold_ends_where_the_batch_with_one_more_row_would_be_late() {
        // t(2) = 12 ms.
        let soon = state(&[(14_000, 1)]).arrivals_every(4000);
        assert_eq!(soon.decide(), Decision::WaitUntil(NOW + us(2000)));
        assert_eq!(state(&[(12_000, 1)]).arrivals_every(4000).decide(), release(1, ReleaseReason::Deadline));
    }

    #[test]
    fn nothing_is_held_that_nothing_can_join() {
        assert_eq!(state(&[(90_000, 8)]).arrivals_every(100).decide(), release(1, ReleaseReason::Full));
        // The second does not fit: whoever comes next does not ride with the first.
        assert_eq!(state(&[(90_000, 4), (90_000, 5)]).arrivals_every(100).decide(), release(1, ReleaseReason::Full));
        let draining = State { draining: true, ..state(&[(90_000, 1)]).arrivals_every(1400) };
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
    fn an_entry_behind_a_full_batch_is_let_in_with_room_for_those_who_will_join_it() {
        // The full batch ahead ends in 18 ms; four rows come by then, and t(1 + 4) = 15 ms.
        let opens = |due| state(&[(20_000, 8), (due, 1)]).arrivals_every(4000).decide();
        assert_eq!(opens(32_000), shed(1..2, ShedReason::QueueTooLong));
        assert_eq!(opens(34_000), release(1, ReleaseReason::Full));
        // The second of its batch does not open it.
        let second = state(&[(20_000, 8), (32_000, 1), (32_000, 1)]).arrivals_every(4000);
        assert_eq!(second.decide(), release(1, ReleaseReason::Full));
        // Five rows behind five do not fit into a batch of eight: two batches are ahead.
        assert_eq!(state(&[(45_000, 8), (45_000, 5), (45_000, 5)]).decide(), shed(2..3, ShedReason::QueueTooLong));
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
}
