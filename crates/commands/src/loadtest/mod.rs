//! `uncork loadtest`

mod aim;
mod arrivals;
mod chart;
mod compare;
mod html;
mod json;
mod junit;
mod live;
mod report;
mod stop;
mod text;
mod trials;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use self::report::{Made, Report};
use self::stop::Stop;
use super::values::{count, number, time};
use super::{USAGE, complain, output, plot, say, say_in_colour};
use uncork_loadtest::{Means, Slo};

/// Exit code where an objective was missed.
const MISSED: u8 = 1;
/// Exit code where it cannot be told.
const INCONCLUSIVE: u8 = 2;

/// Send load to a server, and judge it by objectives.
///
/// Requests are sent when they are due, whatever becomes of the earlier ones, and their latency counts from then: a server
/// that stalls is seen as its callers would see it. A request that is refused, fails or gets a wrong answer is infinitely
/// late to a percentile. The generator measures its own lateness, and says so where that could have made the difference.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE_LINE)]
pub struct Loadtest {
    #[command(flatten, next_help_heading = "What is asked")]
    aim: aim::Flags,

    #[command(flatten, next_help_heading = "Arrivals (rates in requests a second)")]
    arrivals: arrivals::Flags,

    /// An objective, as in 'p99<=25ms'; may be given several times, or with commas between them
    ///
    /// p50 … p99.99, max and mean bound times; on-time>=99% is the share answered well within the deadline, goodput>=1900/s
    /// those a second (on-time:50ms and goodput:50ms name their own); answers>=1900/s counts late ones too; errors<=0.1%,
    /// refused<=1% and wrong<=0% bound shares of all requests.
    #[arg(long, value_name = "OBJECTIVE", value_delimiter = ',', help_heading = "Objectives")]
    slo: Vec<Slo>,

    /// When an answer is on time [default: the model's max_latency_ms, from uncork's /metrics]
    #[arg(long, value_name = "TIME", value_parser = time(1e-6..=3600.0), help_heading = "Objectives")]
    deadline: Option<Duration>,

    /// Search for the highest rate that meets all objectives, from --rate (100) on, each for --for
    #[arg(long, conflicts_with = "sweep", help_heading = "Objectives")]
    find_max_rate: bool,

    /// With --find-max-rate: how near the found rate is to one that misses, as a share of it
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = number(0.005..=0.5))]
    #[arg(requires = "find_max_rate", help_heading = "Objectives")]
    resolution: f64,

    /// With --find-max-rate: no rate above this is tried
    #[arg(long, value_name = "R", default_value = "1000000", value_parser = number(1.0..=1e7))]
    #[arg(requires = "find_max_rate", help_heading = "Objectives")]
    max_rate: f64,

    /// Measure at several rates from A to B, each for --for: the throughput-latency curve
    #[arg(long, value_name = "A..B", value_parser = arrivals::range, conflicts_with = "rate")]
    #[arg(help_heading = "Objectives")]
    sweep: Option<(f64, f64)>,

    /// With --sweep: how many rates, at equal distances [default: 8]
    #[arg(long, value_name = "N", value_parser = arrivals::steps(), help_heading = "Objectives")]
    steps: Option<usize>,

    /// Connections at most; they are opened as requests need them, one request at a time on each
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count(1..=60_000), help_heading = "Generator")]
    connections: usize,

    /// Threads that send, a processor each; one is good for some ten thousand requests a second
    #[arg(long, value_name = "N", default_value = "1", value_parser = count(1..=256), help_heading = "Generator")]
    threads: usize,

    /// A request without an answer so long after it was due has failed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time(0.001..=3600.0))]
    #[arg(help_heading = "Generator")]
    timeout: Duration,

    /// Write a page with the verdict and charts, in one file; with - to stdout, and nothing else there
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Write JSON; with - to stdout, and nothing else there
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,

    /// Write JUnit's XML, a test case for each objective; with - to stdout, and nothing else there
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    junit: Option<PathBuf>,

    /// Say what changed between two reports that --json wrote, and send nothing
    #[arg(long, value_names = ["A.json", "B.json"], num_args = 2, exclusive = true, help_heading = "Output")]
    compare: Vec<PathBuf>,

    /// Print the verdict only
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

const USAGE_LINE: &str = "\
uncork loadtest URL --model M --rate R --for 30s --slo 'p99<=25ms'
           [--find-max-rate | --sweep A..B] [--html F] [--json F]
       uncork loadtest URL --closed-loop N [--think-ms T] …";

const EXAMPLES: &str = "\
Exit codes:
  0  all objectives were met, or there were none and the server was there to the end
  1  at least one was missed, or the server answered no request well, or was gone at the end
  2  it cannot be told: the generator was late, there were too few requests, or it was ended
  3  wrong usage, or no connection

Examples:
  uncork loadtest http://127.0.0.1:8080 --model digits --rate 2000 --for 30s \\
      --slo 'p99<=25ms' --slo 'errors<=0.1%' --html report.html
      is the promise kept at 2,000 requests a second?
  uncork loadtest http://127.0.0.1:8080 --find-max-rate --for 5s \\
      --slo 'on-time>=99%'
      the highest rate at which 99 % are answered within the model's own cap
  uncork loadtest http://127.0.0.1:8080 --sweep 1000..20000 --steps 10 \\
      --for 5s --html curve.html
      the throughput-latency curve
  uncork loadtest http://127.0.0.1:8080 --model digits \\
      --schedule 500:10s,500..5000:20s,500:10s --slo 'wrong<=0%' \\
      --body digits.jsonl --expect answers.jsonl --slo 'p99<=50ms'
      a ramp between two steps, and every answer compared with the expected one
  uncork loadtest http://127.0.0.1:9000/v1/models/m:predict \\
      --body request.json --rate 100 --slo 'p95<=1s'
      any other server
  uncork loadtest unix:/run/uncork.sock --as binary --rate 2000
      binary tensors, as Triton's clients send them, over a Unix socket
  uncork loadtest https://127.0.0.1:8443 --ca ca.pem --as grpc \\
      --model digits --rate 2000
      gRPC over TLS, whose certificate ca.pem vouches for
  uncork loadtest http://127.0.0.1:8080 --closed-loop 64 --think-ms 5 --for 20s
      64 callers that wait for their answers
  uncork loadtest --compare before.json after.json
      what changed, and what of it is more than chance";

/// Open files that are no connections: the terminal's, those that wait for sockets, reports.
const OTHER_FILES: u64 = 1024;

/// Rates of a sweep.
const USUAL_STEPS: usize = 8;

impl Loadtest {
    /// Sends, judges, and prints what came of it.
    pub fn run(self) -> ExitCode {
        if let [before, after] = &self.compare[..] {
            return match compare::compare(before, after, plot::terminal_width()) {
                Ok(text) => {
                    say(&text);
                    ExitCode::SUCCESS
                }
                Err(message) => {
                    complain(&message);
                    ExitCode::from(USAGE)
                }
            };
        }
        match self.report().and_then(|report| self.deliver(&report).map(|()| report)) {
            Ok(report) => ExitCode::from(report.exit_code()),
            Err(message) => {
                complain(&message);
                ExitCode::from(USAGE)
            }
        }
    }

    fn report(&self) -> Result<Report, String> {
        let is_series = self.find_max_rate || self.sweep.is_some();
        if self.find_max_rate && self.slo.is_empty() {
            return Err(
                "--find-max-rate needs an objective that says which rates are too high, as in --slo 'p99<=25ms'".into(),
            );
        }
        if self.steps.is_some() && self.sweep.is_none() {
            return Err("--steps goes with --sweep only; leave it out".into());
        }
        self.check_outputs()?;
        let usual_rate = match self.sweep {
            Some((low, _)) => Some(low),
            None => self.find_max_rate.then_some(trials::FIRST_RATE.min(self.max_rate)),
        };
        let arriving = self.arrivals.load(usual_rate)?;
        if is_series && arriving.rate.is_none() {
            let flag = if self.find_max_rate { "--find-max-rate" } else { "--sweep" };
            return Err(format!("{flag} changes the rate, which {} do not have; leave it or them out", arriving.words));
        }
        let sizes = match &arriving.load {
            uncork_loadtest::Load::Open(load) => load.sizes(),
            uncork_loadtest::Load::Closed(load) => load.rows.clone().collect(),
        };
        let aim = self.aim.take(&sizes, self.arrivals.seed)?;
        let slos = self.slos(&aim)?;
        if let Some(slo) = slos.iter().find(|slo| slo.needs_expected() && !aim.compares) {
            return Err(format!(
                "{}: no answer is compared with anything; say which ones are right with --expect FILE, or in the lines of --body",
                slo.text()
            ));
        }
        if let Some(slo) = slos.iter().find(|slo| slo.latency_bound().is_some_and(|bound| bound > self.timeout)) {
            return Err(format!(
                "{}: --timeout is {:?}, so that no request can take that long; raise it beyond the objective",
                slo.text(),
                self.timeout
            ));
        }
        let means = Means {
            address: aim.place.address.clone(),
            speech: aim.place.speech.clone(),
            threads: self.threads,
            connections: self.connections,
            timeout: self.timeout,
            deadline: slos.iter().filter_map(Slo::latency_bound).chain(self.deadline).min(),
        };
        // Where the system gives less, the run says so if it needs more.
        let _ = rlimit::increase_nofile_limit(self.connections as u64 + OTHER_FILES);
        let stop = Stop::listen()?;
        let series = match self.sweep {
            Some(range) => trials::Series::Sweep { range, steps: self.steps.unwrap_or(USUAL_STEPS) },
            None if self.find_max_rate => trials::Series::Search {
                first: self.arrivals.rate,
                highest: self.max_rate,
                resolution: self.resolution,
            },
            None => trials::Series::One,
        };
        let is_quiet = self.quiet || self.reports().any(|(_, file)| file == Path::new("-"));
        let made = Made::here(self.arrivals.seed);
        trials::Trials { made, aim, arriving, slos, means, stop, is_quiet }.run(&series)
    }

    /// The objectives, with a deadline where they need one.
    fn slos(&self, aim: &aim::Aim) -> Result<Vec<Slo>, String> {
        let mut deadline = self.deadline;
        if deadline.is_none() && self.slo.iter().any(Slo::needs_deadline) {
            deadline = aim.max_latency_seconds().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        }
        let with = |slo: &Slo| match (slo.needs_deadline(), deadline) {
            (true, Some(deadline)) => Ok(slo.clone().with_deadline(deadline)),
            (true, None) => {
                let text = slo.text();
                Err(format!(
                    "{text}: within which time? the server does not say; give --deadline, as in --deadline 50ms"
                ))
            }
            (false, _) => Ok(slo.clone()),
        };
        self.slo.iter().map(with).collect()
    }

    /// The reports that are asked for, by their flags, and where they go.
    fn reports(&self) -> impl Iterator<Item = (Kind, &Path)> {
        let all = [(Kind::Json, &self.json), (Kind::Html, &self.html), (Kind::Junit, &self.junit)];
        all.into_iter().filter_map(|(kind, file)| Some((kind, file.as_deref()?)))
    }

    /// A run of an hour must not end with a file that cannot be written.
    fn check_outputs(&self) -> Result<(), String> {
        let to_stdout: Vec<Kind> = self.reports().filter(|(_, file)| *file == Path::new("-")).map(|to| to.0).collect();
        if let [one, other, ..] = to_stdout[..] {
            let (one, other) = (one.flag(), other.flag());
            return Err(format!("{one} - and {other} - both write to stdout; give one of them a file"));
        }
        self.reports().filter(|(_, file)| *file != Path::new("-")).try_for_each(|(_, file)| output::check(file))
    }

    fn deliver(&self, report: &Report) -> Result<(), String> {
        match self.reports().find(|(_, file)| *file == Path::new("-")) {
            Some((kind, _)) => say(&kind.text(report)),
            None if self.quiet => say_in_colour(&text::verdict(report)),
            None => say_in_colour(&text::report(report, plot::terminal_width())),
        }
        let mut files = self.reports().filter(|(_, file)| *file != Path::new("-"));
        files.try_for_each(|(kind, file)| output::write(file, &(kind.text(report) + "\n")))
    }
}

/// A report in a form of its own.
#[derive(Clone, Copy)]
enum Kind {
    Json,
    Html,
    Junit,
}

impl Kind {
    fn flag(self) -> &'static str {
        match self {
            Kind::Json => "--json",
            Kind::Html => "--html",
            Kind::Junit => "--junit",
        }
    }

    /// Without the end of its last line.
    fn text(self, report: &Report) -> String {
        let text = match self {
            Kind::Json => json::text(report),
            Kind::Html => html::page(report),
            Kind::Junit => junit::text(report),
        };
        text.trim_end_matches('\n').to_owned()
    }
}
