//! Turns a panic of the parser, of a model or of a device operation into an error.
//!
//! Shapes are checked before every operation, so a panic is a gap in those checks; it fails this file or this batch and
//! nothing else.
//!
//! The panic still goes through the process's panic hook, so it is seen where panics are logged.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::value::OpError;

/// Runs `work`; a panic comes back as an error with the panic's text.
///
/// Asserting unwind safety is sound here because callers drop everything that `work` could have left half done.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| format!("panicked: {}", message(&*panic)))
}

/// Runs `work` as [`caught`] does; the error is an operation's.
pub(crate) fn fenced<T>(work: impl FnOnce() -> T) -> Result<T, OpError> {
    caught(work).map_err(OpError)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
