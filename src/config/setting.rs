//! One value and the place where it was set; reading it as a type, within bounds.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::problem::{Place, Report};

/// A value as its source gives it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// From the environment or the command line: of whatever type the setting asks for.
    Word(String),
    /// A TOML string.
    Text(String),
    /// A TOML integer.
    Integer(i128),
    /// A TOML float.
    Float(f64),
    /// A TOML array.
    List(Vec<Value>),
    /// An inline TOML table, and as it should be shown.
    Table(Vec<(String, Value)>, String),
    /// Anything else, as it should be shown.
    Other(String),
}

impl Value {
    fn shown(&self) -> String {
        match self {
            Value::Word(text) | Value::Text(text) => format!("{text:?}"),
            Value::Integer(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::List(items) => format!("[{}]", items.iter().map(Value::shown).collect::<Vec<_>>().join(", ")),
            Value::Table(_, text) | Value::Other(text) => text.clone(),
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// Where it was set.
    pub(super) place: Place,
    /// What it was set to.
    pub(super) value: Value,
}

impl Setting {
    /// A setting of the environment or the command line.
    pub(super) fn word(place: Place, word: String) -> Setting {
        Setting { place, value: Value::Word(word) }
    }

    /// The value as it was written, more or less.
    pub(super) fn shown(&self) -> String {
        self.value.shown()
    }

    /// Notes that this value is wrong.
    pub(super) fn refuse(&self, report: &mut Report, message: impl Into<String>) {
        report.note_value(self.place.clone(), self.shown(), message);
    }

    /// A string; `None`, and a note, for anything else.
    pub(super) fn text(&self, report: &mut Report) -> Option<&str> {
        if let Value::Word(text) | Value::Text(text) = &self.value {
            return Some(text);
        }
        self.refuse(report, "must be a string");
        None
    }

    /// Whether it is this string.
    pub(super) fn is_text(&self, text: &str) -> bool {
        matches!(&self.value, Value::Word(own) | Value::Text(own) if own == text)
    }

    /// A whole number within `bounds`; `None`, and a note, for anything else.
    pub(super) fn whole(&self, bounds: RangeInclusive<usize>, report: &mut Report) -> Option<usize> {
        let number = match &self.value {
            Value::Integer(n) => usize::try_from(*n).ok(),
            Value::Word(word) => word.trim().parse().ok(),
            _ => None,
        };
        let found = number.filter(|n| bounds.contains(n));
        if found.is_none() {
            self.out_of("a whole number", bounds.start(), bounds.end(), report);
        }
        found
    }

    /// The same, where the bounds exclude 0.
    pub(super) fn count(&self, bounds: RangeInclusive<usize>, report: &mut Report) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.whole(bounds, report)?)
    }

    /// Milliseconds, fractions allowed, within `bounds`; `None`, and a note, for anything else.
    pub(super) fn millis(&self, bounds: RangeInclusive<Duration>, report: &mut Report) -> Option<Duration> {
        let number = match &self.value {
            Value::Integer(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::Word(word) => word.trim().parse().ok(),
            _ => None,
        };
        let time = number.and_then(|ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok());
        let found = time.filter(|time| bounds.contains(time));
        if found.is_none() {
            let ms = |time: &Duration| time.as_secs_f64() * 1e3;
            self.out_of("a number", &ms(bounds.start()), &ms(bounds.end()), report);
        }
        found
    }

    /// Whether it is this string, in lower or upper case.
    pub(super) fn is_text_of_any_case(&self, text: &str) -> bool {
        matches!(&self.value, Value::Word(own) | Value::Text(own) if own.eq_ignore_ascii_case(text))
    }

    /// A number from 0 to 1; `None`, and a note, for anything else.
    pub(super) fn share(&self, report: &mut Report) -> Option<f64> {
        let number = match &self.value {
            Value::Integer(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::Word(word) => word.trim().parse().ok(),
            _ => None,
        };
        let found = number.filter(|share| (0.0..=1.0).contains(share));
        if found.is_none() {
            self.out_of("a number", &0, &1, report);
        }
        found
    }

    /// Yes or no; `None`, and a note, for anything else.
    pub(super) fn flag(&self, report: &mut Report) -> Option<bool> {
        match &self.value {
            Value::Word(text) | Value::Other(text) if text == "true" => Some(true),
            Value::Word(text) | Value::Other(text) if text == "false" => Some(false),
            _ => {
                self.refuse(report, "must be true or false");
                None
            }
        }
    }

    /// Strings: a list, or words between commas. `None`, and a note, for anything else.
    pub(super) fn texts(&self, report: &mut Report) -> Option<Vec<String>> {
        let text = |item: &Value| if let Value::Text(text) = item { Some(text.clone()) } else { None };
        let texts = match &self.value {
            Value::Word(words) => Some(words.split(',').map(|word| word.trim().to_owned()).collect()),
            Value::List(items) => items.iter().map(text).collect(),
            _ => None,
        };
        if texts.is_none() {
            self.refuse(report, "must be a list of strings");
        }
        texts
    }

    /// A list of whole numbers; `None` for anything else.
    pub(super) fn whole_numbers(&self) -> Option<Vec<usize>> {
        let Value::List(items) = &self.value else { return None };
        let number = |item: &Value| if let Value::Integer(n) = item { usize::try_from(*n).ok() } else { None };
        items.iter().map(number).collect()
    }

    /// Keys and values of an inline table; `None` for anything else.
    pub(super) fn entries(&self) -> Option<&[(String, Value)]> {
        if let Value::Table(entries, _) = &self.value { Some(entries) } else { None }
    }

    fn out_of(&self, what: &str, from: &dyn Display, to: &dyn Display, report: &mut Report) {
        self.refuse(report, format!("must be {what} from {from} to {to}"));
    }
}
