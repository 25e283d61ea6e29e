//! An ONNX file on burn, read and compiled when it is loaded: no code is generated and nothing is recompiled.
//!
//! The way of a file: `proto` takes its messages apart; what names an operator that is missing is refused; `fuse` joins
//! nodes that are faster together; `plan` compiles each node through `ops` to a step over burn's rank-free operations;
//! `trial` runs a few rows to find the signature. An [`OnnxRunner`] then runs batches; all runners of a model share its
//! weights.

mod attributes;
#[cfg(test)]
mod author;
mod error;
mod fast;
mod fence;
mod floats;
mod fuse;
mod graph;
mod memory;
mod ops;
mod outline;
mod plan;
mod proto;
mod runner;
mod tensors;
#[cfg(test)]
mod tests;
mod trial;
mod value;
mod weights;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

pub use error::OnnxError;
pub use graph::{Graph, read_tensor};
pub use runner::OnnxRunner;

use super::Signature;

/// A model, loaded and tried. Cheap to clone; clones share the weights.
#[derive(Debug, Clone)]
pub struct OnnxModel(Arc<Loaded>);

/// What runners share.
struct Loaded {
    signature: Signature,
    graph: Graph,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("signature", &self.signature).finish_non_exhaustive()
    }
}

impl OnnxModel {
    /// Loads a model from the bytes of its file.
    ///
    /// The model is compiled and tried on two and three rows of zeros, so a model that loads has run. It takes batches
    /// of any size: axis 0 of every input and output is the batch axis, and a model without one is refused.
    pub fn load(bytes: &[u8]) -> Result<OnnxModel, OnnxError> {
        let graph = Graph::load(bytes)?;
        let signature = trial::signature(&graph)?;
        Ok(OnnxModel(Arc::new(Loaded { signature, graph })))
    }

    /// Names, types and shapes of inputs and outputs, by the file's own names.
    pub fn signature(&self) -> &Signature {
        &self.0.signature
    }

    /// An executor that computes on `threads` threads, the one that calls [`run`](super::Runner::run) among them: that
    /// thread becomes a worker of its own rayon pool at its first batch and stays one.
    ///
    /// More threads help large batches of large models; several runners of one thread each serve small models better.
    pub fn runner(&self, threads: NonZeroUsize) -> OnnxRunner {
        OnnxRunner::new(Arc::clone(&self.0), threads)
    }
}
