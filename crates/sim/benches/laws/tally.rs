//! What took place in worlds: counts that say how much was tried.

use std::time::Duration;

/// What took place, in one world or many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) worlds: u64,
    pub(crate) requests: u64,
    pub(crate) steps: u64,
    pub(crate) batches: u64,
    pub(crate) rows: u64,
    pub(crate) busy: Duration,
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) failed: u64,
    pub(crate) left: u64,
    pub(crate) renewed: u64,
    pub(crate) rehearsed: u64,
    pub(crate) given_up: u64,
    /// Worlds that were lived through twice, and those that the simulator ran too.
    pub(crate) repeated: u64,
    pub(crate) simulated: u64,
    /// In the order of [`ReleaseReason::ALL`](uncork_core::policy::ReleaseReason::ALL).
    pub(crate) released: [u64; 5],
    /// In the order of [`ShedReason::ALL`](uncork_core::policy::ShedReason::ALL).
    pub(crate) refused: [u64; 5],
    /// A hash of all steps.
    pub(crate) course: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.worlds += other.worlds;
        self.requests += other.requests;
        self.steps += other.steps;
        self.batches += other.batches;
        self.rows += other.rows;
        self.busy += other.busy;
        self.on_time += other.on_time;
        self.late += other.late;
        self.failed += other.failed;
        self.left += other.left;
        self.renewed += other.renewed;
        self.rehearsed += other.rehearsed;
        self.given_up += other.given_up;
        self.repeated += other.repeated;
        self.simulated += other.simulated;
        self.released.iter_mut().zip(other.released).for_each(|(sum, n)| *sum += n);
        self.refused.iter_mut().zip(other.refused).for_each(|(sum, n)| *sum += n);
        self.course ^= other.course;
    }
}
