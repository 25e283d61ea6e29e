//! When simulated requests arrive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma, StandardNormal};

use crate::estimator::Instant;

/// A request that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// Its rows.
    pub rows: usize,
    /// Which of the scenario's models it is for.
    pub model: usize,
    /// A latency cap of its own, shorter than the model's.
    pub within: Option<Duration>,
}

impl Arrival {
    /// One row for the first model, under the model's own cap.
    pub fn at(at: Instant) -> Arrival {
        Arrival { at, rows: 1, model: 0, within: None }
    }
}

/// Where requests come from, in the order of their arrival.
pub trait Source {
    /// When the next one arrives, as far as is known now.
    fn peek(&self) -> Option<Instant>;
    /// Takes it.
    fn pop(&mut self) -> Option<Arrival>;
    /// One was, or will be, answered or refused at `at`.
    fn answered(&mut self, _at: Instant) {}
}

/// An open loop: it does not care what becomes of its requests.
#[derive(Debug, Clone)]
pub struct OpenLoop<I> {
    next: Option<Arrival>,
    rest: I,
}

impl<I: Iterator<Item = Arrival>> OpenLoop<I> {
    /// Arrivals in the order of their time.
    pub fn new(arrivals: impl IntoIterator<IntoIter = I>) -> OpenLoop<I> {
        let mut rest = arrivals.into_iter();
        OpenLoop { next: rest.next(), rest }
    }
}

impl<I: Iterator<Item = Arrival>> Source for OpenLoop<I> {
    fn peek(&self) -> Option<Instant> {
        self.next.map(|a| a.at)
    }

    fn pop(&mut self) -> Option<Arrival> {
        std::mem::replace(&mut self.next, self.rest.next())
    }
}

/// Clients that each wait for an answer, think, and ask again.
#[derive(Debug, Clone)]
pub struct ClosedLoop {
    due: BinaryHeap<Reverse<Instant>>,
    think: Duration,
    jitter: f64,
    end: Instant,
    rng: Xoshiro256PlusPlus,
}

impl ClosedLoop {
    /// `clients` that begin within the first millisecond, think for `think` times a log-normal factor of σ `jitter`, and
    /// ask nothing new from `end` on.
    pub fn new(clients: usize, think: Duration, jitter: f64, end: Instant, seed: u64) -> ClosedLoop {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let due = (0..clients).map(|_| Reverse(Instant::from_nanos(rng.random_range(0..1_000_000)))).collect();
        ClosedLoop { due, think, jitter, end, rng }
    }
}

impl Source for ClosedLoop {
    fn peek(&self) -> Option<Instant> {
        self.due.peek().map(|r| r.0)
    }

    fn pop(&mut self) -> Option<Arrival> {
        self.due.pop().map(|r| Arrival::at(r.0))
    }

    fn answered(&mut self, at: Instant) {
        let normal: f64 = StandardNormal.sample(&mut self.rng);
        let factor = (self.jitter * normal - self.jitter * self.jitter / 2.0).exp();
        let next = at + self.think.mul_f64(factor);
        if next < self.end {
            self.due.push(Reverse(next));
        }
    }
}

/// An arrival process of single rows. Rates are in requests a second.
#[derive(Debug, Clone, PartialEq)]
pub enum Process {
    /// Independent arrivals.
    Poisson {
        /// Requests a second.
        rate: f64,
    },
    /// Equal gaps.
    Uniform {
        /// Requests a second.
        rate: f64,
    },
    /// Gamma-distributed gaps: with a coefficient of variation above 1 they come in clumps.
    Gamma {
        /// Requests a second.
        rate: f64,
        /// Standard deviation of the gaps over their mean.
        cv: f64,
    },
    /// A Poisson process whose rate changes between two values after exponential times (MMPP-2).
    Mmpp {
        /// Rate of the first state.
        low: f64,
        /// Rate of the second.
        high: f64,
        /// Mean time in the first.
        mean_low: Duration,
        /// Mean time in the second.
        mean_high: Duration,
    },
    /// A Poisson process that is `factor` times as fast between `from` and `until`.
    Flash {
        /// Rate outside the crowd.
        rate: f64,
        /// How much faster it comes in the crowd.
        factor: f64,
        /// The crowd's begin.
        from: Duration,
        /// The crowd's end.
        until: Duration,
    },
    /// A Poisson process whose rate swings as a sine around its mean.
    Diurnal {
        /// Mean rate.
        rate: f64,
        /// Amplitude as a share of the mean, up to 1.
        swing: f64,
        /// Length of a day.
        day: Duration,
    },
    /// Groups that arrive as Poisson, each of so many requests spread evenly over a time.
    FanOut {
        /// Groups a second.
        groups: f64,
        /// Requests a group.
        size: usize,
        /// From the first of a group to its last.
        spread: Duration,
    },
}

impl Process {
    /// The arrivals of the first `length`, in order.
    pub fn arrivals(&self, length: Duration, seed: u64) -> impl Iterator<Item = Arrival> + use<> {
        let mut drawn = Draw::new(self.clone(), seed);
        let end = length.as_secs_f64();
        std::iter::from_fn(move || drawn.next())
            .take_while(move |at| *at < end)
            .map(|at| Arrival::at(Instant::EPOCH + Duration::from_secs_f64(at)))
    }
}

/// A process under way; times in seconds.
struct Draw {
    process: Process,
    gaps: Option<Gamma<f64>>,
    rng: Xoshiro256PlusPlus,
    now: f64,
    /// MMPP: whether in the second state, and until when.
    high: bool,
    until: f64,
    /// Members of fan-out groups that are yet to come.
    members: BinaryHeap<Reverse<Instant>>,
    next_group: f64,
}

impl Draw {
    fn new(process: Process, seed: u64) -> Draw {
        let gaps = match process {
            Process::Gamma { rate, cv } => Gamma::new(1.0 / (cv * cv), cv * cv / rate).ok(),
            _ => None,
        };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut draw =
            Draw { process, gaps, rng, now: 0.0, high: true, until: 0.0, members: BinaryHeap::new(), next_group: 0.0 };
        if let Process::FanOut { groups, .. } = draw.process {
            draw.next_group = draw.exp() / groups;
        }
        draw
    }

    fn exp(&mut self) -> f64 {
        Exp1.sample(&mut self.rng)
    }

    fn next(&mut self) -> Option<f64> {
        match self.process {
            Process::Poisson { rate } => self.now += self.exp() / rate,
            Process::Uniform { rate } => self.now += 1.0 / rate,
            Process::Gamma { .. } => self.now += self.gaps?.sample(&mut self.rng),
            Process::Mmpp { low, high, mean_low, mean_high } => loop {
                let rate = if self.high { high } else { low };
                let at = self.now + self.exp() / rate;
                if at < self.until {
                    self.now = at;
                    break;
                }
                // Without memory, the draw can begin anew where the state changes.
                self.now = self.until;
                self.high = !self.high;
                let mean = if self.high { mean_high } else { mean_low };
                self.until += self.exp() * mean.as_secs_f64();
            },
            Process::Flash { rate, factor, from, until } => {
                let crowd = from.as_secs_f64()..until.as_secs_f64();
                self.thin(rate * factor.max(1.0), |at| if crowd.contains(&at) { rate * factor } else { rate });
            }
            Process::Diurnal { rate, swing, day } => {
                let turn = std::f64::consts::TAU / day.as_secs_f64();
                self.thin(rate * (1.0 + swing), |at| rate * (1.0 + swing * (at * turn).sin()));
            }
            Process::FanOut { groups, size, spread } => {
                let spread = spread.as_secs_f64();
                while self.members.peek().is_none_or(|m| m.0.as_nanos() as f64 >= self.next_group * 1e9) {
                    for i in 0..size {
                        let at = self.next_group + spread * i as f64 / size.max(2).saturating_sub(1) as f64;
                        self.members.push(Reverse(Instant::from_nanos((at * 1e9) as u64)));
                    }
                    self.next_group += self.exp() / groups;
                }
                self.now = self.members.pop()?.0.as_nanos() as f64 / 1e9;
            }
        }
        Some(self.now)
    }

    /// The next arrival of a Poisson process of varying rate, by thinning one of rate `most` (Lewis and Shedler, 1979).
    fn thin(&mut self, most: f64, rate: impl Fn(f64) -> f64) {
        loop {
            self.now += self.exp() / most;
            if self.rng.random::<f64>() * most < rate(self.now) {
                return;
            }
        }
    }
}
