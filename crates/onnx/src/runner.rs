//! Runs a loaded model on threads of its own.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::Loaded;
use super::fence::fenced;
use super::limits;
use crate::seat::Seat;
use uncork_model::quote::Quoted;
use uncork_model::runner::{Rows, Runner, RunnerError, Signature, TensorSpec};
use uncork_model::tensor::{DataType, Tensor, TensorError, Tensors};

/// One executor of an [`OnnxModel`](super::OnnxModel). The weights are shared with all others.
#[derive(Debug)]
pub struct OnnxRunner {
    model: Arc<Loaded>,
    seat: Seat,
    /// The thread that has run callers' rows.
    home: Option<ThreadId>,
    /// How long a run may take.
    most: Option<Duration>,
}

impl OnnxRunner {
    pub(super) fn new(model: Arc<Loaded>, threads: NonZeroUsize) -> OnnxRunner {
        OnnxRunner { model, seat: Seat::new(threads), home: None, most: None }
    }

    /// Ends a run at its next step once it has taken so long: nobody waits for it any more. Rehearsals are left to run.
    #[must_use]
    pub fn giving_up_after(mut self, most: Duration) -> OnnxRunner {
        self.most = Some(most);
        self
    }
}

impl Runner for OnnxRunner {
    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        if !self.is_at_home() {
            self.model.left.keep();
            self.home = Some(thread::current().id());
        }
        let most = self.most;
        self.on_seat(batch, Way::Served { most })
    }

    /// A model is warmed up by another thread than that which then serves it, and which finds the buffers.
    fn rehearse(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        if self.is_at_home() {
            return self.on_seat(batch, Way::Rehearsed);
        }
        self.model.left.keep();
        let outputs = self.on_seat(batch, Way::Rehearsed);
        self.model.left.leave();
        outputs
    }

    /// Operators refuse indices that point nowhere and lengths that do not go together. Floats in a fixed shape are all alike
    /// to them, unless a number stands for a category, or becomes an index or a length.
    fn may_refuse(&self) -> bool {
        let is_free = |spec: &TensorSpec| spec.dims.contains(&None);
        let is_float = |spec: &TensorSpec| {
            matches!(spec.datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
        };
        self.model.graph.outline.picky
            || !self.model.graph.influence.sizes.is_empty()
            || self.model.signature.inputs.iter().any(|spec| is_free(spec) || !is_float(spec))
    }
}

/// How a graph is run.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// On callers' rows, within limits.
    Served {
        /// How long that may take.
        most: Option<Duration>,
    },
    /// On rows that were made up.
    Rehearsed,
}

impl OnnxRunner {
    fn is_at_home(&self) -> bool {
        self.home == Some(thread::current().id())
    }

    /// Runs a batch on the runner's own threads.
    fn on_seat(&mut self, batch: Tensors, way: Way) -> Result<Tensors, RunnerError> {
        let model = Arc::clone(&self.model);
        self.seat.run(move || fenced(|| model.run(batch, way)).unwrap_or_else(|e| Err(RunnerError::Failed(e.0))))?
    }
}

impl Drop for OnnxRunner {
    fn drop(&mut self) {
        if self.is_at_home() {
            self.model.left.leave();
        }
    }
}

impl Loaded {
    fn run(&self, batch: Tensors, way: Way) -> Result<Tensors, RunnerError> {
        let sizes = self.runs(&batch);
        if sizes.len() <= 1 {
            return self.run_whole(batch, way);
        }
        let parts = batch.split(&sizes).map_err(broken)?;
        let run = |part| self.run_whole(part, way);
        let answers: Vec<Tensors> = parts.into_iter().map(run).collect::<Result<_, _>>()?;
        if answers.iter().any(|answer| !answer.joins_with(&answers[0])) {
            return Err(RunnerError::Input(
                "the values of its rows make answers of different lengths, which are no tensor together: send them in several requests"
                    .into(),
            ));
        }
        Tensors::join(answers).map_err(broken)
    }

    /// How many rows each run takes: those side by side for which what all rows of a run share is the same.
    fn runs(&self, batch: &Tensors) -> Vec<usize> {
        let shared: Vec<&Tensor> = batch
            .iter()
            .filter(|(name, _)| self.signature.inputs.iter().any(|s| s.name == **name && s.rows == Rows::Shared))
            .map(|(_, tensor)| tensor)
            .collect();
        let rows = batch.rows();
        if rows <= 1 || (self.alone.is_none() && shared.is_empty()) {
            return vec![rows];
        }
        let starts = |&at: &usize| self.alone.is_some() || shared.iter().any(|t| t.row(at) != t.row(at - 1));
        let starts: Vec<usize> = [0].into_iter().chain((1..rows).filter(starts)).chain([rows]).collect();
        starts.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }

    /// What so many rows may have of values whose size values decide, before they take of what all runs share: twice what a row had that was
    /// tried, since a tensor counts with the widest elements while it is made.
    fn own_bytes(&self, rows: usize) -> usize {
        self.row_bytes.saturating_mul(rows).saturating_mul(2)
    }

    fn run_whole(&self, batch: Tensors, way: Way) -> Result<Tensors, RunnerError> {
        let specs = &self.signature.inputs;
        let mut given: Vec<_> = batch.into_entries().into_iter().map(Some).collect();
        if given.len() != specs.len() {
            return Err(RunnerError::Failed(format!("{} inputs where the model takes {}", given.len(), specs.len())));
        }
        let mut values = Vec::with_capacity(specs.len());
        let mut rows = 1;
        for spec in specs {
            // A checked batch is in the model's order already; the search then ends at once.
            let found = given.iter_mut().find(|g| g.as_ref().is_some_and(|(name, _)| *name == spec.name));
            let Some((_, tensor)) = found.and_then(Option::take) else {
                return Err(RunnerError::Failed(format!("input {} is missing", Quoted(&spec.name))));
            };
            if tensor.data().datatype() != spec.datatype || tensor.shape().len() != spec.dims.len() + 1 {
                return Err(RunnerError::Failed(format!("input {} has another type or rank", Quoted(&spec.name))));
            }
            rows = tensor.rows();
            values.push(spec.own_shape(tensor));
        }
        let (outputs, refusal) = match way {
            Way::Served { most } => {
                let limited = limits::begin(&limits::POOL, self.own_bytes(rows), most);
                let outputs = self.graph.compute(values);
                (outputs, limited.refusal())
            }
            Way::Rehearsed => (self.graph.rehearse(values), None),
        };
        let outputs = outputs.map_err(|failure| {
            if let Some(refusal) = refusal {
                return refusal;
            }
            if failure.place.is_none() {
                return RunnerError::Failed(failure.reason);
            }
            // It has run on rows of zeros when it was loaded, so what an operator refuses now is in these rows.
            tracing::debug!(%failure, "rows refused");
            RunnerError::Input(failure.reason)
        })?;
        let named = self.signature.outputs.iter().zip(outputs).map(|(spec, tensor)| {
            let tensor = match spec.rows {
                // The axis of a single row went with others of length 1.
                Rows::Axis(0) if rows == 1 && tensor.shape().len() == spec.dims.len() => tensor.repeated(1)?,
                Rows::Axis(axis) if axis < tensor.shape().len() => tensor.axis_to_front(axis),
                Rows::Axis(_) => tensor,
                Rows::Shared => tensor.repeated(rows)?,
            };
            Ok((Arc::clone(&spec.name), tensor))
        });
        Tensors::new(named.collect::<Result<_, TensorError>>().map_err(broken)?).map_err(broken)
    }
}

fn broken(error: TensorError) -> RunnerError {
    RunnerError::Failed(error.to_string())
}
