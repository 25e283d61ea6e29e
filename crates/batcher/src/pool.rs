//! Runners that several queues share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::actor::{Actor, Message};
use super::clock::Clock;
use super::desk::Desk;
use super::executor::Threads;
use super::relay::Relay;
use uncork_core::policy::{Lane, LaneId};

/// A handle to the runners of several [`Batcher`](super::Batcher)s, one for each model that shares a device. Batchers are
/// added with [`Builder::pool`](super::Builder::pool) and leave when their last handle is dropped, both at any time.
///
/// When they want more runner time than there is, each gets its part by [weight](super::Builder::weight), and a flood of
/// one does not push another past its latency cap that wants no more than its part. What one does not need is the others'.
///
/// Clones share the pool; it ends with its last handle and its last batcher.
pub struct Pool<I, A> {
    shared: Arc<Shared<I, A>>,
}

struct Shared<I, A> {
    name: String,
    runners: usize,
    inbox: mpsc::UnboundedSender<Message<I, A>>,
    /// Queues opened so far. Held while one is opened: the actor counts them in the order in which it hears of them.
    opened: Mutex<LaneId>,
    clock: Clock,
    /// Started for the first queue that needs them.
    threads: Mutex<Option<Threads>>,
}

impl<I, A> Clone for Pool<I, A> {
    fn clone(&self) -> Self {
        Pool { shared: Arc::clone(&self.shared) }
    }
}

impl<I, A> std::fmt::Debug for Pool<I, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { name, runners, .. } = &*self.shared;
        f.debug_struct("Pool").field("name", name).field("runners", runners).finish_non_exhaustive()
    }
}

impl<I: Send + 'static, A: Send + 'static> Pool<I, A> {
    /// A pool that runs so many batches at once (0 is taken as 1). `name` is what its `Debug` calls it.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and in one without time (`enable_time`).
    pub fn new(name: impl Into<String>, runners: usize) -> Pool<I, A> {
        // Without time its task would panic later, where nobody sees why.
        drop(tokio::time::sleep(Duration::ZERO));
        let (runners, clock) = (runners.max(1), Clock::start());
        let (inbox, messages) = mpsc::unbounded_channel();
        // Not a stray: the actor ends when the last handle is dropped.
        tokio::spawn(Relay::new(Actor::new(runners, clock, messages).run()));
        let (opened, threads) = (Mutex::new(0), Mutex::new(None));
        Pool { shared: Arc::new(Shared { name: name.into(), runners, inbox, opened, clock, threads }) }
    }

    /// The pool's threads, one for each runner.
    pub(super) fn threads(&self) -> std::io::Result<Threads> {
        let mut threads = self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner);
        match &*threads {
            Some(threads) => Ok(threads.clone()),
            None => Ok(threads.insert(Threads::start(self.shared.runners)?).clone()),
        }
    }

    /// Adds a queue; returns where to write to the actor about it, and as which lane.
    pub(super) fn open(&self, lane: Lane, desk: Desk<I, A>) -> (mpsc::UnboundedSender<Message<I, A>>, LaneId) {
        let mut opened = self.shared.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *opened;
        *opened += 1;
        // An actor that is gone, because its runtime is, has dropped everything; submitting says so.
        let _ = self.shared.inbox.send(Message::Opened(id, Box::new((lane, desk))));
        (self.shared.inbox.clone(), id)
    }

    /// Batches that run at once at most.
    pub(super) fn runners(&self) -> usize {
        self.shared.runners
    }

    pub(super) fn clock(&self) -> Clock {
        self.shared.clock
    }
}
