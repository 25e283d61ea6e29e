//! Pools by chance: two or three models of any kind, none of which asks for more than there is.

use std::num::NonZeroUsize;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Decision, Policy, Standing, View};
use uncork_sim::{Arrival, Model, OpenLoop, Process, Scenario, Service, run};

use crate::case::{AIMD, CORK, EAGER, Make, Setup, ms};
use crate::report::{Asked, Report, percent, summary};
use crate::seeds::Seeds;

/// Pools that are drawn for each seed.
const POOLS: usize = 150;
const SECONDS: f64 = 20.0;
/// Only pools count in which each model alone would have so many per cent on time: else it is the cap that is too short.
const ALONE: f64 = 97.0;
/// Of the table: pools with the lowest shares.
const SHOWN: usize = 12;

/// Cork whose lanes wait for nobody in more of a hurry.
struct Hasty;

impl Policy for Hasty {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let standing = Standing { gives_way_until: Instant::EPOCH, ..view.standing };
        Cork.decide(now, View { standing, ..view })
    }
}

const HASTY: (&str, Make) = ("hasty", |_| Box::new(Hasty));

/// One model of a pool.
struct Member {
    setup: Setup,
    /// What it asks for, as a share of what the pool can do of it in full batches.
    load: f64,
    /// Whether its requests come in clumps.
    clumps: bool,
}

struct Pool {
    members: Vec<Member>,
    runners: usize,
    noise: f64,
}

/// Between these, each order of magnitude as likely.
fn between(rng: &mut Xoshiro256PlusPlus, least: f64, most: f64) -> f64 {
    (least.ln() + rng.random::<f64>() * (most / least).ln()).exp()
}

fn draw(rng: &mut Xoshiro256PlusPlus) -> Pool {
    let runners = [1, 1, 1, 2, 2, 4][rng.random_range(0..6)];
    let noise = [0.0, 0.0, 0.1][rng.random_range(0..3)];
    let models = [2, 2, 2, 3][rng.random_range(0..4)];
    let total = rng.random_range(0.3..0.9);
    let parts: Vec<f64> = (0..models).map(|_| rng.random_range(0.2..1.0)).collect();
    let sum: f64 = parts.iter().sum();
    let mut member = |part: f64| {
        let (base, per_row) = (between(rng, 1.0, 25.0), between(rng, 0.03, 1.0));
        let max_batch = [8, 16, 32, 64, 128][rng.random_range(0..5)];
        let row = base + per_row;
        let max_latency = between(rng, 1.5 * row, 4.0 * (base + per_row * max_batch as f64));
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        let setup = Setup {
            base: rounded(base),
            per_row: rounded(per_row),
            max_batch,
            max_latency: (max_latency * 10.0).round() / 10.0,
        };
        Member { setup, load: total * part / sum, clumps: rng.random_range(0..4) == 0 }
    };
    Pool { members: parts.iter().map(|part| member(*part)).collect(), runners, noise }
}

impl Pool {
    fn arrivals(&self, seed: u64) -> Vec<Arrival> {
        let of = |(model, member): (usize, &Member)| {
            let full = member.setup.max_batch as f64 / member.setup.time(member.setup.max_batch) * 1e3;
            let rate = member.load * self.runners as f64 * full;
            let process = if member.clumps { Process::Gamma { rate, cv: 3.0 } } else { Process::Poisson { rate } };
            let arrivals = process.arrivals(Duration::from_secs_f64(SECONDS), seed * 10 + model as u64);
            arrivals.map(move |arrival| Arrival { model, ..arrival })
        };
        let mut all: Vec<Arrival> = self.members.iter().enumerate().flat_map(of).collect();
        all.sort_by_key(|arrival| arrival.at);
        all
    }

    /// On time in per cent, and the mean latency, of each model whose requests are among these.
    fn run(&self, (_, make): (&str, Make), arrivals: impl Iterator<Item = Arrival>) -> Vec<(f64, Duration)> {
        let model = |Member { setup, .. }: &Member| Model {
            service: Service { jitter: self.noise, ..setup.service() },
            max_latency: ms(setup.max_latency),
            max_batch: setup.max_batch,
            weight: NonZeroUsize::MIN,
            policy: make(setup) as Box<dyn Policy>,
            tried: None,
            way_back: Duration::ZERO,
            warm: true,
        };
        let models = self.members.iter().map(model).collect();
        let scenario = Scenario { runners: self.runners, models, seed: 7, timer: Duration::ZERO };
        let outcomes = run(scenario, &mut OpenLoop::new(arrivals));
        outcomes.iter().map(|o| (percent(o.on_time, o.offered as usize), o.mean_latency())).collect()
    }
}

pub(crate) fn measure(seeds: Seeds, report: &mut Report) {
    report.text(&format!(
        "Two or three models on one, two or four runners, drawn by chance: {POOLS} pools a seed, {SECONDS} s each. Together they ask for 0.3 to 0.9 \
         of the pool. A quarter of them come in clumps (gamma, CV 3), a third of the pools have 10 % noise. Only pools count in which each \
         model would have {ALONE} % on time alone. The share is the mean of the models' on-time parts, of that of the better of eager and `aimd`. \
         The table has the {SHOWN} lowest."
    ));
    let (mut shares, mut pools) = (Vec::new(), Vec::new());
    let (mut gained, mut longer): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mean = |parts: &[(f64, Duration)]| parts.iter().map(|(on_time, _)| on_time).sum::<f64>() / parts.len() as f64;
    let cells = |parts: &[(f64, Duration)]| {
        parts.iter().map(|(on_time, _)| format!("{on_time:.1}")).collect::<Vec<_>>().join(" / ")
    };
    for seed in seeds.all() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for i in 0..POOLS {
            report.progress(&format!("pool {i} of {POOLS}, seed {seed}"));
            let pool = draw(&mut rng);
            let arrivals = pool.arrivals(seed * 1000 + i as u64);
            let alone = |model: usize| {
                let own = arrivals.iter().copied().filter(move |arrival| arrival.model == model);
                pool.run(CORK, own)[model].0
            };
            if (0..pool.members.len()).any(|model| alone(model) < ALONE) {
                continue;
            }
            let [cork, hasty, eager, aimd] =
                [CORK, HASTY, EAGER, AIMD].map(|rule| pool.run(rule, arrivals.iter().copied()));
            let least = |parts: &[(f64, Duration)]| parts.iter().map(|part| part.0).fold(f64::INFINITY, f64::min);
            gained.push(least(&cork) - least(&hasty));
            let ratios = cork.iter().zip(&hasty).map(|(cork, hasty)| cork.1.as_secs_f64() / hasty.1.as_secs_f64());
            longer.extend(ratios.filter(|ratio| ratio.is_finite()));
            let share = mean(&cork) / mean(&eager).max(mean(&aimd)) * 100.0;
            shares.push(share);
            let models: Vec<String> = pool.members.iter().map(|m| format!("{} at {:.2}", m.setup, m.load)).collect();
            pools.push((share, models.join("; "), pool.runners, pool.noise, cells(&cork), cells(&eager), cells(&aimd)));
        }
    }
    pools.sort_by(|a, b| a.0.total_cmp(&b.0));
    let row =
        |(share, models, runners, noise, cork, eager, aimd): &(f64, String, usize, f64, String, String, String)| {
            let noise = format!("{:.0} %", noise * 100.0);
            vec![
                models.clone(),
                runners.to_string(),
                noise,
                cork.clone(),
                eager.clone(),
                aimd.clone(),
                format!("{share:.1}"),
            ]
        };
    let rows: Vec<Vec<String>> = pools.iter().take(SHOWN).map(row).collect();
    report.table(&["models, and their loads", "runners", "noise", "cork", "eager", "aimd", "share, %"], &rows);
    report.data("shares", json!(shares));
    let behind = shares.iter().filter(|share| **share < 97.0).count();
    report
        .text(&format!("{} pools count. In {behind} cork has less than 97 % of the better of the two.", shares.len()));
    let (mean, least, most) = summary(gained.iter().copied());
    let (helped, harmed) =
        (gained.iter().filter(|gain| **gain > 2.0).count(), gained.iter().filter(|gain| **gain < -1.0).count());
    let (longer, _, _) = summary(longer);
    report.text(&format!(
        "Beside cork whose lanes wait for nobody, the model that fares worst gains {mean:.1} points on average, from {least:.1} to \
         {most:.1}: more than 2 in {helped} pools, and less than -1 in {harmed}. Mean latencies are {longer:.2} times as long on average."
    ));
    let (mean, worst, _) = summary(shares);
    report.figure("pools by chance, mean share of the better of eager and aimd", Asked::AtLeast(98.0), mean, "%");
    report.figure("pools by chance, worst share of it", Asked::AtLeast(94.0), worst, "%");
}
