//! One pool without its I/O: what waits, what runs and what has been learned.
//!
//! Whoever drives it (the batcher's actor, the simulator, a test) tells it of every event with its time, asks for the
//! next [`Step`], and obeys. It reads no clock, starts nothing and answers nobody.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

use super::patience::Service;
use super::{
    Arbiter, BatchSizes, Claim, Decision, Entry, Patience, Policy, Queue, ReleaseReason, Running, ShedReason, Standing,
    View,
};
use crate::estimator::{Answers, BatchTimes, Crowd, Fit, Instant};

/// A pool of runners and the queues that it serves.
pub struct Dispatcher {
    runners: usize,
    /// In the order in which they were opened, which is that of their ids.
    lanes: Vec<Lane>,
    /// Keeps an account for each of `lanes`, at the same position.
    arbiter: Arbiter,
    running: Vec<Running>,
    tickets: u64,
    opened: LaneId,
    /// What [`next`](Self::next) compares; kept for its memory.
    claims: Vec<Claim>,
}

/// One model's queue, with its policy, its cap and what has been learned about it.
pub struct Lane {
    id: LaneId,
    weight: NonZeroUsize,
    policy: Box<dyn Policy>,
    max_batch: usize,
    sizes: BatchSizes,
    queue: Queue,
    times: BatchTimes,
    patience: Patience,
    crowd: Crowd,
    /// Requests with a runner.
    flying: usize,
    draining: bool,
    /// When a batch of it last came back. By the pool's last landing, a lane whose estimate is stale beyond hope would
    /// never look idle beside a busy one, and never be put to the test again.
    free_since: Instant,
    /// What the policy said last and when, while nothing has happened that could change its mind.
    said: Option<(Instant, Decision)>,
    /// What it puts forward for its next batch, while nothing has happened that could change it.
    claim: Option<Claim>,
}

/// Which lane of a pool: they are numbered from 0 in the order in which they are opened, and no number is given twice.
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

/// How a batch came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// With answers.
    Answered {
        /// How long it ran, by whoever ran it. The driver may hear of it later: that does not make the batch slow.
        took: Duration,
        /// How many of its entries got theirs after their deadlines.
        late: usize,
    },
    /// Without.
    Failed,
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
    /// An empty queue under this policy, whose batches have at most `max_batch` rows (0 is taken as 1), of weight 1.
    pub fn new(policy: Box<dyn Policy>, max_batch: usize) -> Lane {
        Lane {
            id: 0,
            weight: NonZeroUsize::MIN,
            policy,
            max_batch: max_batch.max(1),
            sizes: BatchSizes::default(),
            queue: Queue::new(),
            times: BatchTimes::new(),
            patience: Patience::new(),
            crowd: Crowd::new(),
            flying: 0,
            draining: false,
            free_since: Instant::EPOCH,
            said: None,
            claim: None,
        }
    }

    /// Something has happened to this lane.
    fn has_changed(&mut self) {
        self.said = None;
        self.claim = None;
    }

    /// The lane's part of the runner time when more is wanted than there is, in proportion to the others'.
    pub fn weighing(self, weight: NonZeroUsize) -> Lane {
        Lane { weight, ..self }
    }

    /// Batches of this lane run at these sizes only, each padded to the next one.
    pub fn padding_to(self, sizes: BatchSizes) -> Lane {
        Lane { sizes, ..self }
    }

    /// Takes in a batch that was timed before the queue opened.
    pub fn seen(&mut self, now: Instant, rows: usize, time: Duration) {
        self.times.observe(now, self.sizes.padded(rows), time);
    }

    /// What has been learned of the batch time.
    pub fn fit(&self) -> Fit {
        self.times.fit()
    }

    /// The mean time of a full batch; zero while that is a guess.
    fn full_batch(&self) -> Duration {
        self.mean_time(self.max_batch).unwrap_or_default()
    }

    /// The mean time of a batch of `rows`; `None` while that is a guess.
    fn mean_time(&self, rows: usize) -> Option<Duration> {
        let fit = self.times.fit();
        fit.is_trusted().then(|| fit.predict(self.sizes.padded(rows.min(self.max_batch)))).flatten()
    }

    /// What the policy said, as long as that is still what it would say.
    fn still_says(&self, now: Instant) -> Option<Decision> {
        let (asked, decision) = self.said.as_ref()?;
        let holds = match decision {
            Decision::WaitUntil(at) => *at > now,
            Decision::Park => true,
            Decision::Release { .. } | Decision::Shed { .. } => *asked == now,
        };
        holds.then(|| decision.clone())
    }
}

impl Dispatcher {
    /// A pool that runs as many batches at once as it has `runners` (0 is taken as 1), without a queue.
    pub fn new(runners: usize) -> Dispatcher {
        let runners = runners.max(1);
        Dispatcher {
            runners,
            lanes: Vec::new(),
            arbiter: Arbiter::new(runners),
            running: Vec::new(),
            tickets: 0,
            opened: 0,
            claims: Vec::new(),
        }
    }

    /// Adds a queue to the pool.
    pub fn open(&mut self, lane: Lane) -> LaneId {
        let id = self.opened;
        self.opened += 1;
        self.arbiter.open(lane.weight.get());
        self.arbiter.know(self.lanes.len(), lane.full_batch());
        self.lanes.push(Lane { id, ..lane });
        id
    }

    /// Removes a queue from the pool. What still waits in it is forgotten, so it is to be [drained](Self::drain) before;
    /// batches of its that run still have to [`land`](Self::land).
    pub fn close(&mut self, lane: LaneId) {
        let at = self.position(lane);
        self.lanes.remove(at);
        self.arbiter.close(at);
        // The lanes behind it have moved up.
        self.lanes.iter_mut().for_each(|lane| lane.claim = None);
    }

    /// An entry has arrived.
    pub fn arrive(&mut self, lane: LaneId, entry: Entry) {
        let runners = self.runners;
        let lane = self.lane_mut(lane);
        // All go by its own stamp: the moment of hearing would make a crowd look simultaneous. Stamps may be out of order
        // by the time it takes to read requests.
        let service = Service { fit: lane.times.fit(), sizes: &lane.sizes, runners, max_batch: lane.max_batch };
        lane.patience.observe(&entry, service);
        lane.queue.insert(entry);
        lane.crowd.arrived(entry.arrival, lane.queue.len() + lane.flying);
        lane.has_changed();
    }

    /// A caller has left; `false` if its entry waits no more.
    pub fn depart(&mut self, lane: LaneId, entry: &Entry) -> bool {
        let lane = self.lane_mut(lane);
        lane.has_changed();
        lane.queue.remove_entry(entry).is_some()
    }

    /// Nothing will arrive any more: what waits is released without holding back.
    pub fn drain(&mut self, lane: LaneId) {
        let lane = self.lane_mut(lane);
        lane.draining = true;
        lane.has_changed();
    }

    /// What to do at `now`. To be asked again after it has been obeyed, until it says to wait or to park.
    ///
    /// Refusals of all lanes come first: whoever will be late is told so before anything else happens, and does not count
    /// in what the arbiter compares. Only lanes are asked to which something has happened since they were asked last.
    pub fn next(&mut self, now: Instant) -> Step {
        if self.lanes.len() > 1 {
            self.reckon_claims();
            if self.has_free_runner() {
                self.settle(now);
            }
        }
        let (mut chosen, mut wake) = (None, None::<Instant>);
        self.claims.clear();
        for at in 0..self.lanes.len() {
            let lane = self.lanes[at].id;
            match self.ask(now, at) {
                Decision::Shed { entries, reason } => return Step::Shed { lane, entries, reason },
                Decision::Release { .. } => {
                    chosen = Some(at);
                    if self.lanes.len() > 1 {
                        self.claims.push(self.claim(at));
                    }
                }
                Decision::WaitUntil(until) => wake = Some(wake.map_or(until, |wake| wake.min(until))),
                Decision::Park => {}
            }
        }
        if self.claims.len() > 1 {
            chosen = self.arbiter.choose(now, &self.claims).map(|claim| claim.position);
        }
        match chosen.map(|at| (self.lanes[at].id, self.ask(now, at))) {
            Some((lane, Decision::Release { entries, reason })) => Step::Release { lane, entries, reason },
            _ => wake.map_or(Step::Park, Step::WaitUntil),
        }
    }

    /// What the policy of the lane at this position says, asked only if that can have changed.
    fn ask(&mut self, now: Instant, at: usize) -> Decision {
        if self.lanes[at].queue.is_empty() {
            return Decision::Park;
        }
        if let Some(decision) = self.lanes[at].still_says(now) {
            return decision;
        }
        let decision = self.lanes[at].policy.decide(now, self.view_at(now, at));
        self.lanes[at].said = Some((now, decision.clone()));
        decision
    }

    /// Takes entries out of a queue, the most urgent first.
    pub fn take(&mut self, lane: LaneId, entries: Range<usize>) -> impl Iterator<Item = Entry> + '_ {
        let lane = self.lane_mut(lane);
        lane.has_changed();
        lane.queue.remove(entries)
    }

    /// This batch goes to a runner; returns the ticket to [`land`](Self::land) it with.
    pub fn launch(&mut self, now: Instant, lane: LaneId, batch: Batch) -> u64 {
        let at = self.position(lane);
        let ticket = self.tickets;
        self.tickets += 1;
        let Batch { entries, rows, first_arrival } = batch;
        let (expected, waited) = (self.lanes[at].mean_time(rows), now.since(first_arrival));
        // At once, not when the batch is back: with several runners, a lane could otherwise take them all unseen.
        self.settle(now);
        self.arbiter.charge(at, expected.unwrap_or_default());
        self.arbiter.released(at, rows as f64 / self.lanes[at].max_batch as f64);
        self.lanes[at].flying += entries;
        self.running.push(Running { ticket, lane, since: now, entries, rows, waited, expected });
        // Lanes that wait or hold do not lose by it; those that wanted this runner have to think again.
        for lane in &mut self.lanes {
            lane.said.take_if(|(_, decision)| matches!(decision, Decision::Release { .. }));
        }
        ticket
    }

    /// The batch with this ticket is back. Only batches that succeeded are learned from: a model that fails fast would
    /// look fast.
    pub fn land(&mut self, now: Instant, ticket: u64, landing: Landing) {
        let Some(at) = self.running.iter().position(|r| r.ticket == ticket) else { return };
        let running = self.running.swap_remove(at);
        self.lanes.iter_mut().for_each(|lane| lane.said = None);
        self.settle(now);
        // Nobody's account is left to book on where the lane was closed meanwhile.
        let Some(at) = self.find(running.lane) else { return };
        let time = match landing {
            Landing::Answered { took, .. } => took,
            Landing::Failed => now.since(running.since),
        };
        self.arbiter.refund(at, running.expected.unwrap_or_default());
        self.arbiter.charge(at, time);
        let lane = &mut self.lanes[at];
        lane.free_since = now;
        lane.flying -= running.entries;
        lane.crowd.landed(now);
        if let Landing::Answered { late, .. } = landing {
            let answers = Answers { all: running.entries, late };
            lane.times.observe_answered(now, lane.sizes.padded(running.rows), time, answers);
            lane.has_changed();
            lane.policy.landed(now, &running);
            self.arbiter.know(at, self.lanes[at].full_batch());
        }
    }

    /// What a decision about this lane at `now` may look at.
    pub fn view(&self, now: Instant, lane: LaneId) -> View<'_> {
        self.view_at(now, self.position(lane))
    }

    fn view_at(&self, now: Instant, at: usize) -> View<'_> {
        let crowd = self.lanes[at].crowd.known(now);
        View { standing: self.standing(at), crowd, ..self.view_alone(at) }
    }

    /// The view of a lane as if there were no other and no crowd.
    fn view_alone(&self, at: usize) -> View<'_> {
        let Lane { id, max_batch, sizes, queue, times, patience, draining, free_since, .. } = &self.lanes[at];
        View {
            lane: *id,
            queue,
            running: &self.running,
            runners: self.runners,
            max_batch: *max_batch,
            sizes,
            fit: times.fit(),
            patience: patience.factor(),
            crowd: None,
            free_since: *free_since,
            draining: *draining,
            standing: Standing::ALONE,
        }
    }

    /// How the lane stands among the others, as their queues and their use of the pool are at present.
    fn standing(&self, at: usize) -> Standing {
        if self.lanes.len() == 1 {
            return Standing::ALONE;
        }
        let share = self.arbiter.share(at);
        if self.has_free_runner() || self.lanes[at].queue.is_empty() {
            return Standing { share, ..Standing::ALONE };
        }
        let own = self.claim(at);
        let goes_before = |other: &usize| {
            *other != at && !self.lanes[*other].queue.is_empty() && self.arbiter.order(self.claim(*other), own).is_lt()
        };
        let batch = |other: usize| self.lanes[other].mean_time(self.lanes[other].queue.rows()).unwrap_or_default();
        let before = (0..self.lanes.len()).filter(goes_before).map(batch).sum();
        Standing { before, share }
    }

    /// What the lane puts forward for its next batch.
    fn claim(&self, at: usize) -> Claim {
        self.lanes[at].claim.unwrap_or_else(|| self.reckon_claim(at))
    }

    fn reckon_claims(&mut self) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].claim.is_none() {
                self.lanes[at].claim = Some(self.reckon_claim(at));
            }
        }
    }

    fn reckon_claim(&self, at: usize) -> Claim {
        let view = self.view_alone(at);
        let due_first = view.queue.due_first(view.queue.prefix(view.max_batch).0).and_then(|at| view.queue.get(at));
        let (arrival, deadline) = due_first.map_or_else(Default::default, |e| (e.arrival, e.deadline));
        let time = view.batch_time(view.queue.rows());
        // Half of the time that it has: most of what waiting can save is saved by then, and noise finds room in the rest.
        let patience = (deadline - view.batch_time(view.max_batch)).since(arrival) / 2;
        let is_full = view.queue.rows() >= view.max_batch;
        let patient_until = if is_full { Instant::EPOCH } else { arrival + patience };
        Claim { position: at, latest_start: deadline - time, patient_until, time }
    }

    /// Brings the lanes' accounts up to `now`.
    fn settle(&mut self, now: Instant) {
        let lanes = &self.lanes;
        self.arbiter.advance(now, |at| !lanes[at].queue.is_empty());
    }

    fn has_free_runner(&self) -> bool {
        self.running.len() < self.runners
    }

    /// The position of an open lane.
    fn find(&self, lane: LaneId) -> Option<usize> {
        // Until the first lane is closed, the position is the id.
        match self.lanes.get(lane) {
            Some(found) if found.id == lane => Some(lane),
            _ => self.lanes.binary_search_by_key(&lane, |l| l.id).ok(),
        }
    }

    fn position(&self, lane: LaneId) -> usize {
        self.find(lane).expect("the driver names lanes that it has opened and not closed")
    }

    fn lane_mut(&mut self, lane: LaneId) -> &mut Lane {
        let at = self.position(lane);
        &mut self.lanes[at]
    }

    /// What waits in this lane.
    pub fn queue(&self, lane: LaneId) -> &Queue {
        &self.lanes[self.position(lane)].queue
    }

    /// The mean time that a batch of `rows` of this lane is expected to take, once it is padded; `None` before its first.
    pub fn predict(&self, lane: LaneId, rows: usize) -> Option<Duration> {
        let lane = &self.lanes[self.position(lane)];
        lane.times.fit().predict(lane.sizes.padded(rows))
    }

    /// What has been learned of this lane's batch time.
    pub fn fit(&self, lane: LaneId) -> Fit {
        self.lanes[self.position(lane)].fit()
    }

    /// Batches that are running, in any order.
    pub fn running(&self) -> &[Running] {
        &self.running
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::policy::{Cork, Fixed, Priority};

    /// One entry of so many rows.
    fn batch(rows: usize) -> Batch {
        Batch { entries: 1, rows, first_arrival: Instant::EPOCH }
    }

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn entry(id: u64, arrival_ms: u64, within_ms: u64) -> Entry {
        Entry {
            id,
            arrival: at(arrival_ms),
            deadline: at(arrival_ms + within_ms),
            rows: 1,
            priority: Priority::DEFAULT,
        }
    }

    /// A lane whose batches of at most 8 rows take 10 ms.
    fn lane() -> Lane {
        let mut lane = Lane::new(Box::new(Cork), 8);
        [1, 8, 1, 8, 1, 8].into_iter().for_each(|rows| lane.seen(at(0), rows, Duration::from_millis(10)));
        lane
    }

    /// A batch that took so many ms, all of it on time.
    fn took(ms: u64) -> Landing {
        Landing::Answered { took: Duration::from_millis(ms), late: 0 }
    }

    /// Obeys one release and returns its lane and ticket.
    fn release(pool: &mut Dispatcher, now: Instant) -> (LaneId, u64) {
        let Step::Release { lane, entries, .. } = pool.next(now) else { panic!("{:?}", pool.next(now)) };
        let rows = pool.take(lane, 0..entries).count();
        (lane, pool.launch(now, lane, batch(rows)))
    }

    #[test]
    fn the_most_urgent_lane_goes_first_and_the_others_follow() {
        let mut pool = Dispatcher::new(1);
        let lanes: Vec<LaneId> = (0..3).map(|_| pool.open(lane())).collect();
        for (id, (lane, within)) in (0..).zip(lanes.into_iter().zip([90, 50, 70])) {
            pool.arrive(lane, entry(id, 0, within));
        }
        let mut order = Vec::new();
        for round in 0..3 {
            let (lane, ticket) = release(&mut pool, at(round * 10));
            order.push(lane);
            assert!(!matches!(pool.next(at(round * 10)), Step::Release { .. }), "one runner, one batch");
            pool.land(at(round * 10 + 10), ticket, took(10));
        }
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn refusals_of_all_lanes_come_before_any_release() {
        let mut pool = Dispatcher::new(1);
        let (first, second) = (pool.open(lane()), pool.open(lane()));
        pool.arrive(first, entry(0, 0, 90));
        pool.arrive(second, entry(0, 0, 5));
        assert!(matches!(pool.next(at(6)), Step::Shed { lane, .. } if lane == second));
        assert_eq!(pool.take(second, 0..1).count(), 1);
        assert!(matches!(pool.next(at(6)), Step::Release { lane, .. } if lane == first));
    }

    #[test]
    fn what_goes_before_counts_in_a_prediction() {
        let mut pool = Dispatcher::new(1);
        let lanes = [pool.open(lane()), pool.open(lane())];
        pool.arrive(lanes[0], entry(0, 0, 90));
        let (_, ticket) = release(&mut pool, at(0));
        // The runner comes free at 10 ms, and then it is the second lane's turn.
        pool.arrive(lanes[0], entry(1, 0, 30));
        pool.arrive(lanes[1], entry(0, 0, 90));
        assert_eq!(pool.view(at(0), lanes[1]).start_after(at(0), 0), at(10));
        assert_eq!(pool.view(at(0), lanes[0]).start_after(at(0), 0), at(20));
        pool.land(at(10), ticket, took(10));
        assert_eq!(
            pool.view(at(10), lanes[0]).start_after(at(10), 0),
            at(10),
            "who gets a free runner is not foretold"
        );
    }

    #[test]
    fn an_estimate_beyond_hope_is_put_to_the_test_beside_a_runner_that_is_never_idle() {
        let mut pool = Dispatcher::new(2);
        let mut slow = Lane::new(Box::new(Cork), 8);
        [1, 8, 1, 8].into_iter().for_each(|rows| slow.seen(at(0), rows, Duration::from_millis(500)));
        let (busy, hopeless) = (pool.open(lane()), pool.open(slow));
        let (mut flights, mut served) = (Vec::new(), 0);
        for round in 1..300 {
            // What was released two rounds ago comes back while the last round's batch runs.
            for (_, ticket) in flights.extract_if(.., |(released, _)| *released + 2 <= round) {
                pool.land(at(round * 10 - 5), ticket, took(15));
            }
            let now = at(round * 10);
            pool.arrive(busy, entry(round, round * 10, 90));
            pool.arrive(hopeless, entry(round, round * 10, 50));
            loop {
                match pool.next(now) {
                    Step::Shed { lane, entries, .. } => drop(pool.take(lane, entries)),
                    Step::Release { lane, entries, .. } => {
                        let rows = pool.take(lane, 0..entries).count();
                        served += if lane == hopeless { rows } else { 0 };
                        flights.push((round, pool.launch(now, lane, batch(rows))));
                    }
                    Step::WaitUntil(_) | Step::Park => break,
                }
            }
        }
        assert!(served > 50, "its batches take 15 ms: {served}");
    }

    #[test]
    fn an_estimate_beyond_hope_is_put_to_the_test_beside_a_busy_lane_too() {
        let mut pool = Dispatcher::new(1);
        let mut slow = Lane::new(Box::new(Cork), 8);
        [1, 8, 1, 8].into_iter().for_each(|rows| slow.seen(at(0), rows, Duration::from_millis(500)));
        let (busy, hopeless) = (pool.open(lane()), pool.open(slow));
        let mut probes = 0;
        for round in 0..300 {
            let now = at(round * 10);
            pool.arrive(busy, entry(round, round * 10, 90));
            pool.arrive(hopeless, entry(round, round * 10, 50));
            let (lane, rows) = loop {
                match pool.next(now) {
                    Step::Shed { lane, entries, .. } => drop(pool.take(lane, entries)),
                    Step::Release { lane, entries, .. } => break (lane, pool.take(lane, 0..entries).count()),
                    step => panic!("the busy lane has something to run: {step:?}"),
                }
            };
            probes += usize::from(lane == hopeless);
            let ticket = pool.launch(now, lane, batch(rows));
            while let Step::Shed { lane, entries, .. } = pool.next(now) {
                drop(pool.take(lane, entries));
            }
            pool.land(at(round * 10 + 10), ticket, took(10));
        }
        assert!(probes > 90, "once it is seen that its batches take 10 ms, it has its share: {probes}");
    }

    #[test]
    fn a_closed_lanes_id_is_not_given_again_and_its_batches_still_land() {
        let mut pool = Dispatcher::new(2);
        let (first, second) = (pool.open(lane()), pool.open(lane()));
        pool.arrive(first, entry(0, 0, 90));
        let (_, ticket) = release(&mut pool, at(0));
        pool.close(first);
        pool.land(at(10), ticket, took(10));
        assert_eq!(pool.running(), []);
        pool.arrive(second, entry(0, 10, 90));
        assert_eq!(release(&mut pool, at(10)).0, second);
        let third = pool.open(lane());
        assert!(third != first && third != second);
        pool.arrive(third, entry(0, 10, 90));
        assert_eq!(release(&mut pool, at(10)).0, third);
        pool.close(second);
        assert_eq!((pool.queue(third).len(), pool.next(at(10))), (0, Step::Park));
    }

    #[test]
    fn only_lanes_are_asked_to_which_something_has_happened() {
        /// Holds everything, and counts how often it is asked.
        struct Hold(Arc<AtomicUsize>);
        impl Policy for Hold {
            fn decide(&self, now: Instant, _: View<'_>) -> Decision {
                self.0.fetch_add(1, Ordering::Relaxed);
                Decision::WaitUntil(now + Duration::from_millis(5))
            }
        }
        let mut pool = Dispatcher::new(1);
        let counts: Vec<_> = (0..20).map(|_| Arc::new(AtomicUsize::new(0))).collect();
        for count in &counts {
            let lane = pool.open(Lane::new(Box::new(Hold(Arc::clone(count))), 8));
            pool.arrive(lane, entry(0, 0, 90));
        }
        let asked = |now, pool: &mut Dispatcher| {
            pool.next(now);
            counts.iter().map(|c| c.swap(0, Ordering::Relaxed)).sum::<usize>()
        };
        assert_eq!(asked(at(0), &mut pool), 20);
        assert_eq!(asked(at(1), &mut pool), 0);
        pool.arrive(7, entry(1, 1, 90));
        assert_eq!(asked(at(2), &mut pool), 1);
        assert_eq!(asked(at(5), &mut pool), 19, "they asked to be asked again");
    }

    #[test]
    fn who_is_with_a_runner_counts_among_those_present() {
        let mut pool = Dispatcher::new(2);
        let lane = pool.open(Lane::new(Box::new(Fixed::EAGER), 8));
        for round in 0..16 {
            // Two come back, and two more a little later, when the first two are with a runner already.
            let begin = round * 20;
            let tickets = [0, 2].map(|after| {
                for id in [0, 1] {
                    pool.arrive(lane, entry(round * 4 + after + id, begin + after, 50));
                }
                let Step::Release { entries: 2, .. } = pool.next(at(begin + after)) else { panic!("they are two") };
                pool.take(lane, 0..2).for_each(drop);
                pool.launch(at(begin + after), lane, Batch { entries: 2, rows: 2, first_arrival: at(begin + after) })
            });
            tickets.into_iter().for_each(|ticket| pool.land(at(begin + 12), ticket, took(10)));
        }
        assert_eq!(pool.view(at(320), lane).crowd.map(|crowd| crowd.size), Some(4));
    }

    #[test]
    fn a_batch_took_as_long_as_whoever_ran_it_says_however_late_that_is_heard() {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(Lane::new(Box::new(Cork), 8));
        for round in 0..8 {
            pool.arrive(lane, entry(round, round * 100, 90));
            let (_, ticket) = release(&mut pool, at(round * 100));
            pool.land(at(round * 100 + 60), ticket, took(10));
        }
        assert_eq!(pool.predict(lane, 1), Some(Duration::from_millis(10)));
    }

    #[test]
    fn only_batches_that_succeeded_are_learned_from_and_told_to_the_policy() {
        /// Eager, and counts what it hears of.
        struct Hears(Arc<AtomicUsize>);
        impl Policy for Hears {
            fn decide(&self, now: Instant, view: View<'_>) -> Decision {
                Fixed::EAGER.decide(now, view)
            }
            fn landed(&mut self, _: Instant, _: &Running) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let heard = Arc::new(AtomicUsize::new(0));
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(Lane::new(Box::new(Hears(Arc::clone(&heard))), 8));
        for (round, landing) in [(0, Landing::Failed), (1, took(5))] {
            pool.arrive(lane, entry(round, round * 10, 90));
            let (_, ticket) = release(&mut pool, at(round * 10));
            pool.land(at(round * 10 + 5), ticket, landing);
            let known = pool.predict(lane, 1);
            assert_eq!(
                (known, heard.load(Ordering::Relaxed)),
                ((landing != Landing::Failed).then_some(Duration::from_millis(5)), round as usize)
            );
        }
    }
}
