//! Share of the clairvoyant optimum over service models, arrival processes and loads.

use serde_json::json;

use crate::case::{LOADS, POLICIES, PROCESSES, SETUPS};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;

/// Most answers that may be late, in per cent of the answers.
const LATE: f64 = 0.1;
/// How far behind a baseline is worth telling, in points of the optimum.
const BEHIND: f64 = 0.5;

/// What became of one case over all seeds.
struct Cell {
    optimum: usize,
    /// On time and late, by policy.
    counts: [(u64, u64); POLICIES.len()],
}

impl Cell {
    fn of_optimum(&self, policy: usize) -> f64 {
        percent(self.counts[policy].0, self.optimum)
    }

    fn late(&self, policy: usize) -> f64 {
        let (on_time, late) = self.counts[policy];
        percent(late, (on_time + late) as usize)
    }
}

pub(crate) fn measure(seeds: Seeds, length: f64, report: &mut Report) {
    report.text(&format!("Cork, in per cent of the optimum, {seeds} seeds of {length} s each."));
    let (mut cells, mut rows, mut data, mut behind) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for setup in SETUPS {
        for load in LOADS {
            let mut row = vec![setup.to_string(), format!("{load}")];
            for process in PROCESSES {
                report.progress(&format!("{setup}, {load}, {process}"));
                let mut cell = Cell { optimum: 0, counts: Default::default() };
                for seed in seeds.all() {
                    let arrivals = setup.load(process, load, length, seed);
                    cell.optimum += setup.optimum(&arrivals);
                    for (count, (_, make)) in cell.counts.iter_mut().zip(POLICIES) {
                        let outcome = setup.run(make(&setup), &arrivals);
                        *count = (count.0 + outcome.on_time, count.1 + outcome.late);
                    }
                }
                row.push(format!("{:.2}", cell.of_optimum(0)));
                for (i, (name, _)) in POLICIES.iter().enumerate() {
                    if cell.of_optimum(i) > cell.of_optimum(0) + BEHIND {
                        let (cork, other) = (cell.of_optimum(0), cell.of_optimum(i));
                        behind.push(format!("- {setup}, {load}, {process}: cork {cork:.2}, {name} {other:.2}"));
                    }
                    data.push(json!({
                        "setup": setup.to_string(), "load": load, "process": process, "policy": name,
                        "of_optimum": cell.of_optimum(i), "late": cell.late(i),
                    }));
                }
                cells.push(cell);
            }
            rows.push(row);
        }
    }
    let header: Vec<&str> = ["model, cap rows, cap ms", "load"].into_iter().chain(PROCESSES).collect();
    report.table(&header, &rows);
    report.data("cases", json!(data));

    let row = |(i, (name, _)): (usize, &(&str, _))| {
        let (mean, worst, _) = summary(cells.iter().map(|cell| cell.of_optimum(i)));
        let (_, _, late) = summary(cells.iter().map(|cell| cell.late(i)));
        vec![name.to_string(), format!("{mean:.2}"), format!("{worst:.2}"), format!("{late:.2}")]
    };
    let rows: Vec<_> = POLICIES.iter().enumerate().map(row).collect();
    report.table(&["policy", "mean % of optimum", "worst", "most late, % of answers"], &rows);

    if !behind.is_empty() {
        report.text(&format!("Behind one of these by more than {BEHIND} points of the optimum:"));
        report.text(&behind.join("\n"));
    }

    let (mean, worst, _) = summary(cells.iter().map(|cell| cell.of_optimum(0)));
    let (_, _, late) = summary(cells.iter().map(|cell| cell.late(0)));
    report.figure("grid, mean share of the optimum", Asked::AtLeast(98.8), mean, "%");
    report.figure("grid, worst share of the optimum", Asked::AtLeast(91.5), worst, "%");
    report.figure("grid, most answers late in any case, without noise", Asked::AtMost(LATE), late, "%");
}
