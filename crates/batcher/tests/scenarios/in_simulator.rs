//! A scenario in the simulator, over its seeds.

use uncork_core::policy::Policy;

use crate::counts::{Counts, Measure};
use crate::file::{Habits, Scenario};

/// Every range that the scenario is out of, as a sentence.
pub(crate) fn check(scenario: &Scenario) -> Vec<String> {
    let with_optimum = scenario.expect.contains_key(&Measure::OfOptimum);
    let own = runs(scenario, &scenario.policy, with_optimum);
    let total = sum(&own);
    let mut broken = Vec::new();
    for (&measure, range) in &scenario.expect {
        let value = total.figure(measure);
        if !within(range, value) {
            let by_seed: Vec<String> = own.iter().map(|run| format!("{:.5}", run.figure(measure))).collect();
            broken.push(format!(
                "{}: {measure} is {value:.5} and not within {range:?}; by seed from 1 on: {}",
                scenario.name,
                by_seed.join(" ")
            ));
        }
    }
    for other in &scenario.compare {
        let theirs = sum(&runs(scenario, &other.policy, false));
        for (&measure, range) in &other.expect {
            let ratio = total.figure(measure) / theirs.figure(measure);
            if !within(range, ratio) {
                broken.push(format!(
                    "{}: {measure} is {ratio:.5} of that of {} and not within {range:?}",
                    scenario.name, other.policy
                ));
            }
        }
    }
    if std::env::var_os("SHOW").is_some() {
        show(scenario, total);
    }
    broken
}

fn show(scenario: &Scenario, total: Counts) {
    let figures = Measure::ALL.map(|measure| (measure, total.figure(measure))).into_iter();
    let known: Vec<_> = figures.filter(|(_, v)| v.is_finite()).map(|(m, v)| format!("{m} {v:.5}")).collect();
    println!("{}: {}", scenario.name, known.join(", "));
}

fn within([least, most]: &[f64; 2], value: f64) -> bool {
    (*least..=*most).contains(&value)
}

fn sum(runs: &[Counts]) -> Counts {
    runs.iter().copied().fold(Counts::default(), |sum, run| sum + run)
}

/// A run for each seed.
fn runs(scenario: &Scenario, policy: &str, with_optimum: bool) -> Vec<Counts> {
    let run = |seed| {
        let counts = run(scenario, policy, Habits::default(), seed);
        let optimum = with_optimum.then(|| scenario.optimum(seed)).flatten().unwrap_or_default() as u64;
        let lockstep = scenario.lockstep().unwrap_or_default() * counts.span_s;
        Counts { optimum, lockstep, ..counts }
    };
    (1..=scenario.seeds).map(run).collect()
}

/// One run.
pub(crate) fn run(scenario: &Scenario, policy: &str, habits: Habits, seed: u64) -> Counts {
    let with = |policy: Box<dyn Policy>| scenario.with_policy(policy, habits, seed);
    let load = || scenario.load(seed, habits.reserve);
    let outcome = match policy {
        "best-fixed" => uncork_sim::best_fixed(with, load).map(|(_, outcome)| outcome),
        name => uncork_sim::run(with(scenario.named_policy(name).expect("checked")), &mut load()).pop(),
    };
    outcome.expect("a model has an outcome").into()
}
