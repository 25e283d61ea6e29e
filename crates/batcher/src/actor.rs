//! The task that owns a pool: hears of events in all its queues, asks the policy, obeys.
//!
//! There are no ticks. The actor sleeps until an item arrives, a batch lands, a caller leaves, or an instant comes that
//! the policy asked to be woken at.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::Answered;
use super::alarm::Alarm;
use super::clock::Clock;
use super::desk::{Boarded, Desk, Reply, Waiting};
use super::executor::BatchError;
use super::fence::{Outcome, caught};
use super::observer::{Abandoned, Landed, Learned, RefusalReason, Refused, Rehearsed, Released, Rider, SpanRef, Waits};
use super::relay;
use crate::Error;
use uncork_core::estimator::Instant;
use uncork_core::policy::{
    Batch, Dispatcher, Entry, GivenUp, Landing, Lane, LaneId, Rehearsal, Shed, ShedReason, Step,
};

/// Messages taken in before the policy is asked: one question for a crowd that arrives at once, and still a bound on how
/// long a landed batch can go unnoticed.
const INTAKE: usize = 512;
/// Holds that end sooner than this from now end by the alarm. Of a longer one, the millisecond or so by which tokio's timer
/// is late is little, and the alarm's thread need not be woken for it.
const SHORT_HOLD: Duration = Duration::from_millis(10);
/// So few answers are sent by the thread that ran them, though it has the next batch to do: waking another costs as much as some of them.
const FEW: usize = 8;
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

impl<I, A> Message<I, A> {
    fn lane(&self) -> LaneId {
        match self {
            Message::Opened(lane, _)
            | Message::Arrived(lane, ..)
            | Message::Departed(lane, _)
            | Message::Drain(lane, _)
            | Message::Closed(lane) => *lane,
        }
    }
}

pub(super) struct Actor<I, A> {
    clock: Clock,
    messages: mpsc::UnboundedReceiver<Message<I, A>>,
    /// Order and urgency of what waits, and what to do next.
    dispatcher: Dispatcher,
    /// The items themselves: a desk for each lane of the dispatcher.
    desks: HashMap<LaneId, Desk<I, A>>,
    /// Those to which something has happened since they were looked at last, and those where something waits: the others of a large pool are to
    /// cost nothing.
    stirred: BTreeSet<LaneId>,
    flights: FuturesUnordered<BoxFuture<'static, (u64, Outcome<A>)>>,
    /// What those are, by ticket.
    aloft: HashMap<u64, Aloft<A>>,
    /// Ends short holds; tokio's timer stands behind it, and alone where time is stopped.
    alarm: Alarm,
}

/// What is with a runner.
enum Aloft<A> {
    Batch(Flight<A>),
    Rehearsal(Rehearsal, Instant),
}

impl<A> Aloft<A> {
    fn lane(&self) -> LaneId {
        match self {
            Aloft::Batch(flight) => flight.batch.lane,
            Aloft::Rehearsal(rehearsal, _) => rehearsal.lane,
        }
    }
}

/// A batch that is with a runner, and those whose items are in it.
struct Flight<A> {
    batch: Batch,
    since: Instant,
    riders: Vec<Rider>,
    replies: Vec<Reply<A>>,
    span: Option<SpanRef>,
}

impl<I: Send + 'static, A: Send + 'static> Actor<I, A> {
    pub(super) fn new(runners: usize, clock: Clock, messages: mpsc::UnboundedReceiver<Message<I, A>>) -> Self {
        Actor {
            clock,
            messages,
            dispatcher: Dispatcher::new(runners),
            desks: HashMap::new(),
            stirred: BTreeSet::new(),
            flights: FuturesUnordered::new(),
            aloft: HashMap::new(),
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
            let deliveries = landed.and_then(|(ticket, outcome)| self.land(now, ticket, outcome));
            while intake.len() < INTAKE
                && let Ok(message) = self.messages.try_recv()
            {
                intake.push(message);
            }
            for message in intake.drain(..) {
                self.hear(message);
            }
            // The next batch goes out before the answers of the last one: its runner is waiting, they are not late.
            let aloft = self.aloft.len();
            let next = self.obey();
            if let Some(deliveries) = deliveries {
                let has_next = self.aloft.len() > aloft;
                if has_next && deliveries.len() > FEW {
                    relay::aside(move || drop(deliveries));
                } else {
                    drop(deliveries);
                }
            }
            if next != wake_at {
                wake_at = next;
                if let Some(at) = next {
                    wake.as_mut().reset(self.clock.to_tokio(at));
                }
                self.set_alarm(now, next);
            }
            self.tidy(now);
            if self.desks.is_empty() && self.abandoned() {
                return; // what was given up is not waited for
            }
        }
    }

    /// Sets the alarm for a short hold that ends at `next`, or for nothing. Without a free runner nothing is held: what is
    /// waited for then is the end of a batch, and a refusal may come a millisecond late.
    fn set_alarm(&mut self, now: Instant, next: Option<Instant>) {
        let is_held = self.dispatcher.has_free_runner();
        let short = next.filter(|at| is_held && at.since(now) < SHORT_HOLD);
        match short.and_then(|at| self.clock.to_system(at)) {
            Some(at) => self.alarm.set(at),
            None => self.alarm.clear(),
        }
    }

    /// Shows what waits in each queue, and finishes those in which nothing does any more.
    fn tidy(&mut self, now: Instant) {
        let (dispatcher, desks, aloft) = (&mut self.dispatcher, &mut self.desks, &self.aloft);
        self.stirred.retain(|lane| {
            let Some(desk) = desks.get_mut(lane) else { return false };
            let rows = dispatcher.queue(*lane).rows();
            let waits = desk.bounds.waits();
            desk.observers.waits(now, Waits { rows, ..waits });
            // Who was let in is answered, though it may be on its way still.
            if !dispatcher.is_idle(*lane) || waits.rows > 0 {
                return rows > 0;
            }
            for done in desk.drained.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
            // A rehearsal that is with a runner may have to be given up, which takes the desk.
            if desk.closing && aloft.values().all(|aloft| aloft.lane() != *lane) {
                dispatcher.close(*lane);
                // What it holds is its user's, and may panic as it is dropped.
                let _ = caught(|| drop(desks.remove(lane)));
            }
            false
        });
    }

    /// Whether every handle is gone, so that no message will come.
    fn abandoned(&self) -> bool {
        self.messages.is_closed() && self.messages.is_empty()
    }

    fn hear(&mut self, message: Message<I, A>) {
        self.stirred.insert(message.lane());
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
                desk.seat(&entry, waiting);
                self.make_room(lane, &entry);
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

    /// Refuses who makes room for `newcomer`, until no more waits than may.
    fn make_room(&mut self, lane: LaneId, newcomer: &Entry) {
        let Some(desk) = self.desks.get_mut(&lane) else { return };
        while let Some(full) = desk.bounds.full(desk.held) {
            let now = self.clock.now();
            let beyond = desk.held.rows.saturating_sub(desk.bounds.waits().max_rows);
            let Some(gone) = self.dispatcher.make_room(now, lane, newcomer, beyond) else { return };
            let Some(waiting) = desk.take(&gone) else { continue };
            let over_share = || Error::OverShare { retry_after: desk.bounds.retry_after() };
            let told = if gone.id == newcomer.id { full } else { over_share() };
            desk.observers.no_room(now, &told);
            // The caller may have left.
            let _ = waiting.reply.send(Err(told));
        }
    }

    /// Does what the dispatcher says until there is nothing to do; returns when to ask again.
    fn obey(&mut self) -> Option<Instant> {
        loop {
            let (now, desks, stirred) = (self.clock.now(), &mut self.desks, &mut self.stirred);
            let mut boarded = Boarded::default();
            let keep = |lane, entry: &Entry| {
                stirred.insert(lane);
                desks.get_mut(&lane).is_some_and(|desk| desk.board(entry, &mut boarded))
            };
            match self.dispatcher.poll(now, keep) {
                Step::Release(batch) => self.release(now, batch, boarded),
                Step::Rehearse(rehearsal) => self.rehearse(now, rehearsal),
                Step::GiveUp(given_up) => self.give_up(now, given_up),
                Step::Shed(shed) => self.shed(now, &shed),
                Step::WaitUntil(at) => return Some(at),
                Step::Park => return None,
            }
        }
    }

    /// Sends a batch to a runner.
    fn release(&mut self, since: Instant, batch: Batch, boarded: Boarded<I, A>) {
        let Some(desk) = self.desks.get_mut(&batch.lane) else { return };
        let Boarded { items, riders, replies } = boarded;
        let Batch { ticket, rows, reason, held, predicted, .. } = batch;
        let span = desk.observers.released(since, &Released { ticket, riders: &riders, rows, reason, held, predicted });
        let flight = Flight { batch, since, riders, replies, span };
        let running = desk.executor.execute(ticket, items);
        self.aloft.insert(ticket, Aloft::Batch(flight));
        self.flights.push(Box::pin(async move { (ticket, running.await) }));
    }

    /// Has a runner run rows of its own.
    fn rehearse(&mut self, since: Instant, rehearsal: Rehearsal) {
        let Some(desk) = self.desks.get_mut(&rehearsal.lane) else { return };
        let (ticket, back) = (rehearsal.ticket, desk.executor.rehearse(rehearsal.ticket, rehearsal.rows));
        self.aloft.insert(ticket, Aloft::Rehearsal(rehearsal, since));
        self.flights.push(Box::pin(async move { (ticket, back.await) }));
    }

    /// Tells the callers of a batch that it is not waited for any more, and has its runner replaced.
    fn give_up(&mut self, now: Instant, given_up: GivenUp) {
        let GivenUp { ticket, lane, ran, is_replaced, left_behind, .. } = given_up;
        self.stirred.insert(lane);
        let Some(desk) = self.desks.get_mut(&lane) else { return };
        desk.executor.give_up(ticket, is_replaced);
        desk.bounds.set_stuck(true);
        let rows = match self.aloft.remove(&ticket) {
            Some(Aloft::Batch(Flight { batch, riders, replies, span, .. })) => {
                let told = Error::Stuck { ran };
                let (rows, predicted, why) = (batch.rows, batch.predicted, BatchError::new(told.to_string()));
                let landed = Landed { ticket, riders: &riders, rows, predicted, took: ran, span, failed: Some(&why) };
                desk.observers.landed(now, &landed);
                // Callers may have left.
                replies.into_iter().for_each(|reply| drop(reply.send(Err(told.clone()))));
                rows
            }
            Some(Aloft::Rehearsal(rehearsal, _)) => rehearsal.rows,
            None => return,
        };
        desk.observers.abandoned(now, &Abandoned { rows, ran, is_replaced, left_behind });
    }

    /// Tells callers that they are refused, and why.
    fn shed(&mut self, now: Instant, shed: &Shed) {
        self.stirred.insert(shed.lane);
        let Some(desk) = self.desks.get_mut(&shed.lane) else { return };
        let retry_after = shed.retry_at.map(|at| at.since(now).max(SHORTEST_RETRY));
        let mut last = None;
        for entry in &shed.entries {
            let Some(waiting) = desk.take(entry) else { continue };
            // Its deadline leaves time for the way back, which is part of what it is told.
            let way_back = waiting.within.saturating_sub(entry.deadline.since(entry.arrival));
            let told = match (shed.reason, retry_after) {
                (ShedReason::QueueStands, Some(retry_after)) => Error::Overload { retry_after },
                (ShedReason::OverShare, Some(retry_after)) => Error::OverShare { retry_after },
                _ => Error::Late {
                    predicted_ms: (shed.forecast.since(entry.arrival) + way_back).as_secs_f64() * 1e3,
                    deadline_ms: waiting.within.as_secs_f64() * 1e3,
                    retry_after,
                },
            };
            last = Some(told.clone());
            // The caller may have left.
            let _ = waiting.reply.send(Err(told));
        }
        if let Some(told) = &last {
            let reason = RefusalReason::Shed(shed.reason);
            desk.observers.refused(now, &Refused { reason, items: shed.entries.len(), told });
        }
    }

    /// Learns from what has come back and frees its runner.
    fn land(&mut self, now: Instant, ticket: u64, outcome: Outcome<A>) -> Option<Deliveries<A>> {
        let Some(aloft) = self.aloft.remove(&ticket) else {
            self.dispatcher.land(now, ticket, Landing::Failed); // it was given up
            return None;
        };
        self.stirred.insert(aloft.lane());
        match aloft {
            Aloft::Batch(flight) => Some(self.land_batch(now, flight, outcome)),
            Aloft::Rehearsal(rehearsal, since) => {
                self.land_rehearsal(now, &rehearsal, since, &outcome);
                None
            }
        }
    }

    fn land_rehearsal(&mut self, now: Instant, rehearsal: &Rehearsal, since: Instant, outcome: &Outcome<A>) {
        let Rehearsal { ticket, lane, rows, .. } = *rehearsal;
        let took = time(now.since(since), outcome);
        let landing = if outcome.is_ok() { Landing::Answered { took, late: 0 } } else { Landing::Failed };
        let has_learned = self.dispatcher.land(now, ticket, landing);
        let Some(desk) = self.desks.get(&lane) else { return };
        desk.bounds.set_stuck(self.dispatcher.is_stuck(lane));
        let most_rows = self.dispatcher.most_rows(lane);
        desk.bounds.set_most_rows(most_rows);
        desk.observers.rehearsed(now, &Rehearsed { rows, took, failed: outcome.as_ref().err(), most_rows });
        if has_learned {
            self.note_learned(now, lane, rows, took);
        }
    }

    fn land_batch(&mut self, now: Instant, flight: Flight<A>, outcome: Outcome<A>) -> Deliveries<A> {
        let Flight { batch: Batch { ticket, lane, rows, predicted, .. }, ref riders, span, .. } = flight;
        let took = time(now.since(flight.since), &outcome);
        let outcome = outcome.and_then(|ran| {
            let (have, want) = (ran.answers.len(), riders.len());
            let short = || BatchError::new(format!("{have} answers for {want} items"));
            (have == want).then_some(ran).ok_or_else(short)
        });
        let late = || flight.batch.entries.iter().filter(|entry| now > entry.deadline).count();
        let landing = match &outcome {
            Ok(ran) if ran.is_typical => Landing::Answered { took, late: late() },
            Ok(_) => Landing::Repeated { took, late: late() },
            Err(_) => Landing::Failed,
        };
        let has_learned = self.dispatcher.land(now, ticket, landing);
        // A desk stays until its last batch is back.
        if let Some(desk) = self.desks.get_mut(&lane) {
            desk.bounds.set_stuck(self.dispatcher.is_stuck(lane));
            let failed = outcome.as_ref().err();
            desk.observers.landed(now, &Landed { ticket, riders, rows, predicted, took, span, failed });
            if has_learned {
                self.note_learned(now, lane, rows, took);
            } else {
                desk.bounds.set_fit(self.dispatcher.fit(lane));
            }
        }
        Deliveries { flight, took, outcome }
    }

    /// Tells what has been learned of the lane's batch times.
    fn note_learned(&self, now: Instant, lane: LaneId, rows: usize, took: Duration) {
        let Some(desk) = self.desks.get(&lane) else { return };
        let fit = self.dispatcher.fit(lane);
        desk.bounds.set_fit(fit);
        desk.observers.learned(now, &Learned { rows, took, fit: fit.clone() });
    }
}

/// How long a batch ran that was away for so long. What ran it knows best.
fn time<A>(away: Duration, outcome: &Outcome<A>) -> Duration {
    outcome.as_ref().ok().and_then(|ran| ran.took).map_or(away, |own| own.min(away))
}

/// The answers of a batch, on their way to their callers: whoever drops them sends them, so that none is lost.
struct Deliveries<A> {
    flight: Flight<A>,
    took: Duration,
    outcome: Outcome<A>,
}

impl<A> Deliveries<A> {
    fn len(&self) -> usize {
        self.flight.replies.len()
    }
}

impl<A> Drop for Deliveries<A> {
    fn drop(&mut self) {
        let Flight { ref batch, since, ref mut replies, span, .. } = self.flight;
        let answered = |entry: &Entry, answer| Answered {
            answer,
            queue: since.since(entry.arrival),
            batch: self.took,
            batch_rows: batch.rows,
            batch_span: span,
        };
        let callers = batch.entries.iter().zip(replies.drain(..));
        // Callers may have left.
        match &mut self.outcome {
            Ok(ran) => callers.zip(ran.answers.drain(..)).for_each(|((entry, reply), answer)| {
                let _ = reply.send(Ok(answered(entry, answer)));
            }),
            Err(_) => callers.for_each(|(_, reply)| {
                let _ = reply.send(Err(Error::Failed));
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use uncork_core::policy::{Cork, Priority};

    use super::*;

    /// Whether an actor with a runner that is free or busy sets its alarm for a hold of so many ms.
    fn sets_alarm(is_free: bool, hold_ms: Option<u64>) -> bool {
        let (_inbox, messages) = mpsc::unbounded_channel();
        let mut actor = Actor::<(), ()>::new(1, Clock::start(), messages);
        let now = actor.clock.now() + Duration::from_secs(3600); // does not ring while this looks at it
        if !is_free {
            let lane = actor.dispatcher.open(Lane::new(Box::new(Cork), 1));
            let (deadline, priority) = (Instant::FAR_FUTURE, Priority::DEFAULT);
            actor.dispatcher.arrive(lane, Entry { priority, ..Entry::new(0, now, deadline) });
            assert!(matches!(actor.dispatcher.poll(now, |_, _| true), Step::Release(_)));
        }
        actor.set_alarm(now, Some(now + Duration::from_millis(1)));
        actor.set_alarm(now, hold_ms.map(|ms| now + Duration::from_millis(ms)));
        actor.alarm.is_set()
    }

    #[tokio::test]
    async fn short_holds_end_by_the_alarm_and_nothing_else_does() {
        assert!(sets_alarm(true, Some(1)));
        assert!(!sets_alarm(true, Some(50)), "a millisecond is little of it");
        assert!(!sets_alarm(true, None), "nothing is held");
        assert!(!sets_alarm(false, Some(1)), "no runner is free");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_ends_by_the_alarm_where_time_is_stopped() {
        assert!(!sets_alarm(true, Some(1)));
    }
}
