//! One version of one model: checks a request, splits it where it is larger than a batch, counts how it ended.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;
use tokio::sync::watch;

use super::away::Away;
use super::count::{Count, Counts, Stages};
use super::course::{Manner, Unserved};
use super::hooks::{self, InHooks};
use super::load::{self, Loaded};
use super::outputs::{Inferred, Outputs, RowExecution};
use super::shadow::Copies;
use super::spec::{Build, ModelSpec, Source};
use super::work::{Desk, Fleet, Habits, Served};
use super::{LoadError, fits, memory};
use crate::batcher::{self, Answered, BatchError, BatchSizes, Batcher, Caps, Pool, Terms, Weight, Work};
use crate::error::{Error, Outcome, Shed};
use crate::journal::{Journal, Snapshot, Window};
use crate::metrics::{Copied, Limits, Metrics};
use crate::opaque;
use crate::quote::on_lines;
use crate::runner::{Hooks, Runner, Signature};
use crate::statistics::{Statistics, Totals};
use crate::telemetry::{FailureLog, LOG_EVERY, Limit, SpanRef, Tracer};
use crate::tensor::Tensors;

/// An answer and how it came about.
#[derive(Debug)]
pub struct Answer {
    /// Outputs, in the order of the model's signature and in its own shapes.
    pub outputs: Tensors,
    /// From arrival to the release of the batch; of the first one where the request was split.
    pub queue: Duration,
    /// From that release to the outputs, all parts' where it was split.
    pub batch: Duration,
    /// Rows of the batch that the request rode in; of the largest one where it was split.
    pub batch_rows: usize,
    /// Whether the rows of this request were run one at a time, because the file takes a single row only.
    pub ran_one_by_one: bool,
    /// The span of the batch that was released last, if the request is traced.
    pub batch_span: Option<SpanRef>,
    /// Counts the request as answered when it is dropped, unless the answer turns out to be none.
    pub count: Count,
}

/// Lines of the log about failed requests in [`LOG_EVERY`]: one may differ from the next.
const MOST_FAILURES: u64 = 16;

/// One version of one model.
#[derive(Debug)]
pub struct Model {
    spec: ModelSpec,
    platform: Cow<'static, str>,
    labels: Vec<Vec<String>>,
    /// As callers know it.
    signature: Signature,
    /// As its runners do.
    inner_signature: Arc<Signature>,
    /// Where its batches run, where that is shared with others.
    pool: Option<Pool<Tensors, Served>>,
    alone: Option<String>,
    /// Whether its runners take requests whole.
    takes_whole_requests: bool,
    too_slow: Option<String>,
    batcher: Batcher<Tensors, Served>,
    /// Where its batches run, if that is somewhere else.
    away: Option<Away>,
    /// Rows in its hooks.
    pub(super) hooked: InHooks,
    /// Of failed requests in the log.
    failures: Mutex<Limit>,
    journal: Journal,
    counts: Arc<Counts>,
    /// Bytes that it takes.
    memory: u64,
    loaded: SystemTime,
    /// Who gets copies of its requests.
    pub(super) copies: Copies,
    /// Who waits for its end hears when this goes.
    held: watch::Sender<()>,
}

impl Model {
    /// Loads what `spec` asks for, warms it up and starts its batcher: in `pool`, or in a pool of its own.
    pub(super) fn start(
        spec: ModelSpec,
        pool: Option<Pool<Tensors, Served>>,
        metrics: &Metrics,
        tracer: &Tracer,
    ) -> Result<Model, LoadError> {
        let name = spec.name.clone();
        let fail = |reason| LoadError { name: name.clone(), reason };
        let Loaded { platform, signature, labels, alone, is_single, example, rehearses, takes, build, away } =
            load::load(&spec).map_err(fail)?;
        let outer = spec.hooks.around(&signature).map_err(fail)?;
        // They name the columns of what the model gives.
        let labels = if spec.hooks.which().finish { Vec::new() } else { labels };
        let spec = if is_single { single(spec) } else { spec };
        if let Some(why) = &alone {
            let how = if signature.is_unbatched() {
                "runs each request by itself, in the file's own shapes"
            } else {
                "runs one row at a time"
            };
            tracing::warn!(model = spec.name, "{how}, so that batching gains little: {why}");
        }
        let max_batch = spec.max_batch_rows.get();
        // Each thread may have one of the rows that run alone.
        let runs_apart = alone.is_some() || signature.is_unbatched();
        let at_once = if runs_apart { spec.threads.get().min(max_batch) } else { max_batch };
        fits::a_queue(&spec, &signature, &example).map_err(fail)?;
        let memory = takes.in_all(&spec, at_once);
        memory::log(takes, &spec, &signature, &example);
        // Built here, and not on the threads of a pool whose other models have requests.
        let mut runners = load::runners(&build, &spec).map_err(fail)?;
        let first = &mut *runners[0];
        // Rows that are run one at a time are not padded to another number of rows.
        let sizes = if runs_apart { BatchSizes::default() } else { spec.allowed_batch_sizes.clone() };
        let sizes_to_try = if rehearses { load::warm_up_sizes(&sizes, max_batch) } else { Vec::new() };
        let seen = load::warm_up(first, &example, &sizes_to_try, spec.device, spec.max_latency).map_err(fail)?;
        let padding = load::padding(&build, &spec, &example).map_err(fail)?;
        let (may_refuse, takes_whole_requests) = (first.may_refuse(), first.takes_whole_requests());
        let may_change_form = first.may_change_form();
        load::log_warm_up(&spec, &seen);
        let tried = seen.last().map(|(rows, _)| *rows);
        let rehearsed = tried.is_some();
        let too_slow = fits::no_caps(&spec, &seen);
        if let Some(why) = &too_slow {
            tracing::warn!(model = spec.name, "{why}");
        }
        let metrics = metrics.unseen(&spec.name, &spec.version, spec.pool.as_deref(), limits(&spec));
        metrics.memory.set(memory as f64);
        let journal = Journal::new(spec.max_latency, max_batch);
        let statistics = Statistics::default();
        let full_name = format!("{}-{}", spec.name, spec.version);
        let builder = Batcher::builder(Caps::new(spec.max_latency, max_batch))
            .runners(spec.runners.get())
            .max_queue_rows(spec.max_queue_rows.get())
            .max_queue_bytes(spec.max_queue_bytes.get())
            .weigh(|request: &Tensors| Weight { rows: request.rows(), bytes: request.byte_len() })
            .allowed_batch_sizes(sizes.clone())
            .giving_up_after(spec.stuck_after)
            .seen(seen)
            .weight(spec.weight)
            .observer(metrics.clone())
            .observer(journal.clone())
            .observer(statistics.clone())
            .observer(tracer.of_model(&spec.name, &spec.version))
            .observer(FailureLog::new(full_name));
        let builder = if let Some(tried) = tried { builder.rehearsing(tried) } else { builder };
        let builder = if let Some(pool) = &pool { builder.pool(pool) } else { builder };
        let inner_signature = Arc::new(signature);
        let (signature, most) = (Arc::clone(&inner_signature), spec.max_latency);
        let manner = Manner { signature, sizes, padding, may_refuse, may_change_form, most };
        let habits = Habits { manner: Arc::new(manner), metrics: metrics.clone(), example };
        if let Some(away) = &away {
            hooks::tell_of_workers(away, &metrics);
        }
        let batcher = match away.clone() {
            Some(away) => builder.start(Fleet { away, habits, out: HashMap::new() }),
            None => {
                // The first one has run all of warm-up.
                let fresh = usize::from(rehearsed);
                runners[fresh..].iter_mut().for_each(|runner| load::ready(&mut **runner, &habits.example));
                let ready = runners;
                let (ready, threads) = (Mutex::new(ready), spec.threads);
                let desk = move || {
                    let built = ready
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .pop()
                        .map_or_else(|| anew(&build, threads, &habits), Ok);
                    Ok(Box::new(Desk { runner: built?, habits: habits.clone() }) as Box<dyn Work<_, _>>)
                };
                builder.start_threads(desk).map_err(|e| fail(format!("cannot start a thread: {e}")))?
            }
        };
        let totals = std::array::from_fn(|_| AtomicU64::new(0));
        let counts = Arc::new(Counts { metrics, statistics, max_latency: spec.max_latency, totals });
        let held = watch::Sender::new(());
        Ok(Model {
            spec,
            platform,
            labels,
            signature: outer,
            inner_signature,
            pool,
            alone,
            takes_whole_requests,
            too_slow,
            batcher,
            away,
            hooked: InHooks::default(),
            failures: Mutex::new(Limit::several(MOST_FAILURES, LOG_EVERY)),
            journal,
            counts,
            memory,
            loaded: SystemTime::now(),
            copies: Copies::default(),
            held,
        })
    }

    /// The name that callers use.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The version: a decimal string.
    pub fn version(&self) -> &str {
        &self.spec.version
    }

    /// What runs it: `onnx_burn`, `burn` (a module), `synthetic`, `upstream`, or what its worker or the program that built its runners calls it.
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// The names of the columns of the `i`th output, where they are those of classes or of a map's keys; else none.
    pub fn labels(&self, i: usize) -> &[String] {
        self.labels.get(i).map_or(&[], Vec::as_slice)
    }

    /// Names, types and shapes.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Whether the `instances` of a body are its own to read, where its requests are opaque: each body is one row.
    pub(crate) fn takes_whole(&self) -> bool {
        self.away.as_ref().is_some_and(Away::takes_whole)
    }

    /// Names, types and shapes of what its runners take and give, behind its hooks.
    pub(super) fn inner_signature(&self) -> &Signature {
        &self.inner_signature
    }

    /// Where its batches run, if that is somewhere else.
    pub(super) fn away(&self) -> Option<&Away> {
        self.away.as_ref()
    }

    /// How the rows of its requests are run.
    pub fn row_execution(&self) -> RowExecution {
        RowExecution::of(&self.inner_signature, self.alone.is_none())
    }

    /// Why its requests share no batch, if they do not.
    pub fn alone(&self) -> Option<&str> {
        self.alone.as_deref()
    }

    /// Why it cannot keep its latency cap, if a single row took longer than that when it was warmed up.
    pub fn too_slow(&self) -> Option<&str> {
        self.too_slow.as_deref()
    }

    /// The pool that it shares with others, if that is called `name` and has so many runners.
    pub(super) fn pool(&self, name: &str, runners: usize) -> Option<&Pool<Tensors, Served>> {
        let is_it = self.spec.pool.as_deref() == Some(name) && self.spec.runners.get() == runners;
        self.pool.as_ref().filter(|_| is_it)
    }

    /// From now on `/metrics` has its series, and no more those of the one whose place it takes.
    pub(super) fn show(&self, metrics: &Metrics) {
        metrics.show(&self.counts.metrics);
    }

    /// Bytes of memory that it takes: its weights, and the values of a full batch in each of its runners.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// When it answered last, or else when it was loaded.
    pub fn used(&self) -> SystemTime {
        self.statistics().last.unwrap_or(self.loaded)
    }

    /// Why it does not answer at present, if a batch of its was given up and none has come back since.
    pub fn stuck(&self) -> Option<String> {
        // A worker that is stuck is killed at once, a server left out; there is another one, ready, or trouble.
        let is_replaced = matches!(self.spec.source, Source::Worker(_) | Source::Upstream(_));
        let is_stuck = self.batcher.is_stuck() && !is_replaced;
        let why =
            || format!("a batch has not come back for {:.1} s and was given up", self.spec.stuck_after.as_secs_f64());
        let is_gone = self.batcher.is_gone();
        let gone = is_gone.then(|| "the task that batches has ended; this is a bug in uncork".to_owned());
        gone.or_else(|| is_stuck.then(why)).or_else(|| self.away.as_ref().and_then(Away::trouble))
    }

    /// What was asked for.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// How many requests have ended in each way since the start.
    pub fn totals(&self) -> [(Outcome, u64); Outcome::ALL.len()] {
        Outcome::ALL.map(|outcome| (outcome, self.counts.totals[outcome as usize].load(Ordering::Relaxed)))
    }

    /// Counts and times since the start, by request and by batch size.
    pub fn statistics(&self) -> Totals {
        self.counts.statistics.totals()
    }

    /// What waits and runs, what has been learned of the batch time, and what happened so far back.
    pub fn snapshot(&self, window: Window) -> Snapshot {
        self.journal.snapshot(self.batcher.now(), self.batcher.waits(), window)
    }

    /// Answers one request of any number of rows.
    ///
    /// Inputs and outputs have the model's own shapes. The terms begin when the request's head was in. A request of more than `max_batch_size` rows is split and its answer
    /// joined, in order. Dropping the future takes the request out of the queue.
    pub async fn infer(&self, inputs: Tensors, terms: Terms) -> Result<Answer, Error> {
        let own = terms.timeout();
        self.infer_within(inputs, terms, own).await
    }

    /// The same for a caller who set this time of his `own`, where the terms may have a shorter one.
    pub(crate) async fn infer_within(
        &self,
        inputs: Tensors,
        terms: Terms,
        own: Option<Duration>,
    ) -> Result<Answer, Error> {
        let (counts, arrival) = (Arc::clone(&self.counts), terms.arrival());
        let decoded = arrival.elapsed();
        let trace = terms.span().map(|span| span.trace);
        let ran_one_by_one = self.row_execution() == RowExecution::OneByOne && self.signature.rows(&inputs) > 1;
        let mut count = Count { counts, arrival, outcome: Outcome::Departed, stages: None, trace };
        self.copy(&inputs);
        match self.answer(inputs, terms).await {
            Ok(Answered { answer, queue, batch, batch_rows, batch_span }) => {
                let Outputs { tensors: outputs, stages: [assemble, execute], .. } = answer;
                count.outcome = Outcome::OnTime;
                count.stages = Some(Stages {
                    receive: Duration::ZERO,
                    decoded,
                    queue,
                    assemble,
                    execute,
                    outputs: arrival.elapsed(),
                });
                Ok(Answer { outputs, queue, batch, batch_rows, ran_one_by_one, batch_span, count })
            }
            Err(error) => {
                count.outcome = error.outcome();
                if let Some(shed) = error.shed() {
                    self.note_shed(shed, Some(error.clone()));
                } else if error.is_hopeless(own, self.spec.max_latency) {
                    count.outcome = Outcome::OwnDeadline;
                    self.journal.set_aside(self.batcher.now());
                }
                Err(error)
            }
        }
    }

    /// Outputs in the model's own shapes.
    pub(super) async fn answer(&self, inputs: Tensors, terms: Terms) -> Result<Inferred, Error> {
        let has_hooks = |hooks| hooks != Hooks::default();
        let has_hooks =
            has_hooks(self.spec.hooks.which()) || self.away.as_ref().is_some_and(|away| has_hooks(away.hooks()));
        let may_be_whole = self.takes_whole_requests && !has_hooks;
        let checked = if may_be_whole { self.signature.check_whole(inputs) } else { self.signature.check(inputs) };
        let inputs = checked.map_err(|e| Error::Invalid(e.to_string()))?;
        let mut answered = match may_be_whole && self.signature.is_whole(&inputs) {
            true => self.submit_whole(inputs, terms).await?,
            false if has_hooks => self.answer_hooked(inputs, terms).await?,
            false => self.answer_plain(inputs, terms).await?,
        };
        answered.answer = answered.answer.in_own_shapes(&self.signature);
        Ok(answered)
    }

    /// Outputs of a request that was kept whole, which is a run of its own.
    async fn submit_whole(&self, request: Tensors, terms: Terms) -> Result<Inferred, Error> {
        let (rows, cap) = (self.signature.longest(&request), self.spec.max_batch_rows.get());
        if rows > cap {
            let why =
                format!("the file must take {rows} rows of this request together: send at most {cap} (max_batch_size)");
            return Err(Error::Invalid(why));
        }
        self.submit(request, terms).await
    }

    /// Outputs of inputs that are as the model takes them.
    pub(super) async fn answer_plain(&self, inputs: Tensors, terms: Terms) -> Result<Inferred, Error> {
        let (rows, cap, bound) = (inputs.rows(), self.batcher.most_rows(), self.spec.max_queue_rows.get());
        if rows <= cap {
            return self.submit(inputs, terms).await;
        }
        if rows > bound {
            return Err(batcher::Error::TooLarge { size: rows, bound, unit: "rows" }.into());
        }
        let foreseen = self.batcher.foresee(rows, &terms)?;
        let whole = std::iter::repeat_n(cap, rows / cap);
        let sizes: Vec<usize> = whole.chain([rows % cap].into_iter().filter(|&rest| rest > 0)).collect();
        let parts = inputs.split(&sizes).map_err(|e| Error::Invalid(e.to_string()))?;
        // If one part is refused, dropping the others takes them out of the queue.
        let answers = try_join_all(parts.into_iter().map(|part| self.submit(part, terms))).await;
        let mut answers = answers.map_err(|error| match (&error, foreseen) {
            // The part says when it may come again, which is no use to the whole.
            (Error::Refused(batcher::Error::Late { .. }), Some(told)) => told.into(),
            _ => error,
        })?;
        let last = answers.iter().enumerate().max_by_key(|(_, a)| a.queue).map_or(0, |(i, _)| i);
        let Answered { answer: Outputs { stages: [assemble, execute], .. }, queue: released, batch_span, .. } =
            answers[last];
        // What the caller waited for: the first release, and then the last outputs.
        let queue = answers.iter().map(|a| a.queue).min().unwrap_or_default();
        let batch = answers.iter().map(|a| a.queue + a.batch).max().unwrap_or_default().saturating_sub(queue);
        let batch_rows = answers.iter().map(|a| a.batch_rows).max().unwrap_or_default();
        let stages = [assemble, execute + (released - queue)];
        // Each part agreed with the signature; only its free dimensions can differ from those of another.
        let differ =
            || "the answers to its rows have different lengths: send each row in a request of its own".to_owned();
        let parts = answers.drain(..).map(|part| part.answer.by_row()).collect::<Option<Vec<Tensors>>>();
        let outputs = parts.and_then(|parts| Tensors::join(parts).ok()).ok_or_else(|| Error::Invalid(differ()))?;
        let answer = Outputs::of_rows(outputs, stages);
        Ok(Answered { answer, queue, batch, batch_rows, batch_span })
    }

    /// Answers rows that fit into one batch.
    async fn submit(&self, rows: Tensors, terms: Terms) -> Result<Inferred, Error> {
        let Answered { answer, queue, batch, batch_rows, batch_span } = self.batcher.submit_with(rows, terms).await?;
        let Served { outcome, is_whole, assemble, execute } = answer;
        let tensors = outcome.map_err(|why| {
            let error = self.unserved(why);
            let (now, waited) = (self.batcher.now(), terms.arrival().elapsed());
            self.journal.unserved(now, waited, error == Error::ModelFailed);
            error
        })?;
        let answer = Outputs { tensors, is_whole, stages: [assemble, execute] };
        Ok(Answered { answer, queue, batch, batch_rows, batch_span })
    }

    /// Logs that a request has failed, unless several were a moment ago: a model of which all fail does not fill the disk.
    pub(crate) fn tell_failed(&self, what: impl fmt::Display) {
        let mut limit = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = limit.pass(tokio::time::Instant::now()) {
            tracing::error!(model = self.spec.name, version = self.spec.version, left_out, "{what}");
        }
    }

    /// What the caller of a request without outputs is told.
    pub(super) fn unserved(&self, why: Unserved) -> Error {
        match why {
            // Whoever takes any body has words of its own for a bad one.
            Unserved::Input(why) if opaque::is_opaque(&self.signature) => Error::Invalid(why),
            Unserved::Input(why) => Error::Invalid(format!("the model does not take these inputs: {why}")),
            Unserved::Untold => Error::Untold,
            Unserved::Failed(why) => {
                self.tell_failed(format_args!("a request failed: {}", on_lines(&why)));
                Error::ModelFailed
            }
            Unserved::Absent(why) => {
                tracing::debug!(
                    model = self.spec.name,
                    version = self.spec.version,
                    "a request was not answered: {why}"
                );
                Error::Absent
            }
        }
    }

    /// Rows that wait for it.
    pub(super) fn waiting(&self) -> usize {
        self.batcher.waits().rows
    }

    /// Counts what became of a copy that it was to get.
    pub(super) fn count_copy(&self, copied: Copied) {
        self.counts.metrics.copies[copied as usize].increment(1);
    }

    /// Counts a request for this model that could not even be read: `infer` counts every other.
    pub fn count_unreadable(&self) {
        self.counts.count(Outcome::Invalid);
    }

    /// Counts a request for this model whose body took too long to be unpacked.
    pub fn count_slow_body(&self) {
        self.note_shed(Shed::SlowBody, None);
        self.counts.count(Outcome::Shed);
    }

    /// Counts a request for this model that was refused unread, since it had waited too long for that.
    pub fn count_unread(&self) {
        self.note_shed(Shed::Unread, None);
        self.counts.count(Outcome::Shed);
    }

    /// Notes why a request is refused that no batcher refuses.
    pub(super) fn note_shed(&self, shed: Shed, told: Option<Error>) {
        self.counts.metrics.count_shed(shed, 1);
        self.journal.refused_apart(self.batcher.now(), shed, told);
    }

    /// Returns when nobody holds `model` any more.
    pub(super) async fn end(model: Arc<Model>) {
        let mut held = model.held.subscribe();
        drop(model);
        while held.changed().await.is_ok() {}
    }

    /// Takes no new request, answers all that wait, and returns when the last one is answered.
    pub(super) async fn drain(&self) {
        self.batcher.drain().await;
    }
}

/// A runner in the place of one that is lost, on the thread that is to own it.
fn anew(build: &Build, threads: NonZeroUsize, habits: &Habits) -> Result<Box<dyn Runner>, BatchError> {
    let mut built = build(threads).map_err(|error| BatchError::new(error.to_string()))?;
    load::ready(&mut *built, &habits.example);
    Ok(built)
}

/// What is asked for, where a batch is a single row.
fn single(spec: ModelSpec) -> ModelSpec {
    ModelSpec { max_batch_rows: NonZeroUsize::MIN, allowed_batch_sizes: BatchSizes::default(), ..spec }
}

/// What the metrics of a model need to know of it.
pub(super) fn limits(spec: &ModelSpec) -> Limits {
    Limits {
        max_latency_seconds: spec.max_latency.as_secs_f64(),
        max_batch_rows: spec.max_batch_rows.get(),
        max_queue_rows: spec.max_queue_rows.get(),
        max_queue_bytes: spec.max_queue_bytes.get(),
        runners: spec.runners.get(),
    }
}
