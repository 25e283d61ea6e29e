//! Any body in, any answer out: models that take a request as it came, and answer it in their own words.
//!
//! `docs/workers.md` has the form in which a request and an answer are elements of a tensor.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::app::{App, Asked};
use super::arrival::Arrival;
use super::body;
use super::call::timing;
use super::status::{JSON, Refusal};
use super::trace::Traced;
use super::v2::{self, coding};
use crate::error::Error;
use crate::opaque::{self, AnswerHead, RequestHead};
use crate::registry::{Answer, Model, Terms};
use crate::telemetry::{RequestId, RequestSpan, Ride};
use crate::tensor::{Data, Tensor, Tensors};

/// A body that holds many rows.
#[derive(Debug, Deserialize)]
struct Many<'a> {
    #[serde(borrow)]
    instances: Vec<&'a RawValue>,
}

/// One row's answer.
struct Said<'a> {
    status: StatusCode,
    content_type: HeaderValue,
    body: &'a [u8],
}

/// `POST /models/{model}[/versions/{version}]`
pub(super) async fn ask(
    State(app): State<App>,
    Asked(model): Asked,
    arrival: Arrival,
    traced: Traced,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    answer(&app, &model, arrival, &traced.0, request).await.map_err(|refusal| refusal.of(&model))
}

async fn answer(
    app: &App,
    model: &Arc<Model>,
    arrival: Arrival,
    span: &RequestSpan,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    span.model(model.name(), model.version());
    let (parts, body) = request.into_parts();
    let read = read(app, model, &parts, body).await.inspect_err(|_| model.count_unreadable())?;
    let (rows, is_many) = read;
    span.decoded(rows.len());
    let inputs = Tensor::new(vec![rows.len()], Data::Bytes(rows)).map_err(|e| Error::Invalid(e.to_string()))?;
    let terms = Terms::since(arrival.0).traced(span.span_ref()).within(timeout(&parts)?);
    let answer = model.infer(Tensors::one(opaque::REQUEST, inputs), terms).await?;
    let &Answer { queue, batch, batch_rows, batch_span, .. } = &answer;
    span.executed(Ride { queue, batch, batch_rows, batch_span });
    let timing = HeaderValue::try_from(timing(&answer)).expect("digits and ASCII words are a header's value");
    let written = match write(app, model, &answer.outputs, is_many) {
        Ok(written) => written,
        Err(refusal) if refusal.status().is_server_error() => {
            answer.count.failed();
            return Err(refusal);
        }
        Err(refusal) => {
            answer.count.invalid();
            return Err(refusal);
        }
    };
    span.encoded(answer.count.outcome().label());
    drop(answer);
    let (status, content_type, bytes) = written;
    let mut response = coding::as_wished(&parts.headers, bytes).await?;
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(v2::SERVER_TIMING, timing);
    Ok(response)
}

/// The rows of a request, and whether it is a list of them.
async fn read(app: &App, model: &Model, parts: &Parts, body: Body) -> Result<(Vec<Vec<u8>>, bool), Refusal> {
    if !opaque::is_opaque(model.signature()) {
        let name = model.name();
        let message = format!(
            "this model takes tensors: ask it at /v2/models/{name}/infer or /v1/models/{name}:predict; /v2/models/{name} says \
             which tensors"
        );
        return Err(Refusal::bad_request(message));
    }
    let body = coding::read(&parts.headers, body, &app.options, &app.room).await?;
    let begin = begin(parts);
    if !has_instances(&body.bytes) {
        return Ok((vec![[&begin, &body.bytes[..]].concat()], false));
    }
    match serde_json::from_slice::<Many<'_>>(&body.bytes) {
        Ok(Many { instances }) if instances.is_empty() => Err(Refusal::bad_request("'instances' is empty")),
        Ok(Many { instances }) => {
            let takes = body.bytes.len().saturating_add(begin.len().saturating_mul(instances.len()));
            app.room.could_hold(takes)?;
            Ok((instances.iter().map(|row| [&begin, row.get().as_bytes()].concat()).collect(), true))
        }
        // One document that happens to say so, or none at all: the model's to read.
        Err(_) => Ok((vec![[&begin, &body.bytes[..]].concat()], false)),
    }
}

/// Whether a body begins as `{"instances": [`. Anything else is one row, whatever it holds: nobody reads it twice.
fn has_instances(body: &[u8]) -> bool {
    let mut rest = body;
    for token in [&b"{"[..], b"\"instances\"", b":", b"["] {
        match rest.trim_ascii_start().strip_prefix(token) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    true
}

/// What stands before a body.
fn begin(parts: &Parts) -> Vec<u8> {
    // Who may ask is our affair, and not the model's.
    let is_secret = |name: &str| matches!(name, "authorization" | "proxy-authorization" | "cookie");
    let pairs = parts.headers.iter().filter(|(name, _)| !is_secret(name.as_str()));
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    opaque::begin(&RequestHead {
        content_type: content_type.unwrap_or_default().into(),
        query: parts.uri.query().unwrap_or_default().into(),
        headers: pairs.filter_map(|(name, value)| Some((name.as_str().into(), value.to_str().ok()?.into()))).collect(),
        request_id: parts.extensions.get().map(RequestId::as_str).unwrap_or_default().into(),
    })
}

/// How long after its arrival the answer is of use: `timeout` in µs of the query, as the parameter of that name elsewhere.
fn timeout(parts: &Parts) -> Result<Option<Duration>, Refusal> {
    let query = parts.uri.query().unwrap_or_default();
    let Some(text) = query.split('&').find_map(|pair| pair.strip_prefix("timeout=")) else { return Ok(None) };
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(us) => Ok(Some(Duration::from_micros(us))),
        Err(_) => Err(Refusal::bad_request("the query's 'timeout' is not a whole number of microseconds")),
    }
}

/// What a client gets for the rows' answers.
fn write(
    app: &App,
    model: &Model,
    outputs: &Tensors,
    is_many: bool,
) -> Result<(StatusCode, HeaderValue, Bytes), Refusal> {
    let nonsense = || {
        tracing::error!(model = model.name(), "an answer is not what docs/workers.md says that it is");
        Refusal::from(Error::ModelFailed)
    };
    let answers = outputs.get(opaque::ANSWER).map(Tensor::data);
    let Some(Data::Bytes(answers)) = answers else { return Err(nonsense()) };
    let said = answers.iter().map(|answer| said(answer).ok_or_else(nonsense)).collect::<Result<Vec<_>, _>>()?;
    for Said { status, body, .. } in &said {
        if status.is_server_error() {
            let why = String::from_utf8_lossy(&body[..body.len().min(4096)]);
            let why = crate::quote::on_one_line(&why, 4096);
            tracing::error!(model = model.name(), version = model.version(), "a request failed: {why}");
            return Err(Refusal::from(Error::ModelFailed));
        }
        if status.is_client_error() {
            return Err(Refusal::new(*status, String::from_utf8_lossy(body).into_owned()));
        }
    }
    let bytes = said.iter().map(|said| said.body.len() + 1).sum::<usize>() + 32;
    let taken = app.room.reserve_answer(bytes, &app.options)?;
    if let ([Said { status, content_type, body }], false) = (&said[..], is_many) {
        return Ok((*status, content_type.clone(), body::counted(body.to_vec(), taken)));
    }
    let mut written = Vec::with_capacity(bytes);
    written.extend_from_slice(b"{\"predictions\":[");
    for (i, Said { content_type, body, .. }) in said.iter().enumerate() {
        if *content_type != JSON || serde_json::from_slice::<&RawValue>(body).is_err() {
            let message = "an answer to one of the 'instances' is not JSON, so that they cannot be answered together; send each in a \
                           request of its own";
            return Err(Refusal::bad_request(message));
        }
        written.extend_from_slice(if i > 0 { b"," } else { b"" });
        written.extend_from_slice(body);
    }
    written.extend_from_slice(b"]}");
    Ok((StatusCode::OK, JSON, body::counted(written, taken)))
}

/// One element of the model's output; `None` where it is none.
fn said(element: &[u8]) -> Option<Said<'_>> {
    let (AnswerHead { status, content_type }, body) = opaque::decode(element).ok()?;
    let status = StatusCode::from_u16(status).ok()?;
    // Others than these would be no answers: 1xx, 304 and such have no body.
    let is_known = status.is_success() || status.is_client_error() || status.is_server_error();
    let content_type = if content_type == opaque::JSON { JSON } else { HeaderValue::try_from(&*content_type).ok()? };
    is_known.then_some(Said { status, content_type, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_document_that_begins_with_instances_is_many_rows() {
        for many in [r#"{"instances":[1]}"#, " { \"instances\" :\n[ {} ] }"] {
            assert!(has_instances(many.as_bytes()), "{many}");
        }
        for one in ["", "{}", r#"{"x":1,"instances":[1]}"#, r#"{"instances":{}}"#, "\u{feff}{"] {
            assert!(!has_instances(one.as_bytes()), "{one}");
        }
    }

    #[test]
    fn an_element_is_read_as_it_is_written_and_nothing_else_is() {
        let bytes = opaque::encode(&AnswerHead { status: 202, content_type: "text/plain".into() }, b"so");
        let Said { status, content_type, body } = said(&bytes).expect("it is one");
        assert_eq!((status.as_u16(), content_type.to_str().ok(), body), (202, Some("text/plain"), &b"so"[..]));
        let forged = AnswerHead { content_type: "a\r\nb: c".into(), ..AnswerHead::default() };
        let informing = AnswerHead { status: 101, ..AnswerHead::default() };
        for bad in [&b""[..], &opaque::encode(&forged, b""), &opaque::encode(&informing, b"")] {
            assert!(said(bad).is_none(), "{bad:?}");
        }
    }
}
