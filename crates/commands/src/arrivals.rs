//! The flags about arrivals that both commands have: rates that change, and groups.

use std::time::Duration;

use crate::simulate::values::{self, Groups, LENGTH, Rates, time};
use uncork_sim::Process;

/// One of them is given, or none.
#[derive(Debug, clap::Args)]
pub(crate) struct Varying {
    /// A rate that jumps between two values, staying DWELL (1s) at each on average
    #[arg(long, value_name = "LOW..HIGH[:DWELL]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(time(LENGTH)))]
    mmpp: Option<Rates<Duration>>,

    /// A crowd: the high rate in a window (the middle tenth), the low one around it
    #[arg(long, value_name = "LOW..HIGH[:FROM..UNTIL]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(values::window))]
    flash: Option<Rates<(Duration, Duration)>>,

    /// A rate that swings as a sine, once in a DAY (the whole run)
    #[arg(long, value_name = "LOW..HIGH[:DAY]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(time(LENGTH)))]
    diurnal: Option<Rates<Duration>>,

    /// Rare lone requests, and from AT (half of the run) on a burst
    #[arg(long, value_name = "LOW..HIGH[:AT]", allow_hyphen_values = true)]
    #[arg(value_parser = values::rates(time(LENGTH)))]
    quiet_then_burst: Option<Rates<Duration>>,

    /// GROUPS a second of SIZE requests that come together, each group spread evenly over SPREAD (0)
    #[arg(long, value_name = "GROUPSxSIZE[:SPREAD]", value_parser = values::groups, allow_hyphen_values = true)]
    fan_out: Option<Groups>,
}

/// What such a flag asks for.
pub(crate) struct Asked {
    pub(crate) flag: &'static str,
    pub(crate) process: Process,
    pub(crate) words: String,
}

impl Varying {
    /// Each of them, and whether it is given.
    pub(crate) fn given(&self) -> [(&'static str, bool); 5] {
        [
            ("--mmpp", self.mmpp.is_some()),
            ("--flash", self.flash.is_some()),
            ("--diurnal", self.diurnal.is_some()),
            ("--quiet-then-burst", self.quiet_then_burst.is_some()),
            ("--fan-out", self.fan_out.is_some()),
        ]
    }

    /// What the first that is given asks for, in a run of this length.
    ///
    /// # Errors
    /// What it is about begins when the run is over.
    pub(crate) fn process(&self, length: Duration) -> Result<Option<Asked>, String> {
        let (flag, process, words) = if let Some(Rates { low, high, time }) = self.mmpp {
            let dwell = time.unwrap_or(Duration::from_secs(1));
            let process = Process::Mmpp { low, high, mean_low: dwell, mean_high: dwell };
            ("--mmpp", process, format!("a rate that jumps between {low} and {high}/s"))
        } else if let Some(Rates { low, high, time }) = self.flash {
            let (from, until) = time.unwrap_or((length.mul_f64(0.45), length.mul_f64(0.55)));
            let process = Process::Flash { rate: low, factor: high / low, from, until };
            ("--flash", process, format!("{low}/s with a crowd of {high}/s"))
        } else if let Some(Rates { low, high, time }) = self.diurnal {
            let swing = (high - low) / (high + low);
            let process = Process::Diurnal { rate: (low + high) / 2.0, swing, day: time.unwrap_or(length) };
            ("--diurnal", process, format!("a rate that swings between {low} and {high}/s"))
        } else if let Some(Rates { low, high, time }) = self.quiet_then_burst {
            let process = Process::QuietThenBurst { quiet: low, burst: high, at: time.unwrap_or(length / 2) };
            ("--quiet-then-burst", process, format!("{low}/s and then a burst of {high}/s"))
        } else if let Some(Groups { rate, size, spread }) = self.fan_out {
            let process = Process::FanOut { groups: rate, size, spread };
            ("--fan-out", process, format!("{rate} groups of {size} a second"))
        } else {
            return Ok(None);
        };
        is_within(begin(&process), length, flag, "--for")?;
        Ok(Some(Asked { flag, process, words }))
    }
}

/// When the part of a process begins that it is there for.
pub(crate) fn begin(process: &Process) -> Duration {
    match process {
        Process::Flash { from: begin, .. } | Process::QuietThenBurst { at: begin, .. } => *begin,
        _ => Duration::ZERO,
    }
}

/// Whether a run of this length has what begins then; `load` and `key` are what a message calls the load and the length.
///
/// # Errors
/// It is over by then.
pub(crate) fn is_within(begin: Duration, length: Duration, load: &str, key: &str) -> Result<(), String> {
    if begin < length {
        return Ok(());
    }
    let (begin, length) = (begin.as_secs_f64(), length.as_secs_f64());
    Err(format!("{load}: what begins at {begin} s is not within {key} {length} s"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Ours {
        #[command(flatten)]
        varying: Varying,
    }

    #[derive(Debug, Parser)]
    struct Theirs {
        #[command(flatten)]
        _simulate: crate::Simulate,
    }

    #[test]
    fn what_begins_when_a_run_is_over_is_refused() {
        let asked = |flag: &str, value: &str, seconds| {
            let ours = Ours::try_parse_from(["", flag, value]).expect("it is a flag");
            let asked = ours.varying.process(Duration::from_secs(seconds));
            asked.map(|asked| asked.map_or("none", |asked| asked.flag))
        };
        assert_eq!(asked("--quiet-then-burst", "1..5:20s", 21), Ok("--quiet-then-burst"));
        let refused = "--quiet-then-burst: what begins at 20 s is not within --for 20 s";
        assert_eq!(asked("--quiet-then-burst", "1..5:20s", 20), Err(refused.to_owned()));
        assert_eq!(asked("--flash", "1..5", 2), Ok("--flash"));
        assert_eq!(asked("--flash", "1..5:3..4", 2).map_err(|why| why.contains("begins at 3 s")), Err(true));
        assert_eq!(asked("--mmpp", "1..5:30s", 2), Ok("--mmpp"), "it is there from the begin on");
    }

    #[test]
    fn a_simulation_has_one_kind_of_arrivals() {
        let server = ["--base-ms", "2", "--per-row-ms", "1", "--max-latency-ms", "50", "--max-batch-size", "8"];
        let parse = |flags: &[&str]| Theirs::try_parse_from([&["", "--for", "3s"][..], &server, flags].concat());
        for (flag, value) in [("--mmpp", "1..5"), ("--flash", "1..5"), ("--diurnal", "1..5"), ("--fan-out", "5x5")] {
            parse(&[flag, value]).unwrap_or_else(|error| panic!("{flag}: {error}"));
            assert!(parse(&[flag, value, "--poisson", "5"]).is_err(), "{flag}");
            assert!(parse(&[flag, value, "--quiet-then-burst", "1..5"]).is_err(), "{flag}");
        }
        assert!(parse(&[]).is_err());
    }
}
