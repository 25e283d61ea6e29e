//! The laws of every policy, on random states, on random runs and in random worlds.

#[path = "../benches/laws/tally.rs"]
mod tally;
#[path = "../benches/laws/traffic.rs"]
mod traffic;
#[path = "../benches/laws/trial.rs"]
mod trial;
#[path = "../benches/laws/world.rs"]
mod world;

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use proptest::prelude::*;
use uncork_core::estimator::{BatchTimes, Fit, Instant, KnownCrowd, Turn};
use uncork_core::policy::{
    Aimd, Batch, BatchSizes, Caller, Cork, Cork2020, Decision, Dispatcher, Entry, Fixed, Landing, Lane, Policy,
    Priority, Queue, Reach, ReleaseReason, Running, ShedReason, Spread, Standing, Step, View,
};

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

type MakePolicy = fn() -> Box<dyn Policy>;

/// Every policy, as a server of a given latency cap would begin with it.
const POLICIES: [(&str, MakePolicy); 7] = [
    ("cork", || Box::new(Cork)),
    ("eager", || Box::new(Fixed::EAGER)),
    ("fixed", || Box::new(Fixed::new(us(7_000), 16))),
    ("fixed with a timeout", || Box::new(Fixed { wait: us(7_000), size: 16, timeout: us(20_000) })),
    ("aimd", || Box::new(Aimd::new(us(50_000)))),
    ("cork-2020", || Box::new(Cork2020::new())),
    ("cork-2020 told", || Box::new(Cork2020::told(us(5_000), us(200)))),
];

/// A state that a pool can be in, estimates of every degenerate kind included.
#[derive(Debug, Clone)]
struct State {
    now: Instant,
    queue: Queue,
    running: Vec<Running>,
    runners: usize,
    max_batch: usize,
    sizes: BatchSizes,
    fit: Fit,
    patience: f64,
    spread: Spread,
    crowd: Option<KnownCrowd>,
    free_since: Instant,
    rehearses: bool,
    draining: bool,
    /// Batches of so many rows, µs and µs of waiting that have come back, for policies that remember.
    landed: Vec<(usize, u64, u64)>,
    standing: Standing,
}

impl State {
    fn view(&self) -> View<'_> {
        View {
            lane: 0,
            queue: &self.queue,
            running: &self.running,
            runners: self.runners,
            max_batch: self.max_batch,
            sizes: &self.sizes,
            fit: &self.fit,
            patience: self.patience,
            spread: self.spread,
            reach: Reach::WHOLE,
            crowd: self.crowd,
            free_since: self.free_since,
            rehearses: self.rehearses,
            draining: self.draining,
            late_by: Duration::ZERO,
            standing: self.standing,
        }
    }

    fn decide(&self) -> Decision {
        Cork.decide(self.now, self.view())
    }

    /// What each policy decides.
    fn decisions(&self) -> impl Iterator<Item = (&'static str, Decision)> + '_ {
        POLICIES.iter().map(|(name, policy)| {
            let mut policy = policy();
            let mut at = Instant::EPOCH;
            for (ticket, &(rows, time, waited)) in (0..).zip(&self.landed) {
                let batch =
                    Running { ticket, lane: 0, since: at, entries: 1, rows, waited: us(waited), expected: None };
                at = at + us(time);
                policy.landed(at, &batch);
            }
            (*name, policy.decide(self.now, self.view()))
        })
    }
}

fn fits() -> impl Strategy<Value = Fit> {
    let odd = prop_oneof![Just(0.0), Just(-1.0), Just(f64::NAN), Just(f64::INFINITY), Just(1e300), Just(1e-300)];
    let base = prop_oneof![4 => 0.0..0.1, 1 => odd.clone()];
    let per_row = prop_oneof![4 => 0.0..0.005, 1 => odd.clone()];
    let noise = prop_oneof![4 => 1.0..2.0, 1 => odd];
    prop_oneof![
        1 => Just(Fit::UNKNOWN),
        6 => (base, per_row, noise).prop_map(|(base, per_row, noise)| Fit::line(base, per_row, noise)),
        // What the estimator makes of a few batches, one-size and first guesses among them.
        2 => prop::collection::vec((1usize..200, 1u64..100_000), 1..6).prop_map(|batches| {
            let mut times = BatchTimes::new();
            for (rows, time) in batches {
                times.observe(Instant::EPOCH, rows, us(time));
            }
            times.fit().clone()
        }),
    ]
}

prop_compose! {
    fn states()(
        max_batch in 1usize..64,
        runners in 1usize..5,
        busy in 0usize..5,
        // Few rows or many: only with a batch far from full does a hold come into question.
        entries in prop_oneof![
            prop::collection::vec((0u64..100_000, 1u64..150_000, 1usize..64, 1u64..=10), 0..60),
            prop::collection::vec((0u64..20_000, 1u64..150_000, 1usize..3, 1u64..=10), 1..4),
        ],
        // Half of all queues have one priority, the others up to so many.
        levels in prop_oneof![Just(1u64), 2u64..=10],
        running in prop::collection::vec((0u64..200_000, 1usize..64), 5),
        patience in 0.0..3.0,
        spread in prop::sample::select(vec![Spread::Never, Spread::AsNeeded, Spread::Eagerly]),
        crowd in prop::option::of((2usize..80, 0u64..20_000)),
        sizes in prop::option::of(prop::collection::btree_set(1usize..64, 1..6)),
        fit in fits(),
        free in 0u64..200_000,
        rehearses in any::<bool>(),
        draining in prop::bool::weighted(0.1),
        landed in prop::collection::vec((1usize..64, 1u64..100_000, 0u64..50_000), 0..20),
        // Half of all looks at a queue are at a whole millisecond, when rules with ticks are awake.
        past_tick in prop_oneof![Just(0u64), 1u64..1000],
        share in prop::option::of((0u64..100_000, 0.001f64..1.0)),
    ) -> State {
        let now = Instant::EPOCH + us(2_000_000 + past_tick);
        let mut queue = Queue::new();
        for (id, (age, within, rows, level)) in (0..).zip(entries) {
            let arrival = now - us(age);
            let priority = Priority::new(level.min(levels)).expect("a level");
            queue.insert(Entry { rows: rows.min(max_batch), priority, ..Entry::new(id, arrival, arrival + us(within)) });
        }
        // Some end below the cap, some beyond it.
        let sizes = BatchSizes::rising(sizes.into_iter().flatten().collect()).expect("a set is in order");
        let busy = busy.min(runners);
        let running = running.into_iter().take(busy);
        State {
            now,
            queue,
            running: running.zip(0..).map(|((since, rows), ticket)| {
                let expected = fit.is_trusted().then(|| fit.predict(sizes.padded(rows))).flatten();
                Running { ticket, lane: 0, since: now - us(since), entries: 1, rows, waited: us(0), expected }
            }).collect(),
            runners,
            max_batch,
            sizes,
            patience,
            spread,
            crowd: crowd.map(|(size, returns)| {
                let turn = Turn { at_least: 1 + returns as usize % size.max(1), at_most: 1 + returns as usize % 7, wait: us(3 * returns) };
                let learned = returns % 2 == 0;
                KnownCrowd { size, returns: us(returns), turn: learned.then_some(turn) }
            }),
            free_since: now - us(free),
            rehearses,
            draining,
            landed,
            // What other lanes take: known times, so nothing of it where the state is to rest on guesses.
            standing: match share {
                Some((before, share)) if busy >= runners && fit.is_trusted() => {
                    Standing { before: us(before), share, ..Standing::ALONE }
                }
                Some((_, share)) => Standing { share, ..Standing::ALONE },
                None => Standing::ALONE,
            },
            fit,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_release_is_a_prefix_within_the_cap_while_a_runner_is_free(state in states()) {
        for (policy, decision) in state.decisions() {
            if let Decision::Release { entries, .. } = decision {
                let rows: usize = state.queue.iter().take(entries).map(|e| e.rows).sum();
                prop_assert!((1..=state.queue.len()).contains(&entries), "{policy}");
                prop_assert!(rows <= state.max_batch, "{policy}");
                prop_assert!(state.running.len() < state.runners, "{policy}");
            }
        }
    }

    #[test]
    fn waiting_is_until_the_future(state in states()) {
        for (policy, decision) in state.decisions() {
            if let Decision::WaitUntil(at) = decision {
                prop_assert!(at > state.now, "{policy}");
            }
        }
    }

    #[test]
    fn a_hold_never_lasts_past_the_latest_start(state in states()) {
        if let Decision::WaitUntil(at) = state.decide() && state.running.len() < state.runners {
            let (entries, rows) = state.queue.prefix(state.max_batch);
            for entry in state.queue.iter().take(entries) {
                prop_assert!(at <= entry.deadline - state.view().batch_time(rows), "{at:?}");
            }
        }
    }

    #[test]
    fn nobody_waits_beyond_a_deadline_without_being_refused(state in states()) {
        let expired = state.queue.iter().any(|e| e.deadline <= state.now);
        match state.decide() {
            Decision::WaitUntil(at) => prop_assert!(state.queue.iter().all(|e| at <= e.deadline), "{at:?}"),
            Decision::Shed { entries, reason: ShedReason::Expired, .. } => {
                prop_assert!(entries.into_iter().all(|i| state.queue.get(i).is_some_and(|e| e.deadline <= state.now)));
            }
            _ => prop_assert!(!expired),
        }
    }

    #[test]
    fn a_release_is_in_time_for_whoever_in_it_is_due_first(state in states()) {
        if let Decision::Release { entries, reason } = state.decide() && reason != ReleaseReason::Probe {
            let rows = state.queue.iter().take(entries).map(|e| e.rows).sum();
            let view = state.view();
            // Who goes alone has a margin of its own.
            let alone = state.queue.first().filter(|_| entries == 1).map(|first| view.time_alone(first));
            let end = state.now + alone.unwrap_or_else(|| view.batch_time(rows));
            prop_assert!(state.queue.iter().take(entries).all(|e| end <= e.deadline), "{end:?}");
            prop_assert!(end <= state.now + view.batch_time(rows), "{end:?}");
        }
    }

    #[test]
    fn less_urgent_entries_change_nothing_for_a_level_that_is_refused(state in states()) {
        // Whom the next batch or those before it make late, it would make late without all that are less urgent.
        if let same @ Decision::Shed { .. } = state.decide() && state.sizes.is_any() {
            let Decision::Shed { entries, .. } = &same else { unreachable!() };
            let refused = *state.queue.get(entries.start).expect("in range");
            let mut alone = state.clone();
            let end = state.queue.iter().take_while(|e| e.priority <= refused.priority).count();
            alone.queue.remove(end..state.queue.len()).for_each(drop);
            prop_assert_eq!(alone.decide(), same, "{:?}", refused);
        }
    }

    #[test]
    fn nothing_is_parked_that_waits(state in states()) {
        for (policy, decision) in state.decisions() {
            prop_assert_eq!(decision == Decision::Park, state.queue.is_empty(), "{}", policy);
        }
    }

    #[test]
    fn a_refusal_is_of_somebody_who_waits(state in states()) {
        for (policy, decision) in state.decisions() {
            if let Decision::Shed { entries, .. } = decision {
                prop_assert!(!entries.is_empty() && entries.end <= state.queue.len(), "{policy}");
            }
        }
    }

    #[test]
    fn only_what_is_predicted_late_is_refused(state in states()) {
        if let Decision::Shed { entries, forecast, retry_at, .. } = state.decide() {
            prop_assert!(retry_at >= state.now, "{retry_at:?}");
            for position in entries {
                let entry = state.queue.get(position).expect("in range");
                prop_assert!(forecast >= entry.deadline && forecast >= state.now, "{entry:?} would be answered at {forecast:?}");
                // No later start and no longer batch than these can be meant: behind a full batch for each other entry, in a full batch.
                let start = state.view().start_after(state.now, state.queue.len());
                let end = start + state.view().batch_time(state.max_batch);
                prop_assert!(entry.deadline <= state.now || end > entry.deadline, "{entry:?}");
            }
        }
    }

    #[test]
    fn nothing_is_refused_on_a_guess(state in states()) {
        if let Decision::Shed { entries, .. } = state.decide() && !state.fit.is_trusted() {
            prop_assert!(entries.into_iter().all(|i| state.queue.get(i).is_some_and(|e| e.deadline <= state.now)));
        }
    }

    #[test]
    fn equal_states_give_equal_decisions(state in states()) {
        prop_assert!(state.decisions().eq(state.clone().decisions()));
    }

    #[test]
    fn a_draining_queue_is_not_held(state in states()) {
        if state.draining && state.running.len() < state.runners && !state.queue.is_empty() {
            prop_assert!(!matches!(state.decide(), Decision::WaitUntil(_)));
        }
    }
}

/// What became of the entries of a run, by id in the order in which it was decided.
#[derive(Default)]
struct Fates {
    served: Vec<u64>,
    shed: Vec<u64>,
}

/// An entry of one of three callers, or of nobody in particular.
fn of_somebody(id: u64, rows: usize, arrival: Instant, deadline: Instant) -> Entry {
    let weight = NonZeroU32::new(1 + id as u32 % 3).expect("above 0");
    Entry { rows, caller: Caller { id: id % 4, weight, ..Caller::default() }, ..Entry::new(id, arrival, deadline) }
}

/// Drives a dispatcher through these arrivals (gap, rows and deadline in µs) against runners of a given speed.
fn run(
    policy: Box<dyn Policy>,
    arrivals: &[(u64, usize, u64)],
    runners: usize,
    max_batch: usize,
    (base, per_row): (u64, u64),
) -> Fates {
    let mut pool = Dispatcher::new(runners);
    let lane = pool.open(Lane::new(policy, max_batch));
    let mut flights: Vec<(Instant, u64, Duration)> = Vec::new();
    let mut arrivals = (0u64..).zip(arrivals).peekable();
    let mut due = Instant::EPOCH;
    let mut wake = None;
    let mut fates = Fates::default();
    loop {
        let arrival = arrivals.peek().map(|(_, (gap, ..))| due + us(*gap));
        let landing = flights.iter().map(|(end, ..)| *end).min();
        let Some(now) = [arrival, landing, wake].into_iter().flatten().min() else { return fates };
        if landing == Some(now) {
            let at = flights.iter().position(|(end, ..)| *end == now).expect("one lands");
            let (_, ticket, took) = flights.swap_remove(at);
            pool.land(now, ticket, Landing::Answered { took, late: 0 });
        } else if arrival == Some(now) {
            let (id, &(_, rows, within)) = arrivals.next().expect("peeked");
            due = now;
            // By the rows, so that requests of one size are of one priority.
            let priority = Priority::new(1 + rows as u64 % 4).expect("a level");
            pool.arrive(lane, Entry { priority, ..of_somebody(id, rows.min(max_batch), now, now + us(within)) });
        }
        wake = loop {
            match pool.poll(now, |_, _| true) {
                Step::Release(Batch { ticket, entries, rows, .. }) => {
                    assert!(flights.len() < runners, "more in flight than permits");
                    assert_eq!(rows, entries.iter().map(|e| e.rows).sum());
                    assert!((1..=max_batch).contains(&rows), "{rows} rows against a cap of {max_batch}");
                    let takes = us(base + per_row * rows as u64);
                    flights.push((now + takes, ticket, takes));
                    fates.served.extend(entries.iter().map(|e| e.id));
                }
                Step::Shed(shed) => fates.shed.extend(shed.entries.iter().map(|e| e.id)),
                step @ (Step::Rehearse(_) | Step::GiveUp(_)) => panic!("no rows of its own, no limit: {step:?}"),
                Step::WaitUntil(at) => {
                    assert!(at > now, "waiting for the past");
                    break Some(at);
                }
                Step::Park => break None,
            }
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_that_arrives_is_served_or_refused_exactly_once(
        arrivals in prop::collection::vec((0u64..5_000, 1usize..8, 1_000u64..100_000), 1..400),
        runners in 1usize..4, max_batch in 1usize..40, base in 0u64..10_000, per_row in 1u64..2_000,
    ) {
        for (name, policy) in POLICIES {
            let run = run(policy(), &arrivals, runners, max_batch, (base, per_row));
            let mut ids: Vec<u64> = run.served.iter().chain(&run.shed).copied().collect();
            ids.sort_unstable();
            prop_assert!(ids.into_iter().eq(0..arrivals.len() as u64), "{name}");
        }
    }

    #[test]
    fn one_deadline_for_all_means_first_come_first_served(
        gaps in prop::collection::vec(0u64..5_000, 1..400),
        runners in 1usize..4, max_batch in 1usize..40, base in 0u64..10_000, per_row in 1u64..2_000,
    ) {
        let arrivals: Vec<_> = gaps.into_iter().map(|gap| (gap, 1, 50_000)).collect();
        for (name, policy) in POLICIES {
            let run = run(policy(), &arrivals, runners, max_batch, (base, per_row));
            prop_assert!(run.served.is_sorted(), "{name}: {:?}", run.served);
        }
    }
}

/// Drives a pool of several lanes through arrivals (lane, gap, rows and deadline in µs), opening and closing lanes on the
/// way; returns each lane's fates. Under an eager policy it checks that no runner is idle while something waits.
fn run_lanes(
    arrivals: &[(usize, u64, usize, u64)],
    weights: &[usize],
    runners: usize,
    max_batch: usize,
    eager: bool,
) -> Vec<Fates> {
    let (base, per_row) = (2_000, 100);
    let mut pool = Dispatcher::new(runners);
    let weight = |w: usize| NonZeroUsize::new(w).expect("positive");
    let policy = || if eager { Box::new(Fixed::EAGER) as Box<dyn Policy> } else { Box::new(Cork) };
    let open = |pool: &mut Dispatcher, w| pool.open(Lane::new(policy(), max_batch).weighing(weight(w)));
    let mut lanes: Vec<usize> = weights.iter().map(|&w| open(&mut pool, w)).collect();
    let mut fates: Vec<Fates> = weights.iter().map(|_| Fates::default()).collect();
    let mut flights: Vec<(Instant, u64, Duration)> = Vec::new();
    let mut arrivals = (0u64..).zip(arrivals).peekable();
    let (mut due, mut wake) = (Instant::EPOCH, None);
    loop {
        let arrival = arrivals.peek().map(|(_, (_, gap, ..))| due + us(*gap));
        let landing = flights.iter().map(|(end, ..)| *end).min();
        let Some(now) = [arrival, landing, wake].into_iter().flatten().min() else { return fates };
        if landing == Some(now) {
            let at = flights.iter().position(|(end, ..)| *end == now).expect("one lands");
            let (_, ticket, took) = flights.swap_remove(at);
            pool.land(now, ticket, Landing::Answered { took, late: 0 });
        } else if arrival == Some(now) {
            let (id, &(model, _, rows, within)) = arrivals.next().expect("peeked");
            due = now;
            // Now and then a lane that is empty is replaced by a new one.
            if id % 7 == 0 && pool.queue(lanes[model]).is_empty() {
                pool.close(lanes[model]);
                lanes[model] = open(&mut pool, weights[model]);
            }
            pool.arrive(lanes[model], of_somebody(id, rows.min(max_batch), now, now + us(within)));
        }
        wake = loop {
            let step = pool.poll(now, |_, _| true);
            let model = |lane| lanes.iter().position(|l| *l == lane).expect("an open lane");
            match step {
                Step::Release(Batch { ticket, lane, entries, rows, .. }) => {
                    assert!(flights.len() < runners, "more in flight than permits");
                    assert!((1..=max_batch).contains(&rows), "{rows} rows against a cap of {max_batch}");
                    let takes = us(base + per_row * rows as u64);
                    flights.push((now + takes, ticket, takes));
                    fates[model(lane)].served.extend(entries.iter().map(|e| e.id));
                }
                Step::Shed(shed) => fates[model(shed.lane)].shed.extend(shed.entries.iter().map(|e| e.id)),
                step @ (Step::Rehearse(_) | Step::GiveUp(_)) => panic!("no rows of its own, no limit: {step:?}"),
                step => {
                    let waits = lanes.iter().any(|lane| !pool.queue(*lane).is_empty());
                    assert!(!eager || flights.len() == runners || !waits, "a runner is idle while something waits");
                    let Step::WaitUntil(at) = step else { break None };
                    assert!(at > now, "waiting for the past");
                    break Some(at);
                }
            }
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_a_shared_pool_everything_is_served_or_refused_once_and_no_runner_idles_for_fairness(
        arrivals in prop::collection::vec((0usize..4, 0u64..3_000, 1usize..8, 1_000u64..100_000), 1..300),
        weights in prop::collection::vec(1usize..5, 4),
        runners in 1usize..4, max_batch in 1usize..40, eager in any::<bool>(),
    ) {
        let fates = run_lanes(&arrivals, &weights, runners, max_batch, eager);
        let mut ids: Vec<u64> = fates.iter().flat_map(|f| f.served.iter().chain(&f.shed)).copied().collect();
        ids.sort_unstable();
        prop_assert!(ids.into_iter().eq(0..arrivals.len() as u64));
    }

    #[test]
    fn in_a_shared_pool_each_lane_serves_in_the_order_of_arrival(
        arrivals in prop::collection::vec((0usize..4, 0u64..3_000), 1..300),
        weights in prop::collection::vec(1usize..5, 4),
        runners in 1usize..4, max_batch in 1usize..40,
    ) {
        let arrivals: Vec<_> = arrivals.into_iter().map(|(lane, gap)| (lane, gap, 1, 50_000)).collect();
        for fates in run_lanes(&arrivals, &weights, runners, max_batch, false) {
            prop_assert!(fates.served.is_sorted(), "{:?}", fates.served);
        }
    }
}

/// The first of the worlds in which `cargo bench --bench laws` looks for broken laws.
#[test]
fn random_worlds_keep_the_laws_and_show_every_event() {
    let mut tally = tally::Tally::default();
    for number in 1..=120 {
        let world = world::World::draw(number);
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial::try_out(&world)));
        tally.add(&lived.unwrap_or_else(|_| panic!("alone: cargo bench --bench laws -- --world {number}")));
    }
    let tally::Tally { failed, left, renewed, rehearsed, given_up, repeated, simulated, released, refused, .. } = tally;
    let seldom = [failed, left, renewed, rehearsed, given_up, repeated, simulated]
        .into_iter()
        .chain(released)
        .chain(refused)
        .min();
    assert!(seldom > Some(0), "{tally:?}");
}
