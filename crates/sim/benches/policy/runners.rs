//! Four and sixteen runners at 0.6 of their capacity, under a cap of 4 α.

use serde_json::json;
use uncork_sim::{OpenLoop, upper_bound};

use crate::case::{CORK, EAGER, Setup, instants, ms, only};
use crate::report::{Asked, Report, percent};
use crate::seeds::Seeds;

const LOAD: f64 = 0.6;
/// Requests of each run.
const REQUESTS: f64 = 60_000.0;

const fn at(base: f64, per_row: f64, max_batch: usize) -> Setup {
    Setup { base, per_row, max_batch, max_latency: 4.0 * base }
}

const SETUPS: [Setup; 5] =
    [at(2.0, 0.05, 128), at(10.0, 0.1, 64), at(10.0, 0.5, 64), at(10.0, 1.0, 32), at(25.0, 0.1, 256)];

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report
        .text("Poisson. On time in per cent of the requests, mean latency in ms; the bound is what no policy exceeds.");
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    let (mut least, mut slowest) = (f64::INFINITY, f64::NEG_INFINITY);
    for runners in [4, 16] {
        for setup in SETUPS {
            let rate = LOAD * runners as f64 * setup.capacity();
            let length = (REQUESTS / rate).max(3.0);
            let (mut offered, mut bound) = (0, 0);
            let mut sums = [(0, 0.0); 2];
            for seed in seeds.all() {
                let arrivals = setup.load("Poisson", LOAD * runners as f64, length, seed);
                offered += arrivals.len();
                let Setup { base, per_row, max_batch, max_latency } = setup;
                let instants = instants(&arrivals);
                bound += upper_bound(&instants, ms(base), ms(per_row), ms(max_latency), max_batch, runners);
                for (sum, (_, make)) in sums.iter_mut().zip([CORK, EAGER]) {
                    let scenario = setup.scenario(make(&setup), setup.service(), runners);
                    let outcome = only(scenario, &mut OpenLoop::new(arrivals.iter().copied()));
                    let latency = outcome.mean_latency().as_secs_f64() * 1e3;
                    *sum = (sum.0 + outcome.on_time, sum.1 + latency / seeds.count as f64);
                }
            }
            let [cork, eager] = sums.map(|(on_time, latency)| (percent(on_time, offered), latency));
            let slower = (cork.1 / eager.1 - 1.0) * 100.0;
            (least, slowest) = (least.min(cork.0), slowest.max(slower));
            rows.push(vec![
                setup.to_string(),
                runners.to_string(),
                format!("{:.2}", percent(bound as u64, offered)),
                format!("{:.2}", cork.0),
                format!("{:.2}", eager.0),
                format!("{:.2}", cork.1),
                format!("{:.2}", eager.1),
                format!("{slower:+.1}"),
            ]);
            data.push(json!({
                "setup": setup.to_string(), "runners": runners, "bound": percent(bound as u64, offered),
                "cork_on_time": cork.0, "eager_on_time": eager.0, "cork_ms": cork.1, "eager_ms": eager.1,
            }));
        }
    }
    let header =
        ["model, cap rows, cap ms", "runners", "bound", "cork", "eager", "cork, ms", "eager, ms", "cork slower, %"];
    report.table(&header, &rows);
    report.data("cases", json!(data));
    report.figure("several runners, least on time", Asked::AtLeast(99.0), least, "%");
    report.figure("several runners, mean latency above eager's at most", Asked::AtMost(0.0), slowest, "%");
}
