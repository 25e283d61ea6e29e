//! The checked form of `[[pool]]`.

use std::num::NonZeroUsize;

use super::Layers;
use super::file::{File, Table};
use super::model::THREADS;
use super::problem::{Place, Report, did_you_mean};
use super::setting::Setting;
use crate::quote::Quoted;
use crate::runner::malformed_name;

/// A pool that models can name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pool {
    name: String,
    place: Place,
    pub(super) runners: NonZeroUsize,
}

/// The pools of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pools(Vec<Pool>);

impl Pools {
    /// Checks all pools.
    pub(super) fn check(file: &File, layers: &Layers<'_>, report: &mut Report) -> Pools {
        let mut pools: Vec<Pool> = Vec::new();
        for table in &file.pools {
            let place = table.place.clone().unwrap_or(Place::Argument);
            let runners = layers.strongest("runners", table.get("runners"));
            let runners = runners.and_then(|setting| setting.count(THREADS, report)).unwrap_or(NonZeroUsize::MIN);
            let Some(name) = name(table, &place, report) else { continue };
            if let Some(earlier) = pools.iter().find(|p| p.name == name) {
                report.note(place.clone(), format!("pool {} is there already, at {}", Quoted(&name), earlier.place));
            }
            pools.push(Pool { name, place, runners });
        }
        Pools(pools)
    }

    /// The pool that a model names; `None`, and a note, where there is none of that name.
    pub(super) fn named(&self, setting: &Setting, report: &mut Report) -> Option<&Pool> {
        let name = setting.text(report)?;
        let found = self.0.iter().find(|p| p.name == name);
        if found.is_none() {
            let hint = did_you_mean(name, self.0.iter().map(|p| p.name.as_str()));
            let message = format!("there is no such pool; define it with [[pool]] and this name{hint}");
            setting.refuse(report, message);
        }
        found
    }

    /// Notes pools that no model has named.
    pub(super) fn refuse_unused(&self, file: &File, report: &mut Report) {
        let is_used = |name: &str| {
            let named = file.models.iter().filter_map(|model| model.get("pool"));
            named.into_iter().any(|setting| setting.is_text(name))
        };
        for pool in self.0.iter().filter(|p| !is_used(&p.name)) {
            let name = &pool.name;
            let message =
                format!("pool '{name}' serves no model; write pool = \"{name}\" in a [[model]], or remove it");
            report.note(pool.place.clone(), message);
        }
    }
}

impl Pool {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

fn name(table: &Table, place: &Place, report: &mut Report) -> Option<String> {
    let Some(setting) = table.get("name") else {
        report.note(place.clone(), "a pool needs a name");
        return None;
    };
    let name = setting.text(report)?;
    if let Some(message) = malformed_name(name) {
        setting.refuse(report, message);
        return None;
    }
    Some(name.to_owned())
}
