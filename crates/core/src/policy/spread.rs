//! How what waits is shared out where several runners are free.
//!
//! One runner that takes all answers all at the end of one long batch. Several take a part each and end sooner, for an α of
//! runner time a part. Behind a clump, that α is nobody's loss, and saves requests that one batch would answer late. While more is asked for
//! than all runners can do, it is lost. Which of the two it is the replays of what arrived tell (see [`Patience`](super::Patience)).

/// A part takes at least as many times as long as a row alone: below that, its time is mostly its α. More: small groups wait for each other. Less: what is
/// shared so widely costs too much where runners are busy, and is then not shared at all.
const WORTH: f64 = 1.4;

/// Or its α is no more than this part of its time: little is lost then, however small the parts.
const CHEAP: f64 = 0.25;

/// A runner that comes free within this part of the batch's time after the first counts as free with it.
pub(super) const SOON: f64 = 0.25;

/// Whether free runners share what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// One takes all that fit into a batch.
    Never,
    /// As few share it as are in time, where one would be late.
    AsNeeded,
    /// As many share it as are worth their α, for the sake of latency.
    Eagerly,
}

/// What waits, and for how many runners.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    /// Rows of all that wait.
    pub(super) rows: usize,
    /// Runners that are free for them.
    pub(super) free: usize,
    /// The most rows of a batch.
    pub(super) most: usize,
    /// Whether one batch of all that fit would be late.
    pub(super) is_late: bool,
}

impl Waiting {
    /// The most rows of the next batch. `is_in_time` says whether one of so many rows is where the last of these runners
    /// takes it, and `time` how long it takes. No request is cut: `around` says how many rows those have together that fit into so many, and how many with the one that follows.
    pub(super) fn part(
        &self,
        spread: Spread,
        is_in_time: impl Fn(usize) -> bool,
        time: impl Fn(usize) -> f64,
        around: impl Fn(usize) -> (usize, usize),
    ) -> usize {
        let Waiting { rows, free, most, is_late } = *self;
        let whole = rows.min(most);
        let eagerly = spread == Spread::Eagerly;
        if free < 2 || rows < 2 || spread == Spread::Never || (!eagerly && !is_late) {
            return most;
        }
        // With fewer rows than this, runners would be too few.
        let smallest = rows.div_ceil(free).min(whole);
        let (mut fits, mut late) = if is_late { (smallest, whole) } else { (rows, rows + 1) };
        while fits + 1 < late {
            let middle = fits + (late - fits) / 2;
            if is_in_time(middle) { fits = middle } else { late = middle }
        }
        let needed = rows.div_ceil(fits).min(free);
        let is_worth = |parts: &usize| {
            let part = rows.div_ceil(*parts);
            let alone = time(1);
            let base = 2.0 * alone - time(2);
            (time(part) >= WORTH * alone || base <= CHEAP * time(part)) && is_in_time(part)
        };
        let parts = if eagerly { (needed..=free).rev().find(is_worth).unwrap_or(needed) } else { needed };
        if parts < 2 {
            return most;
        }
        let size = rows.div_ceil(parts).min(most);
        // Rather one request more than a runner too few.
        let (below, above) = around(size);
        if below < size && (below == 0 || above <= most && is_in_time(above)) { above } else { size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5 + 0.5·n ms.
    fn time(rows: usize) -> f64 {
        5.0 + 0.5 * rows as f64
    }

    fn part(rows: usize, free: usize, cap_ms: f64, spread: Spread) -> usize {
        let is_in_time = |rows| time(rows) <= cap_ms;
        let waiting = Waiting { rows, free, most: 128, is_late: !is_in_time(rows.min(128)) };
        waiting.part(spread, is_in_time, time, |rows| (rows, rows))
    }

    #[test]
    fn a_batch_that_is_in_time_is_left_whole() {
        assert_eq!(part(200, 4, 80.0, Spread::AsNeeded), 128);
        assert_eq!(part(80, 4, 50.0, Spread::AsNeeded), 128);
    }

    #[test]
    fn what_would_be_late_as_one_is_shared_by_as_few_runners_as_are_in_time() {
        assert_eq!(part(100, 4, 50.0, Spread::AsNeeded), 50, "two of 50 rows take 30 ms, one of 100 takes 55");
        assert_eq!(part(200, 4, 50.0, Spread::AsNeeded), 67, "three: one has at most 90 rows in time");
    }

    #[test]
    fn more_than_all_free_runners_can_answer_is_shared_by_all() {
        assert_eq!(part(400, 4, 50.0, Spread::AsNeeded), 100);
        assert_eq!(part(1000, 4, 50.0, Spread::AsNeeded), 128, "no batch has more than the cap");
    }

    #[test]
    fn no_request_is_cut() {
        let by_16 = |rows: usize| (rows / 16 * 16, (rows / 16 + 1) * 16);
        let part = |cap_ms| {
            let waiting = Waiting { rows: 80, free: 2, most: 128, is_late: true };
            waiting.part(Spread::AsNeeded, |rows| time(rows) <= cap_ms, time, by_16)
        };
        assert_eq!(part(30.0), 48, "three and two of 16 rows");
        assert_eq!(part(28.0), 40, "three would be late: two");
    }

    #[test]
    fn one_runner_shares_with_nobody() {
        assert_eq!(part(200, 1, 50.0, Spread::Eagerly), 128);
    }

    #[test]
    fn eagerly_all_runners_take_a_part_that_is_worth_its_start() {
        assert_eq!(part(100, 4, 80.0, Spread::Eagerly), 25);
        assert_eq!(part(12, 4, 80.0, Spread::Eagerly), 6, "6 rows take 8 ms, 4 take 7, and 1.4 times one row are 7.7");
        assert_eq!(part(6, 4, 80.0, Spread::Eagerly), 128);
    }

    #[test]
    fn where_a_start_costs_little_each_runner_takes_a_row() {
        let time = |rows: usize| 0.5 + 2.5 * rows as f64;
        let waiting = Waiting { rows: 8, free: 8, most: 16, is_late: false };
        assert_eq!(waiting.part(Spread::Eagerly, |_| true, time, |rows| (rows, rows)), 1);
    }
}
