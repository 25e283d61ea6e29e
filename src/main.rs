//! The program; everything is in the library.

use std::process::ExitCode;

/// Tensors of some megabytes come and go with every batch; the system's allocator gets each of them from the kernel anew, page by
/// page, which takes longer than many an operator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    uncork::cli::run()
}
