//! A world to try the laws in: a pool, its models, who asks and what goes wrong, all drawn from one number.

use std::num::NonZeroUsize;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use uncork_core::estimator::Instant;
use uncork_core::policy::{Aimd, BatchSizes, Cork, Cork2020, Fixed, Lane, Policy};
use uncork_sim::{self as sim, Process, Service};

const MS: Duration = Duration::from_millis(1);

/// A pool, its models and what happens to them. Printed whole when a law is broken in it.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// What all else is drawn from.
    pub(crate) seed: u64,
    pub(crate) runners: usize,
    pub(crate) models: Vec<Model>,
    /// Share of the callers who leave before their time is up.
    pub(crate) leaving: f64,
    /// Share of the batches that fail.
    pub(crate) failing: f64,
    /// Share of the batches that take three times what makes them stuck, where anything does.
    pub(crate) hanging: f64,
    /// Timers ring up to so much too late.
    pub(crate) timer_lag: Duration,
    /// Arrivals are heard of up to so long after they were stamped, and so out of order.
    pub(crate) hearing_lag: Duration,
    /// So many callers are told apart, beside some who are not; 0 where nobody is.
    pub(crate) told_apart: u64,
}

/// One model of a world.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) rule: Rule,
    pub(crate) max_latency: Duration,
    pub(crate) max_batch: usize,
    pub(crate) weight: NonZeroUsize,
    pub(crate) service: Service,
    pub(crate) callers: Callers,
    /// A request has from one to so many rows.
    pub(crate) most_rows: usize,
    /// Requests are of so many levels of priority, the default and less urgent ones first.
    pub(crate) levels: u64,
    /// The part of the requests whose level is not that of the one before.
    pub(crate) changing: f64,
    /// Latency caps of callers' own, each as likely; the model's own among them.
    pub(crate) within: Vec<Duration>,
    /// Batches timed before the lane opened, absurd ones among them.
    pub(crate) seen: Vec<(usize, Duration)>,
    /// Its lane is drained and followed by a new one after each so many of its requests.
    pub(crate) renewed_every: Option<usize>,
    /// Where it has rows of its own: the most that were tried when its lane opens.
    pub(crate) tried: Option<usize>,
    /// Batches that take so long are given up.
    pub(crate) stuck_after: Option<Duration>,
}

/// How often a model that always hangs is tested in a world's time, at most.
const MOST_TESTS: u32 = 10_000;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Cork,
    Fixed(Fixed),
    Aimd,
    Cork2020,
    Cork2020Told,
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Callers {
    Open { process: Process, length: Duration },
    Closed { clients: usize, think: Duration, jitter: f64, length: Duration },
}

impl Callers {
    /// How long they ask.
    fn length(&self) -> Duration {
        let (Callers::Open { length, .. } | Callers::Closed { length, .. }) = self;
        *length
    }
}

impl World {
    /// The world of this number.
    pub(crate) fn draw(seed: u64) -> World {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let runners = pick(&mut rng, &[1, 1, 1, 2, 3, 4, 8, 16]);
        let lanes = pick(&mut rng, &[1, 1, 1, 1, 1, 1, 2, 3, 5, 8]);
        let requests = log_uniform(&mut rng, 500.0, 30_000.0);
        let mut models: Vec<Model> = (0..lanes).map(|_| Model::draw(&mut rng, runners, lanes, requests)).collect();
        // One that always hangs is tested each time that this is seen: not a million times while another's requests come.
        let longest = models.iter().map(|model| model.callers.length()).max().unwrap_or_default();
        for model in &mut models {
            model.stuck_after = model.stuck_after.map(|limit| limit.max(longest / MOST_TESTS));
        }
        // A rule that is awake at whole milliseconds alone would never wake by a timer that is late.
        let ticks = models.iter().any(|m| matches!(m.rule, Rule::Cork2020 | Rule::Cork2020Told));
        let lag = |rng: &mut Xoshiro256PlusPlus, share| {
            let longest = Duration::from_secs_f64(log_uniform(rng, 1e-7, 5e-3));
            if rng.random_bool(share) { longest } else { Duration::ZERO }
        };
        let mut world = World {
            seed,
            runners,
            models,
            leaving: pick(&mut rng, &[0.0, 0.0, 0.0, 0.01, 0.2, 0.9]),
            failing: pick(&mut rng, &[0.0, 0.0, 0.0, 0.01, 0.5, 1.0]),
            hanging: pick(&mut rng, &[0.0, 0.001, 0.1, 1.0]),
            timer_lag: lag(&mut rng, if ticks { 0.0 } else { 0.3 }),
            hearing_lag: lag(&mut rng, 0.2),
            told_apart: 0,
        };
        if rng.random_bool(0.3) {
            // Only what the simulator knows, so that it can be compared.
            (world.leaving, world.failing, world.hanging) = (0.0, 0.0, 0.0);
            (world.timer_lag, world.hearing_lag) = (Duration::ZERO, Duration::ZERO);
            for model in &mut world.models {
                model.seen.clear();
                model.stuck_after = None;
                model.renewed_every = None;
            }
        }
        if rng.random_bool(0.06) {
            world.models[0].ask_for_too_much_too_long(&mut rng, runners);
        }
        if !world.is_plain() {
            // From numbers of its own: older worlds stay what they were.
            world.told_apart = pick(&mut Xoshiro256PlusPlus::seed_from_u64(!seed), &[0, 0, 2, 5]);
        }
        world
    }

    /// Whether the simulator knows all that happens here, so that its outcome must be the same.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = |m: &Model| m.seen.is_empty() && m.renewed_every.is_none() && m.stuck_after.is_none();
        let quiet = self.leaving == 0.0 && self.failing == 0.0;
        quiet && self.timer_lag.is_zero() && self.hearing_lag.is_zero() && self.models.iter().all(plain)
    }

    /// The same world as the simulator has it.
    pub(crate) fn scenario(&self) -> sim::Scenario {
        let model = |m: &Model| sim::Model {
            service: m.service.clone(),
            max_latency: m.max_latency,
            max_batch: m.max_batch,
            weight: m.weight,
            policy: m.policy(),
            tried: m.tried,
            way_back: Duration::ZERO,
            warm: false,
        };
        let models = self.models.iter().map(model).collect();
        sim::Scenario { runners: self.runners, models, seed: self.seed, timer: Duration::ZERO }
    }
}

impl Model {
    fn draw(rng: &mut Xoshiro256PlusPlus, runners: usize, lanes: usize, requests: f64) -> Model {
        let max_batch = pick(rng, &[1, 2, 8, 32, 64, 128, 200, 4096]);
        // A large batch costs as many steps as a small one.
        let requests = if max_batch >= 32 { requests * 6.0 } else { requests };
        let base = if rng.random_bool(0.05) { 0.0 } else { log_uniform(rng, 1e-6, 0.1) };
        let per_row = if rng.random_bool(0.1) { 0.0 } else { base.max(1e-5) * log_uniform(rng, 1e-3, 3.0) };
        // From caps that no batch can keep to caps of many full ones.
        let first = base + per_row;
        let latency = match rng.random_range(0..20) {
            0 => 0.0,
            1..4 => first * log_uniform(rng, 0.3, 2.0),
            _ => first * 2.0 + (base + per_row * max_batch as f64) * log_uniform(rng, 0.2, 20.0),
        };
        let max_latency = seconds(latency.max(1e-6));
        let most_rows = pick(rng, &[1, 1, 1, 3, 16, max_batch]).min(max_batch);
        let service = Model::draw_service(rng, base, per_row, max_batch);
        let full = service.time(max_batch).as_secs_f64().max(1e-6);
        let capacity = (runners * max_batch) as f64 / full / ((most_rows + 1) as f64 / 2.0);
        let rate = (capacity * log_uniform(rng, 0.02, 6.0)).clamp(0.1, 1e7) / lanes as f64;
        let length = seconds((requests / lanes as f64 / rate).min(1e6));
        let callers = Model::draw_callers(rng, rate, length, requests / lanes as f64, max_latency);
        let mut within = vec![max_latency];
        if rng.random_bool(0.3) {
            within.extend((0..3).map(|_| max_latency.mul_f64(log_uniform(rng, 0.05, 1.5))));
        }
        let absurd =
            [(0, seconds(1.0)), (1, Duration::ZERO), (1, Duration::MAX), (usize::MAX, Duration::from_nanos(1))];
        let seen = match rng.random_range(0..6) {
            0 => (0..4).map(|_| pick(rng, &absurd)).collect(),
            1 => (0..5).map(|i| (1 << i, service.time(1 << i))).collect(),
            _ => Vec::new(),
        };
        let rule = Rule::draw(rng, max_batch, max_latency);
        // Rules with ticks of 1 ms would spend hours on the ticks of slow models.
        let is_slow = length.as_secs_f64() > requests * 5e-4 || latency > 0.1;
        let ticks = matches!(rule, Rule::Cork2020 | Rule::Cork2020Told) && is_slow;
        Model {
            rule: if ticks { Rule::Cork } else { rule },
            max_latency,
            max_batch,
            weight: NonZeroUsize::new(pick(rng, &[1, 1, 2, 5])).expect("positive"),
            service,
            callers,
            most_rows,
            levels: if rule == Rule::Cork && rng.random_bool(0.3) { rng.random_range(2..=10) } else { 1 },
            changing: pick(rng, &[1.0, 0.02]),
            within,
            seen,
            renewed_every: rng.random_bool(0.2).then(|| rng.random_range(1..3000)),
            stuck_after: rng.random_bool(0.2).then(|| max_latency.mul_f64(log_uniform(rng, 1.0, 30.0)) + MS),
            tried: rng.random_bool(0.4).then(|| pick(rng, &[1, 1, 2, 8, max_batch])),
        }
    }

    /// Small full batches, of which the cap has room for several, and more requests than the runners can serve, for hundreds of caps:
    /// long enough that a queue which stands is made shorter.
    fn ask_for_too_much_too_long(&mut self, rng: &mut Xoshiro256PlusPlus, runners: usize) {
        self.rule = Rule::Cork;
        (self.max_batch, self.most_rows, self.renewed_every) = (pick(rng, &[2, 4, 8, 16]), 1, None);
        let full = self.service.time(self.max_batch).as_secs_f64().max(1e-3);
        let turns = rng.random_range(3.0..8.0);
        self.max_latency = seconds(full * turns);
        self.within = vec![self.max_latency];
        self.levels = pick(rng, &[1, 2, 10]);
        let rate = (runners * self.max_batch) as f64 / full * rng.random_range(1.1..3.0);
        let length = self.max_latency.mul_f64(rng.random_range(250.0..600.0)).max(Duration::from_secs(2));
        self.callers = Callers::Open { process: Process::Poisson { rate }, length };
    }

    fn draw_service(rng: &mut Xoshiro256PlusPlus, base: f64, per_row: f64, max_batch: usize) -> Service {
        let mut service = Service::affine(seconds(base), seconds(per_row));
        service.jitter = pick(rng, &[0.0, 0.0, 0.02, 0.1, 0.6]);
        if rng.random_bool(0.2) {
            (service.straggle_share, service.straggle_factor) = pick(rng, &[(0.01, 5.0), (0.05, 50.0)]);
        }
        if rng.random_bool(0.2) {
            service.first_factor = 20.0;
        }
        if rng.random_bool(0.3) {
            // Drifts, stalls and the way back, at any time of its first hundred full batches or so.
            let full = service.time(max_batch).as_secs_f64();
            let mut at = 0.0;
            for _ in 0..4 {
                at += full * log_uniform(rng, 1.0, 100.0);
                let factor = pick(rng, &[0.2, 1.0, 1.0, 1.5, 2.0, 5.0, 300.0]);
                service.changes.push((Instant::EPOCH + seconds(at), factor));
            }
        }
        if rng.random_bool(0.2) {
            // No line: a knee, a step or a root, up to what the line takes.
            let (power, knee) = (pick(rng, &[0.3, 0.7, 1.5, 3.0]), rng.random_range(1..=max_batch));
            let part =
                |rows: usize| if rows <= knee { 0.1 } else { 1.0 } * (rows as f64 / max_batch as f64).powf(power);
            let time = |rows: usize| seconds(base + per_row * max_batch as f64 * part(rows));
            service.curve = [1, 2, knee, knee + 1, max_batch / 2, max_batch].map(|rows| (rows, time(rows))).to_vec();
            service.curve.sort();
            service.curve.dedup_by_key(|(rows, _)| *rows);
            service.curve.retain(|(rows, _)| *rows > 0);
        }
        if rng.random_bool(0.1) {
            service.sizes = BatchSizes::rising((0..12).map(|bit| 1 << bit).collect()).expect("powers rise");
        }
        service
    }

    fn draw_callers(
        rng: &mut Xoshiro256PlusPlus,
        rate: f64,
        length: Duration,
        requests: f64,
        max_latency: Duration,
    ) -> Callers {
        let part = |share: f64| length.mul_f64(share);
        let process = match rng.random_range(0..9) {
            0 => Process::Uniform { rate },
            1 => Process::Gamma { rate, cv: pick(rng, &[2.0, 4.0, 8.0]) },
            2 => Process::Mmpp { low: rate * 0.2, high: rate * 1.8, mean_low: part(0.02), mean_high: part(0.02) },
            3 => Process::Flash { rate: rate * 0.6, factor: 5.0, from: part(0.4), until: part(0.5) },
            4 => Process::Diurnal { rate, swing: 0.9, day: part(0.3) },
            5 => Process::QuietThenBurst { quiet: rate * 0.1, burst: rate * 2.0, at: part(0.5) },
            6 => {
                let size = pick(rng, &[1, 8, 100, 1000]);
                let spread = max_latency.mul_f64(pick(rng, &[0.0, 0.05, 0.5]));
                Process::FanOut { groups: rate / size as f64, size, spread }
            }
            7 => {
                let clients = pick(rng, &[1, 2, 16, 64, 300]);
                let think = max_latency.mul_f64(pick(rng, &[0.0, 0.02, 0.2, 1.0]));
                // At least a round trip of 50 µs for each of its requests.
                let length = length.min(seconds(requests / clients as f64 * think.as_secs_f64().max(50e-6)));
                return Callers::Closed { clients, think, jitter: pick(rng, &[0.0, 0.1, 1.0]), length };
            }
            _ => Process::Poisson { rate },
        };
        Callers::Open { process, length }
    }

    pub(crate) fn shortest_cap(&self) -> Duration {
        self.within.iter().fold(self.max_latency, |shortest, own| shortest.min(*own))
    }

    pub(crate) fn policy(&self) -> Box<dyn Policy> {
        match self.rule {
            Rule::Cork => Box::new(Cork),
            Rule::Fixed(fixed) => Box::new(fixed),
            Rule::Aimd => Box::new(Aimd::new(self.max_latency)),
            Rule::Cork2020 => Box::new(Cork2020::new()),
            Rule::Cork2020Told => Box::new(Cork2020::told(self.service.base, self.service.per_row)),
        }
    }

    /// A new lane for it.
    pub(crate) fn lane(&self) -> Lane {
        let mut lane =
            Lane::new(self.policy(), self.max_batch).weighing(self.weight).padding_to(self.service.sizes.clone());
        self.seen.iter().for_each(|&(rows, time)| lane.seen(Instant::EPOCH, rows, time));
        if let Some(tried) = self.tried {
            lane = lane.rehearsing(tried, self.max_latency);
        }
        if let Some(stuck_after) = self.stuck_after {
            lane = lane.giving_up_after(stuck_after);
        }
        lane
    }
}

impl Rule {
    fn draw(rng: &mut Xoshiro256PlusPlus, max_batch: usize, max_latency: Duration) -> Rule {
        match rng.random_range(0..10) {
            0 => Rule::Fixed(Fixed::EAGER),
            1 => Rule::Fixed(Fixed {
                wait: max_latency.mul_f64(rng.random_range(0.0..0.5)),
                size: rng.random_range(1..=max_batch),
                timeout: max_latency.mul_f64(rng.random_range(0.5..1.5)),
            }),
            2 => Rule::Aimd,
            3 => pick(rng, &[Rule::Cork2020, Rule::Cork2020Told]),
            _ => Rule::Cork,
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn log_uniform(rng: &mut Xoshiro256PlusPlus, from: f64, to: f64) -> f64 {
    (rng.random_range(from.ln()..to.ln())).exp()
}

fn pick<T: Copy>(rng: &mut Xoshiro256PlusPlus, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}
