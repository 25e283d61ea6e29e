//! One queue of a pool as the actor keeps it: the items that wait, the ways back to their callers, what runs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::bounds::Bounds;
use super::fence::FencedExecutor;
use super::observer::{Observers, Rider};
use super::{Answered, SpanRef, Weight};
use crate::Error;
use uncork_core::policy::Entry;

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
    pub(super) bounds: Arc<Bounds>,
    pub(super) observers: Arc<Observers>,
    pub(super) executor: FencedExecutor<I, A>,
    pub(super) waiting: HashMap<u64, Waiting<I, A>>,
    /// What all of these take. More is admitted: what the actor has not heard of yet.
    pub(super) held: Weight,
    /// Who wants to know when nothing waits or runs any more.
    pub(super) drained: Vec<oneshot::Sender<()>>,
    /// Whether the last handle is gone.
    pub(super) closing: bool,
}

/// What boards a runner together. Replies travel with their batch, so no second queue can fall out of step with it.
pub(super) struct Boarded<I, A> {
    pub(super) items: Vec<I>,
    pub(super) riders: Vec<Rider>,
    pub(super) replies: Vec<Reply<A>>,
}

impl<I, A> Default for Boarded<I, A> {
    fn default() -> Self {
        Boarded { items: Vec::new(), riders: Vec::new(), replies: Vec::new() }
    }
}

impl<I, A> Desk<I, A> {
    /// Takes in an item that has come to the queue.
    pub(super) fn seat(&mut self, entry: &Entry, waiting: Waiting<I, A>) {
        let Weight { rows, bytes } = self.held;
        self.held = Weight { rows: rows + entry.rows, bytes: bytes + waiting.bytes };
        self.waiting.insert(entry.id, waiting);
    }

    /// Takes an item that has left the queue, and gives its room back.
    pub(super) fn take(&mut self, entry: &Entry) -> Option<Waiting<I, A>> {
        let waiting = self.waiting.remove(&entry.id)?;
        let Weight { rows, bytes } = self.held;
        self.held = Weight { rows: rows - entry.rows, bytes: bytes - waiting.bytes };
        self.bounds.leave(Weight { rows: entry.rows, bytes: waiting.bytes });
        Some(waiting)
    }

    /// Lets an item that has left the queue board a batch, unless its caller is gone; says whether it does.
    pub(super) fn board(&mut self, entry: &Entry, boarded: &mut Boarded<I, A>) -> bool {
        let Some(Waiting { item, reply, span, .. }) = self.take(entry) else { return false };
        if reply.is_closed() {
            return false;
        }
        boarded.items.push(item);
        boarded.riders.push(Rider { arrival: entry.arrival, span });
        boarded.replies.push(reply);
        true
    }
}
