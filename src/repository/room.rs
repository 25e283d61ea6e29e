//! Models that are loaded where there is room for them.

use std::time::SystemTime;

use super::budget::{Budget, Tenant};
use super::{Inner, Shelf};
use crate::registry::{LoadError, LoadErrors, ModelSpec, Staged};

/// Why a version is not served.
pub(super) struct NotBrought {
    pub(super) reason: String,
    pub(super) why: Why,
}

/// What would have to change for it to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its files.
    Broken,
    /// The room that there is.
    CrowdedOut,
    /// It has to be loaded by name: another one then makes room.
    Later,
}

/// Why a model is not served that others could make room for.
const NO_ROOM_AT_THE_START: &str = "there was no room for it at the start; it is served when it is loaded by name";
const NO_ROOM_BESIDE_OTHERS: &str =
    "there was no room for it beside those that came with it; it is served when it is loaded by name";

impl Shelf {
    /// Has what found no room tried again, but for what waits to be loaded by name.
    pub(super) fn retry(&mut self) {
        let found_none = self.crowded_out.extract_if(.., |_, why| *why == Why::CrowdedOut);
        found_none.for_each(|(key, _)| drop(self.broken.remove(&key)));
    }

    /// Has all that could not be loaded tried again, but for what waits to be loaded by name.
    pub(super) fn retry_all(&mut self) {
        self.broken.retain(|key, _| self.crowded_out.get(key) == Some(&Why::Later));
    }
}

impl Inner {
    /// Bounds what is loaded from now on.
    pub(super) fn limit(&self, shelf: &mut Shelf, budget: Budget) {
        self.registry.metrics().repository().most_bytes.set(budget.max_bytes.unwrap_or(0) as f64);
        shelf.budget = budget;
        // They may fit now, or need not.
        shelf.retry();
    }

    /// Loads a version that is not served yet, and lets others go where it needs their room and they may go.
    pub(super) fn stage_and_fit(
        &self,
        shelf: &mut Shelf,
        spec: ModelSpec,
        strict: bool,
        goes: &[String],
    ) -> Result<Staged, NotBrought> {
        let name = spec.name.clone();
        let replaced = [std::slice::from_ref(&spec.version), goes].concat();
        // What cannot fit is not even read, as far as its file's length tells.
        self.who_goes(shelf, &name, &replaced, spec.least_memory())?;
        let staged = self.registry.stage(spec, strict, &[]);
        let staged = staged.map_err(|LoadError { reason, .. }| NotBrought { reason, why: Why::Broken })?;
        let gone = self.who_goes(shelf, &name, &replaced, staged.memory())?;
        let reason = format!("let go for want of memory when '{name}' was loaded: it had not been asked for longest");
        for other in gone {
            tracing::warn!(model = other, "{reason}");
            drop(self.unload_for(shelf, &other, &reason));
        }
        Ok(staged)
    }

    /// Names of the models that make room for so many bytes of that model, of which these versions go.
    fn who_goes(&self, shelf: &Shelf, name: &str, goes: &[String], bytes: u64) -> Result<Vec<String>, NotBrought> {
        let mut tenants = self.tenants(name, goes);
        let gone = shelf.budget.make_room(bytes, tenants.clone());
        let gone = gone.map_err(|reason| NotBrought { reason, why: Why::CrowdedOut })?;
        let later = |reason: &str| NotBrought { reason: reason.to_owned(), why: Why::Later };
        if shelf.is_opening && !gone.is_empty() {
            return Err(later(NO_ROOM_AT_THE_START));
        }
        if !gone.iter().any(|other| shelf.fresh.contains(other)) {
            return Ok(gone);
        }
        tenants.iter_mut().for_each(|tenant| tenant.may_go &= !shelf.fresh.contains(&tenant.name));
        shelf.budget.make_room(bytes, tenants).map_err(|_| later(NO_ROOM_BESIDE_OTHERS))
    }

    /// What is served beside that model, of which these versions go.
    fn tenants(&self, name: &str, goes: &[String]) -> Vec<Tenant> {
        let mut tenants: Vec<Tenant> = Vec::new();
        for model in self.registry.models().iter() {
            let is_own = model.name() == name;
            if is_own && goes.iter().any(|version| version == model.version()) {
                continue;
            }
            // Sorted by name.
            match tenants.last_mut().filter(|last| last.name == model.name()) {
                Some(last) => {
                    last.bytes += model.memory();
                    last.used = last.used.max(model.used());
                }
                None => tenants.push(Tenant {
                    name: model.name().to_owned(),
                    bytes: model.memory(),
                    used: model.used(),
                    may_go: !is_own,
                }),
            }
        }
        tenants
    }

    /// Whether all fit that are served, when `staged` have taken the places of their like and these are gone. Nobody makes room for them.
    pub(super) fn fits(&self, budget: Budget, staged: &[Staged], gone: &[(String, String)]) -> Result<(), LoadErrors> {
        let is_there = |model: &(&str, &str)| {
            let is_gone = gone.iter().any(|(name, version)| (name.as_str(), version.as_str()) == *model);
            !is_gone && !staged.iter().any(|staged| staged.key() == *model)
        };
        let models = self.registry.models();
        let stay = models.iter().filter(|model| is_there(&(model.name(), model.version())));
        let tenant = |name: &str, bytes, used| Tenant { name: name.to_owned(), bytes, used, may_go: false };
        let mut stay: Vec<Tenant> = stay.map(|model| tenant(model.name(), model.memory(), model.used())).collect();
        let mut new: Vec<Tenant> =
            staged.iter().map(|staged| tenant(staged.key().0, staged.memory(), SystemTime::now())).collect();
        // Of the largest it is told, and where nothing is new, the bound may be.
        let from = if new.is_empty() { &mut stay } else { &mut new };
        let largest = (0..from.len()).max_by_key(|&i| from[i].bytes).map(|i| from.swap_remove(i));
        let Some(Tenant { name, bytes, .. }) = largest else { return Ok(()) };
        stay.append(&mut new);
        let error = budget.make_room(bytes, stay).err().map(|reason| LoadError { name, reason });
        LoadErrors::unless_none(error.into_iter().collect())
    }
}
