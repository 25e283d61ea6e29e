//! One queue of a pool as the actor keeps it: the items that wait, the ways back to their callers, what runs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::bounds::Bounds;
use super::executor::Executor;
use super::observer::{Observers, Rider};
use super::{Answered, SpanRef, Weight};
use crate::Error;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Batch, Entry};

/// An item in the queue, and the way back to its caller.
pub(super) struct Waiting<I, A> {
    pub(super) item: I,
    pub(super) reply: Reply<A>,
    pub(super) bytes: usize,
    /// How long after arrival the answer was promised.
    pub(super) within: Duration,
    /// Its span, if it is traced.
    pub(super) span: Option<SpanRef>,
}

pub(super) type Reply<A> = oneshot::Sender<Result<Answered<A>, Error>>;

/// Order and urgency of what waits are the dispatcher's; the items themselves are here, by id.
pub(super) struct Desk<I, A> {
    pub(super) max_batch: usize,
    pub(super) bounds: Arc<Bounds>,
    pub(super) observers: Arc<Observers>,
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

/// What boards a runner together. Replies travel with their batch, so no second queue can fall out of step with it.
pub(super) struct Boarded<I, A> {
    pub(super) items: Vec<I>,
    pub(super) riders: Vec<Rider>,
    /// When each rider's answer is due, and the way back to it.
    pub(super) ways_back: Vec<(Instant, Reply<A>)>,
    pub(super) batch: Batch,
}

impl<I, A> Desk<I, A> {
    /// Takes an item that has left the queue, and gives its room back.
    pub(super) fn take(&mut self, entry: &Entry) -> Option<Waiting<I, A>> {
        let waiting = self.waiting.remove(&entry.id)?;
        self.bounds.leave(Weight { rows: entry.rows, bytes: waiting.bytes });
        Some(waiting)
    }

    /// Takes the items of a batch out: those whose callers are still there.
    pub(super) fn board(&mut self, now: Instant, entries: Vec<Entry>) -> Boarded<I, A> {
        let most = entries.len();
        let (mut items, mut riders) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let mut ways_back = Vec::with_capacity(most);
        let mut batch = Batch { entries: 0, rows: 0, first_arrival: now };
        for entry in entries {
            let Some(waiting) = self.take(&entry) else { continue };
            if waiting.reply.is_closed() {
                continue;
            }
            batch.entries += 1;
            batch.rows += entry.rows;
            batch.first_arrival = batch.first_arrival.min(entry.arrival);
            let Waiting { item, reply, span, .. } = waiting;
            items.push(item);
            riders.push(Rider { arrival: entry.arrival, span });
            ways_back.push((entry.deadline, reply));
        }
        Boarded { items, riders, ways_back, batch }
    }
}
