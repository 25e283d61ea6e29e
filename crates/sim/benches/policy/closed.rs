//! Throughput of closed loops: N clients that each wait for an answer, think and ask again.

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_sim::ClosedLoop;

use crate::case::{CORK, EAGER, Make, Setup, ms, only};
use crate::report::{Asked, Report};

/// α ≥ 10 β, with a cap that does not matter.
const SETUPS: [Setup; 4] = [at(5.0, 0.05), at(10.0, 0.5), at(10.0, 1.0), at(20.0, 0.5)];
/// Thinking times, in α.
const THINKS: [f64; 7] = [0.0, 0.1, 0.3, 0.6, 0.9, 1.5, 3.0];
/// σ of the thinking times' log-normal factor.
const JITTERS: [f64; 3] = [0.0, 0.1, 0.5];
/// Virtual seconds of each run, its learning included.
const LENGTH: f64 = 20.0;

const fn at(base: f64, per_row: f64) -> Setup {
    Setup { base, per_row, max_batch: 128, max_latency: 100.0 * base }
}

pub(crate) fn measure(report: &mut Report) {
    report.text("Answers in per cent of N/(t(N) + think): cork / eager. Thinking times in α.");
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    let mut worst = [f64::INFINITY; JITTERS.len()];
    for setup in SETUPS {
        for clients in [16, 64] {
            for (jitter, worst) in JITTERS.into_iter().zip(&mut worst) {
                let mut row =
                    vec![format!("{} + {}·n", setup.base, setup.per_row), clients.to_string(), jitter.to_string()];
                for think in THINKS {
                    let [cork, eager] = [CORK, EAGER].map(|(_, make)| share(&setup, make, clients, think, jitter));
                    row.push(format!("{cork:.0} / {eager:.0}"));
                    *worst = worst.min(cork);
                    data.push(json!({
                        "base": setup.base, "per_row": setup.per_row, "clients": clients, "think_in_base": think,
                        "jitter": jitter, "cork": cork, "eager": eager,
                    }));
                }
                rows.push(row);
            }
        }
    }
    let thinks: Vec<String> = THINKS.iter().map(|think| format!("think {think}")).collect();
    let header: Vec<&str> = ["batch, ms", "N", "jitter"].into_iter().chain(thinks.iter().map(String::as_str)).collect();
    report.table(&header, &rows);
    report.data("cases", json!(data));
    for (jitter, worst) in JITTERS.into_iter().zip(worst) {
        let what = format!("closed loop, least throughput, jitter {jitter}, any thinking time");
        report.figure(&what, Asked::AtLeast(95.0), worst, "%");
    }
}

/// Answers in per cent of what all clients in one batch each time would get.
pub(crate) fn share(setup: &Setup, make: Make, clients: usize, think: f64, jitter: f64) -> f64 {
    let think = think * setup.base;
    let mut source = ClosedLoop::new(clients, ms(think), jitter, Instant::EPOCH + ms(LENGTH * 1e3), 3);
    let outcome = only(setup.scenario(make(setup), setup.service(), 1), &mut source);
    let ideal = clients as f64 / (setup.time(clients) + think) * 1e3;
    outcome.on_time as f64 / LENGTH / ideal * 100.0
}
