//! Rates that change as planned: ramps and steps, under gaps of any shape.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Exp1, Gamma};

use uncork_sim::Process;

/// The gaps between requests, at whatever rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Independent arrivals.
    Poisson,
    /// Equal gaps.
    Uniform,
    /// Gamma-distributed gaps of this coefficient of variation: above 1 they come in clumps, and with 0 all gaps are equal.
    Gamma(f64),
}

/// A stretch of time over which the rate goes straight from one value to another.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    from: f64,
    to: f64,
    seconds: f64,
}

impl Stretch {
    /// Requests in the first `t` seconds.
    fn requests(&self, t: f64) -> f64 {
        self.from * t + (self.to - self.from) * t * t / (2.0 * self.seconds)
    }

    /// When the `n`-th request is due: the inverse of [`requests`](Self::requests).
    fn when(&self, n: f64) -> f64 {
        let slope = (self.to - self.from) / self.seconds;
        // The form of the quadratic formula that loses no digits where the slope is small, and divides by nothing where it is none.
        let root = (self.from * self.from + 2.0 * slope * n).max(0.0).sqrt();
        if self.from + root > 0.0 { (2.0 * n / (self.from + root)).min(self.seconds) } else { self.seconds }
    }
}

/// A rate by time.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    stretches: Vec<Stretch>,
}

impl Pace {
    /// Rates in requests a second, from one to another in a straight line, each for its time.
    pub fn new(stretches: &[(f64, f64, Duration)]) -> Pace {
        let stretch = |&(from, to, length): &(f64, f64, Duration)| Stretch { from, to, seconds: length.as_secs_f64() };
        Pace { stretches: stretches.iter().map(stretch).collect() }
    }

    /// Whether requests can come at it with gaps of this shape.
    pub(super) fn check(&self, shape: Shape) -> Result<(), String> {
        let check = |process: Process| process.check().map_err(|wrong| wrong.to_string());
        if let Shape::Gamma(cv) = shape {
            check(Process::Gamma { rate: 1.0, cv })?;
        }
        for stretch in &self.stretches {
            check(Process::Poisson { rate: stretch.from })?;
            check(Process::Poisson { rate: stretch.to })?;
            if stretch.seconds == 0.0 {
                return Err(format!("rates from {} to {} have a time of 0; give them some", stretch.from, stretch.to));
            }
        }
        Ok(())
    }

    pub(super) fn first_rate(&self) -> f64 {
        // A ramp from 0 begins somewhere.
        self.stretches.first().map_or(1.0, |first| first.from.max(1.0))
    }

    pub(super) fn length(&self) -> Duration {
        Duration::from_secs_f64(self.stretches.iter().map(|stretch| stretch.seconds).sum())
    }

    /// When requests are due in the first `length`, in seconds: those of a process of rate 1, each moved to when the pace has let so many through.
    pub(super) fn times(&self, shape: Shape, length: Duration, seed: u64) -> impl Iterator<Item = f64> + Send + use<> {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let gamma = match shape {
            Shape::Gamma(cv) => Gamma::new(1.0 / (cv * cv), cv * cv).ok(),
            _ => None,
        };
        let mut gap = move || match (shape, &gamma) {
            (Shape::Poisson, _) => Exp1.sample(&mut chance),
            (_, Some(gamma)) => gamma.sample(&mut chance),
            // There is no distribution for gaps that do not vary.
            (Shape::Uniform | Shape::Gamma(_), None) => 1.0,
        };
        let mut stretches = self.stretches.clone().into_iter();
        let mut current = stretches.next();
        let (mut begin, mut passed, mut n) = (0.0, 0.0, 0.0);
        let end = length.as_secs_f64();
        let next = move || {
            n += gap();
            loop {
                let stretch = current?;
                let within = stretch.requests(stretch.seconds);
                if n - passed <= within {
                    return Some(begin + stretch.when(n - passed));
                }
                passed += within;
                begin += stretch.seconds;
                current = stretches.next();
            }
        };
        std::iter::from_fn(next).take_while(move |at| *at < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(pace: &Pace, shape: Shape, seconds: f64, seed: u64) -> Vec<f64> {
        let length = Duration::from_secs_f64(seconds);
        pace.times(shape, length, seed).collect()
    }

    fn count(times: &[f64], from: f64, until: f64) -> f64 {
        times.iter().filter(|at| (from..until).contains(*at)).count() as f64
    }

    #[test]
    fn gaps_that_do_not_vary_are_equal() {
        let pace = Pace::new(&[(10.0, 10.0, Duration::from_secs(2))]);
        let uniform = times(&pace, Shape::Uniform, 2.0, 1);
        assert_eq!(uniform[..2], [0.1, 0.2]);
        assert_eq!(times(&pace, Shape::Gamma(0.0), 2.0, 1), uniform);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_ramp_sends_what_lies_under_its_line(
            from in 0.0f64..500.0, to in 1.0f64..500.0, seconds in 1.0f64..50.0, part in 0.1f64..1.0,
        ) {
            let pace = Pace::new(&[(from, to, Duration::from_secs_f64(seconds))]);
            let times = times(&pace, Shape::Uniform, seconds, 1);
            let at = part * seconds;
            let expected = from * at + (to - from) * at * at / (2.0 * seconds);
            let sent = count(&times, 0.0, at);
            prop_assert!((sent - expected).abs() <= 1.01, "{sent}, not {expected}");
            prop_assert!(times.is_sorted());
        }

        #[test]
        fn each_step_has_its_rate(low in 200.0f64..1000.0, factor in 0.2f64..5.0, cv in 0.5f64..2.0, seed: u64) {
            let second = Duration::from_secs(20);
            let pace = Pace::new(&[(low, low, second), (low * factor, low * factor, second)]);
            for shape in [Shape::Poisson, Shape::Gamma(cv), Shape::Uniform] {
                let times = times(&pace, shape, 40.0, seed);
                for (from, rate) in [(0.0, low), (20.0, low * factor)] {
                    let sent = count(&times, from, from + 20.0);
                    // Six standard deviations of a renewal process's count.
                    let margin = 6.0 * cv.max(1.0) * (20.0 * rate).sqrt() + 2.0;
                    prop_assert!((sent - 20.0 * rate).abs() < margin, "{shape:?}: {sent}, not {}", 20.0 * rate);
                }
            }
        }
    }
}
