//! Models that come and go while others are served: a folder of models that is followed, and models that are loaded and unloaded
//! by name.
//!
//! What is to change is decided apart, by a pure function (`plan`); this does what it says. Changes are made one at a time, on a
//! thread for blocking work.
//!
//! A version's life, and what it is in each part of it:
//!
//! 1. A look at the folder sees it (`folder::Look`, with a `Stamp` of its files), and reads what is said of its model ([`Described`]).
//! 2. When two looks have shown the same it is settled, and `plan` asks for it ([`registry::ModelSpec`](crate::registry::ModelSpec)).
//! 3. It is loaded and warmed up beside what is served ([`registry::Staged`](crate::registry::Staged)), where there is room (`room`).
//! 4. It is served ([`registry::Model`](crate::registry::Model)), and what it takes the place of is [`Leaving`], until nobody holds that.
//!
//! What does not get so far is a [`Trouble`], and stays one until its files change.

mod budget;
mod folder;
mod found;
mod plan;
mod reload;
mod room;
mod routes;
mod shelf;
#[cfg(test)]
mod tests;
mod troubles;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

pub use budget::Budget;
pub use folder::{OWN_SETTINGS, TRITON_SETTINGS};
pub use found::{Found, FoundModel};
pub use plan::Policy;
pub use reload::{Reloaded, Settings};
pub use troubles::Trouble;

use crate::registry::{Leaving, LoadError, LoadErrors, ModelSpec, Registry, Routes, Source};
use folder::{Look, ModelFolder, VersionFolder};
use plan::{Change, Serving, Stamp};
use reload::Configured;
use room::{NotBrought, Why};

/// What is said of a model in its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Which versions are served.
    pub policy: Policy,
    /// Caps and bounds of each version; its version and its source are those of the folder.
    pub spec: ModelSpec,
    /// Which version answers whom.
    pub routes: Routes,
    /// The file in each version's folder, where that is named.
    pub file: Option<String>,
    /// What is said there and has no meaning here, in words for the operator.
    pub notes: Vec<String>,
}

/// Reads what is said of the model of that name in its folder. The error is for the operator.
pub type Describe = Arc<dyn Fn(&str, &Path) -> Result<Described, String> + Send + Sync>;

/// A folder of models: a folder for each, with a folder for each version in it, `NAME/1/model.onnx`.
#[derive(Clone)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// How often it is looked at. Lower: a new version is picked up sooner. It is loaded when it has looked the same twice.
    pub poll: Duration,
    /// Whether a version that cannot keep its latency cap is broken, and not only warned of.
    pub strict: bool,
    /// Reads a model's settings.
    pub describe: Describe,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("path", &self.path).field("poll", &self.poll).finish_non_exhaustive()
    }
}

/// Why a model was not loaded or unloaded by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Neither the configuration nor the folder has it.
    #[error("there is no such model in the configuration or in the folder of models")]
    Unknown,
    /// The server has not begun to serve it yet.
    #[error("it is still being loaded; ask again when it is ready")]
    Loading,
    /// The server is about to go.
    #[error("the server is shutting down, and changes no model any more")]
    ShuttingDown,
    /// It cannot be loaded; the sentence says why.
    #[error("{0}")]
    Failed(String),
}

/// The models of a server that can change. Clones share them.
#[derive(Debug, Clone)]
pub struct Repository(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    /// Where models batch.
    runtime: Handle,
    /// How often the folder is looked at, if there is one.
    poll: watch::Sender<Option<Duration>>,
    /// Held while something is changed.
    shelf: Mutex<Shelf>,
    troubles: Mutex<Vec<Trouble>>,
}

/// What is known of the folder, and what was done about it.
#[derive(Debug, Default)]
struct Shelf {
    /// The models of the configuration.
    configured: Vec<Configured>,
    folder: Option<Folder>,
    /// Whether a model of the configuration that cannot keep its latency cap is not served.
    strict: bool,
    serving: Serving,
    /// What could not be loaded, with the stamp that it had and why.
    broken: BTreeMap<(String, u64), (Stamp, String)>,
    /// Those of them for which there was no room.
    crowded_out: BTreeMap<(String, u64), Why>,
    /// A bound on the memory of all models.
    budget: Budget,
    /// What the last look showed.
    before: BTreeMap<String, ModelFolder>,
    described: BTreeMap<String, (Stamp, Result<Described, String>)>,
    /// Which versions of the configuration's models answer whom.
    routes: BTreeMap<String, Routes>,
    /// The same of the folder's models.
    routes_of_folder: BTreeMap<String, Routes>,
    /// By name, with the reason: what somebody has unloaded, what had to make room, and what found none at the start.
    unloaded: BTreeMap<String, String>,
    /// Whether the folder is looked at for the first time: then nobody makes room, since nobody was asked yet.
    is_opening: bool,
    /// What was loaded at this look, none of which makes room for another: nobody could have asked for it.
    fresh: BTreeSet<String>,
    /// Models whose folders could not be read at the last look, and why.
    unread: BTreeMap<String, String>,
    /// What is no model, as it was logged last.
    others: Vec<String>,
    /// Who answers whom, as it was logged last.
    told_routes: BTreeMap<String, Routes>,
}

/// Whose files are taken as one look shows them: those of others have to look the same twice. Where that is one model's, nothing is seen of
/// the others: a look at them that nobody waited for would make the next one their second.
#[derive(Debug, Clone, Copy)]
enum Hurry<'a> {
    None,
    One(&'a str),
    All,
}

impl Hurry<'_> {
    fn is_for(self, name: &str) -> bool {
        match self {
            Hurry::None => false,
            Hurry::One(own) => own == name,
            Hurry::All => true,
        }
    }

    /// Whether this look is at that model at all.
    fn sees(self, name: &str) -> bool {
        !matches!(self, Hurry::One(own) if own != name)
    }
}

impl Repository {
    /// The models that `registry` serves, of which those of the configuration are `configured`, and those of `folder`, which are
    /// still to be loaded. Models batch in the runtime in which this is called.
    pub fn new(registry: Registry, configured: Vec<ModelSpec>, folder: Option<Folder>) -> Repository {
        let poll = watch::Sender::new(folder.as_ref().map(|folder| folder.poll));
        let configured = configured.into_iter().map(Configured::new).collect();
        let shelf = Mutex::new(Shelf { configured, folder, ..Shelf::default() });
        Repository(Arc::new(Inner { registry, runtime: Handle::current(), poll, shelf, troubles: Mutex::default() }))
    }

    /// Bounds the memory of all models together, from the next one on that is loaded.
    pub fn limited(self, budget: Budget) -> Repository {
        self.0.limit(&mut self.0.shelf(), budget);
        self
    }

    /// Whether a model of the configuration that cannot keep its latency cap is an error when it is loaded by name.
    pub fn strict(self, is_strict: bool) -> Repository {
        self.0.shelf().strict = is_strict;
        self
    }

    /// Says which versions of the configuration's models answer whom.
    pub fn routed(self, routes: BTreeMap<String, Routes>) -> Repository {
        let mut shelf = self.0.shelf();
        shelf.routes = routes;
        shelf.told_routes = shelf.all_routes();
        self.0.registry.route(&shelf.told_routes);
        drop(shelf);
        self
    }

    /// Loads the models of the folder. Blocks for seconds. The registry is not ready meanwhile.
    ///
    /// # Errors
    /// Models of which no version can be loaded, and those of the configuration that take more memory than there may be. One of which an
    /// older version can be is served in that, and logged. One that had to make room for another, or found none, is as it would be later.
    pub fn open(&self) -> Result<(), LoadErrors> {
        let _hold = self.0.registry.hold();
        let inner = &self.0;
        let mut shelf = inner.shelf();
        inner.fits(shelf.budget, &[], &[])?;
        shelf.is_opening = true;
        inner.follow_folder(&mut shelf, Hurry::All);
        shelf.is_opening = false;
        let is_missing = |trouble: &&Trouble| !shelf.answers(&trouble.name) && !shelf.wants_room(trouble);
        let troubles = inner.troubles();
        let errors = troubles.iter().filter(is_missing).map(|Trouble { name, version, reason, .. }| LoadError {
            name: name.clone(),
            reason: if version.is_empty() { reason.clone() } else { format!("version {version}: {reason}") },
        });
        LoadErrors::unless_none(errors.collect())
    }

    /// Follows the folder until this is dropped: what is new is loaded, what is gone is let go. Never returns.
    pub async fn follow(&self) -> Infallible {
        let mut changed = self.0.poll.subscribe();
        loop {
            let poll = *changed.borrow_and_update();
            let next = async {
                match poll {
                    Some(poll) => tokio::time::sleep(poll).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = next => {}
                // Its sender is there as long as this is.
                _ = changed.changed() => continue,
            }
            let followed = self.try_change(|inner, shelf| inner.follow_folder(shelf, Hurry::None));
            if followed.await.is_err() {
                tracing::error!("looking at the folder of models panicked; this is a bug in uncork");
            }
        }
    }

    /// Loads the model of that name: all its versions of the configuration, or those of the folder that its policy asks for. What
    /// could not be loaded before is tried again. Nothing is done about what is served already.
    ///
    /// # Errors
    /// There is no such model, or a version of it cannot be loaded: the sentence says which are served nevertheless.
    pub async fn load(&self, name: &str) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.change(move |inner, shelf| inner.load(shelf, &name)).await
    }

    /// Serves no version of that model any more, until it is loaded by name. Returns when nobody holds it any more.
    ///
    /// # Errors
    /// There is no such model.
    pub async fn unload(&self, name: &str) -> Result<(), ChangeError> {
        let name = name.to_owned();
        let left = self.change(move |inner, shelf| inner.unload(shelf, &name)).await?;
        for leaving in left {
            leaving.ended().await;
        }
        Ok(())
    }

    /// What is not served, by name and version.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.0.troubles().clone()
    }

    /// Makes a change, on a thread that may block. It is made to its end, though nobody waits for it any more.
    async fn change<T: Send + 'static>(&self, change: impl FnOnce(&Inner, &mut Shelf) -> T + Send + 'static) -> T {
        self.try_change(change).await.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The same; the error is the payload of its panic.
    async fn try_change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Inner, &mut Shelf) -> T + Send + 'static,
    ) -> std::thread::Result<T> {
        let inner = Arc::clone(&self.0);
        let made = self.0.runtime.spawn_blocking(move || {
            let mut shelf = inner.shelf();
            change(&inner, &mut shelf)
        });
        match made.await {
            Ok(made) => Ok(made),
            Err(failed) if failed.is_panic() => Err(failed.into_panic()),
            // The runtime ends, and this with it.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Inner {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // It is whole between any two changes of it.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn troubles(&self) -> MutexGuard<'_, Vec<Trouble>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is on its way without this knowing: the models of the configuration at the start.
    fn is_coming(&self, name: &str) -> bool {
        self.registry.loading().iter().any(|loading| loading == name)
    }

    /// Nothing is changed while the server goes: the folder is looked at no more, so that nothing would be known of what it has.
    fn unless_going(&self) -> Result<(), ChangeError> {
        if self.registry.is_draining() { Err(ChangeError::ShuttingDown) } else { Ok(()) }
    }

    fn load(&self, shelf: &mut Shelf, name: &str) -> Result<(), ChangeError> {
        self.unless_going()?;
        if self.is_coming(name) {
            return Err(ChangeError::Loading);
        }
        shelf.unloaded.remove(name);
        shelf.broken.retain(|(own, _), _| own != name);
        if shelf.is_configured(name) {
            let mut failed = Vec::new();
            let own: Vec<_> = shelf.configured.iter().filter(|own| own.spec.name == name).cloned().collect();
            for Configured { spec, .. } in own {
                let version = spec.version.clone();
                if !self.registry.has(name, &version)
                    && let Err(NotBrought { reason, .. }) = self.bring(shelf, spec, shelf.strict, None, &[])
                {
                    failed.push((version, reason));
                }
            }
            self.note_troubles(shelf);
            return self.unless_failed(name, failed);
        }
        self.follow_folder(shelf, Hurry::One(name));
        let troubles = self.troubles().clone().into_iter().filter(|trouble| trouble.name == name);
        let failed: Vec<_> = troubles.map(|Trouble { version, reason, .. }| (version, reason)).collect();
        if failed.is_empty() && !shelf.serving.contains_key(name) {
            return Err(ChangeError::Unknown);
        }
        self.unless_failed(name, failed)
    }

    /// All versions of a model are served that should be, but for those with the reasons why they are not.
    fn unless_failed(&self, name: &str, failed: Vec<(String, String)>) -> Result<(), ChangeError> {
        if failed.is_empty() {
            return Ok(());
        }
        Err(ChangeError::Failed(troubles::not_all(&self.registry.versions(name), &failed)))
    }

    fn unload(&self, shelf: &mut Shelf, name: &str) -> Result<Vec<Leaving>, ChangeError> {
        self.unless_going()?;
        let is_known = shelf.is_configured(name)
            || shelf.serving.contains_key(name)
            || shelf.described.contains_key(name)
            || shelf.unloaded.contains_key(name);
        if !is_known {
            return Err(ChangeError::Unknown);
        }
        if self.is_coming(name) {
            return Err(ChangeError::Loading);
        }
        let left = self.unload_for(shelf, name, "unloaded");
        // What found no room may find some now.
        shelf.retry();
        self.note_troubles(shelf);
        Ok(left)
    }

    fn unload_for(&self, shelf: &mut Shelf, name: &str, reason: &str) -> Vec<Leaving> {
        shelf.serving.remove(name);
        let models = self.registry.models();
        let own = models.iter().filter(|model| model.name() == name);
        let versions: Vec<String> = own.map(|model| model.version().to_owned()).collect();
        shelf.unloaded.insert(name.to_owned(), reason.to_owned());
        versions.iter().filter_map(|version| self.let_go(name, version)).collect()
    }

    /// Does what the folder asks for.
    fn follow_folder(&self, shelf: &mut Shelf, hurry: Hurry<'_>) {
        let Some(folder) = shelf.folder.clone().filter(|_| !self.registry.is_draining()) else { return };
        let looked = folder::look(&folder.path);
        let is_read = looked.is_ok();
        let Look { mut models, mut unread, mut others } = looked.unwrap_or_else(|error| Look {
            others: vec![format!("the folder of models cannot be read: {error}")],
            ..Look::default()
        });
        unread.retain(|name, _| !shelf.is_configured(name));
        others.extend(unread.iter().map(|(name, why)| format!("the model '{name}' stays as it was: {why}")));
        // Of these nothing is known, not that they are gone.
        let known = unread.keys().filter_map(|name| Some((name.clone(), shelf.before.get(name)?.clone())));
        models.extend(known);
        models.retain(|name, _| {
            let is_taken = shelf.is_configured(name);
            if is_taken {
                others.push(format!("the folder '{name}' is left alone: the configuration has a model of that name"));
            }
            !is_taken
        });
        if others != shelf.others {
            others.iter().for_each(|other| tracing::warn!(folder = %folder.path.display(), "{other}"));
            shelf.others = others;
        }
        if !is_read {
            return;
        }
        shelf.unread = unread;
        models.retain(|name, _| hurry.sees(name));
        let unseen = shelf.before.iter().filter(|(name, _)| !hurry.sees(name));
        models.extend(unseen.map(|(name, model)| (name.clone(), model.clone())));
        let look = models.clone();
        shelf.describe(&mut models, &folder, hurry);
        shelf.forget(&models);
        // Before anything is loaded: a shadow answers nobody, not even for a moment.
        shelf.route(&models);
        self.registry.route(&shelf.all_routes());
        shelf.tell_routes();
        shelf.fresh.clear();
        let mut announced = BTreeSet::new();
        // Each round loads or lets go of something of one model, or finds out that it cannot be loaded. One after the other, so that a version
        // has gone, and its memory counts no more, before the next model needs room.
        loop {
            let is_settled = |name: &str, version| {
                let at = |look: &BTreeMap<String, ModelFolder>| {
                    look.get(name).map(|model| (model.settings, model.versions.get(&version).map(|at| at.stamp)))
                };
                hurry.is_for(name) || at(&shelf.before) == at(&look)
            };
            let seen = shelf.seen(&models, is_settled);
            let mut changes = plan::plan(&seen, &shelf.serving);
            changes.retain(|(name, _)| hurry.sees(name));
            let Some((name, _)) = changes.first() else { break };
            for (name, change) in &changes {
                if let Change::Load(version) = change
                    && announced.insert((name.clone(), version.to_string()))
                {
                    self.registry.announce(name, &version.to_string());
                }
            }
            for (_, change) in changes.iter().filter(|(own, _)| own == name) {
                match *change {
                    // Its highest version found no room.
                    Change::Load(_) if shelf.unloaded.contains_key(name) => {}
                    Change::Load(version) => self.load_version(shelf, &folder, &models, name, version),
                    Change::LetGo(version) => {
                        shelf.serving.get_mut(name).map(|own| own.remove(&version));
                        drop(self.let_go(name, &version.to_string()));
                    }
                }
            }
            shelf.serving.retain(|_, versions| !versions.is_empty());
        }
        // Those that had to make room, or found none, are not loaded after all.
        self.registry.withdraw(&announced.into_iter().collect::<Vec<_>>());
        shelf.before = look;
        self.note_troubles(shelf);
    }

    /// Loads a version, or notes why not.
    fn load_version(
        &self,
        shelf: &mut Shelf,
        folder: &Folder,
        models: &BTreeMap<String, ModelFolder>,
        name: &str,
        version: u64,
    ) {
        let at = models.get(name).and_then(|model| model.versions.get(&version));
        let described = shelf.described.get(name).and_then(|(_, described)| described.as_ref().ok());
        let (Some(at), Some(described)) = (at, described) else { unreachable!("the plan was made of them") };
        let goes = shelf.going(name, &described.policy, models);
        let spec = at.file(described.file.as_deref()).map(|file| {
            let (version, source) = (version.to_string(), Source::Onnx(file));
            ModelSpec { version, source, ..described.spec.clone() }
        });
        let loaded = match spec {
            Ok(spec) => self.bring(shelf, spec, folder.strict, Some(at), &goes),
            Err(reason) => {
                let reason = self.give_up(name, &version.to_string(), &reason, Some(at));
                Err(NotBrought { reason, why: Why::Broken })
            }
        };
        let key = (name.to_owned(), version);
        shelf.crowded_out.remove(&key);
        match loaded {
            Ok(()) => {
                shelf.serving.entry(name.to_owned()).or_default().insert(version, at.stamp);
                shelf.fresh.insert(name.to_owned());
                shelf.broken.remove(&key);
            }
            Err(NotBrought { reason, why: Why::Later }) if !shelf.serving.contains_key(name) => {
                shelf.unloaded.insert(name.to_owned(), reason);
            }
            Err(NotBrought { reason, why }) => {
                if why != Why::Broken {
                    shelf.crowded_out.insert(key.clone(), why);
                }
                shelf.broken.insert(key, (at.stamp, reason));
            }
        }
    }

    /// Loads a version and serves it, where it fits beside what stays: `goes` are the versions that it is to take the place of. The
    /// error has no path in it.
    fn bring(
        &self,
        shelf: &mut Shelf,
        spec: ModelSpec,
        strict: bool,
        at: Option<&VersionFolder>,
        goes: &[String],
    ) -> Result<(), NotBrought> {
        let (name, version) = (spec.name.clone(), spec.version.clone());
        let metrics = self.registry.metrics().repository();
        match self.stage_and_fit(shelf, spec, strict, goes) {
            Ok(staged) => {
                drop(self.registry.exchange(vec![staged], &[], None));
                metrics.loaded.increment(1);
                tracing::info!(model = name, version, "served from now on");
                Ok(())
            }
            Err(NotBrought { reason, why: Why::Later }) => {
                tracing::info!(model = name, version, "{reason}");
                self.registry.withdraw(&[(name, version)]);
                Err(NotBrought { reason, why: Why::Later })
            }
            Err(NotBrought { reason, why }) => {
                let reason = self.give_up(&name, &version, &reason, at);
                Err(NotBrought { reason, why })
            }
        }
    }

    fn let_go(&self, name: &str, version: &str) -> Option<Leaving> {
        let leaving = self.registry.take_out(name, version).ok()?;
        self.registry.metrics().repository().let_go.increment(1);
        tracing::info!(model = name, version, "served no more");
        Some(leaving)
    }
}
