//! Which requests arrive: a file, a process, or clients that wait for their answers.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::progress::{Progress, Watched};
use super::setup::Setup;
use super::values::{self, Groups, LENGTH, RATE, Rates};
use crate::estimator::Instant;
use crate::policy::{Fixed, Policy};
use crate::sim::{self, Arrival, ClosedLoop, OpenLoop, Outcome, Process, Source};

/// What would take an hour or more is taken for a slip.
const MOST_REQUESTS: f64 = 2e9;
/// Requests that may wait at once before a simulation takes gigabytes.
const MOST_WAITING: f64 = 2e7;
/// A hundred million lines or so.
const MOST_BYTES: u64 = 2 << 30;

/// The flags about arrivals.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    kind: Kind,

    /// How long requests arrive: seconds, or with a unit as in 30s and 2m
    #[arg(long = "for", value_name = "S", value_parser = values::time(LENGTH), allow_hyphen_values = true)]
    #[arg(required_unless_present = "arrivals", conflicts_with = "arrivals")]
    length: Option<Duration>,

    /// With --gamma: standard deviation of the gaps over their mean [default: 4]
    #[arg(long, value_name = "C", value_parser = values::number(0.1..=32.0), allow_hyphen_values = true)]
    cv: Option<f64>,

    /// With --closed-loop: time from an answer, or a refusal, to the client's next request
    #[arg(long, value_name = "T", value_parser = values::millis(0.0..=3_600_000.0), allow_hyphen_values = true)]
    think_ms: Option<Duration>,

    /// With --closed-loop: σ of log-normal noise on that time [default: 0]
    #[arg(long, value_name = "SIGMA", value_parser = values::number(0.0..=1.0), allow_hyphen_values = true)]
    think_jitter: Option<f64>,

    /// Rows of each request: a number, or a range of equally likely ones as in 1..8
    #[arg(long, value_name = "N", value_parser = values::rows, default_value = "1", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["arrivals", "closed_loop"], hide_default_value = true)]
    rows: RangeInclusive<usize>,
}

/// Exactly one of them.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Kind {
    /// A file with an arrival in seconds a line, `,rows` optional; - for stdin
    #[arg(long, value_name = "FILE")]
    arrivals: Option<String>,

    /// Independent arrivals, R a second
    #[arg(long, value_name = "R", value_parser = values::number(RATE), allow_hyphen_values = true)]
    poisson: Option<f64>,

    /// Equal gaps, R a second
    #[arg(long, value_name = "R", value_parser = values::number(RATE), allow_hyphen_values = true)]
    uniform: Option<f64>,

    /// Clumps: gamma-distributed gaps, R a second, with --cv
    #[arg(long, value_name = "R", value_parser = values::number(RATE), allow_hyphen_values = true)]
    gamma: Option<f64>,

    /// A rate that jumps between two values, staying DWELL (1s) at each on average
    #[arg(long, value_name = "LOW..HIGH[:DWELL]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(values::time(LENGTH)))]
    mmpp: Option<Rates<Duration>>,

    /// A crowd: the high rate in a window (the middle tenth), the low one around it
    #[arg(long, value_name = "LOW..HIGH[:FROM..UNTIL]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(values::window))]
    flash: Option<Rates<(Duration, Duration)>>,

    /// A rate that swings as a sine, once in a DAY (the whole run)
    #[arg(long, value_name = "LOW..HIGH[:DAY]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(values::time(LENGTH)))]
    diurnal: Option<Rates<Duration>>,

    /// Rare lone requests, and from AT (half of the run) on a burst
    #[arg(long, value_name = "LOW..HIGH[:AT]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(values::time(LENGTH)))]
    quiet_then_burst: Option<Rates<Duration>>,

    /// Groups of requests that come together, each spread evenly over SPREAD (0)
    #[arg(long, value_name = "GROUPSxSIZE[:SPREAD]", value_parser = values::groups, allow_hyphen_values = true)]
    fan_out: Option<Groups>,

    /// N clients that wait for an answer, think for --think-ms, and ask again
    #[arg(long, value_name = "N", value_parser = values::count(1..=100_000), allow_hyphen_values = true)]
    closed_loop: Option<usize>,
}

/// Requests to simulate, the same ones as often as wanted.
pub(super) enum Load {
    Trace(Vec<Arrival>),
    Process { process: Process, length: Duration, rows: RangeInclusive<usize>, seed: u64 },
    Closed { clients: usize, think: Duration, jitter: f64, length: Duration, seed: u64 },
}

impl Load {
    /// What the flags ask for.
    ///
    /// # Errors
    /// What is wrong with them, or with the file.
    pub(super) fn new(flags: Flags, setup: &Setup) -> Result<Load, String> {
        let Flags { kind, length, cv, think_ms, think_jitter, rows } = flags;
        let max_batch = setup.max_batch;
        // clap lets an argument go without the one it requires where that one is excluded by a third.
        for (is_set, flag, kind_is_set, kind) in [
            (cv.is_some(), "--cv", kind.gamma.is_some(), "--gamma"),
            (think_ms.is_some(), "--think-ms", kind.closed_loop.is_some(), "--closed-loop"),
            (think_jitter.is_some(), "--think-jitter", kind.closed_loop.is_some(), "--closed-loop"),
        ] {
            if is_set && !kind_is_set {
                return Err(format!("{flag} goes with {kind} only; leave it out"));
            }
        }
        if let Some(file) = kind.arrivals {
            let shown = if file == "-" { "stdin" } else { &file };
            let text = read(&file).map_err(|error| format!("--arrivals {shown} cannot be read: {error}"))?;
            return sim::parse_trace(&text, max_batch).map(Load::Trace).map_err(|error| match error.line {
                0 => format!("{shown} {}", error.problem),
                line => format!("{shown}:{line}: {}", error.problem),
            });
        }
        if *rows.end() > max_batch {
            let most = rows.end();
            return Err(format!("--rows {most}: {most} rows do not fit into a batch of at most {max_batch}"));
        }
        // clap asks for it wherever there is no file.
        let length = length.unwrap_or_default();
        let seed = setup.seed;
        if let Some(clients) = kind.closed_loop {
            let think = think_ms.ok_or("--closed-loop needs --think-ms, 0 for clients that do not think")?;
            let quickest = think.max(ClosedLoop::ROUND_TRIP).as_secs_f64();
            check_size("--closed-loop", clients as f64 / quickest, length)?;
            return Ok(Load::Closed { clients, think, jitter: think_jitter.unwrap_or(0.0), length, seed });
        }
        let (flag, highest, process) = process(kind, cv.unwrap_or(4.0), length);
        check_size(flag, highest, length)?;
        let waiting = highest * setup.max_latency.min(length).as_secs_f64() * 1.5;
        if waiting > MOST_WAITING {
            return Err(format!(
                "{flag}: {waiting:.0} requests might wait at once for --max-latency-ms to pass; at most {MOST_WAITING:.0}"
            ));
        }
        if let Process::Flash { from: begin, .. } | Process::QuietThenBurst { at: begin, .. } = process
            && begin >= length
        {
            let (begin, length) = (begin.as_secs_f64(), length.as_secs_f64());
            return Err(format!("{flag}: what begins at {begin} s is not within --for {length} s"));
        }
        let load = Load::Process { process, length, rows, seed };
        if load.source().peek().is_none() {
            return Err(format!("{flag}: nothing arrives within {} s; a longer --for", length.as_secs_f64()));
        }
        Ok(load)
    }

    /// Runs a policy against these requests.
    pub(super) fn run(&self, setup: &Setup, policy: Box<dyn Policy>, progress: &Progress) -> Outcome {
        sim::run(setup.scenario(policy), &mut Watched::new(self.source(), progress)).remove(0) // one model
    }

    /// The best setting of `fixed` for these requests, found after the fact in some 300 runs.
    pub(super) fn best_fixed(&self, setup: &Setup, progress: &Progress) -> Fixed {
        let best = sim::best_fixed(|policy| setup.scenario(policy), || Watched::new(self.source(), progress));
        best.map_or(Fixed::EAGER, |(fixed, _)| fixed) // a scenario of one model has one
    }

    /// The requests from the first one on.
    pub(super) fn source(&self) -> Box<dyn Source + '_> {
        match self {
            Load::Trace(arrivals) => Box::new(OpenLoop::new(arrivals.iter().copied())),
            Load::Process { process, length, rows, seed } if *rows == (1..=1) => {
                Box::new(OpenLoop::new(process.arrivals(*length, *seed)))
            }
            Load::Process { process, length, rows, seed } => {
                Box::new(OpenLoop::new(sim::with_rows(process.arrivals(*length, *seed), rows.clone(), !seed)))
            }
            &Load::Closed { clients, think, jitter, length, seed } => {
                Box::new(ClosedLoop::new(clients, think, jitter, Instant::EPOCH + length, seed))
            }
        }
    }

    /// Whether the arrivals do not depend on the answers.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Load::Closed { .. })
    }

    /// Whether every request has one row.
    pub(super) fn has_unit_rows(&self) -> bool {
        match self {
            Load::Trace(arrivals) => arrivals.iter().all(|a| a.rows == 1),
            Load::Process { rows, .. } => *rows == (1..=1),
            Load::Closed { .. } => true,
        }
    }

    /// The time from the first to the last arrival, about.
    pub(super) fn length(&self) -> Duration {
        match self {
            Load::Trace(arrivals) => match (arrivals.first(), arrivals.last()) {
                (Some(first), Some(last)) => last.at.since(first.at),
                _ => Duration::ZERO,
            },
            Load::Process { length, .. } | Load::Closed { length, .. } => *length,
        }
    }
}

/// The flag, the highest rate and the process that it asks for.
fn process(kind: Kind, cv: f64, length: Duration) -> (&'static str, f64, Process) {
    if let Some(rate) = kind.uniform {
        ("--uniform", rate, Process::Uniform { rate })
    } else if let Some(rate) = kind.gamma {
        ("--gamma", rate, Process::Gamma { rate, cv })
    } else if let Some(Rates { low, high, time }) = kind.mmpp {
        let dwell = time.unwrap_or(Duration::from_secs(1));
        ("--mmpp", high, Process::Mmpp { low, high, mean_low: dwell, mean_high: dwell })
    } else if let Some(Rates { low, high, time }) = kind.flash {
        let (from, until) = time.unwrap_or((length.mul_f64(0.45), length.mul_f64(0.55)));
        ("--flash", high, Process::Flash { rate: low, factor: high / low, from, until })
    } else if let Some(Rates { low, high, time }) = kind.diurnal {
        let swing = (high - low) / (high + low);
        let process = Process::Diurnal { rate: (low + high) / 2.0, swing, day: time.unwrap_or(length) };
        ("--diurnal", high, process)
    } else if let Some(Rates { low, high, time }) = kind.quiet_then_burst {
        let at = time.unwrap_or(length / 2);
        ("--quiet-then-burst", high, Process::QuietThenBurst { quiet: low, burst: high, at })
    } else if let Some(Groups { rate, size, spread }) = kind.fan_out {
        ("--fan-out", rate * size as f64, Process::FanOut { groups: rate, size, spread })
    } else {
        // clap lets nobody through without any of them.
        let rate = kind.poisson.unwrap_or(1.0);
        ("--poisson", rate, Process::Poisson { rate })
    }
}

fn check_size(flag: &str, rate: f64, length: Duration) -> Result<(), String> {
    let requests = rate * length.as_secs_f64();
    if requests <= MOST_REQUESTS {
        return Ok(());
    }
    Err(format!(
        "{flag}: up to {rate} requests a second for {} s are {requests:.0}; at most {MOST_REQUESTS:.0}: a shorter --for",
        length.as_secs_f64()
    ))
}

fn read(file: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let source: Box<dyn Read> = if file == "-" { Box::new(io::stdin().lock()) } else { Box::new(File::open(file)?) };
    source.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it is larger than {MOST_BYTES} bytes")));
    }
    Ok(text)
}
