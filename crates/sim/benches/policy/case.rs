//! The loads and servers that are measured: service models, arrival processes, and policies by name.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use uncork_core::estimator::{Fit, Instant};
use uncork_core::policy::{Aimd, Cork, Cork2020, Fixed, Policy};
use uncork_sim::{Arrival, Model, OpenLoop, Outcome, Process, Scenario, Service, Source, optimum, run};

pub(crate) fn ms(ms: f64) -> Duration {
    Duration::from_nanos((ms * 1e6).round() as u64)
}

/// A model and its two caps: a batch of n rows takes base + n · per_row. Times in ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) base: f64,
    pub(crate) per_row: f64,
    pub(crate) max_batch: usize,
    pub(crate) max_latency: f64,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { base, per_row, max_batch, max_latency } = self;
        write!(f, "{base} + {per_row}·n, {max_batch}, {max_latency}")
    }
}

const fn setup(base: f64, per_row: f64, max_batch: usize, max_latency: f64) -> Setup {
    Setup { base, per_row, max_batch, max_latency }
}

/// The service models of the grid.
pub(crate) const SETUPS: [Setup; 5] = [
    setup(2.0, 0.05, 128, 50.0),
    setup(5.0, 0.2, 64, 25.0),
    setup(10.0, 0.5, 64, 50.0),
    setup(10.0, 1.0, 32, 30.0),
    setup(25.0, 0.1, 256, 100.0),
];

/// The loads of the grid, as shares of the capacity.
pub(crate) const LOADS: [f64; 3] = [0.6, 1.1, 2.0];

/// The arrival processes of the grid.
pub(crate) const PROCESSES: [&str; 5] = ["Poisson", "MMPP", "gamma CV 4", "flash", "diurnal"];

/// One of [`PROCESSES`] with this mean rate before any crowd, in requests a second, over `length` seconds.
pub(crate) fn process(name: &str, rate: f64, length: f64) -> Process {
    let seconds = Duration::from_secs_f64;
    match name {
        "MMPP" => {
            Process::Mmpp { low: 0.4 * rate, high: 1.6 * rate, mean_low: seconds(0.25), mean_high: seconds(0.25) }
        }
        "gamma CV 4" => Process::Gamma { rate, cv: 4.0 },
        "flash" => {
            let (from, until) = (seconds(length * 0.45), seconds(length * 0.55));
            Process::Flash { rate: 0.8 * rate, factor: 3.0, from, until }
        }
        "diurnal" => Process::Diurnal { rate, swing: 0.8, day: seconds(length / 2.0) },
        _ => Process::Poisson { rate },
    }
}

impl Setup {
    pub(crate) fn time(&self, rows: usize) -> f64 {
        self.base + self.per_row * rows as f64
    }

    /// n*: the largest batch whose time is within the cap.
    pub(crate) fn largest_batch(&self) -> usize {
        (1..=self.max_batch).rev().find(|&n| self.time(n) <= self.max_latency + 1e-9).unwrap_or(1)
    }

    /// n*/t(n*), in rows a second.
    pub(crate) fn capacity(&self) -> f64 {
        self.largest_batch() as f64 / self.time(self.largest_batch()) * 1e3
    }

    /// Arrivals of one of [`PROCESSES`] at a share of the capacity, for `length` seconds.
    pub(crate) fn load(&self, name: &str, load: f64, length: f64, seed: u64) -> Vec<Arrival> {
        let process = process(name, load * self.capacity(), length);
        process.arrivals(Duration::from_secs_f64(length), seed).collect()
    }

    /// What is to be learned.
    pub(crate) fn fit(&self) -> Fit {
        Fit::line(self.base / 1e3, self.per_row / 1e3, 1.0)
    }

    pub(crate) fn service(&self) -> Service {
        Service::affine(ms(self.base), ms(self.per_row))
    }

    pub(crate) fn scenario(&self, policy: Box<dyn Policy>, service: Service, runners: usize) -> Scenario {
        let (max_latency, max_batch) = (ms(self.max_latency), self.max_batch);
        let model = Model {
            service,
            max_latency,
            max_batch,
            weight: NonZeroUsize::MIN,
            policy,
            tried: None,
            way_back: Duration::ZERO,
            warm: true,
        };
        Scenario { runners, models: vec![model], seed: 7, timer: Duration::ZERO }
    }

    /// What becomes of arrivals at one undisturbed runner.
    pub(crate) fn run(&self, policy: Box<dyn Policy>, arrivals: &[Arrival]) -> Outcome {
        only(self.scenario(policy, self.service(), 1), &mut OpenLoop::new(arrivals.iter().copied()))
    }

    /// What becomes of arrivals at one runner that something disturbs.
    pub(crate) fn run_disturbed(&self, policy: Box<dyn Policy>, service: Service, arrivals: &[Arrival]) -> Outcome {
        only(self.scenario(policy, service, 1), &mut OpenLoop::new(arrivals.iter().copied()))
    }

    /// The most of these that anyone could answer on time with one runner.
    pub(crate) fn optimum(&self, arrivals: &[Arrival]) -> usize {
        let Setup { base, per_row, max_batch, max_latency } = *self;
        optimum(&instants(arrivals), ms(base), ms(per_row), ms(max_latency), max_batch)
    }
}

pub(crate) fn instants(arrivals: &[Arrival]) -> Vec<Instant> {
    arrivals.iter().map(|a| a.at).collect()
}

/// Runs a scenario of one model.
pub(crate) fn only(scenario: Scenario, source: &mut impl Source) -> Outcome {
    run(scenario, source).into_iter().next().expect("a scenario of one model has one outcome")
}

/// Makes a policy for a server.
pub(crate) type Make = fn(&Setup) -> Box<dyn Policy>;

pub(crate) const CORK: (&str, Make) = ("cork", |_| Box::new(Cork));
pub(crate) const EAGER: (&str, Make) = ("eager", |_| Box::new(Fixed::EAGER));
pub(crate) const AIMD: (&str, Make) = ("aimd", |setup| Box::new(Aimd::new(ms(setup.max_latency))));
pub(crate) const CORK_2020: (&str, Make) = ("cork-2020", |_| Box::new(Cork2020::new()));
/// The published rule that knows the true batch times.
pub(crate) const TOLD_2020: (&str, Make) =
    ("cork-2020 told", |setup| Box::new(Cork2020::told(ms(setup.base), ms(setup.per_row))));

/// All that need no search.
pub(crate) const POLICIES: [(&str, Make); 5] = [CORK, TOLD_2020, CORK_2020, AIMD, EAGER];
