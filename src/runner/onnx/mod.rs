//! An ONNX file on burn, parsed and compiled when it is loaded: no code is generated and nothing is recompiled.
//!
//! The way of a file: `outline` reads its own names, shapes and operators and refuses what is missing; onnx-ir parses
//! and types the graph; `plan` compiles each node through `ops` to a step over burn's rank-free operations; `trial`
//! runs a few rows to find the signature. An [`OnnxRunner`] then runs batches; all runners of a model share its weights.
//!
//! onnx-ir's simplification is off. It knows shapes only from the file and may bake the batch size of the export into
//! the graph; the plan folds constants itself, from what really is constant.

#[cfg(test)]
mod author;
mod error;
mod fence;
mod ops;
mod outline;
mod plan;
mod runner;
mod tensors;
#[cfg(test)]
mod tests;
mod trial;
mod value;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use burn::tensor::Device;
use onnx_ir::{OnnxGraph, OnnxGraphBuilder};

pub use error::OnnxError;
pub use runner::OnnxRunner;

use self::outline::Outline;
use self::plan::Plan;
use super::Signature;

/// A model, loaded and tried. Cheap to clone; clones share the weights.
#[derive(Debug, Clone)]
pub struct OnnxModel(Arc<Loaded>);

/// What runners share.
struct Loaded {
    signature: Signature,
    plan: Plan,
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
        let outline = Outline::read(bytes)?;
        refuse_missing_operators(&outline)?;
        if let Some(name) = &outline.external {
            return Err(OnnxError::Unreadable(format!(
                "the weight '{name}' is in another file; export with all weights in the model (external_data=False)"
            )));
        }
        let graph = parse(bytes, &outline)?;
        let plan = Plan::compile(&graph, &outline, Device::flex().as_dispatch().clone())?;
        let signature = trial::signature(&outline, &plan)?;
        Ok(OnnxModel(Arc::new(Loaded { signature, plan })))
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

/// Names the first operator that is missing, and its fellows: before parsing, which would stumble over them wordlessly.
fn refuse_missing_operators(outline: &Outline) -> Result<(), OnnxError> {
    let known = |n: &&outline::NodeLine| ["", "ai.onnx"].contains(&n.domain.as_str()) && ops::supports(&n.operator);
    let mut missing = outline.nodes.iter().filter(|n| !known(n));
    let Some(first) = missing.next() else { return Ok(()) };
    let operator = first.qualified();
    let mut others: Vec<String> = missing.map(|n| format!("'{}'", n.qualified())).collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|other| *other != format!("'{operator}'"));
    let others = if others.is_empty() { String::new() } else { format!(", nor are {}", others.join(", ")) };
    Err(OnnxError::Operator { operator, node: first.label().to_owned(), others })
}

/// onnx-ir's graph of the file, with as many inputs and outputs as the file has.
fn parse(bytes: &[u8], outline: &Outline) -> Result<OnnxGraph, OnnxError> {
    // onnx-ir asserts and indexes its way through attributes and shapes, and panics on files that break its rules.
    let parsed = fence::fenced(|| OnnxGraphBuilder::new().simplify(false).parse_bytes(bytes));
    let graph = parsed.map_err(|e| OnnxError::Graph(e.0))?.map_err(|e| OnnxError::Graph(e.to_string()))?;
    if graph.inputs.len() != outline.inputs.len() || graph.outputs.len() != outline.outputs.len() {
        return Err(OnnxError::Graph(
            "some of its inputs or outputs cannot be told apart, or are never computed".into(),
        ));
    }
    Ok(graph)
}
