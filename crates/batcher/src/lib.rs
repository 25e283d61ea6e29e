//! Single requests in, batches out, and each answer back to its own caller.
//!
//! A [`Batcher`] is a handle to a queue of a [`Pool`]: a task that owns the queues of some runners and obeys the
//! [`policy`]. It is generic over the item and the answer, so any vectorised function can be batched:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use uncork_batcher::{Batcher, Caps};
//!
//! let caps = Caps::new(Duration::from_millis(50), 200);
//! let squares = Batcher::new(caps, |xs: Vec<u64>| xs.iter().map(|x| x * x).collect());
//! assert_eq!(squares.submit(12).await?, 144);
//! # Ok::<(), uncork_batcher::Error>(()) }).unwrap();
//! ```
//!
//! A batcher has a pool of its own unless it is told to share one:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # use std::time::Duration;
//! use uncork_batcher::{Batcher, Caps, Pool};
//!
//! let caps = Caps::new(Duration::from_millis(50), 200);
//! let device = Pool::new("device", 2);
//! let double = Batcher::builder(caps).pool(&device).start_function(|xs: Vec<u64>| xs.iter().map(|x| x * 2).collect())?;
//! let square = Batcher::builder(caps).pool(&device).start_function(|xs: Vec<u64>| xs.iter().map(|x| x * x).collect())?;
//! assert_eq!((double.submit(12).await?, square.submit(12).await?), (24, 144));
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! - [`Batcher::submit_with`] takes [`Terms`]: a deadline of the caller's own, a priority, a span.
//! - [`Builder`] has what can be set beside the two caps, each with a default that serves: bounds of the queue, runners, weights. With
//!   [`Builder::waiting_for_room`] a full queue slows its callers down instead of refusing them.
//! - An item that would be answered late is refused as soon as that is known, with the numbers: [`Error::Late`].
//! - [`Builder::start_threads`] gives each thread a state of its own; an [`Executor`] is anything else that runs batches.
//! - An [`Observer`] hears what happens, for metrics and logs:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # use std::time::Duration;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use uncork_batcher::{Batcher, Caps, Landed, Observer, estimator::Instant};
//!
//! static ROWS: AtomicUsize = AtomicUsize::new(0);
//!
//! struct CountRows;
//! impl Observer for CountRows {
//!     fn landed(&self, _at: Instant, batch: &Landed<'_>) {
//!         ROWS.fetch_add(batch.rows, Ordering::Relaxed);
//!     }
//! }
//!
//! let caps = Caps::new(Duration::from_millis(50), 200);
//! let negate = Batcher::builder(caps).observer(CountRows).start_function(|xs: Vec<i64>| xs.iter().map(|x| -x).collect())?;
//! assert_eq!(negate.submit(12).await?, -12);
//! assert_eq!(ROWS.load(Ordering::Relaxed), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod actor;
mod alarm;
mod bounds;
mod builder;
mod clock;
mod crew;
mod desk;
mod error;
mod executor;
mod fence;
mod observer;
mod pool;
mod relay;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use builder::Builder;
pub use error::Error;
pub use executor::{BatchError, Executor, Ran, Threads, Work, Workers};
pub use observer::{
    Abandoned, Landed, Learned, Observer, RefusalReason, Refused, Rehearsed, Released, Rider, SpanRef, Waits,
};
pub use pool::Pool;
pub use turns::wait_for_turns;

pub use uncork_core::policy::{BatchSizes, Caller, Priority};
pub use uncork_core::{estimator, policy};

use actor::Message;
use bounds::Bounds;
use clock::Clock;
use desk::Waiting;
use observer::Observers;
use tokio::sync::{mpsc, oneshot};

use uncork_core::estimator::Instant;
use uncork_core::policy::{Entry, LaneId, ShedReason};

/// The two caps: all that anyone must set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// Every answer comes within this time of the item's arrival, or the item is refused early. Lower: less waiting, and
    /// fewer items served under load.
    pub max_latency: Duration,
    /// No batch has more rows. Lower: less memory for a batch, and less throughput where a batch costs much however small
    /// it is. 0 is taken as 1, and `usize::MAX` is no cap.
    pub max_batch: usize,
}

impl Caps {
    /// An answer within `max_latency`, and no more than `max_batch` rows in a batch.
    #[must_use]
    pub const fn new(max_latency: Duration, max_batch: usize) -> Caps {
        Caps { max_latency, max_batch }
    }
}

/// What an item adds to a batch and to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Rows of a batch; 0 is taken as 1.
    pub rows: usize,
    /// Bytes of memory while it waits.
    pub bytes: usize,
}

/// What a caller asks for beside the answer: `Terms::now().within(timeout).priority(level)`.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Terms {
    arrival: tokio::time::Instant,
    timeout: Option<Duration>,
    priority: Priority,
    caller: Caller,
    span: Option<SpanRef>,
}

impl Terms {
    /// For an item that arrives now: within the latency cap, with the default priority.
    pub fn now() -> Terms {
        Terms::since(tokio::time::Instant::now())
    }

    /// For an item that has arrived at `arrival`, from when its latency counts.
    pub fn since(arrival: tokio::time::Instant) -> Terms {
        Terms { arrival, timeout: None, priority: Priority::DEFAULT, caller: Caller::default(), span: None }
    }

    /// Shortens the time that the answer may take, and never lengthens it; `None` leaves it as it is.
    pub fn within(self, timeout: impl Into<Option<Duration>>) -> Terms {
        Terms { timeout: timeout.into(), ..self }
    }

    /// Lets those of less urgent levels stand back; under overload they are the ones that are refused.
    pub fn priority(self, priority: Priority) -> Terms {
        Terms { priority, ..self }
    }

    /// Tells whose the item is. Where more is asked than can be done, callers who are told apart share that, in each priority, by max-min
    /// fairness: who asks for little is answered, and the others get the rest by their weights. A [priority](Terms::priority) beyond the most
    /// urgent that he may ask for is taken for that. Where items [wait for room](Builder::waiting_for_room) in the queue, only what has come into it
    /// is shared so.
    pub fn caller(self, caller: Caller) -> Terms {
        Terms { caller, ..self }
    }

    /// Has the span of its batch linked to `span`, if there is one.
    pub fn traced(self, span: Option<SpanRef>) -> Terms {
        Terms { span, ..self }
    }

    /// How long the answer may take, where that was said.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// When the item arrived.
    #[must_use]
    pub fn arrival(&self) -> tokio::time::Instant {
        self.arrival
    }

    /// The span of the request that the item belongs to, if it is traced.
    pub fn span(&self) -> Option<SpanRef> {
        self.span
    }
}

/// An answer and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered<A> {
    /// The answer.
    pub answer: A,
    /// From arrival to the release of the batch.
    pub queue: Duration,
    /// From release to answers.
    pub batch: Duration,
    /// Rows of the batch.
    pub batch_rows: usize,
    /// The batch's span, where any item in it is [traced](Terms::traced).
    pub batch_span: Option<SpanRef>,
}

/// A handle to a running batcher; clones share it. The batcher answers all that wait and ends, leaving its pool, when the
/// last is dropped.
pub struct Batcher<I, A> {
    shared: Arc<Shared<I, A>>,
}

struct Shared<I, A> {
    inbox: mpsc::UnboundedSender<Message<I, A>>, // bounded by `bounds`: nothing is sent that was not admitted
    lane: LaneId,
    bounds: Arc<Bounds>,
    observers: Arc<Observers>,
    weigh: Box<dyn Fn(&I) -> Weight + Send + Sync>,
    next_id: AtomicU64,
    clock: Clock,
    caps: Caps,
    /// Kept free between the answer's due time and the end of the batch, for the way back to the caller.
    answering: Duration,
    runners: usize,
    /// Whether items wait for room in the queue.
    waits_for_room: bool,
}

impl<I, A> Shared<I, A> {
    /// How long after its arrival an item on these terms is answered at the latest.
    fn within(&self, terms: &Terms) -> Duration {
        terms.timeout.map_or(self.caps.max_latency, |own| own.min(self.caps.max_latency))
    }
}

impl<I, A> Drop for Shared<I, A> {
    fn drop(&mut self) {
        // An actor that is gone has no queues.
        let _ = self.inbox.send(Message::Closed(self.lane));
    }
}

impl<I, A> Clone for Batcher<I, A> {
    fn clone(&self) -> Self {
        Batcher { shared: Arc::clone(&self.shared) }
    }
}

impl<I, A> std::fmt::Debug for Batcher<I, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").field("caps", &self.shared.caps).finish_non_exhaustive()
    }
}

impl<I: Send + 'static, A: Send + 'static> Batcher<I, A> {
    /// Batches calls of `function`, which gets the items of a batch and returns one answer for each, in order. It runs on
    /// a thread of its own; a panic, or another number of answers, fails that batch and no other. Each item is a row.
    ///
    /// # Panics
    /// Outside of a tokio runtime, in one without time (`enable_time`), and if no thread can be started; [`Builder`] returns that last as an
    /// error, and has further settings.
    pub fn new(caps: Caps, function: impl Fn(Vec<I>) -> Vec<A> + Send + Sync + 'static) -> Batcher<I, A> {
        Builder::new(caps).start_function(function).expect("the system starts a thread")
    }

    /// Settings beside the two caps.
    pub fn builder(caps: Caps) -> Builder<I, A> {
        Builder::new(caps)
    }

    /// The answer to `item`, which arrives now. Dropping the future takes the item out of the queue.
    ///
    /// # Errors
    /// Those of [`submit_with`](Self::submit_with).
    pub async fn submit(&self, item: I) -> Result<A, Error> {
        self.submit_with(item, Terms::now()).await.map(|answered| answered.answer)
    }

    /// The answer to `item` on these terms. Dropping the future takes the item out of the queue, or leaves its answer
    /// unsent.
    ///
    /// # Errors
    /// - Refused before it ran, and worth asking again after [`Error::retry_after`], where that says a time: [`Error::Late`], [`Error::Overload`],
    ///   [`Error::OverShare`], [`Error::Full`].
    /// - [`Error::TooLarge`]: it has more rows than a batch, or more rows or bytes than the queue, may have.
    /// - [`Error::ShuttingDown`]: this batcher [drains](Self::drain) or [is gone](Self::is_gone); only another may answer.
    /// - It ran, and there is no answer: [`Error::Failed`], and [`Error::Stuck`] with [`Builder::giving_up_after`].
    pub async fn submit_with(&self, item: I, terms: Terms) -> Result<Answered<A>, Error> {
        let Terms { arrival, priority, caller, span, .. } = terms;
        let shared = &*self.shared;
        let weight = (shared.weigh)(&item);
        let weight = Weight { rows: weight.rows.max(1), ..weight };
        let max_batch = shared.caps.max_batch;
        if weight.rows > max_batch {
            return Err(Error::TooLarge { size: weight.rows, bound: max_batch, unit: "rows" });
        }
        let within = shared.within(&terms);
        let admitted = if shared.waits_for_room {
            shared.bounds.admit_within(weight, within.saturating_sub(arrival.elapsed())).await
        } else {
            shared.bounds.admit(weight, caller)
        };
        admitted.inspect_err(|told| shared.observers.no_room(shared.clock.now(), told))?;
        let arrival = shared.clock.instant_of(arrival);
        let (id, deadline) =
            (shared.next_id.fetch_add(1, Ordering::Relaxed), arrival + within.saturating_sub(shared.answering));
        let priority = priority.max(caller.most_urgent);
        let entry = Entry { id, arrival, deadline, rows: weight.rows, priority, caller };
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { item, reply, bytes: weight.bytes, within, span };
        if shared.inbox.send(Message::Arrived(shared.lane, entry, waiting)).is_err() {
            shared.bounds.leave(weight);
            return Err(Error::ShuttingDown);
        }
        let mut departure = Departure { inbox: &shared.inbox, lane: shared.lane, entry, answered: false };
        let outcome = answer.await;
        departure.answered = true;
        // The actor answers all that it took in; it can only be gone if its runtime is shutting down.
        outcome.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Looks ahead for a request of so many rows, which is to be asked for in parts of at most [`most_rows`](Self::most_rows) each. Where those of
    /// its parts that come last would be late though nothing else waited or ran, the others would run for nothing, and again whenever its
    /// caller tries again. One such request a second goes on all the same, and shows whether batches still take so long: what comes back
    /// with it is what its caller is to be told where a part of it is late, since no waiting helps.
    ///
    /// # Errors
    /// [`Error::Late`] where it would be late.
    pub fn foresee(&self, rows: usize, terms: &Terms) -> Result<Option<Error>, Error> {
        let (shared, most) = (&*self.shared, self.most_rows());
        let within = shared.within(terms);
        // Each runner has every so manieth part. The last of all is what is left.
        let parts = rows.div_ceil(most).max(1);
        let own = parts.div_ceil(shared.runners);
        let is_last_alone = (parts - 1) % shared.runners == 0;
        let last = if is_last_alone { rows - (parts - 1) * most } else { most };
        let alone = shared.bounds.time(own - 1, most, last);
        let now = shared.clock.now();
        if alone <= within {
            return Ok(None);
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let told = Error::Late { predicted_ms: ms(alone), deadline_ms: ms(within), retry_after: None };
        if shared.bounds.may_try(now) {
            return Ok(Some(told));
        }
        let reason = RefusalReason::Shed(ShedReason::BatchTooLate);
        shared.observers.refused(now, &Refused { reason, items: 1, told: &told });
        Err(told)
    }

    /// The most rows that a batch may have now: the cap, or as many as were tried where it [rehearses](Builder::rehearsing).
    #[must_use]
    pub fn most_rows(&self) -> usize {
        self.shared.bounds.most_rows()
    }

    /// Whether a batch was [given up](Builder::giving_up_after), and none has come back since.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.shared.bounds.is_stuck()
    }

    /// Whether nothing is batched any more, because the runtime is gone or the task that batches has panicked: every request is then told
    /// that there is a shutdown.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.shared.inbox.is_closed()
    }

    /// What waits, and the most that may.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.shared.bounds.waits()
    }

    /// What time it is to the pool and to [observers](Observer).
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Refuses new items from now on, answers all that wait without holding back any longer, and returns when the last
    /// answer is out. No batch goes to a runner afterwards.
    pub async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.shared.bounds.close();
        if self.shared.inbox.send(Message::Drain(self.shared.lane, done)).is_ok() {
            // An actor that is gone has nothing left to answer.
            let _ = drained.await;
        }
    }
}

/// Tells the actor when a caller leaves before its answer.
struct Departure<'a, I, A> {
    inbox: &'a mpsc::UnboundedSender<Message<I, A>>,
    lane: LaneId,
    entry: Entry,
    answered: bool,
}

impl<I, A> Drop for Departure<'_, I, A> {
    fn drop(&mut self) {
        if !self.answered {
            // An actor that is gone has no queue to leave.
            let _ = self.inbox.send(Message::Departed(self.lane, self.entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_whoever_was_let_in_before_it_and_has_not_reached_the_queue_yet() {
        let caps = Caps::new(Duration::from_millis(50), 8);
        let batcher = Batcher::new(caps, |xs: Vec<u64>| xs);
        assert_eq!(batcher.submit(1).await, Ok(1));
        // As if its thread had lost its processor in the middle of `submit_with`.
        let shared = &*batcher.shared;
        assert_eq!(shared.bounds.admit(Weight { rows: 1, bytes: 8 }, Caller::default()), Ok(()));
        let drain = batcher.drain();
        tokio::pin!(drain);
        let soon = Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, &mut drain).await.is_err(), "one is on its way");
        assert_eq!(batcher.submit(2).await, Err(Error::ShuttingDown));
        let arrival = shared.clock.now();
        let entry = Entry::new(1000, arrival, arrival + caps.max_latency);
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { item: 3, reply, bytes: 8, within: caps.max_latency, span: None };
        assert!(shared.inbox.send(Message::Arrived(shared.lane, entry, waiting)).is_ok());
        drain.await;
        let answered = answer.await.expect("it was taken in");
        assert_eq!(answered.map(|answered| answered.answer), Ok(3));
    }
}
