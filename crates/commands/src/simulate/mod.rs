//! `uncork simulate`

mod arrivals;
mod bounded;
mod clairvoyant;
mod load;
mod mix;
mod plan;
mod progress;
mod report;
mod rules;
mod scenario;
mod setup;
pub(super) mod trace;
pub(super) mod values;

use std::process::ExitCode;

use rayon::prelude::*;

use self::clairvoyant::Clairvoyant;
use self::plan::Plan;
use self::progress::Progress;
use self::report::{Report, Trial};
use self::rules::{Ran, Rule};
use super::{USAGE, complain, plot, say};

/// Try policies on a load, in virtual time.
///
/// Runs the very code that batches in the server against arrivals of your choice and a model of your speed: an hour of
/// traffic takes seconds, and the same seed gives the same output. The simulated server is told nothing but the two caps, and
/// times some batches before the first request, as the server does. Prints a table of all policies beside what anyone who knows the future could have answered on time,
/// and what the caps cost.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE_LINE)]
pub struct Simulate {
    #[command(flatten, next_help_heading = "Arrivals, exactly one (rates in requests a second)")]
    load: arrivals::Flags,

    #[command(flatten, next_help_heading = "Server")]
    setup: setup::Flags,

    /// cork, eager, fixed:WAIT_MS:BATCH, best-fixed, aimd, cork-2020, cork-2020-told or all; may be given several times
    /// [default: cork, or those of the scenario]
    ///
    /// cork: what the server runs. eager: release whatever waits as soon as a runner is free. fixed: release at BATCH rows,
    /// or when the first of them has waited for WAIT_MS; with a third number, drop what has waited for so many ms.
    /// best-fixed: the best setting of that for this very load, found after the fact in some 200 runs. aimd: Clipper's
    /// rule. cork-2020: BentoML's rule of that year, and the same one told the true batch times.
    #[arg(long, value_name = "P", value_delimiter = ',', value_parser = rules::parse)]
    #[arg(help_heading = "Output")]
    policy: Vec<Vec<Rule>>,

    /// Seeds arrivals and noise: the same seed gives the same output [default: 1, or that of the scenario]
    #[arg(long, value_name = "S", value_parser = values::seed, allow_hyphen_values = true)]
    #[arg(help_heading = "Output")]
    seed: Option<u64>,

    /// Without the batches that a server times before its first request: the policy then learns from callers
    #[arg(long, help_heading = "Server")]
    cold: bool,

    /// Print a JSON list with an object for each policy (and model), and nothing else
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const USAGE_LINE: &str = "\
uncork simulate (--arrivals FILE | --poisson R --for S | …) --base-ms A --per-row-ms B
           --max-latency-ms D --max-batch-size N [--runners M] [--policy P]… [--json]
       uncork simulate --scenario FILE [--policy P]… [--json]";

const EXAMPLES: &str = "\
Arrivals: FILE has a line for each request: its arrival in seconds, and then, if you like,
its rows, its own deadline and its priority, with commas between them. A line of names on top
may leave some out, as in seconds,deadline_ms. Blank lines, and what follows a #, are passed over.

Scenario: FILE says in TOML which models share the runners:
  runners = 1
  policy = [\"cork\", \"eager\"]
  [[model]]
  name = \"search\"
  max_latency_ms = 50
  max_batch_size = 128
  service = { base_ms = 2, per_row_ms = 0.05 }
  arrivals = [{ process = \"poisson\", rate = 2000, for_s = 30 }]
  [[model]]
  name = \"bulk\"
  …
docs/simulate.md has all keys, tests/scenarios has examples.

Examples, of a model that takes 2 + 0.05·n ms for n rows:
  uncork simulate --arrivals trace.csv \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      your own trace: what is refused, and which cap is to blame
  uncork simulate --poisson 20000 --for 2s --policy all --policy fixed:5:64 \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      overload: who answers the most on time
  uncork simulate --poisson 20000 --for 30s --hurried 0.1:15 --urgent 0.2 \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      the same, where some callers have little time and some go first
  uncork simulate --mmpp 5000..20000:250ms --for 1m --jitter 0.1 \\
      --stragglers 0.01:5 \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      a rate that jumps, and a device that is not steady
  uncork simulate --closed-loop 64 --think-ms 5 --for 10s --policy cork,eager \\
      --base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128
      64 clients that wait for their answers";

impl Simulate {
    /// Simulates, and prints what came of it.
    pub fn run(self) -> ExitCode {
        let json = self.json;
        match self.prepare() {
            Ok((plan, rules, notes)) => {
                let report = simulate(&plan, &rules, notes, !json);
                say(&if json { report.json() } else { report.text(plot::terminal_width()) });
                ExitCode::SUCCESS
            }
            Err(message) => {
                complain(&message);
                ExitCode::from(USAGE)
            }
        }
    }

    /// What to simulate under which policies, and what must be said about that.
    fn prepare(self) -> Result<(Plan, Vec<Rule>, Vec<String>), String> {
        let (mut plan, usual) = if let Some(path) = self.load.scenario() {
            scenario::read(path, self.seed)?
        } else {
            if self.setup.first_batch != 1.0 && !self.cold {
                return Err(
                    "--first-batch goes with --cold only: else the server has its first batch before its first request"
                        .into(),
                );
            }
            let (runners, seed) = (self.setup.runners, self.seed.unwrap_or(1));
            let load = self.load.load(self.setup.caps(), seed)?;
            let server = self.setup.server_ms;
            let models = vec![self.setup.subject(load)?];
            let mut plan = Plan { runners, seed, cold: false, server, models };
            plan.align();
            plan.check_changes("--drift", "--for").map_err(|(_, why)| why)?;
            (plan, rules::parse("cork")?)
        };
        plan.cold = self.cold;
        let asked = self.policy.concat();
        let mut rules: Vec<Rule> = Vec::new();
        for rule in if asked.is_empty() { usual } else { asked } {
            if rules.iter().all(|known| known.name != rule.name) {
                rules.push(rule);
            }
        }
        let mut notes = Vec::new();
        if !plan.cold && plan.models.iter().any(|model| model.service.first_factor != 1.0) {
            notes.push("first_factor says nothing without --cold: the first batch was timed before the start.".into());
        }
        if plan.only().is_none() && !rules.iter().all(Rule::is_for_several) {
            let note = "best-fixed is left out: it is looked for where there is one model.";
            rules.retain(Rule::is_for_several);
            if rules.is_empty() {
                return Err(note.into());
            }
            notes.push(note.into());
        }
        Ok((plan, rules, notes))
    }
}

/// Runs every policy, and the clairvoyant where it is known. If there is one model and it is asked what may help, also one policy
/// with each remedy: `cork`, or else the first. If there are several models, each alone too.
fn simulate<'a>(plan: &'a Plan, rules: &[Rule], mut notes: Vec<String>, with_remedies: bool) -> Report<'a> {
    let judge = rules.iter().position(|rule| rule.name == "cork").unwrap_or(0);
    let mut runs: Vec<(&Rule, Plan)> = rules.iter().map(|rule| (rule, plan.clone())).collect();
    if plan.only().is_none() {
        let alone = |rule| plan.models.iter().map(move |model| (rule, plan.alone(model)));
        runs.extend(rules.iter().flat_map(alone));
    }
    let (remedies, plans): (Vec<String>, Vec<Plan>) =
        if with_remedies { plan.remedies() } else { Vec::new() }.into_iter().unzip();
    runs.extend(plans.into_iter().map(|plan| (&rules[judge], plan)));
    let progress = Progress::new(runs.iter().map(|(rule, _)| rule.runs()).sum(), plan.length());
    let run = |(rule, plan): &(&Rule, Plan)| rule.run(plan, &progress);
    let (clairvoyant, done): (Clairvoyant, Vec<Ran>) =
        progress.during(|| rayon::join(|| Clairvoyant::new(plan), || runs.par_iter().map(run).collect()));
    let mut done = done.into_iter();
    let mut results: Vec<Trial> = Vec::new();
    for (rule, Ran { outcomes, note }) in rules.iter().zip(done.by_ref()) {
        results.push(Trial { policy: rule.name.clone(), outcomes, alone: Vec::new() });
        notes.extend(note);
    }
    let mut others = done.flat_map(|ran| ran.outcomes);
    if plan.only().is_none() {
        results.iter_mut().for_each(|trial| trial.alone = others.by_ref().take(plan.models.len()).collect());
    }
    let remedies = remedies.into_iter().zip(others).collect();
    Report { plan, clairvoyant, results, notes, judge, remedies }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        simulate: Simulate,
    }

    fn text(words: &str, width: usize) -> String {
        let server = "--base-ms 2 --per-row-ms 0.05 --max-latency-ms 50 --max-batch-size 128";
        let words = format!("simulate {words} {server}");
        let (plan, rules, notes) = Words::parse_from(words.split(' ')).simulate.prepare().expect("it can be simulated");
        simulate(&plan, &rules, notes, true).text(width)
    }

    #[test]
    fn in_a_narrow_terminal_no_sentence_is_wider_than_it() {
        for more in ["--seed 1", "--jitter 0.1 --stragglers 0.01:5 --drift 100ms:2", "--runners 3"] {
            let text = text(&format!("--poisson 900 --for 0.2 {more}"), 40);
            // A table is as wide as its columns.
            let sentences = text.lines().filter(|line| !line.starts_with("policy ") && !line.starts_with("cork   "));
            let wide: Vec<&str> = sentences.filter(|line| line.chars().count() > 40).collect();
            assert!(wide.is_empty(), "{wide:?}");
        }
    }
}
