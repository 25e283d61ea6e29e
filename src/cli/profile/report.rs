//! What is printed: JSON for programs; a table, two plots and plain sentences for people.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use uncork_commands::layout::{grouped, ms, plural, table, wrap};
use uncork_commands::plot::{self, Marks};

use super::findings::{Advice, Curve, HAND_OVER, OFF, Point};
use crate::registry::{ModelSpec, Source};
use crate::runner::TensorSpec;
use crate::worker::Kind;

/// What stands for a point of the first, the second … number of threads.
const MARKS: [char; 6] = ['●', '○', '▲', '△', '■', '□'];
/// Lines of a plot; odd, so that one of them is in the middle.
const HEIGHT: usize = 13;

/// All that came of a profile.
pub(super) struct Report {
    pub(super) spec: ModelSpec,
    pub(super) inputs: Vec<TensorSpec>,
    /// The lengths that were chosen for free dimensions which nobody had set.
    pub(super) assumed: Option<Vec<usize>>,
    /// Why requests to the model share no batch, if they do not.
    pub(super) alone: Option<String>,
    pub(super) cores: usize,
    /// At least one.
    pub(super) curves: Vec<Curve>,
    pub(super) advice: Advice,
    pub(super) stopped: Option<String>,
}

impl Report {
    /// For people, in lines of `width` columns where that is possible.
    pub(super) fn text(&self, width: usize) -> String {
        let mut parts = vec![self.heading(), table(&self.table(), 0, width)];
        if let Some(slow) = self.plot_of_times(width) {
            parts.push(slow);
            parts.push(self.plot_of_rows(width));
        }
        parts.extend(self.sentences().iter().map(|sentence| wrap(sentence, width)));
        let (place, settings) = self.settings();
        parts.push(format!("{place}:\n\n{}", indented(&settings)));
        parts.join("\n\n")
    }

    /// What was measured.
    pub(super) fn heading(&self) -> String {
        let shape = |spec: &TensorSpec| {
            let dims = spec.wire_shape().into_iter().map(|n| if n < 0 { "n".to_owned() } else { n.to_string() });
            let dims: Vec<String> = dims.collect();
            format!("{} {} [{}]", spec.name, spec.datatype.name(), dims.join(", "))
        };
        let inputs: Vec<String> = self.inputs.iter().map(shape).collect();
        let device = match self.spec.device.name() {
            "flex" => plural(self.cores, "core"),
            other => other.to_owned(),
        };
        format!("{} on {device}: batches of n rows, {}", self.source(), inputs.join(", "))
    }

    fn source(&self) -> String {
        match &self.spec.source {
            Source::Onnx(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Source::Embedded => format!("{} (embedded)", self.spec.name),
            Source::Synthetic { .. }
            | Source::Runners(_)
            | Source::Remote(_)
            | Source::Worker(_)
            | Source::Upstream(_) => self.spec.name.clone(),
        }
    }

    /// A line of headings, and one for each size and number of threads.
    pub(super) fn table(&self) -> Vec<Vec<String>> {
        let headings = ["rows", "threads", "median ms", "p95 ms", "rows/s", "ms/row", "memory", "off the line"];
        let mut lines = vec![headings.map(str::to_owned).to_vec()];
        for i in 0..self.curves[0].points.len() {
            for curve in &self.curves {
                let point = &curve.points[i];
                lines.push(vec![
                    point.rows.to_string(),
                    curve.threads.to_string(),
                    digits(ms(point.median)),
                    digits(ms(point.p95)),
                    rate(point.throughput()),
                    digits(ms(point.median) / point.rows as f64),
                    point.memory.map_or("–".into(), |bytes| format!("{} MiB", bytes.div_ceil(1 << 20))),
                    format!("{:+.0} %", 100.0 * point.residual() + 0.0),
                ]);
            }
        }
        // Columns that say nothing are left out, the last one first.
        let known = self.curves.iter().flat_map(|curve| &curve.points).any(|point| point.memory.is_some());
        if !known {
            lines.iter_mut().for_each(|line| drop(line.remove(6)));
        }
        if !self.spec.source.heeds_threads() {
            lines.iter_mut().for_each(|line| drop(line.remove(1)));
        }
        lines
    }

    /// What the curve is called beside others: how many threads it is of, or no more than what it is, where that is not known.
    pub(super) fn label(&self, curve: &Curve) -> String {
        self.threads(curve).map_or_else(|| "as timed".into(), |threads| plural(threads, "thread"))
    }

    /// With how many threads it was measured, if that is known: not where they are the affair of a process or of another server.
    fn threads(&self, curve: &Curve) -> Option<usize> {
        self.spec.source.heeds_threads().then_some(curve.threads)
    }

    /// `with 2 threads `, or nothing.
    fn with_threads(&self, curve: &Curve) -> String {
        self.threads(curve).map_or_else(String::new, |threads| format!("with {} ", plural(threads, "thread")))
    }

    fn legend(&self) -> String {
        let mark = |(i, curve): (usize, &Curve)| format!("{} {}", MARKS[i % MARKS.len()], self.label(curve));
        self.curves.iter().enumerate().map(mark).collect::<Vec<_>>().join(", ")
    }

    fn marks(&self, y: impl Fn(&Point) -> f64) -> Vec<Marks> {
        let points = |curve: &Curve| curve.points.iter().map(|p| (p.rows as f64, y(p))).collect();
        let marks = self.curves.iter().enumerate();
        marks.map(|(i, curve)| Marks { mark: MARKS[i % MARKS.len()], points: points(curve) }).collect()
    }

    /// Times over sizes; nothing where there is one size only.
    fn plot_of_times(&self, width: usize) -> Option<String> {
        let right = self.curves[0].points.last().filter(|last| last.rows > 1)?.rows;
        let drawn: Vec<_> = self.curves.iter().map(|curve| curve.drawn(right)).collect();
        let lines: Vec<_> = drawn.iter().flat_map(|drawn| drawn.windows(2)).map(|ends| [ends[0], ends[1]]).collect();
        let fitted = match self.curves.iter().filter(|curve| curve.learned.is_curved()).count() {
            0 => "the fitted line",
            count if count == self.curves.len() => "the curve through them",
            _ => "the fitted line, or the curve",
        };
        let plane = plot::plane(&self.marks(|p| ms(p.median)), &lines, width, HEIGHT, digits);
        Some(format!("ms a batch, by its rows ({}, · {fitted})\n{plane}", self.legend()))
    }

    fn plot_of_rows(&self, width: usize) -> String {
        let plane = plot::plane(&self.marks(Point::served), &[], width, HEIGHT, rate);
        format!("rows a second as served, by the rows of a batch ({})\n{plane}", self.legend())
    }

    /// What it comes to, each a paragraph.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.alone.iter().map(|why| format!("Requests to the model share no batch: {why}.")));
        if let Some(lengths) = &self.assumed {
            let length = lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            all.push(format!("Free dimensions were taken as {length}; --length and --dim NAME=N set others."));
        }
        all.extend(self.stopped.clone());
        if self.spec.device.name() == "flex" {
            let most = self.curves.iter().filter_map(|curve| self.threads(curve)).max();
            all.extend(most.and_then(|threads| too_many(threads, self.cores)));
        }
        all.push(self.fit());
        all.push(self.batch_cap());
        all.push(self.latency_cap());
        all.extend(self.lower_caps());
        all.extend(self.runners());
        if !self.curves[0].points.iter().any(|point| point.memory.is_some()) {
            all.push(format!("How much memory a batch takes is not known: {}.", self.who_does_not_say()));
        }
        all
    }

    /// Why nothing is known of the memory.
    fn who_does_not_say(&self) -> &'static str {
        match &self.spec.source {
            Source::Worker(_) => "the model runs in a process of its own, which is not looked at",
            Source::Upstream(_) | Source::Remote(_) => "the model runs somewhere else, which does not say",
            _ => "this system does not say",
        }
    }

    /// The line of each number of threads, and the sizes that are not on it.
    fn fit(&self) -> String {
        let sentence = |curve: &Curve| {
            if !curve.fit.is_line() {
                return capitalized(format!(
                    "{}one size says nothing of others: there is no line.",
                    self.with_threads(curve)
                ));
            }
            let (base, per_row) = (curve.fit.base_seconds() * 1e3, curve.fit.per_row_seconds() * 1e3);
            let off = |p: &&Point| p.residual().abs() > OFF;
            let off = curve.points.iter().filter(off).map(|p| format!("{} ({:+.0} %)", p.rows, 100.0 * p.residual()));
            let off = match off.collect::<Vec<_>>() {
                off if off.is_empty() => "no size is more than 10 % off that".to_owned(),
                off => format!("more than 10 % off that: {} rows", off.join(", ")),
            };
            capitalized(format!(
                "{}n rows take {} + {}·n ms; {off}.{}",
                self.with_threads(curve),
                digits(base),
                digits(per_row),
                bent(curve)
            ))
        };
        self.curves.iter().map(sentence).collect::<Vec<_>>().join(" ")
    }

    fn curve(&self) -> &Curve {
        &self.curves[self.advice.curve]
    }

    fn batch_cap(&self) -> String {
        let (curve, Advice { max_batch_size, .. }) = (self.curve(), &self.advice);
        let (good, best) = (curve.good(), curve.best());
        let mut sentence = format!("max_batch_size = {max_batch_size}: {}that is ", self.with_threads(curve));
        // A list of sizes ends with the cap.
        let may_be_larger = curve.points.len() > 1 && self.stopped.is_none() && self.spec.allowed_batch_sizes.is_any();
        sentence += &match (good.rows == best.rows, curve.points.last() == Some(best)) {
            (false, _) => format!(
                "{} rows a second, {:.0} % of the most ({}, at {}), and the smallest size with 90 %: larger batches cost \
                 latency and memory and gain little",
                rate(good.served()),
                100.0 * good.served() / best.served(),
                rate(best.served()),
                plural(best.rows, "row")
            ),
            (true, true) if may_be_larger => format!(
                "the most, {} rows a second, and no smaller size comes near; even larger batches may gain more, which \
                 --max-batch-size would show",
                rate(best.served())
            ),
            (true, _) => format!("the most, {} rows a second", rate(best.served())),
        };
        // Worth a word where it makes a difference.
        let hand_over = HAND_OVER.as_secs_f64() > 0.02 * good.median.as_secs_f64();
        if hand_over {
            sentence += &format!(" (counting {} ms for each batch's way to its runner and back)", ms(HAND_OVER));
        }
        sentence + "."
    }

    fn latency_cap(&self) -> String {
        let Advice { max_latency_ms, least_latency_ms, .. } = self.advice;
        let good = self.curve().good();
        format!(
            "max_latency_ms = {max_latency_ms}: four such batches of {} ms (the 95th percentile), since a request may find \
             one running and one waiting before it rides in its own, and the machine has its moments; at these caps one \
             runner answers {} rows a second in time. {least_latency_ms} would do where latency matters more: one to wait \
             for, one to ride in.",
            digits(ms(good.p95)),
            rate(good.served()),
        )
    }

    /// What half of each cap would cost.
    fn lower_caps(&self) -> Option<String> {
        let (curve, good) = (self.curve(), self.curve().good());
        let loss = |point: &Point| 100.0 * (1.0 - point.served() / good.served()).max(0.0);
        let smaller = curve.at_most(good.rows / 2)?;
        let half = self.advice.least_latency_ms / 2.0;
        let sooner = match curve.within(Duration::from_secs_f64(half / 1e3), good.rows) {
            Some(point) => {
                format!(
                    "leaves time for batches of {}, {:.0} % fewer rows a second",
                    plural(point.rows, "row"),
                    loss(point)
                )
            }
            None => "leaves no time for a batch: nothing could be promised".to_owned(),
        };
        Some(format!(
            "Lower caps cost capacity: max_batch_size = {} takes {:.0} % of it and makes a batch {} ms instead of {}; \
             max_latency_ms = {half} {sooner}.",
            smaller.rows,
            loss(smaller),
            digits(ms(smaller.median)),
            digits(ms(good.median)),
        ))
    }

    /// Whether several runners of fewer threads could do more.
    fn runners(&self) -> Option<String> {
        let (few, good) = (&self.curves[0], self.curve().good());
        let one = few.good();
        let runners = self.cores / few.threads;
        let together = one.served() * runners as f64;
        let better = runners > 1
            && self.threads(few).is_some()
            && self.spec.device.name() == "flex"
            && together > good.served() * 1.1;
        better.then(|| {
            format!(
                "runners = {runners} with threads = {} might do more: one of them runs {} rows a second in batches of {}, \
                 {runners} at most {}, less what they take from each other.",
                few.threads,
                rate(one.served()),
                one.rows,
                rate(together),
            )
        })
    }

    /// The settings, and where they are to be made.
    pub(super) fn settings(&self) -> (&'static str, String) {
        match self.toml() {
            Some(toml) => ("In uncork.toml", toml),
            None => {
                let Advice { max_batch_size, max_latency_ms, .. } = self.advice;
                let threads = self.own_threads().map_or(String::new(), |n| format!("UNCORK_THREADS={n} "));
                let flags = format!("--max-latency-ms {max_latency_ms} --max-batch-size {max_batch_size}");
                ("On the command line", format!("{threads}uncork serve {flags}"))
            }
        }
    }

    /// A number of threads that a server would not take by itself.
    fn own_threads(&self) -> Option<usize> {
        let threads = self.threads(self.curve())?;
        (self.spec.device.name() == "flex" && threads != self.cores).then_some(threads)
    }

    /// What to write into a configuration file; the embedded model needs none.
    fn toml(&self) -> Option<String> {
        let Advice { max_batch_size, max_latency_ms, .. } = self.advice;
        let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut lines = vec!["[[model]]".to_owned(), format!("name = {}", text(&self.spec.name))];
        match &self.spec.source {
            Source::Onnx(path) => lines.push(format!("path = {}", text(&shown(path)))),
            Source::Synthetic { base, per_row } => {
                lines.push(format!("synthetic = {{ base_ms = {:?}, per_row_ms = {:?} }}", ms(*base), ms(*per_row)));
            }
            Source::Worker(program) => match (&program.kind, &program.target) {
                (Kind::Python, Some(target)) => lines.push(format!("python = {}", text(target))),
                (Kind::Isolated(path), _) => {
                    lines.push(format!("path = {}", text(&shown(path))));
                    lines.push("isolation = \"process\"".into());
                }
                _ => {
                    let words: Vec<_> = program.command.iter().map(|word| text(word)).collect();
                    lines.push(format!("command = [{}]", words.join(", ")));
                }
            },
            Source::Upstream(settings) => {
                let servers: Vec<_> = settings.servers.iter().map(|server| text(&server.to_string())).collect();
                lines.push(format!("upstream = [{}]", servers.join(", ")));
            }
            Source::Embedded | Source::Runners(_) | Source::Remote(_) => return None,
        }
        lines.push(format!("max_latency_ms = {max_latency_ms}"));
        lines.push(format!("max_batch_size = {max_batch_size}"));
        let sizes = self.spec.allowed_batch_sizes.iter().take_while(|&size| size <= max_batch_size);
        let sizes: Vec<String> = sizes.map(|size| size.to_string()).collect();
        if !sizes.is_empty() {
            lines.push(format!("allowed_batch_sizes = [{}]", sizes.join(", ")));
        }
        lines.extend(self.own_threads().map(|n| format!("threads = {n}")));
        if self.spec.device.name() != "flex" {
            lines.push(format!("device = {}", text(self.spec.device.name())));
        }
        Some(lines.join("\n"))
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let input = |spec: &TensorSpec| json!({"name": &*spec.name, "datatype": spec.datatype.name(), "shape": spec.wire_shape()});
        let point = |point: &Point| {
            json!({
                "rows": point.rows,
                "batches": point.batches,
                "median_ms": ms(point.median),
                "p95_ms": ms(point.p95),
                "rows_per_s": point.throughput(),
                "ms_per_row": ms(point.median) / point.rows as f64,
                "memory_bytes": point.memory,
                "predicted_ms": ms(point.predicted),
                "residual": point.residual(),
            })
        };
        let curve = |curve: &Curve| {
            json!({
                "threads": self.threads(curve),
                "base_ms": curve.fit.base_seconds() * 1e3,
                "per_row_ms": curve.fit.per_row_seconds() * 1e3,
                "curve": curve.learned.is_curved().then(|| curve.drawn(curve.points.last().map_or(1, |last| last.rows))),
                "sizes": curve.points.iter().map(point).collect::<Vec<_>>(),
            })
        };
        let Advice { max_batch_size, max_latency_ms, least_latency_ms, .. } = self.advice;
        json!({
            "model": self.spec.name,
            "device": self.spec.device.name(),
            "cores": self.cores,
            "inputs": self.inputs.iter().map(input).collect::<Vec<_>>(),
            "curves": self.curves.iter().map(curve).collect::<Vec<_>>(),
            "stopped": self.stopped,
            "advice": {
                "threads": self.threads(self.curve()),
                "max_batch_size": max_batch_size,
                "max_latency_ms": max_latency_ms,
                "least_latency_ms": least_latency_ms,
                "rows_per_s": self.curve().good().served(),
            },
            "sentences": self.sentences(),
            "toml": self.toml(),
        })
    }
}

/// What is to be said of so many threads on a machine with so many cores.
fn too_many(threads: usize, cores: usize) -> Option<String> {
    (threads > cores).then(|| {
        format!("This machine has only {}, for {}: they take turns.", plural(cores, "core"), plural(threads, "thread"))
    })
}

/// As a sentence begins. A lone letter that counts rows stays as it is.
fn capitalized(sentence: String) -> String {
    match sentence.split_at_checked(1) {
        Some((first, rest)) if !rest.starts_with(' ') => first.to_uppercase() + rest,
        _ => sentence,
    }
}

/// What follows where the times are no line; nothing where they are.
fn bent(curve: &Curve) -> String {
    let Some(largest) = curve.points.last().filter(|_| curve.learned.is_curved()) else { return String::new() };
    let ends = curve.learned.faster_size(largest.rows).map_or(String::new(), |rows| {
        format!("; it ends batches at {}, which make more rows a second than larger ones", plural(rows, "row"))
    });
    format!(" That is no line: the server goes by a curve through what each size took{ends}.")
}

/// Rows a second: `1,234`, `12.3`
pub(in crate::cli) fn rate(x: f64) -> String {
    if x < 99.5 { digits(x) } else { grouped(x.round() as u64) }
}

/// Three digits that say something: `0.00123`, `1.23`, `12.3`, `123`, `1234`.
pub(in crate::cli) fn digits(x: f64) -> String {
    if x <= 0.0 {
        return "0".into();
    }
    let places = (2 - x.log10().floor() as i32).clamp(0, 6) as usize;
    format!("{x:.places$}")
}

/// A path seen from the working folder, where it is in there.
fn shown(path: &Path) -> String {
    let folder = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_the_machine_has_cores_are_told() {
        let told = "This machine has only 2 cores, for 99 threads: they take turns.";
        assert_eq!(too_many(99, 2).as_deref(), Some(told));
        assert_eq!(too_many(2, 2), None);
    }
}
