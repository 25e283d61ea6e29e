//! One queue of a pool as the actor keeps it: the items that wait, the ways back to their callers, what runs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::bounds::Bounds;
use super::executor::Executor;
use super::journal::Journal;
use super::{Answered, Weight};
use crate::error::Error;
use crate::estimator::Instant;
use crate::policy::{Batch, Entry};

/// An item in the queue, and the way back to its caller.
pub(super) struct Waiting<I, A> {
    pub(super) item: I,
    pub(super) reply: Reply<A>,
    pub(super) bytes: usize,
    /// How long after arrival the answer was promised.
    pub(super) within: Duration,
}

pub(super) type Reply<A> = oneshot::Sender<Result<Answered<A>, Error>>;

/// Order and urgency of what waits are the dispatcher's; the items themselves are here, by id.
pub(super) struct Desk<I, A> {
    pub(super) name: String,
    pub(super) max_batch: usize,
    pub(super) bounds: Arc<Bounds>,
    pub(super) journal: Arc<Journal>,
    pub(super) executor: Box<dyn Executor<I, A>>,
    pub(super) waiting: HashMap<u64, Waiting<I, A>>,
    /// Batches that run.
    pub(super) in_flight: usize,
    /// Since when something is held back here while a runner is free.
    pub(super) held_since: Option<Instant>,
    /// Who wants to know when nothing waits or runs any more.
    pub(super) drained: Vec<oneshot::Sender<()>>,
    /// Whether the last handle is gone.
    pub(super) closing: bool,
}

/// Somebody whose item is in a batch. The reply travels with the batch, so no second queue can fall out of step with it.
pub(super) struct Passenger<A> {
    pub(super) arrival: Instant,
    pub(super) deadline: Instant,
    pub(super) reply: Reply<A>,
}

impl<I, A> Desk<I, A> {
    /// Takes an item that has left the queue, and gives its room back.
    pub(super) fn take(&mut self, entry: &Entry) -> Option<Waiting<I, A>> {
        let waiting = self.waiting.remove(&entry.id)?;
        self.bounds.leave(Weight { rows: entry.rows, bytes: waiting.bytes });
        Some(waiting)
    }

    /// Takes the items of a batch out: those whose callers are still there.
    pub(super) fn board(&mut self, now: Instant, entries: Vec<Entry>) -> (Vec<I>, Vec<Passenger<A>>, Batch) {
        let (mut items, mut passengers) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        let mut batch = Batch { entries: 0, rows: 0, first_arrival: now };
        for entry in entries {
            let Some(waiting) = self.take(&entry) else { continue };
            if waiting.reply.is_closed() {
                continue;
            }
            batch.entries += 1;
            batch.rows += entry.rows;
            batch.first_arrival = batch.first_arrival.min(entry.arrival);
            self.journal.metrics.queue_wait.record(now.since(entry.arrival));
            items.push(waiting.item);
            passengers.push(Passenger { arrival: entry.arrival, deadline: entry.deadline, reply: waiting.reply });
        }
        (items, passengers, batch)
    }
}
