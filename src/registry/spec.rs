//! What is asked for when a model is to be served: the validated form of a `[[model]]` table.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::lengths::Lengths;
use crate::batcher::BatchSizes;

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The digits model that is part of the program.
    Embedded,
    /// An ONNX file.
    Onnx(PathBuf),
    /// A stand-in whose batch of n rows takes `base + n * per_row`.
    Synthetic {
        /// Time of an empty batch.
        base: Duration,
        /// Time that each row adds.
        per_row: Duration,
    },
}

/// One model to be served.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// The name that callers use.
    pub name: String,
    /// A decimal string.
    pub version: String,
    /// Where it comes from.
    pub source: Source,
    /// Cap on the time from arrival to answer. Lower: fewer requests are kept under load, all of them sooner.
    pub max_latency: Duration,
    /// Cap on the rows of a batch. Lower: less memory, and less throughput where a batch costs much however small it is.
    pub max_batch_rows: NonZeroUsize,
    /// The sizes of batches that it runs, each batch being padded to the next one; the largest is `max_batch_rows`.
    pub allowed_batch_sizes: BatchSizes,
    /// What becomes of requests of different lengths that share a batch.
    pub lengths: Lengths,
    /// The pool that it shares with the other models that name it; `None` for a pool of its own.
    pub pool: Option<String>,
    /// Its part of the pool's runner time when its models want more than there is, in proportion to the others'.
    pub weight: NonZeroUsize,
    /// Batches that may run at once, each on a thread of its own; of all models together in a shared pool, where it is the
    /// same for each of them.
    pub runners: NonZeroUsize,
    /// Threads that one runner computes with.
    pub threads: NonZeroUsize,
    /// Most rows that wait.
    pub max_queue_rows: NonZeroUsize,
    /// Most bytes of tensor data that wait.
    pub max_queue_bytes: NonZeroUsize,
}
