//! The baselines that everyone knows: a batch size and a wait, set by hand.

use std::time::Duration;

use super::{Decision, Policy, ReleaseReason, ShedReason, View};
use crate::estimator::Instant;

/// Releases a batch when it has `size` rows or when its first entry has waited for `wait`, whichever is sooner. What has
/// waited until its deadline is dropped; nothing else is refused. With no wait it is eager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    /// Longest time that the first entry of a batch waits for others while a runner is free.
    pub wait: Duration,
    /// Rows at which a batch is released without waiting any longer.
    pub size: usize,
}

impl Fixed {
    /// Releases whatever waits as soon as a runner is free.
    pub const EAGER: Fixed = Fixed { wait: Duration::ZERO, size: usize::MAX };
}

impl Policy for Fixed {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let Some(first) = view.queue.first() else { return Decision::Park };
        if first.deadline <= now {
            let expired = view.queue.iter().take_while(|e| e.deadline <= now).count();
            return Decision::Shed { entries: 0..expired, reason: ShedReason::Expired };
        }
        if !view.has_free_runner() {
            return Decision::WaitUntil(first.deadline);
        }
        let size = self.size.clamp(1, view.max_batch);
        let (entries, rows) = view.queue.prefix(size);
        let ripe = first.arrival + self.wait;
        if rows >= size || entries < view.queue.len() {
            Decision::Release { entries: entries.max(1), reason: ReleaseReason::Full }
        } else if ripe <= now || view.draining {
            Decision::Release { entries, reason: ReleaseReason::Ripe }
        } else {
            Decision::WaitUntil(ripe.min(first.deadline))
        }
    }
}
