//! The policies by their names on the command line.

use std::time::Duration;

use super::load::Load;
use super::setup::Setup;
use super::values;
use crate::policy::{Cork, Fixed, Policy};

/// What `all` stands for.
const ALL: [Rule; 2] = [Rule::Cork, Rule::Eager];

/// A policy by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Cork,
    Eager,
    Fixed(Fixed),
}

impl Rule {
    /// The policy, new and knowing nothing. The load is for rules that are tuned to it after the fact.
    pub(super) fn policy(self, _setup: &Setup, _load: &Load) -> Box<dyn Policy> {
        match self {
            Rule::Cork => Box::new(Cork),
            Rule::Eager => Box::new(Fixed::EAGER),
            Rule::Fixed(fixed) => Box::new(fixed),
        }
    }

    /// Its name, as it is given and printed.
    pub(super) fn name(self) -> String {
        match self {
            Rule::Cork => "cork".into(),
            Rule::Eager => "eager".into(),
            Rule::Fixed(Fixed { wait, size }) => format!("fixed:{}:{size}", wait.as_secs_f64() * 1e3),
        }
    }
}

/// The rules of one name.
pub(super) fn parse(name: &str) -> Result<Vec<Rule>, String> {
    Ok(match name {
        "all" => ALL.to_vec(),
        "cork" => vec![Rule::Cork],
        "eager" => vec![Rule::Eager],
        _ => vec![Rule::Fixed(fixed(name)?)],
    })
}

/// `fixed:WAIT_MS:BATCH`
fn fixed(name: &str) -> Result<Fixed, String> {
    let unknown = || "is none of cork, eager, fixed:WAIT_MS:BATCH, all".to_owned();
    let (wait, size) = name.strip_prefix("fixed:").and_then(|rest| rest.split_once(':')).ok_or_else(unknown)?;
    let wait: Duration = values::millis(0.0..=3_600_000.0)(wait).map_err(|why| format!("the wait '{wait}' {why}"))?;
    let size = values::count(1..=65_536)(size).map_err(|why| format!("the batch '{size}' {why}"))?;
    Ok(Fixed { wait, size })
}
