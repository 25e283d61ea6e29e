//! The Open Inference Protocol v2: JSON and binary tensors, and the handlers that speak it.

mod binary;
mod classes;
pub(super) mod coding;
pub(super) mod data;
pub(super) mod description;
pub(super) mod metadata;
mod numbers;
pub(super) mod object;
pub(super) mod repository;
pub(super) mod request;
pub(super) mod response;
pub(super) mod text;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::Options;
use super::app::{App, Asked, OfCaller};
use super::arrival::{Came, Coming};
use super::body::{self, LONG_CONVERSION, long, reading};
use super::call::{self, Called, takes_tensors};
use super::quick::Through;
use super::room::{Room, Taken};
use super::status::{JSON, Refusal};
use super::trace::Traced;
use crate::registry::Model;
use crate::runner::{Rows, Signature};
use crate::telemetry::RequestSpan;
use crate::tensor::{DataType, Tensor, Tensors};
use request::{Forms, InferRequest, Named};
use response::{Chosen, Encoded, Form, Head, Unspeakable};

/// The bytes of JSON at the begin of a body, where binary tensors follow.
pub(super) const BINARY_HEADER: HeaderName = HeaderName::from_static("inference-header-content-length");

/// The media type of a body in which binary tensors follow the JSON.
pub(super) const BINARY: &str = "application/octet-stream";

/// What the time of an answer went to.
pub(super) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Binary tensors are copied: so many bytes of them take as long as one of JSON.
pub(super) const COPIED: usize = 16;

/// `POST /v2/models/{model}[/versions/{version}]/infer`
pub(super) async fn infer(
    OfCaller(app): OfCaller,
    Asked(model): Asked,
    coming: Coming,
    traced: Traced,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    answer(app, &model, coming, &traced.0, request).await.map_err(|refusal| refusal.of(&model))
}

async fn answer(
    app: App,
    model: &Arc<Model>,
    coming: Coming,
    span: &RequestSpan,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    span.model(model.name(), model.version());
    let (parts, body) = request.into_parts();
    let read = read(&app, model, &coming, &parts.headers, body).await.inspect_err(|refusal| refusal.count(model))?;
    let (read, took) = read;
    parts.extensions.get::<Through>().inspect(|through| through.is_whole(took));
    let Written { body, json, timing, .. } = ask(&app, model, coming.whole(took), None, span, read).await?;
    let mut response = coding::as_wished(&parts.headers, body, &app.room).await?;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, if json.is_some() { HeaderValue::from_static(BINARY) } else { JSON });
    if let Some(length) = json {
        headers.insert(BINARY_HEADER, HeaderValue::from(length));
    }
    headers.insert(SERVER_TIMING, timing);
    Ok(response)
}

/// A good answer.
pub(super) struct Written {
    /// Its body.
    pub(super) body: Bytes,
    /// Bytes of JSON at its begin, where binary tensors follow.
    pub(super) json: Option<usize>,
    /// The value of `Server-Timing`.
    pub(super) timing: HeaderValue,
    /// From arrival to outputs.
    pub(super) outputs: Duration,
}

/// The answer to a small request whose head asks for nothing but inference, with outputs `within` so long after its arrival.
/// The first `json` bytes of its body are JSON, or all of them.
pub(super) async fn answer_plain(
    app: &App,
    model: &Arc<Model>,
    came: Came,
    within: Duration,
    body: &[u8],
    json: Option<usize>,
) -> Result<Written, Refusal> {
    let answered = match decode(body, json, model, &app.room) {
        Ok(read) => ask(app, model, came, Some(within), &RequestSpan::default(), read).await,
        Err(refusal) => {
            refusal.count(model);
            Err(refusal)
        }
    };
    answered.map_err(|refusal| refusal.of(model))
}

/// Asks the model. Outputs are wanted `within` so long after its arrival, if that is known.
async fn ask(
    app: &App,
    model: &Arc<Model>,
    came: Came,
    within: Option<Duration>,
    span: &RequestSpan,
    read: Read,
) -> Result<Written, Refusal> {
    let Read { request: InferRequest { id, call, forms }, _taken } = read;
    let (own, cap) = (call.timeout, model.spec().max_latency);
    let within = app.within(cap, own.into_iter().chain(within).min());
    let called = call.make(model, within, came, span).await.map_err(|error| call::refusal(error, own, cap))?;
    let timing = HeaderValue::try_from(called.timing()).expect("digits and ASCII words are a header's value");
    let outputs = called.took();
    match encode(app, model, id, forms, &called).await {
        Ok((body, json)) => {
            called.written(span);
            Ok(Written { body, json, timing, outputs })
        }
        Err(refusal) => {
            called.unsaid(&refusal);
            Err(refusal)
        }
    }
}

/// A request, and the part of the room that its tensors take.
struct Read {
    request: InferRequest,
    _taken: Option<Taken>,
}

/// All that comes before the model is asked, and how long the body took to come.
async fn read(
    app: &App,
    model: &Arc<Model>,
    coming: &Coming,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Read, Duration), Refusal> {
    let json = json_length(headers)?;
    let body = coding::read(headers, body, coming.until(model.spec().max_latency), &app.options, &app.room).await?;
    // Byte strings take long in binary as well.
    let has_strings = model.signature().inputs.iter().any(|input| input.datatype == DataType::Bytes);
    let all = body.bytes.len();
    let json_bytes = json.filter(|&json| !has_strings && json <= all).unwrap_or(all);
    let is_long = json_bytes + (all - json_bytes) / COPIED >= LONG_CONVERSION;
    let (model, room) = (Arc::clone(model), app.room.clone());
    let read = reading(&body, is_long, move |bytes| decode(bytes, json, &model, &room));
    Ok((read.await??, body.took))
}

/// What [`BINARY_HEADER`] says.
fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    let mut values = headers.get_all(BINARY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok()).filter(|_| values.next().is_none());
    let message = "Inference-Header-Content-Length must be one number of bytes";
    length.map(Some).ok_or_else(|| Refusal::bad_request(message))
}

/// Reads a body. Its elements are read last: by then it is known that the model takes such tensors, and that there is room.
fn decode(body: &[u8], json: Option<usize>, model: &Model, room: &Room) -> Result<Read, Refusal> {
    takes_tensors(model)?;
    let signature = model.signature();
    if let Some(read) = decode_apart(body, json, signature, room) {
        return Ok(read);
    }
    let named;
    let unread = match json {
        Some(0) => request::parse_raw(body, signature)?,
        json => match request::parse(body, json) {
            Ok(unread) => unread,
            Err(error) => {
                named = Named::of(body, json, room)?.ok_or_else(|| error.clone())?;
                let unread = request::parse(&named.body, named.json)?;
                let text = &body[..json.unwrap_or(body.len())];
                if !unread.has_names_in_floats_only(text, &named.body) {
                    return Err(error.into());
                }
                unread
            }
        },
    };
    let takes = unread.admit(signature)?;
    let _taken = room.admit(takes, body.len())?;
    Ok(Read { request: unread.read()?, _taken })
}

/// The same where all is well and the body is JSON that holds long lists of floats, in a third of the time.
fn decode_apart(body: &[u8], json: Option<usize>, signature: &Signature, room: &Room) -> Option<Read> {
    if json.is_some_and(|length| length != body.len()) {
        return None;
    }
    let apart = numbers::set_apart(body)?;
    let unread = request::parse_apart(&apart)?;
    let takes = unread.admit(signature).ok()?;
    let _taken = room.admit(takes, body.len()).ok()?;
    Some(Read { request: unread.read().ok()?, _taken })
}

/// The body of an answer, and the bytes of JSON at its begin where binary tensors follow. One that could be large is held
/// against the bounds before any of it is written, and keeps its part of the room until its last byte is sent.
async fn encode(
    app: &App,
    model: &Arc<Model>,
    id: Option<String>,
    forms: Forms,
    called: &Called,
) -> Result<(Bytes, Option<usize>), Refusal> {
    let (outputs, chosen) = likeliest(&app.room, &app.options, model, called.outputs(), &forms).await?;
    let parameters = called.chosen_rows().map(|rows| Chosen { rows });
    let head = Head { model_name: model.name(), model_version: model.version(), id: id.as_deref(), parameters };
    let most = response::most_bytes(head, &outputs, &forms);
    let taken = app.room.reserve_answer(most.all, &app.options)?;
    let (written, taken) = if most.json < LONG_CONVERSION {
        (response::encode(head, &outputs, &forms), taken)
    } else {
        let (model, outputs) = (Arc::clone(model), outputs.into_owned());
        let write = move || {
            let head = Head { model_name: model.name(), model_version: model.version(), id: id.as_deref(), parameters };
            let written = response::encode(head, &outputs, &forms);
            drop(chosen);
            (written, taken)
        };
        long(write).await?
    };
    let unspeakable = |error: Unspeakable| Refusal::bad_request(error.to_string());
    let Encoded { bytes, json } = written.map_err(unspeakable)?;
    Ok((body::counted(bytes, taken), json))
}

/// Elements among which classes are chosen in some milliseconds.
const MANY: usize = 64 * 1024;

/// The outputs, those of which classes are wanted as these, and the room that these take: it is reserved before they are chosen, and
/// choosing among many leaves the thread that answers others.
pub(super) async fn likeliest<'a>(
    room: &Room,
    options: &Options,
    model: &Arc<Model>,
    outputs: &'a Tensors,
    forms: &Forms,
) -> Result<(Cow<'a, Tensors>, Option<Taken>), Refusal> {
    let specs = &model.signature().outputs;
    let wanted = outputs.iter().enumerate().filter_map(|(i, (name, _))| match forms.of(i) {
        Form::Classes { classes, .. } => {
            specs.iter().position(|spec| spec.name == *name).map(|at| Wanted { i, at, classes })
        }
        _ => None,
    });
    let wanted: Vec<Wanted> = wanted.collect();
    if wanted.is_empty() {
        return Ok((Cow::Borrowed(outputs), None));
    }
    let costs = wanted.iter().filter_map(|wanted| Some((wanted, outputs.iter().nth(wanted.i)?.1)));
    let (mut bytes, mut least, mut elements) = (0usize, 0usize, 0usize);
    for (wanted, tensor) in costs {
        bytes = bytes.saturating_add(classes::most_bytes(
            tensor,
            wanted.rows(model, tensor),
            wanted.classes,
            model.labels(wanted.at),
        ));
        least = least.saturating_add(classes::least_bytes(tensor, wanted.rows(model, tensor), wanted.classes));
        elements += tensor.data().len();
    }
    // What is written is held against its own bound when it is known; this is memory that it takes to get there.
    drop(room.reserve_answer(least, options)?);
    let taken = room.reserve_much(bytes).map_err(Refusal::counted)?;
    let (chosen, taken) = if elements < MANY {
        (choose(model, outputs, &wanted), taken)
    } else {
        let (model, outputs) = (Arc::clone(model), outputs.clone());
        long(move || (choose(&model, &outputs, &wanted), taken)).await?
    };
    Ok((Cow::Owned(chosen?), taken))
}

/// An output of which the likeliest classes are wanted.
struct Wanted {
    /// Its place among the outputs that are answered, and in the signature.
    i: usize,
    at: usize,
    classes: usize,
}

impl Wanted {
    /// The axis of its rows, if it has any.
    fn axis(&self, model: &Model) -> Option<usize> {
        match model.signature().outputs[self.at].rows {
            Rows::Axis(axis) => Some(axis),
            Rows::Shared => None,
        }
    }

    fn rows(&self, model: &Model, tensor: &Tensor) -> usize {
        self.axis(model).and_then(|axis| tensor.shape().get(axis).copied()).unwrap_or(1)
    }
}

/// The outputs, the wanted ones as classes.
fn choose(model: &Model, outputs: &Tensors, wanted: &[Wanted]) -> Result<Tensors, Refusal> {
    let chosen = outputs.iter().enumerate().map(|(i, (name, tensor))| {
        let Some(wanted) = wanted.iter().find(|wanted| wanted.i == i) else {
            return Ok((Arc::clone(name), tensor.clone()));
        };
        let axis = wanted.axis(model);
        let in_front = axis.filter(|&axis| axis > 0).map(|axis| tensor.clone().axis_to_front(axis));
        let tensor = in_front.as_ref().unwrap_or(tensor);
        let classes = classes::of(tensor, axis.is_some(), wanted.classes, model.labels(wanted.at));
        let classes = classes.ok_or_else(|| {
            let datatype = tensor.data().datatype().name();
            Refusal::bad_request(format!("output '{name}' is {datatype}: it has no likeliest classes"))
        })?;
        Ok((Arc::clone(name), classes))
    });
    Ok(Tensors::new(chosen.collect::<Result<_, Refusal>>()?).expect("there are as many as before"))
}
