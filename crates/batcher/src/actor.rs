//! The task that owns a pool: hears of events in all its queues, asks the policy, obeys.
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

use super::Answered;
use super::alarm::Alarm;
use super::clock::Clock;
use super::desk::{Boarded, Desk, Reply, Waiting};
use super::executor::{BatchError, Ran};
use super::observer::{Landed, Learned, RefusalReason, Refused, Released, Rider, SpanRef, Waits};
use crate::Error;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Dispatcher, Entry, Landing, Lane, LaneId, ReleaseReason, ShedReason, Step};

/// Messages taken in before the policy is asked: one question for a crowd that arrives at once, and still a bound on how
/// long a landed batch can go unnoticed.
const INTAKE: usize = 512;
/// Holds that end sooner than this from now end by the alarm. Of a longer one, the millisecond or so by which tokio's timer
/// is late is little, and the alarm's thread need not be woken for it.
const SHORT_HOLD: Duration = Duration::from_millis(10);
/// The least that a refused caller is asked to stay away.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);

/// What the actor hears.
pub(super) enum Message<I, A> {
    /// A queue was added to the pool.
    Opened(LaneId, Box<(Lane, Desk<I, A>)>),
    /// An admitted item.
    Arrived(LaneId, Entry, Waiting<I, A>),
    /// Its caller has left.
    Departed(LaneId, Entry),
    /// Answer all that wait, then say so.
    Drain(LaneId, oneshot::Sender<()>),
    /// The last handle is gone: remove the queue once nothing waits or runs any more.
    Closed(LaneId),
}

pub(super) struct Actor<I, A> {
    clock: Clock,
    messages: mpsc::UnboundedReceiver<Message<I, A>>,
    /// The outbound semaphore: a permit for each runner, held while a batch is with it.
    permits: Arc<Semaphore>,
    /// Order and urgency of what waits, and what to do next.
    dispatcher: Dispatcher,
    /// The items themselves: a desk for each lane of the dispatcher.
    desks: HashMap<LaneId, Desk<I, A>>,
    flights: FuturesUnordered<BoxFuture<'static, Back<A>>>,
    /// Ends short holds; tokio's timer stands behind it, and alone where time is stopped.
    alarm: Alarm,
}

/// A batch that has come back, with or without answers.
struct Back<A> {
    flight: Flight,
    ways_back: Vec<(Instant, Reply<A>)>,
    outcome: Result<Ran<A>, BatchError>,
    permit: OwnedSemaphorePermit,
}

/// A batch that is with a runner.
struct Flight {
    ticket: u64,
    lane: LaneId,
    since: Instant,
    riders: Vec<Rider>,
    rows: usize,
    predicted: Option<Duration>,
    span: Option<SpanRef>,
}

impl<I: Send + 'static, A: Send + 'static> Actor<I, A> {
    pub(super) fn new(runners: usize, clock: Clock, messages: mpsc::UnboundedReceiver<Message<I, A>>) -> Self {
        Actor {
            clock,
            messages,
            permits: Arc::new(Semaphore::new(runners)),
            dispatcher: Dispatcher::new(runners),
            desks: HashMap::new(),
            flights: FuturesUnordered::new(),
            alarm: Alarm::default(),
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
                () = self.alarm.rung(), if wake_at.is_some() => {}
                () = &mut wake, if wake_at.is_some() => {}
                else => return,
            }
            let now = self.clock.now();
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
                    wake.as_mut().reset(self.clock.to_tokio(at));
                }
                self.set_alarm(now, next);
            }
            self.tidy(now);
        }
    }

    /// Sets the alarm for a short hold that ends at `next`, or for nothing. Without a free runner nothing is held: what is
    /// waited for then is the end of a batch, and a refusal may come a millisecond late.
    fn set_alarm(&mut self, now: Instant, next: Option<Instant>) {
        let is_held = self.permits.available_permits() > 0;
        let short = next.filter(|at| is_held && at.since(now) < SHORT_HOLD);
        match short.and_then(|at| self.clock.to_system(at)) {
            Some(at) => self.alarm.set(at),
            None => self.alarm.clear(),
        }
    }

    /// Shows what waits in each queue, and finishes those in which nothing does any more.
    fn tidy(&mut self, now: Instant) {
        let dispatcher = &mut self.dispatcher;
        self.desks.retain(|lane, desk| {
            let queue = dispatcher.queue(*lane);
            desk.observers.waits(now, Waits { rows: queue.rows(), ..desk.bounds.waits() });
            if !queue.is_empty() || desk.in_flight > 0 {
                return true;
            }
            for done in desk.drained.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
            if desk.closing {
                dispatcher.close(*lane);
            }
            !desk.closing
        });
    }

    /// Whether every handle is gone, so that no message will come.
    fn abandoned(&self) -> bool {
        self.messages.is_closed() && self.messages.is_empty()
    }

    fn hear(&mut self, message: Message<I, A>) {
        match message {
            Message::Opened(lane, opened) => {
                let (queue, desk) = *opened;
                let id = self.dispatcher.open(queue);
                debug_assert_eq!(id, lane, "queues are opened in the order in which their handles count them");
                self.desks.insert(id, desk);
            }
            Message::Arrived(lane, entry, waiting) => {
                // Nobody submits to a queue whose last handle is gone.
                let Some(desk) = self.desks.get_mut(&lane) else { return };
                self.dispatcher.arrive(lane, entry);
                desk.waiting.insert(entry.id, waiting);
            }
            Message::Departed(lane, entry) => {
                let Some(desk) = self.desks.get_mut(&lane) else { return };
                if self.dispatcher.depart(lane, &entry) {
                    desk.take(&entry);
                }
            }
            Message::Drain(lane, done) => {
                let Some(desk) = self.desks.get_mut(&lane) else { return };
                self.dispatcher.drain(lane);
                desk.drained.push(done);
            }
            Message::Closed(lane) => {
                let Some(desk) = self.desks.get_mut(&lane) else { return };
                self.dispatcher.drain(lane);
                desk.closing = true;
            }
        }
    }

    /// Asks the policy and does what it says until it wants nothing now; returns when it wants to be asked again.
    fn obey(&mut self) -> Option<Instant> {
        loop {
            let now = self.clock.now();
            match self.dispatcher.next(now) {
                Step::Release { lane, entries, reason } => {
                    // Cannot fail while the policy keeps its laws; the permit is what makes sure.
                    let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
                    self.release(now, lane, entries, reason, permit);
                }
                Step::Shed { lane, entries, reason } => self.shed(now, lane, entries, reason),
                Step::WaitUntil(at) => {
                    self.note_holds(now);
                    return Some(at);
                }
                Step::Park => {
                    self.note_holds(now);
                    return None;
                }
            }
        }
    }

    /// Notes since when queues wait for something else than a runner.
    fn note_holds(&mut self, now: Instant) {
        let has_free_runner = self.permits.available_permits() > 0;
        for (lane, desk) in &mut self.desks {
            let is_held = has_free_runner && !self.dispatcher.queue(*lane).is_empty();
            desk.held_since = if is_held { desk.held_since.or(Some(now)) } else { None };
        }
    }

    /// Takes the first `entries` out of a queue and sends them to a runner: those whose callers are still there.
    fn release(
        &mut self,
        now: Instant,
        lane: LaneId,
        entries: usize,
        reason: ReleaseReason,
        permit: OwnedSemaphorePermit,
    ) {
        let Some(desk) = self.desks.get_mut(&lane) else { return };
        // The cap holds whatever the policy says.
        let (most, _) = self.dispatcher.queue(lane).prefix(desk.max_batch);
        let released = self.dispatcher.take(lane, 0..entries.clamp(1, most.max(1))).collect();
        let Boarded { items, riders, ways_back, batch } = desk.board(now, released);
        if items.is_empty() {
            return;
        }
        desk.in_flight += 1;
        let held = desk.held_since.take().map_or(Duration::ZERO, |since| now.since(since));
        let rows = batch.rows;
        let predicted = self.dispatcher.predict(lane, rows);
        let ticket = self.dispatcher.launch(now, lane, batch);
        let span = desk.observers.released(now, &Released { ticket, riders: &riders, rows, reason, held, predicted });
        let flight = Flight { ticket, lane, since: now, riders, rows, predicted, span };
        let answers = desk.executor.execute(items);
        self.flights.push(Box::pin(async move { Back { flight, ways_back, outcome: answers.await, permit } }));
    }

    fn shed(&mut self, now: Instant, lane: LaneId, entries: Range<usize>, reason: ShedReason) {
        let view = self.dispatcher.view(now, lane);
        let start_behind_queue = view.start_after(now, view.queue.rows() / view.max_batch);
        let done = match reason {
            ShedReason::Expired => now,
            ShedReason::BatchTooLate => view.start_after(now, 0) + view.batch_time(view.queue.rows()),
            ShedReason::QueueTooLong => start_behind_queue + view.batch_time(view.max_batch),
        };
        let retry_after = start_behind_queue.since(now).max(SHORTEST_RETRY);
        let refused: Vec<Entry> = self.dispatcher.take(lane, entries).collect();
        let Some(desk) = self.desks.get_mut(&lane) else { return };
        let (mut items, mut told) = (0, None);
        for entry in refused {
            let Some(waiting) = desk.take(&entry) else { continue };
            // Its deadline leaves time for the way back, which is part of what it is told.
            let way_back = waiting.within.saturating_sub(entry.deadline.since(entry.arrival));
            let refusal = Error::Late {
                predicted_ms: (done.since(entry.arrival) + way_back).as_secs_f64() * 1e3,
                deadline_ms: waiting.within.as_secs_f64() * 1e3,
                retry_after,
            };
            items += 1;
            told = Some(refusal.clone());
            // The caller may have left.
            let _ = waiting.reply.send(Err(refusal));
        }
        if let Some(told) = told {
            let reason = RefusalReason::Shed(reason);
            desk.observers.refused(now, &Refused { reason, items, told: &told });
        }
    }

    /// Learns from a batch that has come back and frees its runner.
    fn land(&mut self, now: Instant, back: Back<A>) -> Deliveries<A> {
        let Back { flight, ways_back, outcome, permit } = back;
        drop(permit);
        let Flight { ticket, lane, ref riders, rows, predicted, span, .. } = flight;
        // What runs the batch knows best how long it ran, and when it began at the earliest.
        let took = now.since(flight.since);
        let took = outcome.as_ref().ok().and_then(|ran| ran.took).map_or(took, |own| own.min(took));
        let outcome = outcome.and_then(|ran| {
            let (have, want) = (ran.answers.len(), ways_back.len());
            let short = || BatchError::new(format!("{have} answers for {want} items"));
            (have == want).then_some(ran).ok_or_else(short)
        });
        let late = || ways_back.iter().filter(|(deadline, _)| now > *deadline).count();
        let is_typical = outcome.as_ref().is_ok_and(|ran| ran.is_typical);
        let landing = if is_typical { Landing::Answered { took, late: late() } } else { Landing::Failed };
        self.dispatcher.land(now, ticket, landing);
        // A desk stays until its last batch is back.
        if let Some(desk) = self.desks.get_mut(&lane) {
            desk.in_flight -= 1;
            let failed = outcome.as_ref().err();
            desk.observers.landed(now, &Landed { ticket, riders, rows, predicted, took, span, failed });
            if is_typical {
                desk.observers.learned(now, &Learned { rows, took, fit: self.dispatcher.fit(lane) });
            }
        }
        Deliveries { flight, took, ways_back, outcome }
    }

    fn deliver(&self, deliveries: Deliveries<A>) {
        let Deliveries { flight, took, ways_back, outcome } = deliveries;
        let answer_to = |(arrival, reply): (Instant, Reply<A>), answer: Result<A, Error>| {
            let answered = answer.map(|answer| Answered {
                answer,
                queue: flight.since.since(arrival),
                batch: took,
                batch_rows: flight.rows,
                batch_span: flight.span,
            });
            // The caller may have left.
            let _ = reply.send(answered);
        };
        let callers = flight.riders.iter().zip(ways_back).map(|(rider, (_, reply))| (rider.arrival, reply));
        match outcome {
            Ok(ran) => callers.zip(ran.answers).for_each(|(caller, answer)| answer_to(caller, Ok(answer))),
            Err(_) => callers.for_each(|caller| answer_to(caller, Err(Error::Failed))),
        }
    }
}

/// The answers of a batch, on their way to their callers.
struct Deliveries<A> {
    flight: Flight,
    took: Duration,
    ways_back: Vec<(Instant, Reply<A>)>,
    outcome: Result<Ran<A>, BatchError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an actor sets its alarm for a hold of so many ms.
    fn sets_alarm(runners: usize, hold_ms: Option<u64>) -> bool {
        let (_inbox, messages) = mpsc::unbounded_channel();
        let mut actor = Actor::<(), ()>::new(runners, Clock::start(), messages);
        let now = actor.clock.now() + Duration::from_secs(3600); // does not ring while this looks at it
        actor.set_alarm(now, Some(now + Duration::from_millis(1)));
        actor.set_alarm(now, hold_ms.map(|ms| now + Duration::from_millis(ms)));
        actor.alarm.is_set()
    }

    #[tokio::test]
    async fn short_holds_end_by_the_alarm_and_nothing_else_does() {
        assert!(sets_alarm(1, Some(1)));
        assert!(!sets_alarm(1, Some(50)), "a millisecond is little of it");
        assert!(!sets_alarm(1, None), "nothing is held");
        assert!(!sets_alarm(0, Some(1)), "no runner is free");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_ends_by_the_alarm_where_time_is_stopped() {
        assert!(!sets_alarm(1, Some(1)));
    }
}
