//! Adaptive micro-batching: deploy a model, or any vectorised function, with two caps, a latency and a batch size.

pub mod cli;
pub mod config;
pub mod error;
mod files;
pub mod journal;
pub mod metrics;
pub mod registry;
pub mod repository;
pub mod server;
pub mod statistics;
pub mod telemetry;

pub use uncork_batcher as batcher;
pub use uncork_model::{quote, raw, runner, tensor};
#[cfg(feature = "onnx")]
pub use uncork_onnx as onnx;
pub use uncork_remote::{opaque, upstream, worker};

/// The programs in the documents compile, and README's runs.
#[cfg(all(doctest, feature = "onnx"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/library.md")]
struct Documents;

// The rules of batching are `uncork-core`'s; what a batcher's user needs of them is in `batcher`.
pub(crate) use uncork_core::{estimator, front, policy};

// Whoever runs a burn module of their own needs the very burn that runs it here.
#[cfg(feature = "onnx")]
pub use uncork_onnx::{burn, burn_store};
