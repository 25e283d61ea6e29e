//! Models that run somewhere else: [`worker`], in processes of any language beside the server; [`upstream`], on other
//! servers. [`opaque`] is what both say of requests that are no tensors.

pub mod opaque;
pub mod upstream;
pub mod worker;

use uncork_model::{quote, raw, runner, tensor};
