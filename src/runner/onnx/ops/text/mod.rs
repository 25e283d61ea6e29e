//! Operators on texts.

pub(super) mod numbers;
