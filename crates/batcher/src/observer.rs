//! What happens in a batcher, told to whoever wants to record it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uncork_core::estimator::{Fit, Instant};
use uncork_core::policy::{ReleaseReason, ShedReason};

use super::fence::caught;
use crate::{BatchError, Error};

/// Hears what happens in one batcher, in the moment in which it happens. Each method does nothing unless it is written.
///
/// All but [`refused`](Observer::refused) are called one at a time, where batches are released: on the runtime, on a runner's thread, or by whoever
/// starts the batcher. They must neither wait nor take long. `at` counts from the start of the batcher's pool ([`Batcher::now`](crate::Batcher::now)).
///
/// An observer that panics is told nothing more, while batches and other observers go on. The program's panic hook hears of it.
pub trait Observer: Send + Sync {
    /// A batch goes to a runner. Whoever begins a span for it says so, and the callers are told.
    fn released(&self, _at: Instant, _batch: &Released<'_>) -> Option<SpanRef> {
        None
    }

    /// A batch is back.
    fn landed(&self, _at: Instant, _batch: &Landed<'_>) {}

    /// Items were refused, all for one reason. Also called by the tasks of callers.
    fn refused(&self, _at: Instant, _items: &Refused<'_>) {}

    /// A batch was given up. A batch of callers has [landed](Self::landed) before, as one that failed; should it still come
    /// back, nobody hears of that.
    fn abandoned(&self, _at: Instant, _batch: &Abandoned) {}

    /// A batch of rows that are nobody's is back. It counts in nothing else that is told here but what is learned from it.
    fn rehearsed(&self, _at: Instant, _batch: &Rehearsed<'_>) {}

    /// The estimate has learned from a batch.
    fn learned(&self, _at: Instant, _batch: &Learned) {}

    /// What waits has perhaps changed.
    fn waits(&self, _at: Instant, _waits: Waits) {}
}

/// A batch that goes to a runner. What observers hear can be made by anybody, for tests of observers.
#[derive(Debug, Clone, Copy)]
pub struct Released<'a> {
    /// Tells the batches of a pool apart.
    pub ticket: u64,
    /// The items in it.
    pub riders: &'a [Rider],
    /// Their rows.
    pub rows: usize,
    /// Why it was released then.
    pub reason: ReleaseReason,
    /// How long it was held back while a runner was free.
    pub held: Duration,
    /// The time that is expected of it; `None` before the first batch.
    pub predicted: Option<Duration>,
}

/// An item in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rider {
    /// When it arrived.
    pub arrival: Instant,
    /// Its span, if it is [traced](crate::Terms::traced).
    pub span: Option<SpanRef>,
}

/// A batch that is back.
#[derive(Debug, Clone, Copy)]
pub struct Landed<'a> {
    /// As it was when it was [`Released`].
    pub ticket: u64,
    /// The items in it.
    pub riders: &'a [Rider],
    /// Their rows.
    pub rows: usize,
    /// The time that was expected of it.
    pub predicted: Option<Duration>,
    /// How long it ran.
    pub took: Duration,
    /// Its span, as [`Observer::released`] named it.
    pub span: Option<SpanRef>,
    /// Why there are no answers, if there are none.
    pub failed: Option<&'a BatchError>,
}

/// A batch of rows that are nobody's, and is back.
#[derive(Debug, Clone, Copy)]
pub struct Rehearsed<'a> {
    /// Its rows.
    pub rows: usize,
    /// How long it ran.
    pub took: Duration,
    /// Why it failed, if it did.
    pub failed: Option<&'a BatchError>,
    /// The most rows that a batch may have from now on.
    pub most_rows: usize,
}

/// A batch or a rehearsal that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abandoned {
    /// Its rows.
    pub rows: usize,
    /// How long it had run.
    pub ran: Duration,
    /// Whether its runner was replaced; else too many were left behind already, and the pool has one less until it is back.
    pub is_replaced: bool,
    /// Runners of the pool that are left behind now.
    pub left_behind: usize,
}

/// Items that were refused.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// Why.
    pub reason: RefusalReason,
    /// How many.
    pub items: usize,
    /// What the last of them is told.
    pub told: &'a Error,
}

/// A batch that the estimate learned from.
#[derive(Debug, Clone)]
pub struct Learned {
    /// Its rows.
    pub rows: usize,
    /// How long it ran.
    pub took: Duration,
    /// What is known of batch times now.
    pub fit: Fit,
}

/// What waits, and the most that may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// Rows.
    pub rows: usize,
    /// Most rows.
    pub max_rows: usize,
    /// Bytes.
    pub bytes: usize,
    /// Most bytes.
    pub max_bytes: usize,
}

/// Why items were refused while the batcher was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// They would have been late.
    Shed(ShedReason),
    /// The queue held as many rows as it may.
    RowsBound,
    /// The queue held as many bytes as it may.
    BytesBound,
}

impl RefusalReason {
    /// Every reason, by the deadline first, then by the bounds.
    pub const ALL: [RefusalReason; 7] = [
        RefusalReason::Shed(ShedReason::Expired),
        RefusalReason::Shed(ShedReason::BatchTooLate),
        RefusalReason::Shed(ShedReason::QueueTooLong),
        RefusalReason::Shed(ShedReason::QueueStands),
        RefusalReason::Shed(ShedReason::OverShare),
        RefusalReason::RowsBound,
        RefusalReason::BytesBound,
    ];

    /// A name for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            RefusalReason::Shed(reason) => reason.label(),
            RefusalReason::RowsBound => "rows_bound",
            RefusalReason::BytesBound => "bytes_bound",
        }
    }

    /// What it means, as a sentence.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            RefusalReason::Shed(reason) => reason.why(),
            RefusalReason::RowsBound => "the queue held as many rows as it may",
            RefusalReason::BytesBound => "the queue held as many bytes as it may",
        }
    }
}

/// Which span is meant, as W3C's trace context names it: small enough to travel with an item. The batcher only hands it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanRef {
    /// The trace's id.
    pub trace: u128,
    /// The span's id.
    pub span: u64,
}

impl SpanRef {
    /// The trace's id in W3C's form: 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// The span's id in W3C's form: 16 lower-case hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }
}

/// Those who hear of one batcher.
#[derive(Default)]
pub(crate) struct Observers(Vec<Listener>);

/// One of them, until it panics: that would else end the task of the pool.
struct Listener {
    observer: Box<dyn Observer>,
    has_panicked: AtomicBool,
}

impl Listener {
    fn tell<T: Default>(&self, tell: impl FnOnce(&dyn Observer) -> T) -> T {
        if self.has_panicked.load(Ordering::Relaxed) {
            return T::default();
        }
        let told = caught(|| tell(&*self.observer));
        told.unwrap_or_else(|_| {
            self.has_panicked.store(true, Ordering::Relaxed);
            T::default()
        })
    }
}

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer + 'static) {
        self.0.push(Listener { observer: Box::new(observer), has_panicked: AtomicBool::new(false) });
    }

    fn tell(&self, tell: impl Fn(&dyn Observer)) {
        self.0.iter().for_each(|listener| listener.tell(&tell));
    }

    /// The first span that any of them has begun.
    pub(crate) fn released(&self, at: Instant, batch: &Released<'_>) -> Option<SpanRef> {
        self.0.iter().fold(None, |span, listener| span.or(listener.tell(|observer| observer.released(at, batch))))
    }

    pub(crate) fn landed(&self, at: Instant, batch: &Landed<'_>) {
        self.tell(|observer| observer.landed(at, batch));
    }

    pub(crate) fn refused(&self, at: Instant, items: &Refused<'_>) {
        self.tell(|observer| observer.refused(at, items));
    }

    /// An item was refused, for which there was no room in the queue.
    pub(crate) fn no_room(&self, at: Instant, told: &Error) {
        let reason = match told {
            Error::Full { unit: "rows", .. } => RefusalReason::RowsBound,
            Error::Full { .. } => RefusalReason::BytesBound,
            Error::OverShare { .. } => RefusalReason::Shed(ShedReason::OverShare),
            _ => return, // an item that never fits, or a shutdown
        };
        self.refused(at, &Refused { reason, items: 1, told });
    }

    pub(crate) fn abandoned(&self, at: Instant, batch: &Abandoned) {
        self.tell(|observer| observer.abandoned(at, batch));
    }

    pub(crate) fn rehearsed(&self, at: Instant, batch: &Rehearsed<'_>) {
        self.tell(|observer| observer.rehearsed(at, batch));
    }

    pub(crate) fn learned(&self, at: Instant, batch: &Learned) {
        self.tell(|observer| observer.learned(at, batch));
    }

    pub(crate) fn waits(&self, at: Instant, waits: Waits) {
        self.tell(|observer| observer.waits(at, waits));
    }
}
