//! A scenario through the real batcher in virtual time, and how far it is from the simulator.
//!
//! Arrivals, batch times and noise are the same, and happen at the very nanosecond: the driver below advances a stopped
//! clock from event to event. What differs, and why figures are compared with a tolerance:
//! - The batcher keeps a reserve for the way back to the caller; the simulator is given deadlines shorter by as much, and
//!   both are judged by those.
//! - Where time is stopped the actor has no alarm, only tokio's timer, which fires at whole milliseconds, up to 1 ms after
//!   the instant that a policy named; the simulator is told so. The clock therefore stops at every whole millisecond.
//! - What happens at one instant is heard at once by the simulator, and one by one by the actor: it asks the policy after
//!   each landed batch, and may release before it has heard of the next.
//! - From the first such difference on, batches differ, and with them what noise is drawn for which, and what is learned.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use tokio::sync::oneshot;
use uncork_batcher::{BatchError, Batcher, Caps, Executor, Ran, Terms, Weight};
use uncork_core::estimator::Instant;
use uncork_core::policy::{Decision, Policy, Priority, Running, View, kept_for_answering};
use uncork_sim::{Arrival, Service, Source};

use crate::counts::{Counts, Measure};
use crate::file::{Habits, Scenario};
use crate::in_simulator;
use crate::load::Load;

const SEED: u64 = 1;
/// Rounds in which all other tasks run until they wait again: from an arrival to its refusal it takes three.
const ROUNDS: usize = 5;
const MS: u64 = 1_000_000;

/// Those of a batcher with this cap on a clock that is stopped.
fn habits(max_latency: Duration) -> Habits {
    Habits { reserve: kept_for_answering(max_latency), timer: Duration::from_millis(1) }
}

/// Every figure in which batcher and simulator disagree, as a sentence.
pub(crate) fn check(scenario: &Scenario) -> Vec<String> {
    let simulated = in_simulator::run(scenario, &scenario.policy, habits(scenario.max_latency()), SEED);
    let real = run(scenario);
    let answered = real.on_time + real.late + real.shed;
    assert_eq!(answered, real.offered, "{}: each request has one answer", scenario.name);
    let mut broken = Vec::new();
    for measure in [
        Measure::OnTimeShare,
        Measure::UrgentOnTimeShare,
        Measure::LateShare,
        Measure::ShedShare,
        Measure::MeanMs,
        Measure::MeanBatchRows,
    ] {
        let (there, here) = (simulated.figure(measure), real.figure(measure));
        let most = match measure {
            Measure::MeanMs | Measure::MeanBatchRows => scenario.batcher.relative * there,
            _ => scenario.batcher.share,
        };
        if std::env::var_os("SHOW").is_some() {
            println!("{} {measure} {there:.5} {here:.5} {:.5}", scenario.name, here - there);
        }
        if (here - there).abs() > most {
            let name = &scenario.name;
            broken.push(format!(
                "{name}: {measure} is {here:.5} in the batcher, {there:.5} in the simulator, seed {SEED}"
            ));
        }
    }
    broken
}

fn run(scenario: &Scenario) -> Counts {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime without I/O");
    runtime.block_on(drive(scenario))
}

/// What the driver, the stand-in for the runners and the callers share.
struct World {
    epoch: tokio::time::Instant,
    load: Load,
    service: Service,
    rng: Xoshiro256PlusPlus,
    launched: u64,
    flights: Vec<Flight>,
    counts: Counts,
    waiting: u64,
}

struct Flight {
    end: Instant,
    done: oneshot::Sender<()>,
}

impl World {
    fn now(&self) -> Instant {
        Instant::EPOCH + self.epoch.elapsed()
    }

    fn take_arrived(&mut self) -> Vec<Arrival> {
        let now = self.now();
        let load = &mut self.load;
        std::iter::from_fn(|| load.peek().filter(|at| *at <= now).and_then(|_| load.pop())).collect()
    }

    fn take_landed(&mut self) -> Vec<Flight> {
        let now = self.now();
        let (landed, flying) = std::mem::take(&mut self.flights).into_iter().partition(|flight| flight.end <= now);
        self.flights = flying;
        landed
    }

    /// How far the clock can be advanced without missing an event or a tick of tokio's timers; `None` when all is over.
    fn next(&self) -> Option<Duration> {
        let now = self.now();
        let landing = self.flights.iter().map(|flight| flight.end).min();
        let event = [self.load.peek(), landing].into_iter().flatten().min();
        let tick = Instant::from_nanos((now.as_nanos() / MS + 1) * MS);
        let over = event.is_none() && self.waiting == 0;
        (!over).then(|| event.map_or(tick, |event| event.min(tick)).since(now))
    }
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().expect("nobody panics with it")
}

async fn drive(scenario: &Scenario) -> Counts {
    let max_latency = scenario.max_latency();
    let Habits { reserve, .. } = habits(max_latency);
    let policy = Boxed(scenario.named_policy(&scenario.policy).expect("checked"));
    let world = Arc::new(Mutex::new(World {
        epoch: tokio::time::Instant::now(),
        load: scenario.load(SEED, Duration::ZERO),
        service: scenario.service(),
        rng: Xoshiro256PlusPlus::seed_from_u64(SEED),
        launched: 0,
        flights: Vec::new(),
        counts: Counts::default(),
        waiting: 0,
    }));
    let builder = Batcher::builder(Caps::new(max_latency, scenario.max_batch_size));
    let builder = if let Some(tried) = scenario.tried { builder.rehearsing(tried) } else { builder };
    let batcher = builder
        .runners(scenario.runners)
        .policy(policy)
        .allowed_batch_sizes(scenario.sizes())
        .weigh(|rows: &usize| Weight { rows: *rows, bytes: 0 })
        .start(StandIn(Arc::clone(&world)));
    loop {
        let next = lock(&world).next();
        let Some(time) = next else { break };
        tokio::time::advance(time).await;
        settle().await;
        // Arrivals before landings: the simulator's decision at a landing knows of both.
        let arrived = lock(&world).take_arrived();
        for arrival in arrived {
            let caller = call(Arc::clone(&world), batcher.clone(), arrival, reserve, max_latency);
            lock(&world).waiting += 1;
            tokio::spawn(caller);
        }
        settle().await;
        let landed = lock(&world).take_landed();
        for flight in landed {
            flight.done.send(()).expect("the batcher waits for it");
        }
        settle().await;
    }
    lock(&world).counts
}

/// Lets everybody else run until they wait.
async fn settle() {
    for _ in 0..ROUNDS {
        tokio::task::yield_now().await;
    }
}

/// One request, from its arrival to its answer.
async fn call(
    world: Shared,
    batcher: Batcher<usize, ()>,
    Arrival { rows, within, priority, .. }: Arrival,
    reserve: Duration,
    max_latency: Duration,
) {
    let is_urgent = u64::from(priority == Priority::HIGHEST);
    {
        let counts = &mut lock(&world).counts;
        (counts.offered, counts.urgent) = (counts.offered + 1, counts.urgent + is_urgent);
    }
    let begin = tokio::time::Instant::now();
    let answer = batcher.submit_with(rows, Terms::since(begin).within(within).priority(priority)).await;
    let took = begin.elapsed();
    let due = within.unwrap_or(max_latency).min(max_latency) - reserve;
    let mut world = lock(&world);
    world.waiting -= 1;
    match answer {
        Ok(_) => {
            let on_time = took <= due;
            world.counts.on_time += u64::from(on_time);
            world.counts.urgent_on_time += is_urgent * u64::from(on_time);
            world.counts.late += u64::from(!on_time);
            world.counts.latency_ms += took.as_secs_f64() * 1e3;
        }
        Err(_) => {
            world.counts.shed += 1;
            let now = world.now();
            world.load.answered(0, now);
        }
    }
}

/// Runners whose batches land when the driver says so.
struct StandIn(Shared);

impl Executor<usize, ()> for StandIn {
    fn execute(&mut self, _ticket: u64, batch: Vec<usize>) -> BoxFuture<'static, Result<Ran<()>, BatchError>> {
        let mut world = lock(&self.0);
        let World { service, rng, launched, counts, load, flights, epoch, .. } = &mut *world;
        let now = Instant::EPOCH + epoch.elapsed();
        let rows = batch.iter().sum();
        let end = now + service.draw(now, *launched, rows, rng);
        *launched += 1;
        counts.batches += 1;
        counts.rows += rows as u64;
        batch.iter().for_each(|_| load.answered(0, end));
        let (done, landed) = oneshot::channel();
        flights.push(Flight { end, done });
        async move {
            landed.await.map_err(|_| BatchError::new("the driver is gone"))?;
            Ok(vec![(); batch.len()].into())
        }
        .boxed()
    }

    fn rehearse(&mut self, _ticket: u64, rows: usize) -> BoxFuture<'static, Result<Ran<()>, BatchError>> {
        let mut world = lock(&self.0);
        let World { service, rng, launched, flights, epoch, .. } = &mut *world;
        let now = Instant::EPOCH + epoch.elapsed();
        let end = now + service.draw(now, *launched, rows, rng);
        *launched += 1;
        let (done, landed) = oneshot::channel();
        flights.push(Flight { end, done });
        async move {
            landed.await.map_err(|_| BatchError::new("the driver is gone"))?;
            Ok(Vec::new().into())
        }
        .boxed()
    }
}

/// A policy chosen at run time.
struct Boxed(Box<dyn Policy>);

impl Policy for Boxed {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        self.0.decide(now, view)
    }

    fn landed(&mut self, now: Instant, batch: &Running) {
        self.0.landed(now, batch);
    }
}
