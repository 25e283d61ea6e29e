//! What came of everything, ready to be written in whatever form.

use std::time::{Duration, SystemTime};

use super::{INCONCLUSIVE, MISSED};
use crate::layout::grouped;
use uncork_loadtest::{Found, Judged, Run, Slo, Verdict, at_quantile, short, still_under_way, without_values};

/// Batches of a stretch of sizes: least rows, most rows, how many.
pub(super) type Batches = Vec<(u64, u64, u64)>;

/// A run at one rate, judged.
pub(super) struct Trial {
    /// Requests a second that were asked for, if that is one number.
    pub(super) rate: Option<f64>,
    pub(super) run: Run,
    pub(super) verdict: Verdict,
    /// Whether answers were compared with expected ones.
    pub(super) compared: bool,
    pub(super) judged: Vec<Judged>,
    /// The server's batches in that time.
    pub(super) batches: Batches,
    /// Mean rows of them.
    pub(super) mean_batch_rows: Option<f64>,
}

impl Trial {
    /// Requests a second that were due.
    pub(super) fn offered(&self) -> f64 {
        self.run.tally.requests() as f64 / self.run.seconds
    }

    /// Good answers that came in a second.
    pub(super) fn answers(&self) -> f64 {
        self.run.tally.answered_within as f64 / self.run.seconds
    }

    /// The time within which a share of all requests was answered well, in milliseconds.
    pub(super) fn within_ms(&self, quantile: f64) -> Option<f64> {
        let tally = &self.run.tally;
        tally.within(&tally.latency, quantile).map(|time| time.as_secs_f64() * 1e3)
    }

    /// How late the generator itself was in 99 of 100 cases, in milliseconds.
    pub(super) fn lateness_ms(&self) -> f64 {
        at_quantile(&self.run.tally.lateness, 0.99) as f64 / 1e3
    }

    /// What it comes to for an exit code.
    fn outcome(&self) -> Outcome {
        match &self.verdict {
            Verdict::Passed | Verdict::Measured => Outcome::Passed,
            Verdict::Missed | Verdict::Failed(_) => Outcome::Missed,
            Verdict::Inconclusive(_) => Outcome::Inconclusive,
        }
    }

    /// One of several: its rate, and its verdict.
    pub(super) fn line(&self) -> String {
        format!("{:>10}/s  {}", self.rate.map_or("–".into(), short), self.verdict_line())
    }

    /// `PASS p99 18.2 ms <= 25 ms (at 2000/s for 30 s, …)`
    pub(super) fn verdict_line(&self) -> String {
        let tally = &self.run.tally;
        let with_miss = |judged: &Judged| match &judged.missed_by {
            Some(by) => format!("{}: {by}", judged.sentence),
            None => judged.sentence.clone(),
        };
        let sentences = |met: bool| {
            let of = self.judged.iter().filter(|judged| judged.met == met);
            of.map(with_miss).collect::<Vec<_>>().join("; ")
        };
        let wrong = if self.compared { format!(", {} wrong", tally.wrong) } else { String::new() };
        let errors = match tally.errors() {
            0 => String::new(),
            1 => ", 1 error".into(),
            errors => format!(", {errors} errors"),
        };
        let left_out = match tally.too_late {
            0 => String::new(),
            requests => format!(", too late for {requests}"),
        };
        let rate = self.rate.unwrap_or_else(|| self.offered());
        let offered = offered_otherwise(rate, self.offered());
        let offered = offered.map_or(String::new(), |offered| format!(", {offered},"));
        let conditions = format!(
            "(at {}/s{offered} for {} s, {} refused{wrong}{errors}; generator late by {} ms at p99{left_out})",
            short(rate),
            short(self.run.seconds),
            tally.refused,
            short((self.lateness_ms() * 10.0).ceil() / 10.0),
        );
        match &self.verdict {
            Verdict::Passed => format!("PASS {} {conditions}", sentences(true)),
            Verdict::Missed => format!("FAIL {} {conditions}", sentences(false)),
            Verdict::Inconclusive(why) => format!("INCONCLUSIVE {why} {conditions}"),
            Verdict::Failed(why) => format!("FAIL {why} {conditions}"),
            Verdict::Measured => format!("DONE no objectives were given {conditions}"),
        }
    }
}

/// Why there were several runs.
pub(super) enum Purpose {
    One,
    Sweep,
    /// What was found, unless the search was ended early.
    Search(Option<Found>),
}

/// Where a report comes from: what one needs to make it again.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Made {
    /// When it was begun, as in `2026-02-14T09:30:00Z`.
    pub(super) at: String,
    /// The program's version.
    pub(super) version: &'static str,
    /// The machine that sent the load.
    pub(super) host: String,
    /// Its processors, as far as the program may use them.
    pub(super) processors: usize,
    pub(super) seed: u64,
    /// The words of the command line; secrets of headers are left out.
    pub(super) command: Vec<String>,
}

impl Made {
    /// Now and here.
    pub(super) fn here(seed: u64) -> Made {
        Made {
            at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            version: env!("CARGO_PKG_VERSION"),
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            seed,
            command: without_secrets(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
        }
    }

    /// `2026-02-14T09:30:00Z on HOST (2 processors), uncork 0.1.0, seed 1`
    pub(super) fn line(&self) -> String {
        let Made { at, version, host, processors, seed, .. } = self;
        let plural = if *processors == 1 { "" } else { "s" };
        format!("{at} on {host} ({processors} processor{plural}), uncork {version}, seed {seed}")
    }
}

/// A report is passed on; what authorizes its maker must not be in it.
fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    let cut = |header: &str| match header.split_once(':') {
        Some((name, _)) => format!("{name}: …"),
        None => header.to_owned(),
    };
    let mut is_header = false;
    let word = |word: String| {
        let is_value = std::mem::replace(&mut is_header, word == "--header");
        match word.strip_prefix("--header=") {
            _ if is_value => cut(&word),
            Some(header) => format!("--header={}", cut(header)),
            None if word.starts_with('-') => word,
            None => without_values(&word),
        }
    };
    words.map(word).collect()
}

/// All runs.
pub(super) struct Report {
    pub(super) made: Made,
    pub(super) url: String,
    pub(super) model: Option<String>,
    /// What was asked, and how it arrived, in words.
    pub(super) asked: String,
    pub(super) arrivals: String,
    pub(super) warm_up: Duration,
    pub(super) slos: Vec<Slo>,
    pub(super) purpose: Purpose,
    /// In the order in which they were made; there is at least one.
    pub(super) trials: Vec<Trial>,
    /// Which of them details are shown of.
    pub(super) main: usize,
    pub(super) threads: usize,
    pub(super) max_connections: usize,
}

impl Report {
    pub(super) fn main(&self) -> &Trial {
        &self.trials[self.main]
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self.outcome() {
            Outcome::Passed => 0,
            Outcome::Missed => MISSED,
            Outcome::Inconclusive => INCONCLUSIVE,
        }
    }

    fn is_ended(&self) -> bool {
        self.trials.iter().any(|trial| trial.run.interrupted)
    }

    pub(super) fn outcome(&self) -> Outcome {
        match &self.purpose {
            _ if self.is_ended() => Outcome::Inconclusive,
            Purpose::One => self.main().outcome(),
            Purpose::Search(Some(Found::Rate { .. })) => Outcome::Passed,
            Purpose::Search(Some(Found::None { .. })) => Outcome::Missed,
            Purpose::Search(_) => Outcome::Inconclusive,
            // A sweep goes to where objectives are missed; it has failed where none of its rates meets them.
            Purpose::Sweep => {
                let all: Vec<Outcome> = self.trials.iter().map(Trial::outcome).collect();
                match all.contains(&Outcome::Passed) {
                    true => Outcome::Passed,
                    false if all.contains(&Outcome::Missed) => Outcome::Missed,
                    false => Outcome::Inconclusive,
                }
            }
        }
    }

    /// The highest rate that met the objectives, of a search or a sweep.
    pub(super) fn max_rate(&self) -> Option<f64> {
        match &self.purpose {
            Purpose::One => None,
            Purpose::Search(found) => match found {
                Some(Found::Rate { met, .. }) => Some(*met),
                _ => None,
            },
            Purpose::Sweep => {
                let passed = self.trials.iter().filter(|trial| trial.verdict == Verdict::Passed);
                passed
                    .filter_map(|trial| trial.rate)
                    .fold(None, |most, rate| Some(most.map_or(rate, |m: f64| m.max(rate))))
            }
        }
    }

    /// The verdict in a line.
    pub(super) fn verdict_line(&self) -> String {
        let objectives = self.slos.iter().map(Slo::text).collect::<Vec<_>>().join(", ");
        match &self.purpose {
            Purpose::One => self.main().verdict_line(),
            _ if self.is_ended() => {
                format!("INCONCLUSIVE it was ended early, after {} runs", self.trials.len())
            }
            Purpose::Search(Some(Found::Rate { met, missed, by_generator })) => {
                let limit = match missed {
                    Some(missed) if *by_generator => {
                        format!("at {}/s the generator was too late to tell", short(*missed))
                    }
                    Some(missed) => format!("{}/s do not", short(*missed)),
                    None => "no higher rate was tried; raise --max-rate".into(),
                };
                let found = self.main().verdict_line();
                let found = found.strip_prefix("PASS ").unwrap_or(&found);
                format!("PASS {}/s meet {objectives}, twice; {limit}. {found}", short(*met))
            }
            Purpose::Search(Some(Found::None { lowest })) => {
                format!("FAIL even {}/s do not meet {objectives}. {}", short(*lowest), self.main().verdict_line())
            }
            Purpose::Search(Some(Found::Unsteady { once })) => format!(
                "INCONCLUSIVE {}/s met {objectives} once, but neither they nor lower rates did again; let each run be \
                 longer with --for, or the machine be quieter",
                short(*once)
            ),
            Purpose::Search(_) => {
                format!("INCONCLUSIVE the search found nothing sure. {}", self.main().verdict_line())
            }
            Purpose::Sweep if self.slos.is_empty() => format!("DONE {} rates were measured", self.trials.len()),
            Purpose::Sweep => match (self.max_rate(), self.outcome()) {
                (Some(rate), _) => {
                    let below = self.trials.iter().filter(|trial| trial.rate.is_some_and(|own| own < rate));
                    swept(rate, &objectives, below.map(|trial| &trial.verdict))
                }
                (None, Outcome::Missed) => format!("FAIL none of the rates meets {objectives}"),
                (None, _) => format!("INCONCLUSIVE no rate can be said to meet {objectives}"),
            },
        }
    }

    /// What a reader should know of the generator's own limits.
    pub(super) fn notes(&self) -> Vec<String> {
        let trial = self.main();
        let (run, tally) = (&trial.run, &trial.run.tally);
        let mut notes = Vec::new();
        let wait_ms = at_quantile(&tally.connection_wait, 0.99) as f64 / 1e3;
        if run.out_of_files {
            notes.push(format!(
                "The system allowed no open files for more than {} connections, and requests waited for one ({} ms at p99). Raise the \
                 limit (ulimit -n).",
                run.connections,
                short(wait_ms)
            ));
        } else if run.connections >= self.max_connections && wait_ms >= 1.0 {
            notes.push(format!(
                "All {} connections were in use at once, and requests waited for one ({} ms at p99), which counts as the \
                 server's time. If its callers have more, raise --connections.",
                run.connections,
                short(wait_ms)
            ));
        }
        if tally.too_late > 0 {
            notes.push(format!(
                "{} of {} requests were not sent, since the generator could not keep up with what was asked of it and came to them too \
                 late. Add --threads, or send part of the load from another machine.",
                grouped(tally.too_late),
                grouped(tally.requests())
            ));
        }
        if let Some(words) = still_under_way(tally) {
            notes.push(format!(
                "The run was ended with {words}. Percentiles and max count them as that late; they may be later."
            ));
        }
        if tally.resent > 0 {
            notes.push(format!(
                "{} requests were sent a second time, since the server had closed a connection that was long idle.",
                tally.resent
            ));
        }
        notes
    }
}

/// Part of a rate by which the offered one may be off without a word.
const DIFFERS: f64 = 0.03;

/// `172/s offered`, where that is not about the rate that was asked for.
fn offered_otherwise(rate: f64, offered: f64) -> Option<String> {
    ((offered - rate).abs() > DIFFERS * rate).then(|| format!("{}/s offered", short(offered)))
}

/// The verdict on a sweep whose highest rate that met the objectives is `rate`, with the verdicts on the rates below it.
fn swept<'a>(rate: f64, objectives: &str, below: impl Iterator<Item = &'a Verdict>) -> String {
    let (mut missed, mut unclear) = (false, None);
    for verdict in below {
        match verdict {
            Verdict::Passed | Verdict::Measured => {}
            Verdict::Missed | Verdict::Failed(_) => missed = true,
            Verdict::Inconclusive(why) => unclear = unclear.or(Some(why)),
        }
    }
    let rate = short(rate);
    match unclear {
        _ if missed => format!("PASS {rate}/s meet {objectives}, and not all of the lower rates do"),
        Some(why) => format!("PASS {rate}/s meet {objectives}; of lower rates it cannot be told: {why}"),
        None => format!("PASS up to {rate}/s of the rates tried meet {objectives}"),
    }
}

/// What an exit code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Missed,
    Inconclusive,
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Missed => "missed",
            Outcome::Inconclusive => "inconclusive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_rates_of_a_sweep_that_are_unclear_are_no_misses() {
        let few = Verdict::Inconclusive("25 requests are too few to meet p99<=1ms; it takes 100 or more".into());
        let of = |below: &[&Verdict]| swept(200.0, "p99<=1ms", below.iter().copied());
        assert_eq!(of(&[&Verdict::Passed]), "PASS up to 200/s of the rates tried meet p99<=1ms");
        let unclear = "PASS 200/s meet p99<=1ms; of lower rates it cannot be told: 25 requests are too few";
        assert!(of(&[&few, &Verdict::Passed]).starts_with(unclear));
        let missed = "PASS 200/s meet p99<=1ms, and not all of the lower rates do";
        assert_eq!(of(&[&few, &Verdict::Missed]), missed);
        assert_eq!(of(&[&Verdict::Failed("gone".into())]), missed);
    }

    #[test]
    fn one_error_is_one() {
        let line = |errors| {
            let mut tally = uncork_loadtest::Tally::new(Duration::ZERO, Duration::from_secs(1));
            tally.broken = errors;
            let run = Run { tally, seconds: 1.0, busy: 0.3, interrupted: false, connections: 1, out_of_files: false };
            let (verdict, judged, batches) = (Verdict::Measured, Vec::new(), Batches::new());
            let trial =
                Trial { rate: Some(9.0), run, verdict, compared: false, judged, batches, mean_batch_rows: None };
            trial.verdict_line()
        };
        assert!(line(1).contains(", 0 refused, 1 error; "), "{}", line(1));
        assert!(line(2).contains(", 0 refused, 2 errors; "), "{}", line(2));
        assert!(line(0).contains(", 0 refused; "), "{}", line(0));
    }

    #[test]
    fn another_rate_than_the_one_asked_for_is_named() {
        assert_eq!(offered_otherwise(161.0, 172.0).as_deref(), Some("172/s offered"));
        assert_eq!(offered_otherwise(161.0, 150.0).as_deref(), Some("150/s offered"));
        assert_eq!(offered_otherwise(1000.0, 1020.0), None);
    }

    #[test]
    fn a_report_keeps_no_secret_of_its_makers_headers() {
        let words = ["uncork", "--header", "Authorization: Bearer x", "--header=X-Key: y", "a?key=z", "--rate", "5"];
        let kept = without_secrets(words.into_iter().map(str::to_owned));
        assert_eq!(kept, ["uncork", "--header", "Authorization: …", "--header=X-Key: …", "a?key=***", "--rate", "5"]);
    }
}
