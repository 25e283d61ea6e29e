//! What a dispatcher has done next, and what it is told of that.

use std::time::Duration;

use crate::estimator::Instant;
use crate::policy::{Entry, LaneId, ReleaseReason, ShedReason};

/// A batch that goes to a runner. It counts as running from the moment in which it is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// What to [`land`](super::Dispatcher::land) it with.
    pub ticket: u64,
    /// Whose queue it comes from.
    pub lane: LaneId,
    /// At least one, the most urgent first.
    pub entries: Vec<Entry>,
    /// Their rows.
    pub rows: usize,
    /// Why it is released now.
    pub reason: ReleaseReason,
    /// How long it was held back while a runner was free.
    pub held: Duration,
    /// The mean time that it is expected to take; `None` before the lane's first batch.
    pub predicted: Option<Duration>,
}

/// A batch of rows that are nobody's, which goes to a runner. It counts as running from the moment in which it is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rehearsal {
    /// What to [`land`](super::Dispatcher::land) it with.
    pub ticket: u64,
    /// Whose runner is to make them up.
    pub lane: LaneId,
    /// How many; never beyond the lane's cap, and of an allowed size.
    pub rows: usize,
    /// The mean time that it is expected to take; `None` before the lane's first batch.
    pub predicted: Option<Duration>,
}

/// A batch that has run for so long that nothing is expected of it any more. Its callers are to be told so; should it still
/// [land](super::Dispatcher::land), nobody waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenUp {
    /// Which batch or rehearsal.
    pub ticket: u64,
    /// Whose.
    pub lane: LaneId,
    /// How long it has run.
    pub ran: Duration,
    /// Whether its runner is to be replaced by a new one, which is free from now on. Else too many were left behind already,
    /// and the pool has a runner less until it lands.
    pub is_replaced: bool,
    /// Runners that are left behind now, this one among them.
    pub left_behind: usize,
}

/// Entries that are refused because they would be answered late. They wait no more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shed {
    /// Whose queue they come from.
    pub lane: LaneId,
    /// At least one, in the order of the queue.
    pub entries: Vec<Entry>,
    /// Why.
    pub reason: ShedReason,
    /// When they would have been answered, by what they were refused on.
    pub forecast: Instant,
    /// When it is worth asking again: what stood before them is under way by then. `None` where no time is: each takes longer
    /// than its deadline allows even in a batch of its own.
    pub retry_at: Option<Instant>,
}

/// How a batch came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// With answers.
    Answered {
        /// How long it ran, by whoever ran it. The driver may hear of it later: that does not make the batch slow.
        took: Duration,
        /// How many of its entries got theirs after their deadlines.
        late: usize,
    },
    /// With answers, and parts of it ran again, since rows were refused. How long it ran says nothing of its size, and all of how late others may be.
    Repeated {
        /// How long it ran in all.
        took: Duration,
        /// How many of its entries got theirs after their deadlines.
        late: usize,
    },
    /// Without.
    Failed,
}

/// What to do next. A new step is a breaking change, on purpose: a driver that passed over one would lose requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Run this batch, and [`land`](super::Dispatcher::land) it.
    Release(Batch),
    /// Run a batch of made-up rows, and [`land`](super::Dispatcher::land) it.
    Rehearse(Rehearsal),
    /// Expect nothing of this batch any more.
    GiveUp(GivenUp),
    /// Refuse these entries.
    Shed(Shed),
    /// Poll again at this instant, or after the next event if that is sooner.
    WaitUntil(Instant),
    /// Poll again after the next event.
    Park,
}
