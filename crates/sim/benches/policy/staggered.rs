//! Several runners from light load to overload, beside the best that any rule of the kind does.

use serde_json::json;
use uncork_core::estimator::{Fit, Instant};
use uncork_core::policy::{Cork, Decision, Policy, ReleaseReason, View};
use uncork_sim::{Arrival, OpenLoop};

use crate::case::{CORK, EAGER, SETUPS, Setup, only};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;

const RUNNERS: [usize; 4] = [2, 4, 8, 16];
const LOADS: [f64; 5] = [0.3, 0.6, 0.9, 1.2, 2.0];
const PROCESSES: [&str; 2] = ["Poisson", "gamma CV 4"];
/// Requests of each run: after a tenth of them all that is learned is learned.
const REQUESTS: f64 = 30_000.0;
/// Constant patiences; the last holds until the latest start.
pub(crate) const CONSTANTS: [f64; 6] = [0.0, 0.6, 1.5, 3.0, 6.0, 1e9];
/// Rows at which a control limit releases, as shares of the largest batch.
const LIMITS: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// A rival that knows the batch times and refuses as cork does.
pub(crate) struct Told {
    pub(crate) fit: Fit,
    pub(crate) patience: f64,
    /// With so many rows ready nothing is held.
    pub(crate) limit: usize,
}

impl Policy for Told {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let decision = Cork.decide(now, View { fit: &self.fit, patience: self.patience, ..view });
        let (entries, rows) = view.queue.prefix(view.max_batch);
        match decision {
            Decision::WaitUntil(_) if view.has_free_runner() && rows >= self.limit => {
                Decision::Release { entries, reason: ReleaseReason::Ripe }
            }
            decision => decision,
        }
    }
}

/// Rules of the kind, by name.
pub(crate) fn rivals(setup: &Setup) -> Vec<(String, Told)> {
    let fit = setup.fit();
    let constant = |patience| (format!("c = {patience}"), Told { fit: fit.clone(), patience, limit: usize::MAX });
    let limit = |share: f64| {
        let rows = (setup.largest_batch() as f64 * share).round().max(1.0) as usize;
        (format!("{rows} rows"), Told { fit: fit.clone(), patience: 1e9, limit: rows })
    };
    CONSTANTS.into_iter().map(constant).chain(LIMITS.into_iter().map(limit)).collect()
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Several runners: cork's answers on time in per cent of the best of {} rules after the fact. Those are told the batch \
         times, and have a constant patience or a control limit. {seeds} seeds of {REQUESTS} requests.",
        CONSTANTS.len() + LIMITS.len()
    ));
    let (mut rows, mut data, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for setup in [SETUPS[0], SETUPS[2], SETUPS[3]] {
        for process in PROCESSES {
            for runners in RUNNERS {
                let mut row = vec![setup.to_string(), process.to_string(), runners.to_string()];
                for load in LOADS {
                    report.progress(&format!("{setup}, {process}, {runners}, {load}"));
                    let length = REQUESTS / (load * runners as f64 * setup.capacity());
                    let loads: Vec<Vec<Arrival>> =
                        seeds.all().map(|seed| setup.load(process, load * runners as f64, length, seed)).collect();
                    let offered = loads.iter().map(Vec::len).sum();
                    let on_time = |make: &dyn Fn() -> Box<dyn Policy>| -> u64 {
                        let run = |arrivals: &Vec<Arrival>| {
                            let scenario = setup.scenario(make(), setup.service(), runners);
                            only(scenario, &mut OpenLoop::new(arrivals.iter().copied())).on_time
                        };
                        loads.iter().map(run).sum()
                    };
                    let cork = on_time(&|| (CORK.1)(&setup));
                    let eager = ("eager".to_string(), on_time(&|| (EAGER.1)(&setup)));
                    let names = rivals(&setup).into_iter().map(|(name, _)| name).enumerate();
                    let each = names.map(|(i, name)| (name, on_time(&|| Box::new(rivals(&setup).swap_remove(i).1))));
                    let (best, most) = each.chain([eager]).max_by_key(|(_, count)| *count).expect("there are rivals");
                    let share = percent(cork, most as usize);
                    row.push(format!("{share:.1}"));
                    shares.push(share);
                    data.push(json!({
                        "setup": setup.to_string(), "process": process, "runners": runners, "load": load,
                        "cork": percent(cork, offered), "best": percent(most, offered), "rule": best,
                    }));
                }
                rows.push(row);
            }
        }
    }
    let loads = LOADS.map(|load| load.to_string());
    let header: Vec<&str> = ["model, cap rows, cap ms", "arrivals", "runners"]
        .into_iter()
        .chain(loads.iter().map(String::as_str))
        .collect();
    report.table(&header, &rows);
    report.data("cases", json!(data));
    let (mean, worst, _) = summary(shares);
    report.figure("several runners, mean share of the best known", Asked::AtLeast(98.0), mean, "%");
    report.figure("several runners, worst share of the best known", Asked::AtLeast(94.0), worst, "%");
}
