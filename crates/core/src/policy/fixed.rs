//! The baselines that everyone knows: a batch size, a wait and a queue timeout, set by hand.

use std::time::Duration;

use super::{Decision, Entry, Policy, ReleaseReason, ShedReason, View};
use crate::estimator::Instant;

/// Releases a batch when it has `size` rows or when its first entry has waited for `wait`, whichever is sooner. With no
/// wait it is eager. What has waited for `timeout`, or until its deadline, is dropped; nothing else is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    /// Longest time that the first entry of a batch waits for others while a runner is free.
    pub wait: Duration,
    /// Rows at which a batch is released without waiting any longer.
    pub size: usize,
    /// Longest time that an entry waits at all. Without it (`Duration::MAX`) what is served under overload is what has
    /// waited until just before its deadline, and nearly every answer is late. It leaves the time of a batch at its best.
    pub timeout: Duration,
}

impl Fixed {
    /// Releases whatever waits as soon as a runner is free.
    pub const EAGER: Fixed = Fixed { wait: Duration::ZERO, size: usize::MAX, timeout: Duration::MAX };

    /// A wait and a size; what waits is dropped at its deadline.
    #[must_use]
    pub const fn new(wait: Duration, size: usize) -> Fixed {
        Fixed { wait, size, timeout: Duration::MAX }
    }
}

impl Policy for Fixed {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let queue = view.queue;
        let Some(first) = queue.first() else { return Decision::Park };
        let expiry = |entry: &Entry| entry.deadline.min(entry.arrival + self.timeout);
        let mut next_expiry = Instant::FAR_FUTURE;
        for level in queue.levels() {
            let waits = |position: &usize| queue.get(*position).map_or(Instant::FAR_FUTURE, expiry);
            next_expiry = next_expiry.min(waits(&level.start));
            let expired = level.clone().take_while(|position| waits(position) <= now).count();
            if expired > 0 {
                let (entries, reason) = (level.start..level.start + expired, ShedReason::Expired);
                return Decision::Shed { entries, reason, forecast: now, retry_at: view.start_after(now, 0) };
            }
        }
        if !view.has_free_runner() {
            return Decision::WaitUntil(next_expiry);
        }
        let size = self.size.clamp(1, view.max_batch);
        let (entries, rows) = view.queue.prefix(size);
        let ripe = first.arrival + self.wait;
        if rows >= size || entries < view.queue.len() {
            // An entry of more rows than `size` goes alone; the cap has room for any.
            Decision::Release { entries: entries.max(1), reason: ReleaseReason::Full }
        } else if ripe <= now || view.draining {
            Decision::Release { entries, reason: ReleaseReason::Ripe }
        } else {
            Decision::WaitUntil(ripe.min(next_expiry))
        }
    }
}
