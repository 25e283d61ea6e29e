//! A request for inference in no protocol's words: from named tensors to named tensors.
//!
//! What a protocol adds is in its own module: how bytes become a [`Call`], how a [`Called`] becomes bytes, and what its
//! clients are told where there is an [`Error`].

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::arrival::Came;
use super::status::Refusal;
use crate::error::{Error, Outcome};
use crate::opaque;
use crate::quote::Quoted;
use crate::registry::{Answer, Model, Priority, RowExecution};
use crate::telemetry::{RequestSpan, Ride};
use crate::tensor::Tensors;

/// Inputs and outputs of a request, and dimensions of a shape, that are looked at: more than any model has, and too few to fill memory
/// with.
pub(super) const MOST: usize = 1024;

/// What a client wants of a model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// The inputs, in the client's order.
    pub(super) inputs: Tensors,
    /// Names of the outputs that are wanted, in this order; empty for all.
    pub(super) outputs: Vec<String>,
    /// How long after arrival the answer is of use, where the client says so.
    pub(super) timeout: Option<Duration>,
    /// How urgent it is beside others.
    pub(super) priority: Priority,
}

/// What the model said, to be written.
#[derive(Debug)]
pub(super) struct Called {
    answer: Answer,
}

impl Call {
    /// Asks the model for outputs within such a time, where the client's own is no shorter.
    pub(super) async fn make(
        self,
        model: &Arc<Model>,
        within: Option<Duration>,
        came: Came,
        span: &RequestSpan,
    ) -> Result<Called, Error> {
        let Call { inputs, outputs, timeout, priority } = self;
        check_outputs(model, &outputs).inspect_err(|_| model.count_unreadable())?;
        let mut answer = ask(model, inputs, (within, timeout, priority), came, span).await?;
        if !outputs.is_empty() {
            answer.outputs = answer.outputs.pick(&outputs).expect("their names were checked");
        }
        Ok(Called { answer })
    }
}

/// Asks the model for an answer within such a time, which a client with a time of its `own` has, and so urgently; and notes where the
/// time goes.
pub(super) async fn ask(
    model: &Arc<Model>,
    inputs: Tensors,
    (within, own, priority): (Option<Duration>, Option<Duration>, Priority),
    came: Came,
    span: &RequestSpan,
) -> Result<Answer, Error> {
    span.received(came.whole);
    span.decoded(inputs.rows());
    let terms = came.terms().traced(span.span_ref()).within(within).priority(priority);
    let mut answer = model.infer_within(inputs, terms, own).await.map_err(|error| came.blamed_for(error))?;
    answer.count.received(came.whole);
    let &Answer { queue, batch, batch_rows, batch_span, .. } = &answer;
    span.executed(Ride { queue, batch, batch_rows, batch_span });
    Ok(answer)
}

impl Called {
    /// The outputs that are wanted, in the wanted order.
    pub(super) fn outputs(&self) -> &Tensors {
        &self.answer.outputs
    }

    /// From arrival to outputs.
    pub(super) fn took(&self) -> Duration {
        self.answer.queue + self.answer.batch
    }

    /// `queue;dur=0.031, batch;dur=8.412;desc="17 rows"`, in milliseconds: the value of `Server-Timing`.
    pub(super) fn timing(&self) -> String {
        timing(&self.answer)
    }

    /// How the rows were run, if uncork had to choose: the file has no answer to several rows, and was given one at a time.
    pub(super) fn chosen_rows(&self) -> Option<&'static str> {
        self.answer.ran_one_by_one.then(|| RowExecution::OneByOne.label())
    }

    /// It is written.
    pub(super) fn written(self, span: &RequestSpan) {
        span.encoded(self.answer.count.outcome().label());
    }

    /// The client is told this instead: that it asked for a form that the outputs do not have, or for too much, or that the model has failed.
    pub(super) fn unsaid(self, refusal: &Refusal) {
        unsaid(self.answer, refusal);
    }
}

/// What a client is told of a model with this cap who wants an answer within its `own` time, where it says so.
pub(super) fn refusal(error: Error, own: Option<Duration>, cap: Duration) -> Refusal {
    let (is_own, is_hopeless) = (error.is_of_own_time(own, cap), error.is_hopeless(own, cap));
    let refusal = Refusal::from(error);
    let refusal = if is_hopeless { refusal.because(Outcome::OwnDeadline.label()) } else { refusal };
    if is_own { refusal.of_own_time() } else { refusal }
}

/// The client is told this in place of the model's answer, which is counted by whose fault that is.
pub(super) fn unsaid(answer: Answer, refusal: &Refusal) {
    uncounted(answer, refusal.status());
}

/// The model's answer is an error with this status, and is counted by whose fault that is.
pub(super) fn uncounted(answer: Answer, status: StatusCode) {
    if status.is_server_error() {
        answer.count.failed();
    } else {
        answer.count.invalid();
    }
}

/// Where the time of an answer went: the value of `Server-Timing`.
pub(super) fn timing(answer: &Answer) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (queue, batch, rows) = (ms(answer.queue), ms(answer.batch), answer.batch_rows);
    format!("queue;dur={queue:.3}, batch;dur={batch:.3};desc=\"{rows} rows\"")
}

/// Refuses tensors for a model that takes any body, before anything else could be wrong with them.
pub(super) fn takes_tensors(model: &Model) -> Result<(), Error> {
    let name = model.name();
    let message = || format!("this model takes any body, and no tensors: POST /models/{name}");
    if opaque::is_opaque(model.signature()) { Err(Error::Invalid(message())) } else { Ok(()) }
}

/// Refuses unknown outputs before the queue: computing what nobody can be given helps nobody. One that is wanted twice is
/// refused as well: a few bytes would ask for the same megabyte again and again.
fn check_outputs(model: &Model, wanted: &[String]) -> Result<(), Error> {
    let outputs = &model.signature().outputs;
    for (i, name) in wanted.iter().enumerate() {
        if wanted[..i].contains(name) {
            return Err(Error::Invalid(format!("output {} is asked for twice", Quoted(name))));
        }
        if !outputs.iter().any(|spec| *spec.name == **name) {
            let known: Vec<_> = outputs.iter().map(|spec| format!("'{}'", spec.name)).collect();
            return Err(Error::UnknownOutput { name: name.clone(), known: known.join(", ") });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batcher;

    #[test]
    fn a_time_that_is_shorter_than_the_cap_is_its_caller_s_own_and_says_nothing_of_the_load() {
        let ms = Duration::from_millis;
        let late = |predicted_ms| batcher::Error::Late { predicted_ms, deadline_ms: 1.0, retry_after: None };
        let full = batcher::Error::Full { queued: 1, bound: 1, unit: "rows", retry_after: ms(1) };
        let stands = batcher::Error::Overload { retry_after: ms(1) };
        for (error, own, is_too_much) in [
            (late(80.0), Some(50), false),
            (late(120.0), Some(50), true),
            (late(120.0), Some(60_000), true),
            (late(120.0), None, true),
            (full, Some(50), true),
            (stands, Some(50), true),
        ] {
            let refusal = refusal(Error::Refused(error.clone()), own.map(ms), ms(100));
            assert_eq!(refusal.is_too_much(), is_too_much, "{error:?} {own:?}");
            assert_eq!(refusal.or_timeout().status() == http::StatusCode::GATEWAY_TIMEOUT, !is_too_much);
        }
    }

    #[test]
    fn only_what_a_queue_refuses_says_that_too_much_comes() {
        let (retry_after, ms) = (Duration::ZERO, 1.0);
        let late = batcher::Error::Late { predicted_ms: ms, deadline_ms: ms, retry_after: None };
        let full = batcher::Error::Full { queued: 1, bound: 1, unit: "rows", retry_after };
        for (error, is) in [
            (Error::Refused(late), true),
            (Error::Refused(full), true),
            (Error::Refused(batcher::Error::ShuttingDown), false),
            (Error::Absent, false),
            (Error::Untold, false),
            (Error::ModelFailed, false),
        ] {
            assert_eq!(Refusal::from(error.clone()).is_too_much(), is, "{error}");
        }
    }
}
