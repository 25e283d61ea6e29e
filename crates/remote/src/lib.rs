//! Models that run somewhere else: [`worker`], in processes of any language beside the server; [`upstream`], on other servers.

pub mod upstream;
pub mod worker;
