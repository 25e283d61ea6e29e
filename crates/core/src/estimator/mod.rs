//! What recent batches and arrivals say about the next ones. Pure: no clock, no I/O, no randomness.
//!
//! [`BatchTimes`] regresses batch sizes against execution times and yields a [`Fit`]; [`Crowd`] tells whether arrivals are
//! those of a fixed number of callers, each of whom waits for an answer. Whoever drives them (the batcher, a simulator, a test) says what time it is.

mod batch_times;
mod caution;
mod crowd;
mod curve;
mod drift;
mod fit;
mod instant;
mod noise;
mod regression;

pub use batch_times::BatchTimes;
pub use caution::Answers;
pub use crowd::{Crowd, KnownCrowd, Turn};
pub use fit::Fit;
pub use instant::Instant;
