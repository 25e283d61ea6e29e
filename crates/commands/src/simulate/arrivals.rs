//! The flags about arrivals: a file, a process, or clients that wait for their answers.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::load::{Load, Stretch, Times, Words};
use super::trace;
use super::values::{self, LENGTH, RATE};
use crate::arrivals::{Asked, Varying};
use uncork_core::policy::Priority;
use uncork_sim::{Process, Variety};

/// The flags about arrivals.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    kind: Kind,

    /// How long requests arrive: seconds, or with a unit as in 30s and 2m
    #[arg(long = "for", value_name = "S", value_parser = values::time(LENGTH), allow_hyphen_values = true)]
    #[arg(required_unless_present_any = ["arrivals", "scenario"], conflicts_with_all = ["arrivals", "scenario"])]
    length: Option<Duration>,

    /// With --gamma: standard deviation of the gaps over their mean [default: 4]
    #[arg(long, value_name = "C", value_parser = values::cv(), allow_hyphen_values = true)]
    #[arg(conflicts_with = "scenario")]
    cv: Option<f64>,

    /// With --closed-loop: time from an answer, or a refusal, to the client's next request
    #[arg(long, value_name = "T", value_parser = values::think(), allow_hyphen_values = true)]
    #[arg(conflicts_with = "scenario")]
    think_ms: Option<Duration>,

    /// With --closed-loop: σ of log-normal noise on that time [default: 0]
    #[arg(long, value_name = "SIGMA", value_parser = values::up_to_one(), allow_hyphen_values = true)]
    #[arg(conflicts_with = "scenario")]
    think_jitter: Option<f64>,

    /// Rows of each request: a number, or a range of equally likely ones as in 1..8 [default: 1]
    #[arg(long, value_name = "N", value_parser = values::rows, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["arrivals", "scenario"])]
    rows: Option<RangeInclusive<usize>>,

    /// A share of the requests is due within MS, as in 0.1:15; may be given several times
    #[arg(long, value_name = "SHARE:MS", allow_hyphen_values = true)]
    #[arg(value_parser = values::pair(values::up_to_one(), values::max_latency()))]
    #[arg(conflicts_with_all = ["arrivals", "scenario"])]
    hurried: Vec<(f64, Duration)>,

    /// A share of the requests has priority 1, before all others
    #[arg(long, value_name = "SHARE", value_parser = values::up_to_one(), allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["arrivals", "scenario"])]
    urgent: Option<f64>,
}

/// All kinds: clap leaves a group empty in which flags of another struct are.
const KINDS: [&str; 12] = [
    "arrivals",
    "scenario",
    "poisson",
    "uniform",
    "gamma",
    "mmpp",
    "flash",
    "diurnal",
    "quiet_then_burst",
    "fan_out",
    "closed_loop",
    "_rate",
];

/// Exactly one of them.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false, args = KINDS)]
struct Kind {
    /// A file with an arrival in seconds a line, perhaps with rows, deadline and priority; - for stdin
    #[arg(long, value_name = "FILE")]
    arrivals: Option<PathBuf>,

    /// A file that says everything: several models that share the runners, or loads that flags cannot describe
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,

    /// Independent arrivals, R a second
    #[arg(long, value_name = "R", value_parser = values::number(RATE), allow_hyphen_values = true)]
    poisson: Option<f64>,

    /// Equal gaps, R a second
    #[arg(long, value_name = "R", value_parser = values::number(RATE), allow_hyphen_values = true)]
    uniform: Option<f64>,

    /// Clumps: gamma-distributed gaps, R a second, with --cv
    #[arg(long, value_name = "R", value_parser = values::number(RATE), allow_hyphen_values = true)]
    gamma: Option<f64>,

    #[command(flatten)]
    varying: Varying,

    /// N clients that wait for an answer, think for --think-ms, and ask again
    #[arg(long, value_name = "N", value_parser = values::callers(), allow_hyphen_values = true)]
    closed_loop: Option<usize>,

    #[arg(long = "rate", hide = true, value_name = "R", value_parser = values::no_rate, allow_hyphen_values = true)]
    _rate: Option<std::convert::Infallible>,
}

impl Flags {
    /// The scenario file, if that is what they ask for.
    pub(super) fn scenario(&self) -> Option<&Path> {
        self.kind.scenario.as_deref()
    }

    /// The load that they ask for, of a model with these caps.
    ///
    /// # Errors
    /// What is wrong with them, or with the file.
    pub(super) fn load(self, (max_latency, max_batch): (Duration, usize), seed: u64) -> Result<Load, String> {
        // clap lets an argument go without the one it requires where that one is excluded by a third.
        let (gamma, clients) = (self.kind.gamma.is_some(), self.kind.closed_loop.is_some());
        for (is_set, flag, kind_is_set, kind) in [
            (self.cv.is_some(), "--cv", gamma, "--gamma"),
            (self.think_ms.is_some(), "--think-ms", clients, "--closed-loop"),
            (self.think_jitter.is_some(), "--think-jitter", clients, "--closed-loop"),
        ] {
            if is_set && !kind_is_set {
                return Err(format!("{flag} goes with {kind} only; leave it out"));
            }
        }
        if let Some(file) = self.kind.arrivals {
            let shown = if file == Path::new("-") { "stdin".into() } else { file.display().to_string() };
            return trace::read(&file, &shown, max_batch).map(|arrivals| Load::Trace(arrivals.into()));
        }
        let variety = variety(self.rows, self.hurried, self.urgent, max_latency, max_batch)?;
        // clap asks for it wherever there is no file.
        let length = self.length.unwrap_or_default();
        let (flag, load) = if let Some(clients) = self.kind.closed_loop {
            let think = self.think_ms.ok_or("--closed-loop needs --think-ms, 0 for clients that do not think")?;
            let jitter = self.think_jitter.unwrap_or(0.0);
            ("--closed-loop", Load::Clients { clients, think, jitter, length, variety, seed })
        } else {
            let (flag, process) = process(self.kind, self.cv.unwrap_or(4.0), length)?;
            let times = Times::Process(process);
            (flag, Load::Stretches(vec![Stretch { times, length, variety, seed }]))
        };
        load.check(max_latency, &Words { load: flag, length: "--for", max_latency: "--max-latency-ms" })?;
        Ok(load)
    }
}

fn variety(
    rows: Option<RangeInclusive<usize>>,
    hurried: Vec<(f64, Duration)>,
    urgent: Option<f64>,
    max_latency: Duration,
    max_batch: usize,
) -> Result<Variety, String> {
    let rows = rows.unwrap_or(1..=1);
    if *rows.end() > max_batch {
        let most = rows.end();
        return Err(format!("--rows {most}: {most} rows do not fit into a batch of at most {max_batch}"));
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if let Some((share, own)) = hurried.iter().find(|(_, own)| *own >= max_latency) {
        let (own, cap) = (ms(*own), ms(max_latency));
        return Err(format!("--hurried {share}:{own}: must be less than --max-latency-ms {cap}"));
    }
    let shares: f64 = hurried.iter().map(|(share, _)| share).sum();
    if shares > 1.0 + 1e-9 {
        return Err(format!("--hurried: the shares make {shares} together; at most 1"));
    }
    let rows = if rows == (1..=1) { Vec::new() } else { rows.collect() };
    let priorities = urgent.map(|share| (share, Priority::HIGHEST)).into_iter().collect();
    Ok(Variety { rows, within: hurried, priorities })
}

/// The flag and the process that it asks for.
fn process(kind: Kind, cv: f64, length: Duration) -> Result<(&'static str, Process), String> {
    Ok(if let Some(Asked { flag, process, .. }) = kind.varying.process(length)? {
        (flag, process)
    } else if let Some(rate) = kind.uniform {
        ("--uniform", Process::Uniform { rate })
    } else if let Some(rate) = kind.gamma {
        ("--gamma", Process::Gamma { rate, cv })
    } else {
        // clap lets nobody through without any of them.
        ("--poisson", Process::Poisson { rate: kind.poisson.unwrap_or(1.0) })
    })
}
