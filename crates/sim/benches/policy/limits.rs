//! What holding could gain at most where cork is furthest from the optimum: the best patience after the fact, and foresight.

use std::time::Duration;

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Decision, Policy, View};
use uncork_sim::Arrival;

use crate::case::{LOADS, SETUPS, Setup, instants, ms};
use crate::report::{Report, percent};
use crate::seeds::Seeds;

const HARD: Setup = SETUPS[3];
const PROCESS: &str = "gamma CV 4";
const CONSTANTS: [f64; 9] = [0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0];
const FORESIGHT_MS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
/// For each one of those that are asked for: chance must not hide a tenth of a point.
const SEEDS: u64 = 4;

/// Cork that never learns how long to hold.
enum Holding {
    Patience(f64),
    /// For an arrival that comes within so long, and only for such a one.
    Foresight(Vec<Instant>, Duration),
}

impl Policy for Holding {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let patience = match self {
            Holding::Patience(patience) => *patience,
            Holding::Foresight(arrivals, within) => {
                let next = arrivals.get(arrivals.partition_point(|at| *at <= now));
                // Patience without end is ended by the latest start, or by the next decision.
                if next.is_some_and(|at| at.since(now) <= *within) { 1e9 } else { 0.0 }
            }
        };
        Cork.decide(now, View { patience, ..view })
    }
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    let seeds = seeds.times(SEEDS);
    report.text(&format!(
        "{PROCESS} on {HARD}, in per cent of the optimum, {seeds} seeds of 10 s each. First cork, then the best of {} constant \
         patiences after the fact. Then cork that holds if and only if the next arrival comes within so long.",
        CONSTANTS.len()
    ));
    let mut rows = Vec::new();
    for load in LOADS {
        report.progress(&format!("limits: {load}"));
        let loads: Vec<Vec<Arrival>> = seeds.all().map(|seed| HARD.load(PROCESS, load, 10.0, seed)).collect();
        let optimum: usize = loads.iter().map(|arrivals| HARD.optimum(arrivals)).sum();
        let share = |make: &dyn Fn(&[Arrival]) -> Box<dyn Policy>| {
            percent(loads.iter().map(|arrivals| HARD.run(make(arrivals), arrivals).on_time).sum(), optimum)
        };
        let cork = share(&|_| Box::new(Cork));
        let constants = CONSTANTS.map(|c| (share(&|_| Box::new(Holding::Patience(c))), c));
        let (best, c) = constants.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are constants");
        let foresight = FORESIGHT_MS.map(|h| share(&|all| Box::new(Holding::Foresight(instants(all), ms(h)))));
        report.data(&format!("{load}"), json!({ "cork": cork, "best": best, "c": c, "foresight": foresight }));
        let mut row = vec![format!("{load}"), format!("{cork:.2}"), format!("{best:.2} (c = {c})")];
        row.extend(foresight.map(|share| format!("{share:.2}")));
        rows.push(row);
    }
    let foresight = FORESIGHT_MS.map(|h| format!("{h} ms ahead"));
    let header: Vec<&str> =
        ["load", "cork", "best constant"].into_iter().chain(foresight.iter().map(String::as_str)).collect();
    report.table(&header, &rows);
}
