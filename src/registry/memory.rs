//! What a model takes of this machine's memory: sums over its tensors, the same whatever else happens in the process.

use std::path::Path;

use super::spec::{ModelSpec, Source};
use crate::runner::Signature;
use crate::tensor::Tensors;

/// Most bytes that count for the values of a full batch in one runner. A batch that has more of them takes longer than most latency caps
/// allow, so that a full one is never run.
const MOST_IN_BATCH: u64 = 256 << 20;

/// What a runner takes beside: its threads, and the buffers that they keep. By measuring, equal small models take 3 to 12 MB each.
const OF_RUNNER: u64 = 2 << 20;

/// What is known of a model's memory, in bytes; nothing of one that the program builds itself or that runs somewhere else.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Takes {
    /// Its weights, which its runners share.
    pub(crate) held: u64,
    /// What the values of a row take in a runner.
    pub(crate) of_row: u64,
}

impl Takes {
    /// All of it, with so many rows at a time in each runner. Its file's length is the least.
    pub(super) fn in_all(self, spec: &ModelSpec, rows: usize) -> u64 {
        let (rows, runners) = (rows as u64, spec.runners.get() as u64);
        let of_batch = self.of_row.saturating_mul(rows).min(MOST_IN_BATCH.max(self.of_row));
        let of_runners = if self.of_row == 0 { 0 } else { of_batch.saturating_add(OF_RUNNER).saturating_mul(runners) };
        self.held.saturating_add(of_runners).max(least(spec))
    }
}

/// What a model takes at least, as far as that can be told before it is loaded.
pub(super) fn least(spec: &ModelSpec) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    match &spec.source {
        Source::Onnx(path) => length(path),
        _ => 0,
    }
}

/// Says with which lengths a row was counted, where it may have others.
pub(super) fn log(takes: Takes, spec: &ModelSpec, signature: &Signature, example: &Tensors) {
    if let Some(lengths) = assumed(signature, example).filter(|_| takes.of_row > 0) {
        let (model, version) = (&spec.name, &spec.version);
        tracing::info!(model, version, "its memory is counted with {lengths}: longer rows take more");
    }
}

/// The lengths of such a row, as `ids [16], mask [16]`.
fn assumed(signature: &Signature, example: &Tensors) -> Option<String> {
    let inputs = signature.inputs.iter().zip(example.iter());
    let free = inputs.filter(|(spec, _)| spec.dims.contains(&None));
    let lengths: Vec<_> = free.map(|(spec, (_, row))| format!("{} {:?}", spec.name, &row.shape()[1..])).collect();
    (!lengths.is_empty()).then(|| lengths.join(", "))
}
