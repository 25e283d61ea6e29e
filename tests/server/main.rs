//! The server as its clients see it, over sockets: HTTP, TLS, Unix sockets, requests that mean harm, traces.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside what clippy takes for one")]

#[path = "../folder/mod.rs"]
mod folder;
mod grpc;
mod hostile;
mod http;
mod http2;
mod operators;
mod sockets;
mod tracing;
