//! One model's queue in a pool, with its policy, its cap and what has been learned about it.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::patience::Service;
use super::{BatchSizes, Decision, Entry, Patience, Policy, Queue};
use crate::estimator::{BatchTimes, Crowd, Fit, Instant};

/// A queue that [opens](super::Dispatcher::open) in a pool.
pub struct Lane {
    pub(super) weight: NonZeroUsize,
    pub(super) policy: Box<dyn Policy>,
    pub(super) max_batch: usize,
    pub(super) sizes: BatchSizes,
    pub(super) queue: Queue,
    pub(super) times: BatchTimes,
    pub(super) patience: Patience,
    pub(super) crowd: Crowd,
    pub(super) draining: bool,
    /// When a batch of it last came back. By the pool's last landing, a lane whose estimate is stale beyond hope would
    /// never look idle beside a busy one, and never be put to the test again.
    pub(super) free_since: Instant,
    /// Since when something is held back here while a runner is free.
    pub(super) held_since: Option<Instant>,
    /// What the policy said last and when, while nothing has happened that could change its mind.
    pub(super) said: Option<(Instant, Decision)>,
}

/// Which lane of a pool: they are numbered from 0 in the order in which they are opened, and no number is given twice.
pub type LaneId = usize;

impl Lane {
    /// An empty queue under this policy, whose batches have at most `max_batch` rows (0 is taken as 1), of weight 1.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, max_batch: usize) -> Lane {
        Lane {
            weight: NonZeroUsize::MIN,
            policy,
            max_batch: max_batch.max(1),
            sizes: BatchSizes::default(),
            queue: Queue::new(),
            times: BatchTimes::new(),
            patience: Patience::new(),
            crowd: Crowd::new(),
            draining: false,
            free_since: Instant::EPOCH,
            held_since: None,
            said: None,
        }
    }

    /// The lane's part of the runner time when more is wanted than there is, in proportion to the others'.
    #[must_use]
    pub fn weighing(self, weight: NonZeroUsize) -> Lane {
        Lane { weight, ..self }
    }

    /// Batches of this lane run at these sizes only, each padded to the next one.
    #[must_use]
    pub fn padding_to(self, sizes: BatchSizes) -> Lane {
        Lane { sizes, ..self }
    }

    /// Takes in a batch that was timed before the queue opened.
    pub fn seen(&mut self, now: Instant, rows: usize, time: Duration) {
        self.times.observe(now, self.sizes.padded(rows), time);
    }

    /// What has been learned of the batch time.
    #[must_use]
    pub fn fit(&self) -> Fit {
        self.times.fit()
    }

    /// The mean time that a batch of `rows` is expected to take, once it is padded; `None` before the first.
    pub(super) fn predict(&self, rows: usize) -> Option<Duration> {
        self.times.fit().predict(self.sizes.padded(rows))
    }

    /// The mean time of a batch of `rows`, or of as many as fit into one; `None` while that is a guess.
    pub(super) fn mean_time(&self, rows: usize) -> Option<Duration> {
        self.fit().is_trusted().then(|| self.predict(rows.min(self.max_batch))).flatten()
    }

    /// The mean time of a full batch; zero while that is a guess.
    pub(super) fn full_batch(&self) -> Duration {
        self.mean_time(self.max_batch).unwrap_or_default()
    }

    /// An entry has arrived, while so many others of the lane are with a runner.
    pub(super) fn arrive(&mut self, entry: Entry, flying: usize, runners: usize) {
        // All go by its own stamp: the moment of hearing would make a crowd look simultaneous. Stamps may be out of order
        // by the time it takes to read requests.
        let service = Service { fit: self.times.fit(), sizes: &self.sizes, runners, max_batch: self.max_batch };
        self.patience.observe(&entry, service);
        self.queue.insert(entry);
        self.crowd.arrived(entry.arrival, self.queue.len() + flying);
    }

    /// What the policy said, as long as that is still what it would say.
    pub(super) fn still_says(&self, now: Instant) -> Option<Decision> {
        let (asked, decision) = self.said.as_ref()?;
        let holds = match decision {
            Decision::WaitUntil(at) => *at > now,
            Decision::Park => true,
            Decision::Release { .. } | Decision::Shed { .. } => *asked == now,
        };
        holds.then(|| decision.clone())
    }

    /// Notes since when something waits here for something else than a runner.
    pub(super) fn note_hold(&mut self, now: Instant, has_free_runner: bool) {
        let is_held = has_free_runner && !self.queue.is_empty();
        self.held_since = if is_held { self.held_since.or(Some(now)) } else { None };
    }
}
