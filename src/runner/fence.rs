//! Turns a panic of a model or of a device operation into an error.
//!
//! The panic still goes through the process's panic hook, so it is seen where panics are logged.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`; a panic comes back as an error with the panic's text.
///
/// Asserting unwind safety is sound here because callers drop everything that `work` could have left half done.
pub(super) fn fenced<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| format!("panicked: {}", message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
