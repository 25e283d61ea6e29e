//! One pool without its I/O: what waits, what runs and what has been learned.
//!
//! Whoever drives it (the batcher's actor, the simulator, a test) tells it of every event with its time, asks for the
//! next [`Step`], and obeys. It reads no clock, starts nothing and answers nobody.

use std::ops::Range;
use std::time::Duration;

use super::{Decision, Entry, Patience, Policy, Queue, ReleaseReason, Running, ShedReason, View};
use crate::estimator::{BatchTimes, Crowd, Fit, Instant};

/// A pool of runners and the queues that it serves.
pub struct Dispatcher {
    runners: usize,
    lanes: Vec<Lane>,
    running: Vec<Running>,
    free_since: Instant,
    tickets: u64,
}

/// One model's queue, with its policy, its cap and what has been learned about it.
pub struct Lane {
    policy: Box<dyn Policy>,
    max_batch: usize,
    queue: Queue,
    times: BatchTimes,
    patience: Patience,
    crowd: Crowd,
    /// Requests with a runner.
    flying: usize,
    draining: bool,
}

/// Which lane of a pool.
pub type LaneId = usize;

/// Entries that were [taken](Dispatcher::take) to be run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub entries: usize,
    /// Their rows.
    pub rows: usize,
    /// When the first of them arrived.
    pub first_arrival: Instant,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// [`take`](Dispatcher::take) these entries from the front and [`launch`](Dispatcher::launch) them as one batch.
    Release {
        /// Whose queue.
        lane: LaneId,
        /// How many entries, from the front.
        entries: usize,
        /// Why now.
        reason: ReleaseReason,
    },
    /// [`take`](Dispatcher::take) these entries and refuse them.
    Shed {
        /// Whose queue.
        lane: LaneId,
        /// Positions in the queue.
        entries: Range<usize>,
        /// Why.
        reason: ShedReason,
    },
    /// Ask again at this instant, or at the next event if that is sooner.
    WaitUntil(Instant),
    /// Ask again at the next event.
    Park,
}

impl Lane {
    /// An empty queue under this policy, whose batches have at most `max_batch` rows (0 is taken as 1).
    pub fn new(policy: Box<dyn Policy>, max_batch: usize) -> Lane {
        Lane {
            policy,
            max_batch: max_batch.max(1),
            queue: Queue::new(),
            times: BatchTimes::new(),
            patience: Patience::new(),
            crowd: Crowd::new(),
            flying: 0,
            draining: false,
        }
    }

    /// Takes in a batch that was timed before the queue opened.
    pub fn seen(&mut self, now: Instant, rows: usize, time: Duration) {
        self.times.observe(now, rows, time);
    }
}

impl Dispatcher {
    /// A pool that runs as many batches at once as it has `runners` (0 is taken as 1), without a queue.
    pub fn new(runners: usize) -> Dispatcher {
        Dispatcher {
            runners: runners.max(1),
            lanes: Vec::new(),
            running: Vec::new(),
            free_since: Instant::EPOCH,
            tickets: 0,
        }
    }

    /// Adds a queue to the pool.
    pub fn open(&mut self, lane: Lane) -> LaneId {
        self.lanes.push(lane);
        self.lanes.len() - 1
    }

    /// An entry has arrived.
    pub fn arrive(&mut self, lane: LaneId, entry: Entry) {
        let runners = self.runners;
        let lane = &mut self.lanes[lane];
        // All go by its own stamp: the moment of hearing would make a crowd look simultaneous. Stamps may be out of order
        // by the time it takes to read requests.
        lane.patience.observe(&entry, lane.times.fit(), runners, lane.max_batch);
        lane.queue.insert(entry);
        lane.crowd.arrived(entry.arrival, lane.queue.len() + lane.flying);
    }

    /// A caller has left; `false` if its entry waits no more.
    pub fn depart(&mut self, lane: LaneId, entry: &Entry) -> bool {
        self.lanes[lane].queue.remove_entry(entry.deadline, entry.id).is_some()
    }

    /// Nothing will arrive any more: what waits is released without holding back.
    pub fn drain(&mut self, lane: LaneId) {
        self.lanes[lane].draining = true;
    }

    /// What to do at `now`. To be asked again after it has been obeyed, until it says to wait or to park.
    pub fn next(&mut self, now: Instant) -> Step {
        let lane = 0;
        match self.lanes[lane].policy.decide(now, self.view(now, lane)) {
            Decision::Release { entries, reason } => Step::Release { lane, entries, reason },
            Decision::Shed { entries, reason } => Step::Shed { lane, entries, reason },
            Decision::WaitUntil(at) => Step::WaitUntil(at),
            Decision::Park => Step::Park,
        }
    }

    /// Takes entries out of a queue, the most urgent first.
    pub fn take(&mut self, lane: LaneId, entries: Range<usize>) -> impl Iterator<Item = Entry> + '_ {
        self.lanes[lane].queue.remove(entries)
    }

    /// This batch goes to a runner; returns the ticket to [`land`](Self::land) it with.
    pub fn launch(&mut self, now: Instant, lane: LaneId, batch: Batch) -> u64 {
        let ticket = self.tickets;
        self.tickets += 1;
        let fit = self.fit(lane);
        let expected = fit.is_trusted().then(|| fit.predict(batch.rows)).flatten();
        let Batch { entries, rows, first_arrival } = batch;
        self.lanes[lane].flying += entries;
        let waited = now.since(first_arrival);
        self.running.push(Running { ticket, lane, since: now, entries, rows, waited, expected });
        ticket
    }

    /// The batch with this ticket is back. Only batches that succeeded are learned from: a model that fails fast would
    /// look fast.
    pub fn land(&mut self, now: Instant, ticket: u64, succeeded: bool) {
        let Some(at) = self.running.iter().position(|r| r.ticket == ticket) else { return };
        let running = self.running.swap_remove(at);
        self.free_since = now;
        let lane = &mut self.lanes[running.lane];
        lane.flying -= running.entries;
        lane.crowd.landed(now);
        if succeeded {
            lane.times.observe(now, running.rows, now.since(running.since));
            lane.policy.landed(now, &running);
        }
    }

    /// What a decision about this lane at `now` may look at.
    pub fn view(&self, now: Instant, lane: LaneId) -> View<'_> {
        let Lane { max_batch, queue, times, patience, crowd, draining, .. } = &self.lanes[lane];
        View {
            queue,
            running: &self.running,
            runners: self.runners,
            max_batch: *max_batch,
            fit: times.fit(),
            patience: patience.factor(),
            crowd: crowd.known(now),
            free_since: self.free_since,
            draining: *draining,
        }
    }

    /// What waits in this lane.
    pub fn queue(&self, lane: LaneId) -> &Queue {
        &self.lanes[lane].queue
    }

    /// What is known of this lane's batch times.
    pub fn fit(&self, lane: LaneId) -> Fit {
        self.lanes[lane].times.fit()
    }

    /// Batches that are running, in any order.
    pub fn running(&self) -> &[Running] {
        &self.running
    }
}
