//! Mean latency on one runner with time to spare, beside the best control limit and the best fixed wait.

use std::time::Duration;

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Decision, Fixed, Policy, ReleaseReason, View};
use uncork_sim::{Arrival, Process};

use crate::case::{Setup, ms};
use crate::report::{Asked, Report, summary};
use crate::seeds::Seeds;

/// Arrivals of each run, the learning included.
const ARRIVALS: f64 = 8000.0;
/// Rows at which a control limit releases.
const LIMITS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// Releases all that fit into a batch once so many rows wait (Deb and Serfozo, 1973). `Fixed` is no such rule: its size is
/// also the most that a batch of it holds, and a small one makes the server slow.
struct ControlLimit {
    rows: usize,
    /// After so long it releases what there is: the last arrivals would else wait for ever.
    give_up: Duration,
}

impl Policy for ControlLimit {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let Some(first) = view.queue.first() else { return Decision::Park };
        let until = first.arrival + self.give_up;
        if !view.has_free_runner() {
            return Decision::WaitUntil(now + Duration::from_secs(3600)); // a landing comes sooner
        }
        let (entries, rows) = view.queue.prefix(view.max_batch);
        if rows >= self.rows.min(view.max_batch) || until <= now {
            return Decision::Release { entries, reason: ReleaseReason::Ripe };
        }
        Decision::WaitUntil(until)
    }
}
/// Fixed waits are 0 and these, in α.
const WAITS: usize = 15;

/// A cap of 100 α: nobody is refused, and mean latencies can be compared.
const fn at(base: f64, per_row: f64, max_batch: usize) -> Setup {
    Setup { base, per_row, max_batch, max_latency: 100.0 * base }
}

const SETUPS: [Setup; 4] = [at(2.0, 0.05, 128), at(10.0, 0.5, 64), at(10.0, 1.0, 32), at(20.0, 0.5, 64)];

fn wait(setup: &Setup, i: usize) -> f64 {
    if i == 0 { 0.0 } else { setup.base * 0.02 * 1.4f64.powi(i as i32 - 1) }
}

struct Case {
    kind: &'static str,
    name: String,
    rate: f64,
    process: Process,
}

fn cases(setup: &Setup) -> Vec<Case> {
    let limit = setup.capacity();
    let mut cases = Vec::new();
    for load in [0.05, 0.2, 0.4, 0.6, 0.8] {
        let rate = load * limit;
        let process = Process::Poisson { rate };
        cases.push(Case { kind: "Poisson", name: format!("Poisson {load}"), rate, process });
    }
    for load in [0.05, 0.2, 0.4] {
        for size in [4, 16] {
            for spread in [0.1, 0.3, 0.6] {
                let rate = load * limit;
                let process = Process::FanOut { groups: rate / size as f64, size, spread: ms(spread * setup.base) };
                let name = format!("fan-out {load}, {size} within {spread} α");
                cases.push(Case { kind: "fan-out", name, rate, process });
            }
        }
    }
    for load in [0.05, 0.2, 0.4, 0.6] {
        for cv in [2.0, 4.0, 8.0] {
            let rate = load * limit;
            let process = Process::Gamma { rate, cv };
            cases.push(Case { kind: "clumps", name: format!("gamma {load}, CV {cv}"), rate, process });
        }
    }
    cases
}

/// Mean latency in ms of the answers of all loads.
fn mean(setup: &Setup, loads: &[Vec<Arrival>], make: &dyn Fn() -> Box<dyn Policy>) -> f64 {
    let each = loads.iter().map(|load| setup.run(make(), load).mean_latency().as_secs_f64() * 1e3);
    summary(each).0
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Mean latency in per cent of that under the best rule after the fact. With Poisson that is a control limit, with fan-out \
         and clumps a fixed wait. Loads are shares of cap/t(cap); {seeds} × {ARRIVALS} arrivals."
    ));
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    let mut worst = ["Poisson", "fan-out", "clumps"].map(|kind| (kind, f64::NEG_INFINITY));
    for setup in SETUPS {
        for case in cases(&setup) {
            report.progress(&format!("{setup}, {}", case.name));
            let length = Duration::from_secs_f64(ARRIVALS / case.rate);
            let loads: Vec<Vec<Arrival>> =
                seeds.all().map(|seed| case.process.arrivals(length, seed).collect()).collect();
            let cork = mean(&setup, &loads, &|| Box::new(Cork));
            let eager = mean(&setup, &loads, &|| Box::new(Fixed::EAGER));
            let (best, setting) = if case.kind == "Poisson" {
                let limit = |rows| ControlLimit { rows, give_up: ms(40.0 * setup.base) };
                let each =
                    LIMITS.map(|b| (mean(&setup, &loads, &|| Box::new(limit(b))), format!("{b} rows"))).into_iter();
                each.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are limits")
            } else {
                let fixed = |ms_waited| Fixed::new(ms(ms_waited), setup.max_batch);
                let waits = (0..=WAITS).map(|i| wait(&setup, i));
                let each = waits.map(|w| (mean(&setup, &loads, &|| Box::new(fixed(w))), format!("{w:.2} ms")));
                each.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are waits")
            };
            let over = |latency: f64| (latency / best - 1.0) * 100.0;
            for (kind, worst) in &mut worst {
                if *kind == case.kind {
                    *worst = worst.max(over(cork));
                }
            }
            rows.push(vec![
                format!("{} + {}·n", setup.base, setup.per_row),
                case.name.clone(),
                setting,
                format!("{best:.2}"),
                format!("{:+.1}", over(cork)),
                format!("{:+.1}", over(eager)),
            ]);
            data.push(json!({
                "setup": setup.to_string(), "load": case.name, "best_ms": best, "cork_over": over(cork),
                "eager_over": over(eager),
            }));
        }
    }
    report.table(&["batch, ms", "load", "best", "its mean, ms", "cork, %", "eager, %"], &rows);
    report.data("cases", json!(data));
    for ((kind, worst), most) in worst.into_iter().zip([1.0, 5.0, 5.0]) {
        report.figure(&format!("latency, {kind}, most above the best"), Asked::AtMost(most), worst, "%");
    }
}
