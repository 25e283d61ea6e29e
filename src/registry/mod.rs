//! From a name and a version to a model that answers.
//!
//! A [`Model`] is one version of one model with its caps, its signature and its pool of runners. A [`Registry`] holds the
//! models that are served; it is cheap to clone, and every clone sees the same models.

mod spec;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

pub use spec::{ModelSpec, Source};

use crate::error::Error;
use crate::runner::synthetic::Synthetic;
use crate::runner::{Runner, Signature};
use crate::tensor::Tensors;

/// Why a model could not be loaded, in words for the operator.
#[derive(Debug, thiserror::Error)]
#[error("model '{name}': {reason}")]
pub struct LoadError {
    /// The model.
    pub name: String,
    /// What is wrong and what to do about it.
    pub reason: String,
}

/// An answer and how it came about.
#[derive(Debug)]
pub struct Answer {
    /// Outputs, in the order of the model's signature.
    pub outputs: Tensors,
    /// From arrival to the release of the (last) batch.
    pub queue: Duration,
    /// From that release to the outputs.
    pub batch: Duration,
    /// Rows of the batch that the request rode in.
    pub batch_rows: usize,
}

/// One version of one model.
#[derive(Debug)]
pub struct Model {
    spec: ModelSpec,
    signature: Signature,
    runner: Synthetic,
    queued: AtomicUsize,
    closed: Arc<AtomicBool>,
}

/// Rows that wait; gives them back when the request is answered or dropped.
struct Queued<'a>(&'a AtomicUsize, usize);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, SeqCst);
    }
}

impl Model {
    /// The name that callers use.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The version: a decimal string.
    pub fn version(&self) -> &str {
        &self.spec.version
    }

    /// What runs it: `onnx_burn` or `synthetic`.
    pub fn platform(&self) -> &'static str {
        "synthetic"
    }

    /// Names, types and shapes.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Answers one request of any number of rows.
    ///
    /// `arrival` is when the request's head was in; `timeout` shortens the deadline of `arrival + max_latency`, and never
    /// lengthens it. A request of more than `max_batch_size` rows is split and its answer joined, in order. Dropping the
    /// future takes the request out of the queue.
    pub async fn infer(
        &self,
        inputs: Tensors,
        arrival: tokio::time::Instant,
        timeout: Option<Duration>,
    ) -> Result<Answer, Error> {
        let inputs = self.signature.check(inputs).map_err(|e| Error::Invalid(e.to_string()))?;
        if self.closed.load(SeqCst) {
            return Err(Error::ShuttingDown);
        }
        let bound = self.spec.max_queue_rows.get();
        let rows = inputs.rows();
        if rows > bound {
            return Err(Error::TooLarge { size: rows, bound, unit: "rows" });
        }
        let before = self.queued.fetch_add(rows, SeqCst);
        let _queued = Queued(&self.queued, rows);
        let retry_after = Duration::from_millis(5);
        if before + rows > bound {
            return Err(Error::Full { queued: before, bound, unit: "rows", retry_after });
        }
        let deadline = timeout.map_or(self.spec.max_latency, |t| t.min(self.spec.max_latency));
        let predicted = self.runner.batch_time(rows);
        let queue = arrival.elapsed();
        if queue + predicted > deadline {
            let (predicted_ms, deadline_ms) = ((queue + predicted).as_secs_f64() * 1e3, deadline.as_secs_f64() * 1e3);
            return Err(Error::Late { predicted_ms, deadline_ms, retry_after });
        }
        tokio::time::sleep(predicted).await;
        let outputs = Synthetic::new(Duration::ZERO, Duration::ZERO).run(inputs).map_err(|_| Error::ModelFailed)?;
        Ok(Answer { outputs, queue, batch: predicted, batch_rows: rows })
    }
}

/// The models that are served.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    models: Arc<Vec<Arc<Model>>>,
    retired: Arc<AtomicBool>,
    closed: Arc<AtomicBool>,
}

impl Registry {
    /// Loads every model of `specs` and warms it up. Blocks; logs progress.
    pub fn load(specs: Vec<ModelSpec>) -> Result<Registry, Vec<LoadError>> {
        let closed = Arc::new(AtomicBool::new(false));
        let mut models = Vec::new();
        let mut errors = Vec::new();
        for spec in specs {
            let runner = match &spec.source {
                Source::Synthetic { base, per_row } => Synthetic::new(*base, *per_row),
                Source::Embedded => Synthetic::new(Duration::ZERO, Duration::ZERO),
                Source::Onnx(_) => {
                    errors.push(LoadError { name: spec.name, reason: "not a stand-in".into() });
                    continue;
                }
            };
            let (signature, queued) = (runner.signature().clone(), AtomicUsize::new(0));
            models.push(Arc::new(Model { spec, signature, runner, queued, closed: Arc::clone(&closed) }));
        }
        models.sort_by_key(|m| (m.spec.name.clone(), m.spec.version.parse::<u64>().unwrap_or(0)));
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Registry { models: Arc::new(models), retired: Arc::default(), closed })
    }

    /// The model of that name and version; without a version, the highest one.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<&Arc<Model>, Error> {
        let quoted = |list: Vec<&str>| list.iter().map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ");
        let mut named = self.models.iter().rev().filter(|m| m.name() == name).peekable();
        if named.peek().is_none() {
            let known = quoted(self.models.iter().map(|m| m.name()).collect());
            return Err(Error::UnknownModel { name: name.into(), known });
        }
        named.find(|m| version.is_none_or(|v| v == m.version())).ok_or_else(|| Error::UnknownVersion {
            model: name.into(),
            version: version.unwrap_or_default().into(),
            known: quoted(self.versions(name)),
        })
    }

    /// All models, by name and then by version.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// Versions of the model called `name`, lowest first.
    pub fn versions(&self, name: &str) -> Vec<&str> {
        self.models.iter().filter(|m| m.name() == name).map(|m| m.version()).collect()
    }

    /// Whether new requests are taken: false from the start of a shutdown on.
    pub fn is_ready(&self) -> bool {
        !self.retired.load(SeqCst)
    }

    /// Says "not ready" from now on, while requests are still taken.
    pub fn retire(&self) {
        self.retired.store(true, SeqCst);
    }

    /// Takes no new request, answers all that wait, and returns when the last one is answered.
    pub async fn drain(&self) {
        self.closed.store(true, SeqCst);
    }
}
