//! Tries many generated graphs, and says what was found.

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::graphs;

/// Findings that are enough to stop at.
const ENOUGH: usize = 5;

/// Tries the graphs of these seeds; fails if one is answered in two ways.
pub(crate) fn run(seeds: Range<u64>) -> ExitCode {
    let start = Instant::now();
    let (mut shown, count) = (start, seeds.end.saturating_sub(seeds.start));
    let outcome = graphs::search(seeds, ENOUGH, |outcome| {
        if shown.elapsed() > Duration::from_secs(10) {
            shown = Instant::now();
            eprintln!("{} of {count} graphs, {} findings", outcome.graphs, outcome.findings.len());
        }
    });
    outcome.findings.iter().for_each(|finding| println!("{finding}"));
    println!(
        "{} graphs of {:.1} nodes in {:.0?}, {} of them refused: {} are answered in two ways",
        outcome.graphs,
        outcome.nodes as f64 / outcome.graphs.max(1) as f64,
        start.elapsed(),
        outcome.refused,
        outcome.findings.len()
    );
    if outcome.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
