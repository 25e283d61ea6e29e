//! The flags about when requests arrive.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arrivals::{Asked, Varying};
use crate::simulate::trace;
use crate::simulate::values::{self, RATE, number, time};
use crate::values::count;
use uncork_loadtest::{ClosedLoad, Due, Load, OpenLoad, Pace, Shape, Times, short};
use uncork_sim::Process;

/// Rows of a request in a trace: as many as any server takes.
const MOST_ROWS: usize = 65_536;
/// Length of a run where nothing is said.
const USUAL_LENGTH: Duration = Duration::from_secs(10);

/// The flags about arrivals.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Requests a second
    #[arg(long, alias = "poisson", value_name = "R", value_parser = number(RATE), allow_hyphen_values = true)]
    pub(super) rate: Option<f64>,

    /// With --rate: poisson, uniform, gamma[:CV], or a FILE with an arrival in seconds a line [default: poisson]
    ///
    /// poisson: independent arrivals. uniform: equal gaps. gamma: clumps, CV (4) being the standard deviation of the gaps
    /// over their mean. FILE: as `uncork simulate` takes it, - for stdin; it needs no --rate, and is played faster or slower with one.
    #[arg(long, value_name = "KIND", verbatim_doc_comment)]
    arrivals: Option<String>,

    /// Rates by time, ramps and steps: RATE:TIME or FROM..TO:TIME, with commas between them
    #[arg(long, value_name = "RATE:TIME,…", value_delimiter = ',', value_parser = stretch, allow_hyphen_values = true)]
    schedule: Vec<(f64, f64, Duration)>,

    #[command(flatten)]
    varying: Varying,

    /// No schedule, but N callers that each wait for an answer before they ask again
    #[arg(long, value_name = "N", value_parser = values::callers(), allow_hyphen_values = true)]
    closed_loop: Option<usize>,

    /// With --closed-loop: time from an answer to the caller's next request [default: 0]
    #[arg(long, value_name = "T", value_parser = values::think(), allow_hyphen_values = true)]
    think_ms: Option<Duration>,

    /// How long requests are sent and measured, as in 30s or 2m [default: 10s, or the length of the file or schedule]
    #[arg(long = "for", alias = "duration", value_name = "TIME", value_parser = time(0.1..=86_400.0), allow_hyphen_values = true)]
    length: Option<Duration>,

    /// Time before that, at the rate of its begin, that is left out of the figures
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    #[arg(value_parser = time(0.0..=3600.0))]
    warm_up: Duration,

    /// Rows of each request: a number, or a range of equally likely ones as in 1..8
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::rows, allow_hyphen_values = true)]
    #[arg(conflicts_with = "body")]
    rows: std::ops::RangeInclusive<usize>,

    /// Seeds arrivals and bodies: the same seed gives the same requests at the same times
    #[arg(long, value_name = "S", default_value = "1", value_parser = values::seed, allow_hyphen_values = true)]
    pub(super) seed: u64,
}

/// A load, and what it is called.
pub(super) struct Arriving {
    pub(super) load: Load,
    /// Its arrivals, as in `Poisson arrivals`.
    pub(super) words: String,
    /// Requests a second, if there is one number for it.
    pub(super) rate: Option<f64>,
    /// How long it is to be at most, where that was said: a trace is shorter at a higher rate.
    pub(super) most: Option<Duration>,
}

impl Flags {
    /// The load that the flags ask for; `usual_rate` is that of a search that names none.
    ///
    /// # Errors
    /// What is wrong with them, or with the file.
    pub(super) fn load(&self, usual_rate: Option<f64>) -> Result<Arriving, String> {
        let own = [("--schedule", !self.schedule.is_empty()), ("--closed-loop", self.closed_loop.is_some())];
        let own = own.into_iter().chain(self.varying.given());
        let given: Vec<&str> = own.filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect();
        let is_schedule = given == ["--schedule"];
        match given[..] {
            [] => {}
            [flag] if self.rate.is_some() => return Err(format!("{flag} has rates of its own; leave --rate out")),
            [flag] if self.arrivals.is_some() && !is_schedule => {
                return Err(format!("{flag} says how requests arrive; leave --arrivals out"));
            }
            [_] => {}
            [one, other, ..] => return Err(format!("{one} and {other} exclude each other; leave one out")),
        }
        if self.think_ms.is_some() && self.closed_loop.is_none() {
            return Err("--think-ms goes with --closed-loop only; leave it out".into());
        }
        if let Some(callers) = self.closed_loop {
            return Ok(self.closed(callers));
        }
        let (times, words, rate) = if is_schedule { self.scheduled()? } else { self.times(usual_rate)? };
        let known = times.length();
        let length = match (self.length, known) {
            (Some(length), Some(known)) => length.min(known),
            (length, known) => length.or(known).unwrap_or(USUAL_LENGTH),
        };
        let load = OpenLoad { times, rows: self.rows.clone(), warm_up: self.warm_up, length, seed: self.seed };
        load.check()?;
        Ok(Arriving { load: Load::Open(load), words, rate, most: self.length })
    }

    fn closed(&self, callers: usize) -> Arriving {
        let (think, length) = (self.think_ms.unwrap_or_default(), self.length.unwrap_or(USUAL_LENGTH));
        let think_words = if think.is_zero() { String::new() } else { format!(" that think for {think:?}") };
        let (rows, warm_up, seed) = (self.rows.clone(), self.warm_up, self.seed);
        Arriving {
            load: Load::Closed(ClosedLoad { callers, think, rows, warm_up, length, seed }),
            words: format!("{callers} callers in a closed loop{think_words}"),
            rate: None,
            most: None,
        }
    }

    fn scheduled(&self) -> Result<(Times, String, Option<f64>), String> {
        let (shape, words) = match self.arrivals.as_deref().map(kind).transpose()? {
            None | Some(Kind::Shape(Shape::Poisson)) => (Shape::Poisson, "Poisson arrivals"),
            Some(Kind::Shape(Shape::Uniform)) => (Shape::Uniform, "equal gaps"),
            Some(Kind::Shape(shape)) => (shape, "clumps"),
            Some(Kind::File(_)) => {
                return Err("--schedule and a file of arrivals exclude each other; leave one out".into());
            }
        };
        Ok((Times::Paced(shape, Pace::new(&self.schedule)), format!("{words} by a schedule"), None))
    }

    /// Everything else.
    fn times(&self, usual_rate: Option<f64>) -> Result<(Times, String, Option<f64>), String> {
        let length = self.length.unwrap_or(USUAL_LENGTH);
        if let Some(Asked { process, words, .. }) = self.varying.process(length)? {
            return Ok((Times::Process(process), words, None));
        }
        let kind = self.arrivals.as_deref().map(kind).transpose()?.unwrap_or(Kind::Shape(Shape::Poisson));
        let rate = self.rate.or(usual_rate);
        if let Kind::File(path) = kind {
            let times = file(&path)?;
            let words = format!("the arrivals of {}", shown(&path));
            return match rate {
                Some(rate) => Ok((times.at_rate(rate)?, words, Some(rate))),
                None => Ok((times, words, None)),
            };
        }
        let rate = rate.ok_or("--rate is missing: requests a second, as in --rate 2000 (or --closed-loop 64)")?;
        let (process, words) = match kind {
            Kind::Shape(Shape::Uniform) => (Process::Uniform { rate }, "equal gaps".to_owned()),
            Kind::Shape(Shape::Gamma(cv)) => (Process::Gamma { rate, cv }, format!("clumps of CV {cv}")),
            _ => (Process::Poisson { rate }, "Poisson arrivals".to_owned()),
        };
        Ok((Times::Process(process), words, Some(rate)))
    }
}

/// What `--arrivals` asks for.
enum Kind {
    Shape(Shape),
    File(PathBuf),
}

fn kind(text: &str) -> Result<Kind, String> {
    let (name, after) = text.split_once(':').map_or((text, None), |(name, after)| (name, Some(after)));
    match (name, after) {
        ("poisson", None) => Ok(Kind::Shape(Shape::Poisson)),
        ("uniform", None) => Ok(Kind::Shape(Shape::Uniform)),
        ("gamma", cv) => {
            let cv = cv.map_or(Ok(4.0), values::cv()).map_err(|why| format!("--arrivals {text}: the CV {why}"))?;
            Ok(Kind::Shape(Shape::Gamma(cv)))
        }
        _ if text == "-" || Path::new(text).exists() => Ok(Kind::File(text.into())),
        _ => Err(format!("--arrivals {text}: is neither poisson, uniform nor gamma[:CV], and there is no such file")),
    }
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "stdin".into() } else { path.display().to_string() }
}

fn file(path: &Path) -> Result<Times, String> {
    let arrivals = trace::read(path, &shown(path), MOST_ROWS)?;
    let first = arrivals.first().map_or(0, |first| first.at.as_nanos());
    // Time stamps may count from anywhere; a run begins with its first request.
    let due = |nanos: u64, rows| Due { at: Duration::from_nanos(nanos.saturating_sub(first)), rows };
    Ok(Times::Trace(arrivals.iter().map(|arrival| due(arrival.at.as_nanos(), arrival.rows)).collect()))
}

/// `500:10s`, `100..2000:30s`
fn stretch(text: &str) -> Result<(f64, f64, Duration), String> {
    let (rates, length) = text.split_once(':').ok_or("must be rates with their times, as in 500:10s,500..2000:30s")?;
    let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
    let rate = |text: &str| number(0.0..=*RATE.end())(text).map_err(|why| format!("the rate '{text}' {why}"));
    let length = time(0.001..=86_400.0)(length).map_err(|why| format!("the time '{length}' {why}"))?;
    Ok((rate(from)?, rate(to)?, length))
}

/// Two rates, the lower first: `500..20000`.
pub(super) fn range(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text.split_once("..").ok_or("must be two rates, such as 500..20000")?;
    let (low, high) = (number(RATE)(low)?, number(RATE)(high)?);
    if low < high { Ok((low, high)) } else { Err(format!("must rise: {} is not below {}", short(low), short(high))) }
}

/// Numbers of trials of a sweep.
pub(super) fn steps() -> impl crate::values::Reader<usize> {
    count(2..=100)
}
