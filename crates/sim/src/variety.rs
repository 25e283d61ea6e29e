//! What differs between the requests of one load: rows, deadlines of their own, priorities.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

use super::{Arrival, Source};
use uncork_core::estimator::Instant;
use uncork_core::policy::Priority;

/// From what each request draws, independently of the others. The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Variety {
    /// Rows: each of these numbers is as likely. Without any, they stay as they are.
    pub rows: Vec<usize>,
    /// Latency caps of their own, and the share of the requests that has each; the rest has none.
    pub within: Vec<(f64, Duration)>,
    /// Priorities, and the share of the requests that has each; the rest keeps the one it has.
    pub priorities: Vec<(f64, Priority)>,
}

impl Variety {
    fn draw(&self, arrival: Arrival, rng: &mut impl Rng) -> Arrival {
        let rows = match self.rows[..] {
            [] => arrival.rows,
            [all] => all,
            ref several => several[rng.random_range(0..several.len())],
        };
        let within = drawn(&self.within, rng).or(arrival.within);
        let priority = drawn(&self.priorities, rng).unwrap_or(arrival.priority);
        Arrival { rows, within, priority, ..arrival }
    }
}

/// One of the values with the probability that stands beside it, or none.
fn drawn<T: Copy>(shares: &[(f64, T)], rng: &mut impl Rng) -> Option<T> {
    if shares.is_empty() {
        return None;
    }
    let mut left: f64 = rng.random();
    let hit = shares.iter().find(|(share, _)| {
        left -= share;
        left < 0.0
    });
    hit.map(|(_, value)| *value)
}

/// The arrivals of an iterator or a source, at the same times, with a [`Variety`].
#[derive(Debug, Clone)]
pub struct Varied<A> {
    arrivals: A,
    variety: Variety,
    rng: Xoshiro256PlusPlus,
}

impl<A> Varied<A> {
    /// The same seed draws the same.
    pub fn new(arrivals: A, variety: Variety, seed: u64) -> Varied<A> {
        Varied { arrivals, variety, rng: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }
}

impl<A: Iterator<Item = Arrival>> Iterator for Varied<A> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.arrivals.next().map(|arrival| self.variety.draw(arrival, &mut self.rng))
    }
}

impl<A: Source> Source for Varied<A> {
    fn peek(&self) -> Option<Instant> {
        self.arrivals.peek()
    }

    fn pop(&mut self) -> Option<Arrival> {
        self.arrivals.pop().map(|arrival| self.variety.draw(arrival, &mut self.rng))
    }

    fn answered(&mut self, model: usize, at: Instant) {
        self.arrivals.answered(model, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use proptest::prelude::*;

    fn arrivals(seed: u64) -> impl Iterator<Item = Arrival> {
        Process::Poisson { rate: 1000.0 }.arrivals(Duration::from_secs(20), seed)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_value_comes_as_often_as_it_should_and_the_times_stay(
            most in 1usize..9, tenth in 0.0f64..0.5, half in 0.0f64..0.5, urgent in 0.0f64..=1.0, seed: u64,
        ) {
            let ms = Duration::from_millis;
            let variety = Variety {
                rows: (1..=most).collect(),
                within: vec![(tenth, ms(10)), (half, ms(20))],
                priorities: vec![(urgent, Priority::HIGHEST)],
            };
            let varied: Vec<_> = Varied::new(arrivals(seed), variety, !seed).collect();
            prop_assert!(varied.iter().map(|a| a.at).eq(arrivals(seed).map(|a| a.at)));
            let share = |is: &dyn Fn(&Arrival) -> bool| {
                varied.iter().filter(|a| is(a)).count() as f64 / varied.len() as f64
            };
            for (found, expected) in [
                (share(&|a| a.rows == most), 1.0 / most as f64),
                (share(&|a| a.within == Some(ms(10))), tenth),
                (share(&|a| a.within == Some(ms(20))), half),
                (share(&|a| a.priority == Priority::HIGHEST), urgent),
                (share(&|a| a.priority == Priority::DEFAULT), 1.0 - urgent),
            ] {
                prop_assert!((found - expected).abs() < 0.02, "{found} and not {expected}");
            }
        }
    }

    #[test]
    fn without_variety_nothing_changes() {
        assert!(Varied::new(arrivals(1), Variety::default(), 1).eq(arrivals(1)));
    }
}
