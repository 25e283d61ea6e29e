//! How long to hold the cork, learned by replaying what arrived.
//!
//! While a runner is free, n rows wait and none has arrived for a while, waiting on costs n seconds of latency a second,
//! and an arrival that then rides along saves a batch of its own, which costs the α of t(n) = α + βn. So a hold ends c·α/n
//! after the last arrival: patience c = 1 spends as much on waiting as an arrival can save (the balance of the ski-rental
//! problem, and of TCP acknowledgements: Dooly, Goldman, Scott, STOC 1998), c = 0 never waits.
//!
//! Which c is best depends on how arrivals cluster, and no distribution has to be assumed to find out: batch times are
//! known, so what each c would have made of the arrivals of the last seconds can be computed. [`Patience`] keeps one small
//! replica of the pool for each candidate, feeds all of them every arrival, and recommends the most patient of those with the
//! least loss, as far as that can be told: their neighbours' losses help to tell. One that is more patient than an α is
//! recommended only where it has lost clearly less.

use std::collections::VecDeque;

use super::cork::{fastest, hold_after_newest, longest_hold};
use super::spread::{SOON, Spread, Waiting};
use super::{BatchSizes, Entry};
use crate::estimator::{Fit, Instant};

/// The candidates; the last holds until the latest start.
const CANDIDATES: [f64; 9] = [0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 3.0, 6.0, 1e9];
/// Those of them up to [`USUAL_PATIENCE`], which end a hold after an α at the latest. The others are for runners that come free one
/// by one: a batch that goes early then keeps those behind it small, and all refuse what few large ones would have answered.
const USUAL: usize = 6;
/// Replicas whose free runners share what waits: as patient as the usual candidates, and one as patient as the best of these, eagerly.
const SHARING: usize = USUAL + 1;
/// What a more patient one, or a pool that shares otherwise, may lose at most, as a part of what the chosen usual one has lost. More: chance
/// leads to long holds.
const EDGE: f64 = 0.98;
/// A request answered late or refused loses as much as one that is answered this many latency caps after its arrival:
/// goodput first, mean latency among what is left.
const MISS: f64 = 8.0;
/// Arrivals after which a loss counts half. More: steadier; fewer: quicker to follow a change of the arrivals.
const HALF_LIFE: f64 = 4000.0;
/// The same where it is asked who has missed more: with one half-life for all, the order of two sums outlives by far what is in them.
const HALF_LIFE_OF_MISSES: f64 = HALF_LIFE / 4.0;
/// A part of what else was lost: who has missed so little more has missed no more.
const NO_MISS: f64 = 0.01;
/// A candidate may have lost this share more than the least, after one replay, and be preferred for being more patient; after
/// n replays the square root of n less, as chance has less to do with it. Where patience matters it mostly pays, and the
/// replicas need thousands of arrivals to tell its last steps apart. More: costs latency where they do not come in clumps.
const DOUBT: f64 = 0.02;
/// Arrivals between two replays, for all of whom the replicas are then advanced at once.
const BLOCK: usize = 64;
/// Times closer than this are one, as they are for the server.
const NANOSECOND: f64 = 1e-9;
/// Arrivals remembered at most; replicas that fall further behind begin anew.
const MEMORY: usize = 1 << 14;

/// Learns how patient to be.
#[derive(Debug, Clone)]
pub struct Patience {
    arrivals: VecDeque<Arrival>,
    /// Position of the first remembered arrival, counted from the first ever.
    first: usize,
    unseen: usize,
    /// Replays that the losses stem from, faded as they are.
    replays: f64,
    replicas: [Replica; CANDIDATES.len()],
    sharing: [Replica; SHARING],
    chosen: f64,
    /// The patience of the best of those that share.
    best_sharing: f64,
    spread: Spread,
}

/// Times in seconds since the epoch.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: f64,
    deadline: f64,
    rows: usize,
    /// Rows of all that came before.
    before: usize,
}

/// A pool that would have held with another patience.
#[derive(Debug, Clone, Default)]
struct Replica {
    /// The next arrival to be released or refused.
    head: usize,
    /// When each runner is free.
    free: Vec<f64>,
    /// When the last of those came free that have got another batch since.
    freed: f64,
    gathered: Gathered,
    loss: f64,
    /// The same for requests late or refused alone. Forgotten sooner.
    missed: f64,
}

/// What was found to wait for the next batch, until when: from there on it is looked for after the next arrivals. A long hold of a
/// large batch would be walked through again for each few of them otherwise.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    now: f64,
    entries: usize,
    rows: usize,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::new()
    }
}

impl Patience {
    /// Knows nothing and does not wait.
    #[must_use]
    pub fn new() -> Patience {
        Patience {
            arrivals: VecDeque::new(),
            first: 0,
            unseen: 0,
            replays: 0.0,
            replicas: Default::default(),
            sharing: Default::default(),
            chosen: 0.0,
            best_sharing: 0.0,
            spread: Spread::AsNeeded,
        }
    }

    /// c: a hold ends c·α/n after the last arrival.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.chosen
    }

    /// Whether free runners share what waits.
    #[must_use]
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// Takes in an arrival at such a pool. With one runner that costs some 100 ns on average, with eight some microseconds.
    pub(super) fn observe(&mut self, entry: &Entry, service: Service<'_>) {
        let seconds = |at: Instant| at.since(Instant::EPOCH).as_secs_f64();
        // Stamps may be heard slightly out of order.
        let at = self.arrivals.back().map_or(0.0, |last| last.at).max(seconds(entry.arrival));
        let before = self.arrivals.back().map_or(0, |last| last.before + last.rows);
        self.arrivals.push_back(Arrival { at, deadline: seconds(entry.deadline), rows: entry.rows, before });
        self.unseen += 1;
        if self.unseen >= BLOCK {
            self.unseen = 0;
            self.replay(at, service);
        }
    }

    fn replay(&mut self, now: f64, service: Service<'_>) {
        let Service { fit, runners, shares, .. } = service;
        let known = fit.is_line() && fit.is_trusted();
        if !known || self.arrivals.len() > MEMORY {
            self.first += self.arrivals.len();
            self.arrivals.clear();
            for replica in self.replicas.iter_mut().chain(&mut self.sharing) {
                let Replica { loss, missed, .. } = *replica;
                *replica = Replica { head: self.first, free: vec![now; runners], loss, missed, ..Replica::default() };
            }
            return;
        }
        let fade = (-(BLOCK as f64) / HALF_LIFE).exp2();
        let fade_of_misses = (-(BLOCK as f64) / HALF_LIFE_OF_MISSES).exp2();
        let view = Past { arrivals: self.arrivals.make_contiguous(), first: self.first, now, service };
        // One runner never comes free beside another: its batches are as large as they can be without the others. Where some sizes
        // only run, what is held is weighed anew with each that comes: too costly for long holds.
        let tried = if runners > 1 && service.sizes.is_any() { CANDIDATES.len() } else { USUAL };
        let (tried, idle) = self.replicas.split_at_mut(tried);
        let (sharing, alone) = self.sharing.split_at_mut(if shares { SHARING } else { 0 });
        let advance = |replica: &mut Replica, patience, spread| {
            replica.free.resize(runners, 0.0); // since ever, and so for the first arrivals too
            replica.loss *= fade;
            replica.missed *= fade_of_misses;
            replica.advance(&view, patience, spread);
        };
        for (replica, patience) in tried.iter_mut().zip(CANDIDATES) {
            advance(replica, patience, Spread::Never);
        }
        for (replica, patience) in sharing.iter_mut().zip(&CANDIDATES[..USUAL]) {
            advance(replica, *patience, Spread::AsNeeded);
        }
        if let Some(eager) = sharing.get_mut(USUAL) {
            advance(eager, self.best_sharing, Spread::Eagerly);
        }
        let done = tried.iter().chain(&*sharing).map(|r| r.head).min().unwrap_or(self.first);
        idle.iter_mut().chain(alone).for_each(|replica| replica.head = done);
        self.replays = self.replays * fade + 1.0;
        let (usual, others) = tried.split_at(USUAL);
        let best = most_patient(usual, self.replays);
        let so_far = |replica: &Replica| replica.loss + view.waited(replica.head);
        let mut chosen = CANDIDATES[best];
        // To count who waits costs a step for each: for nothing where there is nobody to compare with.
        if !others.is_empty() {
            let mut least = so_far(&usual[best]) * EDGE;
            for (replica, patience) in others.iter().zip(&CANDIDATES[USUAL..]) {
                if replica.loss < least && so_far(replica) < least {
                    (chosen, least) = (*patience, so_far(replica));
                }
            }
        }
        (self.chosen, self.spread) = (chosen, Spread::Never);
        if let Some((eager, as_needed)) = sharing.split_last() {
            let best = most_patient(as_needed, self.replays);
            let as_needed = &as_needed[best];
            let alone = tried.iter().zip(CANDIDATES).find(|(_, patience)| *patience == chosen).map(|(alone, _)| alone);
            if !alone.is_some_and(|alone| so_far(alone) < so_far(as_needed) && alone.misses_no_more_than(as_needed)) {
                let is_better = so_far(eager) < so_far(as_needed) * EDGE && eager.misses_no_more_than(as_needed);
                let spread = if is_better { Spread::Eagerly } else { Spread::AsNeeded };
                (self.chosen, self.spread) = (CANDIDATES[best], spread);
            }
            self.best_sharing = CANDIDATES[best];
        }
        self.arrivals.drain(..done - self.first);
        self.first = done;
    }
}

/// The most patient of the usual candidates among those with the least loss.
fn most_patient(usual: &[Replica], replays: f64) -> usize {
    // Neighbours lose almost the same, and chance parts them: each is judged halfway between itself and the mean of the
    // two. The first and the last have one neighbour, and count as they are.
    let losses: [f64; USUAL] = std::array::from_fn(|i| usual[i].loss);
    let judged: [f64; USUAL] = std::array::from_fn(|i| match (i.checked_sub(1), losses.get(i + 1)) {
        (Some(before), Some(after)) => losses[i] / 2.0 + (losses[before] + after) / 4.0,
        _ => losses[i],
    });
    let least = judged.iter().copied().fold(f64::INFINITY, f64::min);
    let good = least * (1.0 + DOUBT / replays.sqrt());
    judged.iter().rposition(|loss| *loss <= good).unwrap_or(0)
}

/// What batches take, and how many can run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service<'a> {
    pub(super) fit: &'a Fit,
    pub(super) sizes: &'a BatchSizes,
    pub(super) runners: usize,
    /// Whether they may share what waits.
    pub(super) shares: bool,
    pub(super) max_batch: usize,
}

/// What is known when the replicas are advanced.
struct Past<'a> {
    arrivals: &'a [Arrival],
    first: usize,
    now: f64,
    service: Service<'a>,
}

impl Past<'_> {
    fn get(&self, position: usize) -> Option<&Arrival> {
        self.arrivals.get(position - self.first)
    }

    /// How long those from `head` on, whom nobody has answered, have waited together. A long hold has lost nothing yet where it has not ended, and
    /// would seem the best for as long as it lasts.
    fn waited(&self, head: usize) -> f64 {
        self.arrivals[head - self.first..].iter().map(|arrival| (self.now - arrival.at).max(0.0)).sum()
    }

    fn time(&self, rows: usize) -> f64 {
        let Service { fit, sizes, .. } = self.service;
        fit.mean_seconds(sizes.padded(rows))
    }

    /// The most of the `entries` from `head` on that have at most `size` rows together, and their rows.
    fn prefix(&self, head: usize, entries: usize, size: usize) -> (usize, usize) {
        let add = |rows: &mut usize, arrival: &Arrival| {
            *rows += arrival.rows;
            (*rows <= size).then_some(*rows)
        };
        let waiting = (head..head + entries).filter_map(|position| self.get(position));
        waiting.scan(0, add).fold((0, 0), |(entries, _), rows| (entries + 1, rows))
    }

    /// Of all that wait from `head` on, or less where the model runs some sizes only: what [`Cork`](super::Cork) takes.
    fn fastest(&self, head: usize, now: f64, whole: (usize, usize)) -> (usize, usize) {
        let waiting = || (head..head + whole.0).filter_map(|position| self.get(position));
        let prefix = |size| self.prefix(head, whole.0, size);
        let speed = |rows| {
            let time = self.time(rows) * self.service.fit.noise();
            let in_time: usize = waiting().filter(|a| a.deadline >= now + time).map(|a| a.rows).sum();
            in_time.min(rows) as f64 / time
        };
        fastest(self.service.sizes, whole, prefix, speed)
    }

    /// The most rows of a batch, where those that wait are shared by the runners that are free or soon will be; `whole` is a batch of
    /// all that fit.
    fn part(&self, head: usize, now: f64, whole: (usize, usize), free: &[f64], spread: Spread) -> usize {
        let Service { fit, max_batch, .. } = self.service;
        let most = max_batch.max(whole.1); // a request may have come when larger batches were allowed
        let by = |soon: f64| {
            let free = free.iter().copied().filter(|end| *end <= soon);
            free.fold((0, now), |(n, last), end| (n + 1, last.max(end)))
        };
        let (free, end) = by(now + SOON * self.time(whole.1));
        if spread == Spread::Never || free < 2 {
            return most;
        }
        let behind = &self.arrivals[head + whole.0 - self.first..];
        let waits = whole.0 + behind.partition_point(|arrival| arrival.at <= now);
        let (Some(first), Some(last)) = (self.get(head), self.get(head + waits - 1)) else { return most };
        let rows = last.before + last.rows - first.before;
        let latest = last.deadline - self.time(rows.div_ceil(free).min(most)) * fit.noise();
        let (free, end) = if end > latest { by(latest) } else { (free, end) };
        let is_late = now + self.time(rows.min(most)) * fit.noise() > first.deadline;
        let waiting = Waiting { rows, free, most, is_late };
        let is_in_time = |rows| end + self.time(rows) * fit.noise() <= first.deadline;
        let around = |size| {
            let (entries, rows) = self.prefix(head, waits, size);
            (rows, rows + self.get(head + entries).map_or(0, |next| next.rows))
        };
        waiting.part(spread, is_in_time, |rows| self.time(rows), around)
    }

    /// What [`Cork`](super::Cork) takes of all that wait, where the first of them is late: the oldest, if who stays may be in time as well.
    fn oldest_in_time(&self, head: usize, now: f64, (whole, rows): (usize, usize)) -> Option<(usize, usize)> {
        let get = |at: usize| self.get(head + at).filter(|_| at < whole);
        let begin = get(0)?.before;
        let rest = |at: usize| rows - get(at).map_or(rows, |entry| entry.before - begin);
        let time = |rows| self.time(rows) * self.service.fit.noise();
        let in_time = |at: usize, rows| get(at).is_some_and(|entry| now + time(rows) <= entry.deadline);
        let (mut late, mut fits) = (0, whole);
        while late + 1 < fits {
            let middle = late + (fits - late) / 2;
            if in_time(middle, rest(middle)) { fits = middle } else { late = middle }
        }
        let size = rest(fits);
        let margin = time(size) - self.time(size);
        get(0).filter(|first| now + time(size) + margin <= first.deadline)?;
        let (entries, rows) = Some(self.prefix(head, whole, size)).filter(|(entries, _)| *entries > 0)?;
        let is_better = now + time(rows) + time(rest(entries)) <= get(entries)?.deadline;
        is_better.then_some((entries, rows))
    }
}

impl Replica {
    /// Releases and refuses as [`Cork`](super::Cork) would, up to the first decision that the known arrivals leave open. Its
    /// rules are Cork's own functions, or the same on seconds, as a test sees to. It serves in the order of arrival, whatever priorities and deadlines say, and
    /// refuses at the front only: what is asked of it is how arrivals cluster, and that is a matter of when they come.
    fn advance(&mut self, past: &Past<'_>, patience: f64, spread: Spread) {
        while let Some(batch) = self.next_batch(past, patience, spread) {
            self.launch(past, &batch);
        }
    }

    /// Whether it refused no more of late, as far as that matters.
    fn misses_no_more_than(&self, other: &Replica) -> bool {
        self.missed <= other.missed + NO_MISS * (other.loss - other.missed)
    }

    fn launch(&mut self, past: &Past<'_>, batch: &Batch) {
        let Some(runner) = self.free.iter_mut().min_by(|a, b| a.total_cmp(b)) else { return };
        self.freed = self.freed.max(*runner);
        *runner = batch.end;
        for position in self.head..self.head + batch.entries {
            self.loss += past.get(position).map_or(0.0, |a| batch.end - a.at);
        }
        self.head += batch.entries;
        self.gathered = Gathered { now: batch.start, ..Gathered::default() };
    }

    fn next_batch(&mut self, past: &Past<'_>, patience: f64, spread: Spread) -> Option<Batch> {
        let Service { fit, sizes, max_batch, .. } = past.service;
        let free = self.free.iter().copied().min_by(f64::total_cmp)?;
        let mut first = past.get(self.head)?;
        let Gathered { now, mut entries, mut rows } = self.gathered;
        let mut now = now.max(free).max(first.at);
        loop {
            self.gathered = Gathered { now, entries, rows };
            if now > past.now {
                return None;
            }
            let mut next = past.get(self.head + entries);
            while let Some(arrival) = next
                && arrival.at <= now
                && (entries == 0 || rows + arrival.rows <= max_batch)
            {
                (entries, rows) = (entries + 1, rows + arrival.rows);
                next = past.get(self.head + entries);
            }
            let has_more = next.is_some_and(|arrival| arrival.at <= now);
            let faster = if sizes.is_any() { fit.faster_size(rows) } else { None };
            let smaller = faster.map(|size| past.prefix(self.head, entries, size)).filter(|(entries, _)| *entries > 0);
            let mut batch = if let Some(smaller) = smaller {
                smaller
            } else if sizes.is_any() || has_more {
                (entries, rows)
            } else {
                past.fastest(self.head, now, (entries, rows))
            };
            let mut full = batch.1 >= max_batch || batch.0 < entries || has_more;
            let part = past.part(self.head, now, (entries, rows), &self.free, spread);
            if part < batch.1 {
                batch = past.prefix(self.head, entries, part);
            }
            let is_late = |batch: (usize, usize)| now + past.time(batch.1) * fit.noise() > first.deadline;
            if is_late(batch)
                && batch.0 == entries
                && !has_more
                && let Some(oldest) = past.oldest_in_time(self.head, now, batch)
            {
                (batch, full) = (oldest, true);
            }
            if is_late(batch) {
                self.loss += MISS * (first.deadline - first.at);
                self.missed += MISS * (first.deadline - first.at);
                self.head += 1;
                (entries, rows) = (entries.saturating_sub(1), rows.saturating_sub(first.rows));
                self.gathered = Gathered { now, entries, rows };
                first = past.get(self.head)?;
                now = now.max(first.at);
                continue;
            }
            let last = past.get(self.head + entries - 1)?;
            let latest = first.deadline - past.time(rows + 1) * fit.noise();
            let ripe = last.at + hold_after_newest(patience, fit, sizes, rows);
            // When a batch last left its runner free.
            let free_since =
                self.free.iter().copied().filter(|end| *end <= now + NANOSECOND).fold(self.freed, f64::max);
            let give_up = free_since.max(first.at) + longest_hold(patience, fit);
            let until = ripe.min(give_up).min(latest);
            if full || until <= now {
                return Some(Batch { entries: batch.0, start: now, end: now + past.time(batch.1) });
            }
            match next {
                Some(arrival) if arrival.at <= until => now = arrival.at,
                _ if until > past.now => return None,
                _ => now = until,
            }
        }
    }
}

struct Batch {
    entries: usize,
    start: f64,
    end: f64,
}

#[cfg(test)]
mod tests;
