//! Batches to measure with: a row that the model takes, as often as it is wanted.

use crate::registry::Loaded;
use crate::runner::TensorSpec;
use crate::tensor::Tensors;

/// The inputs of a model, with a length for each dimension.
#[derive(Debug)]
pub(in crate::cli) struct Inputs {
    specs: Vec<TensorSpec>,
    example: Tensors,
    /// The lengths that free dimensions have here, shortest first; `None` where none is free.
    pub(in crate::cli) assumed: Option<Vec<usize>>,
}

impl Inputs {
    /// The inputs of a model as they were when it was tried.
    pub(in crate::cli) fn of(loaded: &Loaded) -> Inputs {
        let mut specs = loaded.signature.inputs.clone();
        let mut assumed = Vec::new();
        for (spec, (_, tensor)) in specs.iter_mut().zip(loaded.example.iter()) {
            for (dim, &length) in spec.dims.iter_mut().zip(&tensor.shape()[1..]).filter(|(dim, _)| dim.is_none()) {
                *dim = Some(length);
                assumed.push(length);
            }
        }
        assumed.sort_unstable();
        assumed.dedup();
        Inputs { specs, example: loaded.example.clone(), assumed: (!assumed.is_empty()).then_some(assumed) }
    }

    /// Their names, types and shapes.
    pub(in crate::cli) fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// A batch of `rows` rows.
    pub(in crate::cli) fn batch(&self, rows: usize) -> Result<Tensors, String> {
        self.example.clone().resize_rows(rows).map_err(|e| e.to_string())
    }
}
