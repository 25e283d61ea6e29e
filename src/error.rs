//! What a caller can be told, with the numbers to act on.
//!
//! Knows no HTTP: `server` holds the one map from these to a status. Texts are for callers, so none carries a path, a
//! type name or the words of a panic.

use std::time::Duration;

use crate::batcher::{self, RefusalReason};
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

    /// Why the request was refused, where no batcher has counted that.
    pub fn shed(&self) -> Option<Shed> {
        match self {
            Error::SlowBody { .. } => Some(Shed::SlowBody),
            Error::Untold => Some(Shed::Untold),
            Error::Absent => Some(Shed::Absent),
            _ => None,
        }
    }

    /// Whether a model with this cap could have kept that, and not the shorter time that its caller gave.
    pub fn is_of_own_time(&self, own: Option<Duration>, cap: Duration) -> bool {
        let Error::Refused(batcher::Error::Late { predicted_ms, .. }) = self else { return false };
        own.is_some_and(|own| own < cap) && *predicted_ms <= cap.as_secs_f64() * 1e3
    }

    /// The same where no waiting helps: alone, too, the request takes longer than its caller gave. That says nothing of the load. With a little
    /// more time it would: callers who all want their answers somewhat sooner than the cap are refused because there are so many of them.
    pub fn is_hopeless(&self, own: Option<Duration>, cap: Duration) -> bool {
        self.is_of_own_time(own, cap) && self.retry_after().is_none()
    }

    /// The outcome's name in `uncork_requests_total{outcome}`, where that is not [hopeless](Self::is_hopeless).
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
    /// Refused: the answer would have been late, or all others later, or there was nobody to give it.
    Shed,
    /// Refused: the queue was full.
    Full,
    /// Refused: alone, too, it takes longer than its caller's own time, and no longer than the model's cap.
    OwnDeadline,
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
    pub const ALL: [Outcome; 9] = [
        Outcome::OnTime,
        Outcome::Late,
        Outcome::Shed,
        Outcome::Full,
        Outcome::OwnDeadline,
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
            Outcome::OwnDeadline => "own_deadline",
            Outcome::ShuttingDown => "shutting_down",
            Outcome::Invalid => "invalid",
            Outcome::Failed => "failed",
            Outcome::Departed => "departed",
        }
    }
}

/// Why a model refused a request, as counted by `uncork_sheds_total{reason}`. There are as many as requests that ended as [`Outcome::Shed`],
/// [`Outcome::Full`] and [`Outcome::OwnDeadline`], and one for each refused part of a request that was split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shed {
    /// Its batcher had no room for it, or no time.
    Batcher(RefusalReason),
    /// It was refused from its head.
    Unread,
    /// Its body took too long to be unpacked.
    SlowBody,
    /// A hook had no room for it, or took too long.
    Hook,
    /// Whatever runs the model was not there.
    Absent,
    /// The model refused rows and did not say which.
    Untold,
}

impl Shed {
    /// Every reason, those of the batcher first.
    pub const ALL: [Shed; RefusalReason::ALL.len() + 5] = {
        let mut all = [Shed::Unread; RefusalReason::ALL.len() + 5];
        let mut i = 0;
        while i < RefusalReason::ALL.len() {
            all[i] = Shed::Batcher(RefusalReason::ALL[i]);
            i += 1;
        }
        all[i + 1] = Shed::SlowBody;
        all[i + 2] = Shed::Hook;
        all[i + 3] = Shed::Absent;
        all[i + 4] = Shed::Untold;
        all
    };

    /// The label's value.
    pub const fn label(self) -> &'static str {
        match self {
            Shed::Batcher(reason) => reason.label(),
            Shed::Unread => "unread",
            Shed::SlowBody => "slow_body",
            Shed::Hook => "hook",
            Shed::Absent => "absent",
            Shed::Untold => "untold",
        }
    }

    /// What it means, as a sentence.
    pub const fn why(self) -> &'static str {
        match self {
            Shed::Batcher(reason) => reason.why(),
            Shed::Unread => "it waited too long in its socket, or the model already refused a part of what was asked",
            Shed::SlowBody => "its body took so long to be unpacked that the answer would have been late",
            Shed::Hook => "the hook in front of the model took too long, or as many rows were in hooks as may be",
            Shed::Absent => "whatever runs the model was not there, or had no memory for it",
            Shed::Untold => "the model refused some request of the batch and did not say in time which",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each, of which those that a batcher tells are marked.
    fn every() -> Vec<(Error, bool)> {
        let (ms, name, retry_after) = (1.0, String::new, Duration::ZERO);
        let late = batcher::Error::Late { predicted_ms: ms, deadline_ms: ms, retry_after: None };
        let full = batcher::Error::Full { queued: 1, bound: 1, unit: "rows", retry_after };
        let all = vec![
            (Error::UnknownModel { name: name(), known: name() }, false),
            (Error::UnknownVersion { model: name(), version: name(), known: name() }, false),
            (Error::Loading { name: name() }, false),
            (Error::Invalid(name()), false),
            (Error::UnknownOutput { name: name(), known: name() }, false),
            (Error::Refused(late), true),
            (Error::Refused(full), true),
            (Error::Refused(batcher::Error::Overload { retry_after }), true),
            (Error::Refused(batcher::Error::OverShare { retry_after }), true),
            (Error::Refused(batcher::Error::TooLarge { size: 2, bound: 1, unit: "rows" }), false),
            (Error::Refused(batcher::Error::ShuttingDown), false),
            (Error::SlowBody { took_ms: ms, deadline_ms: ms }, false),
            (Error::Untold, false),
            (Error::Absent, false),
            (Error::ModelFailed, false),
            (Error::ModelStuck { ran: Duration::ZERO }, false),
        ];
        for (error, _) in &all {
            // Whoever adds an error adds it to this list, and above.
            match error {
                Error::UnknownModel { .. } | Error::UnknownVersion { .. } | Error::Loading { .. } => {}
                Error::Invalid(_) | Error::UnknownOutput { .. } | Error::Refused(_) | Error::SlowBody { .. } => {}
                Error::Untold | Error::Absent | Error::ModelFailed | Error::ModelStuck { .. } => {}
            }
        }
        all
    }

    #[test]
    fn whatever_counts_as_a_refusal_has_one_reason_of_the_batcher_s_or_of_its_own_and_nothing_else_has() {
        for (error, is_told_by_batcher) in every() {
            let is_refusal = matches!(error.outcome(), Outcome::Shed | Outcome::Full);
            let reasons = usize::from(is_told_by_batcher) + usize::from(error.shed().is_some());
            assert_eq!(reasons, usize::from(is_refusal), "{error:?}");
        }
    }

    #[test]
    fn each_reason_has_a_label_of_its_own() {
        let labels: std::collections::BTreeSet<_> = Shed::ALL.into_iter().map(Shed::label).collect();
        assert_eq!(labels.len(), Shed::ALL.len(), "{labels:?}");
    }
}
