//! What becomes of requests on their way through a dispatcher, call by call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::policy::{Caller, Cork, Fixed, Policy};

/// One entry of so many rows.
fn at(ms: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(ms)
}

fn entry(id: u64, arrival_ms: u64, within_ms: u64) -> Entry {
    Entry::new(id, at(arrival_ms), at(arrival_ms + within_ms))
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

fn poll(pool: &mut Dispatcher, now: Instant) -> Step {
    pool.poll(now, |_, _| true)
}

/// Obeys one release and returns its lane and ticket.
fn release(pool: &mut Dispatcher, now: Instant) -> (LaneId, u64) {
    match poll(pool, now) {
        Step::Release(batch) => (batch.lane, batch.ticket),
        step => panic!("{step:?}"),
    }
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
        assert!(!matches!(poll(&mut pool, at(round * 10)), Step::Release(_)), "one runner, one batch");
        pool.land(at(round * 10 + 10), ticket, took(10));
    }
    assert_eq!(order, [1, 2, 0]);
}

#[test]
fn where_there_is_no_room_the_newest_of_whoever_has_most_goes_whenever_it_is_due() {
    let mut pool = Dispatcher::new(1);
    let lane = pool.open(lane());
    let of = |id, caller, within| Entry { caller: Caller { id: caller, ..Caller::default() }, ..entry(id, 0, within) };
    let [first, second, newcomer] = [of(0, 1, 50), of(1, 1, 500), of(2, 2, 100)];
    [first, second, newcomer].into_iter().for_each(|entry| pool.arrive(lane, entry));
    assert_eq!(pool.make_room(at(0), lane, &newcomer, 1), Some(second));
    assert_eq!(pool.make_room(at(0), lane, &newcomer, 1), Some(newcomer), "each has as much by now");
    assert_eq!(pool.make_room(at(0), lane, &newcomer, 1), None, "it waits no more");
    let nobody = entry(3, 0, 50);
    pool.arrive(lane, nobody);
    assert_eq!(pool.make_room(at(0), lane, &nobody, 1), Some(nobody), "for those who are not told apart nobody goes");
    assert!(pool.queue(lane).iter().eq([&first]));
}

#[test]
fn nobody_makes_room_for_one_for_whom_it_would_not_be_enough() {
    let mut pool = Dispatcher::new(1);
    let lane = pool.open(lane());
    let of = |id, caller, rows| Entry { rows, caller: Caller { id: caller, ..Caller::default() }, ..entry(id, 0, 500) };
    (0..16).for_each(|id| pool.arrive(lane, of(id, 1, 1)));
    let newcomer = of(16, 2, 12);
    pool.arrive(lane, newcomer);
    assert_eq!(pool.make_room(at(0), lane, &newcomer, 8), Some(newcomer), "the other has four more");
    assert_eq!(pool.queue(lane).rows(), 16);
}

#[test]
fn refusals_of_all_lanes_come_before_any_release() {
    let mut pool = Dispatcher::new(1);
    let (first, second) = (pool.open(lane()), pool.open(lane()));
    pool.arrive(first, entry(0, 0, 90));
    pool.arrive(second, entry(0, 0, 5));
    assert!(matches!(poll(&mut pool, at(6)), Step::Shed(shed) if shed.lane == second && shed.entries.len() == 1));
    assert!(matches!(poll(&mut pool, at(6)), Step::Release(batch) if batch.lane == first));
}

#[test]
fn who_has_left_is_dropped_from_the_batch_and_the_next_takes_the_runner() {
    let mut pool = Dispatcher::new(1);
    let (first, second) = (pool.open(lane()), pool.open(lane()));
    for id in 0..3 {
        pool.arrive(first, entry(id, 0, 50));
    }
    pool.arrive(second, entry(7, 0, 90));
    let mut asked = Vec::new();
    let mut only = |kept: u64| {
        pool.poll(at(0), |lane, entry| {
            asked.push((lane, entry.id));
            entry.id == kept
        })
    };
    let Step::Release(batch) = only(7) else { panic!("a runner is free") };
    assert_eq!((batch.lane, batch.entries.len(), batch.rows), (second, 1, 1));
    assert_eq!(asked, [(first, 0), (first, 1), (first, 2), (second, 7)]);
    assert!(pool.queue(first).is_empty() && pool.running().len() == 1);
}

#[test]
fn the_caps_hold_whatever_the_policy_says() {
    struct Always(usize);
    impl Policy for Always {
        fn decide(&self, _: Instant, _: View<'_>) -> Decision {
            Decision::Release { entries: self.0, reason: ReleaseReason::Ripe }
        }
    }
    for (says, released) in [(usize::MAX, 8), (0, 1)] {
        let mut pool = Dispatcher::new(1);
        let lane = pool.open(Lane::new(Box::new(Always(says)), 8));
        (0..20).for_each(|id| pool.arrive(lane, entry(id, 0, 90)));
        let Step::Release(batch) = poll(&mut pool, at(0)) else { panic!("a runner is free") };
        assert_eq!(batch.entries.len(), released);
        assert_eq!(poll(&mut pool, at(0)), Step::Park, "no runner is free");
    }
}

#[test]
fn a_refusal_says_what_it_was_decided_on() {
    // Forty at once against batches of at most 8 rows that take 10 + n ms, and 49 ms.
    let mut lane = Lane::new(Box::new(Cork), 8);
    [1, 2, 4, 8].iter().cycle().take(12).for_each(|&n| lane.seen(at(0), n, Duration::from_millis(10 + n as u64)));
    let mut pool = Dispatcher::new(1);
    let lane = pool.open(lane);
    (0..40).for_each(|id| pool.arrive(lane, entry(id, 0, 49)));
    let mut told = Vec::new();
    while let Step::Shed(shed) = poll(&mut pool, at(0)) {
        let ms = |at: Instant| at.since(Instant::EPOCH).as_secs_f64() * 1e3;
        told.push((
            shed.entries[0].id,
            ms(shed.forecast).round() as u64,
            ms(shed.retry_at.expect("later")).round() as u64,
        ));
    }
    // The last stands with seven others behind four full batches of 18 ms; the 20th with three behind two.
    assert_eq!((told[0], told[told.len() - 1]), ((39, 90, 72), (19, 50, 36)));
    assert_eq!(told.len(), 21);
}

#[test]
fn who_can_never_be_in_time_is_not_asked_back_and_others_are() {
    let mut pool = Dispatcher::new(1);
    let lane = pool.open(lane());
    // Batches take 10 ms.
    for (id, arrival, within) in [(0, 0, 5), (1, 0, 11), (2, 0, 90)] {
        pool.arrive(lane, entry(id, arrival, within));
    }
    let mut retries = Vec::new();
    while let Step::Shed(shed) = poll(&mut pool, at(12)) {
        retries.push((shed.entries.iter().map(|e| e.id).collect::<Vec<_>>(), shed.retry_at));
    }
    assert_eq!(retries, [(vec![0], None), (vec![1], Some(at(12)))], "both expired");
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
    let behind_one = |pool: &Dispatcher, lane, now| pool.view(now, lane).start_after(now, 1);
    assert_eq!(behind_one(&pool, lanes[1], at(0)), at(20));
    assert_eq!(behind_one(&pool, lanes[0], at(0)), at(30));
    assert_eq!(
        pool.view(at(0), lanes[0]).start_after(at(0), 0),
        at(10),
        "who would take the runner may be refused himself"
    );
    pool.land(at(10), ticket, took(10));
    assert_eq!(behind_one(&pool, lanes[0], at(10)), at(20), "who gets a free runner is not foretold");
}

#[test]
fn who_will_stand_back_does_not_count_as_going_before() {
    let before = |within: u64| {
        let mut pool = Dispatcher::new(1);
        let (hurried, patient) = (pool.open(lane()), pool.open(lane()));
        // The hurried one has had more than its share.
        for round in 0..20 {
            pool.arrive(hurried, entry(round, 10 * round, 30));
            let (_, ticket) = release(&mut pool, at(10 * round));
            pool.land(at(10 * round + 10), ticket, took(10));
        }
        pool.arrive(patient, entry(0, 200, within));
        let (lane, _) = release(&mut pool, at(200));
        pool.arrive(patient, entry(1, 200, within));
        pool.arrive(hurried, entry(99, 200, 25));
        assert!(lane == patient && !pool.arbiter.is_within_share(hurried) && pool.arbiter.is_within_share(patient));
        pool.view(at(200), hurried).start_after(at(200), 1)
    };
    assert_eq!(
        before(25).since(before(500)),
        Duration::from_millis(10),
        "it is its turn, and it cannot wait; or it can"
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
            match poll(&mut pool, now) {
                Step::Shed(_) => {}
                Step::Release(batch) => {
                    served += if batch.lane == hopeless { batch.rows } else { 0 };
                    flights.push((round, batch.ticket));
                }
                Step::WaitUntil(_) | Step::Park => break,
                step => panic!("it has neither rows of its own nor a limit: {step:?}"),
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
        let batch = loop {
            match poll(&mut pool, now) {
                Step::Shed(_) => {}
                Step::Release(batch) => break batch,
                step => panic!("the busy lane has something to run: {step:?}"),
            }
        };
        probes += usize::from(batch.lane == hopeless);
        while let Step::Shed(_) = poll(&mut pool, now) {}
        pool.land(at(round * 10 + 10), batch.ticket, took(10));
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
    assert_eq!((pool.queue(third).len(), poll(&mut pool, at(10))), (0, Step::Park));
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
        poll(pool, now);
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
            let Step::Release(batch) = poll(&mut pool, at(begin + after)) else { panic!("they are two") };
            assert_eq!(batch.entries.len(), 2);
            batch.ticket
        });
        for ticket in tickets {
            assert!(pool.land(at(begin + 12), ticket, took(10)), "it tells something");
        }
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
    assert_eq!(pool.lane(lane).predict(1), Some(Duration::from_millis(10)));
}

/// Arrives, is released at `ms` and never comes back; returns its ticket.
fn hang(pool: &mut Dispatcher, lane: LaneId, ms: u64) -> u64 {
    pool.arrive(lane, entry(ms, ms, 90));
    release(pool, at(ms)).1
}

fn stubborn() -> Lane {
    lane().giving_up_after(Duration::from_secs(10))
}

#[test]
fn a_batch_that_does_not_come_back_is_given_up_once_and_its_runner_replaced() {
    let mut pool = Dispatcher::new(1);
    let stubborn = pool.open(stubborn());
    let ticket = hang(&mut pool, stubborn, 0);
    assert_eq!(poll(&mut pool, at(9_999)), Step::WaitUntil(at(10_000)));
    let ran = Duration::from_secs(10);
    let given_up = GivenUp { ticket, lane: stubborn, ran, is_replaced: true, left_behind: 1 };
    assert_eq!(poll(&mut pool, at(10_000)), Step::GiveUp(given_up));
    assert_eq!(
        (poll(&mut pool, at(10_000)), pool.has_free_runner(), pool.is_stuck(stubborn)),
        (Step::Park, true, true)
    );
    pool.arrive(stubborn, entry(1, 10_000, 90));
    let (_, next) = release(&mut pool, at(10_000));
    assert!(!pool.land(at(10_005), ticket, took(10_005)), "nothing is learned from it");
    assert_eq!(pool.running().len(), 1, "nor is the new runner free for it");
    assert!(pool.land(at(10_010), next, took(10)) && !pool.is_stuck(stubborn));
    assert_eq!(poll(&mut pool, at(90_000)), Step::Park);
}

#[test]
fn no_more_than_a_few_runners_are_left_behind_at_once() {
    let mut pool = Dispatcher::new(1);
    let stubborn = pool.open(stubborn());
    let mut tickets = Vec::new();
    for round in 0..MOST_LEFT_BEHIND as u64 + 1 {
        tickets.push(hang(&mut pool, stubborn, round * 10_000));
        let is_replaced = round < MOST_LEFT_BEHIND as u64;
        let step = poll(&mut pool, at((round + 1) * 10_000));
        assert!(matches!(step, Step::GiveUp(given_up) if given_up.is_replaced == is_replaced), "{round}: {step:?}");
    }
    assert!(!pool.has_free_runner() && pool.is_idle(stubborn), "nobody waits for it");
    assert_eq!(poll(&mut pool, at(99_000)), Step::Park, "it is given up once");
    pool.land(at(99_000), tickets[0], Landing::Failed);
    assert!(!pool.has_free_runner(), "that was one of those left behind");
    pool.land(at(99_000), tickets[MOST_LEFT_BEHIND], took(1));
    assert!(pool.has_free_runner() && pool.is_stuck(stubborn), "it came back, and late");
    hang(&mut pool, stubborn, 100_000);
    assert!(
        matches!(poll(&mut pool, at(110_000)), Step::GiveUp(given_up) if given_up.is_replaced),
        "there is room again"
    );
}

#[test]
fn a_fresh_runner_of_a_lane_with_rows_of_its_own_is_tested_at_once() {
    let mut pool = Dispatcher::new(1);
    let stubborn = pool.open(stubborn().rehearsing(8, Duration::from_millis(90)));
    hang(&mut pool, stubborn, 0);
    assert!(matches!(poll(&mut pool, at(10_000)), Step::GiveUp(_)));
    let Step::Rehearse(test) = poll(&mut pool, at(10_000)) else { panic!("it is to be seen whether it works") };
    assert_eq!((test.rows, pool.is_stuck(stubborn)), (1, true));
    pool.land(at(10_010), test.ticket, took(10));
    assert!(!pool.is_stuck(stubborn));
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
        let known = pool.lane(lane).predict(1);
        assert_eq!(
            (known, heard.load(Ordering::Relaxed)),
            ((landing != Landing::Failed).then_some(Duration::from_millis(5)), round as usize)
        );
    }
}

#[test]
fn a_batch_that_takes_the_last_runner_leaves_the_callers_of_other_lanes_their_time() {
    // A row of the one takes 2 ms, and its callers wait for 30. Of the other, n rows take 3 + n ms.
    let lane = |base: u64, per_row: u64, max_batch: usize| {
        let mut lane = Lane::new(Box::new(Cork), max_batch);
        let time = |rows: usize| Duration::from_millis(base + per_row * rows as u64);
        [1, 64, 1, 64, 1, 64].into_iter().for_each(|rows| lane.seen(at(0), rows, time(rows)));
        lane
    };
    // Rows of the first batch of 128 that wait, with so many runners, some ms after somebody asked the quick one.
    let rows = |runners: usize, after: u64| {
        let mut pool = Dispatcher::new(runners);
        let (quick, long) = (pool.open(lane(2, 0, 64)), pool.open(lane(3, 1, 128)));
        pool.arrive(quick, entry(0, 1, 30));
        let (_, ticket) = release(&mut pool, at(1));
        pool.land(at(3), ticket, took(2));
        (0..128).for_each(|id| pool.arrive(long, entry(1 + id, after, 500)));
        let Step::Release(batch) = poll(&mut pool, at(after)) else { panic!("128 rows wait") };
        assert_eq!(batch.lane, long);
        batch.rows
    };
    assert_eq!(rows(1, 10), 30 - 2 - 2 - 3, "after that batch, one that was there before and its own take 2 ms each");
    assert_eq!(rows(2, 10), 128, "another runner stays free");
    assert_eq!(rows(1, 60_000), 128, "nobody has asked for long");
}

#[test]
fn how_late_it_is_polled_is_remembered_for_some_batches() {
    let mut pool = Dispatcher::new(1);
    let lane = pool.open(lane());
    let late_by = |pool: &Dispatcher| pool.view(at(0), lane).late_by.as_micros();
    pool.arrive(lane, entry(0, 0, 50));
    let (_, mut ticket) = release(&mut pool, at(0));
    pool.arrive(lane, entry(1, 0, 50));
    let Step::WaitUntil(until) = poll(&mut pool, at(0)) else { panic!("a runner is awaited") };
    assert!(matches!(poll(&mut pool, until - Duration::from_millis(1)), Step::WaitUntil(_)));
    assert_eq!(late_by(&pool), 0, "something else happened before");
    poll(&mut pool, until + Duration::from_millis(3));
    assert_eq!(late_by(&pool), 3_000);
    for id in 2..400 {
        pool.land(at(id * 1000), ticket, took(10));
        pool.arrive(lane, entry(id, id * 1000, 50));
        ticket = release(&mut pool, at(id * 1000)).1;
    }
    assert!(late_by(&pool) < 10, "{}", late_by(&pool));
    pool.arrive(lane, entry(400, 399_001, 50));
    let Step::WaitUntil(until) = poll(&mut pool, at(399_001)) else { panic!("a runner is awaited") };
    poll(&mut pool, until + Duration::from_secs(60));
    assert_eq!(late_by(&pool), 10_000, "a machine that stood still counts for little");
}

#[test]
fn no_batch_is_planned_that_takes_longer_than_callers_give() {
    let mut pool = Dispatcher::new(1);
    let mut lane = Lane::new(Box::new(Cork), 128);
    let time = |rows: u64| Duration::from_millis(10 + rows);
    [1, 64, 1, 64].into_iter().for_each(|rows| lane.seen(at(0), rows, time(rows as u64)));
    let lane = pool.open(lane);
    assert_eq!(pool.view(at(0), lane).max_batch, 128, "nobody has asked yet");
    pool.arrive(lane, entry(0, 0, 60));
    let (_, ticket) = release(&mut pool, at(40));
    pool.land(at(51), ticket, took(11));
    assert_eq!(pool.view(at(51), lane).max_batch, 50);
    pool.arrive(lane, Entry { rows: 70, ..entry(1, 51, 60) });
    assert_eq!(pool.view(at(51), lane).max_batch, 70, "no request is cut");
}
