//! Closed loops on several runners, beside the best fixed rule after the fact.

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::Policy;
use uncork_sim::{ClosedLoop, Outcome, Scenario, best_fixed};

use crate::case::{CORK, EAGER, Setup, ms, only};
use crate::report::{Asked, Report, summary};

const SETUPS: [Setup; 2] = [
    Setup { base: 8.0, per_row: 0.5, max_batch: 32, max_latency: 60.0 },
    Setup { base: 2.0, per_row: 0.05, max_batch: 128, max_latency: 50.0 },
];
const RUNNERS: [usize; 3] = [2, 3, 4];
const CLIENTS: [usize; 4] = [3, 6, 12, 40];
/// Thinking times, in α.
const THINKS: [f64; 3] = [0.1, 0.6, 2.5];
/// σ of the thinking times' log-normal factor.
const JITTERS: [f64; 3] = [0.0, 0.1, 0.5];
/// Length of each run in α, its learning included; and of a rival's, who has nothing to learn.
const LENGTH: f64 = 2000.0;
const LENGTH_TOLD: f64 = 500.0;

pub(crate) fn measure(report: &mut Report) {
    report.text(&format!(
        "Closed loops on several runners: answers in per cent of what the best `fixed` of about 300 settings after the fact has, or eager. \
         First cork, then eager. Thinking times in α; {LENGTH} α each."
    ));
    let (mut rows, mut data, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for setup in SETUPS {
        for runners in RUNNERS {
            for clients in CLIENTS {
                let mut row =
                    vec![format!("{} + {}·n", setup.base, setup.per_row), runners.to_string(), clients.to_string()];
                for think in THINKS {
                    for jitter in JITTERS {
                        report.progress(&format!(
                            "{setup}, {runners} runners, {clients} clients, think {think}, jitter {jitter}"
                        ));
                        let source = |length| {
                            let end = Instant::EPOCH + ms(length * setup.base);
                            ClosedLoop::new(clients, ms(think * setup.base), jitter, end, 3)
                        };
                        let scenario =
                            |policy: Box<dyn Policy>| -> Scenario { setup.scenario(policy, setup.service(), runners) };
                        let [cork, eager] = [CORK, EAGER]
                            .map(|(_, make)| rate(&only(scenario(make(&setup)), &mut source(LENGTH)), LENGTH));
                        let (fixed, outcome) =
                            best_fixed(scenario, || source(LENGTH_TOLD)).expect("a scenario of one model has a best");
                        let best = rate(&outcome, LENGTH_TOLD).max(eager);
                        let [cork, eager] = [cork, eager].map(|rate| rate / best * 100.0);
                        row.push(format!("{cork:.0} / {eager:.0}"));
                        shares.push(cork);
                        data.push(json!({
                            "setup": setup.to_string(), "runners": runners, "clients": clients, "think_in_base": think,
                            "jitter": jitter, "cork": cork, "eager": eager, "rule": format!("{fixed:?}"),
                        }));
                    }
                }
                rows.push(row);
            }
        }
    }
    let columns: Vec<String> =
        THINKS.iter().flat_map(|think| JITTERS.map(|jitter| format!("{think}, σ {jitter}"))).collect();
    let header: Vec<&str> =
        ["batch, ms", "runners", "N"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    report.table(&header, &rows);
    report.data("cases", json!(data));
    let (mean, worst, _) = summary(shares);
    report.figure("closed loops on several runners, mean share of the best known", Asked::AtLeast(98.0), mean, "%");
    report.figure("closed loops on several runners, worst share of the best known", Asked::AtLeast(94.0), worst, "%");
}

/// Answers in time for each α.
fn rate(outcome: &Outcome, length: f64) -> f64 {
    outcome.on_time as f64 / length
}
