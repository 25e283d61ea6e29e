//! What hyper has of a connection: requests whose heads have passed the guard, and whose answers are still to come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::quick::Through;

/// Requests of one connection whose heads passed to hyper and that are not answered yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Outstanding(Arc<Passed>);

#[derive(Debug, Default)]
struct Passed {
    unanswered: AtomicUsize,
    /// Whether a part of the next head has come.
    is_begun: AtomicBool,
    /// Those that hyper has not begun with.
    heads: Mutex<VecDeque<Begun>>,
}

/// A request whose head passed.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    /// When it arrived.
    pub(super) arrived: Instant,
    /// Of a chunked body, whether its end is in, and is beyond doubt.
    pub(super) chunks_end: Option<Arc<AtomicBool>>,
    /// Who is to hear what becomes of it.
    pub(super) through: Option<Through>,
}

impl Outstanding {
    /// The request that hyper begins with.
    pub(super) fn begin(&self) -> Option<Begun> {
        self.heads().pop_front()
    }

    /// Says that one request is answered.
    pub(super) fn answered(&self) {
        self.0.unanswered.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says that a part of the next head has come.
    pub(super) fn begun(&self) {
        self.0.is_begun.store(true, Ordering::Relaxed);
    }

    /// Whether a part of a head has come, and no more.
    pub(super) fn is_begun(&self) -> bool {
        self.0.is_begun.load(Ordering::Relaxed)
    }

    /// Says that the head of one has passed.
    pub(super) fn pass(&self, begun: Begun) {
        self.0.is_begun.store(false, Ordering::Relaxed);
        self.heads().push_back(begun);
        self.0.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all are answered.
    pub(super) fn none(&self) -> bool {
        self.0.unanswered.load(Ordering::Relaxed) == 0
    }

    fn heads(&self) -> MutexGuard<'_, VecDeque<Begun>> {
        self.0.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
