//! The values of flags that several commands have: numbers within bounds, times with units.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A reader of one flag's value, as clap wants it.
pub trait Reader<T>: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {}
impl<T, F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static> Reader<T> for F {}

/// A finite number.
pub fn number(bounds: RangeInclusive<f64>) -> impl Reader<f64> {
    move |text| {
        let number = text.trim().parse().ok().filter(|n| bounds.contains(n));
        number.ok_or_else(|| format!("must be a number from {} to {}", bounds.start(), bounds.end()))
    }
}

/// A whole number.
pub fn count(bounds: RangeInclusive<usize>) -> impl Reader<usize> {
    move |text| {
        let number = text.trim().parse().ok().filter(|n| bounds.contains(n));
        number.ok_or_else(|| format!("must be a whole number from {} to {}", bounds.start(), bounds.end()))
    }
}

/// Seconds, or a time with its unit: `30`, `30s`, `2m`, `250ms`.
pub fn time(bounds: RangeInclusive<f64>) -> impl Reader<Duration> {
    const UNITS: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    move |text| {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let unit = if unit.is_empty() { Some(1.0) } else { UNITS.iter().find(|u| u.0 == unit).map(|u| u.1) };
        let seconds = unit.and_then(|unit| Some(digits.parse::<f64>().ok()? * unit)).filter(|s| bounds.contains(s));
        seconds.map(Duration::from_secs_f64).ok_or_else(|| {
            let (least, most) = (bounds.start(), bounds.end());
            format!("must be a time from {least} to {most} s, such as 30, 30s, 2m or 250ms")
        })
    }
}
