//! What recent batches and arrivals say about the next ones. Pure: no clock, no I/O, no randomness.
//!
//! [`BatchTimes`] regresses batch sizes against execution times and yields a [`Fit`]; [`Gaps`] watches the time between
//! arrivals. Whoever drives them (the batcher, a simulator, a test) says what time it is.

mod batch_times;
mod drift;
mod fit;
mod gaps;
mod instant;
mod noise;
mod regression;

pub use batch_times::BatchTimes;
pub use fit::Fit;
pub use gaps::Gaps;
pub use instant::Instant;
