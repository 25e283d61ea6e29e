//! When requests are due, and how many rows each has.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::pace::{Pace, Shape};
use uncork_sim::{Arrival, Process};

/// A request to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// When, since the begin of the run.
    pub at: Duration,
    /// Its rows.
    pub rows: usize,
}

/// Requests in the order of their time.
pub type Dues = Box<dyn Iterator<Item = Due> + Send>;

/// How requests arrive in an open loop.
#[derive(Debug, Clone)]
pub enum Times {
    /// A process of the simulator.
    Process(Process),
    /// Gaps of some shape at a rate that changes as planned.
    Paced(Shape, Pace),
    /// What somebody recorded.
    Trace(Arc<[Due]>),
}

impl Times {
    /// The same arrivals, faster or slower: at `rate` requests a second on average.
    ///
    /// # Errors
    /// A sentence, where the rates are part of what the arrivals are.
    pub fn at_rate(&self, rate: f64) -> Result<Times, String> {
        match self {
            Times::Process(Process::Poisson { .. }) => Ok(Times::Process(Process::Poisson { rate })),
            Times::Process(Process::Uniform { .. }) => Ok(Times::Process(Process::Uniform { rate })),
            Times::Process(Process::Gamma { cv, .. }) => Ok(Times::Process(Process::Gamma { rate, cv: *cv })),
            Times::Trace(dues) => {
                let factor = trace_rate(dues) / rate;
                let moved = dues.iter().map(|due| Due { at: due.at.mul_f64(factor), rows: due.rows });
                Ok(Times::Trace(moved.collect()))
            }
            Times::Process(_) | Times::Paced(..) => {
                Err("these arrivals have rates of their own; take poisson, uniform, gamma or a file".into())
            }
        }
    }

    /// Requests a second at the begin: what a warm-up sends.
    fn first_rate(&self) -> f64 {
        match self {
            Times::Process(process) => match *process {
                Process::Poisson { rate }
                | Process::Uniform { rate }
                | Process::Gamma { rate, .. }
                | Process::Flash { rate, .. }
                | Process::Diurnal { rate, .. } => rate,
                Process::Mmpp { low, .. } => low,
                Process::QuietThenBurst { quiet, .. } => quiet,
                Process::FanOut { groups, size, .. } => groups * size as f64,
            },
            Times::Paced(_, pace) => pace.first_rate(),
            Times::Trace(dues) => trace_rate(dues),
        }
    }

    /// How long arrivals come, where they know.
    pub fn length(&self) -> Option<Duration> {
        match self {
            Times::Process(_) => None,
            Times::Paced(_, pace) => Some(pace.length()),
            // So that the last one is part of it.
            Times::Trace(dues) => dues.last().map(|last| last.at + Duration::from_millis(1)),
        }
    }

    /// Whether each request's rows are recorded with it.
    pub fn has_rows(&self) -> bool {
        matches!(self, Times::Trace(dues) if dues.iter().any(|due| due.rows != 1))
    }
}

fn trace_rate(dues: &[Due]) -> f64 {
    let seconds = dues.last().map_or(0.0, |last| last.at.as_secs_f64());
    // A trace of one instant has no rate; a second is as good a length as any.
    if seconds > 0.0 { dues.len() as f64 / seconds } else { dues.len() as f64 }
}

/// An open loop: it does not care what becomes of its requests.
#[derive(Debug, Clone)]
pub struct OpenLoad {
    /// When requests arrive.
    pub times: Times,
    /// Rows of a request, each number equally likely; a trace's own rows win.
    pub rows: RangeInclusive<usize>,
    /// Time before the measurement, in which requests come independently at the rate of its begin.
    pub warm_up: Duration,
    /// Time of the measurement.
    pub length: Duration,
    /// The same seed gives the same schedule.
    pub seed: u64,
}

impl OpenLoad {
    /// All requests, those of the warm-up first.
    pub fn dues(&self) -> Dues {
        let at = |arrival: Arrival| Duration::from_nanos(arrival.at.as_nanos());
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ ROWS);
        let range = self.rows.clone();
        let mut rows = move || {
            if range.start() == range.end() { *range.start() } else { chance.random_range(range.clone()) }
        };
        let end = self.length;
        let measured: Dues = match &self.times {
            Times::Process(process) => {
                let mut rows = rows.clone();
                Box::new(process.arrivals(end, self.seed).map(move |arrival| Due { at: at(arrival), rows: rows() }))
            }
            Times::Paced(shape, pace) => {
                let mut rows = rows.clone();
                let times = pace.times(*shape, end, self.seed);
                Box::new(times.map(move |seconds| Due { at: Duration::from_secs_f64(seconds), rows: rows() }))
            }
            Times::Trace(dues) => {
                let (dues, has_rows) = (Arc::clone(dues), self.times.has_rows());
                let mut rows = rows.clone();
                let all = (0..dues.len()).map(move |i| dues[i]).take_while(move |due| due.at < end);
                Box::new(all.map(move |due| if has_rows { due } else { Due { rows: rows(), ..due } }))
            }
        };
        let begin = self.warm_up;
        let warm_up = Process::Poisson { rate: self.times.first_rate() }.arrivals(begin, !self.seed);
        let warm_up = warm_up.map(move |arrival| Due { at: at(arrival), rows: rows() });
        Box::new(warm_up.chain(measured.map(move |due| Due { at: due.at + begin, ..due })))
    }

    /// Numbers of rows that a request may have.
    pub fn sizes(&self) -> Vec<usize> {
        let Times::Trace(dues) = &self.times else { return self.rows.clone().collect() };
        if !self.times.has_rows() {
            return self.rows.clone().collect();
        }
        let mut sizes: Vec<usize> = dues.iter().map(|due| due.rows).chain([*self.rows.start()]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// Apart from the arrivals' chance.
const ROWS: u64 = 0x726f_7773;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(times: Times) -> OpenLoad {
        OpenLoad { times, rows: 1..=4, warm_up: Duration::from_secs(1), length: Duration::from_secs(4), seed: 7 }
    }

    fn trace() -> Times {
        let due = |i: u64| Due { at: Duration::from_millis(10 * i), rows: 1 + i as usize % 3 };
        Times::Trace((0..200).map(due).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_schedule_is_in_order_and_the_same_for_the_same_seed(seed: u64, rate in 10.0f64..2000.0) {
            for times in [
                Times::Process(Process::Poisson { rate }),
                Times::Paced(Shape::Gamma(2.0), Pace::new(&[(0.0, rate, Duration::from_secs(3))])),
                trace(),
            ] {
                let load = OpenLoad { seed, ..load(times) };
                let dues: Vec<Due> = load.dues().collect();
                prop_assert!(dues.is_sorted_by_key(|due| due.at));
                prop_assert!(dues.iter().all(|due| (1..=4).contains(&due.rows)));
                prop_assert!(dues.last().is_none_or(|due| due.at < load.warm_up + load.length));
                prop_assert_eq!(dues, load.dues().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_trace_keeps_its_rows_and_can_be_sent_at_another_rate() {
        let measured =
            |times: Times| -> Vec<Due> { load(times).dues().filter(|due| due.at >= Duration::from_secs(1)).collect() };
        let (as_it_is, half) = (measured(trace()), measured(trace().at_rate(50.0).expect("a trace has one rate")));
        assert_eq!(as_it_is.len(), 200);
        let seconds = |due: &Due| due.at.as_secs_f64() - 1.0;
        for (due, slow) in as_it_is.iter().zip(&half) {
            assert_eq!(due.rows, slow.rows);
            assert!((2.0 * seconds(due) - seconds(slow)).abs() < 0.03, "{due:?} became {slow:?}");
        }
    }

    #[test]
    fn arrivals_with_rates_of_their_own_have_no_other_rate() {
        let steps = Times::Paced(Shape::Poisson, Pace::new(&[(10.0, 10.0, Duration::from_secs(1))]));
        assert!(steps.at_rate(50.0).is_err_and(|why| why.contains("rates of their own")));
    }
}
