//! The policies by their names on the command line.

use super::load::Load;
use super::setup::Setup;
use super::values;
use crate::policy::{Cork, Fixed, Policy};

type Make = fn(&Setup, &Load) -> Box<dyn Policy>;

/// All that have a name of their own; `all` stands for them. Those that are tuned after the fact look at the load.
const NAMED: &[(&str, Make)] = &[("cork", |_, _| Box::new(Cork)), ("eager", |_, _| Box::new(Fixed::EAGER))];

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
    /// The policy, new and knowing nothing.
    pub(super) fn policy(&self, setup: &Setup, load: &Load) -> Box<dyn Policy> {
        match self.kind {
            Kind::Named(make) => make(setup, load),
            Kind::Fixed(fixed) => Box::new(fixed),
        }
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
    Ok(vec![Rule { name, kind: Kind::Fixed(Fixed { wait, size }) }])
}
