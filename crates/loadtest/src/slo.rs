//! Objectives: how they are written, and whether a run met them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::quantile::mean;
use super::tally::Tally;

/// What an objective speaks of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Subject {
    /// The time within which this share of all requests has a good answer.
    Quantile(f64),
    /// The longest time of all.
    Longest,
    /// Mean time of good answers.
    Mean,
    /// Share of requests with a good answer within a time, the deadline where none is named.
    OnTime(Option<Duration>),
    /// Good answers within a time, a second.
    Goodput(Option<Duration>),
    /// Good answers that came in a second, however late.
    Answers,
    /// Share of requests that were neither answered well nor refused.
    Errors,
    /// Share of refused requests.
    Refused,
    /// Share of answers other than the expected ones.
    Wrong,
}

/// Which side of the bound is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Side {
    const WRITTEN: [(&str, Side); 4] =
        [("<=", Side::AtMost), (">=", Side::AtLeast), ("<", Side::Below), (">", Side::Above)];

    fn is_met(self, value: f64, bound: f64) -> bool {
        match self {
            Side::Below => value < bound,
            Side::AtMost => value <= bound,
            Side::Above => value > bound,
            Side::AtLeast => value >= bound,
        }
    }

    fn is_upper(self) -> bool {
        matches!(self, Side::Below | Side::AtMost)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = Side::WRITTEN.iter().find(|(_, side)| side == self);
        f.write_str(written.map_or("", |(written, _)| written))
    }
}

/// The unit of a measured value and of its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// A share of 1.
    Share,
    /// So many a second.
    PerSecond,
}

/// A number with its unit, as people write it.
pub fn written(value: f64, unit: Unit) -> String {
    match unit {
        _ if value.is_infinite() => "never".into(),
        Unit::Ms => format!("{} ms", short(value)),
        Unit::Share => format!("{} %", short(100.0 * value)),
        Unit::PerSecond => format!("{}/s", short(value)),
    }
}

/// Three digits, or all before the point, without zeros at the end.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size => (2 - size.log10().floor() as i32).clamp(0, 6) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// One objective, such as `p99<=25ms`.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo {
    text: String,
    subject: Subject,
    side: Side,
    /// In milliseconds, a share of 1, or a second.
    bound: f64,
}

/// How an objective was met or missed.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Whether it was met.
    pub met: bool,
    /// What was measured; infinite for a time that never came.
    pub value: f64,
    /// The objective's bound.
    pub bound: f64,
    /// Unit of both.
    pub unit: Unit,
    /// What was measured and the bound, as in `p99 18.2 ms <= 25 ms`.
    pub sentence: String,
    /// By how much it was missed, as in `16.1 ms too slow`.
    pub missed_by: Option<String>,
    /// How much of what it allows was used, 1 being all: late requests of those that may be late, errors of those allowed.
    pub budget_used: Option<f64>,
}

impl Slo {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The time that it bounds latencies by, if it does.
    pub fn latency_bound(&self) -> Option<Duration> {
        match self.subject {
            Subject::Quantile(_) | Subject::Longest | Subject::Mean => Some(Duration::from_secs_f64(self.bound / 1e3)),
            Subject::OnTime(limit) | Subject::Goodput(limit) => limit,
            _ => None,
        }
    }

    /// Whether it needs to be told when an answer is on time.
    pub fn needs_deadline(&self) -> bool {
        matches!(self.subject, Subject::OnTime(None) | Subject::Goodput(None))
    }

    /// Whether it needs answers to compare with.
    pub fn needs_expected(&self) -> bool {
        self.subject == Subject::Wrong
    }

    /// The same, with `deadline` where it names none of its own.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Slo {
        match &mut self.subject {
            Subject::OnTime(limit @ None) | Subject::Goodput(limit @ None) => *limit = Some(deadline),
            _ => {}
        }
        self
    }

    /// Fewest requests of which it can be said to be met: with fewer, not one of them may miss it.
    pub fn least_requests(&self) -> u64 {
        let allowed = match self.subject {
            Subject::Quantile(quantile) => 1.0 - quantile,
            Subject::OnTime(_) => 1.0 - self.bound,
            Subject::Errors | Subject::Refused | Subject::Wrong => self.bound,
            _ => return 1,
        };
        if allowed > 0.0 { (1.0 / allowed - 1e-6).ceil() as u64 } else { 1 }
    }

    /// Judges a run of `seconds`, by one of the tally's two histograms of latency.
    pub fn judge(&self, tally: &Tally, latency: &Histogram<u64>, seconds: f64) -> Judged {
        let all = tally.requests().max(1) as f64;
        let share = |count: u64| count as f64 / all;
        let never_or_ms = |time: Option<Duration>| time.map_or(f64::INFINITY, |time| time.as_secs_f64() * 1e3);
        let on_time = |limit: Option<Duration>| match limit {
            Some(limit) => tally.on_time(latency, limit),
            None => latency.len(),
        };
        let value = match self.subject {
            Subject::Quantile(quantile) => never_or_ms(tally.within(latency, quantile)),
            Subject::Longest => never_or_ms(tally.within(latency, 1.0)),
            Subject::Mean if latency.is_empty() => f64::INFINITY,
            Subject::Mean => mean(&tally.so_far(latency)) / 1e3,
            Subject::OnTime(limit) => share(on_time(limit)),
            Subject::Goodput(limit) => on_time(limit) as f64 / seconds,
            Subject::Answers => tally.answered_within as f64 / seconds,
            Subject::Errors => share(tally.errors()),
            Subject::Refused => share(tally.refused),
            Subject::Wrong => share(tally.wrong),
        };
        let budget = match self.subject {
            Subject::Quantile(quantile) => {
                let limit = Duration::from_secs_f64(self.bound / 1e3);
                Some((1.0 - share(tally.on_time(latency, limit)), 1.0 - quantile))
            }
            Subject::OnTime(_) => Some((1.0 - value, 1.0 - self.bound)),
            Subject::Errors | Subject::Refused | Subject::Wrong => Some((value, self.bound)),
            _ => None,
        };
        // Nothing is allowed: nothing used is 0, anything else is more than all of it.
        let used = |(used, allowed): (f64, f64)| match used.max(0.0) {
            0.0 => 0.0,
            used if allowed > 1e-12 => used / allowed,
            _ => f64::INFINITY,
        };
        // A run without requests shows nothing.
        let met = tally.requests() > 0 && self.side.is_met(value, self.bound);
        let unit = self.subject.unit();
        let name = self.subject.to_string();
        Judged {
            met,
            value,
            bound: self.bound,
            unit,
            sentence: format!("{name} {} {} {}", written(value, unit), self.side, written(self.bound, unit)),
            missed_by: (!met).then(|| self.missed_by(value, unit)),
            budget_used: budget.map(used),
        }
    }

    fn missed_by(&self, value: f64, unit: Unit) -> String {
        let by = (value - self.bound).abs();
        if value.is_infinite() {
            return "too many had no good answer at all".into();
        }
        let by = match unit {
            Unit::Share => format!("{} points", short(100.0 * by)),
            _ => written(by, unit),
        };
        let times = if unit == Unit::Ms && self.bound > 0.0 {
            format!(", {} times the bound", short(value / self.bound))
        } else {
            String::new()
        };
        match (unit, self.side.is_upper()) {
            (Unit::Ms, true) => format!("{by} too slow{times}"),
            (_, true) => format!("{by} too much"),
            (_, false) => format!("{by} too little"),
        }
    }
}

impl Subject {
    fn unit(self) -> Unit {
        match self {
            Subject::Quantile(_) | Subject::Longest | Subject::Mean => Unit::Ms,
            Subject::Goodput(_) | Subject::Answers => Unit::PerSecond,
            _ => Unit::Share,
        }
    }

    /// Reads what stands before the comparison.
    fn read(text: &str) -> Result<Subject, String> {
        let (name, limit) = match text.split_once(':') {
            Some((name, limit)) => (name.trim(), Some(time(limit.trim())?)),
            None => (text, None),
        };
        let subject = match name {
            "max" => Subject::Longest,
            "mean" => Subject::Mean,
            "on-time" => return Ok(Subject::OnTime(limit)),
            "goodput" => return Ok(Subject::Goodput(limit)),
            "answers" => Subject::Answers,
            "errors" => Subject::Errors,
            "refused" => Subject::Refused,
            "wrong" => Subject::Wrong,
            _ => {
                let percent = name.strip_prefix('p').and_then(|digits| digits.parse::<f64>().ok());
                match percent {
                    Some(percent) if percent > 0.0 && percent < 100.0 => Subject::Quantile(percent / 100.0),
                    Some(percent) => return Err(format!("p{percent} is no percentile between p0 and p100; write max")),
                    None => return Err(format!("'{name}' is none of {KNOWN}")),
                }
            }
        };
        if limit.is_some() { Err(format!("only on-time and goodput take a time, not {name}")) } else { Ok(subject) }
    }
}

const KNOWN: &str = "p50 … p99.9, max, mean, on-time, goodput, answers, errors, refused and wrong";

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limited = |f: &mut fmt::Formatter<'_>, name: &str, limit: &Option<Duration>| match limit {
            Some(limit) => write!(f, "{name} within {} ms", short(limit.as_secs_f64() * 1e3)),
            None => f.write_str(name),
        };
        match self {
            Subject::Quantile(quantile) => write!(f, "p{}", (quantile * 1e8).round() / 1e6),
            Subject::Longest => f.write_str("max"),
            Subject::Mean => f.write_str("mean"),
            Subject::OnTime(limit) => limited(f, "on-time", limit),
            Subject::Goodput(limit) => limited(f, "goodput", limit),
            Subject::Answers => f.write_str("answers"),
            Subject::Errors => f.write_str("errors"),
            Subject::Refused => f.write_str("refused"),
            Subject::Wrong => f.write_str("wrong"),
        }
    }
}

/// `25ms`, `1.5s`, `800us`
fn time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (unit, seconds) = UNITS
        .iter()
        .find(|(unit, _)| text.ends_with(unit))
        .ok_or_else(|| format!("'{text}' has no unit; write us, ms or s, as in 25ms"))?;
    let number = text[..text.len() - unit.len()].trim().parse::<f64>().ok();
    let seconds = number.map(|number| number * seconds).filter(|s| (1e-6..=3600.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("'{text}' is no time from 1us to 3600s"))
}

/// `1%`, `0.5 %`
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').ok_or_else(|| format!("'{text}' has no unit; write %, as in 99%"))?;
    let percent = number.trim().parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("'{text}' is no share from 0% to 100%"))
}

/// `1900/s`
fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim().parse::<f64>().ok();
    number.filter(|rate| (0.0..=1e9).contains(rate)).ok_or_else(|| format!("'{text}' is no rate such as 1900/s"))
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Slo, String> {
        let text = text.trim();
        let found = Side::WRITTEN.iter().find_map(|(written, side)| Some((text.split_once(written)?, *side)));
        let Some(((before, after), side)) = found else {
            return Err("must be an objective such as p99<=25ms, on-time>=99% or errors<=0.1%".into());
        };
        let subject = Subject::read(before.trim())?;
        let after = after.trim();
        let bound = match subject.unit() {
            Unit::Ms => time(after)?.as_secs_f64() * 1e3,
            Unit::Share => share(after)?,
            Unit::PerSecond => rate(after)?,
        };
        let lower_is_better = !matches!(subject, Subject::OnTime(_) | Subject::Goodput(_) | Subject::Answers);
        if lower_is_better != side.is_upper() {
            let (right, wrong) = if lower_is_better { ("<=", "at least") } else { (">=", "at most") };
            return Err(format!("'{text}' asks for {wrong} that much; write {right}"));
        }
        Ok(Slo { text: text.to_owned(), subject, side, bound })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::{Ending, Times};
    use super::*;
    use proptest::prelude::*;

    fn slo(text: &str) -> Slo {
        text.parse().expect("a good objective")
    }

    /// Answers after so many milliseconds each, and so many refusals.
    fn run(latencies_ms: &[u64], refused: u64) -> Tally {
        let mut tally = Tally::new(Duration::ZERO, Duration::from_secs(10));
        let times = |latency_ms| {
            let ended = Duration::from_millis(latency_ms);
            let zero = Duration::ZERO;
            Times { due: zero, taken: zero, sent: Some(zero), ended, ended_earliest: ended }
        };
        for &latency_ms in latencies_ms {
            tally.count(times(latency_ms), 1, Some(200), &Ending::Good, None);
        }
        for _ in 0..refused {
            let ending = Ending::Refused { status: 503, reason: "full".into() };
            tally.count(times(1), 1, Some(503), &ending, None);
        }
        tally
    }

    fn judge(text: &str, tally: &Tally) -> Judged {
        slo(text).judge(tally, &tally.latency, 10.0)
    }

    #[test]
    fn objectives_are_read_as_people_write_them() {
        for (text, subject, bound) in [
            ("p99<=25ms", Subject::Quantile(0.99), 25.0),
            (" p99.9 < 1.5s ", Subject::Quantile(0.999), 1500.0),
            ("max<=800us", Subject::Longest, 0.8),
            ("on-time>=99%", Subject::OnTime(None), 0.99),
            ("on-time:50ms >= 99.5 %", Subject::OnTime(Some(Duration::from_millis(50))), 0.995),
            ("errors<=0%", Subject::Errors, 0.0),
            ("goodput:50ms>=1900/s", Subject::Goodput(Some(Duration::from_millis(50))), 1900.0),
            ("answers>1900", Subject::Answers, 1900.0),
        ] {
            let slo = slo(text);
            assert!((slo.bound - bound).abs() < 1e-9, "{text}: {slo:?}");
            match (slo.subject, subject) {
                (Subject::Quantile(found), Subject::Quantile(expected)) => assert!((found - expected).abs() < 1e-12),
                (found, expected) => assert_eq!(found, expected),
            }
        }
    }

    #[test]
    fn what_is_no_objective_is_refused_with_what_to_write() {
        for (text, words) in [
            ("p99", "such as p99<=25ms"),
            ("p99<=25", "write us, ms or s"),
            ("p99>=25ms", "write <="),
            ("p0<=25ms", "no percentile"),
            ("p100<=25ms", "write max"),
            ("on-time<=99%", "write >="),
            ("on-time>=99", "write %"),
            ("errors<=101%", "no share"),
            ("latency<=5ms", "none of p50"),
            ("errors:5ms<=1%", "only on-time and goodput"),
            ("goodput>=fast", "no rate"),
            ("p99<=-1ms", "no time"),
            ("p99<=NaNms", "no time"),
        ] {
            let error = text.parse::<Slo>().expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_miss_says_by_how_much() {
        let tally = run(&[41; 100], 0);
        let judged = judge("p99<=25ms", &tally);
        assert!(!judged.met);
        assert_eq!(judged.sentence, "p99 41 ms <= 25 ms");
        assert_eq!(judged.missed_by.as_deref(), Some("16 ms too slow, 1.64 times the bound"));
        assert_eq!(judge("refused<=1%", &run(&[1; 90], 10)).missed_by.as_deref(), Some("9 points too much"));
        assert_eq!(judge("answers>=100/s", &run(&[1; 90], 0)).missed_by.as_deref(), Some("91/s too little"));
    }

    #[test]
    fn refused_requests_count_as_never_answered() {
        let tally = run(&[1; 98], 2);
        assert!(judge("p98<=5ms", &tally).met);
        let judged = judge("p99<=5ms", &tally);
        assert!(!judged.met && judged.value.is_infinite());
        assert_eq!(judged.budget_used.map(|used| (used * 100.0).round()), Some(200.0));
    }

    #[test]
    fn a_budget_is_used_by_what_it_allows() {
        let mut latencies = vec![1; 1000];
        latencies[..4].fill(60);
        let tally = run(&latencies, 0);
        let used = |text| judge(text, &tally).budget_used.map(|used| (used * 1000.0).round() / 1000.0);
        assert_eq!(used("p99<=25ms"), Some(0.4));
        assert_eq!(used("on-time:25ms>=99%"), Some(0.4));
        assert_eq!(used("errors<=1%"), Some(0.0));
        assert_eq!(used("max<=25ms"), None);
    }

    #[test]
    fn a_run_without_requests_meets_nothing() {
        assert!(!judge("errors<=1%", &run(&[], 0)).met);
    }

    proptest! {
        #[test]
        fn a_looser_bound_is_never_missed_where_a_tighter_one_is_met(
            latencies in proptest::collection::vec(1u64..200, 1..300), refused in 0u64..20,
            tight in 1u64..200, more in 0u64..100, percent in 1.0f64..99.9,
        ) {
            let tally = run(&latencies, refused);
            let met = |bound_ms: u64, percent: f64| judge(&format!("p{percent}<={bound_ms}ms"), &tally).met;
            prop_assert!(!met(tight, percent) || met(tight + more, percent));
            prop_assert!(!met(tight, percent) || met(tight, percent / 2.0));
            // A percentile and the share on time are two ways to say one thing.
            let share = judge(&format!("on-time:{tight}ms>={percent}%"), &tally).met;
            prop_assert_eq!(met(tight, percent), share);
        }

        #[test]
        fn reading_any_text_ends_in_an_objective_or_a_sentence(text: String) {
            if let Err(error) = text.parse::<Slo>() {
                prop_assert!(!error.is_empty());
            }
        }
    }
}
