//! When simulated requests arrive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

use uncork_core::estimator::Instant;
use uncork_core::policy::{Caller, Priority};

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
    /// Its level.
    pub priority: Priority,
    /// Whose it is.
    pub caller: Caller,
}

impl Arrival {
    /// One row of the default priority, of nobody in particular, for the first model, under the model's own cap.
    #[must_use]
    pub fn at(at: Instant) -> Arrival {
        Arrival { at, rows: 1, model: 0, within: None, priority: Priority::DEFAULT, caller: Caller::default() }
    }
}

/// Where requests come from, in the order of their arrival.
pub trait Source {
    /// When the next one arrives, as far as is known now.
    fn peek(&self) -> Option<Instant>;
    /// Takes it.
    fn pop(&mut self) -> Option<Arrival>;
    /// One for this model was, or will be, answered or refused at `at`.
    fn answered(&mut self, _model: usize, _at: Instant) {}
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn peek(&self) -> Option<Instant> {
        (**self).peek()
    }

    fn pop(&mut self) -> Option<Arrival> {
        (**self).pop()
    }

    fn answered(&mut self, model: usize, at: Instant) {
        (**self).answered(model, at);
    }
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
    /// No client asks again sooner than this, about the time of a round trip on one machine. One that did not think and was
    /// refused at once would otherwise ask for ever without any time passing.
    pub const ROUND_TRIP: Duration = Duration::from_micros(50);

    /// `clients` that begin within the first millisecond, think for `think` times a log-normal factor of σ `jitter`, and
    /// ask nothing new from `end` on.
    #[must_use]
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

    fn answered(&mut self, _model: usize, at: Instant) {
        let mut think = self.think;
        if self.jitter > 0.0 {
            let normal: f64 = StandardNormal.sample(&mut self.rng);
            think = think.mul_f64((self.jitter * normal - self.jitter * self.jitter / 2.0).exp());
        }
        let next = at + think.max(ClosedLoop::ROUND_TRIP);
        if next < self.end {
            self.due.push(Reverse(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_closed_loop_asks_again_when_it_is_answered_and_has_thought(
            clients in 1usize..50, think_ms in 0u64..50, jitter in 0.0f64..0.5, seed: u64,
        ) {
            let (think, end) = (Duration::from_millis(think_ms), Instant::EPOCH + Duration::from_secs(5));
            let mut source = ClosedLoop::new(clients, think, jitter, end, seed);
            let service = Duration::from_millis(10);
            let mut asked = 0usize;
            while let Some(arrival) = source.pop() {
                asked += 1;
                source.answered(0, arrival.at + service);
            }
            let expected = clients as f64 * 5.0 / (think + service).as_secs_f64();
            let chance = 4.0 * jitter * expected.sqrt();
            prop_assert!((asked as f64 - expected).abs() <= chance + 0.05 * expected + clients as f64, "{asked} {expected}");
        }
    }

    #[test]
    fn a_refused_client_that_does_not_think_lets_time_pass() {
        let end = Instant::EPOCH + Duration::from_millis(3);
        let mut source = ClosedLoop::new(1, Duration::ZERO, 0.0, end, 1);
        let mut asked = 0;
        while let Some(arrival) = source.pop() {
            asked += 1;
            source.answered(0, arrival.at);
        }
        assert!((40..=61).contains(&asked), "{asked}");
    }
}
