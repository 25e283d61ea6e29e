//! What is known of the folder of models, from one look to the next.

use std::collections::BTreeMap;

use super::folder::{ModelFolder, VersionFolder};
use super::plan::{Policy, Seen, Stamp, State};
use super::{Described, Folder, Hurry, Shelf};
use crate::registry::Routes;

impl Shelf {
    pub(super) fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|own| own.spec.name == name)
    }

    /// Which version answers whom, of all models.
    pub(super) fn all_routes(&self) -> BTreeMap<String, Routes> {
        let mut all = self.routes_of_folder.clone();
        all.extend(self.routes.clone());
        all
    }

    /// Takes over which versions of the folder's models answer whom.
    pub(super) fn route(&mut self, models: &BTreeMap<String, ModelFolder>) {
        self.routes_of_folder.retain(|name, _| models.contains_key(name));
        for (name, (_, described)) in &self.described {
            if let Ok(described) = described {
                self.routes_of_folder.insert(name.clone(), described.routes.clone());
            }
        }
    }

    /// Reads the settings of models whose settings have changed, once two looks have shown the same or where it is hurried. What they
    /// come to is part of the state of each version: it is loaded anew when a cap has changed, and not when only the versions are that
    /// answer.
    pub(super) fn describe(&mut self, models: &mut BTreeMap<String, ModelFolder>, folder: &Folder, hurry: Hurry<'_>) {
        for (name, model) in models {
            let is_settled = self.before.get(name).is_some_and(|before| before.settings == model.settings);
            let is_read = self.described.get(name).is_some_and(|(stamp, _)| *stamp == model.settings);
            if !is_read && hurry.sees(name) && (is_settled || hurry.is_for(name)) {
                self.read_settings(name, model, folder);
            }
            if let Some((_, Ok(Described { spec, file, .. }))) = self.described.get(name) {
                model.mark(&format!("{spec:?} {file:?}"));
            }
        }
    }

    fn read_settings(&mut self, name: &str, model: &ModelFolder, folder: &Folder) {
        let described = (folder.describe)(name, &model.path);
        match &described {
            Ok(Described { notes, .. }) => notes.iter().for_each(|note| tracing::warn!(model = name, "{note}")),
            Err(error) => tracing::error!(model = name, "its settings are wrong, so nothing is changed: {error}"),
        }
        self.described.insert(name.to_owned(), (model.settings, described));
    }

    /// Forgets what was known of files that are gone or have changed.
    pub(super) fn forget(&mut self, models: &BTreeMap<String, ModelFolder>) {
        let stamp = |(name, version): &(String, u64)| models.get(name)?.versions.get(version).map(|at| at.stamp);
        self.broken.retain(|key, (broken, _)| stamp(key) == Some(*broken));
        self.described.retain(|name, _| models.contains_key(name));
        let is_gone = |name: &String| !models.contains_key(name) && self.before.contains_key(name);
        self.unloaded.retain(|name, _| !is_gone(name));
        self.crowded_out.retain(|key, _| self.broken.contains_key(key));
    }

    /// Whether a version of that model of the folder is served and is no shadow.
    pub(super) fn answers(&self, name: &str) -> bool {
        let shadow = self.routes_of_folder.get(name).and_then(|routes| routes.shadow.as_deref());
        let is_shadow = |version: &u64| shadow.is_some_and(|shadow| shadow == version.to_string());
        self.serving.get(name).is_some_and(|versions| versions.keys().any(|version| !is_shadow(version)))
    }

    /// The versions that a model would have if it were loaded now, as far as that is known; lowest first.
    pub(super) fn would_serve(&self, name: &str) -> Vec<String> {
        if self.is_configured(name) {
            let own = self.configured.iter().filter(|own| own.spec.name == name);
            return own.map(|own| own.spec.version.clone()).collect();
        }
        let (Some(model), Some((_, Ok(described)))) = (self.before.get(name), self.described.get(name)) else {
            return Vec::new();
        };
        let is_good = |version: &u64| {
            let key = (name.to_owned(), *version);
            !self.broken.contains_key(&key) || self.crowded_out.contains_key(&key)
        };
        let picked = described.policy.pick(model.versions.keys().copied().filter(is_good));
        picked.iter().rev().map(u64::to_string).collect()
    }

    /// Versions that a model's settings name, and that are not there.
    pub(super) fn absent(&self) -> impl Iterator<Item = (&str, u64)> {
        self.described.iter().flat_map(|(name, (_, described))| {
            let named = described.as_ref().map(Described::named).unwrap_or_default();
            let there = self.before.get(name);
            let is_absent = move |version: &u64| there.is_some_and(|at| !at.versions.contains_key(version));
            named.into_iter().filter(is_absent).map(|version| (name.as_str(), version))
        })
    }

    /// Versions that are served and will not be once the policy has what it asks for.
    pub(super) fn going(&self, name: &str, policy: &Policy, models: &BTreeMap<String, ModelFolder>) -> Vec<String> {
        let Some(serving) = self.serving.get(name) else { return Vec::new() };
        let is_good = |(version, at): (&u64, &VersionFolder)| {
            let is_broken = self.broken.get(&(name.to_owned(), *version)).is_some_and(|(stamp, _)| *stamp == at.stamp);
            (!is_broken || serving.contains_key(version)).then_some(*version)
        };
        let seen = models.get(name).map(|model| policy.pick(model.versions.iter().filter_map(is_good)));
        let wanted = seen.unwrap_or_default();
        serving.keys().filter(|version| !wanted.contains(version)).map(u64::to_string).collect()
    }

    /// The models for the plan. Those that somebody has unloaded are not there.
    pub(super) fn seen(
        &self,
        models: &BTreeMap<String, ModelFolder>,
        is_settled: impl Fn(&str, u64) -> bool,
    ) -> BTreeMap<String, Seen> {
        let state = |name: &String, version: u64, stamp: Stamp| match self.broken.get(&(name.clone(), version)) {
            Some((broken, _)) if *broken == stamp => State::Broken,
            _ if is_settled(name, version) => State::Settled,
            _ => State::Fresh,
        };
        let of_model = |(name, model): (&String, &ModelFolder)| {
            let seen = match self.described.get(name) {
                Some((_, Ok(Described { policy, .. }))) => {
                    let versions = model.versions.iter().map(|(&v, at)| (v, (at.stamp, state(name, v, at.stamp))));
                    Seen::Clear(policy.clone(), versions.collect())
                }
                _ => Seen::Unclear,
            };
            (name.clone(), seen)
        };
        models.iter().filter(|(name, _)| !self.unloaded.contains_key(*name)).map(of_model).collect()
    }
}
