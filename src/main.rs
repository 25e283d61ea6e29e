//! The program; everything is in the library.

use std::process::ExitCode;

/// Requests are read on one thread and run on another; memory that changes threads is what the system's allocator is
/// slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    uncork::cli::run()
}
