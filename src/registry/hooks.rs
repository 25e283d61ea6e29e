//! The hooks in front of a model and behind it: each request goes through them on its own, beside running batches.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::away::Away;
use super::course::Unserved;
use super::model::Model;
use super::outputs::{Inferred, Outputs};
use crate::batcher::{self, Answered, Terms};
use crate::error::{Error, Shed};
use crate::metrics::ModelMetrics;
use crate::runner::{Crew, Hooks, RunnerError, Signature, TensorSpec};
use crate::tensor::Tensors;

/// Has the metrics say how many workers there are.
pub(super) fn tell_of_workers(away: &Away, metrics: &ModelMetrics) {
    let (workers, ends, told) = (metrics.workers.clone(), metrics.worker_ends.clone(), AtomicU64::new(0));
    away.watched(Box::new(move |Crew { ready, ended }| {
        workers.set(ready as f64);
        ends.increment(ended.saturating_sub(told.fetch_max(ended, Ordering::Relaxed)));
    }));
}

/// Functions of the program's own in front of a model and behind it, for what is done to each request alone: an image is made a
/// tensor, scores are made a label. They run on threads for blocking work, while batches collect and run.
///
/// A function gets the tensors of one request, with its rows along axis 0, and returns tensors of as many rows.
/// [`RunnerError::Input`] refuses the request with its words (400); any other error is a 500, of which the log tells, and so is a
/// panic. The time of the function in front is the request's own; that of the one behind is too, but for the prediction.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use uncork::registry::{Caps, HookFunctions, ModelSpec, Registry, Source, Terms};
/// use uncork::runner::{RunnerError, TensorSpec};
/// use uncork::tensor::{Data, DataType, Tensor, Tensors};
///
/// // The model takes "x", FP32 [-1, 1]; whoever asks sends texts.
/// let texts = vec![TensorSpec::new("text", DataType::Bytes, vec![])];
/// let hooks = HookFunctions::default().prepare(texts, |request: Tensors| {
///     let Some(Data::Bytes(texts)) = request.get("text").map(Tensor::data) else { unreachable!("it was checked") };
///     let lengths: Vec<f32> = texts.iter().map(|text| text.len() as f32).collect();
///     let tensor = Tensor::new(vec![lengths.len(), 1], lengths).map_err(|e| RunnerError::Failed(e.to_string()))?;
///     Ok(Tensors::one("x", tensor))
/// });
/// let stand_in = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
/// let spec = ModelSpec { hooks, ..ModelSpec::new("lengths", stand_in, Caps::new(Duration::from_secs(5), 8)) };
/// let registry = Registry::load(vec![spec])?;
/// let model = registry.model("lengths", None)?;
/// let request = Tensors::one("text", Tensor::new(vec![1], vec![b"four".to_vec()])?);
/// let answer = model.infer(request, Terms::now()).await?;
/// assert_eq!(answer.outputs.get("y").map(Tensor::data), Some(&Data::Fp32(vec![9.0])), "2 * 4 + 1");
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct HookFunctions {
    in_front: Option<Function>,
    behind: Option<Function>,
}

/// One of them, and the tensors of its outer side.
#[derive(Clone)]
struct Function {
    specs: Vec<TensorSpec>,
    call: Arc<dyn Fn(Tensors) -> Result<Tensors, RunnerError> + Send + Sync>,
}

impl HookFunctions {
    /// Callers send `inputs`, of which `function` makes what the model takes.
    #[must_use]
    pub fn prepare(
        self,
        inputs: Vec<TensorSpec>,
        function: impl Fn(Tensors) -> Result<Tensors, RunnerError> + Send + Sync + 'static,
    ) -> HookFunctions {
        HookFunctions { in_front: Some(Function { specs: inputs, call: Arc::new(function) }), ..self }
    }

    /// Callers get `outputs`, which `function` makes of what the model gives.
    #[must_use]
    pub fn finish(
        self,
        outputs: Vec<TensorSpec>,
        function: impl Fn(Tensors) -> Result<Tensors, RunnerError> + Send + Sync + 'static,
    ) -> HookFunctions {
        HookFunctions { behind: Some(Function { specs: outputs, call: Arc::new(function) }), ..self }
    }

    /// Which of them there are.
    pub(super) fn which(&self) -> Hooks {
        Hooks { prepare: self.in_front.is_some(), finish: self.behind.is_some() }
    }

    /// What callers know of a model with this signature.
    pub(super) fn around(&self, model: &Signature) -> Result<Signature, String> {
        if self.which() != Hooks::default() && model.is_unbatched() {
            return Err("it takes one request at a time, in its own shapes; such a model has no hooks".into());
        }
        let outer = |function: &Option<Function>, own: &[TensorSpec]| {
            function.as_ref().map_or_else(|| own.to_vec(), |function| function.specs.clone())
        };
        Ok(Signature { inputs: outer(&self.in_front, &model.inputs), outputs: outer(&self.behind, &model.outputs) })
    }
}

impl fmt::Debug for HookFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.which().fmt(f)
    }
}

impl PartialEq for HookFunctions {
    /// Whether both are clones of one.
    fn eq(&self, other: &HookFunctions) -> bool {
        let is_same = |a: &Option<Function>, b: &Option<Function>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.call, &b.call) && a.specs == b.specs,
            (a, b) => a.is_none() && b.is_none(),
        };
        is_same(&self.in_front, &other.in_front) && is_same(&self.behind, &other.behind)
    }
}

impl Function {
    /// Calls it on a thread that may be blocked. `place` is taken for as long as it runs, whoever waits for it; where nobody does any
    /// more before it has begun, it does not.
    async fn call(&self, tensors: Tensors, place: Hooked) -> Result<(Tensors, Hooked), RunnerError> {
        let call = Arc::clone(&self.call);
        let mut called = JoinSet::new();
        called.spawn_blocking(move || {
            let outputs = catch_unwind(AssertUnwindSafe(|| call(tensors)));
            (outputs, place)
        });
        match called.join_next().await {
            Some(Ok((Ok(outputs), place))) => Ok((outputs?, place)),
            _ => Err(RunnerError::Failed("a hook panicked".into())),
        }
    }
}

impl Model {
    /// Answers a request by way of the model's hooks.
    pub(super) async fn answer_hooked(&self, inputs: Tensors, terms: Terms) -> Result<Inferred, Error> {
        let rows = inputs.rows();
        let inputs = self.prepare(inputs, terms).await?;
        let Answered { answer, queue, batch, batch_rows, batch_span } = self.answer_plain(inputs, terms).await?;
        let stages = answer.stages;
        let outputs = answer.by_row().ok_or_else(|| self.misshapen("values have changed the form of the outputs"))?;
        let (most, place) = (self.spec().stuck_after, self.place(&self.hooked.behind, rows)?);
        let finished = tokio::time::timeout(most, self.run_behind(outputs, place)).await;
        let late = |_| self.misshapen(&format!("the hook behind the model has not come back for {most:?}"));
        let outputs = finished.map_err(late)?.map_err(|why| self.unhooked(why))?;
        if !self.signature().agrees(&outputs, rows) {
            return Err(self.misshapen("the hook behind the model gives outputs of another shape"));
        }
        Ok(Answered { answer: Outputs::of_rows(outputs, stages), queue, batch, batch_rows, batch_span })
    }

    /// Runs the hooks in front of the model, as long as there is time for them.
    async fn prepare(&self, inputs: Tensors, terms: Terms) -> Result<Tensors, Error> {
        let rows = inputs.rows();
        let place = self.place(&self.hooked.in_front, rows)?;
        let most = terms.timeout().map_or(self.spec().max_latency, |own| own.min(self.spec().max_latency));
        let left = most.saturating_sub(terms.arrival().elapsed());
        let late = |_| {
            // Less to do would have spared nobody where there is no worker.
            if let Some(why) = self.away().and_then(Away::trouble) {
                return self.unserved(Unserved::Absent(why));
            }
            let (predicted_ms, deadline_ms) = (terms.arrival().elapsed().as_secs_f64() * 1e3, most.as_secs_f64() * 1e3);
            // How long hooks take is not known, so whoever gives less than the cap is told that no waiting helps.
            let retry_after = Some(most).filter(|most| *most >= self.spec().max_latency);
            self.unhooked_yet(batcher::Error::Late { predicted_ms, deadline_ms, retry_after })
        };
        let prepared = tokio::time::timeout(left, self.run_in_front(inputs, place)).await.map_err(late)?;
        let prepared = prepared.map_err(|why| self.unhooked(why))?;
        if prepared.rows() == rows {
            return Ok(prepared);
        }
        Err(self.misshapen("the hook in front of the model gives another number of rows"))
    }

    /// Room for rows in one of the hooks.
    fn place(&self, all: &Arc<AtomicUsize>, rows: usize) -> Result<Hooked, Error> {
        let bound = self.spec().max_queue_rows.get();
        if rows > bound {
            return Err(self.unhooked_yet(batcher::Error::TooLarge { size: rows, bound, unit: "rows" }));
        }
        Hooked::enter(all, rows, bound).ok_or_else(|| {
            let (queued, retry_after) = (all.load(Ordering::Relaxed), self.spec().max_latency);
            self.unhooked_yet(batcher::Error::Full { queued, bound, unit: "rows", retry_after })
        })
    }

    /// Notes that a hook had no room for a request or no time, of which no batcher tells.
    fn unhooked_yet(&self, refusal: batcher::Error) -> Error {
        let error = Error::from(refusal);
        self.note_shed(Shed::Hook, Some(error.clone()));
        error
    }

    async fn run_in_front(&self, mut tensors: Tensors, mut place: Hooked) -> Result<Tensors, RunnerError> {
        if let Some(function) = &self.spec().hooks.in_front {
            let made;
            (made, place) = function.call(tensors, place).await?;
            let made = self.inner_signature().check(made);
            let differ = |error| {
                RunnerError::Failed(format!("the hook in front of the model makes what that does not take: {error}"))
            };
            tensors = made.map_err(differ)?;
        }
        let prepared = match self.away().filter(|away| away.hooks().prepare) {
            Some(away) => away.prepare(tensors).await,
            None => Ok(tensors),
        };
        drop(place);
        prepared
    }

    async fn run_behind(&self, mut tensors: Tensors, place: Hooked) -> Result<Tensors, RunnerError> {
        if let Some(away) = self.away().filter(|away| away.hooks().finish) {
            tensors = away.finish(tensors).await?;
        }
        match &self.spec().hooks.behind {
            Some(function) => function.call(tensors, place).await.map(|(outputs, _)| outputs),
            None => Ok(tensors),
        }
    }

    fn misshapen(&self, why: &str) -> Error {
        self.unserved(Unserved::Failed(why.to_owned()))
    }

    /// What a caller is told whose request does not get through a hook.
    fn unhooked(&self, why: RunnerError) -> Error {
        let named = |rows: Vec<(usize, String)>| rows.into_iter().next().map(|(_, why)| why).unwrap_or_default();
        self.unserved(match why {
            RunnerError::Input(why) => Unserved::Input(why),
            RunnerError::Rows(rows) => Unserved::Input(named(rows)),
            RunnerError::FailedRows(rows) => Unserved::Failed(named(rows)),
            RunnerError::Absent(why) | RunnerError::Busy(why) => Unserved::Absent(why),
            why => Unserved::Failed(why.to_string()),
        })
    }
}

/// Rows that are in a model's hooks.
#[derive(Debug, Default)]
pub(super) struct InHooks {
    in_front: Arc<AtomicUsize>,
    behind: Arc<AtomicUsize>,
}

/// Some of them.
struct Hooked {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Hooked {
    /// `None` where there is no room.
    fn enter(all: &Arc<AtomicUsize>, own: usize, most: usize) -> Option<Hooked> {
        let with_own = |all: usize| all.checked_add(own).filter(|sum| *sum <= most);
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_own).ok()?;
        Some(Hooked { all: Arc::clone(all), own })
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}
