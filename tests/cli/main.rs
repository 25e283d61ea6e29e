//! The program as who runs it sees it: its commands, each a process, and where its settings come from.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside what clippy takes for one")]

mod config;
#[path = "../folder/mod.rs"]
mod folder;
mod loadtest;
mod profile;
mod program;
mod reload;
mod simulate;
mod validate;
