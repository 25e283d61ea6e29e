//! The front: its laws, and a reader with a queue in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use uncork_core::estimator::Instant;
use uncork_core::front::{Front, Gate, LEAST_SHARE, Verdict, Wait, Why};
use uncork_core::policy::Caller;

const CAP: Duration = Duration::from_millis(50);
/// What it takes to read a request.
const READING: Duration = Duration::from_micros(25);

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// A wait in the reader's queue alone.
fn waited(micros: u64) -> Wait {
    let queued = Duration::from_micros(micros);
    Wait { whole: queued, queued }
}

/// What came of a load on one reader that takes what came first.
#[derive(Debug, Default)]
struct Outcome {
    offered: u64,
    on_time: u64,
    late: u64,
    /// Waits of those refused, in microseconds.
    refused: Vec<u64>,
}

impl Outcome {
    /// Of so many thousandths of the refused, none waited longer.
    fn refused_within(&self, thousandths: usize) -> u64 {
        let mut waits = self.refused.clone();
        waits.sort_unstable();
        waits.get((waits.len() * thousandths / 1000).min(waits.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

/// Simulates a reader to whom requests come at the rates of `steps` (a second, seconds), evenly but for clumps of `clump`, and
/// to whom reading one costs `read` and refusing one `refuse` microseconds. Counts from the second `from` on.
fn simulate(steps: &[(f64, f64)], clump: u64, read: u64, refuse: u64, from: f64) -> Outcome {
    let mut arrivals = Vec::new();
    let mut begin = 0.0;
    for &(rate, seconds) in steps {
        let clumps = (rate * seconds / clump as f64) as u64;
        for i in 0..clumps {
            let when = begin + i as f64 * clump as f64 / rate;
            arrivals.extend(std::iter::repeat_n((when * 1e6) as u64, clump as usize));
        }
        begin += seconds;
    }
    let (mut front, mut gate, mut free, mut outcome) = (Front::default(), Gate::default(), 0, Outcome::default());
    let mut queue: VecDeque<u64> = arrivals.into();
    while let Some(arrival) = queue.pop_front() {
        let now = free.max(arrival);
        let counts = arrival as f64 >= from * 1e6;
        outcome.offered += u64::from(counts);
        let way = gate.way(at(now), CAP);
        match front.judge(at(now), waited(now - arrival), CAP, way) {
            Verdict::Read => {
                free = now + read;
                gate.answered(Duration::from_micros(read));
                let is_on_time = free - arrival <= CAP.as_micros() as u64;
                outcome.on_time += u64::from(counts && is_on_time);
                outcome.late += u64::from(counts && !is_on_time);
            }
            Verdict::Refuse(_) => {
                free = now + refuse;
                if counts {
                    outcome.refused.push(free - arrival);
                }
            }
        }
    }
    outcome
}

#[test]
fn below_its_capacity_nothing_is_refused() {
    let outcome = simulate(&[(19_000.0, 5.0)], 10, 50, 5, 0.0);
    assert_eq!(outcome.on_time, outcome.offered);
}

#[test]
fn a_burst_that_can_be_answered_in_time_is() {
    // 800 requests at once need 40 of the 50 ms.
    let outcome = simulate(&[(4_000.0, 5.0)], 800, 50, 5, 0.0);
    assert_eq!(outcome.on_time, outcome.offered);
}

#[test]
fn beyond_its_capacity_it_works_at_it_and_refuses_the_rest_early() {
    for factor in [1.1, 1.5, 2.0, 4.0] {
        let rate = 20_000.0 * factor;
        let outcome = simulate(&[(rate, 5.0)], 1, 50, 5, 1.0);
        // What reading is left when every other request is refused.
        let possible = 4.0 * (1e6 - 5.0 * rate) / 45.0;
        assert!(outcome.on_time as f64 > 0.95 * possible, "{factor}: {} of {possible}", outcome.on_time);
        assert_eq!(outcome.late, 0, "{factor}");
        assert!(outcome.refused_within(990) <= 10_000, "{factor}: {} us", outcome.refused_within(990));
    }
}

#[test]
fn a_quarter_of_a_second_behind_an_overload_all_are_answered() {
    let outcome = simulate(&[(60_000.0, 2.0), (16_000.0, 2.0)], 1, 50, 5, 2.25);
    assert_eq!(outcome.on_time, outcome.offered);
}

#[test]
fn an_overload_is_met_within_a_few_windows() {
    let outcome = simulate(&[(10_000.0, 1.0), (40_000.0, 0.5)], 1, 50, 5, 1.0);
    let possible = 0.5 * (1e6 - 5.0 * 40_000.0) / 45.0;
    assert!(outcome.on_time as f64 > 0.9 * possible, "{} of {possible}", outcome.on_time);
}

#[test]
fn what_is_late_in_any_case_is_refused_also_by_an_idle_reader() {
    let mut front = Front::default();
    assert_eq!(front.judge(at(60_000), waited(60_000), CAP, Duration::ZERO), Verdict::Refuse(Why::Late));
    assert_eq!(front.judge(at(100_000), waited(0), CAP, Duration::ZERO), Verdict::Read);
}

#[test]
fn a_way_is_forgotten_where_nobody_has_shown_it_for_a_window_or_two() {
    let mut gate = Gate::default();
    let mut way = |ms: u64, took: Option<u64>| {
        let way = gate.way(at(ms * 1000), CAP);
        took.map(Duration::from_millis).into_iter().for_each(|took| gate.answered(took));
        way.as_millis()
    };
    // None is known before a window has ended; then the quickest counts.
    assert_eq!([way(0, Some(45)), way(10, Some(48)), way(26, Some(49))], [0, 0, 45]);
    // One in which nobody was answered, since all were refused for the way, says nothing any more.
    assert_eq!([way(52, None), way(60, None), way(78, None)], [49, 49, 0]);
    assert_eq!([way(79, Some(45)), way(104, None), way(1000, None)], [0, 45, 0]);
}

/// A model behind the gate that answers or refuses each request a delay after it was let through: as many as it can in each
/// millisecond, from the second `from` on. Returns offered, let through, answered.
fn behind_a_gate(steps: &[(u64, u64)], capacity_per_ms: u64, delay_ms: u64, from_ms: u64) -> [u64; 3] {
    let (mut gate, mut counts) = (Gate::default(), [0; 3]);
    let mut ends: VecDeque<(u64, u64, u64)> = VecDeque::new();
    let mut now = 0;
    for &(per_ms, ms) in steps {
        for _ in 0..ms {
            while ends.front().is_some_and(|&(when, ..)| when <= now) {
                let Some((_, answered, refused)) = ends.pop_front() else { break };
                (0..answered).for_each(|_| gate.answered(Duration::from_millis(delay_ms)));
                (0..refused).for_each(|_| gate.refused(READING));
            }
            let through = (0..per_ms)
                .filter(|_| gate.judge(at(now * 1000), CAP, Caller::default()) == Verdict::Read)
                .count() as u64;
            let answered = through.min(capacity_per_ms);
            ends.push_back((now + delay_ms, answered, through - answered));
            if now >= from_ms {
                counts = [counts[0] + per_ms, counts[1] + through, counts[2] + answered];
            }
            now += 1;
        }
    }
    counts
}

#[test]
fn as_many_pass_as_the_model_answers_and_a_few_more() {
    for (per_ms, delay_ms) in [(21, 5), (30, 40), (60, 40), (100, 20)] {
        let [_, through, answered] = behind_a_gate(&[(per_ms, 3000)], 20, delay_ms, 500);
        assert!(answered >= 2500 * 17, "{per_ms}: {answered} answered of {}", 2500 * 20);
        assert!(through as f64 <= 1.25 * answered as f64, "{per_ms}: {through} let through for {answered}");
    }
}

#[test]
fn the_gate_opens_within_a_few_windows_when_the_model_can_do_again() {
    let [offered, through, _] = behind_a_gate(&[(80, 1000), (16, 1500)], 20, 40, 1500);
    assert_eq!(through, offered);
    let [offered, through, _] = behind_a_gate(&[(19, 2000)], 20, 40, 0);
    assert_eq!(through, offered, "nothing is held back without a refusal");
}

#[test]
fn a_model_that_refuses_all_is_still_asked() {
    let [_, through, _] = behind_a_gate(&[(10, 2000)], 0, 5, 1000);
    assert!((20..3000).contains(&through), "{through} of 10,000");
}

/// A model that answers `batch` requests every `every_ms`, those that came first of what was let through since, and refuses the others then:
/// what is let through and answered of `factor` times as much, after two seconds of ten.
fn in_batches(factor: u64, batch: u64, every_ms: u64) -> [u64; 2] {
    let (mut gate, mut counts, mut waiting) = (Gate::default(), [0; 2], 0);
    for now in 1..=10_000 {
        let per_ms = factor as f64 * batch as f64 / every_ms as f64;
        let offered = (now as f64 * per_ms) as u64 - ((now - 1) as f64 * per_ms) as u64;
        let read = (0..offered).filter(|_| gate.judge(at(now * 1000), CAP, Caller::default()) == Verdict::Read).count();
        waiting += read as u64;
        counts[0] += if now > 2000 { read as u64 } else { 0 };
        if now % every_ms == 0 {
            let answered = waiting.min(batch);
            (0..answered).for_each(|_| gate.answered(Duration::from_millis(every_ms)));
            (answered..waiting).for_each(|_| gate.refused(READING * 8));
            counts[1] += if now > 2000 { answered } else { 0 };
            waiting = 0;
        }
    }
    counts
}

#[test]
fn a_model_that_answers_in_batches_is_no_less_protected() {
    for (factor, batch, every_ms) in [(2, 8, 16), (5, 8, 16), (2, 64, 40), (5, 64, 40), (3, 16, 7), (2, 128, 9)] {
        let [through, answered] = in_batches(factor, batch, every_ms);
        let possible = 8000 * batch / every_ms;
        let (of_possible, of_through) = (answered as f64 / possible as f64, answered as f64 / through as f64);
        assert!(of_possible > 0.9 && of_through > 0.6, "{factor} {batch} {every_ms}: {of_possible:.2} {of_through:.2}");
    }
}

/// The share that is let through of 30 requests in each millisecond, of which the model refuses so many in a hundred whatever comes, a
/// delay later; without the first second.
fn refused_in_any_case(in_hundred: u64, delay_ms: u64) -> f64 {
    let (mut gate, mut through) = (Gate::default(), 0);
    let mut ends: VecDeque<u64> = VecDeque::new();
    for now in 0..5000 {
        if ends.len() as u64 > delay_ms {
            let ended = ends.pop_front().expect("one for each millisecond");
            for i in 0..ended {
                match (now * 7 + i * 31) % 100 < in_hundred {
                    true => gate.refused(READING),
                    false => gate.answered(Duration::from_millis(delay_ms)),
                }
            }
        }
        let read = (0..30).filter(|_| gate.judge(at(now * 1000), CAP, Caller::default()) == Verdict::Read).count();
        ends.push_back(read as u64);
        through += if now >= 1000 { read } else { 0 };
    }
    through as f64 / (4000.0 * 30.0)
}

/// The share that is let through of `per_s` requests a second where the machine stands still for `still_ms` in every 100 ms, and all that come
/// then are refused, each after `reading`; of the other requests none is.
fn on_a_machine_that_stands_still(per_s: u64, still_ms: u64, reading: Duration) -> f64 {
    let (mut gate, mut offered, mut through) = (Gate::default(), 0, 0);
    for now in 0..10_000 {
        for _ in 0..((now + 1) * per_s / 1000 - now * per_s / 1000) {
            offered += 1;
            if gate.judge(at(now * 1000), CAP, Caller::default()) == Verdict::Read {
                through += 1;
                match now % 100 < still_ms {
                    true => gate.refused(reading),
                    false => gate.answered(Duration::from_millis(8)),
                }
            }
        }
    }
    through as f64 / offered as f64
}

#[test]
fn the_gate_stays_open_where_reading_in_vain_costs_nearly_nothing() {
    for (per_s, still_ms) in [(300, 30), (700, 30), (700, 60), (1500, 50)] {
        let through = on_a_machine_that_stands_still(per_s, still_ms, READING);
        assert_eq!(through, 1.0, "{per_s}/s, still for {still_ms} of 100 ms");
        let costly = on_a_machine_that_stands_still(per_s, still_ms, Duration::from_millis(1));
        assert!(costly < 1.0, "{per_s}/s, still for {still_ms} of 100 ms: a millisecond each is not for nothing");
    }
}

#[test]
fn the_gate_stays_open_where_fewer_would_be_refused_just_as_well() {
    for (in_hundred, delay_ms) in [(8, 10), (20, 10), (20, 40), (50, 20)] {
        let through = refused_in_any_case(in_hundred, delay_ms);
        assert!(through > 0.85, "{in_hundred} % after {delay_ms} ms: {through}");
    }
}

#[test]
fn whoever_comes_alone_is_let_through_whatever_happened_before() {
    for silence_ms in [60, 1000] {
        let mut gate = Gate::default();
        for now in 0..1000 {
            if gate.judge(at(now * 1000), CAP, Caller::default()) == Verdict::Read {
                gate.refused(READING);
            }
        }
        let alone = gate.judge(at((1000 + silence_ms) * 1000), CAP, Caller::default());
        assert_eq!(alone, Verdict::Read, "{silence_ms} ms after a model that refused all");
    }
}

/// Callers with weights, each offering so many requests in each millisecond, behind one gate of a model that answers 20 of them
/// a delay later, whoever comes first, and refuses the others. Returns what each offered and was answered after a second.
fn shared(callers: &[(u32, u64)]) -> Vec<(u64, u64)> {
    let (mut gate, mut counts) = (Gate::default(), vec![(0, 0); callers.len()]);
    let mut ends: VecDeque<(u64, u64)> = VecDeque::new();
    for now in 0..4000 {
        if now >= 20 {
            let (answered, refused) = ends.pop_front().expect("one for each millisecond");
            (0..answered).for_each(|_| gate.answered(Duration::from_millis(20)));
            (0..refused).for_each(|_| gate.refused(READING * 8));
        }
        let mut through = Vec::new();
        let most = callers.iter().map(|&(_, per_ms)| per_ms).max().unwrap_or(0);
        for i in 0..most {
            for (id, &(weight, per_ms)) in callers.iter().enumerate() {
                let caller =
                    Caller { id: 1 + id as u64, weight: weight.try_into().expect("above 0"), ..Caller::default() };
                if i < per_ms && gate.judge(at(now * 1000), CAP, caller) == Verdict::Read {
                    through.push(id);
                }
            }
        }
        // The model does not know them apart: each is as likely to be among the last.
        let turn = (now as usize * 7) % through.len().max(1);
        through.rotate_left(turn);
        let answered = through.len().min(20);
        ends.push_back((answered as u64, (through.len() - answered) as u64));
        if now >= 1000 {
            for (id, &(_, per_ms)) in callers.iter().enumerate() {
                counts[id].0 += per_ms;
                counts[id].1 += through[..answered].iter().filter(|&&of| of == id).count() as u64;
            }
        }
    }
    counts
}

#[test]
fn a_caller_who_asks_for_little_is_answered_whatever_another_asks_for() {
    for flood in [40, 100, 400] {
        let counts = shared(&[(1, 4), (1, flood)]);
        let [(asked, answered), (_, flooder)] = counts[..] else { panic!("two callers") };
        assert!(answered as f64 >= 0.85 * asked as f64, "{flood}: {answered} of {asked}");
        assert!(answered + flooder >= 3000 * 17, "{flood}: what one leaves is the other's: {flooder}");
    }
}

#[test]
fn those_who_ask_for_too_much_share_by_their_weights() {
    let counts = shared(&[(1, 100), (3, 100)]);
    let ratio = counts[1].1 as f64 / counts[0].1 as f64;
    assert!((2.5..3.5).contains(&ratio), "{counts:?}");
    let equals = shared(&[(1, 30), (1, 300)]);
    let ratio = equals[1].1 as f64 / equals[0].1 as f64;
    assert!((0.8..1.25).contains(&ratio), "{equals:?}");
}

proptest! {
    #[test]
    fn no_sequence_of_times_makes_it_refuse_the_fresh_or_read_the_late(
        steps in proptest::collection::vec((0u64..30_000, 0u64..120_000, 0u64..120_000, 0u64..60_000), 1..200),
    ) {
        let (mut front, mut gate, mut now) = (Front::default(), Gate::default(), 0);
        for (gap, queued, behind, took) in steps {
            now += gap;
            let (Wait { queued, .. }, same) = (waited(queued), front.clone());
            let wait = Wait { whole: queued + Duration::from_micros(behind), queued };
            let way = gate.way(at(now), CAP);
            let verdict = front.judge(at(now), wait, CAP, way);
            let mut again = same;
            prop_assert_eq!(again.judge(at(now), wait, CAP, way), verdict, "equal inputs, equal verdict");
            if wait.whole > CAP {
                prop_assert_eq!(verdict, Verdict::Refuse(Why::Late));
            }
            if queued <= CAP.mul_f64(LEAST_SHARE) {
                prop_assert_ne!(verdict, Verdict::Refuse(Why::Overload));
            }
            gate.answered(Duration::from_micros(took));
        }
    }

    #[test]
    fn whatever_the_load_what_is_read_is_in_time_and_the_reader_does_not_idle(
        factor in 1.2f64..6.0, clump in 1u64..60, read in 20u64..200, refuse in 1u64..10,
    ) {
        let rate = factor * 1e6 / read as f64;
        // Where refusing alone takes more than half of the time, it cannot be helped.
        prop_assume!(rate * (refuse as f64) < 5e5);
        let outcome = simulate(&[(rate, 3.0)], clump, read, refuse, 1.0);
        let possible = 2.0 * (1e6 - refuse as f64 * rate) / (read - refuse) as f64;
        prop_assert_eq!(outcome.late, 0);
        prop_assert!(outcome.on_time as f64 > 0.85 * possible, "{} of {}", outcome.on_time, possible);
    }
}
