//! Batches of a model: on a runner's thread, or away, where answers come later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::{AbortHandle, JoinError};

use super::away::Away;
use super::course::{Course, Manner, Next, Outcome};
use super::load;
use crate::batcher::{BatchError, Executor, Ran, Work};
use crate::metrics::ModelMetrics;
use crate::runner::Runner;
use crate::tensor::Tensors;

/// What became of one request of a batch.
#[derive(Debug, PartialEq)]
pub(super) struct Served {
    /// What it gets.
    pub(super) outcome: Outcome,
    /// Whether it was run whole: its outputs are those of [`Signature::whole_shapes`](crate::runner::Signature::whole_shapes).
    pub(super) is_whole: bool,
    /// The batch's time beside the model's.
    pub(super) assemble: Duration,
    /// The model's time for the batch.
    pub(super) execute: Duration,
}

/// What all runners of a model do in the same way.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    pub(super) manner: Arc<Manner>,
    pub(super) metrics: ModelMetrics,
    /// A row that the model takes, to rehearse with.
    pub(super) example: Tensors,
}

impl Habits {
    /// What is said of a batch whose every request has its outcome.
    fn ran(&self, course: &Course, outcomes: Vec<Outcome>, took: Duration) -> Ran<Served> {
        let tally = course.tally();
        self.metrics.request_elements.increment(tally.elements as u64);
        self.metrics.padding_elements.increment(tally.padding as u64);
        let (execute, assemble) = (tally.execute, took.saturating_sub(tally.execute));
        let served = |(place, outcome)| Served { outcome, is_whole: course.is_whole(place), assemble, execute };
        let answers = outcomes.into_iter().enumerate().map(served).collect();
        Ran { answers, took: Some(took), is_typical: !tally.has_refused }
    }
}

/// A runner on a thread of its own.
pub(super) struct Desk {
    /// Has run a row already.
    pub(super) runner: Box<dyn Runner>,
    pub(super) habits: Habits,
}

impl Work<Tensors, Served> for Desk {
    fn run(&mut self, requests: Vec<Tensors>) -> Result<Ran<Served>, BatchError> {
        let begin = Instant::now();
        let mut course = Course::new(Arc::clone(&self.habits.manner), requests)?;
        loop {
            match course.next()? {
                Next::Run(batch) => {
                    let begin = Instant::now();
                    let outputs = self.runner.run(batch);
                    course.ran(outputs, begin.elapsed())?;
                }
                Next::Done(outcomes) => return Ok(self.habits.ran(&course, outcomes, begin.elapsed())),
            }
        }
    }

    fn rehearse(&mut self, rows: usize) -> Result<(), BatchError> {
        load::rehearse(&mut *self.runner, &self.habits.example, rows).map(drop).map_err(BatchError::new)
    }
}

/// A runner that is somewhere else, and has as many batches at once as the batcher sends.
pub(super) struct Fleet {
    pub(super) away: Away,
    pub(super) habits: Habits,
    /// Batches that have not come back, by ticket.
    pub(super) out: HashMap<u64, AbortHandle>,
}

impl Fleet {
    /// Has something done where the runner's futures run.
    fn send(
        &mut self,
        ticket: u64,
        run: impl Future<Output = Result<Ran<Served>, BatchError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<Ran<Served>, BatchError>> {
        let task = self.away.spawn(run);
        self.out.retain(|_, task| !task.is_finished());
        self.out.insert(ticket, task.abort_handle());
        task.map(|back| back.unwrap_or_else(|error| Err(lost(&error)))).boxed()
    }
}

impl Executor<Tensors, Served> for Fleet {
    fn execute(&mut self, ticket: u64, requests: Vec<Tensors>) -> BoxFuture<'static, Result<Ran<Served>, BatchError>> {
        let (away, habits) = (self.away.clone(), self.habits.clone());
        self.send(ticket, async move {
            away.ready().await;
            let begin = Instant::now();
            let mut course = Course::new(Arc::clone(&habits.manner), requests)?;
            loop {
                match course.next()? {
                    Next::Run(batch) => {
                        let begin = Instant::now();
                        let outputs = away.run(batch).await;
                        course.ran(outputs, begin.elapsed())?;
                    }
                    Next::Done(outcomes) => return Ok(habits.ran(&course, outcomes, begin.elapsed())),
                }
            }
        })
    }

    fn rehearse(&mut self, ticket: u64, rows: usize) -> BoxFuture<'static, Result<Ran<Served>, BatchError>> {
        let (away, habits) = (self.away.clone(), self.habits.clone());
        self.send(ticket, async move {
            // One that is just being replaced says nothing of what it could do.
            away.ready().await;
            let begin = Instant::now();
            let batch = habits.example.resize_rows(rows).map_err(|error| BatchError::new(error.to_string()))?;
            let outputs = away.rehearse(batch).await.map_err(|error| BatchError::new(error.to_string()))?;
            if let Some(why) = load::others(&habits.manner.signature, &outputs, rows) {
                return Err(BatchError::new(why));
            }
            Ok(Ran { took: Some(begin.elapsed()), ..Vec::new().into() })
        })
    }

    fn give_up(&mut self, ticket: u64, _is_replaced: bool) {
        if let Some(task) = self.out.remove(&ticket) {
            task.abort();
        }
    }
}

/// Why a batch has no end.
fn lost(error: &JoinError) -> BatchError {
    BatchError::new(if error.is_panic() { "the runner panicked" } else { "it was broken off" })
}
