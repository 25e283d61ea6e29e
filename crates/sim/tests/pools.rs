//! Several models on one pool: what is promised to those whose callers are in a hurry.

use std::num::NonZeroUsize;
use std::time::Duration;

use uncork_core::estimator::Instant;
use uncork_core::policy::Cork;
use uncork_sim::{Arrival, Model, OpenLoop, Outcome, Process, Scenario, Service, run};

/// t(n) = base + per_row · n, caps in rows and ms; and its callers, as a share of what the pool can do of it in full batches.
struct Setup {
    base_ms: f64,
    per_row_ms: f64,
    max_batch: usize,
    max_latency_ms: f64,
    load: f64,
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// On time in per cent of the requests, and answers that came late, of each model.
fn fates<const MODELS: usize>(setups: &[Setup; MODELS], runners: usize) -> [(f64, u64); MODELS] {
    outcomes(setups, runners, 10).map(|o| (o.on_time as f64 / o.offered as f64 * 100.0, o.late))
}

fn outcomes<const MODELS: usize>(setups: &[Setup; MODELS], runners: usize, seconds: u64) -> [Outcome; MODELS] {
    let arrivals = |(model, setup): (usize, &Setup)| {
        let full = (setup.base_ms + setup.per_row_ms * setup.max_batch as f64) / 1e3;
        let rate = setup.load * runners as f64 * setup.max_batch as f64 / full;
        let process = Process::Poisson { rate };
        process
            .arrivals(Duration::from_secs(seconds), 1 + model as u64)
            .map(move |arrival| Arrival { model, ..arrival })
    };
    run_all(setups, runners, setups.iter().enumerate().flat_map(arrivals).collect())
}

fn run_all<const MODELS: usize>(setups: &[Setup; MODELS], runners: usize, all: Vec<Arrival>) -> [Outcome; MODELS] {
    run_noisy(setups, runners, all, 0.0)
}

/// `noise` is the standard deviation of the batch times over their mean.
fn run_noisy<const MODELS: usize>(
    setups: &[Setup; MODELS],
    runners: usize,
    mut all: Vec<Arrival>,
    noise: f64,
) -> [Outcome; MODELS] {
    all.sort_by_key(|arrival| arrival.at);
    let model = |setup: &Setup| Model {
        service: Service { jitter: noise, ..Service::affine(ms(setup.base_ms), ms(setup.per_row_ms)) },
        max_latency: ms(setup.max_latency_ms),
        max_batch: setup.max_batch,
        weight: NonZeroUsize::MIN,
        policy: Box::new(Cork),
        tried: None,
        way_back: Duration::ZERO,
        warm: true,
    };
    let models = setups.iter().map(model).collect();
    let outcomes = run(Scenario { runners, models, seed: 7, timer: Duration::ZERO }, &mut OpenLoop::new(all));
    outcomes.try_into().expect("one for each model")
}

/// Callers who give it 30 ms.
fn quick(load: f64) -> Setup {
    Setup { base_ms: 2.0, per_row_ms: 0.05, max_batch: 64, max_latency_ms: 30.0, load }
}

/// Full batches take 123 ms.
fn long(load: f64) -> Setup {
    Setup { base_ms: 3.0, per_row_ms: 0.94, max_batch: 128, max_latency_ms: 500.0, load }
}

#[test]
fn no_flood_pushes_another_model_past_its_cap_however_many_runners_it_floods() {
    for runners in [1, 2, 4, 8, 16] {
        let [(on_time, late), (flood, _)] = fates(&[quick(0.2), long(3.0)], runners);
        assert!(on_time >= 98.0 && late == 0, "{runners} runners: {on_time:.1} %, {late} late");
        assert!(flood > 20.0, "{runners} runners: what is left is the flood's: {flood:.1} %");
    }
}

#[test]
fn a_flood_of_rows_longer_than_another_cap_does_not_take_the_runner_from_a_batch_held_back() {
    // One row of the flood takes longer than the others give. They hold their batches back, and would lose a runner by it each time.
    for (runners, max_latency_ms, load) in [(2, 5.9, 0.1), (2, 8.0, 0.15), (4, 5.9, 0.2), (8, 5.9, 0.15)] {
        let light = Setup { base_ms: 2.7, per_row_ms: 0.03, max_batch: 32, max_latency_ms, load };
        let flood = Setup { base_ms: 7.2, per_row_ms: 0.0, max_batch: 1, max_latency_ms: 21.0, load: 9.0 };
        let [(on_time, late), (part, _)] = fates(&[light, flood], runners);
        assert!(on_time >= 97.0 && late == 0, "{runners} runners, {max_latency_ms} ms: {on_time:.1} %, {late} late");
        assert!(part * 9.0 >= 48.0, "{runners} runners: the flood has its half of the pool: {:.1} %", part * 9.0);
    }
}

#[test]
fn of_a_flood_whose_rows_are_longer_than_others_can_wait_a_runner_is_kept_free() {
    // Four models on four runners. Two flood: a row of theirs takes longer than the first can wait, and they use what the first and the last leave.
    // Once they have all runners, the first finds none in time.
    let hurried = Setup { base_ms: 5.4, per_row_ms: 0.6, max_batch: 4, max_latency_ms: 13.8, load: 0.0741 };
    let long = Setup { base_ms: 9.21, per_row_ms: 21.5, max_batch: 64, max_latency_ms: 187.0, load: 3.52 };
    let middling = Setup { base_ms: 2.28, per_row_ms: 5.33, max_batch: 64, max_latency_ms: 13.6, load: 0.706 };
    let many = Setup { base_ms: 3.62, per_row_ms: 0.04, max_batch: 128, max_latency_ms: 33.7, load: 0.1025 };
    let fates = fates(&[hurried, long, middling, many], 4);
    assert!(fates[0].0 >= 94.0 && fates[3].0 >= 98.0, "{fates:.1?}");
    assert!(fates[1].0 >= 7.0 && fates[2].0 >= 22.0, "what is left is the floods': {fates:.1?}");
}

/// On time in per cent, of groups of so many requests, and of a second model.
fn fates_of_groups(grouped: Setup, size: usize, groups: f64, other: Setup, noise: f64, runners: usize) -> [f64; 2] {
    let length = Duration::from_secs(10);
    let mut all: Vec<Arrival> = Process::FanOut { groups, size, spread: Duration::ZERO }.arrivals(length, 1).collect();
    let rate = other.load * runners as f64 * other.max_batch as f64;
    let rate = rate / (other.base_ms + other.per_row_ms * other.max_batch as f64) * 1e3;
    all.extend(Process::Poisson { rate }.arrivals(length, 2).map(|arrival| Arrival { model: 1, ..arrival }));
    let outcomes = run_noisy(&[grouped, other], runners, all, noise);
    outcomes.map(|outcome| outcome.on_time as f64 / outcome.offered as f64 * 100.0)
}

#[test]
fn free_runners_share_a_group_beside_a_model_that_hardly_anybody_asks() {
    // Eight rows take longer than they can wait, and four on each of two runners do not. Thirty-two take all runners at once. With noise, six in
    // a batch are late as well.
    for (size, least) in [(8, 98.0), (32, 88.0)] {
        let idle = Setup { base_ms: 9.0, per_row_ms: 0.0, max_batch: 4, max_latency_ms: 40.0, load: 0.0002 };
        let grouped = Setup { base_ms: 1.4, per_row_ms: 0.35, max_batch: 8, max_latency_ms: 3.5, load: 0.0 };
        let [on_time, _] = fates_of_groups(grouped, size, 1200.0 / size as f64, idle, 0.02, 8);
        assert!(on_time >= least, "groups of {size}: {on_time:.1} %");
    }
}

#[test]
fn whoever_has_used_little_of_its_share_is_not_refused_as_if_it_had_no_more() {
    // Eight batches take 15 of the 25 ms, once in 300 ms. The flood has had more than its share by then, and goes behind.
    let grouped = Setup { base_ms: 1.02, per_row_ms: 0.11, max_batch: 8, max_latency_ms: 25.0, load: 0.0 };
    let flood = Setup { base_ms: 7.42, per_row_ms: 0.83, max_batch: 1, max_latency_ms: 61.9, load: 3.0 };
    let [on_time, part] = fates_of_groups(grouped, 64, 3.0, flood, 0.0, 1);
    assert!(on_time >= 90.0, "{on_time:.1} %");
    assert!(part * 3.0 >= 90.0, "the flood has the rest: {:.1} %", part * 3.0);
}

#[test]
fn a_flood_leaves_those_their_batch_whose_batches_take_most_of_their_time() {
    // Sixteen rows of the first take 66 of its 88 ms. Batches of eight of the second leave it those, and cost the second nothing.
    let grouped = Setup { base_ms: 0.0, per_row_ms: 4.1, max_batch: 32, max_latency_ms: 87.5, load: 0.0 };
    let flood = Setup { base_ms: 0.0, per_row_ms: 2.73, max_batch: 128, max_latency_ms: 444.0, load: 4.0 };
    let [on_time, part] = fates_of_groups(grouped, 16, 3.7, flood, 0.0, 1);
    assert!(on_time >= 65.0, "{on_time:.1} %");
    assert!(part * 4.0 >= 75.0, "{:.1} %", part * 4.0);
}

#[test]
fn two_models_that_both_can_be_served_are() {
    // The second is within its share, the first beyond it, as it runs small batches while nobody is in its way.
    for (on_time, late) in fates(&[quick(0.2), long(0.4)], 1) {
        assert!(on_time >= 98.5 && late == 0, "{on_time:.1} %, {late} late");
    }
}

#[test]
fn who_asks_for_more_than_its_share_yields_where_more_others_are_in_time_for_it() {
    // Nine tenths of the runner. Larger batches would serve the second sooner, and leave callers of the first no time.
    let [(hurried, late), (flood, _)] = fates(&[quick(0.2), long(0.7)], 1);
    assert!(hurried >= 98.0 && late == 0, "{hurried:.1} %, {late} late");
    assert!(flood >= 94.0, "{flood:.1} %");
}

/// Callers who give it 50 ms, and full batches that take 148.
fn quick_beside_heavy(quick: f64, heavy: f64) -> [Setup; 2] {
    [
        Setup { base_ms: 5.0, per_row_ms: 0.2, max_batch: 64, max_latency_ms: 50.0, load: quick },
        Setup { base_ms: 20.0, per_row_ms: 0.5, max_batch: 256, max_latency_ms: 1000.0, load: heavy },
    ]
}

#[test]
fn who_asks_for_more_than_its_share_yields_though_it_loses_some_more_rows_than_others_gain() {
    let [(hurried, late), (flood, _)] = fates(&quick_beside_heavy(0.2, 0.7), 1);
    assert!(hurried >= 94.0 && late == 0, "{hurried:.1} %, {late} late");
    assert!(flood >= 38.0, "{flood:.1} %");
}

#[test]
fn who_asks_for_more_than_its_share_need_not_yield_where_the_others_mostly_find_a_runner() {
    let [(hurried, _), (flood, late)] = fates(&quick_beside_heavy(0.3, 0.6), 4);
    assert!(hurried >= 96.0, "{hurried:.1} %");
    assert!(flood >= 96.0 && late == 0, "{flood:.1} %, {late} late");
}

#[test]
fn a_model_that_is_hardly_asked_for_costs_another_few_of_its_callers() {
    // A full batch of the second takes three times the first one's cap, and small ones would not keep up.
    let [(hurried, _), (busy, late)] = fates(&quick_beside_heavy(0.01, 0.7), 1);
    assert!(busy >= 98.0 && late == 0, "{busy:.1} %, {late} late");
    assert!(hurried >= 70.0, "{hurried:.1} %");
}

#[test]
fn of_many_models_none_is_refused_for_what_the_others_might_take() {
    // Ten of different speeds and caps ask for three quarters of two runners. Who is in the greatest hurry often finds all of them before it.
    let setup = |i: usize| {
        let slower = i as f64;
        let (base_ms, per_row_ms) = (4.0 + slower, 0.5 + 0.1 * slower);
        Setup { base_ms, per_row_ms, max_batch: 32, max_latency_ms: 80.0 + 20.0 * slower, load: 0.075 }
    };
    let fates = fates(&std::array::from_fn::<_, 10, _>(setup), 2);
    assert!(fates.iter().all(|(on_time, late)| *on_time >= 97.5 && *late == 0), "{fates:.1?}");
}

#[test]
fn queues_that_stand_are_made_shorter_by_what_each_has_of_the_pool() {
    // Each has half: its batches start half as often as they would alone, and so one that waits for nothing costs twice the time.
    let flood = || Setup { base_ms: 2.0, per_row_ms: 0.05, max_batch: 128, max_latency_ms: 50.0, load: 1.5 };
    for outcome in outcomes(&[flood(), flood()], 1, 60) {
        let (mean, share) = (outcome.mean_latency(), outcome.on_time as f64 / outcome.offered as f64);
        assert!(mean < ms(36.0) && share > 0.33, "{mean:?}, and 40 ms if each had all of it; {share:.3} of a third");
    }
}

#[test]
fn who_has_time_waits_for_more_rows_while_callers_in_more_of_a_hurry_are_refused() {
    // A batch of the second takes longer than callers of the first wait. Sent whenever a runner is free, with two or three rows each, its batches
    // would keep three quarters of both runners busy, with a tenth of what these can do.
    let hurried = Setup { base_ms: 1.3, per_row_ms: 0.3, max_batch: 16, max_latency_ms: 3.6, load: 0.38 };
    let patient = Setup { base_ms: 4.7, per_row_ms: 0.2, max_batch: 64, max_latency_ms: 48.0, load: 0.1 };
    let [(hurried, _), (patient, late)] = fates(&[hurried, patient], 2);
    assert!(hurried >= 65.0, "{hurried:.1} %");
    assert!(patient >= 99.9 && late == 0, "{patient:.1} %, {late} late");
}

#[test]
fn who_has_much_time_waits_for_many_rows() {
    // At some 23 rows a batch the second leaves the first enough. It had batches of five, and the first 39 % on time.
    let hurried = Setup { base_ms: 2.0, per_row_ms: 0.02, max_batch: 32, max_latency_ms: 8.0, load: 0.0248 };
    let patient = Setup { base_ms: 20.0, per_row_ms: 0.06, max_batch: 64, max_latency_ms: 500.0, load: 0.0745 };
    let [(hurried, _), (patient, late)] = fates(&[hurried, patient], 1);
    assert!(hurried >= 80.0, "{hurried:.1} %");
    assert!(patient >= 99.9 && late == 0, "{patient:.1} %, {late} late");
}

#[test]
fn nobody_waits_for_others_who_have_all_they_need() {
    let pool = [
        Setup { base_ms: 3.55, per_row_ms: 0.06, max_batch: 16, max_latency_ms: 12.9, load: 0.27 },
        Setup { base_ms: 1.41, per_row_ms: 0.52, max_batch: 32, max_latency_ms: 37.1, load: 0.19 },
        Setup { base_ms: 2.27, per_row_ms: 0.16, max_batch: 16, max_latency_ms: 18.2, load: 0.12 },
    ];
    let outcomes = outcomes(&pool, 4, 10);
    assert!(outcomes.iter().all(|outcome| outcome.on_time * 1000 >= outcome.offered * 998));
    let patient = outcomes[1].mean_latency();
    assert!(patient < ms(6.5), "{patient:?}, and 12 ms if it waited for others");
}

#[test]
fn nobody_waits_for_others_whom_no_time_would_be_left_for() {
    // A row of the first takes longer than its callers wait: all are refused, whatever the second does.
    let hopeless = Setup { base_ms: 5.0, per_row_ms: 0.1, max_batch: 8, max_latency_ms: 4.0, load: 0.015 };
    let patient = Setup { base_ms: 0.4, per_row_ms: 0.02, max_batch: 64, max_latency_ms: 100.0, load: 0.015 };
    let [hopeless, patient] = outcomes(&[hopeless, patient], 1, 10);
    assert_eq!((hopeless.on_time, patient.on_time), (0, patient.offered));
    assert!(patient.mean_latency() < ms(1.5), "{:?}", patient.mean_latency());
}

#[test]
fn who_waits_for_others_is_not_late_behind_those_who_go_meanwhile() {
    // Were the third to wait as long as it can, batches of the second would take the runner then, and refuse it and the first.
    let pool = [
        Setup { base_ms: 2.05, per_row_ms: 0.297, max_batch: 1, max_latency_ms: 7.5, load: 0.1 },
        Setup { base_ms: 13.88, per_row_ms: 0.154, max_batch: 128, max_latency_ms: 62.0, load: 0.105 },
        Setup { base_ms: 1.11, per_row_ms: 0.198, max_batch: 16, max_latency_ms: 10.6, load: 0.304 },
    ];
    let fates = fates(&pool, 1);
    assert!(fates[0].0 > 54.0 && fates[2].0 > 68.0, "{fates:.1?}, and 34 and 49 % if it did");
}

#[test]
fn who_comes_in_groups_does_not_wait_for_others_once_the_group_is_there() {
    let hurried = Setup { base_ms: 3.0, per_row_ms: 0.3, max_batch: 16, max_latency_ms: 9.0, load: 0.0075 };
    let grouped = Setup { base_ms: 5.0, per_row_ms: 0.2, max_batch: 64, max_latency_ms: 200.0, load: 0.0 };
    let process = Process::Poisson { rate: 15.0 };
    let mut all: Vec<Arrival> = process.arrivals(Duration::from_secs(10), 1).collect();
    let one = all[0];
    let at = |i: u32| Instant::EPOCH + ms(f64::from(i / 16) * 20.0);
    all.extend((0..500 * 16).map(|i| Arrival { model: 1, at: at(i), ..one }));
    let [_, grouped] = run_all(&[hurried, grouped], 1, all);
    assert!(grouped.mean_latency() < ms(14.0), "{:?}, and 40 ms if it waited", grouped.mean_latency());
}
