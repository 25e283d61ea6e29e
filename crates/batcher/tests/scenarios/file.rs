//! What a scenario file says, checked.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::Deserialize;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Aimd, BatchSizes, Cork, Cork2020, Fixed, Policy, Priority};
use uncork_sim::{Arrival, ClosedLoop, Model, OpenLoop, Process, Service};

use crate::counts::Measure;
use crate::load::{Load, Mix};

/// What the batcher does and the simulator does only if it is told to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Habits {
    /// Taken off every deadline, for the way back to the caller.
    pub(crate) reserve: Duration,
    /// Timers ring at multiples of this.
    pub(crate) timer: Duration,
}

/// A scenario as it stands in its file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The name of its file.
    #[serde(skip)]
    pub(crate) name: String,
    /// What it shows. For readers only, and asked of every writer.
    #[allow(dead_code)]
    about: String,
    max_latency_ms: f64,
    pub(crate) max_batch_size: usize,
    #[serde(default = "one")]
    pub(crate) runners: usize,
    #[serde(default = "cork")]
    pub(crate) policy: String,
    /// Where the model has rows of its own to rehearse with: the most that were tried in a batch before the start.
    pub(crate) tried: Option<usize>,
    /// Runs in the simulator, each with other arrivals and other noise.
    #[serde(default = "eight")]
    pub(crate) seeds: u64,
    service: RawService,
    /// Loads one after the other; or `clients`.
    #[serde(default)]
    arrivals: Vec<Piece>,
    clients: Option<Clients>,
    /// Ranges for the sums over all seeds.
    #[serde(default)]
    pub(crate) expect: BTreeMap<Measure, [f64; 2]>,
    /// Ranges for this policy's figures as multiples of another one's.
    #[serde(default)]
    pub(crate) compare: Vec<Compare>,
    /// How far the batcher may be from the simulator.
    #[serde(default)]
    pub(crate) batcher: Tolerance,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawService {
    base_ms: f64,
    per_row_ms: f64,
    /// σ of log-normal noise.
    #[serde(default)]
    jitter: f64,
    straggle: Option<Straggle>,
    #[serde(default)]
    changes: Vec<Change>,
    #[serde(default = "factor_one")]
    first_factor: f64,
    /// Batches are padded to these.
    #[serde(default)]
    sizes: Vec<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Straggle {
    share: f64,
    factor: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    at_s: f64,
    factor: f64,
}

/// One load for so long. The rate is given in requests a second, or as a multiple of the capacity: what the runners do in
/// batches of the size that just fits under both caps.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece {
    process: RawProcess,
    for_s: f64,
    rate: Option<f64>,
    load: Option<f64>,
    /// Rows of a request: each of these is as likely.
    #[serde(default = "single_rows")]
    rows: Vec<usize>,
    /// Latency caps of their own: each of these is as likely.
    #[serde(default)]
    within_ms: Vec<f64>,
    /// Priorities: each of these is as likely.
    #[serde(default = "default_priorities")]
    priorities: Vec<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum RawProcess {
    Poisson,
    Uniform,
    Gamma {
        cv: f64,
    },
    /// `low` and `high` are multiples of the rate.
    Mmpp {
        low: f64,
        high: f64,
        mean_low_s: f64,
        mean_high_s: f64,
    },
    Flash {
        factor: f64,
        from_s: f64,
        until_s: f64,
    },
    Diurnal {
        swing: f64,
        day_s: f64,
    },
    FanOut {
        size: usize,
        spread_ms: f64,
    },
    Burst {
        count: usize,
    },
    List {
        at_ms: Vec<f64>,
    },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clients {
    count: usize,
    think_ms: f64,
    jitter: f64,
    for_s: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compare {
    pub(crate) policy: String,
    pub(crate) expect: BTreeMap<Measure, [f64; 2]>,
}

/// Differences between batcher and simulator that are accepted, and why they exist: see `in_batcher`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tolerance {
    /// Of the shares on time, late and refused.
    #[serde(default = "half_a_percent")]
    pub(crate) share: f64,
    /// Of mean latency and mean batch, relative to them.
    #[serde(default = "two_percent")]
    pub(crate) relative: f64,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { share: half_a_percent(), relative: two_percent() }
    }
}

fn one() -> usize {
    1
}
fn eight() -> u64 {
    8
}
fn cork() -> String {
    "cork".into()
}
fn factor_one() -> f64 {
    1.0
}
fn single_rows() -> Vec<usize> {
    vec![1]
}
fn default_priorities() -> Vec<u64> {
    vec![u64::from(Priority::DEFAULT.level())]
}
fn half_a_percent() -> f64 {
    0.005
}
fn two_percent() -> f64 {
    0.02
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

impl Scenario {
    /// Reads and checks a file's text; the error names the file.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|why| format!("{name}: {why}"))?;
        let scenario = Scenario { name: name.into(), ..scenario };
        scenario.check().map_err(|why| format!("{name}: {why}"))?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        if BatchSizes::rising(self.service.sizes.clone()).is_none() {
            return Err("sizes: they must rise".into());
        }
        let names = self.compare.iter().map(|c| &c.policy).filter(|name| *name != "best-fixed");
        for name in names.chain([&self.policy]) {
            self.named_policy(name)?;
        }
        if self.expect.is_empty() && self.compare.is_empty() {
            return Err("nothing is expected".into());
        }
        for (measure, [least, most]) in self.compare.iter().flat_map(|c| &c.expect).chain(&self.expect) {
            if least > most {
                return Err(format!("{measure}: the range from {least} to {most} is empty"));
            }
        }
        if self.expect.contains_key(&Measure::OfLockstep) && self.clients.is_none() {
            return Err("of_lockstep is for clients".into());
        }
        if self.expect.contains_key(&Measure::OfOptimum) && !self.has_optimum() {
            return Err("of_optimum is for requests of one row under one cap".into());
        }
        match (&self.clients, self.arrivals.is_empty()) {
            (Some(_), true) => Ok(()),
            (None, false) => self.arrivals.iter().try_for_each(|piece| self.check_piece(piece)),
            _ => Err("there must be either arrivals or clients".into()),
        }
    }

    fn check_piece(&self, piece: &Piece) -> Result<(), String> {
        if piece.rows.is_empty() || !piece.rows.iter().all(|rows| (1..=self.max_batch_size).contains(rows)) {
            return Err(format!("rows: each must be between 1 and {}", self.max_batch_size));
        }
        if piece.priorities.is_empty() || piece.priorities.iter().any(|&level| Priority::new(level).is_none()) {
            return Err("priorities: each must be between 1 and 10".into());
        }
        match (&piece.process, piece.rate, piece.load) {
            (RawProcess::Burst { .. } | RawProcess::List { .. }, Some(_), _) => Err("rate: a list has none".into()),
            (RawProcess::Burst { .. } | RawProcess::List { .. }, _, Some(_)) => Err("load: a list has none".into()),
            (RawProcess::List { at_ms }, ..) if !at_ms.is_sorted() => Err("at_ms: not in order".into()),
            (RawProcess::Burst { .. } | RawProcess::List { .. }, ..) => Ok(()),
            (_, None, None) => Err("a process needs a rate or a load".into()),
            (_, Some(_), Some(_)) => Err("rate and load exclude each other".into()),
            _ => Ok(()),
        }
    }

    /// Whether `sim` can say what was possible: several sizes or deadlines are beyond it.
    fn has_optimum(&self) -> bool {
        self.clients.is_none() && self.arrivals.iter().all(|p| p.rows == [1] && p.within_ms.is_empty())
    }

    pub(crate) fn max_latency(&self) -> Duration {
        ms(self.max_latency_ms)
    }

    /// The sizes to which batches are padded.
    pub(crate) fn sizes(&self) -> BatchSizes {
        BatchSizes::rising(self.service.sizes.clone()).expect("checked")
    }

    pub(crate) fn service(&self) -> Service {
        let raw = &self.service;
        let change = |c: &Change| (Instant::EPOCH + Duration::from_secs_f64(c.at_s), c.factor);
        let straggle = raw.straggle.clone().unwrap_or(Straggle { share: 0.0, factor: 1.0 });
        Service {
            jitter: raw.jitter,
            straggle_share: straggle.share,
            straggle_factor: straggle.factor,
            changes: raw.changes.iter().map(change).collect(),
            first_factor: raw.first_factor,
            sizes: self.sizes(),
            ..Service::affine(ms(raw.base_ms), ms(raw.per_row_ms))
        }
    }

    /// A policy by its name; `fixed:WAIT_MS:ROWS` may have a queue timeout behind, in ms.
    pub(crate) fn named_policy(&self, name: &str) -> Result<Box<dyn Policy>, String> {
        let service = self.service();
        Ok(match name.split(':').collect::<Vec<_>>()[..] {
            ["cork"] => Box::new(Cork),
            ["eager"] => Box::new(Fixed::EAGER),
            ["aimd"] => Box::new(Aimd::new(self.max_latency())),
            ["cork-2020"] => Box::new(Cork2020::new()),
            ["cork-2020-told"] => Box::new(Cork2020::told(service.base, service.per_row)),
            ["fixed", wait, size, ref timeout @ ..] if timeout.len() < 2 => {
                let number = |text: &str| text.parse::<f64>().map_err(|why| format!("policy '{name}': {why}"));
                let timeout = timeout.first().map(|t| number(t)).transpose()?;
                let (wait, size) = (ms(number(wait)?), number(size)? as usize);
                Box::new(Fixed { timeout: timeout.map_or(Duration::MAX, ms), ..Fixed::new(wait, size) })
            }
            _ => return Err(format!("there is no policy '{name}'")),
        })
    }

    /// The simulator's scenario with this policy; `with the batcher's habits.
    pub(crate) fn with_policy(&self, policy: Box<dyn Policy>, habits: Habits, seed: u64) -> uncork_sim::Scenario {
        let Habits { reserve, timer } = habits;
        let max_latency = self.max_latency() - reserve;
        let model = Model {
            service: self.service(),
            max_latency,
            max_batch: self.max_batch_size,
            policy,
            weight: NonZeroUsize::MIN,
            tried: self.tried,
            way_back: Duration::ZERO,
            warm: false,
        };
        uncork_sim::Scenario { runners: self.runners, models: vec![model], seed, timer }
    }

    /// Requests a second that all runners together can answer in batches of the largest size that meets both caps.
    fn capacity(&self) -> f64 {
        let fits = ((self.max_latency_ms - self.service.base_ms) / self.service.per_row_ms) as usize;
        let rows = fits.clamp(1, self.max_batch_size);
        (self.runners * rows) as f64 / self.service().time(rows).as_secs_f64()
    }

    /// The load of one seed; `reserve` shortens what deadlines of their own requests have.
    pub(crate) fn load(&self, seed: u64, reserve: Duration) -> Load {
        if let Some(Clients { count, think_ms, jitter, for_s }) = self.clients {
            let end = Instant::EPOCH + Duration::from_secs_f64(for_s);
            return Load::Closed(ClosedLoop::new(count, ms(think_ms), jitter, end, seed));
        }
        Load::Open(OpenLoop::new(self.arrivals(seed, reserve)))
    }

    /// The arrivals of one seed; none of a closed loop, which depends on the answers.
    pub(crate) fn arrivals(&self, seed: u64, reserve: Duration) -> Vec<Arrival> {
        let mut begin = Duration::ZERO;
        let mut all = Vec::new();
        for (piece, number) in self.arrivals.iter().zip(0..) {
            let within: Vec<_> = piece.within_ms.iter().map(|&own| ms(own).saturating_sub(reserve)).collect();
            let priorities: Vec<_> = piece.priorities.iter().filter_map(|&level| Priority::new(level)).collect();
            let mut mix = Mix::new(&piece.rows, &within, &priorities, seed * 100 + number);
            let length = Duration::from_secs_f64(piece.for_s);
            let times = self.times(piece, length, seed * 100 + number);
            all.extend(times.into_iter().map(|at| mix.arrival(at + begin)));
            begin += length;
        }
        all
    }

    fn times(&self, piece: &Piece, length: Duration, seed: u64) -> Vec<Instant> {
        let mean_rows = piece.rows.iter().sum::<usize>() as f64 / piece.rows.len() as f64;
        let rate = piece.rate.or(piece.load.map(|load| load * self.capacity() / mean_rows)).unwrap_or_default();
        let s = Duration::from_secs_f64;
        let process = match piece.process {
            RawProcess::Poisson => Process::Poisson { rate },
            RawProcess::Uniform => Process::Uniform { rate },
            RawProcess::Gamma { cv } => Process::Gamma { rate, cv },
            RawProcess::Mmpp { low, high, mean_low_s, mean_high_s } => {
                Process::Mmpp { low: low * rate, high: high * rate, mean_low: s(mean_low_s), mean_high: s(mean_high_s) }
            }
            RawProcess::Flash { factor, from_s, until_s } => {
                Process::Flash { rate, factor, from: s(from_s), until: s(until_s) }
            }
            RawProcess::Diurnal { swing, day_s } => Process::Diurnal { rate, swing, day: s(day_s) },
            RawProcess::FanOut { size, spread_ms } => {
                Process::FanOut { groups: rate / size as f64, size, spread: ms(spread_ms) }
            }
            RawProcess::Burst { count } => return vec![Instant::EPOCH; count],
            RawProcess::List { ref at_ms } => return at_ms.iter().map(|&at| Instant::EPOCH + ms(at)).collect(),
        };
        process.arrivals(length, seed).map(|a| a.at).collect()
    }

    /// Requests a second of clients that all ride in every batch.
    pub(crate) fn lockstep(&self) -> Option<f64> {
        let Clients { count, think_ms, .. } = self.clients.as_ref()?;
        Some(*count as f64 / (self.service().time(*count) + ms(*think_ms)).as_secs_f64())
    }

    /// The most that anyone could answer on time. Exact with one runner whose times are undisturbed; an upper bound with
    /// several or with changes of speed; jitter, stragglers and a slow first batch are left out of it.
    pub(crate) fn optimum(&self, seed: u64) -> Option<usize> {
        if !self.has_optimum() {
            return None;
        }
        let arrivals: Vec<Instant> = self.arrivals(seed, Duration::ZERO).into_iter().map(|a| a.at).collect();
        let (service, cap, size) = (self.service(), self.max_latency(), self.max_batch_size);
        // Each stretch of one speed by itself. Who arrives within the cap before a runner becomes faster may be served at
        // the new speed; who is served at a lower speed than the own stretch's only makes the whole smaller.
        let mut stretches = vec![(Instant::EPOCH, 1.0)];
        for &(at, factor) in &service.changes {
            let faster = stretches.last().is_some_and(|(_, before)| factor < *before);
            stretches.push((if faster { at - cap } else { at }, factor));
        }
        stretches.push((Instant::FAR_FUTURE, 1.0));
        let best = |pair: &[(Instant, f64)]| {
            let at = |instant: Instant| arrivals.partition_point(|a| *a < instant);
            let own = &arrivals[at(pair[0].0)..at(pair[1].0)];
            let (base, per_row) = (service.base.mul_f64(pair[0].1), service.per_row.mul_f64(pair[0].1));
            match self.runners {
                1 => uncork_sim::optimum(own, base, per_row, cap, size),
                runners => uncork_sim::upper_bound(own, base, per_row, cap, size, runners),
            }
        };
        Some(stretches.windows(2).map(best).sum())
    }
}
