//! The values of a scenario file, within the same bounds as those of the flags.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

use super::rules::{self, Rule};
use super::values;
use uncork_core::policy::Priority;
use uncork_model::runner::malformed_name;

/// A value as the flags read it: the text of a TOML number, or a string.
fn read<'de, D: Deserializer<'de>, T>(from: D, reader: impl Fn(&str) -> Result<T, String>) -> Result<T, D::Error> {
    let text = match toml::Value::deserialize(from)? {
        // Quoted: no reader of numbers takes it for one.
        toml::Value::String(text) => format!("'{text}'"),
        other => other.to_string(),
    };
    reader(&text).map_err(D::Error::custom)
}

/// A type for each kind of value.
macro_rules! bounded {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $reader:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(super) struct $name(pub(super) $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                read(from, $reader).map($name)
            }
        }
    )*};
}

bounded! {
    /// `base_ms`
    Base: Duration = values::base();
    /// `per_row_ms`
    PerRow: Duration = values::per_row();
    /// `max_latency_ms`, `within_ms`
    Cap: Duration = values::max_latency();
    /// Other milliseconds, 0 among them.
    Millis: Duration = values::think();
    /// `for_s` and other lengths
    Seconds: Duration = |text| values::number(values::LENGTH)(text).map(Duration::from_secs_f64);
    /// When something changes.
    At: Duration = |text| values::number(values::AT)(text).map(Duration::from_secs_f64);
    /// Requests a second.
    Rate: f64 = values::number(values::RATE);
    /// A multiple of the capacity.
    Multiple: f64 = values::number(0.001..=1000.0);
    /// How many times as long.
    Factor: f64 = values::number(values::FACTOR);
    /// A share, or σ of noise.
    UpToOne: f64 = values::up_to_one();
    /// `cv`
    Cv: f64 = values::cv();
    /// Rows of a batch or of a request.
    Batch: usize = values::batch();
    /// `seed`
    Seed: u64 = values::seed;
    /// `runners`
    Runners: usize = values::runners();
    /// Clients, or requests that come together.
    Callers: usize = values::callers();
    /// `weight`
    Weight: NonZeroUsize = |text| values::weight()(text).map(|n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN));
    /// `priorities`
    Level: Priority = |text| {
        let level = text.parse().ok().and_then(Priority::new);
        level.ok_or_else(|| "must be a whole number from 1 to 10".to_owned())
    };
}

/// `name`
#[derive(Debug, Clone)]
pub(super) struct Name(pub(super) String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        let name = String::deserialize(from)?;
        malformed_name(&name).map_or(Ok(Name(name)), |why| Err(D::Error::custom(why)))
    }
}

/// `policy`: one or a list of them.
#[derive(Debug, Clone)]
pub(super) struct Policies(pub(super) Vec<Rule>);

impl<'de> Deserialize<'de> for Policies {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Policies, D::Error> {
        let names = match toml::Value::deserialize(from)? {
            toml::Value::Array(names) => names,
            one => vec![one],
        };
        let parse = |name: &toml::Value| match name {
            toml::Value::String(name) => rules::parse(name).map_err(|why| format!("'{name}' {why}")),
            other => Err(format!("{other} must be a policy's name")),
        };
        let rules: Result<Vec<Vec<Rule>>, String> = names.iter().map(parse).collect();
        rules.map(|rules| Policies(rules.concat())).map_err(D::Error::custom)
    }
}
