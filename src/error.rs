//! What a caller can be told, with the numbers to act on.
//!
//! Knows no HTTP: `server` holds the one map from these to a status. Texts are for callers, so none carries a path, a
//! type name or the words of a panic.

use std::time::Duration;

use crate::batcher;
use crate::quote::Quoted;

/// When to ask again for a model that is being loaded; how long that takes is not known.
const LOADING: Duration = Duration::from_secs(1);

/// When to ask again where the next batch may do better.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The outcome of a request that got no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No model of that name.
    #[error("unknown model {}{}", Quoted(name), among("; served here: ", known))]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// Names that are served, quoted and listed; empty where the caller may not hear of them.
        known: String,
    },
    /// The model is there, but not in that version.
    #[error("model '{model}' has no version {}{}", Quoted(version), among("; it has ", known))]
    UnknownVersion {
        /// The model.
        model: String,
        /// The version asked for.
        version: String,
        /// Versions that are served, quoted and listed; empty where the caller may not hear of them.
        known: String,
    },
    /// The model will be there, and is being loaded.
    #[error("model {} is being loaded", Quoted(name))]
    Loading {
        /// The name asked for.
        name: String,
    },
    /// The request contradicts itself or the model's signature; the text says how.
    #[error("{0}")]
    Invalid(String),
    /// An output was asked for that the model does not have.
    #[error("unknown output {}; this model gives {known}", Quoted(name))]
    UnknownOutput {
        /// The name asked for.
        name: String,
        /// Names of the outputs, quoted and listed.
        known: String,
    },
    /// Its batcher refused it.
    #[error(transparent)]
    Refused(batcher::Error),
    /// Its body came so slowly, or took so long to unpack, that the answer would have been late; without that it would not have been.
    #[error(
        "refused: the body took {took_ms:.1} ms to arrive and to be unpacked, and the {deadline_ms:.1} ms for the answer count from the end of \
         the head: send the body faster, or not compressed, or have the deadline raised"
    )]
    SlowBody {
        /// From the end of the head to the last byte of the body, unpacked.
        took_ms: f64,
        /// The request's deadline after arrival.
        deadline_ms: f64,
    },
    /// The model refused rows of the batch without saying which, and finding out took too long.
    #[error(
        "the model refused some request of this batch and could not be made to say which in time; send this one again"
    )]
    Untold,
    /// Whatever runs the model is not there, such as a worker that is being replaced or another server that does not answer; or other requests
    /// have the memory that this one needs.
    #[error(
        "whatever runs the model cannot be reached at the moment, or has no memory for this request; ask again in a second"
    )]
    Absent,
    /// The batch that the request rode in failed; other batches are not affected.
    #[error("the model failed on this batch; the server's log has the reason")]
    ModelFailed,
    /// The batch that the request rode in did not come back in time, and was given up.
    #[error("the model has not answered for {:.1} s and is given up; its runner is being replaced", ran.as_secs_f64())]
    ModelStuck {
        /// How long the batch had run.
        ran: Duration,
    },
}

/// What there is in place of what was asked for, if that may be said.
fn among(words: &str, known: &str) -> String {
    if known.is_empty() { String::new() } else { format!("{words}{known}") }
}

impl Error {
    /// The same for a caller who needs no right to ask: it does not say what else there is.
    pub fn for_strangers(mut self) -> Error {
        if let Error::UnknownModel { known, .. } | Error::UnknownVersion { known, .. } = &mut self {
            known.clear();
        }
        self
    }

    /// When a refused caller may usefully ask again; `None` where asking again would not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused(refusal) => refusal.retry_after(),
            Error::Loading { .. } | Error::Absent => Some(LOADING),
            Error::Untold => Some(AT_ONCE),
            _ => None,
        }
    }

    /// The outcome's name in `uncork_requests_total{outcome}`.
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Refused(
                batcher::Error::Late { .. } | batcher::Error::Overload { .. } | batcher::Error::OverShare { .. },
            )
            | Error::SlowBody { .. }
            | Error::Untold
            | Error::Absent => Outcome::Shed,
            Error::Refused(batcher::Error::Full { .. }) => Outcome::Full,
            Error::Refused(batcher::Error::ShuttingDown) => Outcome::ShuttingDown,
            Error::ModelFailed | Error::ModelStuck { .. } => Outcome::Failed,
            _ => Outcome::Invalid,
        }
    }
}

impl From<batcher::Error> for Error {
    fn from(error: batcher::Error) -> Error {
        match error {
            batcher::Error::Failed => Error::ModelFailed,
            batcher::Error::Stuck { ran } => Error::ModelStuck { ran },
            refusal => Error::Refused(refusal),
        }
    }
}

/// How a request ended, as counted by `uncork_requests_total{outcome}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Answered within its deadline.
    OnTime,
    /// Answered after its deadline.
    Late,
    /// Refused: the answer would have been late, or all others later.
    Shed,
    /// Refused: the queue was full.
    Full,
    /// Refused: shutting down.
    ShuttingDown,
    /// Refused: the request contradicts the model.
    Invalid,
    /// The model failed.
    Failed,
    /// The caller left before the answer.
    Departed,
}

impl Outcome {
    /// Every outcome, in the order of the type.
    pub const ALL: [Outcome; 8] = [
        Outcome::OnTime,
        Outcome::Late,
        Outcome::Shed,
        Outcome::Full,
        Outcome::ShuttingDown,
        Outcome::Invalid,
        Outcome::Failed,
        Outcome::Departed,
    ];

    /// The label's value.
    pub const fn label(self) -> &'static str {
        match self {
            Outcome::OnTime => "on_time",
            Outcome::Late => "late",
            Outcome::Shed => "shed",
            Outcome::Full => "full",
            Outcome::ShuttingDown => "shutting_down",
            Outcome::Invalid => "invalid",
            Outcome::Failed => "failed",
            Outcome::Departed => "departed",
        }
    }
}
