//! One version of one model: checks a request, splits it where it is larger than a batch, counts how it ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::LoadError;
use super::lengths::Lengths;
use super::load::{self, Loaded};
use super::spec::ModelSpec;
use super::work::work;
use crate::batcher::{Answered, BatchSizes, Batcher, Caps, Pool, Terms, Weight};
use crate::error::{Error, Outcome};
use crate::metrics::{self, Metrics, ModelMetrics};
use crate::runner::Signature;
use crate::tensor::Tensors;

/// An answer and how it came about.
#[derive(Debug)]
pub struct Answer {
    /// Outputs, in the order of the model's signature.
    pub outputs: Tensors,
    /// From arrival to the release of the (last) batch.
    pub queue: Duration,
    /// From that release to the outputs.
    pub batch: Duration,
    /// Rows of the batch that the request rode in; of the last one where it was split.
    pub batch_rows: usize,
    /// Counts the request as answered when it is dropped, unless the answer turns out to be none.
    pub count: Count,
}

/// One version of one model.
#[derive(Debug)]
pub struct Model {
    spec: ModelSpec,
    platform: &'static str,
    signature: Arc<Signature>,
    batcher: Batcher<Tensors, Tensors>,
    metrics: Arc<ModelMetrics>,
}

impl Model {
    /// Loads what `spec` asks for, warms it up and starts its batcher: in `pool`, or in a pool of its own.
    pub(super) fn start(
        spec: ModelSpec,
        pool: Option<&Pool<Tensors, Tensors>>,
        metrics: &Metrics,
    ) -> Result<Model, LoadError> {
        let fail = |reason| LoadError { name: spec.name.clone(), reason };
        let Loaded { platform, signature, alone, build, .. } = load::load(&spec).map_err(fail)?;
        if let Some(why) = alone {
            tracing::warn!(model = spec.name, "runs one row at a time, so that batching gains nothing: {why}");
        }
        let max_batch = spec.max_batch_rows.get();
        let (sizes, lengths) = (spec.allowed_batch_sizes.clone(), spec.lengths);
        if lengths == Lengths::Pad {
            load::bears_padding(&mut *build(spec.threads)).map_err(fail)?;
        }
        let seen = load::warm_up(&mut *build(spec.threads), &warm_up_sizes(&sizes, max_batch)).map_err(fail)?;
        log_warm_up(&spec, &seen);
        let metrics = metrics.model(&spec.name, &spec.version, edges(&spec));
        let builder = Batcher::builder(Caps { max_latency: spec.max_latency, max_batch })
            .name(format!("{}-{}", spec.name, spec.version))
            .runners(spec.runners.get())
            .max_queue_rows(spec.max_queue_rows.get())
            .max_queue_bytes(spec.max_queue_bytes.get())
            .weigh(|request: &Tensors| Weight { rows: request.rows(), bytes: request.byte_len() })
            .allowed_batch_sizes(sizes.clone())
            .seen(seen)
            .weight(spec.weight)
            .metrics(metrics.clone());
        let builder = if let Some(pool) = pool { builder.pool(pool) } else { builder };
        let threads = spec.threads;
        let batcher = builder
            .start_threads(move || Ok(work(load::ready(build(threads)), sizes.clone(), lengths)))
            .map_err(|e| fail(format!("cannot start a thread: {e}")))?;
        Ok(Model { spec, platform, signature: Arc::new(signature), batcher, metrics: Arc::new(metrics) })
    }

    /// The name that callers use.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The version: a decimal string.
    pub fn version(&self) -> &str {
        &self.spec.version
    }

    /// What runs it: `onnx_burn`, `burn` (a module), `synthetic`, or what the program that built its runners calls it.
    pub fn platform(&self) -> &'static str {
        self.platform
    }

    /// Names, types and shapes.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// What was asked for.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Answers one request of any number of rows.
    ///
    /// The terms begin when the request's head was in. A request of more than `max_batch_size` rows is split and its answer
    /// joined, in order. Dropping the future takes the request out of the queue.
    pub async fn infer(&self, inputs: Tensors, terms: Terms) -> Result<Answer, Error> {
        let metrics = Arc::clone(&self.metrics);
        let mut count = Count { metrics, outcome: Outcome::Departed, took: None };
        match self.answer(inputs, terms).await {
            Ok(answered) => {
                let took = terms.arrival().elapsed();
                count.took = Some(took);
                count.outcome = if took <= self.spec.max_latency { Outcome::Answered } else { Outcome::AnsweredLate };
                let Answered { answer: outputs, queue, batch, batch_rows } = answered;
                Ok(Answer { outputs, queue, batch, batch_rows, count })
            }
            Err(error) => {
                count.outcome = error.outcome();
                Err(error)
            }
        }
    }

    async fn answer(&self, inputs: Tensors, terms: Terms) -> Result<Answered<Tensors>, Error> {
        let inputs = self.signature.check(inputs).map_err(|e| Error::Invalid(e.to_string()))?;
        let (rows, cap, bound) = (inputs.rows(), self.spec.max_batch_rows.get(), self.spec.max_queue_rows.get());
        if rows <= cap {
            return self.batcher.submit_with(inputs, terms).await;
        }
        if rows > bound {
            return Err(Error::TooLarge { size: rows, bound, unit: "rows" });
        }
        let whole = std::iter::repeat_n(cap, rows / cap);
        let sizes: Vec<usize> = whole.chain([rows % cap].into_iter().filter(|&rest| rest > 0)).collect();
        let parts = inputs.split(&sizes).map_err(|e| Error::Invalid(e.to_string()))?;
        // If one part is refused, dropping the others takes them out of the queue.
        let parts = parts.into_iter().map(|part| self.batcher.submit_with(part, terms));
        let mut answers = try_join_all(parts).await?;
        let last = answers.iter().enumerate().max_by_key(|(_, a)| a.queue).map_or(0, |(i, _)| i);
        let Answered { queue, batch, batch_rows, .. } = answers[last];
        let outputs = Tensors::join(answers.drain(..).map(|a| a.answer).collect());
        // Each part agreed with the signature; only its free dimensions can differ from those of another.
        outputs.map(|answer| Answered { answer, queue, batch, batch_rows }).map_err(|_| Error::ModelFailed)
    }

    /// Counts a request for this model that could not even be read: `infer` counts every other.
    pub fn count_unreadable(&self) {
        self.metrics.count_request(Outcome::Invalid);
    }

    /// Takes no new request, answers all that wait, and returns when the last one is answered.
    pub(super) async fn drain(&self) {
        self.batcher.drain().await;
    }
}

/// The sizes that the model can be asked for, up to its cap: every allowed one, or 1, 2, 4 … where any is.
fn warm_up_sizes(sizes: &BatchSizes, max_rows: usize) -> Vec<usize> {
    if !sizes.is_any() {
        return sizes.iter().collect();
    }
    (0..usize::BITS).map(|i| 1usize << i).take_while(|&n| n < max_rows).chain([max_rows]).collect()
}

/// The caps from which the buckets of a model's metrics are made.
pub(super) fn edges(spec: &ModelSpec) -> metrics::Caps {
    let max_latency_seconds = spec.max_latency.as_secs_f64();
    metrics::Caps { max_latency_seconds, max_batch_rows: spec.max_batch_rows.get() }
}

fn log_warm_up(spec: &ModelSpec, seen: &[(usize, Duration)]) {
    let ms = |i: Option<&(usize, Duration)>| i.map_or(0.0, |(_, t)| t.as_secs_f64() * 1e3);
    let (smallest, largest) = (ms(seen.first()), ms(seen.last()));
    let rows = seen.last().map_or(0, |(rows, _)| *rows);
    tracing::info!(
        model = spec.name,
        version = spec.version,
        "warmed up: a batch of 1 takes {smallest:.2} ms, one of {rows} {largest:.2} ms"
    );
}

/// Counts a request once, however it ends; dropped without a word, its caller has left.
#[derive(Debug)]
pub struct Count {
    metrics: Arc<ModelMetrics>,
    outcome: Outcome,
    /// From arrival to answer, if there is one.
    took: Option<Duration>,
}

impl Count {
    /// The caller cannot be told what the model said, as a NaN where only numbers can be written: a failure, no answer.
    pub fn failed(mut self) {
        (self.outcome, self.took) = (Outcome::Failed, None);
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if let Some(took) = self.took {
            self.metrics.request_duration.record(took);
        }
        self.metrics.count_request(self.outcome);
    }
}
