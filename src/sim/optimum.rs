//! The most requests that anyone could answer on time, knowing all arrivals beforehand.

use std::collections::VecDeque;
use std::time::Duration;

use crate::estimator::Instant;

/// Instants and durations in nanoseconds.
type Nanos = u64;
const NEVER: Nanos = Nanos::MAX;

/// The largest number of `arrivals` (in order of time, one row each) that one runner can answer within `max_latency` of
/// their arrival, when a batch of n ≤ `max_batch` rows takes `base` + n · `per_row`. Exact; O(N · (max_batch + W)) for N
/// arrivals, of which about W can be answered within one latency cap. docs/policy.md has the proof.
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
    let mut stages = Stages { first: 0, stages: VecDeque::new() };
    stages.relax(0, 0, 0);
    for i in 0..arrivals.len() {
        let stage = stages.advance(at(i));
        let due = at(i) + cap;
        let mut arrived = i; // first request that has not arrived by the start in question
        // Start as soon as the runner is free: with all that have arrived, as far as the first one's deadline allows.
        for (dropped, &free) in stage.iter().rev() {
            let start = free.max(at(i));
            while arrived < arrivals.len() && at(arrived) <= start && arrived - i < max_batch {
                arrived += 1;
            }
            let room = match due.checked_sub(start + base) {
                Some(left) if per_row == 0 || left / per_row >= max_batch as u64 => max_batch,
                Some(left) => (left / per_row) as usize,
                None => 0,
            };
            let n = (arrived - i).min(room);
            if n > 0 {
                stages.relax(i + n, dropped, start + time(n));
            }
        }
        // Or wait for one that has not arrived, and start at its arrival. Of all ways to be free by then, the one that has
        // dropped the fewest is the best: the end is the same.
        let mut position = stage.free.len();
        for n in 1..=max_batch.min(arrivals.len() - i) {
            let start = at(i + n - 1);
            if start + time(n) > due {
                break;
            }
            // `free` falls with the number dropped: walk to the fewest drops that are free by `start`.
            while position > 0 && stage.free[position - 1] <= start {
                position -= 1;
            }
            if position < stage.free.len() {
                stages.relax(i + n, stage.least + position, start + time(n));
            }
        }
        // Or drop it.
        for (dropped, &free) in stage.iter() {
            stages.relax(i + 1, dropped + 1, free);
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

impl Stage {
    fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &Nanos)> {
        self.free.iter().enumerate().map(|(i, free)| (self.least + i, free))
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

    /// The present stage without states that another one dominates, `next` being the arrival that it is about.
    fn advance(&mut self, next: Nanos) -> Stage {
        let mut stage = self.stages.pop_front().unwrap_or_default();
        self.first += 1;
        // Who drops more must be free earlier; and free before the next arrival is early enough.
        let mut best = NEVER;
        let mut kept = stage.free.len();
        for (position, free) in stage.free.iter_mut().enumerate() {
            best = best.min(*free);
            *free = best;
            if best <= next {
                kept = position + 1;
                break;
            }
        }
        stage.free.truncate(kept);
        let unreachable = stage.free.iter().take_while(|free| **free == NEVER).count();
        stage.free.drain(..unreachable);
        stage.least += unreachable;
        stage
    }

    fn fewest_dropped(&mut self) -> usize {
        let stage = self.stages.pop_front().unwrap_or_default();
        stage.iter().find(|(_, free)| **free != NEVER).map_or(0, |(dropped, _)| dropped)
    }
}

/// No policy with `runners` can answer more of `arrivals` on time than this. docs/policy.md has the proof: each row is taken
/// as a job of its own that needs t(cap)/cap of one runner made `runners` times as fast.
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

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

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
