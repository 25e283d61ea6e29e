//! Arrivals as they are seen in the world, which no process of the grid has.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Pareto};
use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Policy};
use uncork_sim::{Arrival, Process, Varied, Variety};

use crate::case::{SETUPS, Setup, ms};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;
use crate::staggered::rivals;

const SECONDS: f64 = 20.0;
/// Rows a second of mixed sizes, as shares of the capacity.
const MIXED_LOADS: [f64; 4] = [0.1, 0.3, 0.6, 0.9];
/// Mean rates, as shares of the capacity.
const LOADS: [f64; 3] = [0.5, 0.8, 1.2];

type Draw = fn(&Setup, f64, &mut Xoshiro256PlusPlus) -> Vec<f64>;

/// Each draws the seconds at which somebody asks, for a model and a mean rate a second.
const SHAPES: [(&str, Draw); 5] = [
    ("spiky functions", spiky),
    ("sports day", sports_day),
    ("self-similar", self_similar),
    ("cron each second", cron),
    ("fan-out of 64", fan_out),
];

/// A Poisson process of this rate at each second, by thinning (Lewis and Shedler, 1979); its mean rate becomes `mean`.
fn varying(mean: f64, rng: &mut Xoshiro256PlusPlus, rate: impl Fn(f64) -> f64) -> Vec<f64> {
    let steps = 20_000;
    let rates: Vec<f64> = (0..steps).map(|i| rate(f64::from(i) * SECONDS / f64::from(steps))).collect();
    let scale = mean / (rates.iter().sum::<f64>() / f64::from(steps));
    let most = rates.iter().copied().fold(0.0, f64::max) * scale;
    let (mut now, mut all) = (0.0, Vec::new());
    loop {
        let gap: f64 = Exp1.sample(rng);
        now += gap / most;
        if now >= SECONDS {
            return all;
        }
        if rng.random::<f64>() * most < rate(now) * scale {
            all.push(now);
        }
    }
}

/// Half comes evenly. The rest comes in spikes, one or two a second: each begins with three times the mean rate or more, and is
/// over in a fifth of a second. Some spikes are ten times as high as others.
fn spiky(_: &Setup, mean: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let heights = Pareto::new(1.0, 1.5).expect("its parameters are positive");
    let mut spikes: Vec<(f64, f64)> = Vec::new();
    while spikes.last().is_none_or(|(at, _)| *at < SECONDS) {
        let gap: f64 = Exp1.sample(rng);
        let at = spikes.last().map_or(0.0, |(at, _)| *at) + gap / 1.5;
        spikes.push((at, f64::min(heights.sample(rng), 10.0)));
    }
    varying(mean, rng, |now| {
        let under_way = spikes.iter().filter(|(at, _)| (0.0..0.2).contains(&(now - at)));
        1.0 + under_way.map(|(at, height)| 5.0 * height * (-(now - at) / 0.05).exp()).sum::<f64>()
    })
}

/// More and more come until the whistle, half of them stay until the end, and at each goal all ask at once for a second or two.
fn sports_day(_: &Setup, mean: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let goals: Vec<f64> = (0..4).map(|_| SECONDS * (0.25 + 0.7 * rng.random::<f64>())).collect();
    varying(mean, rng, |now| {
        let part = now / SECONDS;
        let crowd = if part < 0.2 { 0.2 + 4.0 * part } else { 1.0 - 0.6 * (part - 0.2) };
        let at_goals = goals.iter().filter(|goal| now >= **goal).map(|goal| 2.5 * (-(now - goal) / 0.5).exp());
        crowd * (1.0 + at_goals.sum::<f64>())
    })
}

/// Forty callers who are busy and quiet for times without a typical length (Pareto, α = 1.4): Willinger, Taqqu, Sherman and Wilson,
/// "Self-similarity through high-variability", SIGCOMM 1995.
fn self_similar(_: &Setup, mean: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    const CALLERS: usize = 40;
    const SHAPE: f64 = 1.4;
    let mut all = Vec::new();
    // The mean of a Pareto is its least times α / (α − 1): 0.1 s busy, 0.3 s quiet.
    let times = |mean: f64| Pareto::new(mean * (SHAPE - 1.0) / SHAPE, SHAPE).expect("its parameters are positive");
    let (busy, quiet) = (times(0.1), times(0.3));
    for _ in 0..CALLERS {
        // From before the beginning, so that it does not begin with all of them at once.
        let mut now = -10.0 * rng.random::<f64>();
        while now < SECONDS {
            let until = now + busy.sample(rng);
            loop {
                let gap: f64 = Exp1.sample(rng);
                now += gap * CALLERS as f64 / (4.0 * mean);
                if now >= until {
                    break;
                }
                if (0.0..SECONDS).contains(&now) {
                    all.push(now);
                }
            }
            now = until + quiet.sample(rng);
        }
    }
    all
}

/// Half comes evenly, half within a tenth of a second, at each full second.
fn cron(_: &Setup, mean: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    varying(mean, rng, |now| if now.fract() < 0.1 { 11.0 } else { 1.0 })
}

/// Somebody asks 64 times within a tenth of a batch's α.
fn fan_out(setup: &Setup, mean: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let spread = Duration::from_secs_f64(setup.base / 1e4);
    let process = Process::FanOut { groups: mean / 64.0, size: 64, spread };
    process
        .arrivals(Duration::from_secs_f64(SECONDS), rng.random())
        .map(|a| a.at.since(Instant::EPOCH).as_secs_f64())
        .collect()
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    shapes(seeds, report);
    mixed(seeds, report);
}

/// Requests of 1 to 16 rows, a fifth of which give half of the time.
fn mixed(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Poisson, requests of 1 to 16 rows, and each fifth caller gives half of the latency cap. First on time in per cent of the \
         requests. Then in per cent of the best of {} rules after the fact, which are told the batch times. {seeds} seeds of {SECONDS} s.",
        rivals(&SETUPS[0]).len()
    ));
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for setup in SETUPS {
        let mut row = vec![setup.to_string()];
        for load in MIXED_LOADS {
            report.progress(&format!("{setup}, {load}, rows mixed"));
            let variety = Variety {
                rows: (1..=16).collect(),
                within: vec![(0.2, ms(setup.max_latency / 2.0))],
                ..Variety::default()
            };
            let loads = seeds.all().map(|seed| {
                let arrivals = setup.load("Poisson", load / 8.5, SECONDS, seed);
                Varied::new(arrivals.into_iter(), variety.clone(), !seed).collect()
            });
            let loads: Vec<Vec<Arrival>> = loads.collect();
            let on_time = |policy: &dyn Fn() -> Box<dyn Policy>| -> u64 {
                loads.iter().map(|arrivals| setup.run(policy(), arrivals).on_time).sum()
            };
            let cork = on_time(&|| Box::new(Cork));
            let indices = 0..rivals(&setup).len();
            let best =
                indices.map(|i| on_time(&|| Box::new(rivals(&setup).swap_remove(i).1))).max().unwrap_or(0).max(cork);
            let (of_all, of_best) = (percent(cork, loads.iter().map(Vec::len).sum()), percent(cork, best as usize));
            row.push(format!("{of_all:.2} / {of_best:.2}"));
            report.data(&format!("mixed {setup}, {load}"), json!([of_all, of_best]));
            all.push(of_best);
        }
        rows.push(row);
    }
    let loads = MIXED_LOADS.map(|load| load.to_string());
    let header: Vec<&str> = ["model, cap rows, cap ms"].into_iter().chain(loads.iter().map(String::as_str)).collect();
    report.table(&header, &rows);
    let (_, worst, _) = summary(all);
    report.figure(
        "mixed rows with hurried callers, worst share of the best hold known",
        Asked::AtLeast(99.0),
        worst,
        "%",
    );
}

fn shapes(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Arrivals as they are seen in the world: cork in per cent of the optimum. {seeds} seeds of {SECONDS} s. Loads are mean rates. \
         Functions are called in spikes of very different heights. On a sports day more and more come, and at each goal all ask. \
         Self-similar are callers that are busy and quiet for times without a typical length. With cron, half of a second's \
         requests come in its first tenth."
    ));
    let (mut rows, mut all, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for setup in SETUPS {
        for load in LOADS {
            let mut row = vec![setup.to_string(), load.to_string()];
            for (name, draw) in SHAPES {
                report.progress(&format!("{setup}, {load}, {name}"));
                let (mut on_time, mut optimum, mut too_late, mut answers) = (0, 0, 0, 0);
                for seed in seeds.all() {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
                    let mut times = draw(&setup, load * setup.capacity(), &mut rng);
                    times.sort_by(f64::total_cmp);
                    let at = |seconds: f64| Arrival::at(Instant::EPOCH + Duration::from_secs_f64(seconds));
                    let arrivals: Vec<Arrival> = times.into_iter().map(at).collect();
                    let outcome = setup.run(Box::new(Cork), &arrivals);
                    (on_time, too_late) = (on_time + outcome.on_time, too_late + outcome.late);
                    (optimum, answers) = (optimum + setup.optimum(&arrivals), answers + outcome.answers());
                }
                let share = percent(on_time, optimum);
                row.push(format!("{share:.2}"));
                report.data(&format!("{setup}, {load}, {name}"), json!(share));
                all.push(share);
                late.push(percent(too_late, answers as usize));
            }
            rows.push(row);
        }
    }
    let header: Vec<&str> =
        ["model, cap rows, cap ms", "load"].into_iter().chain(SHAPES.map(|(name, _)| name)).collect();
    report.table(&header, &rows);
    let (mean, worst, _) = summary(all);
    report.figure("real-world shapes, mean share of the optimum", Asked::AtLeast(98.5), mean, "%");
    report.figure("real-world shapes, worst share of the optimum", Asked::AtLeast(92.0), worst, "%");
    let (_, _, late) = summary(late);
    report.figure("real-world shapes, most answers late in any case", Asked::AtMost(0.1), late, "%");
}
