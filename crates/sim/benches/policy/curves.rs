//! Goodput and mean latency over the load, for the plots in docs/policy.md (`plot.py`).

use serde_json::json;
use uncork_sim::{OpenLoop, best_fixed};

use crate::case::{POLICIES, SETUPS};
use crate::report::{Report, percent};

const LOADS: [f64; 16] = [0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5];
/// Requests of each run.
const REQUESTS: f64 = 8_000.0;
/// Runs of each load.
const SEEDS: u64 = 2;

pub(crate) fn measure(report: &mut Report) {
    report.text("What the plots show: two runs of 8,000 requests for each point, warmed up as the server is.");
    for (name, setup, process) in [("easy", SETUPS[0], "Poisson"), ("hard", SETUPS[3], "gamma CV 4")] {
        let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).chain(["best fixed"]).collect();
        let mut curves: Vec<Vec<(f64, f64)>> = vec![Vec::new(); names.len()];
        let mut optimum = Vec::new();
        for load in LOADS {
            report.progress(&format!("{setup}, {process} {load}"));
            let length = REQUESTS / (load * setup.capacity());
            // On time and mean latency in ms, by policy.
            let mut sums = vec![(0, 0.0); names.len()];
            let (mut offered, mut best) = (0, 0);
            for seed in 1..=SEEDS {
                let arrivals = setup.load(process, load, length, seed);
                offered += arrivals.len();
                best += setup.optimum(&arrivals);
                let scenario = |policy| setup.scenario(policy, setup.service(), 1);
                let fixed = best_fixed(scenario, || OpenLoop::new(arrivals.iter().copied()));
                let (_, fixed) = fixed.expect("the scenario has one model");
                let outcomes = POLICIES.iter().map(|(_, make)| setup.run(make(&setup), &arrivals)).chain([fixed]);
                for (sum, outcome) in sums.iter_mut().zip(outcomes) {
                    let latency = outcome.mean_latency().as_secs_f64() * 1e3 / SEEDS as f64;
                    *sum = (sum.0 + outcome.on_time, sum.1 + latency);
                }
            }
            optimum.push(percent(best as u64, offered));
            for (curve, (on_time, latency)) in curves.iter_mut().zip(sums) {
                curve.push((percent(on_time, offered), latency));
            }
        }
        let policies = names.iter().zip(&curves).map(|(name, curve)| {
            let (on_time, latency): (Vec<f64>, Vec<f64>) = curve.iter().copied().unzip();
            json!({ "name": name, "on_time": on_time, "mean_ms": latency })
        });
        let (title, policies) = (format!("{process}, {setup}"), policies.collect::<Vec<_>>());
        report.data(name, json!({ "title": title, "loads": LOADS, "optimum": optimum, "policies": policies }));

        report.text(&format!("On time in per cent of the requests: {process}, {setup}."));
        let header: Vec<&str> = ["load", "optimum"].into_iter().chain(names.iter().copied()).collect();
        let row = |(i, load): (usize, &f64)| {
            let shares = std::iter::once(optimum[i]).chain(curves.iter().map(|curve| curve[i].0));
            std::iter::once(load.to_string()).chain(shares.map(|share| format!("{share:.1}"))).collect()
        };
        report.table(&header, &LOADS.iter().enumerate().map(row).collect::<Vec<_>>());
    }
}
