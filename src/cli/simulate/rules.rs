//! The policies by their names on the command line.

use std::time::Duration;

use super::load::Load;
use super::progress::Progress;
use super::setup::Setup;
use super::values;
use crate::policy::{Aimd, Cork, Cork2020, Fixed, Policy};

type Make = fn(&Setup, &Load, &Progress) -> Made;

/// All that have a name of their own; `all` stands for them. Those that are tuned after the fact look at the load.
const NAMED: &[(&str, Make)] = &[
    ("cork", |_, _, _| made(Cork)),
    ("eager", |_, _, _| made(Fixed::EAGER)),
    (BEST_FIXED, best_fixed),
    ("aimd", |setup, _, _| made(Aimd::new(setup.max_latency))),
    ("cork-2020", |_, _, _| made(Cork2020::new())),
];

const BEST_FIXED: &str = "best-fixed";
/// About so many runs find the best setting.
const RUNS_OF_SEARCH: usize = 300;

/// A policy, new and knowing nothing.
pub(super) struct Made {
    pub(super) policy: Box<dyn Policy>,
    /// What a reader should know of it.
    pub(super) note: Option<String>,
}

fn made(policy: impl Policy + 'static) -> Made {
    Made { policy: Box::new(policy), note: None }
}

fn best_fixed(setup: &Setup, load: &Load, progress: &Progress) -> Made {
    let best = load.best_fixed(setup, progress);
    let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 1e2;
    let (wait, size, timeout) = (ms(best.wait), best.size, ms(best.timeout.min(setup.max_latency)));
    let note = format!(
        "{BEST_FIXED} waits for {wait} ms or {size} rows and drops what has waited for {timeout} ms: the best setting of \
         fixed, found after the fact."
    );
    Made { policy: Box::new(best), note: Some(note) }
}

/// A policy that is yet to be made, once for each run.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// As it is given and printed.
    pub(super) name: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Named(Make),
    Fixed(Fixed),
}

impl Rule {
    /// The policy, ready for these requests.
    pub(super) fn make(&self, setup: &Setup, load: &Load, progress: &Progress) -> Made {
        match self.kind {
            Kind::Named(make) => make(setup, load, progress),
            Kind::Fixed(fixed) => made(fixed),
        }
    }

    /// About how many runs it takes to make it and to run it.
    pub(super) fn runs(&self) -> usize {
        if self.name == BEST_FIXED { RUNS_OF_SEARCH + 1 } else { 1 }
    }
}

/// The rules that one word of `--policy` stands for.
pub(super) fn parse(word: &str) -> Result<Vec<Rule>, String> {
    let named = NAMED.iter().filter(|(name, _)| word == "all" || word == *name);
    let rules: Vec<Rule> = named.map(|(name, make)| Rule { name: (*name).into(), kind: Kind::Named(*make) }).collect();
    if !rules.is_empty() {
        return Ok(rules);
    }
    let fixed = word.strip_prefix("fixed:").and_then(|rest| rest.split_once(':'));
    let Some((wait, size)) = fixed else {
        let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
        return Err(format!("is none of {}, fixed:WAIT_MS:BATCH, all", names.join(", ")));
    };
    let wait = values::millis(0.0..=3_600_000.0)(wait).map_err(|why| format!("the wait '{wait}' {why}"))?;
    let size = values::count(1..=65_536)(size).map_err(|why| format!("the batch '{size}' {why}"))?;
    let name = format!("fixed:{}:{size}", wait.as_secs_f64() * 1e3);
    Ok(vec![Rule { name, kind: Kind::Fixed(Fixed::new(wait, size)) }])
}
