//! Processes from which arrivals are drawn.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma};

use uncork_core::estimator::Instant;

use super::arrivals::Arrival;

/// An arrival process of single rows. Rates are in requests a second; where a rate is 0, nothing arrives.
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
    /// Gamma-distributed gaps: with a coefficient of variation above 1 they come in clumps, and with 0 all gaps are equal.
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
    /// Rare lone requests, and then a burst.
    QuietThenBurst {
        /// Rate of the quiet time.
        quiet: f64,
        /// Rate from the burst's begin on.
        burst: f64,
        /// The burst's begin.
        at: Duration,
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

/// A process from which no arrivals can be drawn, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct ProcessError {
    /// The name of the field that is wrong.
    pub key: &'static str,
    /// Its value, and what it must be.
    pub problem: String,
}

impl Process {
    /// The highest rate: one request in each nanosecond, the finest that an [`Instant`] tells apart.
    pub const MOST_RATE: f64 = 1e9;
    /// The highest coefficient of variation. Beyond it, clumps are so large that a run of any length has one of them or none.
    pub const MOST_CV: f64 = 1000.0;
    /// The most requests of a group: they are in memory all at once.
    pub const MOST_TOGETHER: usize = 10_000_000;

    /// Whether arrivals can be drawn from it.
    ///
    /// # Errors
    /// The first value that makes no sense, and what it must be.
    pub fn check(&self) -> Result<(), ProcessError> {
        let wrong = |key, problem: String| Err(ProcessError { key, problem });
        let within = |key, value: f64, most: f64| match (0.0..=most).contains(&value) && value.is_sign_positive() {
            true => Ok(()),
            false => wrong(key, format!("is {value}; it must be from 0 to {most}")),
        };
        let rate = |key, value| within(key, value, Process::MOST_RATE);
        match *self {
            Process::Poisson { rate: asked } | Process::Uniform { rate: asked } => rate("rate", asked),
            Process::Gamma { rate: asked, cv } => {
                rate("rate", asked)?;
                within("cv", cv, Process::MOST_CV)
            }
            Process::Mmpp { low, high, mean_low, mean_high } => {
                rate("low", low)?;
                rate("high", high)?;
                match mean_low.is_zero() && mean_high.is_zero() {
                    true => wrong("mean_low", "is 0, and so is mean_high; one of them must be longer".into()),
                    false => Ok(()),
                }
            }
            Process::Flash { rate: asked, factor, from, until } => {
                rate("rate", asked)?;
                within("factor", factor, f64::MAX)?;
                rate("rate", asked * factor).map_err(|error| ProcessError { key: "rate times factor", ..error })?;
                match from < until {
                    true => Ok(()),
                    false => wrong("until", format!("is {until:?}; it must be after from, {from:?}")),
                }
            }
            Process::Diurnal { rate: asked, swing, day } => {
                rate("rate", asked)?;
                within("swing", swing, 1.0)?;
                match day.is_zero() {
                    true => wrong("day", "is 0; it must be longer".into()),
                    false => Ok(()),
                }
            }
            Process::QuietThenBurst { quiet, burst, .. } => {
                rate("quiet", quiet)?;
                rate("burst", burst)
            }
            Process::FanOut { groups, size, .. } => {
                rate("groups", groups)?;
                match (1..=Process::MOST_TOGETHER).contains(&size) {
                    true => Ok(()),
                    false => wrong("size", format!("is {size}; it must be from 1 to {}", Process::MOST_TOGETHER)),
                }
            }
        }
    }

    /// The arrivals of the first `length`, in order.
    ///
    /// # Panics
    /// [`check`](Self::check) finds something wrong: there would be no arrivals, or no end of them.
    pub fn arrivals(&self, length: Duration, seed: u64) -> impl Iterator<Item = Arrival> + use<> {
        self.check().unwrap_or_else(|wrong| panic!("no arrivals can be drawn: {wrong}"));
        let end = length.as_secs_f64();
        let mut drawn = Draw::new(self.clone(), seed, end);
        std::iter::from_fn(move || drawn.next())
            .take_while(move |at| *at < end)
            .map(|at| Arrival::at(Instant::from_nanos((at * 1e9) as u64)))
    }
}

/// A process under way; times in seconds.
struct Draw {
    process: Process,
    gaps: Option<Gamma<f64>>,
    rng: Xoshiro256PlusPlus,
    now: f64,
    /// What arrives from here on is not wanted, and not looked for: where a rate is 0 there is nothing to be found.
    end: f64,
    /// MMPP: whether in the second state, and until when.
    high: bool,
    until: f64,
    /// Members of fan-out groups that are yet to come.
    members: BinaryHeap<Reverse<Instant>>,
    next_group: f64,
}

impl Draw {
    fn new(process: Process, seed: u64, end: f64) -> Draw {
        let gaps = match process {
            Process::Gamma { rate, cv } => Gamma::new(1.0 / (cv * cv), cv * cv / rate).ok(),
            _ => None,
        };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (members, next_group) = (BinaryHeap::new(), 0.0);
        let mut draw = Draw { process, gaps, rng, now: 0.0, end, high: true, until: 0.0, members, next_group };
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
            Process::Gamma { rate, .. } => {
                // There is no distribution for gaps that do not vary, nor for a rate of 0.
                self.now += self.gaps.map_or(1.0 / rate, |gaps| gaps.sample(&mut self.rng));
            }
            Process::Mmpp { low, high, mean_low, mean_high } => loop {
                let rate = if self.high { high } else { low };
                let at = self.now + self.exp() / rate;
                if at < self.until {
                    self.now = at;
                    break;
                }
                // Without memory, the draw can begin anew where the state changes.
                self.now = self.until;
                if self.now >= self.end {
                    return None;
                }
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
            Process::QuietThenBurst { quiet, burst, at } => {
                let begin = at.as_secs_f64();
                let next = self.now + self.exp() / if self.now < begin { quiet } else { burst };
                // Without memory, the draw can begin anew where the rate changes.
                let crosses = self.now < begin && next >= begin;
                self.now = if crosses { begin + self.exp() / burst } else { next };
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
            if self.now >= self.end || self.rng.random::<f64>() * most < rate(self.now) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Arrivals in seconds.
    fn times(process: &Process, length: f64, seed: u64) -> Vec<f64> {
        process.arrivals(secs(length), seed).map(|a| a.at.as_nanos() as f64 / 1e9).collect()
    }

    /// Requests a second between two instants.
    fn rate(times: &[f64], from: f64, until: f64) -> f64 {
        times.iter().filter(|t| (from..until).contains(*t)).count() as f64 / (until - from)
    }

    /// Coefficient of variation of the gaps.
    fn cv(times: &[f64]) -> f64 {
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        variance.sqrt() / mean
    }

    fn assert_near(what: &str, is: f64, expected: f64, tolerance: f64) {
        assert!((is - expected).abs() <= tolerance * expected, "{what} is {is}, not {expected} ± {tolerance}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn gaps_have_the_mean_and_the_variation_asked_for(
            asked in 0.5f64..50_000.0, clumping in 0.2f64..8.0, seed: u64,
        ) {
            let length = 100_000.0 / asked;
            let poisson = times(&Process::Poisson { rate: asked }, length, seed);
            assert_near("rate", rate(&poisson, 0.0, length), asked, 0.03);
            assert_near("cv", cv(&poisson), 1.0, 0.03);
            let uniform = times(&Process::Uniform { rate: asked }, length, seed);
            assert_near("rate", rate(&uniform, 0.0, length), asked, 0.001);
            prop_assert!(cv(&uniform) < 0.01);
            let gamma = times(&Process::Gamma { rate: asked, cv: clumping }, length, seed);
            assert_near("rate", rate(&gamma, 0.0, length), asked, 0.02 + 0.02 * clumping);
            assert_near("cv", cv(&gamma), clumping, 0.05 + 0.03 * clumping);
        }

        #[test]
        fn changing_rates_are_what_was_asked_for_at_each_time(
            low in 20.0f64..200.0, more in 2.0f64..20.0, turn in 0.3f64..0.7, seed: u64,
        ) {
            let (length, high) = (1000.0, low * more);
            let at = turn * length;
            let burst = times(&Process::QuietThenBurst { quiet: low, burst: high, at: secs(at) }, length, seed);
            assert_near("quiet rate", rate(&burst, 0.0, at), low, 0.08);
            assert_near("burst rate", rate(&burst, at, length), high, 0.04);
            let crowd = Process::Flash { rate: low, factor: more, from: secs(at), until: secs(at + 200.0) };
            let crowd = times(&crowd, length, seed);
            assert_near("rate before the crowd", rate(&crowd, 0.0, at), low, 0.08);
            assert_near("rate in the crowd", rate(&crowd, at, at + 200.0), high, 0.06);
            let mean = (low + high) / 2.0;
            let swing = (high - low) / (high + low);
            let days = times(&Process::Diurnal { rate: mean, swing, day: secs(length / 2.0) }, length, seed);
            assert_near("mean rate", rate(&days, 0.0, length), mean, 0.03);
            // The sine's mean over half a turn is 2/π.
            let morning = mean * (1.0 + swing * std::f64::consts::FRAC_2_PI);
            assert_near("rate of the first half day", rate(&days, 0.0, length / 4.0), morning, 0.07);
        }

        #[test]
        fn two_states_mix_by_the_time_spent_in_each(
            low in 50.0f64..100.0, more in 2.0f64..10.0, share in 0.3f64..0.7, seed: u64,
        ) {
            let (high, length) = (low * more, 2000.0);
            let process = Process::Mmpp { low, high, mean_low: secs(1.0 - share), mean_high: secs(share) };
            let times = times(&process, length, seed);
            assert_near("rate", rate(&times, 0.0, length), low * (1.0 - share) + high * share, 0.1);
            prop_assert!(cv(&times) > 1.02, "states make gaps vary more than chance: {}", cv(&times));
        }

        #[test]
        fn groups_come_whole_and_in_order(groups in 1.0f64..50.0, size in 1usize..40, seed: u64) {
            let process = Process::FanOut { groups, size, spread: secs(0.005) };
            let length = 20_000.0 / groups;
            let spread_out = times(&process, length, seed);
            assert_near("rate", rate(&spread_out, 0.0, length), groups * size as f64, 0.05);
            prop_assert!(spread_out.is_sorted());
            let process = Process::FanOut { groups, size, spread: Duration::ZERO };
            let mut at_once = times(&process, length, seed);
            prop_assert_eq!(at_once.len() % size, 0);
            at_once.dedup();
            assert_near("groups", at_once.len() as f64 / length, groups, 0.05);
        }
    }

    /// How many arrive in a second; `None` if that is not known after ten.
    fn count(process: Process) -> Option<usize> {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let counted = process.arrivals(secs(1.0), 1).take(1_000_000).count();
            // Nobody listens any more if it took too long.
            let _ = tell.send(counted);
        });
        told.recv_timeout(Duration::from_secs(10)).ok()
    }

    /// Each of them had no end, no first arrival, or silently none at all.
    #[test]
    fn a_process_that_makes_no_sense_is_refused_with_what_is_wrong() {
        let (day, size, spread) = (secs(1.0), 4, Duration::ZERO);
        let mmpp = |low, high, mean| Process::Mmpp { low, high, mean_low: mean, mean_high: mean };
        let flash = |factor, until| Process::Flash { rate: 10.0, factor, from: secs(0.2), until: secs(until) };
        for (process, words) in [
            (Process::Poisson { rate: -1.0 }, "rate is -1; it must be from 0 to 1000000000"),
            (Process::Poisson { rate: -0.0 }, "rate is -0"),
            (Process::Poisson { rate: f64::INFINITY }, "rate is inf"),
            (Process::Poisson { rate: f64::NAN }, "rate is NaN"),
            (Process::Uniform { rate: 1e300 }, "rate is 1000"),
            (Process::Gamma { rate: 100.0, cv: f64::NAN }, "cv is NaN"),
            (Process::Gamma { rate: 100.0, cv: 1e9 }, "cv is 1000000000; it must be from 0 to 1000"),
            (mmpp(1.0, -2.0, day), "high is -2"),
            (mmpp(1.0, 2.0, Duration::ZERO), "mean_low is 0, and so is mean_high"),
            (flash(-1.0, 0.4), "factor is -1"),
            (flash(1e300, 0.4), "rate times factor is 1000"),
            (flash(2.0, 0.2), "until is 200ms; it must be after from, 200ms"),
            (Process::Diurnal { rate: 100.0, swing: 2.0, day }, "swing is 2; it must be from 0 to 1"),
            (Process::Diurnal { rate: 100.0, swing: 1.0, day: Duration::ZERO }, "day is 0"),
            (Process::QuietThenBurst { quiet: 1.0, burst: f64::NAN, at: day }, "burst is NaN"),
            (Process::FanOut { groups: 10.0, size: 0, spread }, "size is 0; it must be from 1 to 10000000"),
            (Process::FanOut { groups: 10.0, size: usize::MAX, spread }, "size is 1844"),
            (Process::FanOut { groups: -1.0, size, spread }, "groups is -1"),
        ] {
            let wrong = process.check().expect_err(words).to_string();
            assert!(wrong.starts_with(words), "{process:?}: {wrong}");
            let drawn = std::panic::catch_unwind(|| process.arrivals(secs(1.0), 1).next());
            assert!(drawn.is_err(), "{process:?}: {drawn:?}");
        }
    }

    #[test]
    fn where_the_rate_is_0_nothing_arrives_and_the_search_for_it_ends() {
        let second = secs(1.0);
        for process in [
            Process::Poisson { rate: 0.0 },
            Process::Uniform { rate: 0.0 },
            Process::Gamma { rate: 0.0, cv: 2.0 },
            Process::Mmpp { low: 0.0, high: 0.0, mean_low: second, mean_high: second },
            Process::Flash { rate: 0.0, factor: 3.0, from: Duration::ZERO, until: second },
            Process::Diurnal { rate: 0.0, swing: 1.0, day: second },
            Process::QuietThenBurst { quiet: 0.0, burst: 0.0, at: second },
            Process::FanOut { groups: 0.0, size: 4, spread: Duration::ZERO },
        ] {
            assert_eq!(process.check(), Ok(()), "{process:?}");
            assert_eq!(count(process.clone()), Some(0), "{process:?}");
        }
        let only_high = Process::Mmpp { low: 0.0, high: 100.0, mean_low: Duration::ZERO, mean_high: second };
        assert!(
            count(only_high).is_some_and(|there| (50..150).contains(&there)),
            "a state without any time is passed over"
        );
    }

    #[test]
    fn gaps_that_do_not_vary_are_equal() {
        let uniform = times(&Process::Uniform { rate: 100.0 }, 1.0, 1);
        assert_eq!(uniform.len(), 99, "the hundredth comes when the second is over");
        assert_eq!(times(&Process::Gamma { rate: 100.0, cv: 0.0 }, 1.0, 1), uniform);
        assert_eq!(times(&Process::Gamma { rate: 100.0, cv: 1e-200 }, 1.0, 1), uniform);
    }

    #[test]
    fn a_burst_begins_when_it_should_however_rare_the_requests_before_it() {
        for seed in 0..20 {
            let process = Process::QuietThenBurst { quiet: 0.001, burst: 1000.0, at: secs(5.0) };
            let first = times(&process, 6.0, seed).into_iter().find(|at| *at >= 5.0).expect("a burst");
            assert!(first < 5.02, "seed {seed}: {first}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_arrivals_and_others_others() {
        let process = Process::Gamma { rate: 500.0, cv: 4.0 };
        assert_eq!(times(&process, 9.0, 1), times(&process, 9.0, 1));
        assert_ne!(times(&process, 9.0, 1), times(&process, 9.0, 2));
    }
}
