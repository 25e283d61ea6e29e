//! From a name and a version to a model that answers.
//!
//! A [`Model`] is one version of one model with its caps, its signature and its runners, which may be a pool that it shares
//! with others. A [`Registry`] holds the models that are served; it is cheap to clone, and every clone sees the same models.

mod away;
mod count;
mod course;
mod fill;
mod fits;
mod hooks;
mod lengths;
mod load;
mod memory;
mod model;
mod outputs;
mod routes;
mod shadow;
mod spec;
mod stage;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

pub use count::Count;
pub use hooks::HookFunctions;
pub use lengths::Lengths;
pub use load::is_built;
pub(crate) use load::{Loaded, load};
pub use model::{Answer, Model};
pub use outputs::RowExecution;
pub use routes::Routes;
pub(crate) use spec::cores;
pub use spec::{ModelSpec, Remotes, Runners, Source};
pub use stage::Staged;

pub(crate) use crate::batcher::wait_for_turns;
pub use crate::batcher::{BatchSizes, Caller, Caps, Priority, Terms};
pub use crate::journal::{Refusal, Release, Snapshot, Window};
pub use crate::runner::{BatchAxes, Device, DeviceError, Rows, Shapes};
pub use crate::statistics::{Timed, Totals};

use crate::batcher::Pool;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::quote::{Quoted, on_one_line};
use crate::runner::malformed_name;
use crate::telemetry::Tracer;
use crate::tensor::Tensors;
use routes::Dealer;
use work::Served;

/// Why a model could not be loaded, in words for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model '{name}': {reason}")]
#[non_exhaustive]
pub struct LoadError {
    /// The model.
    pub name: String,
    /// What is wrong and what to do about it.
    pub reason: String,
}

/// What is wrong with each model that could not be loaded: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadErrors(Vec<LoadError>);

impl LoadErrors {
    /// The errors, if there are any.
    pub(crate) fn unless_none(errors: Vec<LoadError>) -> Result<(), LoadErrors> {
        if errors.is_empty() { Ok(()) } else { Err(LoadErrors(errors)) }
    }

    /// One for each model, in the models' order.
    pub fn iter(&self) -> impl Iterator<Item = &LoadError> {
        self.0.iter()
    }
}

impl fmt::Display for LoadErrors {
    /// A line for each model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadErrors {}

/// The models that are served. Clones share them.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: RwLock<Table>,
    /// Held while a model is loaded.
    loading: Mutex<()>,
    metrics: Metrics,
    tracer: Tracer,
    is_draining: AtomicBool,
    /// Those that keep it from being ready.
    holds: AtomicUsize,
    since: Instant,
}

/// Keeps a registry from being ready.
#[derive(Debug)]
#[must_use = "it holds as long as it is there"]
pub struct Hold(Arc<Inner>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A model that is served no more, and may still be held by those that found it before.
#[derive(Debug)]
pub struct Leaving(Arc<Model>);

impl Leaving {
    /// Returns when nobody holds it any more; its runners and its series in the metrics go then.
    pub async fn ended(self) {
        Model::end(self.0).await;
    }
}

/// What is served now, and what will be.
#[derive(Debug, Default)]
struct Table {
    /// By name, then by version.
    models: Arc<[Arc<Model>]>,
    /// Names and versions of those from the start that are still being loaded.
    loading: Vec<(String, String)>,
    /// Those that are being loaded beside them: the registry is ready without.
    coming: Vec<(String, String)>,
    /// By name: which version answers whom, where that is not simply the highest.
    dealers: BTreeMap<String, Dealer>,
}

/// Models that are still to be loaded into a registry.
#[derive(Debug)]
#[must_use = "nothing is loaded before `load` is called"]
pub struct Opening {
    registry: Registry,
    specs: Vec<ModelSpec>,
    is_strict: bool,
}

impl Opening {
    /// Whether a model that cannot keep its latency cap is an error, and not only a warning.
    pub fn strict(mut self, is_strict: bool) -> Opening {
        self.is_strict = is_strict;
        self
    }

    /// Loads every model, warms it up and starts it, in the pool that it names or in one of its own; each is served as soon as
    /// its runners are built. Blocks for seconds; logs progress. Returns every model's error, not the first one's.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn load(mut self) -> Result<(), LoadErrors> {
        let load = |spec: ModelSpec| {
            let own = (spec.name.clone(), spec.version.clone());
            let is_there = |model: &Arc<Model>| (model.name(), model.version()) == (&*own.0, &*own.1);
            if self.registry.models().iter().any(is_there) {
                return Some(LoadError { name: own.0, reason: format!("version {} is there twice", own.1) });
            }
            let loaded = self.registry.inner.load(spec, self.is_strict);
            self.registry.inner.table_to_write().loading.retain(|loading| *loading != own);
            loaded.err()
        };
        LoadErrors::unless_none(std::mem::take(&mut self.specs).into_iter().filter_map(load).collect())
    }
}

impl Drop for Opening {
    /// What is not loaded by now is not waited for.
    fn drop(&mut self) {
        let is_left = |(name, version): &(String, String)| {
            self.specs.iter().any(|spec| (&spec.name, &spec.version) == (name, version))
        };
        self.registry.inner.table_to_write().loading.retain(|loading| !is_left(loading));
    }
}

impl Inner {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_to_write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while a model is loaded: two would warm up on the same cores, and start the same pool twice.
    fn alone(&self) -> MutexGuard<'_, ()> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads a model, which is then served, unless it is too slow and that is an error. What it takes the place of comes back.
    fn load(&self, spec: ModelSpec, is_strict: bool) -> Result<Option<Arc<Model>>, LoadError> {
        let _alone = self.alone();
        let model = self.start(spec, is_strict, &[])?;
        Ok(self.put_all(vec![model], &[], None).pop())
    }

    /// Loads a model and warms it up.
    fn start(&self, spec: ModelSpec, is_strict: bool, beside: &[Staged]) -> Result<Model, LoadError> {
        if let Some(reason) = misnamed(&spec) {
            return Err(LoadError { name: on_one_line(&spec.name, 40), reason });
        }
        tracing::info!(model = spec.name, version = spec.version, "loading");
        let pool = spec.pool.as_ref().map(|name| self.pool(name, spec.runners.get(), beside));
        let name = spec.name.clone();
        // Outside a runtime this says so, where the fence would speak of the model's code.
        let _within = tokio::runtime::Handle::current();
        let start = || Model::start(spec, pool, &self.metrics, &self.tracer);
        // The program's own code runs in it, as that of runners and hooks.
        let started = catch_unwind(AssertUnwindSafe(start));
        let model = started.unwrap_or_else(|_| {
            let reason = "its code panicked while it was loaded; the log has the reason".to_owned();
            Err(LoadError { name, reason })
        })?;
        if let Some(why) = model.too_slow().filter(|_| is_strict) {
            return Err(LoadError { name: model.name().to_owned(), reason: why.to_owned() });
        }
        Ok(model)
    }

    /// The pool of that name and size, which lives as long as a model in it.
    fn pool(&self, name: &str, runners: usize, beside: &[Staged]) -> Pool<Tensors, Served> {
        let table = self.table();
        let served = table.models.iter().map(|model| &**model);
        let mut all = served.chain(beside.iter().map(|Staged(model)| model));
        let of_other = all.find_map(|model| model.pool(name, runners).cloned());
        of_other.unwrap_or_else(|| Pool::new(name, runners))
    }
}

impl Registry {
    /// Loads every model of `specs`, as [`Opening::load`] does, and returns when all can be asked.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn load(specs: Vec<ModelSpec>) -> Result<Registry, LoadErrors> {
        Registry::load_traced(specs, Tracer::off())
    }

    /// The same, with the spans of requests and batches made by `tracer`.
    pub fn load_traced(specs: Vec<ModelSpec>, tracer: Tracer) -> Result<Registry, LoadErrors> {
        let (registry, opening) = Registry::open(specs, tracer);
        opening.load()?;
        Ok(registry)
    }

    /// A registry that serves nothing yet and knows what it will serve, and the loading of that: a server can say so
    /// meanwhile.
    pub fn open(mut specs: Vec<ModelSpec>, tracer: Tracer) -> (Registry, Opening) {
        specs.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| version_order(&a.version, &b.version)));
        let limits: Vec<_> = specs.iter().map(model::limits).collect();
        let loading = specs.iter().map(|spec| (spec.name.clone(), spec.version.clone())).collect();
        let inner = Inner {
            table: RwLock::new(Table { loading, ..Table::default() }),
            loading: Mutex::default(),
            metrics: Metrics::new(&limits),
            tracer,
            is_draining: AtomicBool::new(false),
            holds: AtomicUsize::new(0),
            since: Instant::now(),
        };
        let registry = Registry { inner: Arc::new(inner) };
        (registry.clone(), Opening { registry, specs, is_strict: false })
    }

    /// Loads one more model, warms it up and serves it beside the others. Blocks for seconds; must be called within a tokio
    /// runtime. Until it is loaded the registry goes on as it was, and whoever asks for it is told that it is being loaded.
    ///
    /// # Errors
    /// It cannot be loaded, or there is one of that name and version.
    pub fn add(&self, spec: ModelSpec) -> Result<(), LoadError> {
        let own = (spec.name.clone(), spec.version.clone());
        {
            let mut table = self.inner.table_to_write();
            let is_there = table.models.iter().any(|model| (model.name(), model.version()) == (&*own.0, &*own.1));
            if is_there || table.coming.contains(&own) || table.loading.contains(&own) {
                let reason = format!("version {} is there already", own.1);
                return Err(LoadError { name: own.0, reason });
            }
            table.coming.push(own.clone());
        }
        let loaded = self.inner.load(spec, false);
        self.inner.table_to_write().coming.retain(|coming| *coming != own);
        loaded.map(drop)
    }

    /// Says to whoever asks for that version that it is being loaded, until it is served or [withdrawn](Self::withdraw).
    pub fn announce(&self, name: &str, version: &str) {
        let own = (name.to_owned(), version.to_owned());
        let mut table = self.inner.table_to_write();
        if !table.coming.contains(&own) {
            table.coming.push(own);
        }
    }

    /// Not ready from now on, until what comes back is dropped.
    pub fn hold(&self) -> Hold {
        self.inner.holds.fetch_add(1, Ordering::AcqRel);
        Hold(Arc::clone(&self.inner))
    }

    /// Names and versions of the models that are being loaded.
    pub fn arriving(&self) -> Vec<(String, String)> {
        let table = self.inner.table();
        table.loading.iter().chain(&table.coming).cloned().collect()
    }

    /// Serves a model no more: whoever asks for it from now on is told that it is unknown, and whoever holds it already is
    /// answered. Returns when nobody holds it any more; its runners and its series in the metrics go then.
    ///
    /// # Errors
    /// There is no model of that name and version.
    pub async fn remove(&self, name: &str, version: &str) -> Result<(), Error> {
        self.take_out(name, version)?.ended().await;
        Ok(())
    }

    /// The same, without waiting until nobody holds it any more.
    ///
    /// # Errors
    /// There is no model of that name and version.
    pub fn take_out(&self, name: &str, version: &str) -> Result<Leaving, Error> {
        let mut table = self.inner.table_to_write();
        let is_it = |model: &&Arc<Model>| (model.name(), model.version()) == (name, version);
        let Some(model) = table.models.iter().find(is_it).cloned() else {
            return Err(table.unknown(name, Some(version)));
        };
        let left: Vec<_> = table.models.iter().filter(|other| !Arc::ptr_eq(other, &model)).cloned().collect();
        table.models = left.into();
        table.cast();
        Ok(Leaving(model))
    }

    /// The model of that name and version; without a version, the highest one that is loaded. It is the same at each time: who answers a
    /// request, [`answering`](Self::answering) says. A shadow answers nobody, and is not found.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, Error> {
        self.inner.table().model(name, version)
    }

    /// All models, by name and then by version, shadows among them.
    pub fn models(&self) -> Arc<[Arc<Model>]> {
        Arc::clone(&self.inner.table().models)
    }

    /// Versions of the model called `name` that can be asked, lowest first.
    pub fn versions(&self, name: &str) -> Vec<String> {
        self.inner.table().answering(name).map(|model| model.version().to_owned()).collect()
    }

    /// Whether a model is a shadow, which gets copies of what its other versions are asked.
    pub fn is_shadow(&self, model: &Model) -> bool {
        self.inner.table().is_shadow(model)
    }

    /// Whether that version is loaded, be it a shadow.
    pub(crate) fn has(&self, name: &str, version: &str) -> bool {
        self.models().iter().any(|model| (model.name(), model.version()) == (name, version))
    }

    /// What is recorded of all models.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// How long it has been there.
    pub fn uptime(&self) -> Duration {
        self.inner.since.elapsed()
    }

    /// What makes the spans of requests.
    pub fn tracer(&self) -> &Tracer {
        &self.inner.tracer
    }

    /// Whether requests are wanted: every model is loaded and none is stuck, and no shutdown has begun.
    pub fn is_ready(&self) -> bool {
        let is_stuck = |model: &Arc<Model>| model.stuck().is_some();
        let table = self.inner.table();
        let is_held = self.inner.holds.load(Ordering::Acquire) > 0;
        !self.is_draining() && !is_held && table.loading.is_empty() && !table.models.iter().any(is_stuck)
    }

    /// Names of the models that are still being loaded, and without which the registry is not ready.
    pub fn loading(&self) -> Vec<String> {
        let is_held = self.inner.holds.load(Ordering::Acquire) > 0;
        let table = self.inner.table();
        let coming = table.coming.iter().filter(|_| is_held);
        let mut names: Vec<String> = table.loading.iter().chain(coming).map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Whether a shutdown has begun.
    pub fn is_draining(&self) -> bool {
        self.inner.is_draining.load(Ordering::Acquire)
    }

    /// Says "not ready" from now on, while requests are still taken.
    pub fn retire(&self) {
        self.inner.is_draining.store(true, Ordering::Release);
    }

    /// Takes no new request, answers all that wait, and returns when the last one is answered.
    pub async fn drain(&self) {
        self.retire();
        join_all(self.models().iter().map(|m| m.drain())).await;
    }
}

impl Table {
    /// The versions of a model that can be asked, lowest first.
    fn answering(&self, name: &str) -> impl DoubleEndedIterator<Item = &Arc<Model>> {
        self.models.iter().filter(move |model| model.name() == name && !self.is_shadow(model))
    }

    fn is_shadow(&self, model: &Model) -> bool {
        self.dealers.get(model.name()).is_some_and(|dealer| dealer.routes.shadow.as_deref() == Some(model.version()))
    }

    fn model(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, Error> {
        let mut versions = self.answering(name);
        let found = match version {
            None => versions.next_back(),
            Some(version) => versions.find(|m| m.version() == version),
        };
        found.cloned().ok_or_else(|| self.unknown(name, version))
    }

    /// Why there is no such model.
    fn unknown(&self, name: &str, version: Option<&str>) -> Error {
        let is_asked = |(own, its): &&(String, String)| own == name && version.is_none_or(|version| version == its);
        if self.loading.iter().chain(&self.coming).any(|model| is_asked(&model)) {
            return Error::Loading { name: name.into() };
        }
        let known: Vec<&str> = self.answering(name).map(|m| m.version()).collect();
        match version {
            Some(version) if !known.is_empty() => {
                Error::UnknownVersion { model: name.into(), version: version.into(), known: quoted(&known) }
            }
            _ => {
                let mut names: Vec<&str> =
                    self.models.iter().filter(|m| !self.is_shadow(m)).map(|m| m.name()).collect();
                names.dedup();
                Error::UnknownModel { name: name.into(), known: quoted(&names) }
            }
        }
    }
}

/// By name, then by version.
fn order(a: &Model, b: &Model) -> std::cmp::Ordering {
    a.name().cmp(b.name()).then_with(|| version_order(a.version(), b.version()))
}

/// Decimal strings in the order of their numbers, whatever their length.
/// What is wrong with what a model and its version are called: they stand in paths and in labels.
fn misnamed(spec: &ModelSpec) -> Option<String> {
    let version = &spec.version;
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let number = || format!("version {} must be a whole number, like \"1\"", Quoted(version));
    malformed_name(&spec.name).map(|why| format!("a model's name {why}")).or_else(|| (!is_number).then(number))
}

fn version_order(a: &str, b: &str) -> std::cmp::Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ")
}
