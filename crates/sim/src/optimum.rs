//! The most requests that anyone could answer on time, knowing all arrivals beforehand.

use std::collections::VecDeque;
use std::time::Duration;

use uncork_core::estimator::Instant;

/// Instants and durations in nanoseconds.
type Nanos = u64;
const NEVER: Nanos = Nanos::MAX;

/// The largest number of `arrivals` (in order of time, one row each) that one runner can answer within `max_latency` of
/// their arrival, when a batch of n ≤ `max_batch` rows takes `base` + n · `per_row`. Exact; O(N · (max_batch + S)) for N
/// arrivals and S states that are not dominated: a few, or at worst as many as can be answered within one latency cap.
/// docs/policy.md has the proof.
#[must_use]
pub fn optimum(
    arrivals: &[Instant],
    base: Duration,
    per_row: Duration,
    max_latency: Duration,
    max_batch: usize,
) -> usize {
    let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4);
    let (base, per_row, cap) = (nanos(base), nanos(per_row), nanos(max_latency));
    let at = |i: usize| arrivals[i].as_nanos();
    let time = |n: usize| base + per_row * n as u64;
    let head_start = HeadStart { per_row, cap: max_batch, full: time(max_batch) };
    let mut stages = Stages { first: 0, stages: VecDeque::new() };
    stages.relax(0, 0, 0);
    for i in 0..arrivals.len() {
        let stage = stages.advance(at(i), &head_start);
        let due = at(i) + cap;
        let mut arrived = i; // first request that has not arrived by the start in question
        // Start as soon as the runner is free: with all that have arrived, as far as the first one's deadline allows.
        let mut room = max_batch; // most rows with which a batch that starts then is in time for the first one
        for &(dropped, free) in stage.iter().rev() {
            let start = free.max(at(i));
            while arrived < arrivals.len() && at(arrived) <= start && arrived - i < max_batch {
                arrived += 1;
            }
            while room > 0 && start + time(room) > due {
                room -= 1;
            }
            let n = (arrived - i).min(room);
            if n > 0 {
                stages.relax(i + n, dropped, start + time(n));
            }
            // Or drop it; but nothing is better than a full batch of the oldest now. Who starts with m rows instead, later or
            // of younger ones, is free by at most what the other rows take earlier: worth no more than those rows.
            if n < max_batch {
                stages.relax(i + 1, dropped + 1, free);
            }
        }
        // Or wait for one that has not arrived, and start at its arrival. Of all ways to be free by then, the one that has
        // dropped the fewest is the best: the end is the same.
        let mut position = stage.len();
        for n in 1..=max_batch.min(arrivals.len() - i) {
            let start = at(i + n - 1);
            if start + time(n) > due {
                break;
            }
            // `free` falls with the number dropped: walk to the fewest drops that are free by `start`.
            while position > 0 && stage[position - 1].1 <= start {
                position -= 1;
            }
            if let Some(&(dropped, _)) = stage.get(position) {
                stages.relax(i + n, dropped, start + time(n));
            }
        }
    }
    arrivals.len() - stages.fewest_dropped()
}

/// For a number of requests looked at: by the number dropped, the earliest time that the runner is free.
#[derive(Debug, Default)]
struct Stage {
    least: usize,
    free: Vec<Nanos>,
}

/// What it is worth to be free earlier.
struct HeadStart {
    per_row: Nanos,
    cap: usize,
    full: Nanos,
}

impl HeadStart {
    /// No runner that is free by `lead` earlier can answer more than this many requests more.
    ///
    /// The later one does as the earlier one does, except that it leaves out what it cannot do: of the batch during which
    /// it comes free, as many rows as take the time that it is late by (it then ends at the same instant), and the batches
    /// before that one, each of which uses up α + nβ of the lead.
    fn worth(&self, lead: Nanos) -> usize {
        if lead == 0 || self.full == 0 {
            return if lead == 0 { 0 } else { usize::MAX };
        }
        let rest = lead % self.full;
        let shortened = match rest.checked_div(self.per_row) {
            _ if rest == 0 => 0,
            Some(whole) => self.cap.min(whole as usize + usize::from(whole * self.per_row < rest)),
            None => self.cap,
        };
        (lead / self.full) as usize * self.cap + shortened
    }
}

/// The stages that can still be reached from the present one.
struct Stages {
    first: usize,
    stages: VecDeque<Stage>,
}

impl Stages {
    fn relax(&mut self, looked_at: usize, dropped: usize, free: Nanos) {
        let at = looked_at - self.first;
        while self.stages.len() <= at {
            self.stages.push_back(Stage::default());
        }
        let stage = &mut self.stages[at];
        if stage.free.is_empty() {
            stage.least = dropped;
        } else if dropped < stage.least {
            stage.free.splice(..0, std::iter::repeat_n(NEVER, stage.least - dropped));
            stage.least = dropped;
        }
        let position = dropped - stage.least;
        if stage.free.len() <= position {
            stage.free.resize(position + 1, NEVER);
        }
        stage.free[position] = stage.free[position].min(free);
    }

    /// The present stage without states that another one dominates, `next` being the arrival that it is about: each state's
    /// number dropped, rising, and when it is free, falling.
    fn advance(&mut self, next: Nanos, head_start: &HeadStart) -> Vec<(usize, Nanos)> {
        let stage = self.stages.pop_front().unwrap_or_default();
        self.first += 1;
        let mut kept: Vec<(usize, Nanos)> = Vec::new();
        for (dropped, free) in (stage.least..).zip(stage.free) {
            // Who drops more must be free so much earlier that it can make up for it. Before the next arrival, all are.
            let free = free.max(next);
            let dominated =
                |&(fewer, later): &(usize, Nanos)| later <= free || head_start.worth(later - free) <= dropped - fewer;
            if free == NEVER || kept.first().is_some_and(dominated) || kept.last().is_some_and(dominated) {
                continue;
            }
            kept.push((dropped, free));
            if free <= next {
                break;
            }
        }
        kept
    }

    fn fewest_dropped(&mut self) -> usize {
        let stage = self.stages.pop_front().unwrap_or_default();
        stage.free.iter().position(|free| *free != NEVER).map_or(0, |position| stage.least + position)
    }
}

/// No policy with `runners` can answer more of `arrivals` on time than this. docs/policy.md has the proof: each row is taken
/// as a job of its own that needs t(cap)/cap of one runner made `runners` times as fast.
#[must_use]
pub fn upper_bound(
    arrivals: &[Instant],
    base: Duration,
    per_row: Duration,
    max_latency: Duration,
    max_batch: usize,
    runners: usize,
) -> usize {
    // In units of a nanosecond / (max_batch · runners), in which a row takes a whole number.
    let scale = (max_batch * runners) as u128;
    let row = base.as_nanos() + per_row.as_nanos() * max_batch as u128;
    let (mut free, mut on_time) = (0, 0);
    for at in arrivals.iter().map(|a| u128::from(a.as_nanos())) {
        let end = free.max(at * scale) + row;
        if end <= (at + max_latency.as_nanos()) * scale {
            (free, on_time) = (end, on_time + 1);
        }
    }
    on_time
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By trying every set of batches: contiguous or not, of any size, started at any of the instants that matter.
    fn brute_force(arrivals: &[u64], free: u64, model: (u64, u64, u64, usize)) -> usize {
        let (base, per_row, cap, max_batch) = model;
        let n = arrivals.len();
        let mut best = 0;
        for members in 1u32..(1 << n) {
            let count = members.count_ones() as usize;
            if count > max_batch {
                continue;
            }
            let of = |i: &usize| members & (1 << i) != 0;
            let first = (0..n).find(of).expect("not empty");
            let last = (0..n).rev().find(of).expect("not empty");
            let end = free.max(arrivals[last]) + base + per_row * count as u64;
            if end > arrivals[first] + cap {
                continue;
            }
            let rest: Vec<u64> = (0..n).filter(|i| !of(i)).map(|i| arrivals[i]).collect();
            best = best.max(count + brute_force(&rest, end, model));
        }
        best
    }

    #[test]
    fn a_head_start_is_worth_a_row_for_each_row_time_and_a_batch_for_each_batch_time() {
        let head_start = HeadStart { per_row: 2, cap: 3, full: 10 };
        let worth: Vec<usize> = [0, 1, 2, 3, 6, 7, 10, 11, 12, 13, 20, 25].map(|ns| head_start.worth(ns)).to_vec();
        assert_eq!(worth, [0, 1, 1, 2, 3, 3, 3, 4, 4, 5, 6, 9]);
        assert_eq!(HeadStart { per_row: 0, cap: 3, full: 10 }.worth(1), 3, "fewer rows save no time");
        assert_eq!(HeadStart { per_row: 0, cap: 3, full: 0 }.worth(1), usize::MAX, "anything fits into no time");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_what_trying_everything_finds(
            gaps in prop::collection::vec(0u64..12, 0..7),
            base in 0u64..12, per_row in 0u64..5, cap in 1u64..40, max_batch in 1usize..5,
        ) {
            let at: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let instants: Vec<Instant> = at.iter().map(|&ns| Instant::from_nanos(ns)).collect();
            let ns = Duration::from_nanos;
            let found = optimum(&instants, ns(base), ns(per_row), ns(cap), max_batch);
            prop_assert_eq!(found, brute_force(&at, 0, (base, per_row, cap, max_batch)));
            let bound = upper_bound(&instants, ns(base), ns(per_row), ns(cap), max_batch, 1);
            prop_assert!(bound >= found, "{} < {}", bound, found);
        }
    }
}
