//! `uncork simulate`

mod clairvoyant;
mod load;
mod plot;
mod progress;
mod report;
mod rules;
mod setup;
mod values;

use std::process::ExitCode;

use rayon::prelude::*;

use self::clairvoyant::Clairvoyant;
use self::load::Load;
use self::progress::Progress;
use self::report::Report;
use self::rules::Rule;
use self::setup::Setup;
use super::{USAGE, complain, say};
use crate::sim::Outcome;

/// Try policies on a load, in virtual time.
///
/// Runs the very code that batches in the server against arrivals of your choice and a model of your speed: an hour of
/// traffic takes seconds, and the same seed gives the same output. The simulated server starts cold and is told nothing
/// but the two caps. Prints a table of all policies beside what anyone who knows the future could have answered on time,
/// and what the caps cost. `uncork profile` measures the two times of a model.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE_LINE)]
pub(super) struct Simulate {
    #[command(flatten, next_help_heading = "Arrivals, exactly one (rates in requests a second)")]
    load: load::Flags,

    #[command(flatten, next_help_heading = "Server")]
    setup: setup::Flags,

    /// cork, eager, fixed:WAIT_MS:BATCH, best-fixed, aimd, cork-2020 or all; may be given several times
    ///
    /// cork: what the server runs. eager: release whatever waits as soon as a runner is free. fixed: release at BATCH rows,
    /// or when the first of them has waited for WAIT_MS. best-fixed: the best setting of that for this very load, found
    /// after the fact in some 300 runs. aimd: Clipper's rule. cork-2020: BentoML's rule of that year.
    #[arg(long, value_name = "P", default_value = "cork", value_delimiter = ',', value_parser = rules::parse)]
    #[arg(help_heading = "Output")]
    policy: Vec<Vec<Rule>>,

    /// Print a JSON list with an object for each policy, and nothing else
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const USAGE_LINE: &str = "\
uncork simulate (--arrivals FILE | --poisson R --for S | …) --base-ms A --per-row-ms B
           --max-latency-ms D --max-batch-size N [--runners M] [--policy P]… [--json]";

const EXAMPLES: &str = "\
FILE has a line for each request: its arrival in seconds, then perhaps a comma and its rows.
Blank lines, a line of column names, and what follows a # are passed over.

Examples, of a model that takes 2 + 0.05·n ms for n rows:
  uncork simulate --arrivals trace.csv \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      your own trace: what is refused, and which cap is to blame
  uncork simulate --poisson 20000 --for 30s --policy all --policy fixed:5:64 \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      overload: who answers the most on time
  uncork simulate --mmpp 5000..20000:250ms --for 1m --jitter 0.1 --stragglers 0.01:5 \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      a rate that jumps, and a device that is not steady
  uncork simulate --closed-loop 64 --think-ms 5 --for 10s --policy cork,eager \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      64 clients that wait for their answers";

impl Simulate {
    /// Simulates, and prints what came of it.
    pub(super) fn run(self) -> ExitCode {
        let setup = Setup::new(self.setup);
        let prepared = setup.and_then(|setup| Load::new(self.load, &setup).map(|load| (setup, load)));
        let (setup, load) = match prepared {
            Ok(prepared) => prepared,
            Err(message) => {
                complain(&message);
                return ExitCode::from(USAGE);
            }
        };
        let mut rules: Vec<Rule> = Vec::new();
        for rule in self.policy.into_iter().flatten() {
            if rules.iter().all(|known| known.name != rule.name) {
                rules.push(rule);
            }
        }
        let report = simulate(&setup, &load, &rules, !self.json);
        say(&if self.json { report.json() } else { report.text(plot::terminal_width()) });
        ExitCode::SUCCESS
    }
}

/// Runs every policy, the clairvoyant, and, if it is asked what the caps cost, one policy with each cap raised: `cork`, or
/// else the first.
fn simulate<'a>(setup: &'a Setup, load: &'a Load, rules: &[Rule], with_raised_caps: bool) -> Report<'a> {
    let mut runs: Vec<(&Rule, Setup)> = rules.iter().map(|rule| (rule, setup.clone())).collect();
    let judge = rules.iter().position(|rule| rule.name == "cork").unwrap_or(0);
    if with_raised_caps {
        runs.push((&rules[judge], setup.with_more_latency()));
        runs.push((&rules[judge], setup.with_larger_batches()));
    }
    let progress = Progress::new(runs.iter().map(|(rule, _)| rule.runs()).sum(), load.length());
    let run = |(rule, setup): &(&Rule, Setup)| {
        let made = rule.make(setup, load, &progress);
        (load.run(setup, made.policy, &progress), made.note)
    };
    let (clairvoyant, done): (Clairvoyant, Vec<(Outcome, Option<String>)>) =
        progress.during(|| rayon::join(|| Clairvoyant::new(setup, load), || runs.par_iter().map(run).collect()));
    let (mut outcomes, mut notes): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let raised_caps = outcomes.split_off(rules.len());
    notes.truncate(rules.len());
    let results = rules.iter().map(|rule| rule.name.clone()).zip(outcomes).collect();
    let notes = notes.into_iter().flatten().collect();
    Report { setup, load, clairvoyant, results, notes, judge, raised_caps }
}
