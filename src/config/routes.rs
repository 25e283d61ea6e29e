//! Which version of a model answers whom: `labels`, `weights` and `shadow`.

use std::collections::BTreeMap;

use super::file::{File, Table};
use super::problem::Report;
use super::setting::{Setting, Value};
use crate::quote::Quoted;
use crate::registry::{ModelSpec, Routes};

/// Weights are shares of something; a million parts tell any two of them apart.
const WEIGHT: std::ops::RangeInclusive<i128> = 0..=1_000_000;

/// Why a model is refused of which no version would answer.
pub(super) const ONLY_A_SHADOW: &str =
    "is the only version that is asked for, and a shadow answers nobody: ask for one that answers as well";

/// What the tables of the configuration say, by model. Each of the keys may stand in one of a model's tables.
pub(super) fn of_file(file: &File, models: &[ModelSpec], all_problems: &mut Report) -> BTreeMap<String, Routes> {
    let mut all: BTreeMap<String, Routes> = BTreeMap::new();
    for table in &file.models {
        let Some(Value::Text(name)) = table.get("name").map(|setting| &setting.value) else { continue };
        let mut of_model = Report::default();
        let report = &mut of_model;
        let found = of_table(table, report);
        let is_served = |version: &String| models.iter().any(|spec| spec.name == *name && spec.version == *version);
        for (key, versions) in named(&found) {
            let missing = versions.into_iter().find(|version| !is_served(version));
            if let (Some(version), Some(setting)) = (missing, table.get(key)) {
                setting.refuse(report, format!("names version {version}, which model {} does not have", Quoted(name)));
            }
        }
        if let (Some(shadow), Some(setting)) = (&found.shadow, table.get("shadow"))
            && !models.iter().any(|spec| spec.name == *name && spec.version != *shadow)
        {
            setting.refuse(report, ONLY_A_SHADOW);
        }
        let own = all.entry(name.clone()).or_default();
        let twice = |is_there: bool, key: &str, report: &mut Report| {
            if let Some(setting) = table.get(key).filter(|_| is_there) {
                setting.refuse(
                    report,
                    format!("is said in another table of model {} already; leave one out", Quoted(name)),
                );
            }
        };
        twice(!own.labels.is_empty(), "labels", report);
        twice(!own.weights.is_empty(), "weights", report);
        twice(own.shadow.is_some(), "shadow", report);
        own.labels.extend(found.labels);
        own.weights.extend(found.weights);
        own.shadow = found.shadow.or(own.shadow.take());
        all_problems.adopt(of_model, Some(name));
    }
    all.retain(|_, routes| *routes != Routes::default());
    all
}

/// What one table says.
pub(super) fn of_table(table: &Table, report: &mut Report) -> Routes {
    let labels = table.get("labels").and_then(|setting| labels(setting, report)).unwrap_or_default();
    let weights = table.get("weights").and_then(|setting| weights(setting, report)).unwrap_or_default();
    let shadow = table.get("shadow").and_then(|setting| {
        let version = version(&setting.value);
        if version.is_none() {
            setting.refuse(report, "must be a version, like \"2\"");
        }
        version
    });
    if let (Some(shadow), Some(setting)) = (&shadow, table.get("shadow")) {
        let is_answering =
            weights.get(shadow).is_some_and(|weight| *weight > 0) || labels.values().any(|v| v == shadow);
        if is_answering {
            setting.refuse(report, "answers nobody, so it has neither a weight nor a label");
        }
    }
    Routes { labels, weights, shadow }
}

/// The versions that are spoken of.
pub(super) fn versions(routes: &Routes) -> impl Iterator<Item = &String> {
    routes.labels.values().chain(routes.weights.keys()).chain(&routes.shadow)
}

/// The same by key.
fn named(routes: &Routes) -> [(&'static str, Vec<&String>); 3] {
    [
        ("labels", routes.labels.values().collect()),
        ("weights", routes.weights.keys().collect()),
        ("shadow", routes.shadow.iter().collect()),
    ]
}

/// A version as a number or as a text.
fn version(value: &Value) -> Option<String> {
    let text = match value {
        Value::Integer(n) => n.to_string(),
        Value::Text(text) => text.clone(),
        _ => return None,
    };
    text.parse::<u64>().is_ok_and(|n| n.to_string() == text).then_some(text)
}

fn labels(setting: &Setting, report: &mut Report) -> Option<BTreeMap<String, String>> {
    let label = |(name, value): &(String, Value)| Some((name.clone(), version(value)?)).filter(|_| !name.is_empty());
    let found = setting.entries().and_then(|entries| entries.iter().map(label).collect());
    if found.is_none() {
        setting.refuse(report, "must give versions by name, like { stable = 1, canary = 2 }");
    }
    found
}

fn weights(setting: &Setting, report: &mut Report) -> Option<BTreeMap<String, u32>> {
    let weight = |(name, value): &(String, Value)| {
        let Value::Integer(n) = value else { return None };
        let weight = u32::try_from(*n).ok().filter(|_| WEIGHT.contains(n))?;
        Some((version(&Value::Text(name.clone()))?, weight))
    };
    let found: Option<BTreeMap<String, u32>> =
        setting.entries().and_then(|entries| entries.iter().map(weight).collect());
    let found = found.filter(|weights| weights.values().any(|weight| *weight > 0));
    if found.is_none() {
        let most = WEIGHT.end();
        let message = format!(
            "must give whole numbers from 0 to {most} by version, not all 0, like {{ \"1\" = 90, \"2\" = 10 }}"
        );
        setting.refuse(report, message);
    }
    found
}
