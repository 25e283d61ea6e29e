//! Whose batch goes next among the lanes of a pool: the most urgent one, of those that have used no more than their share.
//!
//! Fairness is counted in runner time. A lane may spend as much as its weight says, from an allowance that grows with time
//! (as in Zhang, "VirtualClock", SIGCOMM 1990): whoever has spent no more goes first, by latest start; behind them come
//! those who have spent more, the most moderate first. So a flood takes whatever nobody else wants, and not more. Neither
//! what was saved nor what was overspent counts for longer than a few batches: an idle lane gathers no right to the whole
//! pool, and one that had the pool to itself owes nothing to those who come later. A batch that is neither full nor old
//! stands back while another runs: it costs the pool less a row when it has grown.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use super::LaneId;
use crate::estimator::Instant;

/// How far a lane's spending can lag behind its allowance or run ahead of it, in full batches of its own. More: the order
/// is by urgency for longer. Less: the beginning of a flood is felt less by others.
const SLACK_BATCHES: f64 = 2.0;
/// How long what a lane released is remembered, in full batches of the slowest lane.
const MEMORY_BATCHES: f64 = 16.0;
/// The least that it is remembered.
const SHORTEST_MEMORY: f64 = 0.1;

/// The accounts of a pool's lanes.
#[derive(Debug, Clone)]
pub(super) struct Arbiter {
    runners: f64,
    accounts: BTreeMap<LaneId, Account>,
    /// What a lane may have spent by now without going beyond its share, in runner-seconds for each unit of weight.
    allowance: f64,
    /// When the accounts were last brought up to date.
    at: Instant,
    /// Time constant of what is recent, in seconds.
    memory: f64,
    /// Weights of all active lanes, and what all lanes needed lately.
    active: f64,
    needed: f64,
}

/// One lane's account. Times are in runner-seconds.
#[derive(Debug, Clone)]
struct Account {
    weight: f64,
    /// Spent for each unit of weight, on the scale of the allowance.
    spent: f64,
    /// What the rows released lately would have taken in full batches; it fades.
    recent: f64,
    /// A full batch.
    full: f64,
    /// Whether it has used some of its share lately: its saving has not reached its bound.
    uses: bool,
    /// Whether it wants its share at present: that, or something waits.
    active: bool,
}

impl Account {
    /// How far `spent` can lag behind the allowance, or run ahead of it.
    fn slack(&self) -> f64 {
        SLACK_BATCHES * self.full / self.weight
    }
}

/// A lane that has a batch to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// Whose.
    pub(super) lane: LaneId,
    /// When its batch must start to be in time for its first entry.
    pub(super) latest_start: Instant,
    /// Until when its batch can be kept waiting for more rows at no risk.
    pub(super) patient_until: Instant,
    /// How long its batch takes, cautiously.
    pub(super) time: Duration,
}

impl Claim {
    /// Whether the batch cannot be kept waiting at `now` for another that takes so long.
    pub(super) fn presses(&self, now: Instant, longest: Duration) -> bool {
        self.patient_until < now + longest
    }
}

impl Arbiter {
    /// Over a pool of so many runners, without lanes.
    pub(super) fn new(runners: usize) -> Arbiter {
        let runners = runners.max(1) as f64;
        Arbiter {
            runners,
            accounts: BTreeMap::new(),
            allowance: 0.0,
            at: Instant::EPOCH,
            memory: SHORTEST_MEMORY,
            active: 0.0,
            needed: 0.0,
        }
    }

    /// Adds a lane; it begins with its share neither used nor saved.
    pub(super) fn open(&mut self, lane: LaneId, weight: usize) {
        let weight = weight.max(1) as f64;
        self.accounts.insert(
            lane,
            Account { weight, spent: self.allowance, recent: 0.0, full: 0.0, uses: false, active: false },
        );
    }

    /// Removes a lane.
    pub(super) fn close(&mut self, lane: LaneId) {
        let Some(closed) = self.accounts.remove(&lane) else { return };
        self.active -= if closed.active { closed.weight } else { 0.0 };
        self.needed -= closed.recent;
    }

    /// Brings all accounts up to `now`; `waits` says in which lanes something waits. Costs a step a lane.
    pub(super) fn advance(&mut self, now: Instant, waits: impl Fn(LaneId) -> bool) {
        let elapsed = now.since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.active = 0.0;
        for (lane, account) in &mut self.accounts {
            // Judged once for each instant: an allowance that is raised below would make another of it.
            if elapsed > 0.0 {
                account.uses = account.spent > self.allowance - account.slack();
            }
            account.active = account.uses || waits(*lane);
            self.active += if account.active { account.weight } else { 0.0 };
        }
        if self.active > 0.0 {
            self.allowance += self.runners * elapsed / self.active;
        }
        // What the others left unused was nobody's loss: instead of forgiving one lane what it overspent, everyone's
        // allowance is raised, so that lanes which overspend together stay in proportion.
        let least = self.accounts.values().map(|a| a.spent - a.slack()).fold(self.allowance, f64::max);
        self.allowance = least;
        let fade = if elapsed > 0.0 { (-elapsed / self.memory).exp() } else { 1.0 };
        self.needed = 0.0;
        for account in self.accounts.values_mut() {
            account.spent = account.spent.max(self.allowance - account.slack());
            account.recent *= fade;
            self.needed += account.recent;
        }
    }

    /// The part of the pool that its weight gives a lane among those that are active.
    pub(super) fn part(&self, lane: LaneId) -> f64 {
        let own = &self.accounts[&lane];
        own.weight / if own.active { self.active } else { self.active + own.weight }
    }

    /// How long what a lane does counts as recent.
    pub(super) fn memory(&self) -> Duration {
        Duration::from_secs_f64(self.memory)
    }

    /// Books runner time on a lane's account.
    pub(super) fn charge(&mut self, lane: LaneId, time: Duration) {
        let account = self.account_mut(lane);
        account.spent += time.as_secs_f64() / account.weight;
        account.uses = true;
    }

    /// Takes back what was booked too much.
    pub(super) fn refund(&mut self, lane: LaneId, time: Duration) {
        let account = self.account_mut(lane);
        account.spent -= time.as_secs_f64() / account.weight;
    }

    /// Takes in that a lane has released this part of a full batch. A pool that is not busy runs small batches, which cost
    /// more: that is no sign of what the lane will need when it is.
    pub(super) fn released(&mut self, lane: LaneId, part: f64) {
        let account = self.account_mut(lane);
        let needed = part * account.full;
        account.recent += needed;
        self.needed += needed;
    }

    /// Says how long a full batch of this lane takes, as far as is known.
    pub(super) fn know(&mut self, lane: LaneId, full: Duration) {
        self.account_mut(lane).full = full.as_secs_f64();
        let longest = self.accounts.values().map(|a| a.full).fold(0.0, f64::max);
        self.memory = (MEMORY_BATCHES * longest).max(SHORTEST_MEMORY);
    }

    fn account_mut(&mut self, lane: LaneId) -> &mut Account {
        self.accounts.get_mut(&lane).expect("the account of an open lane")
    }

    /// Whether the lane has used no more than its share.
    pub(super) fn is_within_share(&self, lane: LaneId) -> bool {
        self.accounts[&lane].spent <= self.allowance
    }

    /// Whose batch goes now, of the lanes that are ready; `None` without any.
    ///
    /// A batch that can be kept waiting while another one runs is: it grows meanwhile. Were a light lane's rows sent as they
    /// come, a few at a time, they would cost as much of the pool as a flood.
    pub(super) fn choose(&self, now: Instant, claims: &[Claim]) -> Option<Claim> {
        let longest = claims.iter().map(|c| c.time).max()?;
        let pressing = claims.iter().filter(|claim| claim.presses(now, longest));
        let first = |a: &&Claim, b: &&Claim| self.order(**a, **b);
        pressing.min_by(first).or_else(|| claims.iter().min_by(first)).copied()
    }

    /// Which of two claims goes first: the lesser.
    pub(super) fn order(&self, a: Claim, b: Claim) -> Ordering {
        let spent = |claim: Claim| self.accounts[&claim.lane].spent;
        let urgency = || a.latest_start.cmp(&b.latest_start).then(a.lane.cmp(&b.lane));
        match (self.is_within_share(a.lane), self.is_within_share(b.lane)) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => urgency(),
            (false, false) => spent(a).total_cmp(&spent(b)).then_with(urgency),
        }
    }

    /// Runner time that the lane can have, all runners at once, before another one that wants its share goes first: as long as it is within its own, or
    /// has spent less than each of the others, who are all beyond theirs.
    pub(super) fn lead(&self, lane: LaneId) -> Duration {
        let own = &self.accounts[&lane];
        let others = self.accounts.iter().filter(|(other, account)| **other != lane && account.active);
        let least = others.map(|(_, account)| account.spent).fold(f64::INFINITY, f64::min);
        let others_weight = self.active - if own.active { own.weight } else { 0.0 };
        let active = others_weight + own.weight;
        // Meanwhile the allowance grows by a part of that time.
        let within = (self.allowance - own.spent).max(0.0) * own.weight * active / others_weight;
        let behind = ((least - own.spent) * own.weight).min((least - self.allowance) * active);
        Duration::try_from_secs_f64(within.max(behind)).unwrap_or(Duration::MAX)
    }

    /// The part of the pool that a lane can count on while it has batches to run: what the others leave if they need what
    /// they needed lately, and at least its share by weight. More than 0, at most 1.
    pub(super) fn share(&self, lane: LaneId) -> f64 {
        let own = &self.accounts[&lane];
        let others = (self.needed - own.recent).max(0.0) / (self.runners * self.memory);
        (1.0 - others).max(self.part(lane)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    /// A pool of one runner whose lanes have these weights and batches of 10 ms.
    fn arbiter(weights: &[usize]) -> Arbiter {
        let mut arbiter = Arbiter::new(1);
        for (lane, weight) in weights.iter().enumerate() {
            arbiter.open(lane, *weight);
            arbiter.know(lane, ms(10));
        }
        arbiter
    }

    /// A full batch of 10 ms.
    fn full(lane: LaneId, latest_start_ms: u64) -> Claim {
        Claim { lane, latest_start: at(latest_start_ms), patient_until: Instant::EPOCH, time: ms(10) }
    }

    /// Runs so many full batches, from `now_ms` on, of the lanes in which something waits; returns how many each got.
    fn serve(arbiter: &mut Arbiter, now_ms: u64, waits: &[usize], batches: u64) -> Vec<u64> {
        let mut served = vec![0; arbiter.accounts.len()];
        for i in 0..batches {
            let now = now_ms + i * 10;
            arbiter.advance(at(now), |lane| waits.contains(&lane));
            let claims: Vec<Claim> = waits.iter().map(|lane| full(*lane, now)).collect();
            let chosen = arbiter.choose(at(now), &claims).expect("something waits");
            arbiter.charge(chosen.lane, ms(10));
            arbiter.released(chosen.lane, 1.0);
            served[chosen.lane] += 1;
        }
        served
    }

    #[test]
    fn within_their_shares_the_most_urgent_goes_first() {
        let arbiter = arbiter(&[1, 1, 1]);
        let chosen = arbiter.choose(at(0), &[full(0, 30), full(1, 20), full(2, 40)]);
        assert_eq!(chosen.map(|c| c.lane), Some(1));
        assert_eq!(arbiter.choose(at(0), &[]), None);
    }

    #[test]
    fn floods_divide_the_pool_by_weight() {
        assert_eq!(serve(&mut arbiter(&[1, 1]), 0, &[0, 1], 1000), [500, 500]);
        let served = serve(&mut arbiter(&[3, 1]), 0, &[0, 1], 1000);
        assert!(served[0].abs_diff(750) <= 3, "{served:?}");
        let served = serve(&mut arbiter(&[5, 2, 1]), 0, &[0, 1, 2], 800);
        assert!(served[0].abs_diff(500) <= 5 && served[1].abs_diff(200) <= 5, "{served:?}");
    }

    #[test]
    fn what_nobody_else_wants_is_free_and_is_not_owed_later() {
        let mut arbiter = arbiter(&[1, 1]);
        assert_eq!(serve(&mut arbiter, 0, &[0], 1000), [1000, 0]);
        let served = serve(&mut arbiter, 10_000, &[0, 1], 100);
        assert!(served[0] >= 47, "an idle lane came back and took all: {served:?}");
        assert!(served[1] >= 50, "it has its share at once: {served:?}");
    }

    #[test]
    fn what_was_spent_beyond_the_share_is_soon_forgiven() {
        let mut arbiter = arbiter(&[1, 1]);
        for i in 0..1000 {
            // The second lane has something to hold all the time, and never wants the runner.
            arbiter.advance(at(i * 10), |_| true);
            arbiter.charge(0, ms(10));
        }
        let served = serve(&mut arbiter, 10_000, &[0, 1], 100);
        assert!(served[0] >= 47, "{served:?}");
    }

    #[test]
    fn one_flood_beside_others_that_use_little_keeps_its_proportion_to_another() {
        let mut arbiter = arbiter(&[1, 1, 1]);
        let mut served = [0; 3];
        for round in 0..300 {
            // One batch in five is of the third lane, which is far below its share.
            let waits: &[usize] = if round % 5 == 0 { &[0, 1, 2] } else { &[0, 1] };
            let got = serve(&mut arbiter, round * 10, waits, 1);
            served.iter_mut().zip(got).for_each(|(sum, n)| *sum += n);
        }
        assert!(served[2] >= 59, "it is served when it asks: {served:?}");
        assert!(served[0].abs_diff(served[1]) <= 3, "{served:?}");
    }

    #[test]
    fn a_lane_beyond_its_share_stands_back_however_urgent_it_is() {
        let mut arbiter = arbiter(&[1, 1]);
        serve(&mut arbiter, 0, &[0], 10);
        arbiter.advance(at(100), |_| true);
        let claims = [full(0, 100), full(1, 500)];
        assert_eq!(arbiter.choose(at(100), &claims).map(|c| c.lane), Some(1));
        assert_eq!(arbiter.choose(at(100), &claims[..1]).map(|c| c.lane), Some(0), "the runner is never left idle");
    }

    #[test]
    fn a_batch_that_can_wait_grows_while_another_runs() {
        let mut arbiter = arbiter(&[1, 1]);
        serve(&mut arbiter, 0, &[0], 10);
        arbiter.advance(at(100), |_| true);
        let light = |patient_ms| Claim { patient_until: at(patient_ms), time: ms(2), ..full(1, 500) };
        let chosen = |light| arbiter.choose(at(100), &[full(0, 100), light]).map(|c| c.lane);
        assert_eq!(chosen(light(110)), Some(0), "until then the other is done");
        assert_eq!(chosen(light(109)), Some(1));
        let both = [light(200), Claim { lane: 0, ..light(200) }];
        assert_eq!(arbiter.choose(at(100), &both).map(|c| c.lane), Some(1), "nobody waits for nothing");
    }

    #[test]
    fn a_lane_that_has_used_little_has_time_before_one_that_has_used_more() {
        let mut arbiter = arbiter(&[1, 1]);
        assert_eq!(arbiter.lead(0), Duration::MAX, "nobody else wants a share");
        // The second takes all, and is as far beyond its share as one can be: two batches. The first has saved as much.
        serve(&mut arbiter, 0, &[1], 100);
        arbiter.advance(at(1000), |_| true);
        assert_eq!((arbiter.lead(0), arbiter.lead(1)), (ms(40), Duration::ZERO));
        // Two batches saved, and two that it earns meanwhile. By then the other is within its share again.
        assert_eq!(serve(&mut arbiter, 1000, &[0, 1], 4), [4, 0]);
        assert_eq!(arbiter.lead(0), Duration::ZERO);
    }

    #[test]
    fn a_lane_counts_on_what_the_others_leave_and_on_its_share_at_least() {
        let mut arbiter = arbiter(&[1, 1]);
        assert_eq!(arbiter.share(0), 1.0);
        serve(&mut arbiter, 0, &[1], 1000);
        arbiter.advance(at(10_000), |_| true);
        assert_eq!(arbiter.share(0), 0.5);
        // A tenth of the pool is used by the other lane.
        for i in 0..100 {
            serve(&mut arbiter, 10_000 + i * 100, &[1], 1);
            arbiter.advance(at(10_000 + i * 100 + 50), |lane| lane == 0);
        }
        assert!((0.85..0.95).contains(&arbiter.share(0)), "{}", arbiter.share(0));
        arbiter.close(1);
        assert_eq!(arbiter.share(0), 1.0);
    }

    #[test]
    fn to_be_brought_up_to_the_same_time_again_changes_nothing() {
        let mut arbiter = arbiter(&[1, 1, 1]);
        // One lane spends so much that everybody's allowance is raised, over what another has used of its share.
        arbiter.charge(1, ms(10));
        arbiter.charge(0, ms(100));
        arbiter.advance(at(1), |lane| lane == 0);
        let standing = |arbiter: &Arbiter| [0, 1, 2].map(|lane| (arbiter.part(lane), arbiter.is_within_share(lane)));
        let once = standing(&arbiter);
        arbiter.advance(at(1), |lane| lane == 0);
        assert_eq!(standing(&arbiter), once);
    }

    #[test]
    fn with_several_runners_a_share_is_one_of_all() {
        let mut arbiter = Arbiter::new(4);
        (0..2).for_each(|lane| arbiter.open(lane, 1));
        (0..2).for_each(|lane| arbiter.know(lane, ms(10)));
        let mut served = [0, 0];
        for i in 0..1000 {
            // Four batches start at once, every 10 ms; the second lane wants one of them.
            arbiter.advance(at(i * 10), |_| true);
            let mut wanted = vec![full(0, i * 10), full(1, i * 10)];
            for _ in 0..4 {
                let chosen = arbiter.choose(at(i * 10), &wanted).expect("something waits").lane;
                arbiter.charge(chosen, ms(10));
                served[chosen] += 1;
                wanted.retain(|c| c.lane != 1 || chosen != 1);
            }
        }
        assert_eq!(served, [3000, 1000]);
    }
}
