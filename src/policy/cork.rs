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
            return match lossless_smaller_batch(start, &view) {
                Some(entries) if view.has_free_runner() => {
                    Decision::Release { entries, reason: ReleaseReason::Deadline }
                }
                // Wait for the runner: what arrives meanwhile does not lengthen the smaller batch.
                Some(_) => Decision::WaitUntil(after(now, latest_start(&view, 1))),
                None if estimate_may_be_stale(now, &view) => {
                    Decision::Release { entries: 1, reason: ReleaseReason::Probe }
                }
                None => Decision::Shed { entries: 0..1, reason: ShedReason::BatchTooLate },
            };
        }
        if !view.has_free_runner() {
            // The next arrival or completion asks again; only a runner that does not come back needs the timer.
            return Decision::WaitUntil(after(now, latest_start(&view, rows)));
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
    if before < view.max_batch {
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
fn lossless_smaller_batch(start: Instant, view: &View<'_>) -> Option<usize> {
    let first = view.queue.first()?;
    let (whole, whole_rows) = view.queue.prefix(view.max_batch);
    let (mut entries, mut rows) = (0, 0);
    for entry in view.queue.iter().take(whole) {
        if start + view.batch_time(rows + entry.rows) > first.deadline {
            break;
        }
        (entries, rows) = (entries + 1, rows + entry.rows);
    }
    let next = view.queue.get(entries)?;
    let second_start = start + view.fit.predict(rows).unwrap_or_default();
    let rest = (view.queue.rows() - rows).max(whole_rows - rows);
    (entries > 0 && second_start + view.batch_time(rest) <= next.deadline).then_some(entries)
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

/// `at`, or the next instant if that is not in the future.
fn after(now: Instant, at: Instant) -> Instant {
    (at + Duration::from_nanos(1)).max(now + Duration::from_nanos(1))
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
