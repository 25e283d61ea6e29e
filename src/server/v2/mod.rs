//! The Open Inference Protocol v2: its JSON, and the handlers that speak it.

mod data;
pub(super) mod metadata;
mod request;
mod response;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use http::{Request, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::app::{App, Named, json_bytes};
use super::arrival::Arrival;
use super::body;
use super::status::Refusal;
use super::trace::Traced;
use crate::error::Error;
use crate::quote::Quoted;
use crate::registry::{Answer, Model, Terms};
use crate::telemetry::{RequestSpan, Ride};
use crate::tensor::Tensors;
use request::InferRequest;

/// Announces binary tensors behind the JSON.
const BINARY_HEADER: &str = "inference-header-content-length";

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Answers below this many bytes take no part of the room for bodies: the number of connections bounds those.
const UNCOUNTED_ANSWER: usize = 64 * 1024;

/// Bytes of JSON from which on a thread for blocking work does the conversion: it then takes about a
/// millisecond, for which a worker of the runtime would keep others' requests waiting.
const LONG_CONVERSION: usize = 256 * 1024;

/// `POST /v2/models/{model}[/versions/{version}]/infer`
pub(super) async fn infer(
    State(app): State<App>,
    Named(model): Named,
    arrival: Arrival,
    traced: Traced,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    answer(app, &model, arrival, &traced.0, request).await.map_err(|refusal| refusal.of(&model))
}

async fn answer(
    app: App,
    model: &Arc<Model>,
    arrival: Arrival,
    span: &RequestSpan,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    span.model(model.name(), model.version());
    let request = read(&app, model, request).await.inspect_err(|_| model.count_unreadable())?;
    span.decoded(request.inputs.rows());
    let terms = Terms::since(arrival.0).traced(span.span_ref());
    let Written { body, timing, .. } = ask(&app, model, terms, span, request).await?;
    let mut response = json_bytes(StatusCode::OK, body);
    response.headers_mut().insert(SERVER_TIMING, timing);
    Ok(response)
}

/// A good answer.
pub(super) struct Written {
    /// Its body.
    pub(super) body: Bytes,
    /// The value of `Server-Timing`.
    pub(super) timing: HeaderValue,
    /// From arrival to outputs.
    pub(super) outputs: Duration,
}

/// A request that is not answered.
pub(super) struct Unanswered {
    /// Why.
    pub(super) refusal: Refusal,
    /// Whether the model has too much to do. Not where the caller allows less time than the model's cap.
    pub(super) is_too_much: bool,
}

/// The answer to a small request whose head asks for nothing but inference, with outputs `within` so long after its arrival.
pub(super) async fn answer_plain(
    app: &App,
    model: &Arc<Model>,
    arrival: Arrival,
    within: Duration,
    body: &[u8],
) -> Result<Written, Unanswered> {
    let decoded = request::decode(body).and_then(|request| {
        check_outputs(model, &request.outputs)?;
        Ok(request)
    });
    let (answered, is_own) = match decoded {
        Ok(mut request) => {
            let is_own = request.timeout.is_some();
            request.timeout = Some(request.timeout.map_or(within, |timeout| timeout.min(within)));
            (ask(app, model, Terms::since(arrival.0), &RequestSpan::default(), request).await, is_own)
        }
        Err(error) => {
            model.count_unreadable();
            (Err(error.into()), false)
        }
    };
    answered.map_err(|refusal| {
        let is_too_much = refusal.status() == StatusCode::SERVICE_UNAVAILABLE && !is_own;
        Unanswered { refusal: refusal.of(model), is_too_much }
    })
}

/// Asks the model.
async fn ask(
    app: &App,
    model: &Arc<Model>,
    terms: Terms,
    span: &RequestSpan,
    request: InferRequest,
) -> Result<Written, Refusal> {
    let terms = terms.within(request.timeout).priority(request.priority);
    let answer = model.infer(request.inputs, terms).await?;
    span.executed(ride(&answer));
    let (timing, outputs) = (server_timing(&answer), answer.queue + answer.batch);
    let body = encode(app, Arc::clone(model), request.id, request.outputs, answer.outputs).await;
    let outcome = answer.count.outcome();
    let body = body.inspect_err(|_| answer.count.failed())?;
    span.encoded(outcome.label());
    Ok(Written { body, timing, outputs })
}

/// All that comes before the model is asked.
async fn read(app: &App, model: &Model, request: Request<Body>) -> Result<InferRequest, Refusal> {
    let (parts, body) = request.into_parts();
    check_headers(&parts.headers)?;
    let body = body::read(body, &app.options, &app.room).await?;
    let request = decode(body).await?;
    check_outputs(model, &request.outputs)?;
    Ok(request)
}

/// Refuses what this server would misread.
fn check_headers(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(BINARY_HEADER) {
        let message = "binary tensor data is not served: leave out Inference-Header-Content-Length and send JSON";
        return Err(Refusal::bad_request(message));
    }
    if headers.get(CONTENT_ENCODING).is_some_and(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let message = "compressed bodies are not served: leave out Content-Encoding";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
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

async fn decode(body: body::Whole) -> Result<InferRequest, Refusal> {
    if body.bytes.len() < LONG_CONVERSION {
        return Ok(request::decode(&body.bytes)?);
    }
    Ok(long(move || request::decode(&body.bytes)).await??)
}

/// The body of an answer. One that could be large is held against the bounds before any of it is written, and keeps its part
/// of the room until its last byte is sent.
async fn encode(
    app: &App,
    model: Arc<Model>,
    id: Option<String>,
    wanted: Vec<String>,
    outputs: Tensors,
) -> Result<Bytes, Refusal> {
    let most = response::most_bytes(model.name(), model.version(), id.as_deref(), &outputs, &wanted);
    let bound = app.options.max_answer_bytes;
    if most > bound {
        let message = format!(
            "the answer could take {most} bytes, more than the {bound} that this server writes; ask for fewer rows or outputs"
        );
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let taken = if most < UNCOUNTED_ANSWER { None } else { Some(app.room.reserve(most)?) };
    let write = move || {
        let id = id.as_deref();
        let written = response::encode(model.name(), model.version(), id, &outputs, &wanted)
            .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(match taken {
            None => Bytes::from(written),
            Some(_taken) => Bytes::from_owner(Counted { written, _taken }),
        })
    };
    if most < LONG_CONVERSION { write() } else { long(write).await? }
}

/// A body and its part of the room.
struct Counted {
    written: Vec<u8>,
    _taken: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.written
    }
}

/// Runs a conversion on a thread for blocking work. Where the caller leaves meanwhile, it runs to its end and is dropped.
async fn long<T: Send + 'static>(convert: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(convert)
        .await
        .map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error"))
}

fn ride(answer: &Answer) -> Ride {
    let &Answer { queue, batch, batch_rows, batch_span, .. } = answer;
    Ride { queue, batch, batch_rows, batch_span }
}

/// `queue;dur=0.031, batch;dur=8.412;desc="17 rows"`, in milliseconds.
fn server_timing(answer: &Answer) -> HeaderValue {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (queue, batch, rows) = (ms(answer.queue), ms(answer.batch), answer.batch_rows);
    HeaderValue::try_from(format!("queue;dur={queue:.3}, batch;dur={batch:.3};desc=\"{rows} rows\""))
        .expect("digits and ASCII words are a header's value")
}
