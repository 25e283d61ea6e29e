//! Steady overload: what is answered, how fast, and how soon the others are told.

use std::sync::{Arc, Mutex};

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Decision, Policy, View};

use crate::case::{SETUPS, Setup};
use crate::report::{Asked, Report, percent};
use crate::seeds::Seeds;

const LOADS: [f64; 3] = [1.2, 1.5, 3.0];
/// Seconds of each run.
const LENGTH: f64 = 60.0;
/// Seeds that nothing was tuned on.
const FIRST_SEED: u64 = 301;

/// Cork, and how long those whom it refused had waited, in ms.
struct Overheard(Arc<Mutex<Vec<f64>>>);

impl Policy for Overheard {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let decision = Cork.decide(now, view);
        if let Decision::Shed { entries, .. } = &decision {
            let refused = view.queue.iter().skip(entries.start).take(entries.len());
            let waited = refused.map(|entry| now.since(entry.arrival).as_secs_f64() * 1e3);
            self.0.lock().expect("one thread").extend(waited);
        }
        decision
    }
}

struct Result {
    of_optimum: f64,
    /// Shares of the cap: mean latency, and the median and the 0.9 quantile of the time to a refusal.
    latency: f64,
    refused: [f64; 2],
}

fn run(setup: &Setup, load: f64, seeds: Seeds) -> Result {
    let waited = Arc::default();
    let (mut on_time, mut optimum, mut latency) = (0, 0, 0.0);
    for seed in seeds.after(FIRST_SEED - 1).all() {
        let arrivals = setup.load("Poisson", load, LENGTH, seed);
        let outcome = setup.run(Box::new(Overheard(Arc::clone(&waited))), &arrivals);
        on_time += outcome.on_time;
        optimum += setup.optimum(&arrivals);
        latency += outcome.mean_latency().as_secs_f64() * 1e3 / seeds.count as f64;
    }
    let mut waited = waited.lock().expect("one thread");
    waited.sort_by(f64::total_cmp);
    let quantile = |q: f64| waited.get((waited.len() as f64 * q) as usize).copied().unwrap_or_default();
    let of_cap = |ms: f64| ms / setup.max_latency * 100.0;
    let refused = [0.5, 0.9].map(|q| of_cap(quantile(q)));
    Result { of_optimum: percent(on_time, optimum), latency: of_cap(latency), refused }
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Poisson arrivals beyond the capacity for {LENGTH} s, {seeds} seeds. Per cent of the optimum, then three times in per cent of \
         the cap: mean latency, and time to a refusal at the median and at p90."
    ));
    let (mut rows, mut told, mut waited) = (Vec::new(), 0.0f64, 0.0f64);
    for setup in SETUPS {
        let mut row = vec![setup.to_string()];
        for load in LOADS {
            report.progress(&format!("{setup}, {load}"));
            let Result { of_optimum, latency, refused: [median, p90] } = run(&setup, load, seeds);
            row.push(format!("{of_optimum:.2} / {latency:.0} / {median:.0} / {p90:.0}"));
            let numbers = json!({ "of_optimum": of_optimum, "latency": latency, "median": median, "p90": p90 });
            report.data(&format!("{setup}, {load}"), numbers);
            if 3.0 * setup.time(setup.max_batch) <= setup.max_latency {
                told = told.max(p90);
                waited = if load == 1.5 { waited.max(latency) } else { waited };
            }
        }
        rows.push(row);
    }
    report.table(&["model, cap rows, cap ms", "1.2", "1.5", "3"], &rows);
    let name = "steady overload, p90 of the time to a refusal where a queue can stand";
    report.figure(name, Asked::AtMost(25.0), told, "% of the cap");
    let name = "overload of 1.5, mean latency where a queue can stand";
    report.figure(name, Asked::AtMost(60.0), waited, "% of the cap");
}
