//! The event loop: arrivals, landings and wake-ups in the order of their time, and a [`Dispatcher`] that is obeyed.

use std::num::NonZeroUsize;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::{Outcome, Service, Source};
use crate::estimator::Instant;
use crate::policy::{Dispatcher, Entry, Lane, Policy, Step};

/// A simulated model: its speed, its two caps and the policy that batches for it.
pub struct Model {
    /// How long its batches take.
    pub service: Service,
    /// Every answer is due within this time.
    pub max_latency: Duration,
    /// Most rows of a batch.
    pub max_batch: usize,
    /// Its part of the runner time when the models want more than there is, in proportion to the others'.
    pub weight: NonZeroUsize,
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
        let lane = dispatcher.open(Lane::new(model.policy, model.max_batch).weighing(model.weight));
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
    engine.run(source);
    let span = engine.now.since(Instant::EPOCH);
    let outcomes = engine.tracks.into_iter().map(|track| track.outcome);
    outcomes.map(|outcome| outcome.over(span)).collect()
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
            let Some(now) = [source.peek(), landing, wake].into_iter().flatten().min() else { return };
            self.now = now;
            while let Some(at) = self.flights.iter().position(|f| f.end <= now) {
                let flight = self.flights.swap_remove(at);
                self.dispatcher.land(now, flight.ticket, true);
            }
            while source.peek().is_some_and(|at| at <= now) {
                let Some(arrival) = source.pop() else { break };
                let track = &mut self.tracks[arrival.model];
                track.outcome.offered += 1;
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
                    let rows = self.dispatcher.queue(lane).iter().take(entries).map(|e| e.rows).sum();
                    assert!((1..=track.max_batch).contains(&rows), "{rows} rows against a cap of {}", track.max_batch);
                    let time = track.service.draw(now, track.launched, rows, &mut self.rng);
                    let end = now + time;
                    track.launched += 1;
                    track.outcome.batches += 1;
                    track.outcome.rows += rows as u64;
                    track.outcome.busy += time;
                    for entry in self.dispatcher.take(lane, 0..entries) {
                        track.outcome.answered(end.since(entry.arrival), end <= entry.deadline);
                        source.answered(end);
                    }
                    let ticket = self.dispatcher.launch(now, lane, rows);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Cork;
    use crate::sim::{Arrival, OpenLoop, Process};

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// A model of a batch time of 2 + 0.05·n ms, whose batches of 128 rows make 15,238 rows a second on one runner.
    fn model(max_latency_ms: f64, weight: usize) -> Model {
        Model {
            service: Service::affine(ms(2.0), ms(0.05)),
            max_latency: ms(max_latency_ms),
            max_batch: 128,
            weight: NonZeroUsize::new(weight).expect("positive"),
            policy: Box::new(Cork),
        }
    }

    const CAPACITY: f64 = 15_238.0;

    /// Poisson arrivals of one model at a multiple of the capacity, between two times in seconds.
    fn poisson(model: usize, load: f64, from: f64, until: f64, seed: u64) -> Vec<Arrival> {
        let process = Process::Poisson { rate: CAPACITY * load };
        let arrivals = process.arrivals(Duration::from_secs_f64(until - from), seed + model as u64);
        let start = Duration::from_secs_f64(from);
        arrivals.map(|a| Arrival { at: a.at + start, model, ..a }).collect()
    }

    fn simulate(runners: usize, models: Vec<Model>, loads: Vec<Vec<Arrival>>, seed: u64) -> Vec<Outcome> {
        let mut all = loads.concat();
        all.sort_by_key(|a| a.at);
        run(Scenario { runners, models, seed }, &mut OpenLoop::new(all))
    }

    #[test]
    fn explore() {
        for (name, runners, models, loads) in [
            ("victim .25, flood 10", 1, vec![model(50.0, 1), model(50.0, 1)], vec![poisson(0, 0.25, 0.0, 10.0, 1), poisson(1, 10.0, 0.0, 10.0, 1)]),
            ("victim .25 cap 25, flood 10 cap 100", 1, vec![model(25.0, 1), model(100.0, 1)], vec![poisson(0, 0.25, 0.0, 10.0, 1), poisson(1, 10.0, 0.0, 10.0, 1)]),
            ("victim .25 cap 25, flood begins", 1, vec![model(25.0, 1), model(100.0, 1)], vec![poisson(0, 0.25, 0.0, 10.0, 1), poisson(1, 10.0, 5.0, 6.0, 1)]),
            ("victim .1 cap 25, flood 10, 4 runners", 4, vec![model(25.0, 1), model(100.0, 1)], vec![poisson(0, 1.0, 0.0, 10.0, 1), poisson(1, 40.0, 0.0, 10.0, 1)]),
            ("floods", 1, vec![model(50.0, 1), model(50.0, 1)], vec![poisson(0, 3.0, 0.0, 10.0, 1), poisson(1, 3.0, 0.0, 10.0, 1)]),
            ("floods, caps", 1, vec![model(50.0, 1), model(200.0, 1)], vec![poisson(0, 3.0, 0.0, 10.0, 1), poisson(1, 8.0, 0.0, 10.0, 1)]),
            ("floods 3:1", 1, vec![model(50.0, 3), model(50.0, 1)], vec![poisson(0, 3.0, 0.0, 10.0, 1), poisson(1, 3.0, 0.0, 10.0, 1)]),
            ("floods 3:1, 3 runners", 3, vec![model(50.0, 3), model(50.0, 1)], vec![poisson(0, 9.0, 0.0, 10.0, 1), poisson(1, 9.0, 0.0, 10.0, 1)]),
            ("two lights", 1, vec![model(25.0, 1), model(100.0, 1)], vec![poisson(0, 0.35, 0.0, 10.0, 1), poisson(1, 0.25, 0.0, 10.0, 1)]),
            ("lone flood", 1, vec![model(50.0, 1), model(50.0, 1)], vec![poisson(0, 2.0, 0.0, 10.0, 1)]),
            ("lone flood, alone", 1, vec![model(50.0, 1)], vec![poisson(0, 2.0, 0.0, 10.0, 1)]),
            ("light .05 and flood 1.2", 1, vec![model(50.0, 1), model(50.0, 1)], vec![poisson(0, 0.05, 0.0, 10.0, 1), poisson(1, 1.2, 0.0, 10.0, 1)]),
            ("0.45 and 0.45", 1, vec![model(50.0, 1), model(50.0, 1)], vec![poisson(0, 0.45, 0.0, 10.0, 1), poisson(1, 0.45, 0.0, 10.0, 1)]),
        ] {
            let outcomes = simulate(runners, models, loads, 1);
            println!("{name}");
            for o in outcomes {
                println!("   offered {} on time {:.2} % ({:.0}/s) late {} shed {} busy {:.3} mean {:.2} ms p99 {:.1} rows {:.1}", o.offered,
                    o.on_time as f64 / o.offered.max(1) as f64 * 100.0, o.on_time as f64 / o.span.as_secs_f64(), o.late, o.shed, o.busy_fraction(runners), o.mean_latency().as_secs_f64() * 1e3, o.latency(0.99).as_secs_f64() * 1e3, o.mean_batch_rows());
            }
        }
    }
}
