//! How long to hold the cork, learned by replaying what arrived.
//!
//! While a runner is free, n rows wait and none has arrived for a while, waiting on costs n seconds of latency a second,
//! and an arrival that then rides along saves a batch of its own, which costs the α of t(n) = α + βn. So a hold ends c·α/n
//! after the last arrival: patience c = 1 spends as much on waiting as an arrival can save (the balance of the ski-rental
//! problem, and of TCP acknowledgements: Dooly, Goldman, Scott, STOC 1998), c = 0 never waits.
//!
//! Which c is best depends on how arrivals cluster, and no distribution has to be assumed to find out: batch times are
//! known, so what each c would have made of the arrivals of the last seconds can be computed. [`Patience`] keeps one small
//! replica of the pool for each candidate, feeds all of them every arrival, and recommends the one with the least loss.

use std::collections::VecDeque;

use super::cork::LONGEST_HOLD;
use super::{BatchSizes, Entry};
use crate::estimator::{Fit, Instant};

/// The candidates.
const CANDIDATES: [f64; 6] = [0.0, 0.1, 0.3, 0.6, 1.0, 1.5];
/// A request answered late or refused loses as much as one that is answered this many latency caps after its arrival:
/// goodput first, mean latency among what is left.
const MISS: f64 = 8.0;
/// Arrivals after which a loss counts half. More: steadier; fewer: quicker to follow a change of the arrivals.
const HALF_LIFE: f64 = 4000.0;
/// Arrivals between two replays, for all of whom the replicas are then advanced at once.
const BLOCK: usize = 64;
/// Arrivals remembered at most; replicas that fall further behind begin anew.
const MEMORY: usize = 1 << 14;

/// Learns how patient to be.
#[derive(Debug, Clone)]
pub struct Patience {
    arrivals: VecDeque<Arrival>,
    /// Position of the first remembered arrival, counted from the first ever.
    first: usize,
    unseen: usize,
    replicas: [Replica; CANDIDATES.len()],
    chosen: f64,
}

/// Times in seconds since the epoch.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: f64,
    deadline: f64,
    rows: usize,
}

/// A pool that would have held with another patience.
#[derive(Debug, Clone, Default)]
struct Replica {
    /// The next arrival to be released or refused.
    head: usize,
    /// When each runner is free.
    free: Vec<f64>,
    loss: f64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::new()
    }
}

impl Patience {
    /// Knows nothing and does not wait.
    pub fn new() -> Patience {
        Patience { arrivals: VecDeque::new(), first: 0, unseen: 0, replicas: Default::default(), chosen: 0.0 }
    }

    /// c: a hold ends c·α/n after the last arrival.
    pub fn factor(&self) -> f64 {
        self.chosen
    }

    /// Takes in an arrival at such a pool. Costs some 100 ns, on average.
    pub(super) fn observe(&mut self, entry: &Entry, service: Service<'_>) {
        let seconds = |at: Instant| at.since(Instant::EPOCH).as_secs_f64();
        // Stamps may be heard slightly out of order.
        let at = self.arrivals.back().map_or(0.0, |last| last.at).max(seconds(entry.arrival));
        self.arrivals.push_back(Arrival { at, deadline: seconds(entry.deadline), rows: entry.rows });
        self.unseen += 1;
        if self.unseen >= BLOCK {
            self.unseen = 0;
            self.replay(at, service);
        }
    }

    fn replay(&mut self, now: f64, service: Service<'_>) {
        let Service { fit, runners, .. } = service;
        let known = fit.is_line() && fit.is_trusted();
        if !known || self.arrivals.len() > MEMORY {
            self.first += self.arrivals.len();
            self.arrivals.clear();
            for replica in &mut self.replicas {
                (replica.head, replica.free) = (self.first, vec![now; runners]);
            }
            return;
        }
        let fade = (-(BLOCK as f64) / HALF_LIFE).exp2();
        let view = Past { arrivals: &self.arrivals, first: self.first, now, service };
        for (replica, patience) in self.replicas.iter_mut().zip(CANDIDATES) {
            replica.free.resize(runners, now);
            replica.loss *= fade;
            replica.advance(&view, patience);
        }
        let done = self.replicas.iter().map(|r| r.head).min().unwrap_or(self.first);
        self.arrivals.drain(..done - self.first);
        self.first = done;
        let best = self.replicas.iter().zip(CANDIDATES).min_by(|a, b| a.0.loss.total_cmp(&b.0.loss));
        self.chosen = best.map_or(0.0, |(_, patience)| patience);
    }
}

/// What batches take, and how many can run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service<'a> {
    pub(super) fit: Fit,
    pub(super) sizes: &'a BatchSizes,
    pub(super) runners: usize,
    pub(super) max_batch: usize,
}

/// What is known when the replicas are advanced.
struct Past<'a> {
    arrivals: &'a VecDeque<Arrival>,
    first: usize,
    now: f64,
    service: Service<'a>,
}

impl Past<'_> {
    fn get(&self, position: usize) -> Option<&Arrival> {
        self.arrivals.get(position - self.first)
    }

    fn time(&self, rows: usize) -> f64 {
        let Service { fit, sizes, .. } = self.service;
        fit.base_seconds() + fit.per_row_seconds() * sizes.padded(rows) as f64
    }
}

impl Replica {
    /// Releases and refuses as [`Cork`](super::Cork) would, up to the first decision that the known arrivals leave open.
    fn advance(&mut self, past: &Past<'_>, patience: f64) {
        while let Some(batch) = self.next_batch(past, patience) {
            let Some(runner) = self.free.iter_mut().min_by(|a, b| a.total_cmp(b)) else { return };
            *runner = batch.end;
            for position in self.head..self.head + batch.entries {
                self.loss += past.get(position).map_or(0.0, |a| batch.end - a.at);
            }
            self.head += batch.entries;
        }
    }

    fn next_batch(&mut self, past: &Past<'_>, patience: f64) -> Option<Batch> {
        let Service { fit, sizes, max_batch, .. } = past.service;
        let free = self.free.iter().copied().min_by(f64::total_cmp)?;
        let mut first = past.get(self.head)?;
        let mut now = free.max(first.at);
        let (mut entries, mut rows) = (0, 0);
        loop {
            if now > past.now {
                return None;
            }
            let mut next = past.get(self.head + entries);
            while let Some(arrival) = next
                && arrival.at <= now
                && rows + arrival.rows <= max_batch
            {
                (entries, rows) = (entries + 1, rows + arrival.rows);
                next = past.get(self.head + entries);
            }
            if now + past.time(rows) * fit.noise() > first.deadline {
                self.loss += MISS * (first.deadline - first.at);
                self.head += 1;
                (entries, rows) = (entries - 1, rows - first.rows);
                first = past.get(self.head)?;
                now = now.max(first.at);
                continue;
            }
            let full = next.is_some_and(|a| rows + a.rows > max_batch) || rows >= max_batch;
            let last = past.get(self.head + entries - 1)?;
            let latest = first.deadline - past.time(rows + 1) * fit.noise();
            let ripe = last.at + patience * sizes.saving(fit, rows) / rows as f64;
            let give_up = free.max(first.at) + LONGEST_HOLD * fit.base_seconds();
            let until = ripe.min(give_up).min(latest);
            if full || until <= now {
                return Some(Batch { entries, end: now + past.time(rows) });
            }
            match next {
                Some(arrival) if arrival.at <= until => now = arrival.at,
                _ if until > past.now => return None,
                _ => return Some(Batch { entries, end: until + past.time(rows) }),
            }
        }
    }
}

struct Batch {
    entries: usize,
    end: f64,
}
