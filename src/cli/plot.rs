//! Lines of small bars for a terminal.

use crate::sim::{Outcome, Slot};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const DEFAULT_WIDTH: usize = 80;

/// Columns of the terminal that stdout is, or 80.
pub(super) fn terminal_width() -> usize {
    let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0));
    width.clamp(40, 200)
}

/// The share of requests answered on time, by the time of their arrival, in `columns` bars: full height is all of them, a
/// blank is a time without requests.
pub(super) fn on_time(outcome: &Outcome, columns: usize) -> String {
    let slots = outcome.timeline.slots();
    let last = slots.len().max(1);
    let bar = |column: usize| {
        let from = column * last / columns;
        let slots = slots.iter().take(((column + 1) * last / columns).max(from + 1)).skip(from);
        let sum =
            slots.fold(Slot::default(), |a, b| Slot { offered: a.offered + b.offered, on_time: a.on_time + b.on_time });
        match sum.offered {
            0 => ' ',
            offered => BARS[(sum.on_time as f64 / offered as f64 * 7.0).floor() as usize],
        }
    };
    (0..columns).map(bar).collect()
}

/// How often answers took how long, in `columns` bars from 0 to `longest` seconds; the most frequent has full height.
pub(super) fn latencies(outcome: &Outcome, longest: f64, columns: usize) -> String {
    let within = |column: usize| {
        outcome.share_within(std::time::Duration::from_secs_f64(longest * column as f64 / columns as f64))
    };
    let edges: Vec<f64> = (0..=columns).map(within).collect();
    let shares: Vec<f64> = edges.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let most = shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |share: &f64| match share / most {
        height if height < 0.005 => ' ',
        height => BARS[((height * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    shares.iter().map(bar).collect()
}
