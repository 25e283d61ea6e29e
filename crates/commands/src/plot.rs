//! Plots for a terminal: lines of small bars, and points in a plane.

use uncork_sim::{Outcome, Slot};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const DEFAULT_WIDTH: usize = 80;

/// Columns of the terminal that stdout is, or 80.
pub fn terminal_width() -> usize {
    let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0));
    width.clamp(40, 200)
}

/// The share of requests answered on time, by the time of their arrival, in `columns` bars: full height is all of them, a
/// blank is a time without requests.
pub fn on_time(outcome: &Outcome, columns: usize) -> String {
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
pub fn latencies(outcome: &Outcome, longest: f64, columns: usize) -> String {
    let within = |column: usize| {
        outcome.share_within(std::time::Duration::from_secs_f64(longest * column as f64 / columns as f64))
    };
    let edges: Vec<f64> = (0..=columns).map(within).collect();
    bars(&edges.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>())
}

/// A bar for each value, the largest of full height; next to nothing is a blank.
fn bars(values: &[f64]) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: &f64| match value / most {
        height if height < 0.005 => ' ',
        height => BARS[((height * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    values.iter().map(bar).collect()
}

/// Points of one kind in a plane.
pub struct Marks {
    /// What stands for a point.
    pub mark: char,
    /// Where the points are; neither coordinate is negative.
    pub points: Vec<(f64, f64)>,
}

/// Points in a plane, and lines given by their ends, in `width` columns and `height` lines. Both axes begin at 0, and the
/// axis of x is in whole numbers; `y` writes a height.
///
/// Points that come first are drawn over those that come later, and lines below them all.
pub fn plane(
    marks: &[Marks],
    lines: &[[(f64, f64); 2]],
    width: usize,
    height: usize,
    y: impl Fn(f64) -> String,
) -> String {
    let all = || marks.iter().flat_map(|marks| &marks.points).chain(lines.iter().flatten());
    let right = all().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
    let top = all().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let labels = [top, top / 2.0, 0.0].map(&y);
    let label_width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let columns = width.saturating_sub(label_width + 2).max(20);
    let mut cells = vec![vec![' '; columns]; height];
    let mut put = |(x, y): (f64, f64), mark: char| {
        let column = (x / right * (columns - 1) as f64).round() as usize;
        let row = height - 1 - (y / top * (height - 1) as f64).round() as usize;
        cells[row.min(height - 1)][column.min(columns - 1)] = mark;
    };
    for [from, to] in lines {
        for step in 0..=columns {
            let part = step as f64 / columns as f64;
            put((from.0 + part * (to.0 - from.0), from.1 + part * (to.1 - from.1)), '·');
        }
    }
    for Marks { mark, points } in marks.iter().rev() {
        points.iter().for_each(|&point| put(point, *mark));
    }
    let line = |(row, cells): (usize, Vec<char>)| {
        let label = match row {
            0 => Some(&labels[0]),
            row if row == (height - 1) / 2 => Some(&labels[1]),
            row if row == height - 1 => Some(&labels[2]),
            _ => None,
        };
        let edge = if label.is_some() { '┤' } else { '│' };
        let text: String = cells.into_iter().collect();
        format!("{:>label_width$} {edge}{}", label.map_or("", String::as_str), text.trim_end())
    };
    let mut text: Vec<String> = cells.into_iter().enumerate().map(line).collect();
    text.push(format!("{:label_width$} └{}", "", "─".repeat(columns)));
    let last = format!("{right:.0}");
    text.push(format!("{:label_width$}  0{last:>rest$}", "", rest = columns - 1));
    text.join("\n")
}
