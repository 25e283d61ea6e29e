//! One run, or as many as a search or a sweep needs.

use std::sync::atomic::Ordering;

use super::aim::Aim;
use super::arrivals::Arriving;
use super::live;
use super::report::{Batches, Made, Purpose, Report, Trial};
use super::stop::Stop;
use uncork_loadtest::{Found, Heard, Load, Means, Next, OpenLoad, Run, Search, Slo, Verdict, mixed, short};

/// Where a search begins that is told nothing: low enough for any server, and seven doublings from ten thousand.
pub(super) const FIRST_RATE: f64 = 100.0;
/// Where a search gives up.
const LOWEST_RATE: f64 = 0.1;

/// Which runs are made.
pub(super) enum Series {
    One,
    Sweep { range: (f64, f64), steps: usize },
    Search { first: Option<f64>, highest: f64, resolution: f64 },
}

/// Everything that a run needs.
pub(super) struct Trials {
    pub(super) made: Made,
    pub(super) aim: Aim,
    pub(super) arriving: Arriving,
    pub(super) slos: Vec<Slo>,
    pub(super) means: Means,
    pub(super) stop: Stop,
    pub(super) is_quiet: bool,
}

impl Trials {
    /// Makes them.
    ///
    /// # Errors
    /// The machine does not give what it takes.
    pub(super) fn run(self, series: &Series) -> Result<Report, String> {
        match series {
            Series::One => {
                let trial = self.trial(self.arriving.rate, &self.arriving.load, "", &[])?;
                Ok(self.report(Purpose::One, vec![trial], 0))
            }
            Series::Sweep { range: (low, high), steps } => {
                let mut trials = Vec::new();
                for step in 0..*steps {
                    let rate = low + (high - low) * step as f64 / (steps - 1) as f64;
                    trials.push(self.at_rate(rate, &format!("{} of {steps}", step + 1), &trials)?);
                    if self.is_told_to_stop() {
                        break;
                    }
                }
                let main = trials.iter().rposition(|trial| trial.verdict == Verdict::Passed).unwrap_or(0);
                Ok(self.report(Purpose::Sweep, trials, main))
            }
            Series::Search { first, highest, resolution } => {
                let lowest = self.lowest_rate(*highest)?;
                if lowest > first.unwrap_or(FIRST_RATE) && !self.is_quiet {
                    crate::complain(&format!(
                        "no rate below {}/s is tried: a run would have fewer requests than the objectives take; run for longer with --for",
                        short(lowest)
                    ));
                }
                self.search(Search::new(first.unwrap_or(FIRST_RATE), (lowest, *highest), *resolution))
            }
        }
    }

    /// The lowest rate at which a run has as many requests as each objective takes: with fewer nothing is told, and a lower rate would tell
    /// even less.
    fn lowest_rate(&self, highest: f64) -> Result<f64, String> {
        let least = self.slos.iter().map(Slo::least_requests).max().unwrap_or(0) as f64;
        let load = &self.arriving.load;
        let Load::Open(OpenLoad { times, length, .. }) = load else { return Ok(LOWEST_RATE) };
        // A trace has as many requests at any rate.
        if times.length().is_some() {
            return Ok(LOWEST_RATE);
        }
        let seconds = length.as_secs_f64().max(1e-3);
        // Chance leaves out some of them.
        let lowest = ((least + 4.0 * least.sqrt()) / seconds).max(LOWEST_RATE);
        if lowest > highest {
            return Err(format!(
                "the objectives take {least} requests, so {}/s in the {seconds} s of each run, and --max-rate is {}; run for longer with --for",
                short(lowest.ceil()),
                short(highest)
            ));
        }
        Ok(lowest)
    }

    fn search(self, mut search: Search) -> Result<Report, String> {
        let mut trials: Vec<Trial> = Vec::new();
        let mut step = search.first();
        let found = loop {
            match step {
                Next::Done(found) => break Some(found),
                Next::Try(rate) => {
                    let label =
                        if search.is_checking() { "once more".into() } else { format!("try {}", trials.len() + 1) };
                    let trial = self.at_rate(rate, &label, &trials)?;
                    let heard = match &trial.verdict {
                        Verdict::Passed => Heard::Met,
                        Verdict::Missed | Verdict::Failed(_) => Heard::Missed,
                        _ => Heard::Unclear,
                    };
                    trials.push(trial);
                    if self.is_told_to_stop() {
                        break None;
                    }
                    step = search.heard(heard);
                }
            }
        };
        let met = match found {
            Some(Found::Rate { met, .. }) => Some(met),
            _ => None,
        };
        let passed = trials.iter().map(|trial| trial.rate.filter(|_| trial.verdict == Verdict::Passed));
        let main = last_at(met, &passed.collect::<Vec<_>>()).unwrap_or(trials.len() - 1);
        Ok(self.report(Purpose::Search(found), trials, main))
    }

    fn is_told_to_stop(&self) -> bool {
        self.stop.told().load(Ordering::Relaxed)
    }

    fn at_rate(&self, rate: f64, label: &str, earlier: &[Trial]) -> Result<Trial, String> {
        let Load::Open(load) = &self.arriving.load else {
            return Err("callers in a closed loop have no rate".into());
        };
        let mut load = load.clone();
        load.times = load.times.at_rate(rate)?;
        load.seed = seed_of(load.seed, earlier.iter().filter(|trial| trial.rate == Some(rate)).count());
        if let Some(length) = load.times.length() {
            load.length = self.arriving.most.map_or(length, |most| most.min(length));
        }
        let trial = self.trial(Some(rate), &Load::Open(load), label, earlier)?;
        if !self.is_quiet {
            live::finished(&trial.line());
        }
        Ok(trial)
    }

    fn trial(&self, rate: Option<f64>, load: &Load, label: &str, earlier: &[Trial]) -> Result<Trial, String> {
        let before = self.aim.exposition();
        let rate_words = rate.map_or(String::new(), |rate| format!(", {}/s", short(rate)));
        let label = if label.is_empty() { String::new() } else { format!(" ({label})") };
        let title = format!("{}{rate_words}{label}", self.aim.words);
        let live = live::Live::new(title, load, self.is_quiet, earlier.iter().map(Trial::line).collect());
        let run =
            uncork_loadtest::run(load, &*self.aim.target, &self.means, self.stop.told(), |pulses| live.watch(&pulses))?;
        let mut batches = match (before, self.aim.exposition(), &self.aim.model) {
            (Some(before), Some(after), Some(model)) => after.batches_since(&before, model),
            _ => Batches::new(),
        };
        if batches.is_empty() {
            // Each answer's own word: the parts that requests were of their batches make whole batches.
            let whole = |(rows, count): (&u32, &f64)| (u64::from(*rows), u64::from(*rows), count.round() as u64);
            batches = run.tally.batches.iter().map(whole).filter(|batch| batch.2 > 0).collect();
        }
        let (verdict, judged) = uncork_loadtest::judge(&run, &self.slos);
        let verdict = with_flags(verdict);
        let mean_batch_rows = mean_batch_rows(&run);
        let compared = self.aim.compares;
        Ok(Trial { rate, run, verdict, compared, judged, batches, mean_batch_rows })
    }

    fn report(self, purpose: Purpose, trials: Vec<Trial>, main: usize) -> Report {
        Report {
            made: self.made,
            url: self.aim.url.to_string(),
            model: self.aim.model,
            asked: self.aim.words,
            arrivals: self.arriving.words,
            warm_up: self.arriving.load.warm_up(),
            slos: self.slos,
            purpose,
            trials,
            main,
            threads: self.means.threads,
            max_connections: self.means.connections,
        }
    }
}

/// What a verdict advises, by the flags that do it: a library knows of none.
const FLAGS: [(&str, &str); 3] = [
    ("raise the rate, or run for longer", "raise --rate or --for"),
    ("add threads", "add --threads"),
    ("allow fewer connections", "allow fewer with --connections"),
];

/// The verdict with the names of the flags that it advises to change.
fn with_flags(verdict: Verdict) -> Verdict {
    let named = |why: String| FLAGS.iter().fold(why, |why, (words, flags)| why.replace(words, flags));
    match verdict {
        Verdict::Inconclusive(why) => Verdict::Inconclusive(named(why)),
        other => other,
    }
}

/// The seed of a rate's trial, after so many `earlier` ones of the same rate: what held may have held for the sake of just
/// those arrivals.
fn seed_of(seed: u64, earlier: usize) -> u64 {
    if earlier == 0 {
        return seed;
    }
    // Not the steps by which a generator goes on from a seed.
    mixed(mixed(seed) ^ earlier as u64)
}

/// The last of the trials that passed, each by its rate: of those at the rate that was met, if one was, and else of all.
fn last_at(met: Option<f64>, passed: &[Option<f64>]) -> Option<usize> {
    passed.iter().rposition(|rate| rate.is_some() && (met.is_none() || *rate == met))
}

/// From the answers' own words.
fn mean_batch_rows(run: &Run) -> Option<f64> {
    let (rows, batches) = run
        .tally
        .batches
        .iter()
        .fold((0.0, 0.0), |(rows, batches), (size, count)| (rows + f64::from(*size) * count, batches + count));
    (batches > 0.0).then(|| rows / batches)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_loadtest::Tally;

    use super::*;

    #[test]
    fn each_further_trial_of_a_rate_has_a_seed_of_its_own() {
        assert_eq!(seed_of(7, 0), 7, "the first has what --seed says");
        let seeds: std::collections::HashSet<u64> = [0, 1, 2, u64::MAX]
            .into_iter()
            .flat_map(|seed| (0..4).map(move |earlier| seed_of(seed, earlier)))
            .collect();
        assert_eq!(seeds.len(), 16);
    }

    #[test]
    fn a_verdict_that_advises_something_names_the_flag() {
        let slos = ["p99<=25ms".parse::<Slo>().expect("an objective")];
        let run = |timed_out, too_late| {
            let mut tally = Tally::new(Duration::ZERO, Duration::from_secs(1));
            (tally.timed_out, tally.unsent, tally.too_late) = (timed_out, too_late, too_late);
            Run { tally, seconds: 1.0, busy: 0.3, interrupted: false, connections: 1, out_of_files: false }
        };
        for (run, flags) in [
            (run(0, 0), "raise --rate or --for"),
            (run(0, 1000), "add --threads, or a machine"),
            (Run { busy: 0.99, ..run(1000, 0) }, "add --threads, or a machine"),
            (Run { out_of_files: true, ..run(1000, 0) }, "allow fewer with --connections"),
        ] {
            let verdict = with_flags(uncork_loadtest::judge(&run, &slos).0);
            let Verdict::Inconclusive(why) = verdict else { panic!("{flags}") };
            assert!(why.contains(flags), "{flags}: {why}");
        }
    }

    #[test]
    fn details_are_of_the_rate_that_was_found() {
        // A hiccup at 400: it passes when it is tried again, and neither is the rate that holds.
        let passed = [Some(367.0), None, Some(367.0), Some(400.0), None];
        assert_eq!(last_at(Some(367.0), &passed), Some(2));
        assert_eq!(last_at(None, &passed), Some(3));
        assert_eq!(last_at(None, &[None, None]), None);
    }
}
