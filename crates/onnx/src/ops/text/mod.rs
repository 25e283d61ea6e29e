//! Operators on texts.

pub(super) mod ngrams;
pub(super) mod numbers;
mod pattern;
pub(super) mod strings;
pub(super) mod tokens;
