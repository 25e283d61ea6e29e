//! The values of the flags: numbers within bounds, times with units, pairs.

use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) use crate::values::{Reader, count, number, time};

/// No flag: whoever writes it is told of those that there are.
pub(crate) fn no_rate(rate: &str) -> Result<std::convert::Infallible, String> {
    Err(format!(
        "requests arrive in some way: --poisson {rate} for independent ones, --uniform {rate} for equal gaps; --help has more"
    ))
}

/// Requests a second that make sense: from one in twenty minutes to what no network card delivers.
pub(crate) const RATE: RangeInclusive<f64> = 0.001..=10_000_000.0;
/// How many times as long a batch may take.
pub(crate) const FACTOR: RangeInclusive<f64> = 0.01..=100.0;
/// When something may change, in seconds from the begin, or from the first arrival of a file: up to the longest file.
pub(crate) const AT: RangeInclusive<f64> = 0.0..=1e10;
/// A simulated run takes at most a year.
pub(crate) const LENGTH: RangeInclusive<f64> = 0.001..=31_536_000.0;

/// Rows of a batch or of a request.
pub(crate) const BATCH: RangeInclusive<usize> = 1..=65_536;
/// Batches that may run at once.
pub(crate) const RUNNERS: RangeInclusive<usize> = 1..=1024;
/// The largest cap on a latency.
pub(crate) const LONGEST_LATENCY: Duration = Duration::from_secs(3600);

/// Times in milliseconds are at most an hour.
const HOUR_MS: f64 = 3_600_000.0;

/// The time of a batch however small it is.
pub(crate) fn base() -> impl Reader<Duration> {
    millis(0.0..=HOUR_MS)
}

/// What a server takes around a batch: what `benches/simulated.py` found on two cores, rounded.
pub(crate) const SERVER_MS: &str = "0.2";

/// The time that a row adds.
pub(crate) fn per_row() -> impl Reader<Duration> {
    millis(0.0..=60_000.0)
}

/// A cap on the latency, of a model or of a request.
pub(crate) fn max_latency() -> impl Reader<Duration> {
    millis(0.001..=HOUR_MS)
}

/// Time between an answer and the next request.
pub(crate) fn think() -> impl Reader<Duration> {
    millis(0.0..=HOUR_MS)
}

/// Rows of a batch or of a request.
pub(crate) fn batch() -> impl Reader<usize> {
    count(BATCH)
}

/// Batches that may run at once.
pub(crate) fn runners() -> impl Reader<usize> {
    count(RUNNERS)
}

/// How much of its pool a model may count on, beside its neighbours.
pub(crate) fn weight() -> impl Reader<usize> {
    count(1..=1000)
}

/// Clients of a closed loop, requests of a group.
pub(crate) fn callers() -> impl Reader<usize> {
    count(1..=100_000)
}

/// σ of log-normal noise; a share.
pub(crate) fn up_to_one() -> impl Reader<f64> {
    number(0.0..=1.0)
}

/// Standard deviation of the gaps over their mean.
pub(crate) fn cv() -> impl Reader<f64> {
    number(0.1..=32.0)
}

/// Any seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

/// Milliseconds.
pub(crate) fn millis(bounds: RangeInclusive<f64>) -> impl Reader<Duration> {
    let number = number(bounds);
    move |text| number(text).map(|ms| Duration::from_nanos((ms * 1e6).round() as u64))
}

/// Two rates, and perhaps a time after a colon: `LOW..HIGH[:…]`.
#[derive(Debug, Clone)]
pub(crate) struct Rates<T> {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) time: Option<T>,
}

/// `LOW..HIGH[:TIME]`, the rates in requests a second.
pub(crate) fn rates<T>(time: impl Reader<T>) -> impl Reader<Rates<T>> {
    move |text| {
        let (range, after) = match text.split_once(':') {
            Some((range, after)) => (range, Some(after)),
            None => (text, None),
        };
        let (low, high) = range.split_once("..").ok_or("must begin with two rates, such as 100..2000")?;
        let rate = |text: &str| number(RATE)(text).map_err(|why| format!("'{text}' {why} requests a second"));
        let (low, high) = (rate(low)?, rate(high)?);
        if low >= high {
            return Err(format!("the first rate, {low}, must be below the second, {high}"));
        }
        let time = after.map(|after| time(after).map_err(|why| format!("'{after}' {why}"))).transpose()?;
        Ok(Rates { low, high, time })
    }
}

/// From one time to a later one: `FROM..UNTIL`.
pub(crate) fn window(text: &str) -> Result<(Duration, Duration), String> {
    let (from, until) = text.split_once("..").ok_or("must be two times, such as 10s..12s")?;
    let time = time(0.0..=*LENGTH.end());
    let (from, until) = (time(from)?, time(until)?);
    if from < until { Ok((from, until)) } else { Err("must begin before it ends".into()) }
}

/// A number and a factor: `SHARE:FACTOR`, `AT:FACTOR`.
pub(crate) fn with_factor<T>(first: impl Reader<T>) -> impl Reader<(T, f64)> {
    pair(first, number(FACTOR))
}

/// Two values with a colon between them.
pub(crate) fn pair<A, B>(first: impl Reader<A>, second: impl Reader<B>) -> impl Reader<(A, B)> {
    move |text| {
        let (before, after) = text.split_once(':').ok_or("must be two values with a colon between them")?;
        let before = first(before).map_err(|why| format!("'{before}' {why}"))?;
        let after = second(after).map_err(|why| format!("'{after}' {why}"))?;
        Ok((before, after))
    }
}

/// Groups a second, requests a group, and the time that a group spreads over: `GROUPSxSIZE[:SPREAD]`.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    pub(crate) rate: f64,
    pub(crate) size: usize,
    pub(crate) spread: Duration,
}

pub(crate) fn groups(text: &str) -> Result<Groups, String> {
    let (groups, spread) = text.split_once(':').unwrap_or((text, "0"));
    let (rate, size) = groups.split_once('x').ok_or("must begin with groups a second and their size, such as 50x16")?;
    Ok(Groups {
        rate: number(RATE)(rate).map_err(|why| format!("'{rate}' {why} groups a second"))?,
        size: callers()(size).map_err(|why| format!("'{size}' {why}"))?,
        spread: time(0.0..=60.0)(spread).map_err(|why| format!("'{spread}' {why}"))?,
    })
}

/// A number of rows, or a range of them: `3`, `1..8`.
pub(crate) fn rows(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (batch()(least)?, batch()(most)?);
    if least <= most { Ok(least..=most) } else { Err("must not fall, as in 1..8".into()) }
}
