//! Models that compute all the time: a batch costs little beside what its rows cost.

use serde_json::json;
use uncork_core::policy::Cork;

use crate::case::{LOADS, PROCESSES, Setup};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;

const fn setup(base: f64, per_row: f64, max_batch: usize, max_latency: f64) -> Setup {
    Setup { base, per_row, max_batch, max_latency }
}

/// α is a small part of β times the cap.
const SETUPS: [Setup; 5] = [
    setup(0.5, 0.5, 64, 40.0),
    setup(1.0, 1.0, 32, 30.0),
    setup(1.0, 2.0, 32, 50.0),
    setup(2.0, 5.0, 16, 100.0),
    setup(3.0, 0.94, 128, 150.0),
];
const SECONDS: f64 = 20.0;

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Models whose α is the time of a few rows: cork in per cent of the optimum. {seeds} seeds of {SECONDS} s."
    ));
    let (mut rows, mut all, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for setup in SETUPS {
        for load in LOADS {
            let mut row = vec![setup.to_string(), load.to_string()];
            for process in PROCESSES {
                report.progress(&format!("{setup}, {load}, {process}"));
                let (mut on_time, mut optimum, mut too_late, mut answers) = (0, 0, 0, 0);
                for seed in seeds.all() {
                    let arrivals = setup.load(process, load, SECONDS, seed);
                    let outcome = setup.run(Box::new(Cork), &arrivals);
                    (on_time, too_late) = (on_time + outcome.on_time, too_late + outcome.late);
                    (optimum, answers) = (optimum + setup.optimum(&arrivals), answers + outcome.answers());
                }
                let share = percent(on_time, optimum);
                row.push(format!("{share:.2}"));
                report.data(&format!("{setup}, {load}, {process}"), json!(share));
                all.push(share);
                late.push(percent(too_late, answers as usize));
            }
            rows.push(row);
        }
    }
    let header: Vec<&str> = ["model, cap rows, cap ms", "load"].into_iter().chain(PROCESSES).collect();
    report.table(&header, &rows);
    let (mean, worst, _) = summary(all);
    report.figure("small α, mean share of the optimum", Asked::AtLeast(98.0), mean, "%");
    report.figure("small α, worst share of the optimum", Asked::AtLeast(94.0), worst, "%");
    let (_, _, late) = summary(late);
    report.figure("small α, most answers late in any case", Asked::AtMost(0.1), late, "%");
}
