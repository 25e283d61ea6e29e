//! What a caller can be told, with the numbers to act on.
//!
//! Knows no HTTP: `server` holds the one map from these to a status. Texts are for callers, so none carries a path, a
//! type name or the words of a panic.

use std::time::Duration;

use crate::quote::Quoted;

/// The outcome of a request that got no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// No model of that name.
    #[error("unknown model {}; served here: {known}", Quoted(name))]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// Names that are served, quoted and listed.
        known: String,
    },
    /// The model is there, but not in that version.
    #[error("model '{model}' has no version {}; it has {known}", Quoted(version))]
    UnknownVersion {
        /// The model.
        model: String,
        /// The version asked for.
        version: String,
        /// Versions that are served, quoted and listed.
        known: String,
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
    /// The answer would come after the deadline, so none is computed.
    #[error(
        "refused: the answer would come {predicted_ms:.1} ms after arrival, past the deadline of {deadline_ms:.1} ms; \
         retry in {} ms", retry_after.as_millis()
    )]
    Late {
        /// Predicted time from arrival to answer.
        predicted_ms: f64,
        /// The request's own deadline after arrival: `max_latency_ms`, or less where the caller asked for less.
        deadline_ms: f64,
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// The queue's bound is reached.
    #[error("refused: the queue is full ({queued} of {bound} {unit}); retry in {} ms", retry_after.as_millis())]
    Full {
        /// What waits now, in `unit`.
        queued: usize,
        /// The bound, in `unit`.
        bound: usize,
        /// `rows` or `bytes`.
        unit: &'static str,
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// The request alone is larger than the queue may ever be.
    #[error("the request holds {size} {unit}; at most {bound} can be queued")]
    TooLarge {
        /// The request's size in `unit`.
        size: usize,
        /// The bound, in `unit`.
        bound: usize,
        /// `rows` or `bytes`.
        unit: &'static str,
    },
    /// The server is shutting down and takes no new work.
    #[error("refused: shutting down")]
    ShuttingDown,
    /// The batch that the request rode in failed; other batches are not affected.
    #[error("the model failed on this batch; the server's log has the reason")]
    ModelFailed,
}

impl Error {
    /// When a refused caller may usefully ask again; `None` where asking again would not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Late { retry_after, .. } | Error::Full { retry_after, .. } => Some(*retry_after),
            Error::ShuttingDown => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// The outcome's name in `uncork_requests_total{outcome}`.
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Late { .. } => Outcome::Late,
            Error::Full { .. } => Outcome::Full,
            Error::ShuttingDown => Outcome::ShuttingDown,
            Error::ModelFailed => Outcome::Failed,
            _ => Outcome::Invalid,
        }
    }
}

/// How a request ended, as counted by `uncork_requests_total{outcome}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered within its deadline.
    Answered,
    /// Answered after its deadline.
    AnsweredLate,
    /// Refused: the answer would have been late.
    Late,
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
        Outcome::Answered,
        Outcome::AnsweredLate,
        Outcome::Late,
        Outcome::Full,
        Outcome::ShuttingDown,
        Outcome::Invalid,
        Outcome::Failed,
        Outcome::Departed,
    ];

    /// The label's value.
    pub const fn label(self) -> &'static str {
        match self {
            Outcome::Answered => "on_time",
            Outcome::AnsweredLate => "late",
            Outcome::Late => "shed",
            Outcome::Full => "full",
            Outcome::ShuttingDown => "shutting_down",
            Outcome::Invalid => "invalid",
            Outcome::Failed => "failed",
            Outcome::Departed => "departed",
        }
    }
}
