//! One pool without its I/O: what waits, what runs and what has been learned.
//!
//! Whoever drives it (the batcher's actor, the simulator, a test) tells it of every event with its time, [polls](Dispatcher::poll)
//! it for the next [`Step`], and obeys. It reads no clock, starts nothing and answers nobody.

mod alarm;
mod contest;
mod step;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use self::alarm::{Alarm, sooner};
pub use self::step::{Batch, GivenUp, Landing, Rehearsal, Shed, Step};
use super::rehearsal::{Rehearsals, Wanted};
use super::{Arbiter, Decision, Entry, Lane, LaneId, Queue, ReleaseReason, Running, ShedReason, Standing, View};
use crate::estimator::{Answers, Fit, Instant};

/// A pool of runners and the queues that it serves.
pub struct Dispatcher {
    runners: usize,
    lanes: BTreeMap<LaneId, Lane>,
    /// Keeps an account for each of `lanes`.
    arbiter: Arbiter,
    running: Vec<Running>,
    tickets: u64,
    opened: LaneId,
    /// When something last arrived or landed.
    stirred: Instant,
    alarm: Alarm,
    /// When batches are given up that are running, by their tickets.
    limits: Vec<(u64, Instant)>,
    /// Batches that were given up and still occupy their runners, and those whose runners were replaced.
    stuck: Vec<u64>,
    left_behind: Vec<u64>,
}

/// Runners that are left behind at once with batches that were given up. Each may hold all that a model needs, and a
/// processor for ever: beyond so many the pool rather has a runner less.
const MOST_LEFT_BEHIND: usize = 4;

/// Takes this ticket out of some, and says whether it was among them.
fn take(tickets: &mut Vec<u64>, ticket: u64) -> bool {
    let at = tickets.iter().position(|other| *other == ticket);
    at.map(|at| tickets.swap_remove(at)).is_some()
}

/// What is said of lanes that the driver knows.
const OPEN: &str = "the driver names lanes that it has opened and not closed";

impl Dispatcher {
    /// A pool that runs as many batches at once as it has `runners` (0 is taken as 1), without a queue.
    #[must_use]
    pub fn new(runners: usize) -> Dispatcher {
        let runners = runners.max(1);
        let arbiter = Arbiter::new(runners);
        Dispatcher {
            runners,
            lanes: BTreeMap::new(),
            arbiter,
            running: Vec::new(),
            tickets: 0,
            opened: 0,
            stirred: Instant::EPOCH,
            alarm: Alarm::default(),
            limits: Vec::new(),
            stuck: Vec::new(),
            left_behind: Vec::new(),
        }
    }

    /// Adds a queue to the pool.
    pub fn open(&mut self, lane: Lane) -> LaneId {
        let id = self.opened;
        self.opened += 1;
        self.arbiter.open(id, lane.weight.get());
        self.arbiter.know(id, lane.full_batch());
        self.lanes.insert(id, lane);
        id
    }

    /// Removes a queue from the pool. What still waits in it is forgotten, so it is to be [drained](Self::drain) before;
    /// batches of its that run still have to [`land`](Self::land).
    pub fn close(&mut self, lane: LaneId) {
        self.lanes.remove(&lane).expect(OPEN);
        self.arbiter.close(lane);
        self.bound_batches(self.stirred);
    }

    /// An entry has arrived.
    pub fn arrive(&mut self, lane: LaneId, entry: Entry) {
        let (flying, runners) = (self.flying(lane), self.runners);
        self.stirred = self.stirred.max(entry.arrival);
        let memory = (self.lanes.len() > 1).then(|| self.arbiter.memory().as_secs_f64());
        let lane = self.touch(lane);
        lane.arrive(entry, flying, runners, memory);
        if lane.queue.len() == 1 {
            self.bound_batches(self.stirred); // it may have come after a long silence
        }
    }

    /// A caller has left; `false` if its entry waits no more.
    pub fn depart(&mut self, lane: LaneId, entry: &Entry) -> bool {
        self.touch(lane).queue.remove_entry(entry).is_some()
    }

    /// With `entry` more waits than the driver has room for, by so many rows `beyond`. Takes out who makes room: the newest of another caller
    /// who has more in its priority, by weight, or else the entry itself, as where such callers could not make room enough. `None` if it waits
    /// no more.
    pub fn make_room(&mut self, now: Instant, lane: LaneId, entry: &Entry, beyond: usize) -> Option<Entry> {
        let lane = self.touch(lane);
        let own = lane.queue.position(entry)?;
        let other = lane.queue.in_place_of(own, lane.queue.len());
        let at = other.filter(|_| lane.queue.spare_beside(own) >= beyond as u64).unwrap_or(own);
        lane.refuse(now, at..at + 1).pop()
    }

    /// Nothing will arrive any more: what waits is released without holding back.
    pub fn drain(&mut self, lane: LaneId) {
        self.touch(lane).draining = true;
    }

    /// What to do at `now`. Poll again after it has been done, until it says to wait or to park.
    ///
    /// `keep` is shown each entry of a batch just before that is handed out, in order; those that it does not keep, because
    /// their callers have left, are dropped from queue and batch. The caps hold whatever a policy says: no batch has more
    /// rows than its lane may have or is released while no runner is free.
    ///
    /// Refusals of all lanes come first: whoever will be late is told so before anything else happens, and does not count
    /// in what the arbiter compares. Only lanes are asked to which something has happened since they were asked last.
    pub fn poll(&mut self, now: Instant, mut keep: impl FnMut(LaneId, &Entry) -> bool) -> Step {
        self.alarm.rang(now);
        if let Some(given_up) = self.give_up(now) {
            return Step::GiveUp(given_up);
        }
        loop {
            match self.peek(now) {
                (Some(lane), Decision::Release { entries, reason }) => {
                    if let Some(batch) = self.release(now, lane, entries, reason, &mut keep) {
                        return Step::Release(batch);
                    }
                }
                (Some(lane), Decision::Shed { entries, reason, forecast, retry_at }) => {
                    return Step::Shed(self.shed(now, lane, entries, reason, forecast, retry_at));
                }
                (Some(lane), Decision::Rehearse { rows }) => return Step::Rehearse(self.rehearse(now, lane, rows)),
                (_, rest) => {
                    let is_free = self.has_free_runner();
                    self.lanes.values_mut().for_each(|lane| lane.note_hold(now, is_free));
                    let Decision::WaitUntil(at) = rest else { return Step::Park };
                    self.alarm.set(at);
                    return Step::WaitUntil(at);
                }
            }
        }
    }

    /// What is decided at `now` and for which lane, none of it done yet: [`poll`](Self::poll) does it.
    pub fn peek(&mut self, now: Instant) -> (Option<LaneId>, Decision) {
        let (is_free, are_several) = (self.has_free_runner(), self.lanes.len() > 1);
        if are_several && is_free {
            self.settle(now);
            // Those for whom one leaves runners free may have fallen silent.
            if self.lanes.values().any(|lane| lane.leaves.runner) {
                self.bound_batches(now);
            }
        }
        let (mut ready, mut claims, mut held, mut rest) = (None, Vec::new(), Vec::new(), Decision::Park);
        let mut next = self.lanes.keys().next().copied();
        while let Some(lane) = next {
            match self.says(now, lane) {
                shed @ Decision::Shed { .. } => return (Some(lane), shed),
                run @ (Decision::Release { .. } | Decision::Rehearse { .. }) if is_free => {
                    if are_several {
                        claims.push(self.claim(lane));
                    }
                    ready = Some((lane, run));
                }
                Decision::WaitUntil(at) => {
                    held.extend((are_several && is_free).then_some(lane));
                    rest = sooner(rest, at);
                }
                Decision::Release { .. } | Decision::Rehearse { .. } | Decision::Park => {}
            }
            next = are_several.then(|| self.lanes.range(lane + 1..).next()).flatten().map(|(lane, _)| *lane);
        }
        if let Some(chosen) = self.arbiter.choose(now, &claims) {
            ready = self.contested(now, &chosen, &held).or_else(|| Some((chosen.lane, self.says(now, chosen.lane))));
        }
        let rest = self.limits.iter().fold(rest, |rest, (_, at)| sooner(rest, *at));
        ready.map_or((None, rest), |(lane, run)| (Some(lane), run))
    }

    /// What is decided for this lane: what its policy says, unless a rehearsal is due and nobody is refused.
    fn says(&mut self, now: Instant, id: LaneId) -> Decision {
        let said = self.ask(now, id);
        let is_curious = self.lanes[&id].is_curious() && self.has_free_runner();
        if !is_curious || matches!(said, Decision::Shed { .. }) {
            return said;
        }
        match self.wanted_rehearsal(id) {
            Some(Wanted { at, rows, .. }) if at <= now => Decision::Rehearse { rows },
            Some(Wanted { at, .. }) if !matches!(said, Decision::Release { .. }) => sooner(said, at),
            _ => said,
        }
    }

    /// The rehearsal that the lane wants next. An estimate is not tested while a batch as large runs, which will renew it, and one
    /// rehearsal of a lane runs at a time.
    fn wanted_rehearsal(&self, id: LaneId) -> Option<Wanted> {
        let is_quiet = self.running.is_empty() && self.lanes.values().all(|lane| lane.queue.is_empty());
        let lane = &self.lanes[&id];
        let wanted = lane.wanted_rehearsal(is_quiet.then_some(self.stirred))?;
        let mut own = self.running.iter().filter(|batch| batch.lane == id);
        let waits =
            own.any(|batch| wanted.is_test && lane.sizes.padded(batch.rows) >= wanted.rows || batch.is_rehearsal());
        (!waits).then_some(wanted)
    }

    /// What the policy of the lane says, asked only if that can have changed.
    fn ask(&mut self, now: Instant, id: LaneId) -> Decision {
        let lane = &self.lanes[&id];
        if lane.queue.is_empty() {
            return Decision::Park;
        }
        if let Some(decision) = lane.still_says(now) {
            return decision;
        }
        let decision = match lane.policy.decide(now, self.view_of(now, id, lane)) {
            Decision::Rehearse { .. } => Decision::Park, // that is not for a policy to say
            decision => decision,
        };
        self.lane_mut(id).said = Some((now, decision.clone()));
        decision
    }

    /// Sends the first `entries` that are kept to a runner; `None` if none is.
    fn release(
        &mut self,
        now: Instant,
        id: LaneId,
        entries: usize,
        reason: ReleaseReason,
        keep: &mut impl FnMut(LaneId, &Entry) -> bool,
    ) -> Option<Batch> {
        let part_of_pool = self.runners as f64 * self.standing(now, id).share;
        let lane = self.touch(id);
        let most_rows = lane.most_rows();
        let (most, _) = lane.queue.prefix(most_rows);
        let first = lane.queue.remove(0..entries.clamp(1, most.max(1)));
        let entries: Vec<Entry> = first.filter(|entry| keep(id, entry)).collect();
        let first_arrival = entries.iter().map(|entry| entry.arrival).min()?;
        let rows = entries.iter().map(|entry| entry.rows).sum();
        let held = lane.held_since.take().map_or(Duration::ZERO, |since| now.since(since));
        lane.note_release(now, &entries, rows, part_of_pool);
        let (predicted, part) = (lane.predict(rows), rows as f64 / most_rows as f64);
        let ticket = self.launch(now, id, entries.len(), rows, now.since(first_arrival));
        self.arbiter.released(id, part);
        Some(Batch { ticket, lane: id, entries, rows, reason, held, predicted })
    }

    /// Sends rows that are nobody's to a runner.
    fn rehearse(&mut self, now: Instant, id: LaneId, rows: usize) -> Rehearsal {
        let lane = self.touch(id);
        lane.rehearsals.as_mut().into_iter().for_each(Rehearsals::begun);
        let predicted = lane.predict(rows);
        Rehearsal { ticket: self.launch(now, id, 0, rows, Duration::ZERO), lane: id, rows, predicted }
    }

    /// Books a batch that goes to a runner; returns its ticket.
    fn launch(&mut self, now: Instant, lane: LaneId, entries: usize, rows: usize, waited: Duration) -> u64 {
        let (ticket, expected) = (self.tickets, self.lane(lane).mean_time(rows));
        self.tickets += 1;
        self.alarm.fade();
        // At once, not when the batch is back: with several runners, a lane could otherwise take them all unseen.
        self.settle(now);
        self.arbiter.charge(lane, expected.unwrap_or_default());
        self.running.push(Running { ticket, lane, since: now, entries, rows, waited, expected });
        self.limits.extend(self.lane(lane).stuck_after.map(|limit| (ticket, now + limit)));
        self.stirred = self.stirred.max(now);
        self.bound_batches(now);
        // Lanes that wait or hold do not lose by it; those that wanted this runner have to think again.
        for lane in self.lanes.values_mut() {
            lane.said.take_if(|(_, decision)| matches!(decision, Decision::Release { .. }));
        }
        ticket
    }

    /// Takes these entries out to be refused; where some of them could be served at another time and some never, those up to
    /// the first that differs. Who would be late behind others is served where another caller has more waiting, who makes room for him:
    /// the queue's room is shared out by max-min fairness (the *longest queue drop* of Suter, Lakshman, Stiliadis and Choudhury, 1998).
    fn shed(
        &mut self,
        now: Instant,
        id: LaneId,
        entries: Range<usize>,
        reason: ShedReason,
        forecast: Instant,
        retry_at: Instant,
    ) -> Shed {
        let view = self.view_alone(id, self.lane(id));
        let (entries, reason) = match reason {
            ShedReason::QueueTooLong | ShedReason::QueueStands if entries.len() == 1 => {
                let other = view.queue.in_place_of(entries.start, entries.start);
                other.map_or((entries, reason), |at| (at..at + 1, ShedReason::OverShare))
            }
            _ => (entries, reason),
        };
        let has_a_chance = |at: usize| view.queue.get(at).is_some_and(|e| view.batch_time(e.rows) <= e.given());
        let retries = has_a_chance(entries.start);
        let alike = entries.clone().take_while(|&at| has_a_chance(at) == retries).count();
        let entries = entries.start..entries.start + alike;
        let entries = self.touch(id).shed(now, entries, retries);
        Shed { lane: id, entries, reason, forecast, retry_at: retries.then_some(retry_at) }
    }

    /// The next batch that has run for too long. What it holds is let go, and a new runner is free, unless too many are left
    /// behind.
    fn give_up(&mut self, now: Instant) -> Option<GivenUp> {
        let at = self.limits.iter().position(|(_, at)| *at <= now)?;
        let (ticket, _) = self.limits.swap_remove(at);
        let at = self.running.iter().position(|r| r.ticket == ticket)?;
        let is_replaced = self.left_behind.len() < MOST_LEFT_BEHIND;
        let Running { lane, since, rows, .. } = self.running[at];
        let is_rehearsal = self.running[at].is_rehearsal();
        let ran = now.since(since);
        if is_replaced {
            let running = self.running.swap_remove(at);
            self.left_behind.push(ticket);
            self.book(now, &running, ran);
        } else {
            self.stuck.push(ticket);
        }
        self.lanes.values_mut().for_each(|lane| lane.said = None);
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.is_stuck = true;
            lane.rehearsals.as_mut().into_iter().for_each(|own| own.given_up(is_rehearsal.then_some(rows)));
        }
        Some(GivenUp { ticket, lane, ran, is_replaced, left_behind: self.left_behind.len() })
    }

    /// Books what a batch took in place of what was expected, and that its runner is free.
    fn book(&mut self, now: Instant, running: &Running, time: Duration) {
        self.stirred = self.stirred.max(now);
        self.settle(now);
        // Nobody's account is left to book on where the lane was closed meanwhile.
        let Some(lane) = self.lanes.get_mut(&running.lane) else { return };
        lane.free_since = now;
        self.arbiter.refund(running.lane, running.expected.unwrap_or_default());
        self.arbiter.charge(running.lane, time);
        self.bound_batches(now);
    }

    /// The batch with this ticket is back; says whether the estimate has learned from it. Only batches that succeeded are
    /// learned from: a model that fails fast would look fast.
    pub fn land(&mut self, now: Instant, ticket: u64, landing: Landing) -> bool {
        let Some(at) = self.running.iter().position(|r| r.ticket == ticket) else {
            take(&mut self.left_behind, ticket);
            return false;
        };
        let running = self.running.swap_remove(at);
        self.limits.retain(|(limited, _)| *limited != ticket);
        let was_given_up = take(&mut self.stuck, ticket);
        let landing = if was_given_up { Landing::Failed } else { landing };
        self.lanes.values_mut().for_each(|lane| lane.said = None);
        let time = match landing {
            Landing::Answered { took, .. } | Landing::Repeated { took, .. } => took,
            Landing::Failed => now.since(running.since),
        };
        self.book(now, &running, time);
        let Some(lane) = self.lanes.get_mut(&running.lane) else { return false };
        let has_succeeded = landing != Landing::Failed;
        lane.is_stuck &= !has_succeeded;
        let tells = if running.is_rehearsal() {
            lane.rehearsals.as_mut().is_some_and(|own| own.landed(now, running.rows, time, has_succeeded))
        } else {
            lane.rehearsals.as_mut().filter(|_| has_succeeded).into_iter().for_each(Rehearsals::came_back);
            lane.landed(now, running.entries);
            matches!(landing, Landing::Answered { .. })
        };
        // Who went alone and at once is late by no margin: a wider one would only refuse all who come so.
        let went_at_once = running.entries == 1 && running.waited * 4 <= time;
        let answers = |late| Answers { all: running.entries, late: if went_at_once { 0 } else { late } };
        if let Landing::Repeated { late, .. } = landing {
            lane.observe_repeated(running.rows, time, answers(late));
        }
        if let (Landing::Answered { late, .. }, true) = (landing, tells) {
            let answers = (!running.is_rehearsal()).then_some(answers(late));
            lane.observe(now, running.rows, time, answers);
            if answers.is_some() {
                lane.policy.landed(now, &running);
            }
        }
        self.arbiter.know(running.lane, lane.full_batch());
        tells
    }

    /// What a decision about this lane at `now` may look at.
    #[must_use]
    pub fn view(&self, now: Instant, lane: LaneId) -> View<'_> {
        self.view_of(now, lane, self.lane(lane))
    }

    fn view_of<'a>(&'a self, now: Instant, id: LaneId, lane: &'a Lane) -> View<'a> {
        let crowd = lane.crowd(now, self.lanes.len() == 1);
        View { standing: self.standing(now, id), crowd, ..self.view_alone(id, lane) }
    }

    /// The view of a lane as if there were no other and no crowd.
    fn view_alone<'a>(&'a self, id: LaneId, lane: &'a Lane) -> View<'a> {
        let Lane { sizes, queue, times, patience, draining, free_since, .. } = lane;
        View {
            lane: id,
            queue,
            running: &self.running,
            runners: self.runners,
            max_batch: lane.bounded_rows(),
            sizes,
            fit: times.fit(),
            patience: patience.factor(),
            spread: if self.lanes.len() == 1 { patience.spread() } else { self.spread(id) },
            reach: lane.backlog.reach(),
            crowd: None,
            free_since: *free_since,
            rehearses: lane.rehearsals.is_some(),
            draining: *draining,
            late_by: self.alarm.late_by(),
            standing: Standing::ALONE,
        }
    }

    /// Brings the lanes' accounts up to `now`.
    fn settle(&mut self, now: Instant) {
        let lanes = &self.lanes;
        self.arbiter.advance(now, |lane| lanes.get(&lane).is_some_and(|lane| !lane.queue.is_empty()));
    }

    /// Whether a batch could start now.
    #[must_use]
    pub fn has_free_runner(&self) -> bool {
        self.running.len() < self.runners
    }

    /// Requests of this lane that are with a runner.
    fn flying(&self, lane: LaneId) -> usize {
        self.running.iter().filter(|batch| batch.lane == lane).map(|batch| batch.entries).sum()
    }

    fn lane(&self, lane: LaneId) -> &Lane {
        self.lanes.get(&lane).expect(OPEN)
    }

    fn lane_mut(&mut self, lane: LaneId) -> &mut Lane {
        self.lanes.get_mut(&lane).expect(OPEN)
    }

    /// A lane to which something happens: its policy may think otherwise now.
    fn touch(&mut self, lane: LaneId) -> &mut Lane {
        let lane = self.lane_mut(lane);
        lane.said = None;
        lane
    }

    /// What waits in this lane.
    #[must_use]
    pub fn queue(&self, lane: LaneId) -> &Queue {
        &self.lane(lane).queue
    }

    /// Whether nobody's request waits or runs in this lane.
    #[must_use]
    pub fn is_idle(&self, lane: LaneId) -> bool {
        let is_awaited = |batch: &&Running| !batch.is_rehearsal() && !self.stuck.contains(&batch.ticket);
        self.queue(lane).is_empty() && self.running.iter().filter(is_awaited).all(|batch| batch.lane != lane)
    }

    /// What has been learned of this lane's batch time.
    #[must_use]
    pub fn fit(&self, lane: LaneId) -> &Fit {
        self.lane(lane).fit()
    }

    /// Whether a batch of this lane was given up, and none has come back since.
    #[must_use]
    pub fn is_stuck(&self, lane: LaneId) -> bool {
        self.lane(lane).is_stuck
    }

    /// The most rows that batches of this lane may have now: its cap, or what was tried.
    #[must_use]
    pub fn most_rows(&self, lane: LaneId) -> usize {
        self.lane(lane).tried_rows()
    }

    /// Batches that are running, in any order.
    #[must_use]
    pub fn running(&self) -> &[Running] {
        &self.running
    }
}

#[cfg(test)]
mod tests;
