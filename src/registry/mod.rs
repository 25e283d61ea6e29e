//! From a name and a version to a model that answers.
//!
//! A [`Model`] is one version of one model with its caps, its signature and its pool of runners. A [`Registry`] holds the
//! models that are served; it is cheap to clone, and every clone sees the same models.

mod spec;

use std::sync::Arc;
use std::time::Duration;

pub use spec::{ModelSpec, Source};

use crate::error::Error;
use crate::runner::Signature;
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
        let _ = (inputs, arrival, timeout);
        Err(Error::ModelFailed)
    }
}

/// The models that are served.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    models: Arc<Vec<Arc<Model>>>,
}

impl Registry {
    /// Loads every model of `specs` and warms it up. Blocks; logs progress.
    pub fn load(specs: Vec<ModelSpec>) -> Result<Registry, Vec<LoadError>> {
        let _ = specs;
        Ok(Registry::default())
    }

    /// The model of that name and version; without a version, the highest one.
    pub fn model(&self, name: &str, version: Option<&str>) -> Result<&Arc<Model>, Error> {
        let found = self.models.iter().find(|m| m.name() == name && version.is_none_or(|v| v == m.version()));
        found.ok_or_else(|| Error::UnknownModel { name: name.into(), known: String::new() })
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
        true
    }

    /// Says "not ready" from now on, while requests are still taken.
    pub fn retire(&self) {}

    /// Takes no new request, answers all that wait, and returns when the last one is answered.
    pub async fn drain(&self) {}
}
