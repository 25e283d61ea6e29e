//! What to do next: release a batch, wait, refuse, or leave things as they are. Pure: values in, a value out.
//!
//! [`Policy::decide`] is the one place where a release is decided; [`Cork`] is the policy that the server runs. The
//! batcher asks at every event and obeys. Equal inputs give equal decisions, whoever asks: server, simulator or test.

mod aimd;
mod arbiter;
mod backlog;
mod caller;
mod cork;
mod cork_2020;
mod dispatcher;
mod fixed;
mod lane;
mod neighbours;
mod patience;
mod priority;
mod queue;
mod rehearsal;
mod rounds;
mod sizes;
mod spread;
mod view;

use std::ops::Range;
use std::time::Duration;

pub use aimd::Aimd;
pub use caller::Caller;
pub use cork::Cork;
pub use cork_2020::Cork2020;
pub use dispatcher::{Batch, Dispatcher, GivenUp, Landing, Rehearsal, Shed, Step};
pub use fixed::Fixed;
pub use lane::{Lane, LaneId};
pub use patience::Patience;
pub use priority::Priority;
pub use queue::{Entry, Queue};
pub use sizes::BatchSizes;
pub use spread::Spread;
pub use view::{Reach, Running, Standing, View};

use crate::estimator::Instant;
use arbiter::{Arbiter, Claim};

/// A rule for releasing batches.
pub trait Policy: Send + Sync {
    /// What to do at `now`. To be asked again after it has been obeyed, until it answers `WaitUntil` or `Park`, and
    /// then at the next event.
    ///
    /// Laws, which hold for every policy and every estimate:
    /// - `Release` names a non-empty prefix of the queue of at most `max_batch` rows, and only while a runner is free;
    /// - `WaitUntil` is strictly later than `now`;
    /// - `Shed` names at least one entry;
    /// - `Park` is for an empty queue.
    ///
    /// [`Cork`] keeps some more, which the baselines do not:
    /// - it refuses only entries that are predicted to be late;
    /// - with a free runner, `WaitUntil` is never later than the latest start of any entry of the next batch;
    /// - nothing waits beyond its deadline: what has expired is refused, and `WaitUntil` is never later than any deadline.
    fn decide(&self, now: Instant, view: View<'_>) -> Decision;

    /// Hears of a batch that came back at `now` with answers. Only for rules that remember something of their own, as
    /// AIMD does its limit; what all can use is in the [`View`].
    fn landed(&mut self, _now: Instant, _batch: &Running) {}
}

/// What of a latency cap is kept free in any case, for handing answers back and writing them out: a fiftieth, and at most a millisecond.
#[must_use]
pub fn kept_for_answering(cap: Duration) -> Duration {
    (cap / 50).min(Duration::from_millis(1))
}

/// What to do next. A new decision is a breaking change, on purpose, as a new [`Step`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Send the first `entries` of the queue to a free runner as one batch.
    Release {
        /// How many entries, from the front.
        entries: usize,
        /// Why now.
        reason: ReleaseReason,
    },
    /// Do nothing before this instant unless something happens.
    WaitUntil(Instant),
    /// Refuse these entries.
    Shed {
        /// Positions in the queue.
        entries: Range<usize>,
        /// Why.
        reason: ShedReason,
        /// When they would be answered otherwise, by what they are refused on.
        forecast: Instant,
        /// When what stands before them will be under way.
        retry_at: Instant,
    },
    /// Run a batch of so many rows that are nobody's. The [`Dispatcher`] decides that, for lanes that [rehearse](Lane::rehearsing);
    /// from a policy it means `Park`.
    Rehearse {
        /// How many rows.
        rows: usize,
    },
    /// Do nothing until something happens.
    Park,
}

/// Why a batch was released at that moment and no later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseReason {
    /// No further entry fits.
    Full,
    /// Waiting for the next arrival would cost more than it saves.
    Ripe,
    /// Waiting longer would make the first entry late.
    Deadline,
    /// The server drains: nobody else will come.
    Draining,
    /// It will be late by the estimate, but the runners have been idle for so long that the estimate may be stale.
    Probe,
}

impl ReleaseReason {
    /// Every reason.
    pub const ALL: [ReleaseReason; 5] = [
        ReleaseReason::Full,
        ReleaseReason::Ripe,
        ReleaseReason::Deadline,
        ReleaseReason::Draining,
        ReleaseReason::Probe,
    ];

    /// The label's value in `uncork_releases_total{reason}`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            ReleaseReason::Full => "full",
            ReleaseReason::Ripe => "ripe",
            ReleaseReason::Deadline => "deadline",
            ReleaseReason::Draining => "draining",
            ReleaseReason::Probe => "probe",
        }
    }

    /// What it means, as a sentence.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            ReleaseReason::Full => "no further request fitted",
            ReleaseReason::Ripe => "waiting for the next request would have cost more than it saved",
            ReleaseReason::Deadline => "waiting longer would have made the first request late",
            ReleaseReason::Draining => "the server shuts down: nobody else will come",
            ReleaseReason::Probe => "predicted late, but the estimate had grown old: tried to renew it",
        }
    }
}

/// Why an entry was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShedReason {
    /// Its deadline has passed.
    Expired,
    /// It is in the next batch, and even that would answer it late.
    BatchTooLate,
    /// It stands last of its priority, or behind others', and the batches before its own take too long.
    QueueTooLong,
    /// For some time more was asked than can be done, and a shorter queue answers as many.
    QueueStands,
    /// Another caller, who takes less, would have been late: the one who takes most makes room.
    OverShare,
}

impl ShedReason {
    /// Every reason.
    pub const ALL: [ShedReason; 5] = [
        ShedReason::Expired,
        ShedReason::BatchTooLate,
        ShedReason::QueueTooLong,
        ShedReason::QueueStands,
        ShedReason::OverShare,
    ];

    /// A name for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            ShedReason::Expired => "expired",
            ShedReason::BatchTooLate => "batch_too_late",
            ShedReason::QueueTooLong => "queue_too_long",
            ShedReason::QueueStands => "queue_stands",
            ShedReason::OverShare => "over_share",
        }
    }

    /// What it means, as a sentence.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            ShedReason::Expired => "its deadline passed while it waited",
            ShedReason::BatchTooLate => "even the next batch would have answered it late",
            ShedReason::QueueTooLong => "the batches before its own would have made it late",
            ShedReason::QueueStands => {
                "more was asked for some time than can be done, and a longer queue would answer no more"
            }
            ShedReason::OverShare => "it made room for another caller, who takes less",
        }
    }
}
