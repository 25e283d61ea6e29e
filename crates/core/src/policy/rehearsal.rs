//! Rehearsals: batches of rows that are nobody's, to learn what should not be tried out on callers.
//!
//! Two things are learned by them. Whether an estimate by which somebody was refused is still true: a stall of the machine can
//! leave one by which nothing is ever in time. And how a batch larger than all that were tried behaves.

use std::time::Duration;

use super::BatchSizes;
use crate::estimator::{Fit, Instant};

/// Idle time after which an estimate is put to the test, in batch times. Less: quicker back from a stall. More: less of a
/// model that is truly too slow for its cap is spent on tests; this is a fifth of its time.
const DOUBT_AFTER: u32 = 4;
/// The longest that an estimate waits for its first test.
const LONGEST_IN_DOUBT: Duration = Duration::from_secs(1);
/// How often the wait for a test doubles while the pool has other work: what is truly too slow is to hold up hardly anybody.
const MOST_DOUBLINGS: u32 = 6;
/// How many times larger than all that were tried the next size is.
const GROWTH: usize = 2;
/// A size that is not allowed by steps is worth a rehearsal if it is larger by this part of what was tried.
const LEAST_GROWTH: usize = 8;
/// Batches as large as allowed, since the last rehearsal, after which the next size is rehearsed although somebody waits. A
/// pool whose batches are too small for its load would else never be idle, and stay so for ever.
const PRESSED: usize = 16;
/// So often in a row the next size may fail until no larger one is tried: a runner may be missing just then, or the memory.
const MOST_FAILURES: u32 = 3;
/// How long the pool is quiet before a size that has failed is tried again, and how many times longer after each further failure. So many times
/// more batches are as large as allowed meanwhile, where it is never quiet.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_GROWTH: u32 = 8;

/// What a lane with rows of its own has tried, and is to try next.
#[derive(Debug, Clone)]
pub(super) struct Rehearsals {
    /// Larger batches were not tried.
    tried: usize,
    /// Larger ones than these are never in time.
    max_latency: Duration,
    /// Whether a larger size is wanted: until one has failed again and again, or did not come back.
    grows: bool,
    /// How often in a row the next size has failed.
    failures: u32,
    /// Whether the next size has run once. What comes only once is in that run, so it is not learned from.
    has_begun: bool,
    /// Batches as large as allowed since the last rehearsal.
    full: usize,
    /// Rows of the smallest request that was refused since the last test, because it could not even be in time alone, and since when.
    refused: Option<(usize, Instant)>,
    /// Whether the next test is wanted at once: a batch was given up, and it is to be seen whether others come back.
    is_urgent: bool,
    /// Whether none has come back since. Tests then go on though nobody is refused: a model that is not ready is asked by nobody.
    is_given_up: bool,
    /// What the two largest sizes of such rows took, each at best. Those of callers may take less, and say nothing of them.
    own: [(usize, Duration); 2],
    /// Rows of the last test that has ended, however, and how many there were while no batch of callers as large as that has run.
    tested: Option<(usize, u32)>,
}

/// A rehearsal that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) rows: usize,
    /// From when on.
    pub(super) at: Instant,
    /// Whether it tests an estimate; else it tries a larger size.
    pub(super) is_test: bool,
}

/// What is known of the lane and its pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) fit: &'a Fit,
    pub(super) sizes: &'a BatchSizes,
    pub(super) max_batch: usize,
    /// When a batch of the lane last came back.
    pub(super) free_since: Instant,
    /// When something last arrived or landed in the pool, if nothing waits or runs there.
    pub(super) quiet_since: Option<Instant>,
}

impl Known<'_> {
    fn time(&self, rows: usize) -> Duration {
        let rows = self.sizes.padded(rows);
        self.fit.is_trusted().then(|| self.fit.predict(rows)).flatten().unwrap_or_default()
    }
}

impl Rehearsals {
    /// For a lane that has tried batches of up to so many rows and promises answers within `max_latency`.
    pub(super) fn new(tried: usize, max_latency: Duration) -> Rehearsals {
        Rehearsals {
            tried: tried.max(1),
            max_latency,
            grows: true,
            failures: 0,
            has_begun: false,
            full: 0,
            refused: None,
            is_urgent: false,
            is_given_up: false,
            own: [(0, Duration::ZERO); 2],
            tested: None,
        }
    }

    /// The most rows that were tried.
    pub(super) fn tried(&self) -> usize {
        self.tried
    }

    /// A batch of so many rows that are nobody's took so long.
    pub(super) fn took(&mut self, rows: usize, time: Duration) {
        let [_, last] = &mut self.own;
        if rows > last.0 {
            self.own = [*last, (rows, time)];
        } else if rows == last.0 {
            last.1 = last.1.min(time);
        }
    }

    /// What so many of them take, by these two sizes.
    fn own_time(&self, rows: usize) -> Duration {
        let [(few, short), (many, long)] = self.own;
        let more = rows.saturating_sub(many) as f64 / (many - few).max(1) as f64;
        long.saturating_add(long.saturating_sub(short).mul_f64(if few == 0 { 0.0 } else { more }))
    }

    /// Whether there is anything to learn for a lane of this cap.
    pub(super) fn is_curious(&self, max_batch: usize) -> bool {
        self.refused.is_some() || self.grows && self.tried < max_batch
    }

    /// The rehearsal that is wanted next, and from when on.
    pub(super) fn wanted(&self, known: Known<'_>) -> Option<Wanted> {
        if let Some((rows, since)) = self.refused {
            let at = self.next_test(known, rows, since);
            let rows = known.sizes.padded(rows.min(self.tried)).min(known.max_batch);
            return Some(Wanted { rows, at, is_test: true });
        }
        let is_pressing = self.full >= PRESSED * PAUSE_GROWTH.pow(self.failures) as usize;
        let quiet_since = if is_pressing { Some(Instant::EPOCH) } else { known.quiet_since };
        let (rows, since) = (self.next_size(known)?, quiet_since?);
        let own = self.own_time(rows);
        // Whoever comes meanwhile would be late for a size that nobody needs.
        if own > self.max_latency && !is_pressing {
            return None;
        }
        // Who comes meanwhile waits for it: that is as unlikely as the pool has been quiet for long.
        let pause = self.failures.checked_sub(1).map_or(Duration::ZERO, |again| PAUSE * PAUSE_GROWTH.pow(again));
        let at = if is_pressing { since } else { since + known.time(rows).max(own).max(pause) };
        Some(Wanted { rows, at, is_test: false })
    }

    /// From when on a test of so many rows is wanted, of whom one has been refused since `since`.
    fn next_test(&self, known: Known<'_>, rows: usize, since: Instant) -> Instant {
        let long = known.time(rows).saturating_mul(DOUBT_AFTER);
        let wait = match self.tested {
            _ if self.is_urgent => Duration::ZERO,
            // Nothing else slows down what fails at once.
            Some(_) if self.is_given_up => long.max(LONGEST_IN_DOUBT),
            Some(_) => long,
            None => long.min(LONGEST_IN_DOUBT),
        };
        // Batches of others, or smaller ones of its own, may come back again and again, and say nothing of this one.
        let busy = match self.tested {
            None => LONGEST_IN_DOUBT,
            Some((_, times)) => long.max(LONGEST_IN_DOUBT).saturating_mul(1 << times.min(MOST_DOUBLINGS)),
        };
        let (idle, busy) = (known.free_since + wait, since + busy);
        if known.quiet_since.is_some() || self.is_urgent { idle.min(busy) } else { busy }
    }

    /// The next larger size that can be in time, once anything is known of that.
    fn next_size(&self, known: Known<'_>) -> Option<usize> {
        if !self.grows || self.tried >= known.max_batch || !known.fit.is_trusted() {
            return None;
        }
        let in_time = |rows: &usize| known.time(*rows) <= self.max_latency;
        if !known.sizes.is_any() {
            let next = known.sizes.iter().find(|&size| size > self.tried)?;
            return Some(next.min(known.max_batch)).filter(in_time);
        }
        let next = self.tried.saturating_mul(GROWTH).min(known.max_batch);
        // The batch time never shrinks with the rows: halve until one row apart.
        let (mut fits, mut late) = (self.tried, next + 1);
        while fits + 1 < late {
            let middle = fits + (late - fits) / 2;
            if in_time(&middle) { fits = middle } else { late = middle }
        }
        (fits == next || fits > self.tried + self.tried / LEAST_GROWTH).then_some(fits)
    }

    /// Somebody was refused whose request of so many rows could not be in time even alone.
    pub(super) fn refused(&mut self, now: Instant, rows: usize) {
        self.refused = Some(self.refused.map_or((rows, now), |(least, since)| (least.min(rows), since)));
    }

    /// A batch was given up, or a rehearsal of so many rows.
    pub(super) fn given_up(&mut self, rehearsed: Option<usize>) {
        self.grows &= rehearsed.is_none_or(|rows| rows <= self.tried);
        (self.refused, self.is_urgent, self.is_given_up) = (Some((1, Instant::EPOCH)), true, true);
    }

    /// A batch of callers has been released, of so many rows; `is_full` if it is as large as allowed.
    pub(super) fn released(&mut self, rows: usize, is_full: bool) {
        self.full += usize::from(is_full);
        self.refused = self.refused.filter(|(refused, _)| *refused > rows);
        self.tested = self.tested.filter(|(tested, _)| *tested > rows);
    }

    /// A batch of callers is back, and has succeeded.
    pub(super) fn came_back(&mut self) {
        self.is_given_up = false;
    }

    /// A rehearsal has begun.
    pub(super) fn begun(&mut self) {
        (self.full, self.refused, self.is_urgent) = (0, None, false);
    }

    /// A rehearsal of so many rows is back at `now` after so long; says whether it can be learned from.
    pub(super) fn landed(&mut self, now: Instant, rows: usize, time: Duration, has_succeeded: bool) -> bool {
        self.is_given_up &= !has_succeeded;
        if rows <= self.tried {
            let before = self.tested.filter(|(tested, _)| *tested == rows).map_or(0, |(_, times)| times);
            self.tested = Some((rows, before.saturating_add(1)));
            if self.is_given_up {
                self.refused(now, rows);
            }
            return has_succeeded;
        }
        if !has_succeeded {
            self.failures += 1;
            self.grows = self.failures < MOST_FAILURES;
            return false;
        }
        self.failures = 0;
        self.has_begun = !self.has_begun;
        let is_second = !self.has_begun;
        if is_second {
            self.tried = rows;
            self.took(rows, time);
        }
        is_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Cork, Dispatcher, Entry, Landing, Lane, LaneId, Rehearsal, Step};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(at_ms: u64) -> Instant {
        Instant::EPOCH + ms(at_ms)
    }

    /// A lane under a cap of 100 ms whose batches of up to `tried` rows have taken `base` + n ms.
    fn lane(base: u64, tried: usize, max_batch: usize) -> Lane {
        let mut lane = Lane::new(Box::new(Cork), max_batch).rehearsing(tried, ms(100));
        let sizes = [1, tried, 1, tried];
        sizes.into_iter().for_each(|rows| lane.seen(Instant::EPOCH, rows, ms(base + rows as u64)));
        lane
    }

    fn arrive(pool: &mut Dispatcher, lane: LaneId, id: u64, at_ms: u64, rows: usize) {
        let (arrival, deadline) = (at(at_ms), at(at_ms + 100));
        pool.arrive(lane, Entry { rows, ..Entry::new(id, arrival, deadline) });
    }

    fn poll(pool: &mut Dispatcher, now_ms: u64) -> Step {
        pool.poll(at(now_ms), |_, _| true)
    }

    fn rehearsal(pool: &mut Dispatcher, now_ms: u64) -> Rehearsal {
        match poll(pool, now_ms) {
            Step::Rehearse(rehearsal) => rehearsal,
            step => panic!("{step:?}"),
        }
    }

    fn took(time_ms: u64) -> Landing {
        Landing::Answered { took: ms(time_ms), late: 0 }
    }

    #[test]
    fn who_cannot_be_in_time_is_refused_and_nobodys_rows_find_out_whether_that_is_still_so() {
        let mut pool = Dispatcher::new(1);
        let slow = pool.open(lane(400, 8, 8));
        for round in 0..3 {
            let now = 5000 + round * 10_000;
            arrive(&mut pool, slow, round, now, 1);
            assert!(matches!(poll(&mut pool, now), Step::Shed(shed) if shed.retry_at.is_none()));
            let test = rehearsal(&mut pool, now);
            assert_eq!((test.lane, test.rows), (slow, 1));
            assert_eq!(poll(&mut pool, now), Step::Park, "one test for each refusal");
            pool.land(at(now + 401), test.ticket, took(401));
            assert_eq!(poll(&mut pool, now + 9000), Step::Park, "and none while nobody asks");
        }
        arrive(&mut pool, slow, 9, 40_000, 1);
        assert!(matches!(poll(&mut pool, 40_000), Step::Shed(_)));
        let test = rehearsal(&mut pool, 40_000);
        pool.land(at(40_010), test.ticket, took(10));
        arrive(&mut pool, slow, 10, 40_010, 1);
        assert!(
            matches!(poll(&mut pool, 40_010), Step::Release(batch) if batch.entries.len() == 1),
            "it is fast again"
        );
    }

    #[test]
    fn a_test_waits_its_time_without_a_caller_and_longer_once_there_was_one() {
        let mut pool = Dispatcher::new(1);
        let slow = pool.open(lane(1000, 8, 8));
        let refused = |pool: &mut Dispatcher, now| {
            arrive(pool, slow, now, now, 1);
            assert!(matches!(poll(pool, now), Step::Shed(_)));
            poll(pool, now)
        };
        let Step::Rehearse(first) = refused(&mut pool, 5000) else { panic!("long idle") };
        pool.land(at(6001), first.ticket, Landing::Failed);
        // Four times 1001 ms after that landed; 1 s if there had been no test.
        assert_eq!(refused(&mut pool, 6100), Step::WaitUntil(at(6001 + 4 * 1001)));
        assert_eq!(poll(&mut pool, 10_004), Step::WaitUntil(at(10_005)));
        assert_eq!(rehearsal(&mut pool, 10_005).rows, 1);
    }

    #[test]
    fn once_batches_scatter_no_more_a_few_tests_are_enough_to_serve_again() {
        let mut pool = Dispatcher::new(1);
        let scattering = pool.open(lane(39, 8, 8));
        let mut now = 0;
        let mut ask = |pool: &mut Dispatcher, took_ms| {
            arrive(pool, scattering, now, now, 1);
            loop {
                match poll(pool, now) {
                    Step::WaitUntil(until) => now = until.since(Instant::EPOCH).as_millis() as u64 + 1,
                    Step::Shed(_) => {}
                    Step::Rehearse(test) => {
                        now += 40;
                        pool.land(at(now), test.ticket, took(40));
                        return false;
                    }
                    Step::Release(batch) => {
                        now += took_ms;
                        pool.land(at(now), batch.ticket, took(took_ms));
                        return true;
                    }
                    Step::Park => return false,
                    step => panic!("{step:?}"),
                }
            }
        };
        assert!((0..200).all(|_| ask(&mut pool, 40)));
        let served = (0..200).take_while(|i| ask(&mut pool, if i % 3 == 0 { 200 } else { 40 })).count();
        assert!(served < 200, "the scatter refuses whoever is alone");
        let tests = (0..200).take_while(|_| !ask(&mut pool, 40)).count();
        assert!(tests <= 4, "{tests}");
    }

    #[test]
    fn sizes_are_rehearsed_twice_while_nothing_happens_and_only_then_released() {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(lane(10, 2, 8));
        let mut now = 0;
        for (rows, allowed) in [(4, 2), (4, 2), (8, 4), (8, 4)] {
            assert_eq!(pool.most_rows(lane), allowed);
            // As long as it takes nothing has happened: 10 + n ms.
            let due = now + 10 + rows as u64;
            assert_eq!(poll(&mut pool, now), Step::WaitUntil(at(due)));
            let batch = rehearsal(&mut pool, due);
            assert_eq!(batch.rows, rows);
            now = due + 10 + rows as u64;
            pool.land(at(now), batch.ticket, took(10 + rows as u64));
        }
        assert_eq!((pool.most_rows(lane), poll(&mut pool, now)), (8, Step::Park));
    }

    #[test]
    fn no_batch_is_larger_than_what_was_tried_and_who_waits_is_not_kept_waiting() {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(lane(10, 2, 8));
        (0..5).for_each(|id| arrive(&mut pool, lane, id, 0, 1));
        for rows in [2, 2, 1] {
            let Step::Release(batch) = poll(&mut pool, 0) else { panic!("{rows} wait") };
            assert_eq!(batch.rows, rows);
            pool.land(at(0), batch.ticket, took(12));
        }
        assert!(
            matches!(poll(&mut pool, 0), Step::WaitUntil(until) if until > at(12)),
            "the next size is rehearsed later"
        );
    }

    #[test]
    fn a_size_is_rehearsed_under_load_too_once_many_batches_were_as_large_as_can_be() {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(lane(10, 2, 8));
        (0..3).for_each(|id| arrive(&mut pool, lane, id, 0, 1));
        let (mut now, mut batches) = (0, Vec::new());
        let rehearsed = loop {
            match poll(&mut pool, now) {
                Step::Release(batch) => {
                    batches.push(batch.rows);
                    now += 12;
                    (0..3).for_each(|i| arrive(&mut pool, lane, now + i, now, 1));
                    pool.land(at(now), batch.ticket, took(12));
                }
                Step::Rehearse(rehearsal) => break rehearsal.rows,
                Step::Shed(_) => {}
                step => panic!("{step:?}"),
            }
        };
        assert_eq!((rehearsed, batches), (4, vec![2; PRESSED]));
    }

    #[test]
    fn sizes_beyond_the_cap_are_not_rehearsed_and_the_largest_within_is() {
        let sizes = |base, tried| {
            let rehearsals = Rehearsals::new(tried, ms(100));
            let fit = &Fit::line(base, 0.001, 1.0);
            let known =
                Known { fit, sizes: BatchSizes::ANY, max_batch: 64, free_since: at(0), quiet_since: Some(at(0)) };
            rehearsals.wanted(known).map(|wanted| wanted.rows)
        };
        assert_eq!((sizes(0.05, 8), sizes(0.05, 32), sizes(0.05, 50)), (Some(16), Some(50), None));
        assert_eq!((sizes(0.05, 46), sizes(0.09, 8), sizes(0.2, 1)), (None, Some(10), None), "hardly larger");
    }

    /// Rows of a text of 8 words were rehearsed for callers who send 3: batches far beyond the cap, again and again.
    #[test]
    fn what_its_own_rows_take_too_long_for_is_not_rehearsed_unless_it_is_needed() {
        let mut rehearsals = Rehearsals::new(32, ms(100));
        let fit = &Fit::line(0.001, 0.0003, 1.0);
        let known = Known { fit, sizes: BatchSizes::ANY, max_batch: 64, free_since: at(0), quiet_since: Some(at(0)) };
        assert_eq!(rehearsals.wanted(known).map(|wanted| wanted.rows), Some(64));
        [(16, 48), (32, 95), (32, 90), (16, 20)].into_iter().for_each(|(rows, took)| rehearsals.took(rows, ms(took)));
        assert_eq!(rehearsals.wanted(known), None, "90 + 2 · 42 ms");
        (0..PRESSED).for_each(|_| rehearsals.released(32, true));
        assert_eq!(rehearsals.wanted(known).map(|wanted| wanted.rows), Some(64));
        let mut shorter = Rehearsals::new(32, ms(100));
        [(16, 40), (32, 60)].into_iter().for_each(|(rows, took)| shorter.took(rows, ms(took)));
        assert_eq!(shorter.wanted(known).map(|wanted| wanted.at), Some(at(100)), "as long as they take it is quiet");
    }

    #[test]
    fn a_size_that_fails_is_tried_again_after_longer_and_longer_pauses_and_thrice_is_the_end_of_growth() {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(lane(10, 2, 8));
        let mut now = 5000;
        for pause in [1000, 8000] {
            let batch = rehearsal(&mut pool, now);
            assert_eq!(batch.rows, 4);
            pool.land(at(now + 14), batch.ticket, Landing::Failed);
            now += 14 + pause;
            assert_eq!(poll(&mut pool, now - 1), Step::WaitUntil(at(now)));
        }
        let batch = rehearsal(&mut pool, now);
        pool.land(at(now + 14), batch.ticket, Landing::Failed);
        assert_eq!((poll(&mut pool, 90_000), pool.most_rows(lane)), (Step::Park, 2));
    }

    #[test]
    fn a_size_that_failed_once_is_allowed_when_it_has_succeeded() {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(lane(10, 2, 4));
        for (now, landing) in [(5000, Landing::Failed), (7000, took(14)), (8000, took(14))] {
            let batch = rehearsal(&mut pool, now);
            pool.land(at(now + 14), batch.ticket, landing);
        }
        assert_eq!((poll(&mut pool, 90_000), pool.most_rows(lane)), (Step::Park, 4));
    }

    #[test]
    fn what_a_large_request_takes_is_tested_though_small_batches_come_and_go_and_less_often_while_it_is_in_vain() {
        let mut pool = Dispatcher::new(1);
        let mut slow = Lane::new(Box::new(Cork), 8).rehearsing(8, ms(100));
        for _ in 0..40 {
            [(1, 2), (4, 8), (8, 209)].iter().for_each(|&(rows, time)| slow.seen(Instant::EPOCH, rows, ms(time)));
        }
        let slow = pool.open(slow);
        let (mut tests, mut served) = (Vec::new(), 0);
        for round in 0..800 {
            let mut now = 50 * round;
            arrive(&mut pool, slow, now, now, 1);
            arrive(&mut pool, slow, now + 1, now, 8);
            loop {
                // Fast again from the fourth test on.
                let takes = |rows, tests| {
                    if rows < 8 {
                        2
                    } else if tests < 4 {
                        209
                    } else {
                        9
                    }
                };
                match poll(&mut pool, now) {
                    Step::Release(batch) => {
                        let time = takes(batch.rows, tests.len());
                        now += time;
                        served += usize::from(batch.rows == 8);
                        pool.land(at(now), batch.ticket, took(time));
                    }
                    Step::Rehearse(test) => {
                        tests.push(now);
                        let time = takes(test.rows, tests.len());
                        pool.land(at(now + time), test.ticket, took(time));
                        break;
                    }
                    Step::Shed(_) => {}
                    _ => break,
                }
            }
        }
        let gaps: Vec<u64> = tests.windows(2).map(|pair| pair[1] - pair[0]).take(3).collect();
        assert!(tests[0] <= 1100 && gaps[0] < gaps[1] && gaps[1] < gaps[2], "{tests:?}");
        assert!(served > 100, "{served} after {tests:?}");
    }

    #[test]
    fn a_model_that_was_given_up_is_tested_until_it_answers_though_nobody_asks() {
        let mut pool = Dispatcher::new(1);
        let stuck = pool.open(lane(10, 8, 8).giving_up_after(ms(500)));
        arrive(&mut pool, stuck, 1, 0, 1);
        assert!(matches!(poll(&mut pool, 0), Step::Release(_)));
        assert!(matches!(poll(&mut pool, 500), Step::GiveUp(_)));
        let mut now = 500;
        for _ in 0..5 {
            let test = rehearsal(&mut pool, now);
            pool.land(at(now + 1), test.ticket, Landing::Failed);
            now += 1001;
            assert_eq!(poll(&mut pool, now - 1), Step::WaitUntil(at(now)), "a second after it has failed");
        }
        let test = rehearsal(&mut pool, now);
        pool.land(at(now + 11), test.ticket, took(11));
        assert_eq!((pool.is_stuck(stuck), poll(&mut pool, 90_000)), (false, Step::Park));
    }

    #[test]
    fn allowed_sizes_are_tried_one_after_the_other() {
        let sizes = BatchSizes::rising(vec![2, 8, 32]).expect("they rise");
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(lane(10, 2, 32).padding_to(sizes));
        for allowed in [2, 8, 32] {
            assert_eq!(pool.most_rows(lane), allowed);
            for now in [1, 2].map(|i| (allowed as u64 + i) * 10_000) {
                if let Step::Rehearse(batch) = poll(&mut pool, now) {
                    pool.land(at(now + 20), batch.ticket, took(20));
                }
            }
        }
    }

    #[test]
    fn a_drained_lane_rehearses_nothing() {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(lane(10, 2, 8));
        pool.drain(lane);
        assert_eq!((poll(&mut pool, 90_000), pool.is_idle(lane)), (Step::Park, true));
    }

    #[test]
    fn a_hopeless_lane_is_tested_beside_a_busy_one_and_has_its_share_once_it_is_seen_to_be_fast() {
        let mut pool = Dispatcher::new(1);
        let (busy, hopeless) = (pool.open(lane(9, 8, 8)), pool.open(lane(500, 8, 8)));
        let mut served = 0;
        for round in 0..300 {
            let now = round * 10;
            arrive(&mut pool, busy, round, now, 1);
            arrive(&mut pool, hopeless, round, now, 1);
            let (lane, ticket) = loop {
                match poll(&mut pool, now) {
                    Step::Shed(_) => {}
                    Step::Release(batch) => break (batch.lane, batch.ticket),
                    Step::Rehearse(rehearsal) => break (busy, rehearsal.ticket),
                    step => panic!("the busy lane has something to run: {step:?}"),
                }
            };
            served += usize::from(lane == hopeless);
            while let Step::Shed(_) = poll(&mut pool, now) {}
            pool.land(at(now + 10), ticket, took(10));
        }
        assert!(served > 90, "{served}");
    }
}
