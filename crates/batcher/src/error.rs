//! What a caller is told who gets no answer, with the numbers to act on.

use std::time::Duration;

/// Why an item got no answer. The texts are for callers: none carries a path, a type's name or the words of a panic.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The answer would come after the deadline, so none is computed.
    #[error(
        "refused: the answer would come {predicted_ms:.1} ms after arrival, past the deadline of {deadline_ms:.1} ms; {}",
        advice(*retry_after)
    )]
    Late {
        /// Predicted time from arrival to answer.
        predicted_ms: f64,
        /// The item's own deadline after arrival: the latency cap, or less where the caller asked for less.
        deadline_ms: f64,
        /// When it is worth asking again; `None` where no time is, since a batch of this item alone takes longer than that.
        retry_after: Option<Duration>,
    },
    /// More has been asked for some time than can be done. The answer would come in time, but a queue so long answers no more than a
    /// shorter one, and all later.
    #[error("refused: more is asked than can be done, and a longer queue would answer no more; retry in {} ms", retry_after.as_millis())]
    Overload {
        /// When it is worth asking again.
        retry_after: Duration,
    },
    /// More is asked than can be done, and its [caller](crate::Terms::caller) takes the most of it: another, who takes less, took its place.
    #[error("refused: more is asked than can be done, and callers who take less go before; retry in {} ms", retry_after.as_millis())]
    OverShare {
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
    /// The item alone is larger than the queue may ever be.
    #[error("the request holds {size} {unit}; at most {bound} can be queued")]
    TooLarge {
        /// The item's size in `unit`.
        size: usize,
        /// The bound, in `unit`.
        bound: usize,
        /// `rows` or `bytes`.
        unit: &'static str,
    },
    /// The batcher drains and takes no new work, or its runtime has ended.
    #[error("refused: shutting down")]
    ShuttingDown,
    /// The batch that the item rode in failed; other batches are not affected. An [`Observer`](crate::Observer) hears why.
    #[error("the batch failed")]
    Failed,
    /// The batch that the item rode in did not come back in [the time that it has](crate::Builder::giving_up_after).
    #[error("the batch has not come back for {:.1} s, and was given up", ran.as_secs_f64())]
    Stuck {
        /// How long it had run.
        ran: Duration,
    },
}

impl Error {
    /// When a refused caller may usefully ask again; `None` where asking again would not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Late { retry_after, .. } => *retry_after,
            Error::Overload { retry_after } | Error::OverShare { retry_after } | Error::Full { retry_after, .. } => {
                Some(*retry_after)
            }
            Error::ShuttingDown => Some(Duration::from_secs(1)),
            Error::TooLarge { .. } | Error::Failed | Error::Stuck { .. } => None,
        }
    }
}

fn advice(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(wait) => format!("retry in {} ms", wait.as_millis()),
        None => "a retry would be no better: alone it takes longer than that, too".into(),
    }
}
