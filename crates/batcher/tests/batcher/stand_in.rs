//! An executor whose batches take affine virtual time, and which remembers them.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use uncork_batcher::{BatchError, Batcher, Builder, Caps, Executor, Ran};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A batch of n items takes `base + n * per_row`; item x is answered with x + 1.
#[derive(Clone)]
pub(crate) struct StandIn {
    pub(crate) base: Duration,
    pub(crate) per_row: Duration,
    /// How much later than it is done a batch is heard of.
    pub(crate) heard_after: Duration,
    /// Batches that never come back, counted from the first.
    pub(crate) hangs: usize,
    /// When batches start that take so many times their due, counted from the stand-in's making.
    pub(crate) slow: (Range<Duration>, u32),
    pub(crate) made: Instant,
    pub(crate) log: Arc<Mutex<Log>>,
}

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) batches: Vec<Vec<u64>>,
    /// Rows of each rehearsal.
    pub(crate) rehearsals: Vec<usize>,
    pub(crate) running: usize,
    pub(crate) most_running: usize,
}

impl StandIn {
    pub(crate) fn new(base: Duration, per_row: Duration) -> StandIn {
        StandIn {
            base,
            per_row,
            heard_after: ms(0),
            hangs: 0,
            slow: (ms(0)..ms(0), 1),
            made: Instant::now(),
            log: Arc::default(),
        }
    }

    pub(crate) fn batches(&self) -> Vec<Vec<u64>> {
        self.log.lock().expect("no test panics with it").batches.clone()
    }

    pub(crate) fn time(&self, rows: usize) -> Duration {
        self.base + self.per_row * rows as u32
    }

    /// Batches timed beforehand, as a server has them after its warm-up.
    pub(crate) fn warm(&self) -> Vec<(usize, Duration)> {
        [1, 2, 4, 8, 16, 32, 64, 128].iter().flat_map(|&n| [(n, self.time(n)); 3]).collect()
    }

    pub(crate) fn start(&self, max_latency: Duration, max_batch: usize) -> Batcher<u64, u64> {
        self.builder(max_latency, max_batch).start(self.clone())
    }

    pub(crate) fn builder(&self, max_latency: Duration, max_batch: usize) -> Builder<u64, u64> {
        Batcher::builder(Caps::new(max_latency, max_batch))
    }
}

impl Executor<u64, u64> for StandIn {
    fn execute(&mut self, _ticket: u64, batch: Vec<u64>) -> BoxFuture<'static, Result<Ran<u64>, BatchError>> {
        let mut time = self.time(batch.len());
        let mut log = self.log.lock().expect("no test panics with it");
        if self.slow.0.contains(&self.made.elapsed()) {
            time *= self.slow.1;
        }
        log.batches.push(batch.clone());
        log.running += 1;
        log.most_running = log.most_running.max(log.running);
        let (hangs, late, log) = (log.batches.len() <= self.hangs, self.heard_after, Arc::clone(&self.log));
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(time + late).await;
            log.lock().expect("no test panics with it").running -= 1;
            let answers = batch.into_iter().map(|x| x + 1).collect();
            Ok(Ran { answers, took: Some(time), is_typical: true })
        }
        .boxed()
    }

    fn rehearse(&mut self, _ticket: u64, rows: usize) -> BoxFuture<'static, Result<Ran<u64>, BatchError>> {
        let is_slow = self.slow.0.contains(&self.made.elapsed());
        let time = self.time(rows) * if is_slow { self.slow.1 } else { 1 };
        self.log.lock().expect("no test panics with it").rehearsals.push(rows);
        async move {
            tokio::time::sleep(time).await;
            Ok(Vec::new().into())
        }
        .boxed()
    }
}

/// How one item fared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fate {
    pub(crate) item: u64,
    pub(crate) answered: bool,
    pub(crate) took: Duration,
}

/// Submits item i at `times[i]` after now, each by a task of its own, and waits for all.
pub(crate) async fn submit_at(batcher: &Batcher<u64, u64>, times: &[Duration]) -> Vec<Fate> {
    let start = Instant::now();
    let tasks: Vec<_> = (0u64..)
        .zip(times)
        .map(|(item, &at)| {
            let batcher = batcher.clone();
            tokio::spawn(async move {
                tokio::time::sleep_until(start + at).await;
                let arrival = Instant::now();
                let answer = batcher.submit(item).await;
                if let Ok(answer) = &answer {
                    assert_eq!(*answer, item + 1, "another caller's answer");
                }
                Fate { item, answered: answer.is_ok(), took: arrival.elapsed() }
            })
        })
        .collect();
    let mut fates = Vec::new();
    for task in tasks {
        fates.push(task.await.expect("no submitter panics"));
    }
    fates
}

pub(crate) fn answered(fates: &[Fate]) -> usize {
    fates.iter().filter(|f| f.answered).count()
}
