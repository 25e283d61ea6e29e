//! Batch times that are no line: knees, slopes that change, steps, powers; and lines under noise, where nothing must change.

use std::time::Duration;

use serde_json::json;
use uncork_core::estimator::{Fit, Instant};
use uncork_core::policy::{Cork, Decision, Policy, View};
use uncork_sim::{Arrival, OpenLoop, Process, Service};

use crate::case::{Setup, TOLD_2020, ms, only};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;

const SECONDS: f64 = 10.0;
const LOADS: [f64; 3] = [0.6, 1.1, 2.0];
const PROCESSES: [&str; 2] = ["Poisson", "gamma CV 4"];
/// Rows beyond which no batch of the best known rule goes; one of these, after the fact.
const CAPS: [usize; 8] = [8, 16, 24, 32, 48, 64, 96, 128];

/// A shape, the ms that n rows take, and the two caps.
type Shape = (&'static str, fn(f64) -> f64, usize, f64);

const SHAPES: [Shape; 7] = [
    ("knee at 24 rows", |n| if n <= 24.0 { 8.0 + 0.1 * n } else { 10.4 + 2.0 * (n - 24.0) }, 128, 60.0),
    ("a row costs twice as much beyond 32", |n| 4.0 + 0.25 * n + 0.25 * (n - 32.0).max(0.0), 128, 50.0),
    ("n to the power of 1.5", |n| 5.0 + 0.05 * n.powf(1.5), 128, 60.0),
    ("square root of n", |n| 2.0 + 2.0 * n.sqrt(), 128, 60.0),
    ("steps of 16 rows", |n| 3.0 + 4.0 * (n / 16.0).ceil(), 128, 60.0),
    ("a step at 33 rows", |n| if n <= 32.0 { 10.0 } else { 24.0 + 0.1 * n }, 128, 60.0),
    ("a line", |n| 5.0 + 0.2 * n, 64, 25.0),
];

/// Knows the times, and ends batches at a size.
struct Told(Fit, usize);

impl Policy for Told {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let max_batch = self.1;
        Cork.decide(now, View { fit: &self.0, max_batch, ..view })
    }
}

fn service((_, time, max_batch, _): Shape) -> Service {
    let curve = (1..=max_batch).map(|rows| (rows, ms(time(rows as f64)))).collect();
    Service { curve, ..Service::affine(Duration::ZERO, Duration::ZERO) }
}

/// The most rows a second of any size in time.
fn capacity((_, time, max_batch, max_latency): Shape) -> f64 {
    let sizes = (1..=max_batch).map(|rows| (rows as f64, time(rows as f64))).filter(|(_, t)| *t <= max_latency);
    sizes.map(|(rows, t)| rows / t * 1e3).fold(0.0, f64::max)
}

fn told((_, time, max_batch, _): Shape) -> Fit {
    let sizes = (1..=16).chain((18..=max_batch).step_by(8)).take(32);
    Fit::curve(&sizes.map(|rows| (rows, ms(time(rows as f64)))).collect::<Vec<_>>())
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Batch times that are no line. Cork's answers on time, in per cent of the best of {} rules that are told the times. Each \
         ends its batches at another size; one is BentoML's, told the nearest line. {seeds} seeds of {SECONDS} s. Loads are shares of \
         what the fastest size makes.",
        CAPS.len()
    ));
    let (mut rows, mut data, mut shares, mut late) = (Vec::new(), Vec::new(), Vec::new(), 0.0f64);
    for shape in SHAPES {
        let (name, _, max_batch, max_latency) = shape;
        let fit = told(shape);
        let setup =
            Setup { base: fit.base_seconds() * 1e3, per_row: fit.per_row_seconds() * 1e3, max_batch, max_latency };
        for process in PROCESSES {
            let mut row = vec![name.to_string(), process.to_string()];
            for load in LOADS {
                report.progress(&format!("{name}, {process}, {load}"));
                let rate = load * capacity(shape);
                let process =
                    if process == "Poisson" { Process::Poisson { rate } } else { Process::Gamma { rate, cv: 4.0 } };
                let length = Duration::from_secs_f64(SECONDS);
                let loads: Vec<Vec<Arrival>> =
                    seeds.all().map(|seed| process.arrivals(length, seed).collect()).collect();
                let run = |make: &dyn Fn() -> Box<dyn Policy>| {
                    let outcomes = loads.iter().map(|arrivals| {
                        only(setup.scenario(make(), service(shape), 1), &mut OpenLoop::new(arrivals.iter().copied()))
                    });
                    outcomes.fold((0, 0), |sum, outcome| (sum.0 + outcome.on_time, sum.1 + outcome.late))
                };
                let cork = run(&|| Box::new(Cork));
                let caps = CAPS.into_iter().filter(|cap| *cap <= max_batch);
                let each = caps.map(|cap| (run(&|| Box::new(Told(fit.clone(), cap))).0, format!("{cap} rows")));
                let bento = (run(&|| (TOLD_2020.1)(&setup)).0, TOLD_2020.0.to_string());
                let (best, rule) = each.chain([bento]).max_by_key(|(on_time, _)| *on_time).expect("there are caps");
                let share = percent(cork.0, best as usize);
                late = late.max(percent(cork.1, (cork.0 + cork.1) as usize));
                shares.push(share);
                row.push(format!("{share:.1}"));
                data.push(json!({ "shape": name, "load": load, "of_best": share, "best": rule, "late": cork.1 }));
            }
            rows.push(row);
        }
    }
    let loads = LOADS.map(|load| load.to_string());
    let header: Vec<&str> = ["t(n)", "arrivals"].into_iter().chain(loads.iter().map(String::as_str)).collect();
    report.table(&header, &rows);
    report.data("cases", json!(data));
    let (mean, worst, _) = summary(shares);
    report.figure("no line, mean share of the best known", Asked::AtLeast(98.0), mean, "%");
    report.figure("no line, worst share of the best known", Asked::AtLeast(94.0), worst, "%");
    report.figure("no line, most answers late", Asked::AtMost(0.5), late, "%");
}
