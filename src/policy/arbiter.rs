//! Whose batch goes next among the lanes of a pool: the most urgent one, of those that have not used more than their share.
//!
//! Fairness is counted in runner time. A lane may spend as much as its weight says, from an allowance that grows with time
//! (as in Zhang, "VirtualClock", SIGCOMM 1990): whoever has spent no more goes first, by latest start; behind them come
//! those who have spent more, the most moderate first. So a flood takes whatever nobody else wants, and not more. Neither
//! what was saved nor what was overspent counts for longer than a few batches: an idle lane gathers no right to the whole
//! pool, and one that had the pool to itself owes nothing to those who come later.

use std::cmp::Ordering;
use std::time::Duration;

use crate::estimator::Instant;

/// How far a lane's spending can lag behind its allowance or run ahead of it, in full batches of its own. More: the order
/// is by urgency for longer. Less: the beginning of a flood is felt less by others.
const SLACK_BATCHES: f64 = 2.0;
/// How long the pool's recent use is remembered, in full batches of the slowest lane.
const MEMORY_BATCHES: f64 = 16.0;
/// The least that it is remembered.
const SHORTEST_MEMORY: f64 = 0.1;

/// The accounts of a pool's lanes, which are named by their position.
#[derive(Debug, Clone)]
pub struct Arbiter {
    runners: f64,
    accounts: Vec<Account>,
    /// What a lane may have spent by now without going beyond its share, in runner-seconds for each unit of weight.
    allowance: f64,
    /// When the allowance and the recent use were last brought up to date.
    at: Instant,
    /// Time constant of the recent use, in seconds.
    memory: f64,
}

/// One lane's account. Times are in runner-seconds.
#[derive(Debug, Clone)]
struct Account {
    weight: f64,
    /// Spent for each unit of weight, on the scale of the allowance.
    spent: f64,
    /// Spent recently, fading.
    recent: f64,
    /// A full batch.
    full: f64,
    /// Whether it wants its share at present: something waits, or its saving has not reached its bound.
    active: bool,
}

impl Account {
    fn slack(&self) -> f64 {
        SLACK_BATCHES * self.full / self.weight
    }
}

/// A lane that has something to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Whose.
    pub position: usize,
    /// When its batch must start to be in time for its first entry.
    pub latest_start: Instant,
}

impl Arbiter {
    /// Over a pool of so many runners, without lanes.
    pub fn new(runners: usize) -> Arbiter {
        let runners = runners.max(1) as f64;
        Arbiter { runners, accounts: Vec::new(), allowance: 0.0, at: Instant::EPOCH, memory: SHORTEST_MEMORY }
    }

    /// Adds a lane behind the others; it begins with its share neither used nor saved.
    pub fn open(&mut self, weight: usize) {
        let weight = weight.max(1) as f64;
        self.accounts.push(Account { weight, spent: self.allowance, recent: 0.0, full: 0.0, active: false });
    }

    /// Removes a lane; those behind it move up.
    pub fn close(&mut self, position: usize) {
        self.accounts.remove(position);
    }

    /// Brings all accounts up to `now`; `waits` says in which lanes something waits. Costs a step a lane.
    pub fn advance(&mut self, now: Instant, waits: impl Fn(usize) -> bool) {
        let elapsed = now.since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let mut active = 0.0;
        for (position, account) in self.accounts.iter_mut().enumerate() {
            account.active = waits(position) || account.spent > self.allowance - account.slack();
            active += if account.active { account.weight } else { 0.0 };
        }
        if active > 0.0 {
            self.allowance += self.runners * elapsed / active;
        }
        // What the others left unused was nobody's loss: instead of forgiving one lane what it overspent, everyone's
        // allowance is raised, so that lanes which overspend together stay in proportion.
        let least = self.accounts.iter().map(|a| a.spent - a.slack()).fold(self.allowance, f64::max);
        self.allowance = least;
        let fade = (-elapsed / self.memory).exp();
        for account in &mut self.accounts {
            account.spent = account.spent.max(self.allowance - account.slack());
            account.recent *= fade;
        }
    }

    /// Books runner time on a lane's account.
    pub fn charge(&mut self, position: usize, time: Duration) {
        self.book(position, time.as_secs_f64());
    }

    /// Takes back what was booked too much.
    pub fn refund(&mut self, position: usize, time: Duration) {
        self.book(position, -time.as_secs_f64());
    }

    fn book(&mut self, position: usize, seconds: f64) {
        let account = &mut self.accounts[position];
        account.spent += seconds / account.weight;
        account.recent = (account.recent + seconds).max(0.0);
    }

    /// Says how long a full batch of this lane takes, as far as is known.
    pub fn know(&mut self, position: usize, full: Duration) {
        self.accounts[position].full = full.as_secs_f64();
        let longest = self.accounts.iter().map(|a| a.full).fold(0.0, f64::max);
        self.memory = (MEMORY_BATCHES * longest).max(SHORTEST_MEMORY);
    }

    /// Whether the lane has used no more than its share.
    pub fn is_within_share(&self, position: usize) -> bool {
        self.accounts[position].spent <= self.allowance
    }

    /// Which of two claims goes first: the lesser.
    pub fn order(&self, a: Claim, b: Claim) -> Ordering {
        let spent = |claim: Claim| self.accounts[claim.position].spent;
        let urgency = || a.latest_start.cmp(&b.latest_start).then(a.position.cmp(&b.position));
        match (self.is_within_share(a.position), self.is_within_share(b.position)) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => urgency(),
            (false, false) => spent(a).total_cmp(&spent(b)).then_with(urgency),
        }
    }

    /// The part of the pool that a lane can count on while it has batches to run: what the others leave as they have used
    /// it lately, and at least its share by weight. More than 0, at most 1.
    pub fn share(&self, position: usize) -> f64 {
        let own = &self.accounts[position];
        let (mut active, mut used) = (own.weight, 0.0);
        for (_, other) in self.accounts.iter().enumerate().filter(|(at, _)| *at != position) {
            active += if other.active { other.weight } else { 0.0 };
            used += other.recent;
        }
        (1.0 - used / (self.runners * self.memory)).max(own.weight / active)
    }
}
