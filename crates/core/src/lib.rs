//! What uncork decides with: how long batches take, and when to release one. Pure: no clock, no I/O, no randomness.

pub mod estimator;
pub mod policy;
