//! The configuration read again: what it holds now takes the place of what it held before, whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use super::folder::stamp_of_file;
use super::plan::Stamp;
use super::{Budget, Folder, Hurry, Inner, Repository, Shelf};
use crate::registry::{LoadError, LoadErrors, ModelSpec, Routes, Staged};

/// A model of the configuration, and the state that its file was in when it was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Configured {
    pub(super) spec: ModelSpec,
    stamp: Stamp,
}

impl Configured {
    pub(super) fn new(spec: ModelSpec) -> Configured {
        // One that cannot be looked at cannot be loaded either, which says why.
        let stamp = spec.source.file().and_then(|file| stamp_of_file(&file).ok()).unwrap_or_default();
        Configured { spec, stamp }
    }

    fn key(&self) -> (String, String) {
        (self.spec.name.clone(), self.spec.version.clone())
    }
}

/// What a configuration says of models.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Its models.
    pub models: Vec<ModelSpec>,
    /// Which of their versions answer whom.
    pub routes: BTreeMap<String, Routes>,
    /// The folder of models that is followed.
    pub folder: Option<Folder>,
    /// Whether a model that cannot keep its latency cap is an error.
    pub strict: bool,
    /// A bound on the memory of all models.
    pub budget: Budget,
}

/// What reading the configuration again came to, of its own models and those of the folder: names and versions, as `digits:1`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Served from now on.
    pub added: Vec<String>,
    /// Loaded anew, in the place of what was served before.
    pub changed: Vec<String>,
    /// Served no more.
    pub removed: Vec<String>,
}

impl Repository {
    /// Serves what the configuration holds now. Models that are new or have changed, or whose files have, are loaded and warmed up
    /// beside those that are served; then all take their places in one moment, and what is left over is let go. Nobody loses
    /// a request. If one cannot be loaded, nothing is changed. Then the folder is looked at, as it always is: a version there that
    /// cannot be loaded leaves the old one. What somebody has unloaded by name stays so.
    ///
    /// # Errors
    /// Every model of the configuration that cannot be loaded.
    pub async fn reload(&self, now: Settings) -> Result<Reloaded, LoadErrors> {
        let poll = now.folder.as_ref().map(|folder| folder.poll);
        let reloaded = self.change(move |inner, shelf| inner.reload(shelf, now)).await;
        if reloaded.is_ok() {
            self.0.poll.send_replace(poll);
        }
        reloaded
    }

    /// Counts that the configuration was read again, and whether that changed anything.
    pub fn count_reload(&self, is_applied: bool) {
        let metrics = self.0.registry.metrics().repository();
        let counter = if is_applied { &metrics.applied } else { &metrics.refused };
        counter.increment(1);
    }
}

impl Inner {
    fn reload(&self, shelf: &mut Shelf, now: Settings) -> Result<Reloaded, LoadErrors> {
        if self.registry.is_draining() {
            return Ok(Reloaded::default());
        }
        let Settings { models, routes, folder, strict, budget } = now;
        let wanted: Vec<Configured> = models.into_iter().map(Configured::new).collect();
        let is_there = |(name, version): &(String, String)| self.registry.has(name, version);
        let is_to_load = |own: &&Configured| {
            let is_kept = shelf.configured.contains(own) && is_there(&own.key());
            !is_kept && !shelf.unloaded.contains_key(&own.spec.name)
        };
        let staged = self.stage(wanted.iter().filter(is_to_load), strict)?;
        let before: BTreeSet<_> = self.served(shelf, &wanted).into_iter().filter(is_there).collect();
        let after: BTreeSet<_> = wanted.iter().map(Configured::key).collect();
        let gone: Vec<_> = before.difference(&after).cloned().collect();
        if let Err(errors) = self.fits(budget, &staged, &gone) {
            self.registry.withdraw(&wanted.iter().map(Configured::key).collect::<Vec<_>>());
            return Err(errors);
        }
        let changed: Vec<_> = wanted.iter().filter(is_to_load).map(Configured::key).collect();
        let changed: BTreeSet<_> = changed.into_iter().filter(|key| before.contains(key)).collect();
        let all_before = self.all_served();
        self.limit(shelf, budget);
        shelf.strict = strict;
        let metrics = self.registry.metrics().repository();
        metrics.loaded.increment(staged.len() as u64);
        metrics.let_go.increment(gone.len() as u64);
        shelf.routes = routes;
        drop(self.registry.exchange(staged, &gone, Some(&shelf.all_routes())));
        let is_configured = |name: &String| wanted.iter().any(|own| own.spec.name == *name);
        let was_configured = |name: &String| shelf.configured.iter().any(|own| own.spec.name == *name);
        shelf.unloaded.retain(|name, _| is_configured(name) || !was_configured(name));
        shelf.serving.retain(|name, _| !is_configured(name));
        shelf.configured = wanted;
        self.change_folder(shelf, folder);
        shelf.tell_routes();
        let all_after = self.all_served();
        let named = |keys: &mut dyn Iterator<Item = &(String, String)>| {
            keys.map(|(name, version)| format!("{name}:{version}")).collect()
        };
        Ok(Reloaded {
            added: named(&mut all_after.difference(&all_before)),
            changed: named(&mut changed.iter()),
            removed: named(&mut all_before.difference(&all_after)),
        })
    }

    /// Names and versions, of the folder and of the configuration.
    fn all_served(&self) -> BTreeSet<(String, String)> {
        let models = self.registry.models();
        models.iter().map(|model| (model.name().to_owned(), model.version().to_owned())).collect()
    }

    /// Loads all of these, of which none is served yet, or says why not.
    fn stage<'a>(&self, specs: impl Iterator<Item = &'a Configured>, strict: bool) -> Result<Vec<Staged>, LoadErrors> {
        let specs: Vec<&Configured> = specs.collect();
        let keys: Vec<_> = specs.iter().map(|own| own.key()).collect();
        keys.iter().for_each(|(name, version)| self.registry.announce(name, version));
        let (mut staged, mut errors) = (Vec::new(), Vec::new());
        for Configured { spec, .. } in specs {
            match self.registry.stage(spec.clone(), strict, &staged) {
                Ok(model) => staged.push(model),
                Err(LoadError { name, reason }) => {
                    self.registry.metrics().repository().failed.increment(1);
                    let reason = format!("version {}: {reason}", spec.version);
                    errors.push(LoadError { name, reason });
                }
            }
        }
        let staged = LoadErrors::unless_none(errors).map(|()| staged);
        if staged.is_err() {
            self.registry.withdraw(&keys);
        }
        staged
    }

    /// What was served of the configuration, and what was of the folder under a name that the configuration has now.
    fn served(&self, shelf: &Shelf, wanted: &[Configured]) -> Vec<(String, String)> {
        let configured = shelf.configured.iter().map(Configured::key);
        let taken = shelf.serving.iter().filter(|(name, _)| wanted.iter().any(|own| own.spec.name == **name));
        let taken =
            taken.flat_map(|(name, versions)| versions.keys().map(|version| (name.clone(), version.to_string())));
        configured.chain(taken).collect()
    }

    /// Follows `folder` from now on, and looks at it at once. All that is said there is read again: it may refer to what has changed.
    fn change_folder(&self, shelf: &mut Shelf, folder: Option<Folder>) {
        let has_folder = folder.is_some();
        shelf.described.clear();
        shelf.folder = folder;
        shelf.retry_all();
        if !has_folder {
            // A folder that comes later is seen for the first time.
            shelf.routes_of_folder.clear();
            shelf.before.clear();
            shelf.unread.clear();
            shelf.others.clear();
            let configured: BTreeSet<_> = shelf.configured.iter().map(|own| own.spec.name.clone()).collect();
            shelf.unloaded.retain(|name, _| configured.contains(name));
            for (name, versions) in std::mem::take(&mut shelf.serving) {
                versions.keys().for_each(|version| drop(self.let_go(&name, &version.to_string())));
            }
            self.registry.route(&shelf.all_routes());
            self.note_troubles(shelf);
        }
        self.follow_folder(shelf, Hurry::All);
    }
}
