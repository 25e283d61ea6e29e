//! Runs a loaded model on threads of its own.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::Loaded;
use super::fence::fenced;
use super::graph::Graph;
use super::plan::Failure;
use crate::runner::seat::Seat;
use crate::runner::{Runner, RunnerError, Signature, TensorSpec};
use crate::tensor::{DataType, Tensor, TensorError, Tensors};

/// One executor of an [`OnnxModel`](super::OnnxModel). The weights are shared with all others.
#[derive(Debug)]
pub struct OnnxRunner {
    model: Arc<Loaded>,
    seat: Seat,
}

impl OnnxRunner {
    pub(super) fn new(model: Arc<Loaded>, threads: NonZeroUsize) -> OnnxRunner {
        OnnxRunner { model, seat: Seat::new(threads) }
    }
}

impl Runner for OnnxRunner {
    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.on_seat(batch, Graph::compute)
    }

    fn rehearse(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.on_seat(batch, Graph::rehearse)
    }

    /// Operators refuse indices that point nowhere and lengths that do not go together. Floats in a fixed shape are all alike
    /// to them, unless a number stands for a category.
    fn may_refuse(&self) -> bool {
        let is_free = |spec: &TensorSpec| spec.dims.contains(&None);
        let is_float = |spec: &TensorSpec| {
            matches!(spec.datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
        };
        self.model.graph.outline.picky
            || self.model.signature.inputs.iter().any(|spec| is_free(spec) || !is_float(spec))
    }
}

/// How a graph is run: on callers' rows, or on made up ones.
type Compute = fn(&Graph, Vec<Tensor>, bool) -> Result<Vec<Tensor>, Failure>;

impl OnnxRunner {
    /// Runs a batch on the runner's own threads.
    fn on_seat(&mut self, batch: Tensors, compute: Compute) -> Result<Tensors, RunnerError> {
        let model = Arc::clone(&self.model);
        self.seat.run(move || fenced(|| model.run(batch, compute)).unwrap_or_else(|e| Err(RunnerError::Failed(e.0))))?
    }
}

impl Loaded {
    fn run(&self, batch: Tensors, compute: Compute) -> Result<Tensors, RunnerError> {
        if self.alone.is_none() || batch.rows() <= 1 {
            return self.run_whole(batch, compute);
        }
        let broken = |e: TensorError| RunnerError::Failed(e.to_string());
        let sizes = vec![1; batch.rows()];
        let rows = batch.split(&sizes).map_err(broken)?;
        let answers = rows.into_iter().map(|row| self.run_whole(row, compute)).collect::<Result<_, _>>()?;
        Tensors::join(answers).map_err(broken)
    }

    fn run_whole(&self, batch: Tensors, compute: Compute) -> Result<Tensors, RunnerError> {
        let specs = &self.signature.inputs;
        let mut given: Vec<_> = batch.into_entries().into_iter().map(Some).collect();
        if given.len() != specs.len() {
            return Err(RunnerError::Failed(format!("{} inputs where the model takes {}", given.len(), specs.len())));
        }
        let mut values = Vec::with_capacity(specs.len());
        for spec in specs {
            // A checked batch is in the model's order already; the search then ends at once.
            let found = given.iter_mut().find(|g| g.as_ref().is_some_and(|(name, _)| *name == spec.name));
            let Some((_, tensor)) = found.and_then(Option::take) else {
                return Err(RunnerError::Failed(format!("input '{}' is missing", spec.name)));
            };
            if tensor.data().datatype() != spec.datatype || tensor.shape().len() != spec.dims.len() + 1 {
                return Err(RunnerError::Failed(format!("input '{}' has another type or rank", spec.name)));
            }
            values.push(tensor);
        }
        let outputs = compute(&self.graph, values, self.alone.is_some()).map_err(|failure| {
            if failure.place.is_none() {
                return RunnerError::Failed(failure.reason);
            }
            // It has run on rows of zeros when it was loaded, so what an operator refuses now is in these rows.
            tracing::debug!(%failure, "rows refused");
            RunnerError::Input(failure.reason)
        })?;
        let named = self.signature.outputs.iter().zip(outputs).map(|(spec, tensor)| (Arc::clone(&spec.name), tensor));
        Tensors::new(named.collect()).map_err(|e| RunnerError::Failed(e.to_string()))
    }
}
