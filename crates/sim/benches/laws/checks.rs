//! What each step of a trial is held to.

use super::*;

impl Trial<'_> {
    pub(super) fn check_release(&self, lane: LaneId, entries: usize, reason: ReleaseReason) {
        let (now, state) = (self.now, &self.lanes[lane]);
        assert!(self.flights.len() < self.world.runners, "more in flight than permits");
        let view = self.pool.view(now, lane);
        assert!((1..=view.queue.len()).contains(&entries), "releases {entries} of {}", view.queue.len());
        let rows: usize = view.queue.iter().take(entries).map(|e| e.rows).sum();
        assert!((1..=state.max_batch).contains(&rows), "{rows} rows against a cap of {}", state.max_batch);
        assert!(rows <= state.tried.unwrap_or(rows), "{rows} rows, and no more than {:?} were tried", state.tried);
        if state.rule == Rule::Cork {
            let first = view.queue.iter().take(entries).min_by_key(|e| e.deadline).expect("it has entries");
            let batch_in_time = now + view.batch_time(rows) <= first.deadline;
            let in_time = batch_in_time || (entries == 1 && now + view.time_alone(first) <= first.deadline);
            let probe = entries == 1 && state.flying == 0 && !batch_in_time && state.tried.is_none();
            assert!(if reason == ReleaseReason::Probe { probe } else { in_time }, "runs what is late: {first:?}");
            assert!(reason != ReleaseReason::Draining || state.draining);
        }
    }

    /// First come, first served within a class.
    pub(super) fn check_turn(&mut self, lane: LaneId, entry: &Entry) {
        if !self.world.hearing_lag.is_zero() {
            return; // who was heard of too late may be served after those who came later
        }
        let class = (entry.priority, entry.deadline.since(entry.arrival));
        let order = (entry.deadline, entry.id);
        let served = &mut self.lanes[lane].served;
        match served.iter_mut().find(|(other, _)| *other == class) {
            Some((_, last)) => {
                assert!(*last < order, "{entry:?} is served after {last:?}, which came later");
                *last = order;
            }
            None => served.push((class, order)),
        }
    }

    /// Refused is only what has expired or is predicted to be late, or what a queue is too long for that has stood for a while.
    pub(super) fn check_refusal(&self, lane: LaneId, entries: &std::ops::Range<usize>, reason: ShedReason) {
        let now = self.now;
        let view = self.pool.view(now, lane);
        let refused = || entries.clone().filter_map(|at| view.queue.get(at));
        let late = match (self.lanes[lane].rule, reason) {
            (Rule::Cork, ShedReason::Expired) => refused().all(|e| e.deadline <= now),
            (Rule::Cork, ShedReason::BatchTooLate) => {
                // Even the batch that it opens, with those who can share it, is late.
                let (_, rows) = view.queue.prefix(view.max_batch);
                let opens = view.queue.levels().any(|level| *entries == (level.start..level.start + 1));
                opens && refused().all(|e| view.start_after(now, 0) + view.batch_time(rows) > e.deadline)
            }
            (Rule::Cork, ShedReason::QueueTooLong) => {
                let ends = |level: std::ops::Range<usize>| [level.start, level.end - 1];
                let is_end = view.queue.levels().flat_map(ends).any(|end| *entries == (end..end + 1));
                is_end && refused().all(|e| end_by_whole_batches(now, &view, e) > e.deadline)
            }
            (Rule::Cork, ShedReason::QueueStands) => {
                // It would be in time. But refusals have lasted of those as urgent, and there is more than a batch without it.
                let last = view.queue.len() - 1;
                let lasted = |e: &Entry| self.lanes[lane].lasted[usize::from(e.priority.level()) - 1];
                let spare = |e: &Entry| view.queue.rows() > view.max_batch && e.deadline > now;
                *entries == (last..last + 1) && refused().all(|e| spare(e) && lasted(e))
            }
            (Rule::Cork, ShedReason::OverShare) => {
                // Somebody else behind it would be late, though his batch were full and those before it.
                let is_late = |e: &Entry| end_by_whole_batches(now, &view, e) > e.deadline;
                let behind = || view.queue.iter().skip(entries.end);
                let suffers = |own: &Entry| behind().any(|other| are_rivals(own, other) && is_late(other));
                entries.len() == 1 && refused().all(suffers)
            }
            (Rule::Fixed(fixed), _) => refused().all(|e| e.deadline <= now || e.arrival + fixed.timeout <= now),
            (Rule::Aimd, _) => reason == ShedReason::Expired,
            (Rule::Cork2020 | Rule::Cork2020Told, _) => true,
            (Rule::Cork, _) => panic!("a reason without a law: {reason:?}"),
        };
        assert!(late, "refuses what is not late: {:?} at {now:?}, {reason:?}", refused().collect::<Vec<_>>());
        // A lane that knows nothing may still know how long the others' batches take.
        let guess = self.lanes.len() == 1 && !view.fit.is_trusted() && reason != ShedReason::Expired;
        assert!(!guess || self.lanes[lane].rule != Rule::Cork, "refuses on a guess");
    }

    /// Who makes room for `late` stands before it.
    pub(super) fn check_room_made(&self, shed: &Shed, late: Entry) {
        let [gone] = shed.entries[..] else { panic!("more than one makes room for one: {shed:?}") };
        assert!(are_rivals(&gone, &late), "{gone:?} makes room for {late:?}");
        assert!((gone.deadline, gone.id) < (late.deadline, late.id), "{gone:?} stood behind {late:?}");
        assert_eq!(self.requests[late.id as usize].fate, Fate::Waits);
    }

    /// What must hold whenever there is nothing to do until `wake`.
    pub(super) fn check_rest(&self, wake: Option<Instant>, closer: bool) {
        let (now, free) = (self.now, self.flights.len() < self.world.runners);
        assert_eq!(self.pool.running().len(), self.flights.len(), "batches that run");
        for &id in &self.open {
            let lane = &self.lanes[id];
            let queue = self.pool.queue(id);
            assert_eq!((queue.len(), queue.rows()), (lane.waiting, lane.waiting_rows), "entries and rows that wait");
            if closer {
                self.check_closely(id);
            }
            let Some(first) = queue.first() else { continue };
            let Some(wake) = wake else { panic!("parked while {first:?} waits") };
            if matches!(lane.rule, Rule::Cork2020 | Rule::Cork2020Told) {
                continue; // keeps no law beyond these
            }
            // Whoever has expired is told so within a nanosecond of the timer.
            for first in queue.levels().filter_map(|level| queue.get(level.start)) {
                assert!(first.deadline + TICK > now, "{first:?} waits beyond its deadline, it is {now:?}");
                assert!(wake <= first.deadline + TICK, "{first:?} is forgotten until {wake:?}");
            }
            if !free {
                continue;
            }
            if self.pool.view(now, id).standing.stands_back {
                let runs = self.pool.running().iter().any(|batch| batch.lane == id);
                assert!(runs, "a lane leaves the free runners to others, and has none");
                continue;
            }
            assert!(!lane.draining, "a drained lane is held");
            assert!(queue.rows() < lane.tried.unwrap_or(usize::MAX).min(lane.max_batch), "a full batch is held");
            assert!(lane.rule != Rule::Fixed(uncork_core::policy::Fixed::EAGER), "an eager lane is held");
            if lane.rule == Rule::Cork {
                let latest = first.deadline - self.pool.view(now, id).batch_time(queue.rows());
                assert!(
                    now < latest && wake <= latest,
                    "a runner is idle past the latest start {latest:?} of {first:?}"
                );
            }
        }
    }

    pub(super) fn check_closely(&self, id: LaneId) {
        let (now, lane) = (self.now, &self.lanes[id]);
        let queue = self.pool.queue(id);
        let mut rows = 0;
        let most = self.tally.course as usize % (lane.waiting_rows + 2);
        let mut prefix = (0, 0);
        let mut last = None;
        for (position, entry) in (0..).zip(queue.iter()) {
            let request = &self.requests[entry.id as usize];
            assert_eq!((request.entry, request.lane, request.fate), (*entry, id, Fate::Waits));
            assert!(last < Some((entry.priority, entry.deadline, entry.id)), "the queue is out of order");
            last = Some((entry.priority, entry.deadline, entry.id));
            rows += entry.rows;
            if rows <= most {
                prefix = (position + 1, rows);
            }
        }
        assert_eq!(rows, queue.rows(), "rows that wait");
        assert_eq!(queue.prefix(most), prefix, "of at most {most} rows");
        for running in self.pool.running() {
            let flight = self.flights.iter().find(|f| f.ticket == running.ticket).expect("it has not landed");
            assert_eq!((flight.lane, flight.entries, flight.rows), (running.lane, running.entries, running.rows));
        }
        let view = self.pool.view(now, id);
        assert!((0.0..=1e9).contains(&view.patience), "patience {}", view.patience);
        assert!(view.standing.share > 0.0 && view.standing.share <= 1.0, "{:?}", view.standing);
        assert!(view.runners == self.world.runners && view.draining == lane.draining);
        let size = view.crowd.map_or(2, |crowd| crowd.size);
        assert!(
            (2..=lane.most_present.max(2)).contains(&size),
            "a crowd of {size}, never more than {}",
            lane.most_present
        );
    }

    /// What the dispatcher remembers of its policy's answers is what the policy says when it is asked now.
    pub(super) fn check_memory(&self, decision: &Decision) {
        if self.world.models.iter().any(|model| model.stuck_after.is_some()) {
            return; // it also waits for the time at which a batch is given up
        }
        let &[LaneState { rule: Rule::Cork, closed: false, tried: None, .. }] = &self.lanes[..] else { return };
        assert_eq!(*decision, Cork.decide(self.now, self.pool.view(self.now, 0)));
    }

    pub(super) fn check_end(self) -> Tally {
        let forgotten = self.requests.iter().find(|r| r.fate == Fate::Waits);
        assert!(forgotten.is_none(), "{forgotten:?} was neither answered nor refused");
        let awaited = self.flights.iter().filter(|flight| flight.entries > 0).count();
        assert!(awaited == 0, "a batch never landed");
        let may_hang = self.world.models.iter().any(|model| model.stuck_after.is_some());
        assert!(may_hang || self.pool.running().is_empty(), "a rehearsal never landed");
        let fates = self.tally.refused.iter().sum::<u64>() + self.tally.left;
        let served = self.requests.iter().filter(|r| r.fate == Fate::Served).count() as u64;
        assert_eq!(fates + served, self.tally.requests, "everything is served or refused exactly once");
        self.tally
    }
}

/// When an entry of the queue is answered if the batches before its own are as full as they can be: by a count
/// of its own, one batch after the other, never less than `Cork` counts.
fn end_by_whole_batches(now: Instant, view: &View<'_>, entry: &Entry) -> Instant {
    let (mut batches, mut rows) = (0, 0);
    for waiting in view.queue.iter() {
        if rows + waiting.rows > view.max_batch {
            (batches, rows) = (batches + 1, 0);
        }
        rows += waiting.rows;
        if waiting.id == entry.id {
            break;
        }
    }
    view.start_after(now, batches) + view.batch_time(view.max_batch.min(rows.max(view.max_batch)))
}

/// Whether these are of two callers who are told apart, and of one priority.
fn are_rivals(a: &Entry, b: &Entry) -> bool {
    a.priority == b.priority && a.caller.id != b.caller.id && a.caller.id != 0 && b.caller.id != 0
}
