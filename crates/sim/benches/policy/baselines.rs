//! Every case of the grid beside every baseline, the best fixed setting after the fact among them.

use serde_json::json;
use uncork_sim::{OpenLoop, best_fixed};

use crate::case::{LOADS, POLICIES, PROCESSES, SETUPS};
use crate::report::{Asked, Report, percent, summary};

/// How far behind the best baseline counts as behind, in points of the optimum.
const BEHIND: f64 = 0.5;
/// Of a load of its own: none that anything was tuned on.
const SEED: u64 = 77;

pub(crate) fn measure(length: f64, report: &mut Report) {
    report.text(&format!(
        "Per cent of the optimum, one seed of {length} s. First cork, then the best `fixed` of about 300 settings after the fact, \
         then the best of the other baselines."
    ));
    let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).chain(["best fixed"]).collect();
    let mut shares: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let (mut rows, mut behind, mut data, mut gaps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for setup in SETUPS {
        for load in LOADS {
            let mut row = vec![setup.to_string(), format!("{load}")];
            for process in PROCESSES {
                report.progress(&format!("{setup}, {load}, {process}"));
                let arrivals = setup.load(process, load, length, SEED);
                let optimum = setup.optimum(&arrivals);
                let scenario = |policy| setup.scenario(policy, setup.service(), 1);
                let (fixed, outcome) = best_fixed(scenario, || OpenLoop::new(arrivals.iter().copied()))
                    .expect("the scenario has one model");
                let mut of_optimum: Vec<f64> = POLICIES
                    .iter()
                    .map(|(_, make)| percent(setup.run(make(&setup), &arrivals).on_time, optimum))
                    .collect();
                of_optimum.push(percent(outcome.on_time, optimum));
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
                        if who == "best fixed" { format!(" ({fixed:?})") } else { String::new() }
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
