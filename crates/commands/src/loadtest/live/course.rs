//! What a run came to, second by second. It is told the time, and asks no clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use uncork_loadtest::Pulse;

/// The stretch that counts as now, and that a bar stands for.
const NOW: Duration = Duration::from_secs(1);
/// Seconds that are kept: as many as the widest terminal shows.
const MOST_SECONDS: usize = 400;

/// A run as far as it is known.
#[derive(Default)]
pub(super) struct Course {
    so_far: Pulse,
    recent: VecDeque<(Duration, Pulse)>,
    /// What the second that is not over came to.
    begun: Pulse,
    past: VecDeque<Second>,
    /// Seconds that are over.
    seconds: u32,
    /// Requests under way, and those that wait for a connection, by the thread that sends them.
    held: BTreeMap<u64, (usize, usize)>,
}

/// What is drawn of a second.
#[derive(Debug, PartialEq)]
pub(super) struct Second {
    pub(super) answers: u64,
    pub(super) refused: u64,
    /// Of good answers, in microseconds; nothing without any.
    pub(super) p99_us: Option<u64>,
    /// On average; nothing where no answer told.
    pub(super) batch_rows: Option<f64>,
}

impl Course {
    /// A pulse came at `at`, from the beginning on.
    pub(super) fn hear(&mut self, at: Duration, pulse: Pulse) {
        self.pass(at);
        self.held.insert(pulse.thread, (pulse.busy_connections, pulse.waiting));
        self.so_far.add(&pulse);
        self.begun.add(&pulse);
        self.recent.push_back((at, pulse));
    }

    /// It is `at`.
    pub(super) fn pass(&mut self, at: Duration) {
        while self.recent.front().is_some_and(|(heard, _)| at.saturating_sub(*heard) > NOW) {
            self.recent.pop_front();
        }
        while at >= NOW * (self.seconds + 1) {
            self.seconds += 1;
            if self.past.len() == MOST_SECONDS {
                self.past.pop_front();
            }
            self.past.push_back(Second::of(&std::mem::take(&mut self.begun)));
        }
    }

    /// The last second.
    pub(super) fn now(&self) -> Pulse {
        let mut now = Pulse::default();
        self.recent.iter().for_each(|(_, pulse)| now.add(pulse));
        now
    }

    pub(super) fn so_far(&self) -> &Pulse {
        &self.so_far
    }

    /// The seconds that are over, the newest first.
    pub(super) fn past(&self) -> impl Iterator<Item = &Second> {
        self.past.iter().rev()
    }

    /// Requests under way, and those that wait for a connection.
    pub(super) fn held(&self) -> (usize, usize) {
        self.held.values().fold((0, 0), |(busy, waiting), held| (busy + held.0, waiting + held.1))
    }
}

impl Second {
    fn of(pulse: &Pulse) -> Second {
        Second {
            answers: pulse.good,
            refused: pulse.refused,
            p99_us: (!pulse.latency.is_empty()).then(|| pulse.latency.value_at_quantile(0.99)),
            batch_rows: pulse.mean_batch_rows(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(answers: u64) -> Pulse {
        Pulse { good: answers, ..Pulse::default() }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_pulse_counts_in_one_second_and_a_second_without_any_has_no_p99() {
        let mut course = Course::default();
        course.hear(ms(100), good(3));
        course.hear(ms(950), good(4));
        course.hear(ms(1050), good(5));
        course.pass(ms(3100));
        let answers: Vec<u64> = course.past().map(|second| second.answers).collect();
        assert_eq!(answers, [0, 5, 7]);
        assert!(course.past().all(|second| second.p99_us.is_none() && second.batch_rows.is_none()));
        assert_eq!(course.so_far().good, 12);
        assert_eq!(course.now().good, 0);
    }

    #[test]
    fn what_is_under_way_is_that_of_all_threads() {
        let mut course = Course::default();
        for (thread, busy_connections, waiting) in [(0, 7, 1), (1, 2, 0), (0, 3, 0)] {
            course.hear(ms(100), Pulse { thread, busy_connections, waiting, ..Pulse::default() });
        }
        assert_eq!(course.held(), (5, 0));
    }

    #[test]
    fn a_long_run_keeps_the_newest_seconds() {
        let mut course = Course::default();
        for second in 0..1000 {
            course.hear(ms(1000 * second + 500), good(second));
        }
        course.pass(ms(1_000_000));
        assert_eq!(course.past().count(), MOST_SECONDS);
        assert_eq!(course.past().next().unwrap().answers, 999);
    }
}
