//! What a model takes of this machine's memory.

use std::path::Path;

use super::spec::{ModelSpec, Source};

/// Bytes of memory that the process has at present, where the system tells.
pub(super) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// What a model takes, by what the process had before and has now that it is loaded and warm. What else happens meanwhile is in
/// these numbers too, so a file's length is the least: its weights are in memory.
pub(super) fn taken(before: Option<u64>, spec: &ModelSpec) -> u64 {
    let grown = before.zip(resident()).map_or(0, |(before, now)| now.saturating_sub(before));
    grown.max(least(spec))
}

/// What a model takes at least, as far as that can be told before it is loaded.
pub(super) fn least(spec: &ModelSpec) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    match &spec.source {
        Source::Onnx(path) => length(path),
        _ => 0,
    }
}
