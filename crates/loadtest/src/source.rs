//! Where a generator's requests come from: a schedule, or callers that wait for their answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::schedule::{Due, Dues, OpenLoad, is_length, is_range};

/// A caller that got no connection asks again after this at the earliest, so that a dead server is not asked a million times.
const AFTER_A_BREAK: Duration = Duration::from_millis(10);

/// Callers that each wait for an answer, think, and ask again.
#[derive(Debug, Clone)]
pub struct ClosedLoad {
    /// How many.
    pub callers: usize,
    /// Time from an answer to the next request.
    pub think: Duration,
    /// Rows of a request, each number equally likely.
    pub rows: RangeInclusive<usize>,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Time of the measurement.
    pub length: Duration,
    /// Seeds the numbers of rows.
    pub seed: u64,
}

/// What is sent.
#[derive(Debug, Clone)]
pub enum Load {
    /// It does not care what becomes of its requests.
    Open(OpenLoad),
    /// Callers that wait for their answers.
    Closed(ClosedLoad),
}

impl Load {
    /// Time before the measurement.
    pub fn warm_up(&self) -> Duration {
        match self {
            Load::Open(load) => load.warm_up,
            Load::Closed(load) => load.warm_up,
        }
    }

    /// Time of the measurement.
    pub fn length(&self) -> Duration {
        match self {
            Load::Open(load) => load.length,
            Load::Closed(load) => load.length,
        }
    }

    /// Whether it can be sent; [`run`](super::run) asks before it begins.
    ///
    /// # Errors
    /// What is wrong with it, and what it must be.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Load::Open(load) => load.check(),
            Load::Closed(load) => {
                is_range(&load.rows)?;
                is_length(load.warm_up, load.length)?;
                is_length(load.think, Duration::ZERO).map_err(|_| format!("nobody thinks for {:?}", load.think))
            }
        }
    }

    /// The part of thread number `thread` of `threads`.
    pub(super) fn source(&self, thread: usize, threads: usize) -> Source {
        match self {
            Load::Open(load) => {
                let dues: Dues = Box::new(load.dues().skip(thread).step_by(threads));
                Source::Open(dues.peekable())
            }
            Load::Closed(load) => {
                let callers = load.callers / threads + usize::from(thread < load.callers % threads);
                Source::Closed(Callers {
                    due: (0..callers).map(|_| Reverse(Duration::ZERO)).collect(),
                    think: load.think,
                    end: load.warm_up + load.length,
                    rows: load.rows.clone(),
                    chance: Xoshiro256PlusPlus::seed_from_u64(load.seed.wrapping_add(thread as u64)),
                })
            }
        }
    }
}

pub(super) struct Callers {
    due: BinaryHeap<Reverse<Duration>>,
    think: Duration,
    end: Duration,
    rows: RangeInclusive<usize>,
    chance: Xoshiro256PlusPlus,
}

/// Requests in the order of their time.
pub(super) enum Source {
    Open(Peekable<Dues>),
    Closed(Callers),
}

impl Source {
    /// When the next one is due, as far as is known now.
    pub(super) fn next_at(&mut self) -> Option<Duration> {
        match self {
            Source::Open(dues) => dues.peek().map(|due| due.at),
            Source::Closed(callers) => callers.due.peek().map(|due| due.0),
        }
    }

    /// Takes the next one, if it is due by `now`.
    pub(super) fn take(&mut self, now: Duration) -> Option<Due> {
        match self {
            Source::Open(dues) => dues.next_if(|due| due.at <= now),
            Source::Closed(callers) => {
                callers.due.peek().filter(|due| due.0 <= now)?;
                let at = callers.due.pop()?.0;
                Some(Due { at, rows: callers.chance.random_range(callers.rows.clone()) })
            }
        }
    }

    /// A request ended at `at`, and well enough or not.
    pub(super) fn ended(&mut self, at: Duration, broke: bool) {
        if let Source::Closed(callers) = self {
            let wait = if broke { callers.think.max(AFTER_A_BREAK) } else { callers.think };
            if at + wait < callers.end {
                callers.due.push(Reverse(at + wait));
            }
        }
    }
}
