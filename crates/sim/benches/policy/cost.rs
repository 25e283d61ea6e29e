//! What a decision and its bookkeeping cost, and how fast the simulator is, in real time.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Dispatcher, Entry, Landing, Lane, Step};
use uncork_sim::{OpenLoop, Process};

use crate::case::{CORK, EAGER, Make, SETUPS, Setup, ms, only};
use crate::report::{Asked, Report};

/// Batches of each run of the dispatcher.
const BATCHES: usize = 1_000;
/// Requests of each run of the simulator.
const REQUESTS: f64 = 400_000.0;
/// Runs of each, of which the fastest counts: what others do on the machine only ever makes one slower.
const RUNS: usize = 7;
/// Those of the dispatcher are short, and the first find a processor that has rested.
const SHORT_RUNS: usize = 40;

pub(crate) fn measure(report: &mut Report) {
    report.text(
        "The dispatcher alone: queue, decisions, patience, crowd, regressions. Nanoseconds a request of 2 + 0.05·n ms, cap 128, \
         with so many rows waiting all the time.",
    );
    let mut rows = Vec::new();
    let mut costs = Vec::new();
    for waiting in [128, 1_000, 10_000] {
        let nanos = (0..SHORT_RUNS).map(|_| dispatcher(waiting)).fold(f64::INFINITY, f64::min);
        rows.push(vec![waiting.to_string(), format!("{nanos:.0}")]);
        report.data(&format!("{waiting} rows waiting, ns"), json!(nanos));
        costs.push(nanos);
    }
    report.table(&["rows waiting", "ns a request"], &rows);
    report.figure("cost of a request with 128 rows waiting", Asked::AtMost(250.0), costs[0], "ns");
    report.figure("cost of a request with 10,000 rows waiting", Asked::AtMost(250.0), costs[2], "ns");

    report.text("The simulator: million requests a second of Poisson arrivals, these drawn meanwhile.");
    let large = Setup { base: 2.0, per_row: 0.0005, max_batch: 10_000, max_latency: 50.0 };
    let mut rows = Vec::new();
    let (mut at_capacity, mut slowest) = (0.0, f64::INFINITY);
    for (setup, load) in [(SETUPS[0], 0.05), (SETUPS[0], 0.9), (SETUPS[0], 2.0), (SETUPS[3], 0.5), (large, 0.7)] {
        let [cork, eager] = [CORK, EAGER].map(|(_, make)| {
            let runs = (0..RUNS).map(|_| simulator(&setup, load, make));
            runs.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are runs")
        });
        slowest = f64::min(slowest, cork.0);
        if load == 0.9 {
            at_capacity = cork.0;
        }
        report.data(&format!("simulator {setup}, {load}"), json!({ "cork": cork.0, "eager": eager.0 }));
        rows.push(vec![
            setup.to_string(),
            format!("{load}"),
            format!("{:.1}", cork.1),
            format!("{:.1}", cork.0),
            format!("{:.1}", eager.0),
        ]);
    }
    report.table(&["model, cap rows, cap ms", "load", "rows a batch", "cork, M/s", "eager, M/s"], &rows);
    let unit = "million requests a second";
    report.figure("simulator, at 0.9 of the capacity", Asked::AtLeast(3.0), at_capacity, unit);
    report.figure("simulator, the slowest of these loads", Asked::AtLeast(3.0), slowest, unit);
}

/// Million requests a second, and rows a batch.
fn simulator(setup: &Setup, load: f64, make: Make) -> (f64, f64) {
    let rate = load * setup.capacity();
    let arrivals = Process::Poisson { rate }.arrivals(Duration::from_secs_f64(REQUESTS / rate), 1);
    let clock = Clock::now();
    let outcome = only(setup.scenario(make(setup), setup.service(), 1), &mut OpenLoop::new(arrivals));
    (outcome.offered as f64 / clock.elapsed().as_secs_f64() / 1e6, outcome.mean_batch_rows())
}

/// Nanoseconds a request at a pool of one runner that is always busy, each batch of 128 taking 8.4 ms, while so many rows
/// wait: each round one batch lands, one is released, and as many requests arrive one by one.
fn dispatcher(waiting: usize) -> f64 {
    const CAP: usize = 128;
    let time = |rows: usize| ms(2.0 + 0.05 * rows as f64);
    let mut lane = Lane::new(Box::new(Cork), CAP);
    for rows in [1, 16, 64, 128, 1, 16, 64, 128] {
        lane.seen(Instant::EPOCH, rows, time(rows));
    }
    let mut pool = Dispatcher::new(1);
    let lane = pool.open(lane);
    let mut now = Instant::EPOCH;
    let mut next_id = 0;
    let mut arrive = |pool: &mut Dispatcher, at: Instant| {
        let deadline = at + Duration::from_secs(10);
        pool.arrive(lane, Entry::new(next_id, at, deadline));
        next_id += 1;
    };
    (0..waiting).for_each(|_| arrive(&mut pool, now));
    let gap = time(CAP) / CAP as u32;
    let clock = Clock::now();
    let mut requests = 0;
    for _ in 0..BATCHES {
        let Step::Release(batch) = pool.poll(now, |_, entry| black_box(entry).rows > 0) else {
            panic!("a runner is free and {waiting} rows wait")
        };
        for _ in 0..batch.entries.len() {
            now = now + gap;
            arrive(&mut pool, now);
            black_box(pool.poll(now, |_, _| true));
        }
        requests += batch.entries.len();
        pool.land(now, batch.ticket, Landing::Answered { took: time(batch.rows), late: 0 });
    }
    clock.elapsed().as_nanos() as f64 / requests as f64
}
