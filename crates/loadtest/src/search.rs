//! The search for the highest rate that meets the objectives.

/// Factor from one rate to the next until one is missed.
const STRIDE: f64 = 2.0;
/// Rates that are tried at most: with the stride of 2 from 1 to 10 million, and down to a hundredth between two of them.
pub(super) const MOST_TRIALS: usize = 40;
/// How often the winner is tried again, each time a little lower, until one holds.
const MOST_CHECKS: usize = 4;

/// What a trial said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The objectives were met.
    Met,
    /// They were not.
    Missed,
    /// The generator could not tell.
    Unclear,
}

/// What is known at the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// The highest rate that was met twice, and the lowest that was not met.
    Rate {
        /// It was met, and met again.
        met: f64,
        /// The next higher one tried, if any, was not.
        missed: Option<f64>,
        /// The next higher one was not to be told, for the generator's sake.
        by_generator: bool,
    },
    /// Even the lowest rate was missed.
    None {
        /// The lowest rate tried.
        lowest: f64,
    },
    /// Nothing can be told: even the lowest rate was too much for the generator.
    Unclear {
        /// The lowest rate tried.
        lowest: f64,
    },
    /// What was met once was missed when it was tried again, time after time.
    Unsteady {
        /// The highest rate that was met once.
        once: f64,
    },
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// Try this rate.
    Try(f64),
    /// It is over.
    Done(Found),
}

/// The search, between trials.
#[derive(Debug, Clone)]
pub struct Search {
    lowest: f64,
    highest: f64,
    resolution: f64,
    met: Option<f64>,
    missed: Option<f64>,
    missed_unclear: bool,
    once: Option<f64>,
    trials: usize,
    checks: usize,
    next: f64,
    checking: bool,
    /// Whether the rate that was met was met twice.
    held: bool,
}

impl Search {
    /// From `first` on, within `lowest` and `highest`, until the gap between a rate that is met and one that is not is at
    /// most the share `resolution` of the former.
    pub fn new(first: f64, (lowest, highest): (f64, f64), resolution: f64) -> Search {
        Search {
            lowest,
            highest,
            resolution,
            met: None,
            missed: None,
            missed_unclear: false,
            once: None,
            trials: 0,
            checks: 0,
            next: first.clamp(lowest, highest),
            checking: false,
            held: false,
        }
    }

    /// The first rate to try.
    pub fn first(&self) -> Next {
        Next::Try(self.next)
    }

    /// Whether the trial under way is the winner's second.
    pub fn is_checking(&self) -> bool {
        self.checking
    }

    /// Takes in what the last trial said.
    pub fn heard(&mut self, heard: Heard) -> Next {
        self.trials += 1;
        let rate = self.next;
        if heard == Heard::Met {
            self.held = self.met.replace(rate) == Some(rate);
            if self.checking {
                return if self.held { self.found() } else { self.check(rate) };
            }
        } else {
            self.missed = Some(rate);
            self.missed_unclear = heard == Heard::Unclear;
            if self.checking {
                self.checks += 1;
                self.once = self.once.or(self.met.take());
                // It held once and not twice: a rate a little lower is more likely to hold than one from the other end.
                return self.check(rate * (1.0 - self.resolution));
            }
        }
        if self.trials >= MOST_TRIALS {
            return self.found();
        }
        match (self.met, self.missed) {
            (Some(met), Some(missed)) if missed - met <= self.resolution * met => self.check(met),
            (Some(met), Some(missed)) => self.go_on((met * missed).sqrt()),
            (Some(met), None) if met >= self.highest => self.check(met),
            (Some(met), None) => self.go_on((met * STRIDE).min(self.highest)),
            (None, Some(missed)) if missed <= self.lowest => self.found(),
            (None, Some(missed)) => self.go_on((missed / STRIDE).max(self.lowest)),
            (None, None) => self.found(),
        }
    }

    fn go_on(&mut self, rate: f64) -> Next {
        self.next = rate;
        Next::Try(rate)
    }

    /// A second trial of the winner: it was chosen for having passed, and may have passed by luck.
    fn check(&mut self, rate: f64) -> Next {
        self.checking = true;
        if self.checks >= MOST_CHECKS || rate < self.lowest {
            return self.found();
        }
        self.go_on(rate)
    }

    fn found(&self) -> Next {
        Next::Done(match (self.met, self.missed) {
            (Some(met), missed) if self.held => Found::Rate { met, missed, by_generator: self.missed_unclear },
            (met, _) => match self.once.or(met) {
                Some(once) => Found::Unsteady { once },
                None if self.missed_unclear => Found::Unclear { lowest: self.next },
                None => Found::None { lowest: self.next },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches a server that says `answer` at each rate.
    fn search(mut search: Search, mut answer: impl FnMut(f64) -> Heard) -> (Found, usize) {
        let mut step = search.first();
        for trials in 0.. {
            match step {
                Next::Try(rate) => step = search.heard(answer(rate)),
                Next::Done(found) => return (found, trials),
            }
        }
        unreachable!()
    }

    fn up_to(limit: f64) -> impl FnMut(f64) -> Heard {
        move |rate| if rate <= limit { Heard::Met } else { Heard::Missed }
    }

    proptest! {
        #[test]
        fn the_limit_is_found_from_anywhere(limit in 2.0f64..1e6, first in 1.0f64..1e6, resolution in 0.01f64..0.2) {
            let (found, trials) = search(Search::new(first, (1.0, 1e7), resolution), up_to(limit));
            let Found::Rate { met, missed, by_generator: false } = found else { panic!("{found:?}") };
            prop_assert!(met <= limit && met >= limit / (1.0 + resolution), "{met} of {limit}");
            prop_assert!(missed.is_some_and(|missed| missed > limit && missed <= met * (1.0 + resolution) + 1e-6));
            prop_assert!(trials <= MOST_TRIALS);
        }

        #[test]
        fn every_search_ends(seed in proptest::collection::vec(0u8..3, 100), first in 0.1f64..1e7) {
            let mut answers = seed.iter().map(|answer| [Heard::Met, Heard::Missed, Heard::Unclear][usize::from(*answer)]);
            let (_, trials) = search(Search::new(first, (1.0, 1e6), 0.05), |_| answers.next().unwrap_or(Heard::Missed));
            prop_assert!(trials <= MOST_TRIALS + 2 * MOST_CHECKS + 1);
        }
    }

    #[test]
    fn the_winner_is_tried_twice() {
        let mut tried = Vec::new();
        let (found, _) = search(Search::new(100.0, (1.0, 1e6), 0.05), |rate| {
            tried.push(rate);
            up_to(1000.0)(rate)
        });
        let Found::Rate { met, .. } = found else { panic!("{found:?}") };
        assert_eq!(tried.iter().filter(|rate| **rate == met).count(), 2, "{tried:?}");
    }

    #[test]
    fn a_winner_by_luck_is_lowered_until_it_holds() {
        let (mut lucky, mut tried) = (true, Vec::new());
        let (found, _) = search(Search::new(1000.0, (1.0, 1e6), 0.05), |rate| {
            tried.push(rate);
            // Once only, 1100 a second pass where 1000 are the limit.
            match rate {
                rate if rate > 1000.0 && rate <= 1100.0 && std::mem::take(&mut lucky) => Heard::Met,
                rate => up_to(1000.0)(rate),
            }
        });
        let Found::Rate { met, .. } = found else { panic!("{found:?}") };
        assert!((900.0..=1000.0).contains(&met), "{found:?}");
        assert_eq!(tried.iter().filter(|rate| **rate == met).count(), 2, "it holds twice as well: {tried:?}");
    }

    #[test]
    fn what_never_holds_twice_is_not_found() {
        let mut search_under_way = Search::new(100.0, (10.0, 5000.0), 0.05);
        let mut step = search_under_way.first();
        while let Next::Try(rate) = step {
            let is_met = rate <= 1000.0 && !search_under_way.is_checking();
            step = search_under_way.heard(if is_met { Heard::Met } else { Heard::Missed });
        }
        assert!(matches!(step, Next::Done(Found::Unsteady { once }) if (950.0..=1000.0).contains(&once)), "{step:?}");
    }

    #[test]
    fn the_ends_of_the_search_are_told() {
        let found = |limit: f64| search(Search::new(100.0, (10.0, 5000.0), 0.05), up_to(limit)).0;
        assert_eq!(found(1.0), Found::None { lowest: 10.0 });
        assert_eq!(found(1e9), Found::Rate { met: 5000.0, missed: None, by_generator: false });
    }

    #[test]
    fn the_generators_own_limit_is_not_taken_for_the_servers() {
        let answer = |rate| if rate <= 700.0 { Heard::Met } else { Heard::Unclear };
        let (found, _) = search(Search::new(100.0, (10.0, 5000.0), 0.05), answer);
        assert!(matches!(found, Found::Rate { met, by_generator: true, .. } if met <= 700.0), "{found:?}");
    }
}
