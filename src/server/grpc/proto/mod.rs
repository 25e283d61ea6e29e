//! The messages: what `benches/protos` makes of the .proto files beside this.

#![allow(clippy::all, missing_docs, unreachable_pub, reason = "written by a program")]
#![allow(dead_code, reason = "requests for inference are read without them: see `request`")]

#[rustfmt::skip]
pub(super) mod health;
#[rustfmt::skip]
pub(super) mod inference;
#[rustfmt::skip]
pub(super) mod reflection;

/// The files' descriptors, a `google.protobuf.FileDescriptorSet`.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");
