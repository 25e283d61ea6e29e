//! An ONNX file on burn, read and compiled when it is loaded: no code is generated and nothing is recompiled.
//!
//! [`OnnxModel::open`] reads, compiles and tries a model; an [`OnnxRunner`] then runs batches, and all runners of a model
//! share its weights. [`Survey`] tells what is in a file, even in one that cannot be served. [`module`] runs a burn module of
//! your own behind the same trait.
//!
//! # The way of a file
//!
//! Each room hands its result to the next:
//!
//! | room | takes | hands on |
//! | --- | --- | --- |
//! | `skeleton`, `files` | the bytes of a file | its messages; large weights stay where they are until they are needed |
//! | `proto` | messages | `GraphProto`: nodes, weights, attributes, as the file has them |
//! | `opened` | a file | its graph, by way of the next two |
//! | `inline` | a graph with functions of the file's own | a graph of operators |
//! | `order` | nodes in any order | nodes behind what they read |
//! | `ops`, `small` | names of operators, types | a refusal, if something is missing |
//! | `expand` | operators that stand for several | the several |
//! | `outline`, `ranges`, `influence` | the graph | its inputs and outputs; the integers that tables allow; what values decide |
//! | `invariant` | loops | what never changes in them is read, and products of it computed, in front of them |
//! | `constants` | `Constant` nodes | weights |
//! | `widening` | float16 weights | float32 weights |
//! | `fuse` | nodes and rules | nodes, some of them joined; each joined one is a typed `Joined` |
//! | `plan` | nodes | steps: kernels with their constants prepared, and who reads a value last |
//! | `trial` | a plan | the signature: where the rows are, which lengths are free, whether rows may share a run |
//!
//! A file's own messages exist up to `fuse`; behind it there are only typed nodes, so no file can name what is made here.
//!
//! # What a step does
//!
//! `ops` has one table for each family of operators. An entry compiles a node: it reads the attributes, prepares what is
//! constant, and returns a kernel, a closure from values to values. A `value` is a tensor on burn's device, or integers, texts or
//! sequences on the host. Where the numbers are float32 in this process's memory (`floats`), kernels compute with
//! `fast`: pure functions on slices, for the widest vectors of the processor. Everything else is burn's.

mod apart;
mod attributes;
#[cfg(test)]
mod author;
mod constants;
mod data;
pub mod device;
mod error;
mod expand;
mod fast;
mod fence;
mod files;
mod floats;
mod fuse;
mod graph;
mod influence;
mod inline;
mod invariant;
mod item;
mod limits;
mod memory;
pub mod module;
mod names;
mod opened;
mod ops;
mod order;
mod outline;
mod plan;
mod proto;
mod ranges;
mod runner;
mod seat;
mod shapes;
mod skeleton;
mod small;
mod spread;
mod survey;
mod tensors;
#[cfg(test)]
mod tests;
mod texts;
mod trial;
mod value;
mod weights;
mod widening;

// Whoever runs a burn module of their own needs the very burn that runs it here.
pub use {burn, burn_store};

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use error::Cause;
pub use error::{OnnxError, OnnxErrorKind};
pub use fuse::Rule;
pub use graph::{Graph, read_item, read_tensor};
pub use item::Item;
pub use plan::Spent;
pub use runner::OnnxRunner;
pub use survey::{Described, Survey, Used};

use self::outline::Dim;
use self::spread::Spreads;
use self::trial::Trial;
use uncork_model::runner::{Device, Rows, Shapes, Signature};
use uncork_model::tensor::Tensors;

/// The operators that can be run, by name (with the domain where that is not ONNX's own), and what of each is not
/// supported: empty where all is. In alphabetical order.
pub fn operators() -> Vec<(&'static str, &'static str)> {
    ops::list()
}

/// A model, loaded and tried. Cheap to clone; clones share the weights.
#[derive(Debug, Clone)]
pub struct OnnxModel(Arc<Loaded>);

/// What runners share.
struct Loaded {
    signature: Signature,
    /// Why requests share no run, if they do not.
    alone: Option<OnnxError>,
    is_unsteady: bool,
    /// A row that runs, in the signature's order.
    example: Tensors,
    graph: Graph,
    /// Bytes of the values that a run of that row has at most at one time.
    row_bytes: usize,
    /// Buffers of a runner that is no more.
    left: memory::Left,
    /// How its batches are best run.
    spreads: Spreads,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("signature", &self.signature).finish_non_exhaustive()
    }
}

impl OnnxModel {
    /// Loads a model from its file, and the weights that it keeps in files beside it.
    ///
    /// The model is compiled and tried on a few rows, so a model that loads has run. Which axis of each input and output is
    /// the batch is found so, whether the file leaves it free or declares it as 1. A file that takes one row only is run one row
    /// at a time. If rows may change each other's answers, or if there is no batch axis, each request is a run of its own in the
    /// file's own shapes, and the signature has no rows. [`alone`](OnnxModel::alone) says why.
    pub fn open(path: &Path) -> Result<OnnxModel, OnnxError> {
        OnnxModel::open_on(path, Device::Flex)
    }

    /// Loads a model as [`open`](OnnxModel::open) does, to be run on `device`.
    pub fn open_on(path: &Path, device: Device) -> Result<OnnxModel, OnnxError> {
        OnnxModel::open_as(path, device, &Shapes::default())
    }

    /// Loads a model as [`open_on`](OnnxModel::open_on) does, with what is said of its shapes.
    pub fn open_as(path: &Path, device: Device, shapes: &Shapes) -> Result<OnnxModel, OnnxError> {
        Ok(OnnxModel::tried(Graph::open_apart(path, &device::open(device).map_err(Cause::from)?)?, shapes)?)
    }

    /// Loads a model as [`open`](OnnxModel::open) does, from the bytes of a file that holds all weights.
    pub fn load(bytes: &[u8]) -> Result<OnnxModel, OnnxError> {
        OnnxModel::load_on(bytes, Device::Flex)
    }

    /// Loads a model as [`load`](OnnxModel::load) does, to be run on `device`.
    pub fn load_on(bytes: &[u8], device: Device) -> Result<OnnxModel, OnnxError> {
        OnnxModel::load_as(bytes, device, &Shapes::default())
    }

    /// Loads a model as [`load_on`](OnnxModel::load_on) does, with what is said of its shapes.
    pub fn load_as(bytes: &[u8], device: Device, shapes: &Shapes) -> Result<OnnxModel, OnnxError> {
        Ok(OnnxModel::tried(Graph::load_apart(bytes, &device::open(device).map_err(Cause::from)?)?, shapes)?)
    }

    fn tried(mut graph: Graph, shapes: &Shapes) -> Result<OnnxModel, Cause> {
        shapes::fix(shapes, &mut graph.outline)?;
        let Trial { signature, alone, is_unsteady, example } = trial::trial(&graph, shapes)?;
        let row = signature.inputs.iter().zip(&example).map(|(spec, tensor)| spec.own_shape(tensor.clone())).collect();
        // It has run before.
        let row_bytes = graph.most_bytes(row).unwrap_or(0);
        let names = signature.inputs.iter().map(|spec| Arc::clone(&spec.name));
        let example = Tensors::new(names.zip(example).collect()).map_err(|e| Cause::Graph(e.to_string()))?;
        let alone = alone.map(|cause| match cause {
            Cause::Doubt { .. } | Cause::MixedRows { .. } if !signature.is_unbatched() => Cause::Apart(Box::new(cause)),
            cause => cause,
        });
        let alone = alone.map(OnnxError::from);
        let (left, spreads) = (memory::Left::default(), Spreads::default());
        Ok(OnnxModel(Arc::new(Loaded { signature, alone, is_unsteady, example, graph, row_bytes, left, spreads })))
    }

    /// Names, types and shapes of inputs and outputs, by the file's own names.
    pub fn signature(&self) -> &Signature {
        &self.0.signature
    }

    /// The file's own names of the dimensions behind the batch axis, for each input in order; empty where one has none.
    pub fn dimensions(&self) -> Vec<Vec<&str>> {
        fn name(dim: &Dim) -> &str {
            if let Dim::Free(name) = dim { name } else { "" }
        }
        let inputs = self.0.graph.outline.inputs.iter().zip(&self.0.signature.inputs);
        let names = inputs.map(|(input, spec)| {
            let dims = input.dims.iter().flatten().enumerate();
            dims.filter(|(axis, _)| spec.rows != Rows::Axis(*axis)).map(|(_, dim)| name(dim)).collect()
        });
        names.collect()
    }

    /// A row that has run, with rows along axis 0: it has a length for each free dimension.
    pub fn example(&self) -> &Tensors {
        &self.0.example
    }

    /// Bytes of its constants: its weights as they are computed with, which runners share.
    pub fn constant_bytes(&self) -> u64 {
        self.0.graph.plan.constants() as u64
    }

    /// Bytes of the values that a run of one row has at most at one time; one of n rows has about n times as many.
    pub fn row_bytes(&self) -> u64 {
        self.0.row_bytes as u64
    }

    /// Whether values decide how long outputs are, so that answers to two rows may not go into one tensor.
    pub fn is_unsteady(&self) -> bool {
        self.0.is_unsteady
    }

    /// The names of each output's columns, in order: the classes of a classifier's scores, or the keys of a map, which is
    /// answered as a row with a column for each key. Empty where they have none.
    pub fn labels(&self) -> Vec<Vec<String>> {
        let outline = &self.0.graph.outline;
        let columns = self.0.signature.outputs.iter().map(|spec| spec.dims.last().copied().flatten());
        let named = outline.labels.iter().zip(columns);
        named.map(|(labels, columns)| if columns == Some(labels.len()) { labels.clone() } else { Vec::new() }).collect()
    }

    /// Why requests share no run, which gains nothing over single requests, and how to export the model so that they do.
    /// `None` if a batch is run as a whole, and if the operator said that the model has no rows.
    pub fn alone(&self) -> Option<&OnnxError> {
        self.0.alone.as_ref()
    }

    /// An executor that computes on up to `threads` threads. The one that calls [`run`](uncork_model::runner::Runner::run) becomes the only
    /// worker of its own rayon pool at its first batch and stays that.
    ///
    /// How many threads a batch of some size takes, and whether they share its rows or each operator, is found by
    /// [`rehearse`](uncork_model::runner::Runner::rehearse) on a thread that has run nothing: it measures the first batch of each size in
    /// all ways, for all runners of the model. Without that, all threads share each operator.
    pub fn runner(&self, threads: NonZeroUsize) -> OnnxRunner {
        OnnxRunner::new(Arc::clone(&self.0), threads)
    }
}
