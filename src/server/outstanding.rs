//! What hyper has of a connection: requests whose heads have passed the guard, and whose answers are still to come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::time::Instant;

use super::quick::Through;
use super::status::Refusal;

/// Requests of one connection whose heads passed to hyper and that are not answered yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Outstanding(Arc<Passed>);

#[derive(Debug, Default)]
struct Passed {
    unanswered: AtomicUsize,
    /// Whether a part of the next head has come.
    is_begun: AtomicBool,
    /// Whether hyper has begun with a request since the thread came to this connection.
    had_turn: AtomicBool,
    /// Those that hyper has not begun with.
    heads: Mutex<VecDeque<Begun>>,
}

/// How the bytes of a chunked body come to their end, for whoever reads it and answers.
#[derive(Debug, Clone, Default)]
pub(super) struct BodyEnd(Arc<OnceLock<Result<(), Refusal>>>);

impl BodyEnd {
    /// Says that its end is in, and is beyond doubt.
    pub(super) fn is_reached(&self) {
        let _ = self.0.set(Ok(()));
    }

    /// Says that no more of it is read, and why.
    pub(super) fn is_refused(&self, refusal: Refusal) {
        let _ = self.0.set(Err(refusal));
    }

    /// Whether its end is in, and is beyond doubt.
    pub(super) fn is_in(&self) -> bool {
        matches!(self.0.get(), Some(Ok(())))
    }

    /// Why no more of it is read.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.0.get()?.as_ref().err()
    }
}

/// Counts its request as answered when it goes, whether the answer was made or the client left first.
pub(super) struct Answered(pub(super) Outstanding);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// A request whose head passed.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    /// When it arrived.
    pub(super) arrived: Instant,
    /// That of a chunked body.
    pub(super) chunks_end: Option<BodyEnd>,
    /// Who is to hear what becomes of it.
    pub(super) through: Option<Through>,
}

impl Outstanding {
    /// The request that hyper begins with.
    pub(super) fn begin(&self) -> Option<Begun> {
        self.heads().pop_front()
    }

    /// Says that the thread comes to this connection.
    pub(super) fn turns(&self) {
        self.0.had_turn.store(false, Ordering::Relaxed);
    }

    /// Completes when another request may be begun with: one a turn, so that whoever sends many at once has no more of the thread than who
    /// sends one.
    pub(super) async fn turn(&self) {
        if self.0.had_turn.swap(true, Ordering::Relaxed) {
            tokio::task::yield_now().await;
            self.0.had_turn.store(true, Ordering::Relaxed);
        }
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
