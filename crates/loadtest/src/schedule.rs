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
    /// A sentence, where the rates are part of what the arrivals are, or this is no rate.
    pub fn at_rate(&self, rate: f64) -> Result<Times, String> {
        Process::Poisson { rate }.check().map_err(|wrong| wrong.to_string())?;
        match self {
            Times::Process(Process::Poisson { .. }) => Ok(Times::Process(Process::Poisson { rate })),
            Times::Process(Process::Uniform { .. }) => Ok(Times::Process(Process::Uniform { rate })),
            Times::Process(Process::Gamma { cv, .. }) => Ok(Times::Process(Process::Gamma { rate, cv: *cv })),
            Times::Trace(dues) => {
                let factor = trace_rate(dues) / rate;
                let at = |due: &Due| Duration::try_from_secs_f64(due.at.as_secs_f64() * factor);
                let moved = dues.iter().map(|due| at(due).map(|at| Due { at, rows: due.rows }));
                let moved: Result<_, _> = moved.collect();
                moved.map(Times::Trace).map_err(|_| format!("at {rate} requests a second the arrivals would never end"))
            }
            Times::Process(_) | Times::Paced(..) => {
                Err("these arrivals have rates of their own; take poisson, uniform, gamma or a file".into())
            }
        }
    }

    /// Whether requests can be had from it.
    ///
    /// # Errors
    /// What is wrong, and what it must be.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Times::Process(process) => process.check().map_err(|wrong| wrong.to_string()),
            Times::Paced(shape, pace) => pace.check(*shape),
            Times::Trace(dues) if dues.is_sorted_by_key(|due| due.at) => Ok(()),
            Times::Trace(_) => Err("the requests of a trace must be in the order of their time".into()),
        }
    }

    /// Requests a second at the begin: what a warm-up sends.
    fn first_rate(&self) -> f64 {
        let rate = match self {
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
        };
        // Groups, and a trace of an instant, may come faster than single requests can.
        rate.min(Process::MOST_RATE)
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
    /// Whether it can be sent.
    ///
    /// # Errors
    /// What is wrong with it, and what it must be.
    pub fn check(&self) -> Result<(), String> {
        self.times.check()?;
        is_range(&self.rows)?;
        is_length(self.warm_up, self.length)
    }

    /// All requests, those of the warm-up first.
    ///
    /// # Panics
    /// [`check`](Self::check) finds something wrong.
    pub fn dues(&self) -> Dues {
        self.check().unwrap_or_else(|wrong| panic!("no requests can be had: {wrong}"));
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

/// Whether a number of rows can be drawn from it.
pub(super) fn is_range(rows: &RangeInclusive<usize>) -> Result<(), String> {
    if !rows.is_empty() {
        return Ok(());
    }
    Err(format!("rows are {rows:?}, which is no number of rows; write them from the fewest to the most"))
}

/// Whether a run may take so long.
pub(super) fn is_length(warm_up: Duration, length: Duration) -> Result<(), String> {
    if warm_up.checked_add(length).is_some_and(|all| all <= LONGEST) {
        return Ok(());
    }
    let (all, years) = (warm_up.as_secs_f64() + length.as_secs_f64(), LONGEST.as_secs() / (365 * 86_400));
    Err(format!("warm-up and length are {all:.0} s; together they are {years} years at most"))
}

/// A run takes no longer: beyond some centuries, nanoseconds are not counted any more.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

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

    /// A thread ended early at such a load, or never ended at all.
    #[test]
    fn a_load_that_makes_no_sense_is_refused_with_what_is_wrong() {
        let second = Duration::from_secs(1);
        let paced = |shape, rate| Times::Paced(shape, Pace::new(&[(rate, 10.0, second)]));
        let due = |ms| Due { at: Duration::from_millis(ms), rows: 1 };
        let sound = load(Times::Process(Process::Poisson { rate: 10.0 }));
        assert_eq!(sound.check(), Ok(()));
        let backwards = RangeInclusive::new(2, 1);
        for (load, words) in [
            (OpenLoad { rows: backwards, ..sound.clone() }, "rows are 2..=1, which is no number of rows"),
            (OpenLoad { length: Duration::MAX, ..sound }, "together they are 100 years at most"),
            (load(Times::Process(Process::Poisson { rate: f64::NAN })), "rate is NaN; it must be from 0 to"),
            (load(paced(Shape::Poisson, f64::INFINITY)), "rate is inf"),
            (load(paced(Shape::Uniform, -1.0)), "rate is -1"),
            (load(paced(Shape::Gamma(f64::NAN), 1.0)), "cv is NaN"),
            (load(Times::Paced(Shape::Poisson, Pace::new(&[(1.0, 1.0, Duration::ZERO)]))), "a time of 0"),
            (load(Times::Trace([due(5), due(4)].into())), "in the order of their time"),
        ] {
            let wrong = load.check().expect_err(words);
            assert!(wrong.contains(words), "{wrong}");
        }
    }

    #[test]
    fn a_trace_is_played_at_any_rate_that_there_is() {
        for rate in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300] {
            let moved = trace().at_rate(rate);
            assert!(moved.is_err(), "{rate}");
        }
        assert!(trace().at_rate(1e-3).is_ok_and(|moved| moved.length() > Some(Duration::from_secs(100_000))));
    }

    /// It came at a rate beyond counting, and so did the warm-up before it.
    #[test]
    fn what_comes_within_an_instant_has_a_warm_up_with_an_end() {
        let due = |nanos| Due { at: Duration::from_nanos(nanos), rows: 1 };
        for times in [
            Times::Trace((0..10).map(due).collect()),
            Times::Process(Process::FanOut { groups: 1e9, size: 100_000, spread: Duration::ZERO }),
        ] {
            let warm_up = Duration::from_micros(1);
            let load = OpenLoad { warm_up, length: Duration::from_nanos(100), ..load(times) };
            let before = load.dues().take_while(|due| due.at < warm_up).count();
            assert!((800..1200).contains(&before), "{before}");
        }
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
