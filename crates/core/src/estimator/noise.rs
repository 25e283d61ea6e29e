//! How far actual batch times scatter above their prediction: an online quantile of the residuals, and a margin made of it.

use std::collections::VecDeque;

use super::caution::{self, Answers, Caution};

/// Ratios remembered: enough for the quantile to rest on six samples, few enough to follow a change within seconds.
const WINDOW: usize = 128;
/// Ratios below which the quantile is not trusted. So few, because a margin that nothing speaks for costs answers from
/// the start.
const ENOUGH: usize = 3;
/// Which quantile, to begin with: one batch in twenty may take longer than the cautious prediction, and mostly only the first
/// few rows of it are late; where it is more, [`Caution`] sees to it. Higher: fewer late answers, more refusals on their account.
const QUANTILE: f64 = 0.95;
/// The part of the batches that a margin covers at the least. More answers than the rest would be late, if it were cut further.
const COVERED: f64 = 0.8;
/// The part of the time that callers give beyond what their request takes which a margin may have: the rest is to wait in. More: whoever does not come to
/// an idle server is refused. Less: more late answers.
const MOST_OF_ROOM: f64 = 0.5;
/// What of the slowest batch is forgotten with each that follows.
const SLOWEST_FADES: f64 = 1.0 / 1024.0;
/// Used until there are [`ENOUGH`] ratios.
const FIRST_GUESS: f64 = 1.05;

/// The latest ratios of actual to predicted batch time.
#[derive(Debug, Clone)]
pub(super) struct Noise {
    ratios: VecDeque<f64>,
    /// The same in order, as they were when the scatter was last measured.
    sorted: Vec<f64>,
    /// Of the ratios, at least 1.
    quantile: f64,
    /// The largest ratio; it fades. And the largest since a batch kept within the widest margin: several such are no stragglers, but the way it is now.
    slowest: f64,
    straggler: f64,
    /// How many times what a request alone takes callers give.
    room: f64,
    caution: Caution,
}

impl Noise {
    pub(super) fn new() -> Noise {
        let (ratios, caution) = (VecDeque::with_capacity(WINDOW), Caution::new());
        Noise {
            ratios,
            sorted: Vec::new(),
            quantile: FIRST_GUESS,
            slowest: 1.0,
            straggler: 1.0,
            room: f64::INFINITY,
            caution,
        }
    }

    /// z: what a prediction is to be multiplied by; at least 1. It leaves callers time to wait in, unless it would cover too few of the batches
    /// then.
    pub(super) fn factor(&self) -> f64 {
        leaving_room(self.stretched(self.caution.factor()), self.least(), self.room)
    }

    /// The margin that covers as few batches as one may.
    pub(super) fn least(&self) -> f64 {
        self.covering(COVERED)
    }

    /// The largest ratio of late, at least 1.
    pub(super) fn slowest(&self) -> f64 {
        self.slowest
    }

    /// How many times what a request alone takes callers give.
    pub(super) fn set_room(&mut self, room: f64) {
        self.room = room;
    }

    /// A margin so many times as wide as the quantile's.
    fn stretched(&self, times: f64) -> f64 {
        1.0 + (self.quantile - 1.0) * times
    }

    /// What so large a part of the ratios does not exceed; at least 1.
    fn covering(&self, part: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get((last as f64 * part) as usize).map_or(1.0, |ratio| ratio.max(1.0))
    }

    /// Measures the scatter anew. Costs a few microseconds.
    pub(super) fn measure(&mut self) {
        if self.ratios.len() >= ENOUGH {
            self.sorted.clear();
            self.sorted.extend(&self.ratios);
            self.sorted.sort_unstable_by(f64::total_cmp);
            self.quantile = self.covering(QUANTILE);
        }
    }

    /// Takes in one ratio of actual to predicted time, and what became of that batch's requests.
    ///
    /// Of late answers those count that a wider margin would have prevented: not where the batch kept within its margin, nor
    /// where it took longer than the widest.
    pub(super) fn observe(&mut self, ratio: f64, answers: Answers) {
        if !ratio.is_finite() {
            return;
        }
        let widest = self.stretched(caution::MOST);
        if ratio > widest {
            self.straggler = self.straggler.max(ratio);
        } else {
            let faded = self.slowest - (self.slowest - 1.0) * SLOWEST_FADES;
            self.slowest = faded.max(std::mem::replace(&mut self.straggler, 1.0));
        }
        let preventable = self.factor() < ratio && ratio <= widest;
        self.caution.observe(if preventable { answers } else { Answers { late: 0, ..answers } });
        if self.ratios.len() == WINDOW {
            self.ratios.pop_front();
        }
        self.ratios.push_back(ratio);
    }

    /// Forgets so many of the oldest ratios, as long as enough of them are left for a quantile.
    pub(super) fn forget(&mut self, count: usize) {
        let spare = self.ratios.len().saturating_sub(ENOUGH);
        self.ratios.drain(..spare.min(count));
    }

    /// Forgets the ratios, which belong to a line that no longer holds; the factor stays until there are new ones.
    pub(super) fn restart(&mut self) {
        self.ratios.clear();
        (self.slowest, self.straggler) = (1.0, 1.0);
    }
}

/// The margin `z`, cut so that it leaves time to wait in where callers give `room` times what their batch takes, but not below `least`: as it is
/// where not even that is in time.
pub(super) fn leaving_room(z: f64, least: f64, room: f64) -> f64 {
    let most = (1.0 + MOST_OF_ROOM * (room - 1.0)).max(least);
    if most <= room { z.min(most) } else { z }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After batches within 20 % of their due, but for every so manieth: that takes five times as long, and so many of its ten
    /// answers are late.
    fn scattered(straggler: usize, late: usize) -> Noise {
        let mut noise = Noise::new();
        for i in 0..1280 {
            let ratio = 0.8 + 0.4 * ((i * 37 % 101) as f64 / 100.0);
            let straggles = i % straggler == straggler - 1;
            noise.observe(
                if straggles { 5.0 } else { ratio },
                Answers { all: 10, late: if straggles { late } else { 0 } },
            );
            noise.measure();
        }
        noise
    }

    #[test]
    fn stragglers_do_not_widen_the_margin_however_late_their_answers_are() {
        assert_eq!(scattered(50, 10).factor(), scattered(50, 0).factor());
    }

    #[test]
    fn late_answers_of_a_batch_beyond_its_margin_widen_it_and_those_within_it_do_not() {
        let noise = scattered(usize::MAX, 0);
        let factor_after = |ratio| {
            let mut noise = noise.clone();
            noise.observe(ratio, Answers { all: 10, late: 10 });
            noise.factor()
        };
        let z = noise.factor();
        assert!((1.15..1.2).contains(&z), "{z}");
        assert_eq!(factor_after(z - 0.01), z);
        assert!(factor_after(z + 0.01) > z + 0.05);
        assert_eq!(factor_after(2.0), z);
    }

    #[test]
    fn a_margin_leaves_callers_half_of_their_time_to_wait_in_unless_it_would_cover_too_few_batches() {
        let mut noise = scattered(10, 0);
        assert_eq!(noise.factor(), 5.0, "one in ten takes five times as long");
        let mut with_room = |room| {
            noise.set_room(room);
            noise.factor()
        };
        assert_eq!([9.0, 5.0, 4.0].map(&mut with_room), [5.0, 3.0, 2.5]);
        assert!((1.1..1.2).contains(&with_room(1.2)), "four in five");
        assert_eq!(with_room(1.1), 5.0, "more than one in five would be late, though all start at once");
    }

    #[test]
    fn where_times_do_not_scatter_there_is_no_margin_however_many_answers_are_late() {
        let mut noise = Noise::new();
        for _ in 0..100 {
            noise.observe(1.0, Answers { all: 10, late: 10 });
            noise.measure();
        }
        assert_eq!(noise.factor(), 1.0);
    }
}
