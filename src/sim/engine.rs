//! The event loop: arrivals, landings and wake-ups in the order of their time, and a [`Dispatcher`] that is obeyed.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::{Outcome, Service, Source};
use crate::estimator::Instant;
use crate::policy::{Batch, Dispatcher, Entry, Lane, Policy, Step};

/// A simulated model: its speed, its two caps and the policy that batches for it.
pub struct Model {
    /// How long its batches take.
    pub service: Service,
    /// Every answer is due within this time.
    pub max_latency: Duration,
    /// Most rows of a batch.
    pub max_batch: usize,
    /// The rule for releasing its batches.
    pub policy: Box<dyn Policy>,
}

/// A pool of runners and the models that share it.
pub struct Scenario {
    /// Batches that can run at once.
    pub runners: usize,
    /// At least one.
    pub models: Vec<Model>,
    /// Seeds the noise of the batch times.
    pub seed: u64,
}

/// Runs all of `source` against the scenario, until the last request is answered or refused. One outcome a model.
pub fn run(scenario: Scenario, source: &mut impl Source) -> Vec<Outcome> {
    let mut dispatcher = Dispatcher::new(scenario.runners);
    let mut tracks = Vec::new();
    for model in scenario.models {
        let lane = dispatcher.open(Lane::new(model.policy, model.max_batch));
        debug_assert_eq!(lane, tracks.len());
        let Model { service, max_latency, max_batch, .. } = model;
        tracks.push(Track { service, max_latency, max_batch, launched: 0, outcome: Outcome::new() });
    }
    let mut engine = Engine {
        now: Instant::EPOCH,
        dispatcher,
        tracks,
        flights: Vec::new(),
        rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
        next_id: 0,
    };
    let begin = source.peek().unwrap_or_default();
    engine.run(source);
    let span = engine.now.since(begin);
    let mut outcomes: Vec<Outcome> = engine.tracks.into_iter().map(|track| track.outcome).collect();
    outcomes.iter_mut().for_each(|outcome| outcome.span = span);
    outcomes
}

struct Engine {
    now: Instant,
    dispatcher: Dispatcher,
    tracks: Vec<Track>,
    flights: Vec<Flight>,
    rng: Xoshiro256PlusPlus,
    next_id: u64,
}

/// A model as the engine sees it.
struct Track {
    service: Service,
    max_latency: Duration,
    max_batch: usize,
    launched: u64,
    outcome: Outcome,
}

struct Flight {
    end: Instant,
    ticket: u64,
}

impl Engine {
    fn run(&mut self, source: &mut impl Source) {
        let mut wake = None;
        loop {
            let landing = self.flights.iter().map(|f| f.end).min();
            let Some(now) = [source.peek(), landing, wake].into_iter().flatten().min() else {
                return;
            };
            self.now = now;
            while let Some(at) = self.flights.iter().position(|f| f.end <= now) {
                let flight = self.flights.swap_remove(at);
                self.dispatcher.land(now, flight.ticket, true);
            }
            while source.peek().is_some_and(|at| at <= now) {
                let Some(arrival) = source.pop() else { break };
                let track = &mut self.tracks[arrival.model];
                track.outcome.arrived(arrival.at);
                let within = arrival.within.map_or(track.max_latency, |own| own.min(track.max_latency));
                let rows = arrival.rows.clamp(1, track.max_batch);
                let entry = Entry { id: self.next_id, arrival: arrival.at, deadline: arrival.at + within, rows };
                self.next_id += 1;
                self.dispatcher.arrive(arrival.model, entry);
            }
            wake = self.obey(source);
        }
    }

    fn obey(&mut self, source: &mut impl Source) -> Option<Instant> {
        let now = self.now;
        loop {
            match self.dispatcher.next(now) {
                Step::Release { lane, entries, .. } => {
                    assert!(self.dispatcher.running().len() == self.flights.len(), "every batch lands once");
                    let track = &mut self.tracks[lane];
                    let queue = self.dispatcher.queue(lane);
                    let rows = queue.iter().take(entries).map(|e| e.rows).sum();
                    let first_arrival = queue.first().map_or(now, |e| e.arrival);
                    assert!((1..=track.max_batch).contains(&rows), "{rows} rows against a cap of {}", track.max_batch);
                    let time = track.service.draw(now, track.launched, rows, &mut self.rng);
                    let end = now + time;
                    track.launched += 1;
                    track.outcome.batches += 1;
                    track.outcome.rows += rows as u64;
                    track.outcome.busy += time;
                    for entry in self.dispatcher.take(lane, 0..entries) {
                        track.outcome.answered(entry.arrival, end, entry.deadline);
                        source.answered(end);
                    }
                    let ticket = self.dispatcher.launch(now, lane, Batch { entries, rows, first_arrival });
                    self.flights.push(Flight { end, ticket });
                }
                Step::Shed { lane, entries, .. } => {
                    for _ in self.dispatcher.take(lane, entries) {
                        self.tracks[lane].outcome.shed += 1;
                        source.answered(now);
                    }
                }
                Step::WaitUntil(at) => {
                    assert!(at > now, "waiting for the past");
                    return Some(at);
                }
                Step::Park => return None,
            }
        }
    }
}
