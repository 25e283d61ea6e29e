//! What is promised to callers who are told apart, where all together ask for more than can be done.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use uncork_core::policy::{Caller, Cork};
use uncork_sim::{Arrival, Model, OpenLoop, Outcome, Process, Scenario, Service, Slot, run};

/// Requests a second, rows of each, and weight of one caller.
type Asks = (f64, usize, u32);

/// What a batch and each row of it take, rows of a batch, and the latency cap; times in ms.
type Kind = (f64, f64, usize, f64);

/// 1,000 rows a second in batches of 20.
const SMALL: Kind = (4.0, 0.8, 20, 100.0);

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// Half a minute of that model, for callers with the ids 1, 2 …, or for nobody in particular.
fn answered(callers: &[Asks], are_told_apart: bool) -> Outcome {
    answered_by(SMALL, callers, are_told_apart)
}

fn answered_by(kind: Kind, callers: &[Asks], are_told_apart: bool) -> Outcome {
    answered_within(kind, callers, &[], are_told_apart)
}

/// The same where the first of these callers have caps of their own, in ms.
fn answered_within(kind: Kind, callers: &[Asks], own_caps: &[f64], are_told_apart: bool) -> Outcome {
    let each = callers.iter().zip(1..).flat_map(|(&(rate, rows, weight), id)| {
        let caller = Caller { id, weight: NonZeroU32::new(weight).expect("above 0"), ..Caller::default() };
        let caller = if are_told_apart { caller } else { Caller::default() };
        let arrivals = Process::Poisson { rate }.arrivals(Duration::from_secs(30), id);
        let within = own_caps.get(id as usize - 1).map(|own| ms(*own));
        arrivals.map(move |arrival| Arrival { rows, caller, within, ..arrival })
    });
    answered_to(kind, each.collect())
}

fn answered_to((base, per_row, max_batch, cap): Kind, mut all: Vec<Arrival>) -> Outcome {
    let (service, way_back) = (Service::affine(ms(base), ms(per_row)), Duration::ZERO);
    let (max_latency, weight) = (ms(cap), NonZeroUsize::MIN);
    let model =
        Model { service, max_latency, max_batch, weight, policy: Box::new(Cork), tried: None, way_back, warm: true };
    all.sort_by_key(|arrival| arrival.at);
    let scenario = Scenario { runners: 1, models: vec![model], seed: 1, timer: Duration::ZERO };
    run(scenario, &mut OpenLoop::new(all)).remove(0)
}

/// The share of a caller's requests that was answered on time.
fn share(Slot { offered, on_time }: Slot) -> f64 {
    on_time as f64 / offered as f64
}

#[test]
fn who_asks_for_little_is_answered_whatever_another_asks_for() {
    for flood in [950.0, 1500.0, 4000.0, 20_000.0] {
        let callers = [(100.0, 1, 1), (flood, 1, 1)];
        let apart = answered(&callers, true);
        let light = share(apart.of_caller(1));
        assert!(light >= 0.995, "beside {flood} a second: {light}");
        let all = answered(&callers, false);
        assert!(all.of_caller(1).offered == 0 && share(total(&all)) < 1000.0 / (100.0 + flood) * 1.01);
        let lost = share(total(&all)) - share(total(&apart));
        assert!(lost < 0.005, "nothing is lost by it: {lost} beside {flood}");
    }
}

fn total(outcome: &Outcome) -> Slot {
    Slot { offered: outcome.offered, on_time: outcome.on_time }
}

#[test]
fn callers_who_ask_for_too_much_get_parts_by_their_weights_and_not_by_what_they_ask_for() {
    for (callers, parts) in [
        ([(1500.0, 1, 1), (3000.0, 1, 1)], 1.0),
        ([(1500.0, 1, 1), (10_000.0, 1, 1)], 1.0),
        ([(1500.0, 1, 3000), (1500.0, 1, 1000)], 3.0),
        ([(3000.0, 1, 1), (3000.0, 1, 4)], 0.25),
        // In rows: a request of ten is ten of one.
        ([(1500.0, 1, 1), (300.0, 10, 1)], 10.0),
    ] {
        let outcome = answered(&callers, true);
        let [first, second] = [1, 2].map(|id| outcome.of_caller(id).on_time as f64);
        let have = first / second;
        assert!((have / parts - 1.0).abs() < 0.1, "{have} to 1, and not {parts}, of {callers:?}");
    }
}

#[test]
fn what_the_light_ones_leave_is_shared_by_the_others() {
    let outcome = answered(&[(50.0, 1, 1), (200.0, 1, 1), (2000.0, 1, 1), (4000.0, 1, 1)], true);
    let [first, second, third, fourth] = [1, 2, 3, 4].map(|id| outcome.of_caller(id));
    assert!(share(first) > 0.995 && share(second) > 0.98, "{first:?} {second:?}");
    let ratio = third.on_time as f64 / fourth.on_time as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{third:?} {fourth:?}");
    assert!(third.on_time > 30 * 340, "of 1,000 a second, 250 are taken: {third:?}");
}

#[test]
fn so_is_he_where_few_batches_fit_into_the_cap() {
    for (kind, little, least, most_lost) in [
        ((8.0, 2.0, 16, 100.0), 20.0, 0.995, 0.005),
        ((8.0, 2.0, 16, 100.0), 100.0, 0.995, 0.005),
        ((80.0, 20.0, 16, 1000.0), 2.0, 0.995, 0.005),
        ((10.0, 1.0, 32, 90.0), 30.0, 0.995, 0.005),
        // Two full batches do not fit into this cap: to be in time he may need a smaller one, which costs others' answers.
        ((10.0, 1.0, 32, 70.0), 30.0, 0.92, 0.06),
    ] {
        let (base, per_row, rows, _) = kind;
        let capacity = 1e3 * rows as f64 / (base + per_row * rows as f64);
        for flood in [capacity, 2.0 * capacity, 10.0 * capacity] {
            let callers = [(little, 1, 1), (flood, 1, 1)];
            let (apart, all) = (answered_by(kind, &callers, true), answered_by(kind, &callers, false));
            let light = share(apart.of_caller(1));
            assert!(light >= least, "{kind:?} beside {flood} a second: {light}");
            let lost = (all.on_time as f64 - apart.on_time as f64) / all.on_time as f64;
            assert!(lost <= most_lost, "{kind:?} beside {flood} a second: {lost} are lost");
        }
    }
}

#[test]
fn so_is_he_beside_one_in_a_greater_hurry() {
    for (own, flood) in [(40.0, 1000.0), (40.0, 2000.0), (40.0, 10_000.0), (60.0, 2000.0), (60.0, 10_000.0)] {
        let outcome = answered_within(SMALL, &[(flood, 1, 1), (50.0, 1, 1)], &[own], true);
        let light = share(outcome.of_caller(2));
        assert!(light >= 0.995, "beside {flood} a second within {own} ms: {light}");
        assert!(outcome.on_time > 30 * 950, "what the light one leaves is not lost: {}", outcome.on_time);
    }
}

/// Of 1,000 a second; what each is answered, by max-min fairness.
#[test]
fn to_give_ones_requests_less_time_is_no_way_to_a_larger_part() {
    for own in [40.0, 60.0, 80.0] {
        for (hurried, other, expected) in [
            (2000.0, 2000.0, [500.0, 500.0]),
            (1000.0, 1000.0, [500.0, 500.0]),
            (10_000.0, 2000.0, [500.0, 500.0]),
            (600.0, 2000.0, [500.0, 500.0]),
            (2000.0, 400.0, [600.0, 400.0]),
        ] {
            let outcome = answered_within(SMALL, &[(hurried, 1, 1), (other, 1, 1)], &[own], true);
            let found = [1, 2].map(|id| outcome.of_caller(id).on_time as f64 / 30.0);
            let is_near = |(found, expected): (f64, f64)| (found / expected - 1.0).abs() < 0.1;
            assert!(found.into_iter().zip(expected).all(is_near), "{hurried} within {own} ms and {other}: {found:?}");
        }
    }
}

/// Alone he had all. From then on each has a half, and what was given before is soon made up for.
#[test]
fn what_somebody_was_given_while_nobody_else_asked_is_not_held_against_him_for_long() {
    let half = Duration::from_secs(15);
    let flood = |id, from: Duration, until: Duration| {
        let arrivals = Process::Poisson { rate: 2000.0 }.arrivals(until - from, id);
        arrivals.map(move |a| Arrival { at: a.at + from, caller: Caller { id, ..Caller::default() }, ..a })
    };
    let arrivals = flood(1, Duration::ZERO, 2 * half).chain(flood(2, half, 2 * half));
    let outcome = answered_to(SMALL, arrivals.collect());
    let [first, second] = [1, 2].map(|id| outcome.of_caller(id).on_time);
    assert!((22_100..=22_550).contains(&first) && (7400..=7900).contains(&second), "{first} and {second}");
}
