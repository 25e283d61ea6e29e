//! From a name and a version to a model that answers.
//!
//! A [`Model`] is one version of one model with its caps, its signature and its runners, which may be a pool that it shares
//! with others. A [`Registry`] holds the models that are served; it is cheap to clone, and every clone sees the same models.

mod lengths;
mod load;
mod model;
mod spec;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

pub use lengths::Lengths;
pub use load::is_built;
pub(crate) use load::{Loaded, load};
pub use model::{Answer, Count, Model};
pub use spec::{ModelSpec, Runners, Source};

pub use crate::batcher::{BatchSizes, Caps, Priority, Terms};
pub use crate::journal::{Refusal, Release, Snapshot};
pub use crate::runner::{BatchAxes, Device, DeviceError, Rows, Shapes};

use crate::batcher::Pool;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::telemetry::Tracer;

/// Why a model could not be loaded, in words for the operator.
#[derive(Debug, thiserror::Error)]
#[error("model '{name}': {reason}")]
pub struct LoadError {
    /// The model.
    pub name: String,
    /// What is wrong and what to do about it.
    pub reason: String,
}

/// The models that are served.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// By name, then by version.
    models: Vec<Arc<Model>>,
    metrics: Metrics,
    tracer: Tracer,
    ready: AtomicBool,
    since: Instant,
}

impl Registry {
    /// Loads every model of `specs`, warms it up and starts it, in the pool that it names or in one of its own. Blocks for
    /// seconds; logs progress. Must be called within a tokio runtime. Returns every model's error, not the first one's.
    pub fn load(specs: Vec<ModelSpec>) -> Result<Registry, Vec<LoadError>> {
        Registry::load_traced(specs, Tracer::off())
    }

    /// The same, with the spans of requests and batches made by `tracer`.
    pub fn load_traced(mut specs: Vec<ModelSpec>, tracer: Tracer) -> Result<Registry, Vec<LoadError>> {
        specs.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| version_order(&a.version, &b.version)));
        let limits: Vec<_> = specs.iter().map(model::limits).collect();
        let metrics = Metrics::new(&limits);
        let (mut models, mut errors) = (Vec::new(), Vec::new());
        let mut pools = HashMap::new(); // ends with this function: a pool lives as long as its models
        for spec in specs {
            tracing::info!(model = spec.name, version = spec.version, "loading");
            let pool = spec.pool.as_ref().map(|name| {
                let started = || Pool::new(name, spec.runners.get());
                pools.entry(name.clone()).or_insert_with(started).clone()
            });
            match Model::start(spec, pool.as_ref(), &metrics, &tracer) {
                Ok(model) => models.push(Arc::new(model)),
                Err(error) => errors.push(error),
            }
        }
        let ready = AtomicBool::new(true);
        let since = Instant::now();
        let registry = |models| Registry { inner: Arc::new(Inner { models, metrics, tracer, ready, since }) };
        if errors.is_empty() { Ok(registry(models)) } else { Err(errors) }
    }

    /// The model of that name and version; without a version, the highest one.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<&Arc<Model>, Error> {
        let mut versions = self.inner.models.iter().filter(|m| m.name() == name);
        let found = match version {
            None => versions.next_back(),
            Some(version) => versions.find(|m| m.version() == version),
        };
        found.ok_or_else(|| {
            let known = self.versions(name);
            match version {
                Some(version) if !known.is_empty() => {
                    Error::UnknownVersion { model: name.into(), version: version.into(), known: quoted(&known) }
                }
                _ => Error::UnknownModel { name: name.into(), known: quoted(&self.names()) },
            }
        })
    }

    /// All models, by name and then by version.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.inner.models
    }

    /// Versions of the model called `name`, lowest first.
    pub fn versions(&self, name: &str) -> Vec<&str> {
        self.inner.models.iter().filter(|m| m.name() == name).map(|m| m.version()).collect()
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.inner.models.iter().map(|m| m.name()).collect();
        names.dedup();
        names
    }

    /// What is recorded of all models.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// How long all models have been loaded.
    pub fn uptime(&self) -> Duration {
        self.inner.since.elapsed()
    }

    /// What makes the spans of requests.
    pub fn tracer(&self) -> &Tracer {
        &self.inner.tracer
    }

    /// Whether new requests are wanted: false from the start of a shutdown on.
    pub fn is_ready(&self) -> bool {
        self.inner.ready.load(Ordering::Acquire)
    }

    /// Says "not ready" from now on, while requests are still taken.
    pub fn retire(&self) {
        self.inner.ready.store(false, Ordering::Release);
    }

    /// Takes no new request, answers all that wait, and returns when the last one is answered.
    pub async fn drain(&self) {
        self.retire();
        join_all(self.inner.models.iter().map(|m| m.drain())).await;
    }
}

/// Decimal strings in the order of their numbers, whatever their length.
fn version_order(a: &str, b: &str) -> std::cmp::Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ")
}
