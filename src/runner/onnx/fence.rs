//! Turns a panic of the parser or of a device operation into an error.
//!
//! Shapes are checked before every operation, so a panic is a gap in those checks; it fails this file or this batch and
//! nothing else.

use super::value::OpError;
use crate::runner::fence;

/// Runs `work`; a panic comes back as an error with the panic's text.
pub(super) fn fenced<T>(work: impl FnOnce() -> T) -> Result<T, OpError> {
    fence::fenced(work).map_err(OpError)
}
