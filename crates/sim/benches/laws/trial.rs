//! Lives through a world with a dispatcher, and holds every step of it to the laws.

// Named, since a test reads this file as a module of its own.
#[path = "checks.rs"]
mod checks;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use uncork_core::estimator::Instant;
use uncork_core::policy::{
    Batch, Caller, Cork, Decision, Dispatcher, Entry, GivenUp, Landing, LaneId, Policy, Priority, Rehearsal,
    ReleaseReason, Shed, ShedReason, Step, View,
};
use uncork_sim::{self as sim, Source};

use crate::tally::Tally;
use crate::traffic::Traffic;
use crate::world::{Model, Rule, World};

/// Lives through this world once; some worlds twice, and some in the simulator too.
///
/// # Panics
/// Where a law is broken, with what is wrong.
pub(crate) fn try_out(world: &World) -> Tally {
    let mut tally = Trial::new(world).run();
    if world.seed.is_multiple_of(16) {
        assert_eq!(Trial::new(world).run(), tally, "equal inputs, equal decisions");
        tally.repeated = 1;
    }
    let one_asker = world.models.len() == 1 || Trial::new(world).lanes.iter().all(|lane| lane.is_open_loop);
    if world.is_plain() && one_asker && world.seed.is_multiple_of(2) {
        let outcomes = sim::run(world.scenario(), &mut Traffic::of(world));
        let sum = |f: fn(&sim::Outcome) -> u64| outcomes.iter().map(f).sum::<u64>();
        let theirs: [fn(&sim::Outcome) -> u64; 6] =
            [|o| o.offered, |o| o.on_time, |o| o.late, |o| o.shed, |o| o.batches, |o| o.rehearsals];
        let shed = tally.refused.iter().sum();
        assert_eq!(
            theirs.map(sum),
            [tally.requests, tally.on_time, tally.late, shed, tally.batches, tally.rehearsed],
            "the simulator does the same"
        );
        let busy: Duration = outcomes.iter().map(|o| o.busy).sum();
        assert_eq!((sum(|o| o.rows), busy), (tally.rows, tally.busy), "the simulator counts the same");
        tally.simulated = 1;
    }
    tally.worlds = 1;
    tally
}

struct Trial<'a> {
    world: &'a World,
    now: Instant,
    pool: Dispatcher,
    /// Every lane that ever was, by its id.
    lanes: Vec<LaneState>,
    /// Those that are not closed yet.
    open: Vec<LaneId>,
    /// Where each model's requests go at present.
    lane_of: Vec<LaneId>,
    /// Batches launched of each model.
    launched: Vec<u64>,
    /// Every request, by its id.
    requests: Vec<Request>,
    flights: Vec<Flight>,
    /// Flights that were given up, and whose runners were replaced.
    left_behind: Vec<Flight>,
    /// When callers leave.
    leaving: BinaryHeap<Reverse<(Instant, u64)>>,
    traffic: Traffic<'a>,
    /// Draws batch times, exactly as the simulator does; and everything else.
    service_rng: Xoshiro256PlusPlus,
    rng: Xoshiro256PlusPlus,
    tally: Tally,
}

/// What must be true of a lane, kept beside it.
struct LaneState {
    model: usize,
    rule: Rule,
    max_batch: usize,
    is_open_loop: bool,
    draining: bool,
    closed: bool,
    /// Heard of by it.
    arrivals: usize,
    waiting: usize,
    waiting_rows: usize,
    flying: usize,
    /// The most rows that were tried, where it rehearses; and how often the next size has run.
    tried: Option<usize>,
    begun: bool,
    /// Rows of the smallest request that was refused since its last rehearsal, because it could not have been in time alone.
    refused: Option<usize>,
    /// Whether a batch was given up, and none has come back since.
    is_given_up: bool,
    /// Batches as large as could be since then.
    full: usize,
    /// Of each level of priority and all more urgent ones: the first and the last of the refusals that follow each other without a
    /// gap of the longest cap, and whether they have done so for long since any of them began.
    refusals: [Option<(Instant, Instant)>; 10],
    lasted: [bool; 10],
    most_present: usize,
    /// The newest request of each class (priority and latency cap) that was released, by its deadline and id.
    served: Vec<((Priority, Duration), (Instant, u64))>,
}

impl LaneState {
    fn note_refusal(&mut self, now: Instant, priority: Priority, model: &Model) {
        let (longest, shortest) = (model.max_latency, model.shortest_cap());
        // For two hundred caps, and a second at least; the last may have been a cap before the end of that.
        let long = Duration::from_secs(1).max(shortest * 200).saturating_sub(longest);
        for level in usize::from(priority.level()) - 1..10 {
            let goes_on = self.refusals[level].filter(|(_, last)| now.since(*last) <= longest);
            let first = goes_on.map_or(now, |(first, _)| first);
            self.refusals[level] = Some((first, now));
            self.lasted[level] |= now.since(first) >= long;
        }
    }

    /// A rehearsal of so many rows has succeeded: that of a larger size than were tried counts from the second on.
    fn tried_out(&mut self, rows: usize) {
        if self.tried.is_some_and(|tried| tried < rows) {
            self.tried = if self.begun { Some(rows) } else { self.tried };
            self.begun = !self.begun;
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Request {
    entry: Entry,
    lane: LaneId,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    Served,
    Refused,
    Left,
}

struct Flight {
    end: Instant,
    took: Duration,
    ticket: u64,
    lane: LaneId,
    entries: usize,
    rows: usize,
    late: usize,
    is_given_up: bool,
}

/// One step in so many is looked at more closely.
const CLOSER: u64 = 32;
/// Lanes that are open at once, those that drain among them.
const MOST_LANES: usize = 24;
const TICK: Duration = Duration::from_nanos(1);

impl<'a> Trial<'a> {
    fn new(world: &'a World) -> Trial<'a> {
        let mut trial = Trial {
            world,
            now: Instant::EPOCH,
            pool: Dispatcher::new(world.runners),
            lanes: Vec::new(),
            open: Vec::new(),
            lane_of: Vec::new(),
            launched: vec![0; world.models.len()],
            requests: Vec::new(),
            flights: Vec::new(),
            left_behind: Vec::new(),
            leaving: BinaryHeap::new(),
            traffic: Traffic::of(world),
            service_rng: Xoshiro256PlusPlus::seed_from_u64(world.seed),
            rng: Xoshiro256PlusPlus::seed_from_u64(world.seed ^ 0x5555),
            tally: Tally::default(),
        };
        trial.lane_of = (0..world.models.len()).map(|model| trial.open(model)).collect();
        trial
    }

    fn run(mut self) -> Tally {
        let mut wake = None;
        loop {
            let landing = self.flights.iter().chain(&self.left_behind).map(|f| f.end).min();
            let leaves = self.leaving.peek().map(|leaving| leaving.0.0);
            let arrives = self.traffic.peek();
            let is_over = arrives.is_none() && self.lanes.iter().all(|lane| lane.waiting + lane.flying == 0);
            if is_over && self.world.models.iter().any(|model| model.stuck_after.is_some()) {
                break; // where every batch hangs, each new runner is tested for ever
            }
            let Some(now) = [arrives, landing, leaves, wake].into_iter().flatten().min() else { break };
            self.now = self.now.max(now);
            self.land();
            while self.traffic.peek().is_some_and(|at| at <= self.now) {
                self.arrive();
            }
            self.leave();
            wake = self.obey().map(|at| at + self.up_to(self.world.timer_lag));
            self.close();
        }
        self.check_end()
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        if longest.is_zero() { longest } else { longest.mul_f64(self.rng.random()) }
    }

    fn open(&mut self, model: usize) -> LaneId {
        let told = &self.world.models[model];
        let lane = self.pool.open(told.lane());
        assert_eq!(lane, self.lanes.len(), "no lane's id is given twice");
        self.open.push(lane);
        self.lanes.push(LaneState {
            model,
            rule: told.rule,
            max_batch: told.max_batch,
            is_open_loop: matches!(told.callers, crate::world::Callers::Open { .. }),
            draining: false,
            closed: false,
            arrivals: 0,
            waiting: 0,
            waiting_rows: 0,
            flying: 0,
            tried: told.tried,
            begun: false,
            refused: None,
            is_given_up: false,
            full: 0,
            refusals: [None; 10],
            lasted: [false; 10],
            most_present: 0,
            served: Vec::new(),
        });
        lane
    }

    /// Closes lanes that were drained; what they have with a runner lands later.
    fn close(&mut self) {
        let (lanes, pool) = (&mut self.lanes, &mut self.pool);
        self.open.retain(|&id| {
            let lane = &mut lanes[id];
            lane.closed = lane.draining && lane.waiting == 0;
            if lane.closed {
                pool.close(id);
            }
            !lane.closed
        });
    }

    fn land(&mut self) {
        let now = self.now;
        while let Some(at) = self.left_behind.iter().position(|f| f.end <= now) {
            let flight = self.left_behind.swap_remove(at);
            let landing = Landing::Answered { took: flight.took, late: flight.late };
            assert!(!self.pool.land(now, flight.ticket, landing), "what was given up teaches nothing");
        }
        while let Some(at) = self.flights.iter().position(|f| f.end <= now) {
            let flight = self.flights.swap_remove(at);
            let succeeded = self.world.failing == 0.0 || !self.rng.random_bool(self.world.failing);
            self.tally.failed += u64::from(!succeeded);
            self.lanes[flight.lane].flying -= flight.entries;
            self.lanes[flight.lane].is_given_up &= !succeeded || flight.is_given_up;
            if flight.entries == 0 && succeeded && !flight.is_given_up {
                self.lanes[flight.lane].tried_out(flight.rows);
            }
            let (took, late) = (flight.took, flight.late);
            let landing = match succeeded {
                // Where batches fail, rows are refused as well.
                true if flight.entries > 0 && self.world.failing > 0.0 && self.rng.random_bool(self.world.failing) => {
                    Landing::Repeated { took, late }
                }
                true => Landing::Answered { took, late },
                false => Landing::Failed,
            };
            self.pool.land(now, flight.ticket, landing);
            if self.tally.batches.is_multiple_of(CLOSER) {
                self.pool.land(now, flight.ticket, landing); // nothing lands twice
            }
        }
    }

    fn arrive(&mut self) {
        let Some(arrival) = self.traffic.pop() else { return };
        let model = &self.world.models[arrival.model];
        let id = self.requests.len() as u64;
        let mut lane = self.lane_of[arrival.model];
        // Behind a stalled machine, lanes that cannot be closed yet would pile up by the thousand.
        let may_renew = self.open.len() < MOST_LANES;
        if may_renew && model.renewed_every.is_some_and(|every| self.lanes[lane].arrivals >= every) {
            self.pool.drain(lane);
            self.lanes[lane].draining = true;
            lane = self.open(arrival.model);
            self.lane_of[arrival.model] = lane;
            self.tally.renewed += 1;
        }
        let stamp = arrival.at - self.up_to(self.world.hearing_lag);
        let within = arrival.within.map_or(model.max_latency, |own| own.min(model.max_latency));
        let rows = arrival.rows.clamp(1, self.pool.most_rows(lane));
        let caller = self.caller(id);
        let entry = Entry { rows, priority: arrival.priority, caller, ..Entry::new(id, stamp, stamp + within) };
        self.requests.push(Request { entry, lane, fate: Fate::Waits });
        if self.world.leaving > 0.0 && self.rng.random_bool(self.world.leaving) {
            let at = self.now + self.up_to(within + within / 2);
            self.leaving.push(Reverse((at, id)));
        }
        self.tally.requests += 1;
        self.pool.arrive(lane, entry);
        let lane = &mut self.lanes[lane];
        if lane.refusals[9].is_some_and(|(_, last)| stamp.since(last) > model.max_latency) {
            (lane.refusals, lane.lasted) = ([None; 10], [false; 10]);
        }
        lane.arrivals += 1;
        lane.waiting += 1;
        lane.waiting_rows += rows;
        lane.most_present = lane.most_present.max(lane.waiting + lane.flying);
    }

    /// Whose a request is: the first ask more often, and the last have more weight.
    fn caller(&self, request: u64) -> Caller {
        let told_apart = self.world.told_apart;
        if told_apart == 0 {
            return Caller::default();
        }
        let drawn = request.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let id = (drawn % (told_apart + 1)).min((drawn >> 8) % (told_apart + 1));
        Caller { id, weight: NonZeroU32::MIN.saturating_add(id as u32 / 2), ..Caller::default() }
    }

    fn leave(&mut self) {
        while let Some(&Reverse((at, id))) = self.leaving.peek()
            && at <= self.now
        {
            self.leaving.pop();
            let Request { entry, lane, fate } = self.requests[id as usize];
            if self.lanes[lane].closed {
                assert_ne!(fate, Fate::Waits, "a lane was closed with somebody in it");
                continue;
            }
            let waits = self.pool.depart(lane, &entry);
            assert_eq!(waits, fate == Fate::Waits, "{entry:?} leaves");
            if waits {
                self.tally.left += 1;
                self.settle(lane, &entry, Fate::Left, self.now);
            }
        }
    }

    /// A request's fate is sealed, once.
    fn settle(&mut self, lane: LaneId, entry: &Entry, fate: Fate, answered: Instant) {
        let request = &mut self.requests[entry.id as usize];
        assert_eq!(request.entry, *entry, "an entry changed while it waited");
        assert_eq!(request.lane, lane, "an entry went to another lane");
        assert_eq!(request.fate, Fate::Waits, "{entry:?} has two fates, {fate:?} is the second");
        request.fate = fate;
        let state = &mut self.lanes[lane];
        state.waiting -= 1;
        state.waiting_rows -= entry.rows;
        self.traffic.answered(state.model, answered);
    }

    fn obey(&mut self) -> Option<Instant> {
        loop {
            let (lane, decision) = self.pool.peek(self.now);
            self.tally.steps += 1;
            let closer = self.tally.steps.is_multiple_of(CLOSER);
            if closer {
                let again = self.pool.peek(self.now);
                assert_eq!(again, (lane, decision.clone()), "asked twice, it says the same");
                self.check_memory(&decision);
            }
            self.remember(lane, &decision);
            match (lane, &decision) {
                (Some(lane), Decision::Release { entries, reason }) => self.check_release(lane, *entries, *reason),
                (Some(lane), Decision::Shed { entries, reason, forecast, retry_at }) => {
                    let within = !entries.is_empty() && entries.end <= self.pool.queue(lane).len();
                    assert!(within, "refuses {entries:?} of {}", self.pool.queue(lane).len());
                    assert!(*forecast >= self.now && *retry_at >= self.now, "{decision:?} at {:?}", self.now);
                    self.check_refusal(lane, entries, *reason);
                }
                _ => {}
            }
            let late = match (lane, &decision) {
                (Some(lane), Decision::Shed { entries, .. }) => self.pool.queue(lane).get(entries.start).copied(),
                _ => None,
            };
            match (self.pool.poll(self.now, |_, _| true), decision) {
                (Step::Release(batch), Decision::Release { entries, reason }) => {
                    assert_eq!((batch.entries.len(), batch.reason), (entries, reason));
                    self.run_batch(batch);
                }
                (Step::Shed(shed), Decision::Shed { entries, reason, forecast, .. }) => {
                    assert!((1..=entries.len()).contains(&shed.entries.len()), "{shed:?} of {entries:?}");
                    assert_eq!(shed.forecast, forecast);
                    if shed.reason == ShedReason::OverShare && reason != ShedReason::OverShare {
                        self.check_room_made(&shed, late.expect("one was named"));
                    } else {
                        assert_eq!(shed.reason, reason);
                    }
                    self.tally.refused[shed.reason as usize] += shed.entries.len() as u64;
                    let state = &mut self.lanes[shed.lane];
                    let hopeless = shed.entries.iter().map(|entry| entry.rows).filter(|_| shed.retry_at.is_none());
                    state.refused = state.refused.into_iter().chain(hopeless).min();
                    let model = &self.world.models[state.model];
                    shed.entries.iter().for_each(|entry| state.note_refusal(self.now, entry.priority, model));
                    shed.entries.iter().for_each(|entry| self.settle(shed.lane, entry, Fate::Refused, self.now));
                }
                (Step::GiveUp(given_up), _) => self.give_up(given_up),
                (Step::Rehearse(rehearsal), Decision::Rehearse { rows }) => {
                    assert_eq!(rehearsal.rows, rows);
                    self.run_rehearsal(rehearsal);
                }
                (Step::WaitUntil(at), Decision::WaitUntil(decided)) => {
                    assert_eq!(at, decided);
                    assert!(at > self.now, "waits for the past: {at:?} at {:?}", self.now);
                    self.check_rest(Some(at), closer);
                    return Some(at);
                }
                (Step::Park, Decision::Park) => {
                    self.check_rest(None, closer);
                    return None;
                }
                (step, decision) => panic!("{decision:?} was decided, and {step:?} done"),
            }
        }
    }

    fn give_up(&mut self, given_up: GivenUp) {
        let GivenUp { ticket, lane, ran, is_replaced, left_behind, .. } = given_up;
        let at = self.flights.iter().position(|f| f.ticket == ticket && f.lane == lane).expect("it runs");
        let flight = &mut self.flights[at];
        assert!(!flight.is_given_up, "it is given up twice");
        let limit = self.world.models[self.lanes[lane].model].stuck_after;
        assert!(limit.is_some_and(|limit| ran >= limit && self.now < flight.end), "it is given up too early");
        flight.is_given_up = true;
        self.tally.given_up += 1;
        self.lanes[lane].refused = Some(1); // its runner is to be tested
        self.lanes[lane].is_given_up = true;
        if is_replaced {
            let flight = self.flights.swap_remove(at);
            self.lanes[lane].flying -= flight.entries;
            self.left_behind.push(flight);
        }
        assert!(left_behind == self.left_behind.len() && left_behind <= 4, "{left_behind} left behind");
        assert_eq!(self.pool.running().len(), self.flights.len(), "batches that run");
    }

    /// How long the next batch takes: three times what makes it stuck, now and then.
    fn draw(&mut self, model: usize, rows: usize) -> Duration {
        let told = &self.world.models[model];
        let time = told.service.draw(self.now, self.launched[model], rows, &mut self.service_rng);
        self.launched[model] += 1;
        match told.stuck_after {
            Some(limit) if self.world.hanging > 0.0 && self.rng.random_bool(self.world.hanging) => limit * 3,
            _ => time,
        }
    }

    fn run_rehearsal(&mut self, rehearsal: Rehearsal) {
        let Rehearsal { ticket, lane: id, rows, .. } = rehearsal;
        let (now, quiet) = (self.now, self.open.iter().all(|&lane| self.lanes[lane].waiting == 0));
        assert!(self.flights.len() < self.world.runners, "more in flight than permits");
        let lane = &mut self.lanes[id];
        let tried = lane.tried.expect("it has rows of its own");
        assert!(!lane.draining && (1..=lane.max_batch).contains(&rows), "{rows} rows against {}", lane.max_batch);
        assert!(self.flights.iter().all(|f| f.lane != id || f.entries > 0), "one rehearsal at a time");
        if rows <= tried {
            assert!(lane.refused.is_some() || lane.is_given_up, "tests an estimate by which nobody was refused");
            let renews = |flight: &Flight| flight.lane == id && flight.rows >= rows;
            assert!(!self.flights.iter().any(renews), "tests an estimate that a batch is about to renew");
        } else {
            let is_next = rows <= 2 * tried || !self.world.models[lane.model].service.sizes.is_any();
            assert!(is_next, "{rows} rows, after {tried}");
            // Or where batches were full for long, as large as they could be.
            assert!(quiet && self.flights.is_empty() || lane.full >= 16, "somebody waits for it: {}", lane.full);
        }
        (lane.refused, lane.full) = (None, 0);
        let model = lane.model;
        let time = self.draw(model, rows);
        self.tally.rehearsed += 1;
        self.flights.push(Flight {
            end: now + time,
            took: time,
            ticket,
            lane: id,
            entries: 0,
            rows,
            late: 0,
            is_given_up: false,
        });
    }

    fn run_batch(&mut self, batch: Batch) {
        let Batch { ticket, lane, entries, rows, reason, .. } = batch;
        assert_eq!(rows, entries.iter().map(|e| e.rows).sum());
        let (now, model) = (self.now, self.lanes[lane].model);
        let time = self.draw(model, rows);
        let end = now + time;
        self.tally.batches += 1;
        self.tally.rows += rows as u64;
        self.tally.busy += time;
        self.tally.released[reason as usize] += 1;
        let late = entries.iter().filter(|entry| end > entry.deadline).count();
        for entry in &entries {
            self.check_turn(lane, entry);
            let count = if end <= entry.deadline { &mut self.tally.on_time } else { &mut self.tally.late };
            *count += 1;
            self.settle(lane, entry, Fate::Served, end);
        }
        let next = self.pool.queue(lane).first().map_or(1, |next| next.rows);
        let state = &mut self.lanes[lane];
        state.flying += entries.len();
        state.refused = state.refused.filter(|refused| *refused > rows);
        state.full += usize::from(state.tried.is_some_and(|tried| rows + next > tried.min(state.max_batch)));
        self.flights.push(Flight {
            end,
            took: time,
            ticket,
            lane,
            entries: entries.len(),
            rows,
            late,
            is_given_up: false,
        });
    }

    fn remember(&mut self, lane: Option<LaneId>, decision: &Decision) {
        let number = match decision {
            Decision::Release { entries, .. } => (entries << 8 | lane.unwrap_or_default()) as u64,
            Decision::Shed { entries, .. } => (entries.start ^ entries.end << 20) as u64,
            Decision::WaitUntil(at) => at.as_nanos(),
            Decision::Rehearse { rows } => (*rows ^ usize::MAX) as u64,
            Decision::Park => 1,
        };
        let mixed = self.tally.course.rotate_left(5) ^ number ^ self.now.as_nanos();
        self.tally.course = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
