//! The task that owns a pool's queue: hears of events, asks the policy, obeys.
//!
//! There are no ticks. The actor sleeps until an item arrives, a batch lands, a caller leaves, or an instant comes that
//! the policy asked to be woken at.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::bounds::Bounds;
use super::clock::Clock;
use super::executor::{BatchError, Executor};
use super::{Answered, Weight};
use crate::error::Error;
use crate::estimator::Instant;
use crate::metrics::ModelMetrics;
use crate::policy::{Batch, Dispatcher, Entry, Lane, LaneId, ReleaseReason, ShedReason, Step};

/// Messages taken in before the policy is asked: one question for a crowd that arrives at once, and still a bound on how
/// long a landed batch can go unnoticed.
const INTAKE: usize = 512;
/// The least that a refused caller is asked to stay away.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);

/// What the actor hears.
pub(super) enum Message<I, A> {
    /// An admitted item.
    Arrived(Entry, Waiting<I, A>),
    /// Its caller has left.
    Departed(Entry),
    /// Answer all that wait, then say so.
    Drain(oneshot::Sender<()>),
}

/// An item in the queue, and the way back to its caller.
pub(super) struct Waiting<I, A> {
    pub(super) item: I,
    pub(super) reply: Reply<A>,
    pub(super) bytes: usize,
    /// How long after arrival the answer was promised.
    pub(super) within: Duration,
}

type Reply<A> = oneshot::Sender<Result<Answered<A>, Error>>;

/// What an actor is told about its pool.
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) max_batch: usize,
    pub(super) runners: usize,
    pub(super) bounds: Arc<Bounds>,
    pub(super) metrics: ModelMetrics,
}

pub(super) struct Actor<I, A, E> {
    pool: Pool,
    executor: E,
    messages: mpsc::UnboundedReceiver<Message<I, A>>,
    /// The outbound semaphore: a permit for each runner, held while a batch is with it.
    permits: Arc<Semaphore>,
    /// Order and urgency of what waits, and what to do next; the items themselves are in `waiting`, by id.
    dispatcher: Dispatcher,
    lane: LaneId,
    waiting: HashMap<u64, Waiting<I, A>>,
    flights: FuturesUnordered<BoxFuture<'static, Landed<A>>>,
    draining: bool,
    drained: Vec<oneshot::Sender<()>>,
}

/// A batch that has come back, with or without answers.
struct Landed<A> {
    flight: Flight,
    passengers: Vec<Passenger<A>>,
    outcome: Result<Vec<A>, BatchError>,
    permit: OwnedSemaphorePermit,
}

/// A batch that is with a runner.
#[derive(Debug, Clone, Copy)]
struct Flight {
    ticket: u64,
    since: Instant,
    rows: usize,
}

/// Somebody whose item is in a batch. The reply travels with the batch, so no second queue can fall out of step with it.
struct Passenger<A> {
    arrival: Instant,
    reply: Reply<A>,
}

impl<I: Send + 'static, A: Send + 'static, E: Executor<I, A>> Actor<I, A, E> {
    pub(super) fn new(pool: Pool, executor: E, messages: mpsc::UnboundedReceiver<Message<I, A>>, lane: Lane) -> Self {
        let mut dispatcher = Dispatcher::new(pool.runners);
        Actor {
            permits: Arc::new(Semaphore::new(pool.runners)),
            lane: dispatcher.open(lane),
            dispatcher,
            pool,
            executor,
            messages,
            waiting: HashMap::new(),
            flights: FuturesUnordered::new(),
            draining: false,
            drained: Vec::new(),
        }
    }

    /// Runs until every handle is dropped and everything that was taken in is answered.
    pub(super) async fn run(mut self) {
        let wake = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(wake);
        let mut wake_at = None;
        let mut intake = Vec::with_capacity(INTAKE);
        loop {
            let mut landed = None;
            tokio::select! {
                biased;
                // A runner that stands idle costs more than an arrival that waits to be read.
                Some(back) = self.flights.next() => landed = Some(back),
                _ = self.messages.recv_many(&mut intake, INTAKE), if !self.abandoned() => {}
                () = &mut wake, if wake_at.is_some() => {}
                else => return,
            }
            let now = self.pool.clock.now();
            let deliveries = landed.map(|back| self.land(now, back));
            while intake.len() < INTAKE
                && let Ok(message) = self.messages.try_recv()
            {
                intake.push(message);
            }
            for message in intake.drain(..) {
                self.hear(message);
            }
            // The next batch goes out before the answers of the last one: its runner is waiting, they are not late.
            let next = self.obey();
            if let Some(deliveries) = deliveries {
                self.deliver(deliveries);
            }
            if next != wake_at {
                wake_at = next;
                if let Some(at) = next {
                    wake.as_mut().reset(self.pool.clock.to_tokio(at));
                }
            }
            let queue = self.dispatcher.queue(self.lane);
            self.pool.metrics.queue_rows.set(queue.rows() as f64);
            if self.draining && queue.is_empty() && self.flights.is_empty() {
                for done in self.drained.drain(..) {
                    // Whoever asked may have stopped waiting.
                    let _ = done.send(());
                }
            }
        }
    }

    /// Whether every handle is gone, so that no message will come.
    fn abandoned(&self) -> bool {
        self.messages.is_closed() && self.messages.is_empty()
    }

    fn hear(&mut self, message: Message<I, A>) {
        match message {
            Message::Arrived(entry, waiting) => {
                self.dispatcher.arrive(self.lane, entry);
                self.waiting.insert(entry.id, waiting);
            }
            Message::Departed(entry) => {
                if self.dispatcher.depart(self.lane, &entry) {
                    self.take(&entry);
                }
            }
            Message::Drain(done) => {
                self.draining = true;
                self.dispatcher.drain(self.lane);
                self.drained.push(done);
            }
        }
    }

    /// Asks the policy and does what it says until it wants nothing now; returns when it wants to be asked again.
    fn obey(&mut self) -> Option<Instant> {
        loop {
            let now = self.pool.clock.now();
            match self.dispatcher.next(now) {
                Step::Release { entries, reason, .. } => {
                    // Cannot fail while the policy keeps its laws; the permit is what makes sure.
                    let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
                    self.release(now, entries, reason, permit);
                }
                Step::Shed { entries, reason, .. } => self.shed(now, entries, reason),
                Step::WaitUntil(at) => return Some(at),
                Step::Park => return None,
            }
        }
    }

    /// Takes the first `entries` out of the queue and sends them to a runner: those whose callers are still there.
    fn release(&mut self, now: Instant, entries: usize, reason: ReleaseReason, permit: OwnedSemaphorePermit) {
        // The cap holds whatever the policy says.
        let (most, _) = self.dispatcher.queue(self.lane).prefix(self.pool.max_batch);
        let released: Vec<Entry> = self.dispatcher.take(self.lane, 0..entries.clamp(1, most.max(1))).collect();
        let (mut batch, mut passengers) = (Vec::with_capacity(released.len()), Vec::with_capacity(released.len()));
        let (mut rows, mut first_arrival) = (0, now);
        for entry in released {
            let Some(waiting) = self.take(&entry) else { continue };
            if waiting.reply.is_closed() {
                continue;
            }
            rows += entry.rows;
            first_arrival = first_arrival.min(entry.arrival);
            self.pool.metrics.queue_wait.record(now.since(entry.arrival));
            batch.push(waiting.item);
            passengers.push(Passenger { arrival: entry.arrival, reply: waiting.reply });
        }
        if batch.is_empty() {
            return;
        }
        if let Some(predicted) = self.dispatcher.fit(self.lane).predict(rows) {
            self.pool.metrics.predicted_batch_duration.record(predicted);
        }
        self.pool.metrics.count_release(reason);
        self.pool.metrics.batch_size.record(rows as f64);
        self.pool.metrics.in_flight_batches.increment(1.0);
        let launched = Batch { entries: batch.len(), rows, first_arrival };
        let flight = Flight { ticket: self.dispatcher.launch(now, self.lane, launched), since: now, rows };
        let answers = self.executor.execute(batch);
        self.flights.push(Box::pin(async move { Landed { flight, passengers, outcome: answers.await, permit } }));
    }

    fn shed(&mut self, now: Instant, entries: Range<usize>, reason: ShedReason) {
        let view = self.dispatcher.view(now, self.lane);
        let start_behind_queue = view.start_after(now, view.queue.rows() / view.max_batch);
        let done = match reason {
            ShedReason::Expired => now,
            ShedReason::BatchTooLate => view.start_after(now, 0) + view.batch_time(view.queue.rows()),
            ShedReason::QueueTooLong => start_behind_queue + view.batch_time(view.max_batch),
        };
        let retry_after = start_behind_queue.since(now).max(SHORTEST_RETRY);
        let refused: Vec<Entry> = self.dispatcher.take(self.lane, entries).collect();
        for entry in refused {
            let Some(waiting) = self.take(&entry) else { continue };
            let refusal = Error::Late {
                predicted_ms: done.since(entry.arrival).as_secs_f64() * 1e3,
                deadline_ms: waiting.within.as_secs_f64() * 1e3,
                retry_after,
            };
            // The caller may have left.
            let _ = waiting.reply.send(Err(refusal));
        }
    }

    /// Takes an item that has left the queue, and gives its room back.
    fn take(&mut self, entry: &Entry) -> Option<Waiting<I, A>> {
        let waiting = self.waiting.remove(&entry.id)?;
        self.pool.bounds.leave(Weight { rows: entry.rows, bytes: waiting.bytes });
        Some(waiting)
    }

    /// Learns from a batch that has come back and frees its runner.
    fn land(&mut self, now: Instant, landed: Landed<A>) -> Deliveries<A> {
        let Landed { flight, passengers, outcome, permit } = landed;
        drop(permit);
        let time = now.since(flight.since);
        self.pool.metrics.in_flight_batches.decrement(1.0);
        self.pool.metrics.runner_busy_seconds.increment(time.as_secs_f64());
        let outcome = outcome.and_then(|answers| {
            let (have, want) = (answers.len(), passengers.len());
            let short = || BatchError(format!("{have} answers for {want} items"));
            (have == want).then_some(answers).ok_or_else(short)
        });
        self.dispatcher.land(now, flight.ticket, outcome.is_ok());
        match &outcome {
            Ok(_) => self.pool.metrics.batch_duration.record(time),
            Err(why) => tracing::error!(pool = self.pool.name, rows = flight.rows, %why, "a batch failed"),
        }
        Deliveries { flight, time, passengers, outcome }
    }

    fn deliver(&self, deliveries: Deliveries<A>) {
        let Deliveries { flight, time, passengers, outcome } = deliveries;
        let answer_to = |passenger: Passenger<A>, answer: Result<A, Error>| {
            let answered = answer.map(|answer| Answered {
                answer,
                queue: flight.since.since(passenger.arrival),
                batch: time,
                batch_rows: flight.rows,
            });
            // The caller may have left.
            let _ = passenger.reply.send(answered);
        };
        match outcome {
            Ok(answers) => passengers.into_iter().zip(answers).for_each(|(p, answer)| answer_to(p, Ok(answer))),
            Err(_) => passengers.into_iter().for_each(|p| answer_to(p, Err(Error::ModelFailed))),
        }
    }
}

/// The answers of a batch, on their way to their callers.
struct Deliveries<A> {
    flight: Flight,
    time: Duration,
    passengers: Vec<Passenger<A>>,
    outcome: Result<Vec<A>, BatchError>,
}
