//! One pool without its I/O: what waits, what runs and what has been learned.
//!
//! Whoever drives it (the batcher's actor, the simulator, a test) tells it of every event with its time, asks for the
//! next [`Step`], and obeys. It reads no clock, starts nothing and answers nobody.

use std::ops::Range;
use std::time::Duration;

use super::{Decision, Entry, Policy, Queue, ReleaseReason, Running, ShedReason, View};
use crate::estimator::{BatchTimes, Fit, Gaps, Instant};

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
    gaps: Gaps,
    draining: bool,
    /// Arrival of the first of the entries that were last taken out: those that a launch is about.
    taken_first: Instant,
}

/// Which lane of a pool.
pub type LaneId = usize;

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
            gaps: Gaps::new(),
            draining: false,
            taken_first: Instant::EPOCH,
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
        let lane = &mut self.lanes[lane];
        // By its own stamp: the moment of hearing would make a crowd look simultaneous. Stamps may be out of order by the
        // time it takes to read requests, which `Gaps` takes as no gap.
        lane.gaps.observe(entry.arrival, entry.rows);
        lane.queue.insert(entry);
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
        match self.lanes[lane].policy.decide(now, self.view(lane)) {
            Decision::Release { entries, reason } => Step::Release { lane, entries, reason },
            Decision::Shed { entries, reason } => Step::Shed { lane, entries, reason },
            Decision::WaitUntil(at) => Step::WaitUntil(at),
            Decision::Park => Step::Park,
        }
    }

    /// Takes entries out of a queue, the most urgent first.
    pub fn take(&mut self, lane: LaneId, entries: Range<usize>) -> impl Iterator<Item = Entry> + '_ {
        let lane = &mut self.lanes[lane];
        if let Some(first) = lane.queue.get(entries.start) {
            lane.taken_first = first.arrival;
        }
        lane.queue.remove(entries)
    }

    /// A batch of `rows`, of the entries that were last taken, goes to a runner; returns the ticket to [`land`](Self::land) it with.
    pub fn launch(&mut self, now: Instant, lane: LaneId, rows: usize) -> u64 {
        let ticket = self.tickets;
        self.tickets += 1;
        let fit = self.fit(lane);
        let expected = fit.is_trusted().then(|| fit.predict(rows)).flatten();
        let waited = now.since(self.lanes[lane].taken_first);
        self.running.push(Running { ticket, lane, since: now, rows, waited, expected });
        ticket
    }

    /// The batch with this ticket is back. Only batches that succeeded are learned from: a model that fails fast would
    /// look fast.
    pub fn land(&mut self, now: Instant, ticket: u64, succeeded: bool) {
        let Some(at) = self.running.iter().position(|r| r.ticket == ticket) else { return };
        let running = self.running.swap_remove(at);
        self.free_since = now;
        if succeeded {
            let lane = &mut self.lanes[running.lane];
            lane.times.observe(now, running.rows, now.since(running.since));
            lane.policy.landed(now, &running);
        }
    }

    /// What a decision about this lane may look at.
    pub fn view(&self, lane: LaneId) -> View<'_> {
        let Lane { max_batch, queue, times, gaps, draining, .. } = &self.lanes[lane];
        View {
            queue,
            running: &self.running,
            runners: self.runners,
            max_batch: *max_batch,
            fit: times.fit(),
            gaps,
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
