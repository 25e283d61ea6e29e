//! Noisy, drifting and stepping batch times, and bursts after quiet.

use std::time::Duration;

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Policy};
use uncork_sim::{Arrival, Process, Service};

use crate::case::{LOADS, PROCESSES, SETUPS, Setup, ms};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;
use crate::staggered::{CONSTANTS, Told};

type Disturb = fn(&mut Service);

const NOISES: [(&str, Disturb); 5] = [
    ("none", |_| ()),
    ("log-normal 10 %", |s| s.jitter = 0.1),
    ("log-normal 30 %", |s| s.jitter = 0.3),
    ("1 % take five times", |s| s.straggle_share = 0.01),
    ("the first takes twenty times", |s| s.first_factor = 20.0),
];

const TEN_PER_CENT: usize = 1;

/// From each of these shares of the run on, batches take so many times their time.
const CHANGES: [(&str, &[(f64, f64)]); 4] = [
    ("× 2", &[(0.4, 2.0)]),
    ("× 5", &[(0.4, 5.0)]),
    ("× 5 and back", &[(0.3, 5.0), (0.5, 1.0)]),
    ("× 0.5", &[(0.4, 0.5)]),
];

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    noise(seeds, report);
    changes(seeds, report);
    bursts(report);
}

fn noise(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Cork on the grid, {seeds} seeds of 10 s, with disturbed batch times; the optimum is that without them."
    ));
    let mut rows = Vec::new();
    // Shares on time, and late among the answers, by noise.
    let mut results = vec![Vec::new(); NOISES.len()];
    for setup in SETUPS {
        for load in LOADS {
            for (process, seed) in PROCESSES.iter().flat_map(|process| seeds.all().map(move |seed| (process, seed))) {
                report.progress(&format!("noise: {setup}, {load}, {process}, seed {seed}"));
                let arrivals = setup.load(process, load, 10.0, seed);
                let optimum = setup.optimum(&arrivals);
                for (results, (_, disturb)) in results.iter_mut().zip(NOISES) {
                    let mut service = setup.service();
                    disturb(&mut service);
                    let outcome = setup.run_disturbed(Box::new(Cork), service, &arrivals);
                    results
                        .push((percent(outcome.on_time, optimum), percent(outcome.late, outcome.answers() as usize)));
                }
            }
        }
    }
    for ((name, _), results) in NOISES.iter().zip(&results) {
        let (mean, worst, _) = summary(results.iter().map(|r| r.0));
        let (late, _, most_late) = summary(results.iter().map(|r| r.1));
        rows.push(vec![
            name.to_string(),
            format!("{mean:.2}"),
            format!("{worst:.2}"),
            format!("{late:.2}"),
            format!("{most_late:.2}"),
        ]);
        report.data(name, json!({ "mean": mean, "worst": worst, "late": late, "most_late": most_late }));
    }
    let header = ["noise", "mean % of optimum", "worst", "late, % of answers", "most in any case"];
    report.table(&header, &rows);
    let (late, _, most_late) = summary(results[TEN_PER_CENT].iter().map(|r| r.1));
    report.figure("late answers with 10 % noise, mean over the grid", Asked::AtMost(1.0), late, "%");
    report.figure("late answers with 10 % noise, in the worst case", Asked::AtMost(1.0), most_late, "%");
}

fn changes(seeds: Seeds, report: &mut Report) {
    report.text(
        "Poisson; batch times change in mid-run. Per cent of the new optimum from 50 batches after the change on. The \
         second number is the same where batches have always taken so long. The third is the best of that and some constant patiences, which are \
         told the new times. Where D is one and a half α, nobody who does not know the future comes near the optimum. So the best known \
         is what the figures compare with.",
    );
    let (mut rows, mut all, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    for setup in SETUPS {
        for load in LOADS {
            let mut row = vec![setup.to_string(), format!("{load}")];
            for (name, changes) in CHANGES {
                let shares = after_change(&setup, load, changes, seeds);
                let cell = |[changed, always, best]: [f64; 3]| format!("{changed:.1} / {always:.1} / {best:.1}");
                row.push(shares.map_or("–".into(), cell));
                if let Some([changed, always, best]) = shares {
                    all.push(changed / best * 100.0);
                    lost.push(always - changed);
                    let data = json!({ "changed": changed, "always": always, "best": best });
                    report.data(&format!("{setup}, {load}, {name}"), data);
                }
            }
            rows.push(row);
        }
    }
    let header: Vec<&str> =
        ["model, cap rows, cap ms", "load"].into_iter().chain(CHANGES.iter().map(|c| c.0)).collect();
    report.table(&header, &rows);
    report.text("–: then not even one row is in time.");
    let (mean, worst, _) = summary(all);
    report.figure("after a change, mean share of the best known", Asked::AtLeast(98.0), mean, "%");
    report.figure("after a change, worst share of the best known", Asked::AtLeast(98.0), worst, "%");
    let (_, _, most) = summary(lost);
    report.figure("after a change, most lost to it in points of the optimum", Asked::AtMost(2.0), most, "points");
}

/// The share of the optimum among those who arrive 50 full batches after the last change or later, and the same at a server
/// that has always been as that change made it, and there with the best of some rules that are told so; over all seeds.
fn after_change(setup: &Setup, load: f64, changes: &[(f64, f64)], seeds: Seeds) -> Option<[f64; 3]> {
    let &(last, factor) = changes.last()?;
    let new = Setup { base: setup.base * factor, per_row: setup.per_row * factor, ..*setup };
    if new.time(1) > new.max_latency {
        return None;
    }
    let fifty = 50.0 * new.time(new.largest_batch()) / 1e3;
    let length = 8.0 * fifty;
    let from = Instant::EPOCH + Duration::from_secs_f64(length * last + fifty);
    // The optimum begins with an empty queue, so it begins earlier, and only what it adds from then on counts.
    let early = from - ms(2.0 * new.max_latency);
    let (mut changed, mut always, mut optimum) = (0, 0, 0);
    let mut told = [0; CONSTANTS.len()];
    for seed in seeds.all() {
        let arrivals = new.load("Poisson", load, length, seed);
        let (before, _) = arrivals.split_at(arrivals.partition_point(|a| a.at < from));
        let (_, since_early) = arrivals.split_at(arrivals.partition_point(|a| a.at < early));
        let new_run = |policy: &dyn Fn() -> Box<dyn Policy>| {
            new.run(policy(), &arrivals).on_time - new.run(policy(), before).on_time
        };
        always += new_run(&|| Box::new(Cork));
        for (told, patience) in told.iter_mut().zip(CONSTANTS) {
            *told += new_run(&|| Box::new(Told { fit: new.fit(), patience, limit: usize::MAX }));
        }
        let run = |arrivals: &[Arrival]| {
            let mut service = setup.service();
            let at = |share: f64| Instant::EPOCH + Duration::from_secs_f64(share * length);
            service.changes = changes.iter().map(|&(share, factor)| (at(share), factor)).collect();
            setup.run_disturbed(Box::new(Cork), service, arrivals).on_time
        };
        changed += run(&arrivals) - run(before);
        let meanwhile = before.len() - (arrivals.len() - since_early.len());
        optimum += new.optimum(since_early) - new.optimum(&since_early[..meanwhile]);
    }
    let best = told.into_iter().fold(always, u64::max);
    Some([changed, always, best].map(|count| percent(count, optimum)))
}

fn bursts(report: &mut Report) {
    report.text(
        "Refusals beyond the optimum's in a burst of 1 s after 20 s of 5 requests a second, in per cent of the burst.",
    );
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for setup in SETUPS {
        let mut row = vec![setup.to_string()];
        for load in [0.8, 1.1, 2.0, 4.0] {
            let at = Duration::from_secs(20);
            let process = Process::QuietThenBurst { quiet: 5.0, burst: load * setup.capacity(), at };
            let arrivals: Vec<Arrival> = process.arrivals(at + Duration::from_secs(1), 1).collect();
            let burst = arrivals.iter().filter(|a| a.at >= Instant::EPOCH + at).count();
            let outcome = setup.run(Box::new(Cork), &arrivals);
            let needless = outcome.shed as f64 - (arrivals.len() - setup.optimum(&arrivals)) as f64;
            let share = needless / burst as f64 * 100.0;
            row.push(format!("{share:.2}"));
            report.data(&format!("burst {setup}, {load}"), json!(share));
            all.push(share);
        }
        rows.push(row);
    }
    report.table(&["model, cap rows, cap ms", "0.8", "1.1", "2", "4"], &rows);
    let (_, _, most) = summary(all);
    report.figure("quiet then burst, most refusals beyond the optimum's", Asked::AtMost(3.0), most, "%");
}
