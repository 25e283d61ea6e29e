//! Two models on one pool: a quick one under a tight cap beside one whose batches are long.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::json;
use uncork_core::policy::Cork;
use uncork_sim::{Arrival, Model, OpenLoop, Outcome, Process, Scenario, run};

use crate::case::{Setup, ms};
use crate::report::{Asked, Report, percent, summary};

const fn setup(base: f64, per_row: f64, max_batch: usize, max_latency: f64) -> Setup {
    Setup { base, per_row, max_batch, max_latency }
}

/// The one whose callers are in a hurry, the one beside it, and runners.
const CASES: [(Setup, Setup, usize); 7] = [
    (setup(2.0, 0.05, 64, 30.0), setup(3.0, 0.94, 128, 500.0), 1),
    (setup(2.0, 0.05, 64, 30.0), setup(3.0, 0.94, 128, 500.0), 4),
    (setup(2.0, 0.05, 64, 30.0), setup(10.0, 0.5, 256, 500.0), 1),
    (setup(5.0, 0.2, 64, 50.0), setup(20.0, 0.5, 256, 1000.0), 1),
    (setup(5.0, 0.2, 64, 50.0), setup(20.0, 0.5, 256, 1000.0), 4),
    (setup(2.0, 0.05, 64, 30.0), setup(40.0, 0.2, 256, 500.0), 1),
    (setup(10.0, 0.5, 64, 60.0), setup(10.0, 0.5, 64, 200.0), 1),
];
/// What the two ask for, as shares of what the whole pool can do of it in full batches.
const LOADS: [(f64, f64); 4] = [(0.05, 0.5), (0.2, 0.4), (0.2, 0.7), (0.2, 3.0)];
const SECONDS: f64 = 20.0;

fn arrivals(setup: &Setup, model: usize, load: f64, seed: u64) -> Vec<Arrival> {
    let process = Process::Poisson { rate: load * setup.capacity() };
    let arrivals = process.arrivals(Duration::from_secs_f64(SECONDS), seed + 1000 * model as u64);
    arrivals.map(|arrival| Arrival { model, ..arrival }).collect()
}

fn outcomes(setups: [&Setup; 2], runners: usize, loads: [f64; 2], seed: u64) -> Vec<Outcome> {
    let mut all: Vec<Arrival> = (0..2).flat_map(|i| arrivals(setups[i], i, loads[i] * runners as f64, seed)).collect();
    all.sort_by_key(|arrival| arrival.at);
    let model = |setup: &&Setup| Model {
        service: setup.service(),
        max_latency: ms(setup.max_latency),
        max_batch: setup.max_batch,
        weight: NonZeroUsize::MIN,
        policy: Box::new(Cork),
        tried: None,
        warm: true,
    };
    let models = setups.iter().map(model).collect();
    run(Scenario { runners, models, seed: 7, timer: Duration::ZERO }, &mut OpenLoop::new(all))
}

pub(crate) fn measure(seeds: u64, report: &mut Report) {
    report.text(&format!(
        "Two models on one pool, Poisson, {seeds} seeds of {SECONDS} s. On time in per cent of the requests: first the hurried one, then \
         the other, and the same of each with the pool to itself. Loads are shares of the pool's capacity."
    ));
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    let (mut hurried, mut others) = (Vec::new(), Vec::new());
    for (quick, slow, runners) in CASES {
        for (a, b) in LOADS {
            report.progress(&format!("{quick} beside {slow}, {runners}, {a} and {b}"));
            let share = |loads: [f64; 2], model: usize| {
                let each = (1..=seeds).map(|seed| outcomes([&quick, &slow], runners, loads, seed).swap_remove(model));
                let (on_time, offered) =
                    each.fold((0, 0), |sum, outcome| (sum.0 + outcome.on_time, sum.1 + outcome.offered as usize));
                percent(on_time, offered)
            };
            let beside = [share([a, b], 0), share([a, b], 1)];
            let alone = [share([a, 1e-9], 0), share([1e-9, b], 1)];
            // Behind a single row of the other that takes longer than the cap, no size of its batches would do.
            if slow.time(1) < quick.max_latency {
                hurried.push(beside[0] / alone[0] * 100.0);
                others.push(beside[1] / alone[1] * 100.0);
            }
            rows.push(vec![
                quick.to_string(),
                slow.to_string(),
                runners.to_string(),
                format!("{a} / {b}"),
                format!("{:.1} / {:.1}", beside[0], beside[1]),
                format!("{:.1} / {:.1}", alone[0], alone[1]),
            ]);
            data.push(json!({
                "hurried": quick.to_string(), "other": slow.to_string(), "runners": runners, "loads": [a, b],
                "beside": beside, "alone": alone,
            }));
        }
    }
    report.table(&["hurried", "other", "runners", "loads", "on time", "each alone"], &rows);
    report.data("cases", json!(data));
    let (mean, worst, _) = summary(hurried);
    report.figure("pool, model in a hurry, mean part of what it has alone", Asked::AtLeast(98.0), mean, "%");
    report.figure("pool, model in a hurry, worst part of what it has alone", Asked::AtLeast(94.0), worst, "%");
    report.data("others", json!(summary(others).0));
}
