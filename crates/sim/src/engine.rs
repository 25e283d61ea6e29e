//! The event loop: arrivals, landings and wake-ups in the order of their time, and a [`Dispatcher`] that is obeyed.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::{Arrival, Outcome, Service, Source};
use uncork_core::estimator::Instant;
use uncork_core::policy::{Batch, Dispatcher, Entry, Landing, Lane, Policy, Rehearsal, Shed, Step};

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
    /// Where it has rows of its own to rehearse with: the most that were tried in a batch when it starts. Of a request, no more
    /// rows come than are tried by then.
    pub tried: Option<usize>,
    /// Kept free of every deadline for the way back to the caller: the policy knows of deadlines sooner by this.
    pub way_back: Duration,
    /// Whether batches were timed before the first request, as a server does; else nothing is known at the start.
    pub warm: bool,
}

/// A pool of runners and the models that share it.
pub struct Scenario {
    /// Batches that can run at once.
    pub runners: usize,
    /// At least one.
    pub models: Vec<Model>,
    /// Seeds the noise of the batch times.
    pub seed: u64,
    /// Holds end, and timed refusals come, at whole multiples of this; zero for a timer that rings when it should.
    pub timer: Duration,
}

/// Runs all of `source` against the scenario, until the last request is answered or refused. One outcome a model.
pub fn run(scenario: Scenario, source: &mut impl Source) -> Vec<Outcome> {
    let mut dispatcher = Dispatcher::new(scenario.runners);
    let mut tracks = Vec::new();
    for model in scenario.models {
        let lane = Lane::new(model.policy, model.max_batch).weighing(model.weight);
        let lane = lane.padding_to(model.service.sizes.clone());
        let mut lane = match model.tried {
            Some(tried) => lane.rehearsing(tried, model.max_latency.saturating_sub(model.way_back)),
            None => lane,
        };
        if model.warm {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(!scenario.seed);
            let most = model.tried.map_or(model.max_batch, |tried| tried.min(model.max_batch));
            let timed = model.service.warm_up(most, model.max_latency, &mut rng);
            timed.into_iter().for_each(|(rows, time)| lane.seen(Instant::EPOCH, rows, time));
        }
        let lane = dispatcher.open(lane);
        debug_assert_eq!(lane, tracks.len());
        let Model { service, max_latency, max_batch, way_back, warm, .. } = model;
        // The warm-up had the first batch.
        let launched = u64::from(warm);
        let (hopeless, outcome) = (HashMap::new(), Outcome::new(max_latency));
        tracks.push(Track { service, max_latency, max_batch, way_back, launched, hopeless, outcome });
    }
    let mut engine = Engine {
        now: Instant::EPOCH,
        last: Instant::EPOCH,
        dispatcher,
        tracks,
        flights: Vec::new(),
        rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
        timer: u64::try_from(scenario.timer.as_nanos()).unwrap_or(u64::MAX).max(1),
        next_id: 0,
    };
    let begin = source.peek().unwrap_or_default();
    engine.run(source);
    let span = engine.last.since(begin);
    let mut outcomes: Vec<Outcome> = engine.tracks.into_iter().map(|track| track.outcome).collect();
    outcomes.iter_mut().for_each(|outcome| outcome.span = span);
    outcomes
}

struct Engine {
    now: Instant,
    /// When the last request came, was answered or was refused. Rehearsals go on behind it.
    last: Instant,
    dispatcher: Dispatcher,
    tracks: Vec<Track>,
    flights: Vec<Flight>,
    rng: Xoshiro256PlusPlus,
    timer: u64,
    next_id: u64,
}

/// A model as the engine sees it.
struct Track {
    service: Service,
    max_latency: Duration,
    max_batch: usize,
    way_back: Duration,
    launched: u64,
    /// Deadlines of requests that have less time than the way back takes: the policy is told to answer these at once.
    hopeless: HashMap<u64, Instant>,
    outcome: Outcome,
}

impl Track {
    /// A request with the deadline that its caller gave it.
    fn as_asked(&self, entry: &Entry) -> Entry {
        let own = self.hopeless.get(&entry.id).copied();
        Entry { deadline: own.unwrap_or(entry.deadline + self.way_back), ..*entry }
    }
}

struct Flight {
    end: Instant,
    took: Duration,
    ticket: u64,
    late: usize,
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
                self.dispatcher.land(now, flight.ticket, Landing::Answered { took: flight.took, late: flight.late });
            }
            while source.peek().is_some_and(|at| at <= now) {
                let Some(arrival) = source.pop() else { break };
                self.last = self.last.max(arrival.at);
                let track = &mut self.tracks[arrival.model];
                let within = arrival.within.map_or(track.max_latency, |own| own.min(track.max_latency));
                let rows = arrival.rows.clamp(1, self.dispatcher.most_rows(arrival.model));
                let Arrival { at, priority, caller, .. } = arrival;
                let deadline = at + within.saturating_sub(track.way_back);
                let entry = Entry { id: self.next_id, arrival: at, deadline, rows, priority, caller };
                self.next_id += 1;
                if within < track.way_back {
                    track.hopeless.insert(entry.id, at + within);
                }
                track.outcome.arrived(&track.as_asked(&entry));
                self.dispatcher.arrive(arrival.model, entry);
            }
            wake = self.obey(source).map(|at| Instant::from_nanos(at.as_nanos().next_multiple_of(self.timer)));
        }
    }

    fn obey(&mut self, source: &mut impl Source) -> Option<Instant> {
        let now = self.now;
        loop {
            match self.dispatcher.poll(now, |_, _| true) {
                Step::Release(Batch { ticket, lane, entries, rows, .. }) => {
                    let track = &mut self.tracks[lane];
                    assert!((1..=track.max_batch).contains(&rows), "{rows} rows against a cap of {}", track.max_batch);
                    let time = track.service.draw(now, track.launched, rows, &mut self.rng);
                    let end = now + time;
                    track.launched += 1;
                    track.outcome.batches += 1;
                    track.outcome.rows += rows as u64;
                    track.outcome.busy += time;
                    self.last = self.last.max(end);
                    let mut late = 0;
                    for entry in &entries {
                        late += usize::from(end > entry.deadline);
                        track.outcome.answered(&track.as_asked(entry), end);
                        track.hopeless.remove(&entry.id);
                        source.answered(lane, end);
                    }
                    self.flights.push(Flight { end, took: time, ticket, late });
                    assert!(self.dispatcher.running().len() == self.flights.len(), "every batch lands once");
                }
                Step::Rehearse(Rehearsal { ticket, lane, rows, .. }) => {
                    let track = &mut self.tracks[lane];
                    let time = track.service.draw(now, track.launched, rows, &mut self.rng);
                    track.launched += 1;
                    track.outcome.rehearsals += 1;
                    self.flights.push(Flight { end: now + time, took: time, ticket, late: 0 });
                }
                Step::Shed(Shed { lane, entries, .. }) => {
                    self.last = self.last.max(now);
                    for entry in &entries {
                        let track = &mut self.tracks[lane];
                        track.outcome.refused(&track.as_asked(entry));
                        track.hopeless.remove(&entry.id);
                        source.answered(lane, now);
                    }
                }
                Step::GiveUp(given_up) => unreachable!("no limit was set: {given_up:?}"),
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
    use crate::{Arrival, OpenLoop, Process};
    use uncork_core::policy::{Cork, Decision, ReleaseReason, View};

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
            tried: None,
            way_back: Duration::ZERO,
            warm: false,
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
        run(Scenario { runners, models, seed, timer: Duration::ZERO }, &mut OpenLoop::new(all))
    }

    fn on_time(outcome: &Outcome) -> f64 {
        outcome.on_time as f64 / outcome.offered as f64
    }

    #[test]
    fn a_flood_does_not_push_a_model_past_its_cap_that_stays_within_its_share() {
        // Half of the victim's share is a quarter of the pool; the flood is ten times what the whole pool can do.
        for (runners, cap_ms, flood_cap_ms, seed) in
            [(1, 50.0, 50.0, 1), (1, 25.0, 100.0, 2), (1, 50.0, 20.0, 3), (4, 25.0, 100.0, 4)]
        {
            let pool = runners as f64;
            let loads = vec![poisson(0, 0.25 * pool, 0.0, 4.0, seed), poisson(1, 10.0 * pool, 1.0, 3.0, seed)];
            let outcomes = simulate(runners, vec![model(cap_ms, 1), model(flood_cap_ms, 1)], loads, seed);
            let case = format!("{runners} runners, caps of {cap_ms} and {flood_cap_ms} ms");
            assert!(on_time(&outcomes[0]) >= 0.995, "{case}: {}", on_time(&outcomes[0]));
            assert_eq!(outcomes[0].late, 0, "{case}");
            // Nothing was known of the flood's model when its first batches were accepted.
            assert!(outcomes[1].late <= 2 * 128, "{case}: {}", outcomes[1].late);
        }
    }

    #[test]
    fn a_flood_does_not_do_so_where_batch_times_are_noisy_either() {
        let noisy = |cap| {
            let model = model(cap, 1);
            Model { service: Service { jitter: 0.1, ..model.service }, ..model }
        };
        let loads = vec![poisson(0, 0.25, 0.0, 4.0, 5), poisson(1, 10.0, 1.0, 4.0, 5)];
        let outcomes = simulate(1, vec![noisy(50.0), noisy(50.0)], loads, 5);
        assert!(on_time(&outcomes[0]) >= 0.995, "{}", on_time(&outcomes[0]));
        assert!(outcomes[0].late * 1000 <= outcomes[0].offered, "{} late", outcomes[0].late);
    }

    #[test]
    fn floods_divide_the_runner_time_by_their_weights() {
        for (runners, weights, caps_ms, expected) in [
            (1, [1, 1], [50.0, 50.0], 0.5),
            (1, [1, 1], [50.0, 200.0], 0.5),
            (1, [3, 1], [50.0, 50.0], 0.75),
            (3, [3, 1], [50.0, 100.0], 0.75),
        ] {
            let load = 4.0 * runners as f64;
            let loads = vec![poisson(0, load, 0.0, 4.0, 1), poisson(1, load, 0.0, 4.0, 1)];
            let models = (0..2).map(|i| model(caps_ms[i], weights[i])).collect();
            let outcomes = simulate(runners, models, loads, 1);
            let share = outcomes[0].busy.as_secs_f64() / (outcomes[0].busy + outcomes[1].busy).as_secs_f64();
            assert!((share - expected).abs() <= 0.02, "{runners} runners, weights {weights:?}: {share:.3}");
            let busy: f64 = outcomes.iter().map(|o| o.busy_fraction(runners)).sum();
            assert!(busy > 0.99, "{busy}");
        }
    }

    #[test]
    fn the_time_of_a_run_ends_with_its_last_request_though_sizes_are_rehearsed_behind_it() {
        let slow = Model { service: Service::affine(ms(1_500.0), ms(1.0)), tried: Some(2), ..model(10_000.0, 1) };
        let arrivals = (0..3).map(|i| Arrival::at(Instant::EPOCH + ms(1_000.0 * f64::from(i)))).collect();
        let outcome = simulate(1, vec![slow], vec![arrivals], 1).remove(0);
        assert!(outcome.rehearsals > 0 && outcome.span < ms(8_000.0), "{} {:?}", outcome.rehearsals, outcome.span);
    }

    /// It refuses nobody, however late.
    struct AtOnce;

    impl Policy for AtOnce {
        fn decide(&self, _: Instant, view: View<'_>) -> Decision {
            match (view.has_free_runner(), view.queue.len()) {
                (false, _) | (_, 0) => Decision::Park,
                (true, entries) => Decision::Release { entries, reason: ReleaseReason::Ripe },
            }
        }
    }

    #[test]
    fn who_has_less_time_than_the_way_back_takes_is_late_by_its_own_deadline() {
        let on_time = |within, batch| {
            let service = Service::affine(ms(batch), Duration::ZERO);
            let model = Model { service, way_back: ms(1.0), policy: Box::new(AtOnce), ..model(50.0, 1) };
            let arrival = Arrival { within: Some(ms(within)), ..Arrival::at(Instant::EPOCH) };
            let outcome = simulate(1, vec![model], vec![vec![arrival]], 1).remove(0);
            assert_eq!(outcome.answers(), 1);
            outcome.on_time == 1
        };
        assert!(!on_time(0.5, 0.7));
        assert!(on_time(0.5, 0.4) && on_time(1.0, 0.7) && on_time(1.5, 1.4));
    }

    #[test]
    fn a_lone_busy_model_gets_the_whole_pool() {
        let alone = simulate(2, vec![model(50.0, 1)], vec![poisson(0, 4.0, 0.0, 2.0, 1)], 1);
        let beside = simulate(2, vec![model(50.0, 1), model(50.0, 9)], vec![poisson(0, 4.0, 0.0, 2.0, 1)], 1);
        assert_eq!((beside[0].on_time, beside[0].busy), (alone[0].on_time, alone[0].busy));
        assert!(alone[0].busy_fraction(2) > 0.99, "it is a flood");
    }

    #[test]
    fn a_model_that_comes_back_from_idleness_is_served_at_once() {
        // Another one has had the pool to itself; first that one rests, then it goes on.
        let come_back = |until| {
            let returns = Arrival { model: 1, ..Arrival::at(Instant::EPOCH + ms(1500.0)) };
            let loads = vec![poisson(0, 3.0, 0.0, until, 1), vec![returns]];
            simulate(1, vec![model(50.0, 1), model(200.0, 1)], loads, 1).remove(1)
        };
        let at_rest = come_back(1.4);
        assert_eq!(at_rest.mean_latency(), ms(2.05));
        let beside_a_flood = come_back(2.0);
        // Half of what its cap leaves is for growing; then its turn is next.
        assert!(beside_a_flood.mean_latency() < ms(100.0 + 8.4), "{:?}", beside_a_flood.mean_latency());
    }

    #[test]
    fn light_models_leave_a_heavy_one_what_they_do_not_need() {
        // Sent as they come, the light one's rows would take half of the runner's time, two or three in a batch.
        let loads = vec![poisson(0, 0.1, 0.0, 4.0, 1), poisson(1, 0.8, 0.0, 4.0, 1)];
        let outcomes = simulate(1, vec![model(50.0, 1), model(50.0, 1)], loads, 1);
        assert!(outcomes.iter().all(|o| on_time(o) > 0.999), "{:?}", outcomes.iter().map(on_time).collect::<Vec<_>>());
    }

    #[test]
    fn a_burst_that_can_be_served_beside_other_models_is_not_refused() {
        // Four full batches take 34 of the 50 ms.
        let burst = |i: u64| (0..4 * 128).map(move |_| Arrival::at(Instant::EPOCH + ms(500.0 + 200.0 * i as f64)));
        let loads = vec![(0..15).flat_map(burst).collect(), poisson(1, 0.1, 0.0, 4.0, 1)];
        let outcomes = simulate(1, vec![model(50.0, 1), model(50.0, 1)], loads, 1);
        assert_eq!((outcomes[0].shed, outcomes[0].late), (0, 0));
        assert_eq!((outcomes[1].shed, outcomes[1].late), (0, 0));
    }

    #[test]
    fn beside_long_batches_a_short_cap_is_kept_and_nobody_pays_for_it_while_there_is_room_for_both() {
        // Full batches of the one take 123 ms, four times the other's cap; small ones of it are nearly as fast.
        let long = |load: f64| {
            let service = Service::affine(ms(3.0), ms(0.94));
            let rate = load * 128.0 / 0.123;
            let arrivals =
                Process::Poisson { rate }.arrivals(Duration::from_secs(4), 9).map(|a| Arrival { model: 1, ..a });
            (Model { service, ..model(500.0, 1) }, arrivals.collect::<Vec<_>>())
        };
        let beside = |load| {
            let (long, arrivals) = long(load);
            simulate(1, vec![model(30.0, 1), long], vec![poisson(0, 0.1, 0.0, 4.0, 1), arrivals], 1)
        };
        let room = beside(0.45);
        assert!(on_time(&room[0]) >= 0.98, "{}", on_time(&room[0]));
        assert!(on_time(&room[1]) >= 0.999, "{}", on_time(&room[1]));
        let flood = beside(5.0);
        assert!(on_time(&flood[0]) >= 0.98, "{}", on_time(&flood[0]));
    }
}
