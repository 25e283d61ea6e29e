//! One model's queue in a pool, with its policy, its cap and what has been learned about it.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

use super::backlog::{Backlog, Left};
use super::neighbours::Leaves;
use super::patience::Service;
use super::rehearsal::{Known, Rehearsals, Wanted};
use super::rounds::Rounds;
use super::{BatchSizes, Decision, Entry, Patience, Policy, Queue};
use crate::estimator::{Answers, BatchTimes, Crowd, Fit, Instant, KnownCrowd};

/// Full batches for which it is remembered what each caller was given: enough to tell who was given more, and little enough to be
/// made up for soon.
const REMEMBERED: u64 = 16;

/// No batch has more rows, whatever the cap is: sums of a few such numbers overflow nowhere.
const MOST_ROWS: usize = i32::MAX as usize;

/// A queue that [opens](super::Dispatcher::open) in a pool.
pub struct Lane {
    pub(super) weight: NonZeroUsize,
    pub(super) policy: Box<dyn Policy>,
    max_batch: usize,
    pub(super) sizes: BatchSizes,
    pub(super) queue: Queue,
    pub(super) times: BatchTimes,
    pub(super) patience: Patience,
    crowd: Crowd,
    rounds: Rounds,
    /// Its batches are given up that run for so long.
    pub(super) stuck_after: Option<Duration>,
    /// Whether one was, and none has come back since.
    pub(super) is_stuck: bool,
    /// Where it has rows of its own.
    pub(super) rehearsals: Option<Rehearsals>,
    pub(super) backlog: Backlog,
    pub(super) draining: bool,
    /// When a batch of it last came back. By the pool's last landing, a lane whose estimate is stale beyond hope would
    /// never look idle beside a busy one, and never be put to the test again.
    pub(super) free_since: Instant,
    /// Since when something is held back here while a runner is free.
    pub(super) held_since: Option<Instant>,
    /// What was asked of it lately.
    pub(super) demand: Demand,
    /// The most rows of a batch that pay: no more than are over within what callers give, as a plan with larger ones is never kept, and the size that
    /// makes the most rows a second where that is clearly another.
    paying: usize,
    /// What it leaves to the other lanes.
    pub(super) leaves: Leaves,
    /// What the policy said last and when, while nothing has happened that could change its mind.
    pub(super) said: Option<(Instant, Decision)>,
}

/// What is asked of a lane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    /// How long callers give it: as long as the more patient ones do.
    pub(super) within: Duration,
    /// Rows of a batch, on average.
    pub(super) rows: f64,
    /// Rows of a request, on average.
    request: f64,
    /// Rows of the largest request since nothing waited.
    largest: usize,
    /// Rows that came lately, and those of them that were refused though they had a chance; they fade.
    recent: f64,
    refused: f64,
    at: Instant,
}

/// [`Demand`] goes one of so many parts of the way towards each new request or batch.
const DEMAND_PARTS: u32 = 16;
const DEMAND_GAIN: f64 = 1.0 / DEMAND_PARTS as f64;

impl Demand {
    fn arrived(&mut self, entry: &Entry, memory: Option<f64>) {
        // Alone it has no others to be compared with, and nothing is remembered for when it has.
        let left = memory.map_or(0.0, |memory| self.left(entry.arrival, memory));
        (self.recent, self.refused) = (self.recent * left + entry.rows as f64, self.refused * left);
        self.at = self.at.max(entry.arrival);
        let own = entry.given();
        // One caller in a great hurry is no reason to keep everybody's batches small.
        self.within = if own > self.within { own } else { self.within - (self.within - own) / DEMAND_PARTS };
    }

    /// The part that is left of what came and was refused lately.
    fn left(&self, now: Instant, memory: f64) -> f64 {
        (-now.since(self.at).as_secs_f64() / memory).exp()
    }

    fn released(&mut self, rows: usize, entries: usize) {
        let gain = if self.rows == 0.0 { 1.0 } else { DEMAND_GAIN };
        self.rows += gain * (rows as f64 - self.rows);
        self.request += gain * (rows as f64 / entries as f64 - self.request);
    }
}

/// Which lane of a pool: they are numbered from 0 in the order in which they are opened, and no number is given twice.
pub type LaneId = usize;

impl Lane {
    /// An empty queue under this policy, whose batches have at most `max_batch` rows (0 is taken as 1, and `usize::MAX` is as good as no cap), of weight 1.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, max_batch: usize) -> Lane {
        Lane {
            weight: NonZeroUsize::MIN,
            policy,
            max_batch: max_batch.clamp(1, MOST_ROWS),
            sizes: BatchSizes::default(),
            queue: Queue::new(),
            times: BatchTimes::new(),
            patience: Patience::new(),
            crowd: Crowd::new(),
            rounds: Rounds::default(),
            stuck_after: None,
            is_stuck: false,
            rehearsals: None,
            backlog: Backlog::NONE,
            draining: false,
            free_since: Instant::EPOCH,
            held_since: None,
            demand: Demand::default(),
            paying: usize::MAX,
            leaves: Leaves::NOTHING,
            said: None,
        }
    }

    /// The lane's part of the runner time when more is wanted than there is, in proportion to the others'.
    #[must_use]
    pub fn weighing(self, weight: NonZeroUsize) -> Lane {
        Lane { weight, ..self }
    }

    /// Batches of this lane run at these sizes only, each padded to the next one.
    #[must_use]
    pub fn padding_to(self, sizes: BatchSizes) -> Lane {
        Lane { sizes, ..self }
    }

    /// Batches of this lane that run for so long are given up: nothing is expected of them any more.
    #[must_use]
    pub fn giving_up_after(self, stuck_after: Duration) -> Lane {
        Lane { stuck_after: Some(stuck_after), ..self }
    }

    /// Whoever runs its batches has rows of its own: where the estimate may be stale, it is tested with those and never with a
    /// caller. So far batches of up to `tried` rows were tried (0 is taken as 1). Until larger ones are rehearsed, while the pool
    /// is idle, none is released. Callers are promised answers within `max_latency`.
    #[must_use]
    pub fn rehearsing(self, tried: usize, max_latency: Duration) -> Lane {
        Lane { rehearsals: Some(Rehearsals::new(tried, max_latency)), ..self }
    }

    /// The most rows that were tried and are within the cap.
    pub(super) fn tried_rows(&self) -> usize {
        self.rehearsals.as_ref().map_or(self.max_batch, |rehearsals| rehearsals.tried().min(self.max_batch))
    }

    /// The most rows that its next batch may have. Of more than were tried, a request goes alone.
    pub(super) fn most_rows(&self) -> usize {
        self.most_rows_with(self.queue.first().map_or(1, |first| first.rows))
    }

    fn most_rows_with(&self, first: usize) -> usize {
        self.paying.max(self.demand.largest).min(self.tried_rows()).max(first).min(self.max_batch)
    }

    /// The same, as far as that leaves the callers of the other lanes their time.
    pub(super) fn bounded_rows(&self) -> usize {
        let first = self.queue.first().map_or(1, |first| first.rows);
        self.most_rows_with(first).min(self.leaves.bound.max(self.demand.largest).max(first))
    }

    /// A batch of so many rows came back, with these answers unless it was a rehearsal.
    pub(super) fn observe(&mut self, now: Instant, rows: usize, time: Duration, answers: Option<Answers>) {
        let rows = self.sizes.padded(rows);
        if !self.demand.within.is_zero() {
            let rows = self.usual_request().min(self.max_batch);
            self.times.callers_give(self.demand.within, self.sizes.padded(rows));
        }
        match answers {
            Some(answers) => self.times.observe_answered(now, rows, time, answers),
            None => self.times.observe_test(now, rows, time),
        }
        let faster = if self.sizes.is_any() { self.fit().faster_size(self.tried_rows()) } else { None };
        let within = Some(self.demand.within).filter(|within| !within.is_zero());
        let in_time = within.and_then(|within| self.most_rows_for(within, Fit::predict));
        self.paying = faster.unwrap_or(usize::MAX).min(in_time.unwrap_or(usize::MAX));
    }

    /// The same of a batch of which parts ran again.
    pub(super) fn observe_repeated(&mut self, rows: usize, time: Duration, answers: Answers) {
        self.times.observe_repeated(self.sizes.padded(rows), time, answers);
    }

    /// Whether there is anything to rehearse.
    pub(super) fn is_curious(&self) -> bool {
        !self.draining && self.rehearsals.as_ref().is_some_and(|rehearsals| rehearsals.is_curious(self.max_batch))
    }

    /// The rehearsal that it wants next; `quiet_since` is when something last happened in its pool, if nothing waits or runs there.
    pub(super) fn wanted_rehearsal(&self, quiet_since: Option<Instant>) -> Option<Wanted> {
        let rehearsals = self.rehearsals.as_ref()?;
        let Lane { sizes, max_batch, free_since, .. } = self;
        let (fit, max_batch, free_since) = (self.fit(), *max_batch, *free_since);
        rehearsals.wanted(Known { fit, sizes, max_batch, free_since, quiet_since })
    }

    /// A batch of these, so many rows, goes to a runner, of which the lane can count on so many; the queue is without them already.
    pub(super) fn note_release(&mut self, now: Instant, entries: &[Entry], rows: usize, runners: f64) {
        self.queue.served(entries, REMEMBERED * self.most_rows() as u64);
        let full = self.bounded_rows();
        let time = self.mean_time(full).unwrap_or_default().as_secs_f64();
        let turn = Duration::try_from_secs_f64(time / runners).unwrap_or(Duration::MAX);
        self.backlog.left(now, Left { rows: self.queue.rows(), full, turn });
        let next = self.queue.first().map_or(1, |next| next.rows);
        let is_full = rows + next > self.tried_rows();
        self.rehearsals
            .as_mut()
            .into_iter()
            .for_each(|rehearsals| rehearsals.released(self.sizes.padded(rows), is_full));
        self.demand.released(rows, entries.len());
    }

    /// How long its callers wait for their answers; `None` while nothing is known of its batches, or where nobody has asked within
    /// the last `silence`.
    pub(super) fn patience_of_callers(&self, now: Instant, silence: Duration) -> Option<Duration> {
        let newest = self.queue.newest_arrival();
        let asks = newest > Instant::EPOCH && newest + silence >= now && !self.draining;
        (asks && self.fit().is_trusted()).then_some(self.demand.within)
    }

    /// How long a batch of the usual rows takes, cautiously.
    pub(super) fn usual_batch(&self) -> Duration {
        let rows = self.sizes.padded((self.demand.rows.ceil() as usize).clamp(1, self.max_batch));
        self.fit().predict_cautiously(rows).unwrap_or_default()
    }

    /// Rows a second that its callers ask for at present.
    pub(super) fn rate(&self, now: Instant, memory: f64) -> f64 {
        self.demand.recent * self.demand.left(now, memory) / memory
    }

    /// Rows of a usual request.
    pub(super) fn usual_request(&self) -> usize {
        (self.demand.request.round() as usize).max(1)
    }

    /// The part of its rows that is refused at present, and had a chance.
    pub(super) fn refused(&self) -> f64 {
        if self.demand.recent > 0.0 { self.demand.refused / self.demand.recent } else { 0.0 }
    }

    /// The most rows that a batch of it can have and be over within such a time, cautiously: none where not even a row is, or where that
    /// is not known.
    pub(super) fn rows_within(&self, time: Duration) -> Option<usize> {
        self.most_rows_for(time, Fit::predict_cautiously)
    }

    fn most_rows_for(&self, time: Duration, predict: impl Fn(&Fit, usize) -> Option<Duration>) -> Option<usize> {
        let fit = self.fit();
        let in_time = |rows: usize| predict(fit, self.sizes.padded(rows)).is_none_or(|t| t <= time);
        if !(fit.is_line() && fit.is_trusted() && in_time(1)) {
            return None;
        }
        let (mut fits, mut late) = (1, self.max_batch + 1);
        while fits + 1 < late {
            let middle = fits + (late - fits) / 2;
            if in_time(middle) { fits = middle } else { late = middle }
        }
        Some(fits)
    }

    /// Takes in a batch that was timed before the queue opened.
    pub fn seen(&mut self, now: Instant, rows: usize, time: Duration) {
        self.observe(now, rows, time, Some(Answers::default()));
        let rows = self.sizes.padded(rows);
        self.rehearsals.as_mut().into_iter().for_each(|rehearsals| rehearsals.took(rows, time));
    }

    /// What has been learned of the batch time.
    #[must_use]
    pub fn fit(&self) -> &Fit {
        self.times.fit()
    }

    /// The mean time that a batch of `rows` is expected to take, once it is padded; `None` before the first.
    pub(super) fn predict(&self, rows: usize) -> Option<Duration> {
        self.times.fit().predict(self.sizes.padded(rows))
    }

    /// The mean time of a batch of `rows`, or of as many as fit into one; `None` while that is a guess.
    pub(super) fn mean_time(&self, rows: usize) -> Option<Duration> {
        self.fit().is_trusted().then(|| self.predict(rows.min(self.most_rows()))).flatten()
    }

    /// The mean time of a full batch; zero while that is a guess.
    pub(super) fn full_batch(&self) -> Duration {
        self.mean_time(self.most_rows()).unwrap_or_default()
    }

    /// An entry has arrived, while so many others of the lane are with a runner; `memory` is how long, in seconds, its
    /// rate is averaged over where other lanes have to know it.
    pub(super) fn arrive(&mut self, entry: Entry, flying: usize, runners: usize, memory: Option<f64>) {
        // All go by its own stamp: the moment of hearing would make a crowd look simultaneous. Stamps may be out of order
        // by the time it takes to read requests.
        let max_batch = self.bounded_rows();
        let shares = runners > 1 && memory.is_none();
        let service = Service { fit: self.times.fit(), sizes: &self.sizes, runners, shares, max_batch };
        self.patience.observe(&entry, service);
        self.demand.arrived(&entry, memory);
        self.backlog.arrived(entry.arrival, entry.given());
        // No batch is expected to have less rows than a request that waits: each would count as several ahead.
        let waits = if self.queue.is_empty() { 0 } else { self.demand.largest };
        self.demand.largest = waits.max(entry.rows);
        self.queue.insert(entry);
        let present = self.queue.len() + flying;
        self.crowd.arrived(entry.arrival, present);
        // With others beside it, batches do not end when and as often as rounds of its own would have it.
        if memory.is_none() {
            self.rounds.arrived(entry.arrival, present, entry.rows);
            if self.rounds.is_due() {
                let Lane { crowd, rounds, times, sizes, .. } = self;
                let size = crowd.known(entry.arrival).map(|crowd| crowd.size);
                let time = |rows| times.fit().mean_seconds(sizes.padded(rows));
                rounds.look(entry.arrival, size, times.fit(), time, (runners, max_batch));
            }
        }
    }

    /// Takes these out of the queue, to be refused.
    pub(super) fn refuse(&mut self, now: Instant, entries: Range<usize>) -> Vec<Entry> {
        self.rounds.refused();
        let refused: Vec<Entry> = self.queue.remove(entries).collect();
        // One caller in a great hurry does not make a queue too long.
        let usual = refused.iter().filter(|entry| entry.given() * 2 > self.demand.within);
        usual.for_each(|entry| self.backlog.refused(now, entry));
        refused
    }

    /// The same of those who will be late; `has_a_chance` says whether they would be in time in a batch of their own.
    pub(super) fn shed(&mut self, now: Instant, entries: Range<usize>, has_a_chance: bool) -> Vec<Entry> {
        let refused = self.refuse(now, entries);
        if has_a_chance {
            self.demand.refused += refused.iter().map(|entry| entry.rows as f64).sum::<f64>();
        } else if let Some(rehearsals) = &mut self.rehearsals {
            refused.iter().for_each(|entry| rehearsals.refused(now, entry.rows));
        }
        refused
    }

    /// A batch of so many requests came back.
    pub(super) fn landed(&mut self, now: Instant, answered: usize) {
        self.crowd.landed(now);
        if self.rounds.landed(now, answered) {
            self.crowd.confirm();
        }
    }

    /// The crowd that its callers are, if they are one; `is_alone` says whether the pool has one runner and no other lane.
    pub(super) fn crowd(&self, now: Instant, is_alone: bool) -> Option<KnownCrowd> {
        let known = self.crowd.known(now)?;
        let turn = if is_alone { self.rounds.turn(known.size) } else { None };
        Some(KnownCrowd { turn, ..known })
    }

    /// How many callers it has, if each asks again once he is answered.
    pub(super) fn callers(&self, now: Instant) -> Option<usize> {
        self.crowd.callers(now)
    }

    /// What the policy said, as long as that is still what it would say.
    pub(super) fn still_says(&self, now: Instant) -> Option<Decision> {
        let (asked, decision) = self.said.as_ref()?;
        let holds = match decision {
            Decision::WaitUntil(at) => *at > now,
            Decision::Park => true,
            Decision::Release { .. } | Decision::Shed { .. } | Decision::Rehearse { .. } => *asked == now,
        };
        holds.then(|| decision.clone())
    }

    /// Notes since when something waits here for something else than a runner.
    pub(super) fn note_hold(&mut self, now: Instant, has_free_runner: bool) {
        let is_held = has_free_runner && !self.queue.is_empty();
        self.held_since = if is_held { self.held_since.or(Some(now)) } else { None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Cork;

    #[test]
    fn what_was_refused_while_a_lane_was_alone_is_no_loss_by_others() {
        let mut lane = Lane::new(Box::new(Cork), 8);
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        for id in 0..1000 {
            lane.arrive(Entry::new(id, at(id), at(id + 10)), 0, 1, None);
            lane.shed(at(id), 0..1, true);
        }
        lane.arrive(Entry::new(1000, at(1000), at(1010)), 0, 1, Some(16.0));
        assert!(lane.refused() <= 0.5, "{} of its rows", lane.refused());
    }
}
