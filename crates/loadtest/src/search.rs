//! The search for the highest rate that meets the objectives.

/// Factor from one rate to the next until one is missed.
const STRIDE: f64 = 2.0;
/// Trials after which no new rate is tried: with the stride of 2 from 1 to 10 million, and down to a hundredth between two
/// of them, twice.
pub(super) const MOST_TRIALS: usize = 48;
/// Rates that may say one thing once and another when they are tried again; after that no new rate is tried.
const MOST_SURPRISES: usize = 6;
/// Trials that are made after the last new rate at most, until the one that is met holds.
const MOST_CHECKS: usize = 8;
/// A rate is tried until it said the same so often.
const SURE: usize = 2;

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
    /// The highest rate that was met twice, and the lowest that was not met, nor when it was tried again.
    Rate {
        /// It was met, and met again.
        met: f64,
        /// The next higher one tried, if any, was not, nor the second time.
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

/// A rate that was tried.
#[derive(Debug, Clone, Copy)]
struct Tried {
    rate: f64,
    /// How often it was met.
    met: usize,
    /// How often it was not.
    missed: usize,
    /// What it said last.
    is_met: bool,
    /// Whether the generator could not tell at least once.
    is_unclear: bool,
}

impl Tried {
    /// Whether it said the same often enough.
    fn is_sure(&self) -> bool {
        self.met.max(self.missed) >= SURE
    }
}

/// The search, between trials.
///
/// Each rate counts as what it said last. The rates that are met are all below those that are not, and what the search ends
/// with, the highest of the ones and the lowest of the others, are both tried a second time: one may have passed by luck, and
/// the other may have missed by a hiccup that has nothing to do with its rate.
#[derive(Debug, Clone)]
pub struct Search {
    lowest: f64,
    highest: f64,
    resolution: f64,
    /// By rate, the lowest first.
    tried: Vec<Tried>,
    trials: usize,
    surprises: usize,
    /// The highest rate that was met and then was not.
    once: Option<f64>,
    next: f64,
    checking: bool,
}

impl Search {
    /// From `first` on, within `lowest` and `highest`, until the gap between a rate that is met and one that is not is at
    /// most the share `resolution` of the former.
    pub fn new(first: f64, (lowest, highest): (f64, f64), resolution: f64) -> Search {
        Search {
            lowest,
            highest,
            resolution,
            tried: Vec::new(),
            trials: 0,
            surprises: 0,
            once: None,
            next: first.clamp(lowest, highest),
            checking: false,
        }
    }

    /// The first rate to try.
    pub fn first(&self) -> Next {
        Next::Try(self.next)
    }

    /// Whether the trial under way is of a rate that was tried before.
    pub fn is_checking(&self) -> bool {
        self.checking
    }

    /// Takes in what the last trial said.
    pub fn heard(&mut self, heard: Heard) -> Next {
        self.trials += 1;
        self.note(self.next, heard);
        let (met, missed) = self.ends();
        let new = match (met, missed) {
            (Some(met), Some(missed)) if missed.rate - met.rate <= self.resolution * met.rate => None,
            (Some(met), Some(missed)) => Some((met.rate * missed.rate).sqrt()),
            (Some(met), None) if met.rate >= self.highest => None,
            (Some(met), None) => Some((met.rate * STRIDE).min(self.highest)),
            (None, Some(missed)) if missed.rate <= self.lowest => None,
            (None, Some(missed)) => Some((missed.rate / STRIDE).max(self.lowest)),
            (None, None) => None,
        };
        let unsure = |end: Option<Tried>| end.filter(|tried| !tried.is_sure()).map(|tried| tried.rate);
        let goes_on = self.trials < MOST_TRIALS && self.surprises < MOST_SURPRISES;
        let (next, checking) = match new {
            Some(rate) if goes_on => (Some(rate), false),
            // A hiccup makes misses and no passes; what is above the miss, if it was one, is yet to be tried.
            None if goes_on => (unsure(missed).or(unsure(met)), true),
            // Enough is known of what does not hold.
            _ if self.may_check() => (unsure(met).or(unsure(missed)), true),
            _ => (None, true),
        };
        let Some(rate) = next else { return self.found() };
        (self.next, self.checking) = (rate, checking);
        Next::Try(rate)
    }

    fn may_check(&self) -> bool {
        self.trials < MOST_TRIALS + MOST_CHECKS && self.surprises < MOST_SURPRISES + MOST_CHECKS
    }

    /// Writes down what a rate said.
    fn note(&mut self, rate: f64, heard: Heard) {
        let place = self.tried.partition_point(|tried| tried.rate < rate);
        if self.tried.get(place).is_none_or(|tried| tried.rate != rate) {
            let new = Tried { rate, met: 0, missed: 0, is_met: heard == Heard::Met, is_unclear: false };
            self.tried.insert(place, new);
        }
        let tried = &mut self.tried[place];
        let is_met = heard == Heard::Met;
        if tried.is_met != is_met {
            self.surprises += 1;
        }
        tried.is_met = is_met;
        tried.is_unclear |= heard == Heard::Unclear;
        *if is_met { &mut tried.met } else { &mut tried.missed } += 1;
        if !is_met && tried.met > 0 {
            self.once = Some(self.once.map_or(rate, |once| once.max(rate)));
        }
    }

    /// The highest rate that is met, and the lowest that is not.
    fn ends(&self) -> (Option<Tried>, Option<Tried>) {
        let above = self.tried.partition_point(|tried| tried.is_met);
        (self.tried[..above].last().copied(), self.tried.get(above).copied())
    }

    fn found(&self) -> Next {
        let (met, missed) = self.ends();
        let lowest = missed.map_or(self.next, |missed| missed.rate);
        let is_unclear = missed.is_some_and(|missed| missed.is_unclear);
        Next::Done(match met {
            Some(met) if met.met >= SURE => {
                Found::Rate { met: met.rate, missed: missed.map(|missed| missed.rate), by_generator: is_unclear }
            }
            _ => match self.once.or(met.map(|met| met.rate)) {
                Some(once) => Found::Unsteady { once },
                None if is_unclear => Found::Unclear { lowest },
                None => Found::None { lowest },
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
            prop_assert!(trials <= MOST_TRIALS + MOST_CHECKS);
        }

        #[test]
        fn one_trial_that_says_the_wrong_thing_changes_nothing(
            limit in 2.0f64..1e6,
            first in 1.0f64..1e6,
            resolution in 0.005f64..0.2,
            wrong in 0usize..50,
        ) {
            let (mut number, mut tried) = (0, Vec::new());
            let (found, trials) = search(Search::new(first, (1.0, 1e7), resolution), |rate| {
                tried.push(rate);
                let is_met = (rate <= limit) != (number == wrong);
                number += 1;
                if is_met { Heard::Met } else { Heard::Missed }
            });
            let Found::Rate { met, missed: Some(missed), by_generator: false } = found else { panic!("{found:?}") };
            prop_assert!(met <= limit && limit < missed, "{met} and {missed} of {limit}: {tried:?}");
            prop_assert!(missed <= met * (1.0 + resolution) + 1e-6);
            prop_assert!(trials <= MOST_TRIALS, "{tried:?}");
            for rate in [met, missed] {
                prop_assert!(tried.iter().filter(|tried| **tried == rate).count() >= 2, "{rate} once only: {tried:?}");
            }
        }
    }

    #[test]
    fn what_is_met_and_what_is_not_are_tried_twice() {
        let mut tried = Vec::new();
        let (found, _) = search(Search::new(100.0, (1.0, 1e6), 0.05), |rate| {
            tried.push(rate);
            up_to(1000.0)(rate)
        });
        let Found::Rate { met, missed: Some(missed), .. } = found else { panic!("{found:?}") };
        for rate in [met, missed] {
            assert_eq!(tried.iter().filter(|tried| **tried == rate).count(), 2, "{rate}: {tried:?}");
        }
    }

    #[test]
    fn one_hiccup_does_not_end_a_search() {
        // The third trial misses, of a server that can do all that is asked of it.
        let mut tried = Vec::new();
        let (found, _) = search(Search::new(100.0, (0.1, 3000.0), 0.1), |rate| {
            tried.push(rate);
            if tried.len() == 3 { Heard::Missed } else { Heard::Met }
        });
        assert_eq!(found, Found::Rate { met: 3000.0, missed: None, by_generator: false }, "{tried:?}");
        let (found, _) = search(Search::new(10.0, (10.0, 20.0), 0.1), {
            let mut trials = 0;
            move |_| {
                trials += 1;
                if trials == 1 { Heard::Missed } else { Heard::Met }
            }
        });
        assert_eq!(found, Found::Rate { met: 20.0, missed: None, by_generator: false }, "the lowest rate as well");
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
