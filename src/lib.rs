//! Adaptive micro-batching: deploy a model, or any vectorised function, with two caps, a latency and a batch size.

pub mod batcher;
pub mod cli;
pub mod config;
pub mod error;
pub mod loadtest;
pub mod metrics;
pub mod quote;
pub mod registry;
pub mod runner;
pub mod server;
pub mod telemetry;
pub mod tensor;

pub use uncork_core::{estimator, policy};
pub use uncork_sim as sim;

// Whoever runs a burn module of their own needs the very burn that runs it here.
pub use {burn, burn_store};
