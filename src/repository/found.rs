//! What one look at a folder of models finds, for whoever asks without serving it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::folder::{self, Look, ModelFolder, VersionFolder};
use super::{Described, Folder, Policy, troubles};
use crate::registry::Routes;

/// What was found at one look at a folder of models.
#[derive(Debug)]
pub struct Found {
    /// What there is of each model, by name; the error has a line for each problem.
    pub models: BTreeMap<String, Result<FoundModel, String>>,
    /// What is no model, and what cannot be read, in words.
    pub others: Vec<String>,
}

/// A model of such a folder.
#[derive(Debug)]
pub struct FoundModel {
    /// What is said of it.
    pub described: Described,
    /// The files of the versions that are asked for.
    pub files: BTreeMap<u64, PathBuf>,
}

impl Folder {
    /// Looks at it once, and loads nothing.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn look(&self) -> std::io::Result<Found> {
        let Look { models, unread, mut others } = folder::look(&self.path)?;
        others.extend(unread.into_iter().map(|(name, why)| format!("the model '{name}': {why}")));
        let describe = |(name, model): (String, ModelFolder)| {
            let described = (self.describe)(&name, &model.path);
            (name, described.and_then(|described| described.found(&model.versions)))
        };
        Ok(Found { models: models.into_iter().map(describe).collect(), others })
    }
}

impl Described {
    /// Versions that are named: to be served, or to be who answers whom.
    pub(super) fn named(&self) -> BTreeSet<u64> {
        let Routes { labels, weights, shadow } = &self.routes;
        let routed = labels.values().chain(weights.keys()).chain(shadow).filter_map(|version| version.parse().ok());
        let policy = match &self.policy {
            Policy::Named(named) => named.clone(),
            Policy::Latest(_) | Policy::All => BTreeSet::new(),
        };
        policy.into_iter().chain(routed).collect()
    }

    /// The same with the files of these versions; or what of it they do not make true, in words.
    fn found(self, versions: &BTreeMap<u64, VersionFolder>) -> Result<FoundModel, String> {
        if let Some(version) = self.named().iter().find(|version| !versions.contains_key(version)) {
            return Err(troubles::absent(*version));
        }
        let is_shadow = |version: &u64| self.routes.shadow.as_ref().is_some_and(|own| *own == version.to_string());
        let picked = self.policy.pick(versions.keys().copied());
        if picked.iter().all(is_shadow) {
            return Err(troubles::MUTE.to_owned());
        }
        let file = |version: &u64| match versions[version].file(self.file.as_deref()) {
            Ok(file) => Ok((*version, file)),
            Err(why) => Err(format!("version {version}: {why}")),
        };
        let (files, problems): (Vec<_>, Vec<_>) = picked.iter().map(file).partition(Result::is_ok);
        let problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
        match problems.is_empty() {
            true => Ok(FoundModel { described: self, files: files.into_iter().flatten().collect() }),
            false => Err(problems.join("\n")),
        }
    }
}
