//! Two reports beside one another: what changed, and whether that is more than chance.
//!
//! Requests of one moment share its queue, so they say the same thing many times. What is compared is therefore the stretches of
//! the two timelines: by the Mann-Whitney test, which asks nothing of their distribution.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};
use uncork_loadtest::short;

use crate::layout::{table, wrap};

/// A difference is told as one where chance alone makes one as large in fewer cases than this.
const CHANCE: f64 = 0.01;
/// With fewer stretches of a timeline on a side, no difference is told from chance.
const LEAST_STRETCHES: usize = 8;

/// What is read of a report: what `--json` wrote.
#[derive(Debug, Deserialize)]
struct Written {
    verdict_line: String,
    asked: String,
    arrivals: String,
    url: String,
    #[serde(default)]
    made: Option<Made>,
    requests: f64,
    good: f64,
    refused: f64,
    errors: Errors,
    offered_per_second: f64,
    answers_per_second: f64,
    latency_ms: Latency,
    mean_batch_rows: Option<f64>,
    timeline: Vec<Stretch>,
}

#[derive(Debug, Deserialize)]
struct Made {
    at: String,
    version: String,
    host: String,
}

#[derive(Debug, Deserialize)]
struct Errors {
    all: f64,
}

#[derive(Debug, Deserialize)]
struct Latency {
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p99_9: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Stretch {
    /// How long it was; 0 in reports of before that was said.
    #[serde(default)]
    seconds: f64,
    from_second: f64,
    due: f64,
    good: f64,
    refused: f64,
    failed: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// A figure of a report, or of a stretch of its timeline.
type Of<'a, T> = &'a dyn Fn(&T) -> Option<f64>;

/// Says what changed from the report in `a` to the one in `b`.
pub(super) fn compare(a: &Path, b: &Path, width: usize) -> Result<String, String> {
    let (before, after) = (read(a)?, read(b)?);
    let mut parts = vec![format!("A  {}\nB  {}", heading(a, &before), heading(b, &after))];
    if (&before.asked, &before.arrivals) != (&after.asked, &after.arrivals) {
        parts.push(wrap(
            "The two were not asked the same, or not in the same way: differences may come from that.",
            width,
        ));
    }
    parts.push(table(&lines(&before, &after), 1, width));
    let stretches = before.timeline.len().min(after.timeline.len());
    parts.push(wrap(
        &match stretches < LEAST_STRETCHES {
            true => format!(
                "No difference is told from chance: that takes {LEAST_STRETCHES} stretches of a timeline on each side, and one has {stretches}."
            ),
            false => format!(
                "* in fewer than {} of 100 cases chance alone makes such a difference between the timelines of the two (Mann-Whitney).",
                short(CHANCE * 100.0)
            ),
        },
        width,
    ));
    parts.push(format!("A  {}\nB  {}", before.verdict_line, after.verdict_line));
    Ok(parts.join("\n\n"))
}

fn read(file: &Path) -> Result<Written, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let read: Result<Written, _> = serde_json::from_str(&text);
    let mut written = read.map_err(|error| format!("{} is no report of --json: {error}", file.display()))?;
    let each = written.timeline.get(1).map_or(1.0, |second| second.from_second);
    written.timeline.iter_mut().filter(|stretch| stretch.seconds == 0.0).for_each(|stretch| stretch.seconds = each);
    Ok(written)
}

fn heading(file: &Path, written: &Written) -> String {
    let made = written
        .made
        .as_ref()
        .map_or(String::new(), |made| format!(", {} on {} by uncork {}", made.at, made.host, made.version));
    format!("{}: {} at {}, {}{made}", file.display(), written.asked, written.url, written.arrivals)
}

fn lines(before: &Written, after: &Written) -> Vec<Vec<String>> {
    let mut lines = vec![["", "A", "B", "change", ""].map(str::to_owned).to_vec()];
    let mut add = |name: &str, of: Of<'_, Written>, unit: Unit, each: Option<Of<'_, Stretch>>| {
        let (a, b) = (of(before), of(after));
        let mark = each.is_some_and(|each| differ(&stretches(before, each), &stretches(after, each)));
        lines.push(vec![
            name.to_owned(),
            unit.text(a),
            unit.text(b),
            unit.change(a, b),
            if mark { "*" } else { "" }.to_owned(),
        ]);
    };
    let share = |part: f64, all: f64| (all > 0.0).then(|| part / all);
    add("requests a second", &|w| Some(w.offered_per_second), Unit::Number, Some(&|s| Some(s.due / s.seconds)));
    add("good answers a second", &|w| Some(w.answers_per_second), Unit::Number, Some(&|s| Some(s.good / s.seconds)));
    add("answered well", &|w| share(w.good, w.requests), Unit::Share, Some(&|s| share(s.good, s.due)));
    add("refused", &|w| share(w.refused, w.requests), Unit::Share, Some(&|s| share(s.refused, s.due)));
    add("errors", &|w| share(w.errors.all, w.requests), Unit::Share, Some(&|s| share(s.failed, s.due)));
    add("p50 ms", &|w| w.latency_ms.p50, Unit::Number, Some(&|s| s.p50_ms));
    add("p90 ms", &|w| w.latency_ms.p90, Unit::Number, None);
    add("p99 ms", &|w| w.latency_ms.p99, Unit::Number, Some(&|s| s.p99_ms));
    add("p99.9 ms", &|w| w.latency_ms.p99_9, Unit::Number, None);
    add("rows of a batch", &|w| w.mean_batch_rows, Unit::Number, None);
    lines
}

fn stretches(written: &Written, each: Of<'_, Stretch>) -> Vec<f64> {
    // One that was cut short says less than the others.
    let whole = written.timeline.first().map_or(0.0, |first| first.seconds);
    written.timeline.iter().filter(|stretch| stretch.seconds >= 0.99 * whole).filter_map(each).collect()
}

/// Whether two samples differ by more than chance.
fn differ(a: &[f64], b: &[f64]) -> bool {
    if a.len() < LEAST_STRETCHES || b.len() < LEAST_STRETCHES {
        return false;
    }
    let test = mannwhitneyu(a, b, MannWhitneyUMethod::AsymptoticInclContinuityCorrection, Alternative::TwoSided);
    // Where all values are one, nothing differs, and nothing can be computed.
    test.is_ok_and(|(_, p)| p < CHANCE)
}

#[derive(Clone, Copy)]
enum Unit {
    Number,
    Share,
}

impl Unit {
    fn text(self, value: Option<f64>) -> String {
        match (value, self) {
            (None, _) => "–".to_owned(),
            (Some(value), Unit::Number) => short(value),
            (Some(value), Unit::Share) => format!("{:.2} %", value * 100.0),
        }
    }

    /// In the unit's own terms: shares differ by points, numbers by a part of the first.
    fn change(self, a: Option<f64>, b: Option<f64>) -> String {
        match (a.zip(b), self) {
            (None, _) => "–".to_owned(),
            (Some((a, b)), Unit::Share) => format!("{:+.2} points", (b - a) * 100.0),
            (Some((0.0, _)), Unit::Number) => "–".to_owned(),
            (Some((a, b)), Unit::Number) => format!("{:+.1} %", (b / a - 1.0) * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(from: f64) -> Vec<f64> {
        (0..20).map(|i| from + f64::from(i % 5)).collect()
    }

    #[test]
    fn timelines_that_overlap_do_not_differ_and_those_apart_do() {
        assert!(!differ(&spread(10.0), &spread(10.0)));
        assert!(!differ(&spread(10.0), &spread(10.3)));
        assert!(differ(&spread(10.0), &spread(13.0)));
        assert!(differ(&spread(13.0), &spread(10.0)));
    }

    #[test]
    fn too_few_stretches_or_equal_ones_tell_nothing() {
        assert!(!differ(&[1.0; 7], &spread(10.0)));
        assert!(!differ(&[1.0; 20], &[1.0; 20]));
        assert!(differ(&[1.0; 20], &[2.0; 20]));
    }

    #[test]
    fn shares_differ_by_points_and_numbers_by_parts() {
        assert_eq!(Unit::Share.change(Some(0.5), Some(0.25)), "-25.00 points");
        assert_eq!(Unit::Number.change(Some(10.0), Some(12.5)), "+25.0 %");
        assert_eq!(Unit::Number.change(Some(0.0), Some(1.0)), "–");
        assert_eq!(Unit::Number.change(None, Some(1.0)), "–");
    }
}
