//! Everything that can be told of a model's file: what is in it, how it would be served, and how fast.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use uncork_commands::layout::{grouped, ms, plural, wrap};

use super::tensor_json;
use crate::cli::profile::findings::{self, Advice, Curve};
use crate::cli::profile::inputs::Inputs;
use crate::cli::profile::report::{digits, rate};
use crate::cli::profile::{self, measure};
use crate::onnx::{Described, Survey, Used};
use crate::quote::{QuotedPlace, on_one_line, shown};
use crate::registry::{self, Loaded, ModelSpec, RowExecution, Source};
use crate::runner::{Rows, TensorSpec};

/// Kinds of operators that are named; the rest are counted.
const NAMED: usize = 12;

/// Most bytes of a name that are told.
const MOST_NAME: usize = 40;

/// What was found out.
pub(super) struct Findings {
    file: String,
    /// What the file says of itself, or why that cannot be read.
    survey: Result<Survey, String>,
    /// How it would be served, or why it cannot be.
    served: Result<Served, String>,
}

/// A model that can be served.
struct Served {
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    /// Why requests share no batch, if they do not.
    alone: Option<String>,
    /// How the rows of a request are run.
    rows: RowExecution,
    /// The lengths that were taken for free dimensions.
    assumed: Option<Vec<usize>>,
    /// Bytes that the values of one row have at most at one time: counted, not measured, and the same each time.
    row_bytes: u64,
    speed: Result<Speed, String>,
}

/// How fast it is.
struct Speed {
    curve: Curve,
    advice: Advice,
    stopped: Option<String>,
}

impl Findings {
    /// Looks at a file, loads it and times it, for as long as `budget`. It is an error to give a length to what has none free.
    pub(super) fn of(path: &Path, spec: &ModelSpec, budget: Duration) -> Result<Findings, String> {
        let survey = Survey::open(path).map_err(|e| e.to_string());
        // Nothing can be loaded of what cannot be read.
        let served = match &survey {
            Ok(_) => registry::load(spec),
            Err(reason) => Err(reason.clone()),
        };
        if let Ok(loaded) = &served {
            profile::check_length(spec, &Inputs::of(loaded))?;
        }
        let served = served.map(|loaded| Served::of(&loaded, spec, budget));
        // The file is named once, in the first line.
        let named = match &spec.source {
            Source::Onnx(path) => format!("{}: ", path.display()),
            _ => String::new(),
        };
        let served = served.map_err(|reason| reason.strip_prefix(&named).unwrap_or(&reason).to_owned());
        Ok(Findings { file: shown(path), survey, served })
    }

    /// Whether it can be served.
    pub(super) fn good(&self) -> bool {
        self.served.is_ok()
    }

    /// For people, in lines of `width` columns where that is possible.
    pub(super) fn text(&self, width: usize) -> String {
        let mut lines: Vec<(&str, String)> = Vec::new();
        if let Ok(survey) = &self.survey {
            lines.push(("written", written(survey)));
            lines.push(("operators", operators(survey)));
            let missing: Vec<String> = survey.missing().map(missing).collect();
            if !missing.is_empty() {
                lines.push(("missing", missing.join(", ")));
            }
            lines.push(("weights", weights(survey)));
        }
        match (&self.served, &self.survey) {
            (Ok(served), _) => lines.extend(served.lines()),
            (Err(_), Ok(survey)) => {
                lines.extend(survey.inputs.iter().map(|input| ("input", declared(input))));
                lines.extend(survey.outputs.iter().map(|output| ("output", declared(output))));
            }
            (Err(_), Err(_)) => {}
        }
        let verdict = match &self.served {
            Ok(_) => format!("{}: can be served", self.file),
            Err(reason) => {
                lines.push(("reason", reason.clone()));
                format!("{}: cannot be served", self.file)
            }
        };
        let indented = |(title, text): (&str, String)| {
            let text = wrap(&text, width.saturating_sub(INDENT).max(40));
            format!("  {title:<width$}{}", text.replace('\n', &format!("\n{:INDENT$}", "")), width = INDENT - 2)
        };
        [vec![verdict], lines.into_iter().map(indented).collect()].concat().join("\n")
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let mut all = json!({ "file": self.file, "servable": self.good() });
        if let Ok(survey) = &self.survey {
            let operator = |used: &Used| json!({ "name": used.name, "count": used.count, "supported": used.known, "first_node": used.node });
            all["producer"] = json!(survey.producer);
            all["opset"] = json!(survey.opset);
            all["domains"] = survey.domains.iter().map(|(domain, version)| (domain.clone(), json!(version))).collect();
            all["nodes"] = json!(survey.nodes());
            all["operators"] = survey.operators.iter().map(operator).collect();
            all["missing"] = survey.missing().map(|used| json!(used.name)).collect();
            all["declared_inputs"] = survey.inputs.iter().map(declared_json).collect();
            all["declared_outputs"] = survey.outputs.iter().map(declared_json).collect();
            all["weights"] = json!({ "tensors": survey.weights, "bytes": survey.weight_bytes });
        }
        match &self.served {
            Ok(served) => served.add_to(&mut all),
            Err(reason) => all["reason"] = json!(reason),
        }
        all
    }
}

/// Columns that the lines' titles take.
const INDENT: usize = 13;

impl Served {
    fn of(loaded: &Loaded, spec: &ModelSpec, budget: Duration) -> Served {
        let inputs = Inputs::of(loaded);
        Served {
            inputs: loaded.signature.inputs.clone(),
            outputs: loaded.signature.outputs.clone(),
            alone: loaded.alone.clone(),
            rows: RowExecution::of(&loaded.signature, loaded.alone.is_none()),
            assumed: inputs.assumed.clone().filter(|_| spec.shapes.length.is_none()),
            row_bytes: loaded.row_bytes(),
            speed: Speed::of(loaded, &inputs, spec, budget),
        }
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<(&str, String)> = Vec::new();
        lines.extend(self.inputs.iter().map(|input| ("input", tensor(input))));
        lines.extend(self.outputs.iter().map(|output| ("output", tensor(output))));
        lines.push((
            "rows",
            match (self.rows, &self.alone) {
                (RowExecution::Batched, _) => "share a batch: rows alone and together gave the same answers".to_owned(),
                (RowExecution::Whole, None) => "each request runs whole".to_owned(),
                (RowExecution::Whole, Some(why)) => format!("each request runs whole: {why}"),
                (RowExecution::OneByOne, why) => format!("run one by one: {}", why.as_deref().unwrap_or_default()),
            },
        ));
        if let Some(lengths) = &self.assumed {
            let length = lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            lines.push((
                "lengths",
                format!("free dimensions were timed as {length}; --length and --dim NAME=N set others"),
            ));
        }
        lines.extend(self.memory().map(|memory| ("memory", memory)));
        match &self.speed {
            Ok(speed) => lines.extend(speed.lines()),
            Err(reason) => lines.push(("speed", format!("not measured: {reason}"))),
        }
        lines
    }

    /// `about 10.1 KiB of values for each row of a batch`
    fn memory(&self) -> Option<String> {
        let bytes = Some(self.row_bytes).filter(|&bytes| bytes > 0).map(size)?;
        Some(match self.rows != RowExecution::Batched {
            true => format!("about {bytes} of values at one time"),
            false => format!("about {bytes} of values for each row of a batch"),
        })
    }

    fn add_to(&self, all: &mut Value) {
        all["inputs"] = self.inputs.iter().map(tensor_json).collect();
        all["outputs"] = self.outputs.iter().map(tensor_json).collect();
        all["rows"] = json!(self.rows.label());
        all["why_one_at_a_time"] = json!(self.alone);
        all["assumed_lengths"] = json!(self.assumed);
        all["bytes_per_row"] = json!(Some(self.row_bytes).filter(|&bytes| bytes > 0));
        match &self.speed {
            Ok(speed) => speed.add_to(all),
            Err(reason) => all["not_measured"] = json!(reason),
        }
    }
}

impl Speed {
    fn of(loaded: &Loaded, inputs: &Inputs, spec: &ModelSpec, budget: Duration) -> Result<Speed, String> {
        let largest = if loaded.alone.is_some() || loaded.is_single { 1 } else { spec.max_batch_rows.get() };
        let powers = (0..usize::BITS - 1).map(|i| 1usize << i).take_while(|&rows| rows < largest);
        let sizes: Vec<usize> = powers.chain([largest]).collect();
        let threads: [NonZeroUsize; 1] = [spec.threads];
        let measured = measure::measure(loaded, inputs, &sizes, &threads, budget)?;
        let curves = findings::curves(&measured);
        let advice = findings::advise(&curves);
        let curve = curves.into_iter().next().ok_or("nothing was timed")?;
        Ok(Speed { curve, advice, stopped: measured.stopped })
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let (curve, best) = (&self.curve, self.curve.best());
        let mut speed = format!("with {} ", plural(curve.threads, "thread"));
        if let Some(one) = curve.points.first() {
            speed += &format!("one row takes {} ms", digits(ms(one.median)));
        }
        if best.rows > 1 {
            speed += &format!(
                "; in batches of {} a row takes {} ms: {} rows a second, the most",
                best.rows,
                digits(ms(best.median) / best.rows as f64),
                rate(best.served())
            );
        }
        let Advice { max_batch_size, max_latency_ms, least_latency_ms, .. } = self.advice;
        let caps = format!(
            "max_batch_size = {max_batch_size} with max_latency_ms = {max_latency_ms} answers {} rows a second in time; below \
             max_latency_ms = {least_latency_ms} there are fewer. These are short measurements: `uncork profile` takes its time",
            rate(curve.good().served()),
        );
        let mut lines = vec![("speed", speed), ("caps", caps)];
        lines.extend(self.stopped.clone().map(|why| ("note", why)));
        lines
    }

    fn add_to(&self, all: &mut Value) {
        let best = self.curve.best();
        let points = self.curve.points.iter().map(
            |point| json!({ "rows": point.rows, "median_ms": ms(point.median), "rows_per_second": point.throughput() }),
        );
        all["speed"] = json!({
            "threads": self.curve.threads,
            "sizes": points.collect::<Vec<_>>(),
            "best_rows": best.rows,
            "best_rows_per_second": best.served(),
        });
        all["suggested"] = json!({
            "max_batch_size": self.advice.max_batch_size,
            "max_latency_ms": self.advice.max_latency_ms,
        });
    }
}

/// A name that the file gives, as it goes into a line.
fn cut(name: &str) -> String {
    on_one_line(name, MOST_NAME)
}

/// `by pytorch 2.4.0 for opset 17, com.microsoft 1`
fn written(survey: &Survey) -> String {
    let by = if survey.producer.is_empty() { String::new() } else { format!("by {} ", cut(&survey.producer)) };
    // Optimisers declare every domain that they know.
    let used = |domain: &str| survey.operators.iter().any(|used| used.name.starts_with(&format!("{domain}::")));
    let domains = survey.domains.iter().filter(|(domain, _)| used(domain));
    let domains: String = domains.map(|(domain, version)| format!(", {} {version}", cut(domain))).collect();
    format!("{by}for opset {}{domains}", survey.opset)
}

/// `122 nodes of 9 kinds: Conv 53, Relu 49, …`
fn operators(survey: &Survey) -> String {
    let named = survey.operators.iter().take(NAMED).map(|used| format!("{} {}", cut(&used.name), used.count));
    let named: Vec<String> = named.collect();
    let more = survey.operators.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "{} of {}: {}{more}",
        plural(survey.nodes(), "node"),
        plural(survey.operators.len(), "kind"),
        named.join(", ")
    )
}

/// `com.example::Whiten (2 nodes, the first of them 'white')`
fn missing(used: &Used) -> String {
    match used.count {
        1 => format!("{} (node {})", cut(&used.name), QuotedPlace(&used.node)),
        count => format!("{} ({count} nodes, the first of them {})", cut(&used.name), QuotedPlace(&used.node)),
    }
}

/// `x FP32 [n, 3, ?]`
fn tensor(spec: &TensorSpec) -> String {
    let mut dims: Vec<String> = spec.dims.iter().map(|dim| dim.map_or("?".to_owned(), |n| n.to_string())).collect();
    if let Rows::Axis(axis) = spec.rows {
        dims.insert(axis.min(dims.len()), "n".to_owned());
    }
    format!("{} {} [{}]", cut(&spec.name), spec.datatype.name(), dims.join(", "))
}

/// `x FP32 [batch, 3, 224]`, as the file has it.
fn declared(tensor: &Described) -> String {
    let kind = tensor.datatype.map_or("of another type", |datatype| datatype.name());
    let dims = match &tensor.dims {
        Some(dims) => {
            let dims = dims.iter().map(|dim| match dim {
                Ok(length) => length.to_string(),
                Err(name) if name.is_empty() => "?".to_owned(),
                Err(name) => cut(name),
            });
            format!("[{}]", dims.collect::<Vec<_>>().join(", "))
        }
        None => "of no declared shape".to_owned(),
    };
    format!("{} {kind} {dims}, as declared", cut(&tensor.name))
}

fn declared_json(tensor: &Described) -> Value {
    let dim = |dim: &Result<u64, String>| match dim {
        Ok(length) => json!(length),
        Err(name) => json!(name),
    };
    let dims = tensor.dims.as_ref().map(|dims| dims.iter().map(dim).collect::<Vec<_>>());
    json!({ "name": tensor.name, "datatype": tensor.datatype.map(|datatype| datatype.name()), "shape": dims })
}

/// `98.2 MiB in 161 tensors`
fn weights(survey: &Survey) -> String {
    format!("{} in {}", size(survey.weight_bytes), plural(survey.weights, "tensor"))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{} MiB", grouped(bytes.div_ceil(1 << 20))),
    }
}
