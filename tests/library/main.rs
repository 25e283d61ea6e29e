//! The library as a program that embeds it sees it: models without a server, and what is recorded of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside what clippy takes for one")]

mod metrics;
mod observers;
mod registry;
mod upstream;
