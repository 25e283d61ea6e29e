//! How a batch is spread over a runner's threads: chosen by what was measured, and pure.
//!
//! A small network is quickest on one thread, since waking others takes longer than it does. The rows of a larger batch are shared out,
//! and each thread runs the whole network on its own: nobody waits for others between operators. A few rows of a large network
//! leave threads without any, so there all threads take part in each operator.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A way that takes so much longer than the quickest may still be chosen, if it takes fewer threads: others have work for them,
const FEWER_THREADS: f64 = 1.1;
/// and a thread that is waked waits for a processor, as it does not while ways are measured: longer, where others have work for all of them.
const WAKING: Duration = Duration::from_micros(500);
/// A way that took so much longer at a smaller size is not tried again,
const HOPELESS: f64 = 1.5;
/// where the quickest took so long. Below, the larger size may well turn it.
const TELLING: Duration = Duration::from_millis(2);

/// Threads that run rows side by side share caches and memory, so each is slower than one alone.
const CONTENTION: f64 = 1.3;

/// How a batch is spread over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// One thread runs it.
    One,
    /// So many threads run as many rows each, but for one.
    Rows(usize),
    /// All threads take part in each operator.
    Operators,
}

impl Spread {
    /// How many rows each thread runs.
    pub(crate) fn sizes(rows: usize, threads: usize) -> Vec<usize> {
        let threads = threads.clamp(1, rows.max(1));
        (0..threads).map(|i| rows / threads + usize::from(i < rows % threads)).collect()
    }
}

/// What was measured of the ways to run a batch of some size, those with fewer threads first.
type Times = Vec<(Spread, Duration)>;

/// What was measured of a model, by threads and rows.
#[derive(Debug, Default)]
pub(crate) struct Spreads(Mutex<BTreeMap<(usize, usize), Times>>);

impl Spreads {
    /// How a batch is best run: like the next larger one that was measured. For one that is larger than all of them, what they took tells
    /// what it would take. All threads take part in each operator where nothing was measured. `parts`: rows may be shared out.
    pub(crate) fn of(&self, threads: NonZeroUsize, rows: usize, parts: bool) -> Spread {
        let threads = threads.get();
        let measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, times)) = measured.range((threads, rows)..=(threads, usize::MAX)).next() {
            return quickest(times);
        }
        let mut smaller = measured.range((threads, 0)..(threads, rows));
        let (Some((&(_, size), times)), first) = (smaller.clone().next_back(), smaller.next()) else {
            return Spread::Operators;
        };
        let alone = first.and_then(|(&(_, rows), times)| Some(time_of(times, Spread::One)?.div_f64(rows as f64)));
        match (alone, time_of(times, Spread::Operators)) {
            (Some(row), Some(operators)) if parts => {
                let shared = row.mul_f64(CONTENTION * rows.div_ceil(threads) as f64);
                if shared < operators.mul_f64(rows as f64 / size as f64) {
                    Spread::Rows(threads)
                } else {
                    Spread::Operators
                }
            }
            _ => quickest(times),
        }
    }

    /// The ways to measure of a batch of so many rows, those with fewer threads first; none if that was done. `parts`: rows may be
    /// shared out.
    pub(crate) fn candidates(&self, threads: NonZeroUsize, rows: usize, parts: bool) -> Vec<Spread> {
        let (threads, measured) = (threads.get(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if measured.contains_key(&(threads, rows)) {
            return Vec::new();
        }
        let most = if parts { threads.min(rows) } else { 1 };
        let doubled = (1..usize::BITS).map(|i| 1 << i).take_while(|&n| n < most);
        let parts = doubled.chain([most]).filter(|&n| n > 1).map(Spread::Rows);
        let all = [Spread::One].into_iter().chain(parts).chain([Spread::Operators]);
        let smaller = measured.range((threads, 0)..(threads, rows)).next_back();
        all.filter(|way| smaller.is_none_or(|(_, times)| !is_hopeless(times, *way))).collect()
    }

    /// Takes what was measured.
    pub(crate) fn measured(&self, threads: NonZeroUsize, rows: usize, times: Times) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((threads.get(), rows), times);
    }
}

fn time_of(times: &Times, way: Spread) -> Option<Duration> {
    times.iter().find(|(of, _)| *of == way).map(|(_, time)| *time)
}

fn least(times: &Times) -> Duration {
    times.iter().map(|(_, time)| *time).min().unwrap_or_default()
}

fn quickest(times: &Times) -> Spread {
    let least = least(times);
    let most = least.mul_f64(FEWER_THREADS).max(least + WAKING);
    times.iter().find(|(_, time)| *time <= most).map_or(Spread::Operators, |(way, _)| *way)
}

fn is_hopeless(times: &Times, way: Spread) -> bool {
    let least = least(times);
    least >= TELLING && time_of(times, way).is_some_and(|time| time > least.mul_f64(HOPELESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: NonZeroUsize = NonZeroUsize::new(4).unwrap();

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn rows_are_shared_out_evenly() {
        assert_eq!(Spread::sizes(10, 4), [3, 3, 2, 2]);
        assert_eq!(Spread::sizes(2, 4), [1, 1]);
        assert_eq!(Spread::sizes(1, 1), [1]);
    }

    #[test]
    fn a_size_goes_by_the_next_larger_one_that_was_measured() {
        use Spread::{One, Operators, Rows};
        let spreads = Spreads::default();
        assert_eq!(spreads.of(FOUR, 3, true), Operators, "nothing is known");
        assert_eq!(spreads.candidates(FOUR, 1, true), [One, Operators]);
        spreads.measured(FOUR, 1, vec![(One, us(40)), (Operators, us(20))]);
        assert_eq!(spreads.candidates(FOUR, 3, true), [One, Rows(2), Rows(3), Operators]);
        assert_eq!(spreads.candidates(FOUR, 8, true), [One, Rows(2), Rows(4), Operators]);
        assert_eq!(spreads.candidates(FOUR, 8, false), [One, Operators]);
        let times = vec![(One, us(1600)), (Rows(2), us(950)), (Rows(4), us(900)), (Operators, us(1500))];
        spreads.measured(FOUR, 8, times); // four threads gain too little
        assert!(spreads.candidates(FOUR, 8, true).is_empty());
        assert_eq!([1, 2, 8].map(|rows| spreads.of(FOUR, rows, true)), [One, Rows(2), Rows(2)]);
        let other = NonZeroUsize::new(3).unwrap();
        assert_eq!(spreads.of(other, 8, true), Operators, "of another number of threads nothing is known");
    }

    #[test]
    fn a_batch_larger_than_all_that_were_measured_goes_by_what_they_tell_of_it() {
        use Spread::{One, Operators, Rows};
        let spreads = Spreads::default();
        // On four threads an operator gains a factor of two.
        spreads.measured(FOUR, 1, vec![(One, us(90_000)), (Operators, us(45_000))]);
        spreads.measured(FOUR, 2, vec![(Rows(2), us(95_000)), (Operators, us(90_000))]);
        let chosen = [2, 3, 4, 5, 6, 8].map(|rows| spreads.of(FOUR, rows, true));
        assert_eq!(chosen, [Rows(2), Rows(4), Rows(4), Operators, Rows(4), Rows(4)]);
        let whole = Spreads::default();
        whole.measured(FOUR, 2, vec![(One, us(90_000)), (Operators, us(45_000))]);
        assert_eq!(whole.of(FOUR, 8, false), Operators, "its rows may not be shared out");
    }

    #[test]
    fn a_way_that_was_far_slower_is_not_tried_with_more_rows() {
        use Spread::{One, Operators, Rows};
        let spreads = Spreads::default();
        spreads.measured(
            FOUR,
            8,
            vec![(One, us(8000)), (Rows(2), us(4100)), (Rows(4), us(2200)), (Operators, us(3000))],
        );
        assert_eq!(spreads.candidates(FOUR, 16, true), [Rows(4), Operators]);
    }
}
