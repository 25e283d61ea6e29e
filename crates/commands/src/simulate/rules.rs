//! The policies by their names.

use std::time::Duration;

use super::plan::{Plan, Subject};
use super::progress::Progress;
use super::values;
use uncork_core::policy::{Aimd, Cork, Cork2020, Fixed, Policy};
use uncork_sim::Outcome;

type Make = fn(&Subject) -> Box<dyn Policy>;

/// All that have a name of their own, in the order in which `all` asks for them.
const NAMED: &[(&str, Kind)] = &[
    ("cork", Kind::Made(|_| Box::new(Cork))),
    ("eager", Kind::Made(|_| Box::new(Fixed::EAGER))),
    ("best-fixed", Kind::BestFixed),
    ("aimd", Kind::Made(|model| Box::new(Aimd::new(model.max_latency)))),
    ("cork-2020", Kind::Made(|_| Box::new(Cork2020::new()))),
    ("cork-2020-told", Kind::Made(|model| Box::new(Cork2020::told(model.service.base, model.service.per_row)))),
];

/// About so many runs find the best setting.
const RUNS_OF_SEARCH: usize = 200;

/// A policy that is yet to be made, for each run and each model.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// As it is given and printed.
    pub(super) name: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Made(Make),
    Fixed(Fixed),
    /// Tuned after the fact, for one model alone.
    BestFixed,
}

/// What became of a plan under a rule.
pub(super) struct Ran {
    /// One a model.
    pub(super) outcomes: Vec<Outcome>,
    /// What a reader should know of the rule.
    pub(super) note: Option<String>,
}

impl Rule {
    /// Simulates the plan under it.
    pub(super) fn run(&self, plan: &Plan, progress: &Progress) -> Ran {
        match self.kind {
            Kind::Made(make) => Ran { outcomes: plan.run(make, progress), note: None },
            Kind::Fixed(fixed) => Ran { outcomes: plan.run(|_| Box::new(fixed), progress), note: None },
            Kind::BestFixed => best_fixed(plan, progress),
        }
    }

    /// About how many runs that takes.
    pub(super) fn runs(&self) -> usize {
        if matches!(self.kind, Kind::BestFixed) { RUNS_OF_SEARCH } else { 1 }
    }

    /// Whether it can batch for several models.
    pub(super) fn is_for_several(&self) -> bool {
        !matches!(self.kind, Kind::BestFixed)
    }
}

fn best_fixed(plan: &Plan, progress: &Progress) -> Ran {
    let found = uncork_sim::best_fixed(|policy| plan.scenario(vec![policy]), || plan.source(progress));
    let (best, outcome) = found.expect("a plan has a model");
    let cap = plan.models[0].max_latency;
    let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 1e2;
    let (wait, size, timeout) = (ms(best.wait), best.size, ms(best.timeout.min(cap)));
    let note = format!(
        "best-fixed waits for {wait} ms or {size} rows and drops what has waited for {timeout} ms: the best setting of \
         fixed, found after the fact."
    );
    Ran { outcomes: vec![outcome], note: Some(note) }
}

/// The rules that one word of `--policy` stands for.
pub(super) fn parse(word: &str) -> Result<Vec<Rule>, String> {
    let named = NAMED.iter().filter(|(name, _)| word == "all" || word == *name);
    let rules: Vec<Rule> = named.map(|&(name, kind)| Rule { name: name.into(), kind }).collect();
    if !rules.is_empty() {
        return Ok(rules);
    }
    let fields: Vec<&str> = word.split(':').collect();
    let (wait, size, timeout) = match fields[..] {
        ["fixed", wait, size] => (wait, size, None),
        ["fixed", wait, size, timeout] => (wait, size, Some(timeout)),
        _ => {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            return Err(format!("is none of {}, fixed:WAIT_MS:BATCH[:TIMEOUT_MS], all", names.join(", ")));
        }
    };
    let time = |what: &str, text: &str| values::think()(text).map_err(|why| format!("the {what} '{text}' {why}"));
    let wait = time("wait", wait)?;
    let size = values::batch()(size).map_err(|why| format!("the batch '{size}' {why}"))?;
    let timeout = timeout.map(|text| time("timeout", text)).transpose()?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut name = format!("fixed:{}:{size}", ms(wait));
    name.extend(timeout.map(|timeout| format!(":{}", ms(timeout))));
    let fixed = Fixed { timeout: timeout.unwrap_or(Duration::MAX), ..Fixed::new(wait, size) };
    Ok(vec![Rule { name, kind: Kind::Fixed(fixed) }])
}
