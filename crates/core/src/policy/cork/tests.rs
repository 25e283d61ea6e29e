//! What the rule of a lone lane releases, holds and refuses.

use proptest::prelude::*;

use super::*;
use crate::estimator::BatchTimes;
use crate::policy::{Entry, Priority, Running, Standing};

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// One runner that is free and has been idle for 1 ms, batches of at most 8 rows, t(n) = 10 ms + n · 1 ms.
struct State {
    queue: Queue,
    running: Vec<Running>,
    sizes: BatchSizes,
    fit: Fit,
    patience: f64,
    crowd: Option<KnownCrowd>,
    free_since: Instant,
    draining: bool,
}

/// That state with entries that came 8 ms ago, are due in so many µs and have so many rows.
fn state(due_us_rows: &[(u64, usize)]) -> State {
    let mut queue = Queue::new();
    for (id, &(due, rows)) in (0..).zip(due_us_rows) {
        queue.insert(Entry { rows, ..Entry::new(id, NOW - us(8000), NOW + us(due)) });
    }
    let (sizes, fit) = (BatchSizes::default(), Fit::line(0.010, 0.001, 1.0));
    let free_since = NOW - us(1000);
    State { queue, running: Vec::new(), sizes, fit, patience: 0.0, crowd: None, free_since, draining: false }
}

impl State {
    /// Patience c, the rows having come 8 ms ago.
    fn patience(self, patience: f64) -> State {
        State { patience, ..self }
    }

    /// The callers are a crowd of this size that is back within so many µs.
    fn crowd(self, size: usize, returns: u64) -> State {
        State { crowd: Some(KnownCrowd { size, returns: us(returns), turn: None }), ..self }
    }

    /// The runner has a batch of one row that is due in so many µs.
    fn busy_for(mut self, due_us: u64) -> State {
        let (since, expected) = (NOW + us(due_us) - us(11_000), Some(us(11_000)));
        self.running.push(Running { ticket: 0, lane: 0, since, entries: 1, rows: 1, waited: us(0), expected });
        self
    }

    fn view(&self) -> View<'_> {
        View {
            lane: 0,
            queue: &self.queue,
            running: &self.running,
            runners: 1,
            max_batch: 8,
            sizes: &self.sizes,
            fit: &self.fit,
            patience: self.patience,
            spread: Spread::AsNeeded,
            reach: Reach::WHOLE,
            crowd: self.crowd,
            free_since: self.free_since,
            rehearses: false,
            draining: self.draining,
            late_by: Duration::ZERO,
            standing: Standing::ALONE,
        }
    }

    fn decide(&self) -> Decision {
        bare(Cork.decide(NOW, self.view()))
    }
}

fn release(entries: usize, reason: ReleaseReason) -> Decision {
    Decision::Release { entries, reason }
}

fn shed(entries: std::ops::Range<usize>, reason: ShedReason) -> Decision {
    Decision::Shed { entries, reason, forecast: NOW, retry_at: NOW }
}

/// A decision but for what those are told whom it refuses.
fn bare(decision: Decision) -> Decision {
    if let Decision::Shed { entries, reason, .. } = decision { shed(entries, reason) } else { decision }
}

#[test]
fn until_it_is_known_how_the_time_grows_a_batch_is_at_most_six_times_as_large_as_those_before() {
    let mut times = BatchTimes::new();
    let mut decide = |queue: &[(u64, usize)], rows| {
        times.observe(NOW, rows, us(10_000 + 1000 * rows as u64));
        let state = State { fit: times.fit().clone(), ..state(queue) };
        Cork.decide(NOW, View { max_batch: 64, ..state.view() })
    };
    let ten = [(90_000, 1); 10];
    assert_eq!(decide(&ten, 1), release(6, ReleaseReason::Full));
    assert_eq!(decide(&[(90_000, 10), (90_000, 1)], 1), release(1, ReleaseReason::Full), "none is ever split");
    assert_eq!(decide(&ten, 6), release(10, ReleaseReason::Ripe));
    let unknown = State { fit: Fit::UNKNOWN, ..state(&ten) };
    assert_eq!(Cork.decide(NOW, View { max_batch: 64, ..unknown.view() }), release(10, ReleaseReason::Ripe));
}

#[test]
fn what_has_expired_is_refused_as_such_even_on_a_guess() {
    let expired = state(&[(0, 1), (0, 1), (50_000, 1)]);
    assert_eq!(expired.decide(), shed(0..2, ShedReason::Expired));
    assert_eq!(State { fit: Fit::UNKNOWN, ..expired }.decide(), shed(0..2, ShedReason::Expired));
}

#[test]
fn a_hold_lasts_as_long_as_patience_has_it_and_is_shared_by_those_who_wait() {
    // c·α/n after the arrival 8 ms ago: 10 ms for one row, 5 ms for two.
    assert_eq!(state(&[(90_000, 1)]).patience(1.0).decide(), Decision::WaitUntil(NOW + us(2000)));
    assert_eq!(state(&[(90_000, 2)]).patience(1.0).decide(), release(1, ReleaseReason::Ripe));
    assert_eq!(state(&[(90_000, 2)]).patience(2.0).decide(), Decision::WaitUntil(NOW + us(2000)));
    assert_eq!(state(&[(90_000, 1)]).decide(), release(1, ReleaseReason::Ripe), "without patience");
}

#[test]
fn a_hold_until_the_last_moment_ends_sooner_where_alarms_ring_late() {
    let state = state(&[(13_500, 1)]).patience(1.0);
    let until = |late_by| Cork.decide(NOW, View { late_by, ..state.view() });
    let Decision::WaitUntil(last) = until(Duration::ZERO) else { panic!("it is held") };
    assert!(last < NOW + us(2000), "by its deadline");
    assert_eq!(until(us(1000)), Decision::WaitUntil(last - us(1000)));
    assert_eq!(until(us(2000)), release(1, ReleaseReason::Deadline));
}

#[test]
fn nothing_is_held_before_it_is_known_what_another_row_saves() {
    let mut times = BatchTimes::new();
    (0..9).for_each(|_| times.observe(NOW, 1, us(11_000)));
    let one_size = State { fit: times.fit().clone(), ..state(&[(90_000, 1)]).patience(1.5).crowd(4, 5000) };
    assert_eq!(one_size.decide(), release(1, ReleaseReason::Ripe));
}

#[test]
fn a_crowd_is_waited_for_until_all_are_back_or_it_would_cost_more_than_a_batch() {
    let three = [(90_000, 1), (90_000, 1), (90_000, 1)];
    // Back within 3 ms on average: twice that after the runner came free, 1 ms ago.
    assert_eq!(state(&three).crowd(4, 3000).decide(), Decision::WaitUntil(NOW + us(5000)));
    assert_eq!(state(&three).crowd(4, 9000).decide(), Decision::WaitUntil(NOW + us(9000)), "no longer than α");
    assert_eq!(state(&three).crowd(4, 10_000).decide(), release(3, ReleaseReason::Ripe), "not worth it");
    assert_eq!(state(&three).crowd(3, 3000).decide(), release(3, ReleaseReason::Ripe), "all are here");
}

#[test]
fn a_crowd_is_not_waited_for_while_part_of_it_is_with_another_runner() {
    let waits = state(&[(90_000, 1)]).crowd(4, 3000);
    assert_eq!(waits.decide(), Decision::WaitUntil(NOW + us(5000)));
    let split = waits.busy_for(5000);
    let two_runners = View { runners: 2, ..split.view() };
    assert_eq!(Cork.decide(NOW, two_runners), release(1, ReleaseReason::Ripe));
}

#[test]
fn a_crowd_that_is_all_here_is_released_without_patience() {
    let held = state(&[(90_000, 1)]).patience(1.0);
    assert_eq!(held.crowd(2, 20_000).decide(), Decision::WaitUntil(NOW + us(2000)), "too slow to be waited for");
    let two = state(&[(90_000, 1), (90_000, 1)]).patience(9.0).crowd(2, 3000);
    assert_eq!(two.decide(), release(2, ReleaseReason::Ripe));
}

#[test]
fn a_hold_ends_where_the_batch_with_one_more_row_would_be_late() {
    // t(2) = 12 ms.
    let soon = state(&[(13_000, 1)]).patience(1.0);
    assert_eq!(soon.decide(), Decision::WaitUntil(NOW + us(1000)));
    assert_eq!(state(&[(12_000, 1)]).patience(1.0).decide(), release(1, ReleaseReason::Deadline));
    assert_eq!(state(&[(13_000, 1)]).crowd(4, 5000).decide(), Decision::WaitUntil(NOW + us(1000)));
}

#[test]
fn nothing_is_held_that_nothing_can_join() {
    assert_eq!(state(&[(90_000, 8)]).patience(9.0).decide(), release(1, ReleaseReason::Full));
    // The second does not fit: whoever comes next does not ride with the first.
    assert_eq!(state(&[(90_000, 4), (90_000, 5)]).patience(9.0).decide(), release(1, ReleaseReason::Full));
    let draining = State { draining: true, ..state(&[(90_000, 1)]).patience(1.0) };
    assert_eq!(draining.decide(), release(1, ReleaseReason::Draining));
}

#[test]
fn waiting_for_a_runner_that_is_due_now_ends_in_the_future() {
    let at_the_last_moment = state(&[(11_000, 1)]).busy_for(0);
    assert_eq!(at_the_last_moment.decide(), Decision::WaitUntil(NOW + Duration::from_nanos(1)));
}

#[test]
fn a_smaller_batch_goes_first_where_nobody_loses_by_it() {
    assert_eq!(state(&[(11_000, 1), (90_000, 5)]).decide(), release(1, ReleaseReason::Deadline));
    // The runner comes free in 2 ms.
    let busy = state(&[(13_000, 1), (90_000, 5)]).busy_for(2000);
    assert_eq!(busy.decide(), Decision::WaitUntil(NOW + us(2000) + Duration::from_nanos(1)));
    // Behind the smaller batch, the other would end after 11 + 15 ms.
    assert_eq!(state(&[(11_000, 1), (25_000, 5)]).decide(), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn a_batch_must_be_in_time_even_if_it_takes_as_long_as_batches_sometimes_do() {
    let noisy = State { fit: Fit::line(0.010, 0.001, 1.5), ..state(&[(16_000, 1)]) };
    assert_eq!(noisy.decide(), shed(0..1, ShedReason::BatchTooLate));
    assert_eq!(state(&[(16_000, 1)]).decide(), release(1, ReleaseReason::Ripe));
}

#[test]
fn an_entry_behind_a_full_batch_is_judged_by_its_own() {
    // The full batch ahead ends in 18 ms, and t(1) = 11 ms.
    let opens = |due| state(&[(20_000, 8), (due, 1)]).decide();
    assert_eq!(opens(28_000), shed(1..2, ShedReason::QueueTooLong));
    assert_eq!(opens(29_000), release(1, ReleaseReason::Full));
    // Five rows behind five do not fit into a batch of eight: two batches are ahead.
    assert_eq!(state(&[(45_000, 8), (45_000, 5), (45_000, 5)]).decide(), shed(2..3, ShedReason::QueueTooLong));
}

#[test]
fn where_a_queue_can_stand_an_entry_behind_full_batches_counts_on_a_full_one_of_its_own() {
    // Full batches take 18 ms, three of them 54. Two end in 36 ms, with one row more 47 ms, with a full batch 54.
    let third = |due| state(&[(50_000, 8), (50_000, 8), (due, 1)]).decide();
    assert_eq!(third(53_999), shed(2..3, ShedReason::QueueTooLong));
    assert_eq!(third(54_000), release(1, ReleaseReason::Full));
    // A caller who gives less than 54 ms cannot stand in such a queue: he came 8 ms ago.
    let second = |due| state(&[(20_000, 8), (due, 1)]).decide();
    assert_eq!((second(29_000), second(45_999)), (release(1, ReleaseReason::Full), release(1, ReleaseReason::Full)));
}

#[test]
fn where_padding_takes_too_long_a_batch_of_the_size_below_goes_first() {
    let padded = |queue: &[(u64, usize)]| {
        let sizes = BatchSizes::rising(vec![1, 4, 8]).expect("they rise");
        State { sizes, fit: Fit::line(0.001, 0.010, 1.0), ..state(queue) }.decide()
    };
    // t(1) = 11, t(4) = 41, t(8) = 81 ms.
    assert_eq!(padded(&[(900_000, 1); 5]), release(4, ReleaseReason::Full), "4 in 41 ms is faster than 5 in 81");
    assert_eq!(padded(&[(900_000, 1); 8]), release(8, ReleaseReason::Full));
    assert_eq!(padded(&[(80_000, 1); 7]), release(4, ReleaseReason::Full), "all would be late in a batch of 8");
    // Only two of four are in time at 41 ms, which is less for each ms than one at 11 ms.
    let hurried = [(40_000, 1), (40_000, 1), (50_000, 1), (50_000, 1)];
    assert_eq!(padded(&hurried), release(1, ReleaseReason::Full));
    // More wait than fit: the full batch is the fastest, and those go who would be late in it.
    let queue: Vec<_> = [(80_000, 1); 9].into_iter().chain([(900_000, 1)]).collect();
    assert_eq!(padded(&queue), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn a_hold_is_worth_the_batch_that_an_arrival_saves_by_taking_the_place_of_padding() {
    let sizes = BatchSizes::rising(vec![1, 4, 8]).expect("they rise");
    let held = |rows| State { sizes: sizes.clone(), ..state(&[(90_000, rows)]).patience(1.5) }.decide();
    // c·(α + β)/2 after the arrival 8 ms ago; a fifth row would make four rows of padding: c·(α − 2β)/4 is no more.
    assert_eq!(held(2), Decision::WaitUntil(NOW + us(250)));
    assert_eq!(held(4), release(1, ReleaseReason::Ripe));
}

/// That state with entries of one row that are due in so many µs, each of this priority.
fn state_of_levels(due_us_levels: &[(u64, u64)]) -> State {
    let mut queue = Queue::new();
    for (id, &(due, level)) in (0..).zip(due_us_levels) {
        let priority = Priority::new(level).expect("a level");
        queue.insert(Entry { priority, ..Entry::new(id, NOW - us(8000), NOW + us(due)) });
    }
    State { queue, ..state(&[]) }
}

#[test]
fn the_urgent_go_first_and_those_who_do_not_fit_beside_them_wait() {
    // t(8) = 18 ms.
    let queue: Vec<_> = [(90_000, 5); 6].into_iter().chain([(90_000, 1); 6]).collect();
    let state = state_of_levels(&queue);
    assert_eq!(state.queue.iter().map(|e| e.id).collect::<Vec<_>>(), [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]);
    assert_eq!(state.decide(), release(8, ReleaseReason::Full));
}

#[test]
fn the_less_urgent_stand_back_as_far_as_they_would_make_the_urgent_late() {
    // t(1) = 11, t(3) = 13, t(5) = 15 ms.
    let of = |due| state_of_levels(&[(due, 1), (90_000, 5), (90_000, 5), (90_000, 5), (90_000, 5)]).decide();
    assert_eq!(of(13_999), release(3, ReleaseReason::Full));
    assert_eq!(of(11_000), release(1, ReleaseReason::Full));
    assert_eq!(of(10_999), shed(0..1, ShedReason::BatchTooLate));
    // One of the own level is not to be shrunk for.
    let equals = state_of_levels(&[(11_000, 1), (12_000, 1), (90_000, 5)]);
    assert_eq!(equals.decide(), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn a_less_urgent_one_that_the_next_batch_makes_late_does_not_hold_it_up() {
    let queue = state_of_levels(&[(90_000, 1), (90_000, 1), (12_000, 5), (90_000, 5)]);
    assert_eq!(queue.decide(), shed(2..3, ShedReason::BatchTooLate));
}

fn shorter(part: f64) -> Reach {
    Reach { part, ..Reach::WHOLE }
}

#[test]
fn a_queue_that_stands_reaches_no_further_than_it_need() {
    // The third batch ends after 54 ms: six tenths of 90.
    let third = |due, reach| {
        let state = state(&[(50_000, 8), (50_000, 8), (due, 1)]);
        bare(Cork.decide(NOW, View { reach: shorter(reach), ..state.view() }))
    };
    assert_eq!(third(90_000, 0.59), shed(2..3, ShedReason::QueueStands));
    assert_eq!(third(90_000, 0.61), release(1, ReleaseReason::Full));
    assert_eq!(third(53_000, 0.59), shed(2..3, ShedReason::QueueTooLong));
    // Whoever stands before others has been let in.
    let state = state_of_levels(&[&[(90_000, 1); 8][..], &[(40_000, 5), (90_000, 5)]].concat());
    let within = |reach| bare(Cork.decide(NOW, View { reach: shorter(reach), ..state.view() }));
    assert_eq!(within(0.41), release(8, ReleaseReason::Full));
    assert_eq!(within(0.39), shed(9..10, ShedReason::QueueStands));
    let decide = |reach| bare(Cork.decide(NOW, View { reach, ..state.view() }));
    let full = release(8, ReleaseReason::Full);
    assert_eq!(
        decide(Reach { since: NOW + us(1), ..shorter(0.39) }),
        full,
        "who came before it was made shorter stays"
    );
    let refused = Priority::new(6).unwrap();
    assert_eq!(decide(Reach { urgent: refused, ..shorter(0.39) }), full, "less urgent ones alone ask for too much");
}

#[test]
fn a_queue_that_stands_costs_no_urgent_caller_the_place_of_a_less_urgent_one() {
    // The second batch ends after some 36 ms.
    let urgent = [(90_000, 1); 9];
    let decide =
        |entries: &[_]| bare(Cork.decide(NOW, View { reach: shorter(0.3), ..state_of_levels(entries).view() }));
    assert_eq!(decide(&urgent), shed(8..9, ShedReason::QueueStands));
    assert_eq!(decide(&[&urgent[..], &[(900_000, 5)]].concat()), release(8, ReleaseReason::Full));
}

#[test]
fn in_lasting_overload_no_batch_is_made_smaller_for_one_caller() {
    let patient: Vec<_> = [(11_000, 1)].into_iter().chain([(90_000, 1); 15]).collect();
    let state = state(&patient);
    let within = |reach| bare(Cork.decide(NOW, View { reach: shorter(reach), ..state.view() }));
    assert_eq!(within(1.0), release(1, ReleaseReason::Deadline));
    assert_eq!(within(0.9), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn what_the_urgent_leave_no_time_for_is_refused_before_its_deadline() {
    // The full batch of the urgent ends after 18 ms, the next one's first row after 29.
    let full = |due| state_of_levels(&[&[(90_000, 1); 8][..], &[(due, 5), (90_000, 5)]].concat()).decide();
    assert_eq!(full(28_999), shed(8..9, ShedReason::QueueTooLong));
    assert_eq!(full(29_000), release(8, ReleaseReason::Full));
}

#[test]
fn nobody_is_forgotten_behind_the_urgent() {
    let expired = state_of_levels(&[(90_000, 1), (0, 5), (90_000, 5)]);
    assert_eq!(expired.decide(), shed(1..2, ShedReason::Expired));
    // A hung runner: the timer rings when the first of all deadlines passes.
    let hung = State { fit: Fit::UNKNOWN, ..state_of_levels(&[(90_000, 1), (7_000, 5)]).busy_for(0) };
    assert_eq!(hung.decide(), Decision::WaitUntil(NOW + us(7_000)));
}

#[test]
fn those_who_are_late_at_the_front_leave_before_anyone_at_the_end_is_judged() {
    // t(8) = 18 ms: without the late one, the last rides in the next batch.
    let queue: Vec<_> = [(17_000, 1)].into_iter().chain([(20_000, 1); 8]).collect();
    assert_eq!(state(&queue).decide(), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn a_smaller_batch_never_makes_the_last_of_the_queue_late() {
    // Without the first, two batches end after 18 and 35 ms; behind it, after 29 and 46 ms.
    let queue: Vec<_> = [(11_000, 1)].into_iter().chain([(40_000, 1); 15]).collect();
    assert_eq!(state(&queue).decide(), shed(0..1, ShedReason::BatchTooLate));
    let patient: Vec<_> = [(11_000, 1)].into_iter().chain([(50_000, 1); 15]).collect();
    assert_eq!(state(&patient).decide(), release(1, ReleaseReason::Deadline));
}

#[test]
fn what_does_not_fit_into_the_next_batch_is_judged_by_the_one_after_it() {
    // Five rows and five do not share a batch of eight: the second ends after 15 + 15 ms.
    assert_eq!(state(&[(29_000, 5), (29_000, 5)]).decide(), shed(1..2, ShedReason::QueueTooLong));
    assert_eq!(state(&[(37_000, 5), (37_000, 5)]).decide(), release(1, ReleaseReason::Full));
}

#[test]
fn an_idle_second_is_enough_to_put_a_hopeless_estimate_to_the_test() {
    let hopeless = State { fit: Fit::line(0.5, 0.0, 1.0), ..state(&[(50_000, 1), (50_000, 1)]) };
    assert_eq!(hopeless.decide(), shed(0..1, ShedReason::BatchTooLate));
    assert_eq!(State { free_since: Instant::EPOCH, ..hopeless }.decide(), release(1, ReleaseReason::Probe));
}

#[test]
fn all_holds_for_one_batch_together_last_no_longer_than_a_batch_of_no_rows() {
    let renewed = |free_us, patience| {
        let mut held = State { free_since: NOW - us(free_us), ..state(&[(90_000, 1)]).patience(patience) };
        held.queue.insert(Entry::new(9, NOW, NOW + us(90_000)));
        held.decide()
    };
    // The newest, come now, would renew the hold for 7.5 ms. The first came 8 ms ago.
    assert_eq!(renewed(3000, 1.5), Decision::WaitUntil(NOW + us(7000)), "the runner came free 3 ms ago");
    assert_eq!(renewed(100_000, 1.5), Decision::WaitUntil(NOW + us(2000)), "it was free before");
    assert_eq!(renewed(100_000, 3.0), Decision::WaitUntil(NOW + us(10_000)), "each that comes renews its patience");
    assert_eq!(renewed(100_000, 1e9), Decision::WaitUntil(NOW + us(10_000)), "for an α at most");
}

#[test]
fn what_is_left_of_the_running_batch_counts_and_who_will_be_late_is_told_at_once() {
    assert_eq!(state(&[(15_999, 1)]).busy_for(5000).decide(), shed(0..1, ShedReason::BatchTooLate));
    let in_time = state(&[(16_000, 1)]).busy_for(5000).decide();
    assert_eq!(in_time, Decision::WaitUntil(NOW + us(5000) + Duration::from_nanos(1)));
}

#[test]
fn a_smaller_batch_leaves_the_time_of_a_batch_to_spare_for_those_who_will_come() {
    // Behind the smaller batch, the other ends after 11 + 15 ms; α is 10 ms.
    assert_eq!(state(&[(11_000, 1), (35_999, 5)]).decide(), shed(0..1, ShedReason::BatchTooLate));
    assert_eq!(state(&[(11_000, 1), (36_000, 5)]).decide(), release(1, ReleaseReason::Deadline));
}

#[test]
fn who_is_in_a_hurry_for_having_waited_does_not_shrink_the_batch() {
    let mut waited = state(&[]);
    for (id, age, rows) in [(0, 80_000, 1), (1, 0, 5)] {
        let arrival = NOW - us(age);
        waited.queue.insert(Entry { rows, ..Entry::new(id, arrival, arrival + us(91_000)) });
    }
    assert_eq!(waited.decide(), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn a_hopeless_estimate_is_put_to_the_test_after_four_batch_times_and_while_none_of_its_batches_runs() {
    let idle = |us_idle| State {
        fit: Fit::line(0.1, 0.0, 1.0),
        free_since: NOW - us(us_idle),
        ..state(&[(50_000, 1), (50_000, 1)])
    };
    assert_eq!(idle(399_999).decide(), shed(0..1, ShedReason::BatchTooLate));
    assert_eq!(idle(400_000).decide(), release(1, ReleaseReason::Probe));
    assert_eq!(idle(400_000).busy_for(60_000).decide(), shed(0..1, ShedReason::BatchTooLate));
    let mut beside = idle(400_000).busy_for(60_000);
    let on_two = |state: &State| bare(Cork.decide(NOW, View { runners: 2, ..state.view() }));
    assert_eq!(on_two(&beside), shed(0..1, ShedReason::BatchTooLate), "one test at a time");
    beside.running[0].lane = 1;
    assert_eq!(on_two(&beside), release(1, ReleaseReason::Probe), "it is another lane's batch that runs");
}

#[test]
fn a_burst_after_quiet_is_no_sign_of_a_stale_estimate() {
    // t(8) = 18 ms, t(1) = 11 ms.
    let burst = State { free_since: Instant::EPOCH, ..state(&[(17_000, 1); 8]) };
    assert_eq!(burst.decide(), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn of_a_clump_that_a_batch_makes_late_the_oldest_go_and_the_newest_stay() {
    // Six rows take 16 ms and five 15, so one stays, whoever that is: for a batch of its own after that, of 11.
    let clump =
        |first: u64, last: u64| state(&[(first, 1), (15_500, 1), (15_500, 1), (15_500, 1), (15_500, 1), (last, 1)]);
    assert_eq!(clump(15_000, 26_000).decide(), release(5, ReleaseReason::Full));
    assert_eq!(clump(14_999, 26_000).decide(), shed(0..1, ShedReason::BatchTooLate), "late beside four others as well");
    assert_eq!(
        clump(15_000, 25_999).decide(),
        shed(0..1, ShedReason::BatchTooLate),
        "who stays would be late all the same"
    );
}

#[test]
fn those_who_stay_of_a_clump_are_in_time_in_one_batch() {
    // 20 of 24 go, and who stays takes 14 ms after 30.
    let clump = |last: u64| state(&[[(30_000, 1); 20], [(last, 1); 20]].concat()[..24]);
    let decide = |state: State| bare(Cork.decide(NOW, View { max_batch: 64, ..state.view() }));
    assert_eq!(decide(clump(44_000)), release(20, ReleaseReason::Full));
    assert_eq!(decide(clump(43_999)), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn the_oldest_of_a_clump_go_only_with_twice_the_margin_for_noise() {
    // Five rows take 15 ms and 0.15 of margin.
    let decide = |first: u64| {
        let queue = [(first, 1), (15_500, 1), (15_500, 1), (15_500, 1), (15_500, 1), (27_000, 1)];
        State { fit: Fit::line(0.010, 0.001, 1.01), ..state(&queue) }.decide()
    };
    assert_eq!(decide(15_301), release(5, ReleaseReason::Full));
    assert_eq!(decide(15_299), shed(0..1, ShedReason::BatchTooLate));
}

#[test]
fn behind_a_running_batch_too_the_newest_of_a_clump_stay() {
    let queue = [[(20_500, 1); 5], [(31_000, 1); 5]].concat();
    let waiting = state(&queue[..6]).busy_for(5000).decide();
    assert_eq!(waiting, Decision::WaitUntil(after(NOW + us(5500))));
}

/// How many of so many single rows, all due in `within`, are released at once to idle runners.
fn released_of_a_clump(count: u64, runners: usize, max_batch: usize, fit: &Fit, within: Duration) -> usize {
    let mut state = State { fit: fit.clone(), ..state(&[]) };
    (0..count).for_each(|id| state.queue.insert(Entry::new(id, NOW, NOW + within)));
    let mut released = 0;
    while !state.queue.is_empty() {
        match Cork.decide(NOW, View { runners, max_batch, ..state.view() }) {
            Decision::Release { entries, .. } => {
                released += state.queue.remove(0..entries).count();
                let (ticket, expected) = (released as u64, fit.predict(entries));
                let waited = us(0);
                state.running.push(Running { ticket, lane: 0, since: NOW, entries, rows: entries, waited, expected });
            }
            Decision::Shed { entries, .. } => drop(state.queue.remove(entries)),
            _ => break,
        }
    }
    released
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_a_clump_idle_runners_answer_as_many_as_they_can(
        count in 1u64..300, runners in 1usize..9, max_batch in 1usize..150,
        base in 100u64..20_000, per_row in 1u64..1000, within in 5_000u64..100_000,
    ) {
        let fit = Fit::line(base as f64 * 1e-6, per_row as f64 * 1e-6, 1.0);
        let in_time = (within.saturating_sub(base) / per_row) as usize;
        prop_assume!(in_time > 0);
        let most = (runners * in_time.min(max_batch)).min(count as usize);
        let released = released_of_a_clump(count, runners, max_batch, &fit, us(within));
        prop_assert!(released >= most, "{released} of {most}");
    }
}
