//! Every case of the grid beside every baseline, among them the fixed setting that is best for the first of its loads after the fact.
//!
//! Two rules that are equally good on average are a point apart in a run of some seconds, either way. So each case is run several
//! times, with other arrivals.

use serde_json::json;
use uncork_core::policy::Policy;
use uncork_sim::{Arrival, OpenLoop, best_fixed};

use crate::case::{LOADS, POLICIES, PROCESSES, SETUPS, Setup};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;

/// How far behind the best baseline counts as behind, in points of the optimum.
const BEHIND: f64 = 0.5;
/// The first of the seeds of a case: none that anything was tuned on.
const SEED: u64 = 77;
/// Loads of a case for each seed that is asked for.
const LOADS_A_SEED: u64 = 2;

/// What becomes of all loads together under a policy, in per cent of what anyone could answer.
fn of_optimum(setup: &Setup, loads: &[Vec<Arrival>], optimum: usize, policy: impl Fn() -> Box<dyn Policy>) -> f64 {
    percent(loads.iter().map(|arrivals| setup.run(policy(), arrivals).on_time).sum(), optimum)
}

pub(crate) fn measure(seeds: Seeds, length: f64, report: &mut Report) {
    let seeds = seeds.times(LOADS_A_SEED);
    report.text(&format!(
        "Per cent of the optimum, {seeds} seeds of {length} s. First cork. Then the best `fixed` of about 300 settings after the fact, by \
         the first of these seeds. Then the best of the other baselines."
    ));
    let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).chain(["best fixed of the first load"]).collect();
    let mut shares: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let (mut rows, mut behind, mut data, mut gaps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for setup in SETUPS {
        for load in LOADS {
            let mut row = vec![setup.to_string(), format!("{load}")];
            for process in PROCESSES {
                report.progress(&format!("{setup}, {load}, {process}"));
                let load_of = |seed| setup.load(process, load, length, seed);
                let loads: Vec<Vec<Arrival>> = seeds.after(SEED - 1).all().map(load_of).collect();
                let optimum: usize = loads.iter().map(|arrivals| setup.optimum(arrivals)).sum();
                let scenario = |policy| setup.scenario(policy, setup.service(), 1);
                let (fixed, _) = best_fixed(scenario, || OpenLoop::new(loads[0].iter().copied()))
                    .expect("the scenario has one model");
                let share = |policy: &dyn Fn() -> Box<dyn Policy>| of_optimum(&setup, &loads, optimum, policy);
                let mut of_optimum: Vec<f64> = POLICIES.iter().map(|(_, make)| share(&|| make(&setup))).collect();
                of_optimum.push(share(&|| Box::new(fixed)));
                let (cork, others) = (of_optimum[0], &of_optimum[1..]);
                let best = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
                let best_fixed = of_optimum[names.len() - 1];
                row.push(format!("{cork:.1} / {best_fixed:.1} / {:.1}", best(&others[..others.len() - 1])));
                gaps.push(best(others) - cork);
                if best(others) - cork > BEHIND {
                    let who = others.iter().position(|share| *share == best(others)).map_or("", |i| names[i + 1]);
                    behind.push(format!(
                        "- {setup}, {load}, {process}: cork {cork:.2}, {who} {:.2}{}",
                        best(others),
                        if who.starts_with("best fixed") { format!(" ({fixed:?})") } else { String::new() }
                    ));
                }
                data.push(json!({
                    "setup": setup.to_string(), "load": load, "process": process,
                    "of_optimum": names.iter().zip(&of_optimum).map(|(n, s)| json!([n, s])).collect::<Vec<_>>(),
                }));
                shares.iter_mut().zip(of_optimum).for_each(|(all, share)| all.push(share));
            }
            rows.push(row);
        }
    }
    let header: Vec<&str> = ["model, cap rows, cap ms", "load"].into_iter().chain(PROCESSES).collect();
    report.table(&header, &rows);
    report.data("cases", json!(data));
    let row = |(name, shares): (&&str, &Vec<f64>)| {
        let (mean, worst, _) = summary(shares.iter().copied());
        vec![name.to_string(), format!("{mean:.2}"), format!("{worst:.2}")]
    };
    report.table(&["policy", "mean % of optimum", "worst"], &names.iter().zip(&shares).map(row).collect::<Vec<_>>());
    if !behind.is_empty() {
        report.text(&format!("Behind a baseline by more than {BEHIND} points of the optimum:"));
        report.text(&behind.join("\n"));
    }
    report.data("behind", json!(behind));
    let (_, _, worst) = summary(gaps);
    report.figure(
        "baselines, furthest behind any of them in points of the optimum",
        Asked::AtMost(BEHIND),
        worst,
        "points",
    );
}
