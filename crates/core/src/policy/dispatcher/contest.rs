//! Which lane's batch goes when several have one: what each puts forward, and what that means for those who wait.

use std::time::Duration;

use super::{Dispatcher, Running};
use crate::estimator::Instant;
use crate::policy::neighbours;
use crate::policy::{Claim, Decision, Lane, LaneId, Spread, Standing, View};

/// So many mean gaps between its requests without one, and a lane waits for no more: callers may be waiting for this very batch.
const LONG_SILENCE: f64 = 6.0;

impl Dispatcher {
    /// Bounds the lanes' next batches anew, where batches come and go.
    pub(super) fn bound_batches(&mut self, now: Instant) {
        neighbours::bound(&mut self.lanes, &self.arbiter, &self.running, self.runners, self.stirred.max(now));
    }

    /// What the lane puts forward for its next batch.
    pub(super) fn claim(&self, id: LaneId) -> Claim {
        let lane = self.lane(id);
        let view = self.view_alone(id, lane);
        let due_first = view.queue.due_first(view.queue.prefix(view.max_batch).0).and_then(|at| view.queue.get(at));
        let (arrival, deadline) = due_first.map_or_else(Default::default, |e| (e.arrival, e.deadline));
        let time = view.batch_time(view.queue.rows());
        // Half of the time that it has: most of what waiting can save is saved by then, and noise finds room in the rest. But its
        // own batch and another's where that is in time: it would else go again and again with the few that came meanwhile.
        let half = (deadline - view.batch_time(view.max_batch)).since(arrival) / 2;
        let usual = lane.usual_batch().max(time);
        let turn = usual + self.longest_of_others(id);
        let patience = half.max(turn).min((deadline - usual).since(arrival));
        let patient_until = if view.queue.rows() >= view.max_batch { Instant::EPOCH } else { arrival + patience };
        Claim { lane: id, latest_start: deadline - time, patient_until, time }
    }

    /// Of the lanes that hold a batch back, whose goes in place of this one's, which would take the last free runner: that comes before it, and would
    /// be late with as many rows as usual on the runner that comes free next.
    pub(super) fn contested(&self, now: Instant, taker: &Claim, held: &[LaneId]) -> Option<(LaneId, Decision)> {
        if self.running.len() + 1 < self.runners {
            return None;
        }
        let next_free = self.next_free(now).map_or(now + taker.time, |free| free.min(now + taker.time));
        let loses = |claim: &Claim| {
            let growth = self.lane(claim.lane).usual_batch().saturating_sub(claim.time);
            claim.latest_start - growth < next_free && self.arbiter.order(*claim, *taker).is_lt()
        };
        let losers = held.iter().map(|lane| self.claim(*lane)).filter(loses);
        let Claim { lane, .. } = losers.min_by(|a, b| self.arbiter.order(*a, *b))?;
        let view = self.view(now, lane);
        let standing = Standing { is_contested: true, ..view.standing };
        let decision = self.lane(lane).policy.decide(now, View { standing, ..view });
        matches!(decision, Decision::Release { .. }).then_some((lane, decision))
    }

    /// Whether the lane's batches share the runners that are free, where it is not alone: where one batch of all would be late, nobody else waits,
    /// and it keeps within its share or nobody else wants his. Others whose runners they are as well would lose by the α of each part.
    pub(super) fn spread(&self, id: LaneId) -> Spread {
        let nobody_waits = self.lanes.iter().all(|(other, lane)| *other == id || lane.queue.is_empty());
        let may = self.arbiter.is_within_share(id) || self.arbiter.part(id) >= 1.0;
        if nobody_waits && may { Spread::AsNeeded } else { Spread::Never }
    }

    /// When the first of the runners that are busy is expected to be free. When an overdue one is, is not known.
    fn next_free(&self, now: Instant) -> Option<Instant> {
        let due = |batch: &Running| batch.since + batch.expected.unwrap_or_default();
        self.running.iter().map(due).filter(|due| *due >= now).min()
    }

    /// How the lane stands among the others, as their queues and their use of the pool are at present.
    pub(super) fn standing(&self, now: Instant, id: LaneId) -> Standing {
        if self.lanes.len() == 1 {
            return Standing::ALONE;
        }
        let (share, lead) = (self.arbiter.share(id), self.arbiter.lead(id));
        let lane = self.lane(id);
        if lane.queue.is_empty() {
            return Standing { share, ..Standing::ALONE };
        }
        let leaves_runner = lane.leaves.runner;
        if self.has_free_runner() && !leaves_runner {
            let gives_way_until =
                lane.leaves.room.and_then(|room| self.gives_way_until(now, id, room)).unwrap_or_default();
            return Standing { share, lead, gives_way_until, ..Standing::ALONE };
        }
        let own = self.claim(id);
        let others = self.lanes.iter().filter(|(other, lane)| **other != id && !lane.queue.is_empty());
        let others: Vec<(Claim, &Lane)> = others.map(|(other, lane)| (self.claim(*other), lane)).collect();
        // Whoever can wait when a runner comes free does so, though it be ahead by its share.
        let free = self.next_free(now).unwrap_or(now);
        let longest = others.iter().map(|(claim, _)| claim.time).fold(own.time, Duration::max);
        let stands_back = |claim: &Claim| !claim.presses(free, longest) && own.presses(free, longest);
        let goes_first = |claim: &Claim| !stands_back(claim) && self.arbiter.order(*claim, own).is_lt();
        let before = others.iter().filter(|(claim, _)| goes_first(claim));
        let before = before.map(|(_, lane)| lane.mean_time(lane.queue.rows()).unwrap_or_default()).sum();
        Standing { before, share, lead, stands_back: leaves_runner, ..Standing::ALONE }
    }

    /// Until when the lane's batch waits for more rows, where one of now would take longer than others leave it `room` for. It waits while one
    /// of its own runs, or if as many rows as there are will come in that time; no longer than it may wait behind another's batch, and so that it
    /// is in time if such a batch goes meanwhile. It does not wait for callers who have all come, or where nobody has come for long.
    fn gives_way_until(&self, now: Instant, id: LaneId, room: Duration) -> Option<Instant> {
        let lane = self.lane(id);
        let rows = lane.queue.rows();
        let takes_more = rows + lane.usual_request() <= lane.bounded_rows();
        let all_have_come = lane.callers(now).is_some_and(|callers| lane.queue.len() >= callers);
        let is_long = lane.mean_time(rows).is_some_and(|time| time > room);
        if !is_long || !takes_more || all_have_come {
            return None;
        }
        let rate = lane.rate(now, self.arbiter.memory().as_secs_f64());
        let long =
            Duration::try_from_secs_f64(LONG_SILENCE * lane.usual_request() as f64 / rate).unwrap_or(Duration::MAX);
        let claim = self.claim(id);
        // The next of several runners comes free so much sooner.
        let others = self.longest_of_others(id) / self.runners as u32;
        let latest = claim.latest_start - others - self.alarm.late_by();
        let patient = claim.patient_until.min(latest);
        let coming = rate * patient.since(now).as_secs_f64();
        let waits = coming >= rows as f64 || self.running.iter().any(|batch| batch.lane == id);
        waits.then(|| patient.min(lane.queue.newest_arrival() + long))
    }

    /// The longest of the other lanes' usual batches.
    fn longest_of_others(&self, id: LaneId) -> Duration {
        let others = self.lanes.iter().filter(|(other, _)| **other != id).map(|(_, other)| other.usual_batch());
        others.max().unwrap_or_default()
    }
}
