//! Two models on one pool: a quick one under a tight cap beside one whose batches are long.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::json;
use uncork_core::policy::Cork;
use uncork_sim::{Arrival, Model, OpenLoop, Outcome, Process, Scenario, run};

use crate::case::{Setup, ms};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;

const fn setup(base: f64, per_row: f64, max_batch: usize, max_latency: f64) -> Setup {
    Setup { base, per_row, max_batch, max_latency }
}

/// The one whose callers are in a hurry, the one beside it, and runners.
const CASES: [(Setup, Setup, usize); 8] = [
    (setup(2.0, 0.05, 64, 30.0), setup(3.0, 0.94, 128, 500.0), 1),
    (setup(2.0, 0.05, 64, 30.0), setup(3.0, 0.94, 128, 500.0), 4),
    (setup(2.0, 0.05, 64, 30.0), setup(3.0, 0.94, 128, 500.0), 16),
    (setup(2.0, 0.05, 64, 30.0), setup(10.0, 0.5, 256, 500.0), 1),
    (setup(5.0, 0.2, 64, 50.0), setup(20.0, 0.5, 256, 1000.0), 1),
    (setup(5.0, 0.2, 64, 50.0), setup(20.0, 0.5, 256, 1000.0), 4),
    (setup(2.0, 0.05, 64, 30.0), setup(40.0, 0.2, 256, 500.0), 1),
    (setup(10.0, 0.5, 64, 60.0), setup(10.0, 0.5, 64, 200.0), 1),
];
/// What the two ask for, as shares of what the whole pool can do of it in full batches.
const LOADS: [(f64, f64); 4] = [(0.05, 0.5), (0.2, 0.4), (0.2, 0.7), (0.2, 3.0)];
/// Who asks for that much is a flood.
const FLOOD: f64 = 1.0;
const SECONDS: f64 = 20.0;
/// Smaller caps of the other's batches, as shares of its own: what could be reached by whoever is told which is best.
const BOUNDS: [f64; 8] = [0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5];
/// A hurried model beside no flood that has less of what it has alone is looked at more closely.
const SHORT: f64 = 98.0;
/// What it is asked to have at least.
const LEAST: f64 = 94.0;

fn arrivals(setup: &Setup, model: usize, load: f64, seed: u64) -> Vec<Arrival> {
    let process = Process::Poisson { rate: load * setup.capacity() };
    let arrivals = process.arrivals(Duration::from_secs_f64(SECONDS), seed + 1000 * model as u64);
    arrivals.map(|arrival| Arrival { model, ..arrival }).collect()
}

/// What becomes of the two, where the other's batches have no more rows than `bound`.
fn outcomes(setups: [&Setup; 2], runners: usize, loads: [f64; 2], seed: u64, bound: usize) -> Vec<Outcome> {
    let mut all: Vec<Arrival> = (0..2).flat_map(|i| arrivals(setups[i], i, loads[i] * runners as f64, seed)).collect();
    all.sort_by_key(|arrival| arrival.at);
    let model = |(setup, bound): (&Setup, usize)| Model {
        service: setup.service(),
        max_latency: ms(setup.max_latency),
        max_batch: setup.max_batch.min(bound),
        weight: NonZeroUsize::MIN,
        policy: Box::new(Cork),
        tried: None,
        way_back: Duration::ZERO,
        warm: true,
    };
    let models = setups.into_iter().zip([usize::MAX, bound]).map(model).collect();
    run(Scenario { runners, models, seed: 7, timer: Duration::ZERO }, &mut OpenLoop::new(all))
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Two models on one pool, Poisson, {seeds} seeds of {SECONDS} s. On time in per cent of the requests: first the hurried one, then \
         the other, and the same of each with the pool to itself. Loads are shares of the pool's capacity. Both together have \
         the mean of their parts of what they have alone. The best known is the best of {} smaller caps of the other's batches, \
         after the fact. A bound of cork's own that is too tight it does not show.",
        BOUNDS.len()
    ));
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    let (mut beside_floods, mut beside_others, mut of_best) = (Vec::new(), Vec::new(), Vec::new());
    let mut closer = Vec::new();
    for (quick, slow, runners) in CASES {
        for (a, b) in LOADS {
            report.progress(&format!("{quick} beside {slow}, {runners}, {a} and {b}"));
            let shares = |loads: [f64; 2], bound: usize| {
                let mut sums = [(0, 0); 2];
                for seed in seeds.all() {
                    for (sum, outcome) in sums.iter_mut().zip(outcomes([&quick, &slow], runners, loads, seed, bound)) {
                        *sum = (sum.0 + outcome.on_time, sum.1 + outcome.offered as usize);
                    }
                }
                sums.map(|(on_time, offered)| percent(on_time, offered))
            };
            let alone = [shares([a, 1e-9], usize::MAX)[0], shares([1e-9, b], usize::MAX)[1]];
            let together = |shares: [f64; 2]| (shares[0] / alone[0] + shares[1] / alone[1]) * 50.0;
            let beside = shares([a, b], usize::MAX);
            let bounds = BOUNDS.map(|share| (slow.max_batch as f64 * share) as usize);
            let bounded = bounds.map(|bound| shares([a, b], bound));
            let best = bounded.into_iter().map(together).fold(together(beside), f64::max);
            of_best.push(together(beside) / best * 100.0);
            // Behind a single row of the other that takes longer than the cap, no size of its batches would do.
            if slow.time(1) < quick.max_latency {
                let all = if b > FLOOD { &mut beside_floods } else { &mut beside_others };
                all.push(beside[0] / alone[0] * 100.0);
                if b <= FLOOD && beside[0] / alone[0] * 100.0 < SHORT {
                    let asked = [a * quick.capacity(), b * slow.capacity()];
                    let rows = |shares: [f64; 2]| shares[0] * asked[0] + shares[1] * asked[1];
                    let more = |s: [f64; 2]| (rows(s) / rows(beside) - 1.0) * 100.0;
                    let cell = |s: [f64; 2]| format!("{:.1} / {:.1} / {:+.1}", s[0], s[1], more(s));
                    let all = std::iter::once(beside).chain(bounded);
                    let enough = all.clone().filter(|s| s[0] / alone[0] * 100.0 >= LEAST).map(more);
                    let label = format!("{quick}; {slow}; {runners}; {a} / {b}");
                    let most = format!("{:+.1}", enough.fold(f64::NEG_INFINITY, f64::max));
                    closer.push([label, most].into_iter().chain(all.map(cell)).collect::<Vec<_>>());
                }
            }
            rows.push(vec![
                quick.to_string(),
                slow.to_string(),
                runners.to_string(),
                format!("{a} / {b}"),
                format!("{:.1} / {:.1}", beside[0], beside[1]),
                format!("{:.1} / {:.1}", alone[0], alone[1]),
                format!("{:.1}", together(beside) / best * 100.0),
            ]);
            data.push(json!({
                "hurried": quick.to_string(), "other": slow.to_string(), "runners": runners, "loads": [a, b],
                "beside": beside, "alone": alone, "best": best,
            }));
        }
    }
    report.table(&["hurried", "other", "runners", "loads", "on time", "each alone", "of the best known, %"], &rows);
    report.data("cases", json!(data));
    report.text(
        "Where the hurried model has less than 98 % of what it has alone beside no flood: cork, and smaller caps of the other's batches, as \
         parts of its own. On time of the one and of the other in per cent. Then how many more rows of the two together are on time than with \
         cork. Before them the most of this that leaves the hurried model 94 % of what it has alone: where that is negative, the figure is \
         out of reach of all these but by more refusals.",
    );
    let names: Vec<String> = BOUNDS.iter().map(f64::to_string).collect();
    let header: Vec<&str> = ["hurried; other; runners; loads", "most with 94 %", "cork"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    report.table(&header, &closer);
    let figures = [
        ("model in a hurry beside a flood", "part of what it has alone", beside_floods),
        ("model in a hurry beside no flood", "part of what it has alone", beside_others),
        ("both together", "share of the best known", of_best),
    ];
    for (who, what, shares) in figures {
        let (mean, worst, _) = summary(shares);
        report.figure(&format!("pool, {who}, mean {what}"), Asked::AtLeast(98.0), mean, "%");
        report.figure(&format!("pool, {who}, worst {what}"), Asked::AtLeast(94.0), worst, "%");
    }
}
