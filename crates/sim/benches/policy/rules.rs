//! What each rule of cork is worth: a load that gets worse without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use uncork_core::estimator::{Fit, Instant};
use uncork_core::policy::{Cork, Decision, Policy, Queue, ReleaseReason, ShedReason, Spread, View};
use uncork_sim::{Arrival, ClosedLoop, OpenLoop, Outcome, Process, Service};

use crate::case::{SETUPS, Setup, ms, only};
use crate::report::{Report, percent, summary};
use crate::seeds::Seeds;

const EASY: Setup = SETUPS[0];
const MIDDLE: Setup = SETUPS[2];
const HARD: Setup = SETUPS[3];

/// What cork can be made to do without.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    None,
    /// Refuse from the front only whom a batch of its own would answer late.
    FrontOneByOne,
    /// Judge the end of the queue before its front.
    EndFirst,
    /// Refuse nobody from the end.
    NoEnd,
    /// This patience instead of the learned one.
    Patience(f64),
    NoCrowd,
    /// Free runners share nothing.
    NoSpread,
    /// Predictions without a margin for noise.
    NoNoise,
    /// Refuse who is in a hurry instead of giving it a smaller batch.
    NoSmallerBatch,
    NoProbe,
    /// A batch of all that fit although only one size has been timed.
    NoCare,
}

/// Cork with a change, and how long those whom it refused had waited.
struct Changed {
    change: Change,
    /// Nanoseconds.
    waited: Arc<AtomicU64>,
}

impl Policy for Changed {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let decision = self.change.decide(now, view);
        if let Decision::Shed { entries, .. } = &decision {
            let of = |e: &uncork_core::policy::Entry| now.since(e.arrival).as_nanos() as u64;
            let nanos: u64 = view.queue.iter().skip(entries.start).take(entries.len()).map(of).sum();
            self.waited.fetch_add(nanos, Ordering::Relaxed);
        }
        decision
    }
}

impl Change {
    fn decide(self, now: Instant, view: View<'_>) -> Decision {
        let mut start_of_queue = Queue::new();
        let exact;
        let changed = match self {
            Change::Patience(patience) => View { patience, ..view },
            Change::NoCrowd => View { crowd: None, ..view },
            Change::NoSpread => View { spread: Spread::Never, ..view },
            Change::NoNoise if view.fit.is_line() && view.fit.is_trusted() => {
                exact = Fit::line(view.fit.base_seconds(), view.fit.per_row_seconds(), 1.0);
                View { fit: &exact, ..view }
            }
            Change::NoEnd => {
                // Cork sees no more than a batch, and so no end that is late.
                view.queue.iter().take(view.max_batch).for_each(|entry| start_of_queue.insert(*entry));
                View { queue: &start_of_queue, ..view }
            }
            _ => view,
        };
        let decision = Cork.decide(now, changed);
        let Some(first) = view.queue.first() else { return decision };
        let start = view.start_after(now, 0);
        let (entries, rows) = view.queue.prefix(view.max_batch);
        let release_or_wait = || match view.has_free_runner() {
            true => Decision::Release { entries, reason: ReleaseReason::Ripe },
            false => Decision::WaitUntil(first.deadline.max(now + Duration::from_nanos(1))),
        };
        let refuse = |entries, reason| Decision::Shed { entries, reason, forecast: now, retry_at: now };
        let refuse_first = || refuse(0..1, ShedReason::BatchTooLate);
        match (self, &decision) {
            (Change::FrontOneByOne, Decision::Shed { reason: ShedReason::BatchTooLate, .. }) => {
                if start + view.batch_time(first.rows) > first.deadline { decision } else { release_or_wait() }
            }
            (Change::EndFirst, Decision::Shed { reason: ShedReason::BatchTooLate, .. }) => {
                let last = view.queue.len() - 1;
                let (ahead, own) = (last / view.max_batch, last % view.max_batch + 1);
                let end = view.start_after(now, ahead) + view.batch_time(own);
                match view.queue.last() {
                    Some(entry) if ahead > 0 && end > entry.deadline => {
                        refuse(last..last + 1, ShedReason::QueueTooLong)
                    }
                    _ => decision,
                }
            }
            (Change::NoSmallerBatch, Decision::Release { reason, .. })
                if *reason != ReleaseReason::Probe && start + view.batch_time(rows) > first.deadline =>
            {
                refuse_first()
            }
            (Change::NoSmallerBatch, Decision::WaitUntil(_)) if start + view.batch_time(rows) > first.deadline => {
                refuse_first()
            }
            (Change::NoCare, Decision::Release { .. }) if !view.fit.is_line() => release_or_wait(),
            (Change::NoProbe, Decision::Release { reason: ReleaseReason::Probe, .. }) => refuse_first(),
            _ => decision,
        }
    }

    fn policy(self) -> Box<dyn Policy> {
        Box::new(Changed { change: self, waited: Arc::default() })
    }
}

/// A load, and the number that a rule is there for.
struct Trial<'a> {
    rule: &'a str,
    without: Change,
    load: String,
    number: &'a str,
    measure: Box<dyn Fn(Change, u64) -> f64 + 'a>,
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!("Each rule, and cork without it: mean of {seeds} seeds."));
    let mut rows = Vec::new();
    for Trial { rule, without, load, number, measure } in trials() {
        report.progress(rule);
        let mean = |change| summary(seeds.all().map(|seed| measure(change, seed))).0;
        let (with, without) = (mean(Change::None), mean(without));
        rows.push(vec![rule.to_string(), load, number.to_string(), format!("{with:.2}"), format!("{without:.2}")]);
        report.data(&format!("{rule}, {number}"), json!({ "with": with, "without": without }));
    }
    report.table(&["rule", "load", "number", "with", "without"], &rows);
    constant_patience(seeds, report);
}

fn trials() -> Vec<Trial<'static>> {
    let of_optimum = |setup: Setup, process: &'static str, load: f64| {
        move |change: Change, seed: u64| {
            let arrivals = setup.load(process, load, 5.0, seed);
            percent(setup.run(change.policy(), &arrivals).on_time, setup.optimum(&arrivals))
        }
    };
    let trial = |rule, without, load: String, number, measure: Box<dyn Fn(Change, u64) -> f64>| Trial {
        rule,
        without,
        load,
        number,
        measure,
    };
    let share = "% of optimum";
    vec![
        trial(
            "front: refuse by the batch",
            Change::FrontOneByOne,
            format!("Poisson 2, {MIDDLE}"),
            share,
            Box::new(of_optimum(MIDDLE, "Poisson", 2.0)),
        ),
        trial(
            "front before end",
            Change::EndFirst,
            format!("Poisson 4, {MIDDLE}"),
            share,
            Box::new(of_optimum(MIDDLE, "Poisson", 4.0)),
        ),
        trial(
            "end: refuse at once",
            Change::NoEnd,
            format!("MMPP 1.1, {EASY}"),
            share,
            Box::new(of_optimum(EASY, "MMPP", 1.1)),
        ),
        trial(
            "end: refuse at once",
            Change::NoEnd,
            format!("Poisson 4, {EASY}"),
            "ms to a refusal",
            Box::new(|change, seed| {
                let arrivals = EASY.load("Poisson", 4.0, 2.0, seed);
                let waited = Arc::new(AtomicU64::new(0));
                let policy = Changed { change, waited: Arc::clone(&waited) };
                let outcome = EASY.run(Box::new(policy), &arrivals);
                waited.load(Ordering::Relaxed) as f64 / 1e6 / outcome.shed.max(1) as f64
            }),
        ),
        trial(
            "patience (clumps)",
            Change::Patience(0.0),
            format!("gamma CV 4 1.1, {HARD}"),
            share,
            Box::new(of_optimum(HARD, "gamma CV 4", 1.1)),
        ),
        trial(
            "patience (fan-out)",
            Change::Patience(0.0),
            "16 within 0.3 α, load 0.2, 10 + 1·n".into(),
            "mean ms",
            Box::new(|change, seed| mean_ms(&fan_out(change, seed))),
        ),
        trial(
            "patience (several runners)",
            Change::Patience(0.0),
            format!("four runners, Poisson 0.6, {FOUR}"),
            "% on time",
            Box::new(|change, seed| on_time(&four_runners(change, seed))),
        ),
        trial(
            "runners that share",
            Change::NoSpread,
            format!("four runners, gamma CV 4 0.6, {FOUR}"),
            "% on time",
            Box::new(|change, seed| {
                let arrivals = FOUR.load("gamma CV 4", 0.6 * 4.0, 10.0, seed);
                on_time(&only(FOUR.scenario(change.policy(), FOUR.service(), 4), &mut OpenLoop::new(arrivals)))
            }),
        ),
        trial(
            "crowd",
            Change::NoCrowd,
            "64 clients, think 0.6 α, 10 + 0.5·n".into(),
            "% of N/(t(N) + think)",
            Box::new(|change, seed| {
                let setup = Setup { max_batch: 128, max_latency: 1000.0, ..MIDDLE };
                let mut source = ClosedLoop::new(64, ms(6.0), 0.0, Instant::EPOCH + ms(10_000.0), seed);
                let outcome = only(setup.scenario(change.policy(), setup.service(), 1), &mut source);
                outcome.on_time as f64 / 10.0 / (64.0 / (setup.time(64) + 6.0) * 1e3) * 100.0
            }),
        ),
        trial(
            "noise quantile",
            Change::NoNoise,
            format!("Poisson 1.1, 10 % noise, {MIDDLE}"),
            "late, % of answers",
            Box::new(|change, seed| {
                let service = Service { jitter: 0.1, ..MIDDLE.service() };
                let arrivals = MIDDLE.load("Poisson", 1.1, 10.0, seed);
                let outcome = MIDDLE.run_disturbed(change.policy(), service, &arrivals);
                percent(outcome.late, outcome.answers() as usize)
            }),
        ),
        trial(
            "smaller batch for a tighter deadline",
            Change::NoSmallerBatch,
            format!("Poisson 0.4, one in ten due in 1.5·t(1), {MIDDLE}"),
            "% of these on time",
            Box::new(|change, seed| {
                let (mut tight, plain) = (MIDDLE.load("Poisson", 0.4, 20.0, seed), MIDDLE.max_latency);
                let own = ms(1.5 * MIDDLE.time(1));
                tight.iter_mut().step_by(10).for_each(|arrival| arrival.within = Some(own));
                debug_assert!(own < ms(plain));
                let outcome = MIDDLE.run(change.policy(), &tight);
                // The others are never late at this load: what is missing is missing among the tight ones.
                100.0 - (outcome.offered - outcome.on_time) as f64 / tight.len().div_ceil(10) as f64 * 100.0
            }),
        ),
        trial(
            "care while one size is known",
            Change::NoCare,
            format!("gamma CV 4 2, {HARD}"),
            "late, % of answers",
            Box::new(|change, seed| {
                let outcome = HARD.run(change.policy(), &HARD.load("gamma CV 4", 2.0, 5.0, seed));
                percent(outcome.late, outcome.answers() as usize)
            }),
        ),
        trial(
            "probe",
            Change::NoProbe,
            format!("Poisson 0.6, × 20 from 2 s to 3 s of 10, {MIDDLE}"),
            "% on time",
            Box::new(|change, seed| {
                let at = |s: u64| Instant::EPOCH + Duration::from_secs(s);
                let service = Service { changes: vec![(at(2), 20.0), (at(3), 1.0)], ..MIDDLE.service() };
                let arrivals = MIDDLE.load("Poisson", 0.6, 10.0, seed);
                on_time(&MIDDLE.run_disturbed(change.policy(), service, &arrivals))
            }),
        ),
    ]
}

const FOUR: Setup = Setup { base: 10.0, per_row: 0.5, max_batch: 64, max_latency: 40.0 };

fn four_runners(change: Change, seed: u64) -> Outcome {
    let arrivals = FOUR.load("Poisson", 0.6 * 4.0, 10.0, seed);
    only(FOUR.scenario(change.policy(), FOUR.service(), 4), &mut OpenLoop::new(arrivals))
}

fn fan_out(change: Change, seed: u64) -> Outcome {
    let setup = Setup { max_latency: 1000.0, ..HARD };
    let process = Process::FanOut { groups: 0.2 * setup.capacity() / 16.0, size: 16, spread: ms(3.0) };
    let arrivals: Vec<Arrival> = process.arrivals(Duration::from_secs(60), seed).collect();
    setup.run(change.policy(), &arrivals)
}

fn on_time(outcome: &Outcome) -> f64 {
    percent(outcome.on_time, outcome.offered as usize)
}

fn mean_ms(outcome: &Outcome) -> f64 {
    outcome.mean_latency().as_secs_f64() * 1e3
}

/// Learned patience beside the constants that it chooses from.
fn constant_patience(seeds: Seeds, report: &mut Report) {
    report.text("Learned patience beside constant ones.");
    let constants = [0.0, 0.1, 0.25, 0.5, 1.0, 1.5];
    let changes = || std::iter::once(Change::None).chain(constants.map(Change::Patience));
    let of_optimum = |process: &'static str, load: f64| {
        move |change: Change, seed: u64| {
            let arrivals = HARD.load(process, load, 10.0, seed);
            percent(HARD.run(change.policy(), &arrivals).on_time, HARD.optimum(&arrivals))
        }
    };
    type Measure = Box<dyn Fn(Change, u64) -> f64>;
    let loads: [(&str, Measure); 7] = [
        ("Poisson 1.1, % of optimum", Box::new(of_optimum("Poisson", 1.1))),
        (
            "Poisson 0.2, mean ms",
            Box::new(|change, seed| mean_ms(&HARD.run(change.policy(), &HARD.load("Poisson", 0.2, 60.0, seed)))),
        ),
        ("gamma CV 4 0.6, % of optimum", Box::new(of_optimum("gamma CV 4", 0.6))),
        ("gamma CV 4 2, % of optimum", Box::new(of_optimum("gamma CV 4", 2.0))),
        ("fan-out as above, mean ms", Box::new(|change, seed| mean_ms(&fan_out(change, seed)))),
        ("four runners as above, % on time", Box::new(|change, seed| on_time(&four_runners(change, seed)))),
        ("four runners as above, mean ms", Box::new(|change, seed| mean_ms(&four_runners(change, seed)))),
    ];
    let mut rows = Vec::new();
    for (name, measure) in &loads {
        report.progress(name);
        let numbers: Vec<f64> =
            changes().map(|change| summary(seeds.all().map(|seed| measure(change, seed))).0).collect();
        report.data(name, json!(numbers));
        rows.push(std::iter::once(name.to_string()).chain(numbers.iter().map(|n| format!("{n:.2}"))).collect());
    }
    let constants: Vec<String> = constants.iter().map(|c| format!("c = {c}")).collect();
    let header: Vec<&str> = ["load", "learned"].into_iter().chain(constants.iter().map(String::as_str)).collect();
    report.table(&header, &rows);
}
