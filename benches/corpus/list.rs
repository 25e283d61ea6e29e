//! The list of models: `benches/corpus/corpus.toml`, as far as this side reads it.

use serde::{Deserialize, Deserializer};

use super::State;

/// The list itself, in the repository.
pub(super) const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/corpus/corpus.toml");

#[derive(Deserialize)]
pub(super) struct Listed {
    #[serde(rename = "package")]
    pub(super) packages: Vec<Package>,
    #[serde(rename = "model")]
    pub(super) models: Vec<Model>,
}

/// Where models come from.
#[derive(Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) registry: String,
    pub(super) license: String,
}

/// A model of a package.
#[derive(Deserialize)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) package: String,
    /// The file in the package.
    pub(super) path: String,
    /// What it must come to.
    #[serde(deserialize_with = "state")]
    pub(super) state: State,
    /// Largest difference, as a part of an output's largest number.
    #[serde(default = "tolerance")]
    pub(super) tolerance: f64,
    /// What a reader of the page should know.
    #[serde(default)]
    pub(super) note: String,
}

/// Sums are added in another order than onnxruntime's.
fn tolerance() -> f64 {
    1e-3
}

fn state<'a, D: Deserializer<'a>>(from: D) -> Result<State, D::Error> {
    let name = String::deserialize(from)?;
    State::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("'{name}' is no state")))
}

impl Listed {
    pub(super) fn read() -> Result<Listed, String> {
        let text = std::fs::read_to_string(PATH).map_err(|e| e.to_string())?;
        toml::from_str(&text).map_err(|e| e.to_string())
    }
}
