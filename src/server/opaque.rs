//! Any body in, any answer out: models that take a request as it came, and answer it in their own words.
//!
//! `docs/workers.md` has the form in which a request and an answer are elements of a tensor.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Request, StatusCode};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::app::{App, Asked, OfCaller};
use super::arrival::{Came, Coming};
use super::body::{self, LONG_CONVERSION, reading};
use super::call::{self, timing, uncounted, unsaid};
use super::quick::Through;
use super::room::{Room, Taken};
use super::status::{JSON, Refusal};
use super::trace::Traced;
use super::v2::{self, coding};
use crate::error::{Error, Outcome};
use crate::opaque::{self, AnswerHead, RequestHead};
use crate::quote::{Quoted, on_one_line};
use crate::registry::{Model, Priority};
use crate::telemetry::{RequestId, RequestSpan};
use crate::tensor::{Data, Tensor, Tensors};

/// Bytes that a row takes beside its own: where it is found, and where it is kept, in lists that grow by doubling.
const EACH: usize = 64;
/// Most bytes of a model's words that are logged.
const MOST_LOGGED: usize = 4096;

/// The part of a query with which a list of rows is sent to a model that takes bodies whole.
const ARE_ROWS: &str = "instances=rows";

/// A body that holds many rows, and nothing else: what is beside them would be lost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Many<'a> {
    #[serde(borrow)]
    instances: Vec<&'a RawValue>,
}

/// The same, of which nothing is kept but how many they are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HowMany {
    instances: Count,
}

#[derive(Debug)]
struct Count(usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Count, D::Error> {
        struct Counting;

        impl<'de> Visitor<'de> for Counting {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }
        }

        from.deserialize_seq(Counting)
    }
}

/// One row's answer.
struct Said<'a> {
    status: StatusCode,
    content_type: HeaderValue,
    /// Whether its content type is said. A body without it is no caller's where the status is an error's.
    has_type: bool,
    told: &'a [u8],
    /// Whether that is numbers, to be written as JSON.
    numbers: bool,
}

impl Said<'_> {
    /// Most bytes of the body.
    fn most(&self) -> usize {
        if self.numbers { opaque::most_in_list(self.told) } else { self.told.len() }
    }

    /// What the caller gets; `None` where it is nothing that can be said.
    fn body(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            // A status that says that there is no body has none (RFC 9110, sections 15.3.5 and 15.3.6).
            Said { status: StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT, .. } => Some(Cow::Borrowed(&[])),
            Said { told, numbers: true, .. } => opaque::list(told).map(Cow::Owned),
            Said { told, .. } => Some(Cow::Borrowed(told)),
        }
    }
}

/// `POST /models/{model}[/versions/{version}]`
pub(super) async fn ask(
    OfCaller(app): OfCaller,
    Asked(model): Asked,
    coming: Coming,
    traced: Traced,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    answer(&app, &model, coming, &traced.0, request).await.map_err(|refusal| refusal.of(&model))
}

/// The answer to a request for a model that takes any body.
pub(super) async fn answer(
    app: &App,
    model: &Arc<Model>,
    coming: Coming,
    span: &RequestSpan,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    span.model(model.name(), model.version());
    let (parts, body) = request.into_parts();
    let (asking, took) = read(app, model, &coming, &parts, body).await.inspect_err(|refusal| refusal.count(model))?;
    parts.extensions.get::<Through>().inspect(|through| through.is_whole(took));
    let written = infer(app, model, coming.whole(took), None, span, asking).await?;
    let Written { status, content_type, body, timing, .. } = written;
    let mut response = coding::as_wished(&parts.headers, body, &app.room).await?;
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(v2::SERVER_TIMING, timing);
    Ok(response)
}

/// The answer to a small request whose head asks for nothing but inference, with outputs `within` so long after its arrival.
pub(super) async fn answer_plain(
    app: &App,
    model: &Arc<Model>,
    came: Came,
    within: Duration,
    ask: Ask,
) -> Result<Written, Refusal> {
    let answered = match rows(&ask.begin, &ask.body, &ask.query, model.takes_whole(), &app.room) {
        Ok(asking) => infer(app, model, came, Some(within), &RequestSpan::default(), asking).await,
        Err(refusal) => {
            refusal.count(model);
            Err(refusal)
        }
    };
    answered.map_err(|refusal| refusal.of(model))
}

/// A request as it came whole.
pub(super) struct Ask {
    /// What stands before each row: [`begin`].
    pub(super) begin: Vec<u8>,
    /// What stands behind `?`.
    pub(super) query: String,
    /// Its body.
    pub(super) body: Vec<u8>,
}

/// What is asked of the model.
struct Asking {
    rows: Vec<Vec<u8>>,
    /// Whether they are a list, which is answered by one.
    is_many: bool,
    timeout: Option<Duration>,
    _taken: Option<Taken>,
}

/// An answer of the model's.
pub(super) struct Written {
    /// Its status, of success or of an error that the model has a body for.
    pub(super) status: StatusCode,
    /// What its body is.
    pub(super) content_type: HeaderValue,
    /// Its body.
    pub(super) body: Bytes,
    /// The value of `Server-Timing`.
    pub(super) timing: HeaderValue,
    /// From arrival to outputs.
    pub(super) outputs: Duration,
}

/// Asks the model. Outputs are wanted `within` so long after its arrival, if that is known.
async fn infer(
    app: &App,
    model: &Arc<Model>,
    came: Came,
    within: Option<Duration>,
    span: &RequestSpan,
    asking: Asking,
) -> Result<Written, Refusal> {
    let Asking { rows, is_many, timeout, _taken } = asking;
    let inputs = Tensor::new(vec![rows.len()], Data::Bytes(rows)).map_err(|e| Error::Invalid(e.to_string()))?;
    let within = app.within(model.spec().max_latency, timeout.into_iter().chain(within).min());
    let inputs = Tensors::one(opaque::REQUEST, inputs);
    let answer = call::ask(model, inputs, (within, timeout, Priority::default()), came, span).await;
    let answer = answer.map_err(|error| call::refusal(error, timeout, model.spec().max_latency))?;
    let took = answer.queue + answer.batch;
    let timing = HeaderValue::try_from(timing(&answer)).expect("digits and ASCII words are a header's value");
    match write(app, model, &answer.outputs, is_many) {
        Ok((status, content_type, body)) => {
            if status.is_success() {
                span.encoded(answer.count.outcome().label());
            } else {
                span.encoded(if status.is_server_error() { Outcome::Failed } else { Outcome::Invalid }.label());
                uncounted(answer, status);
            }
            Ok(Written { status, content_type, body, timing, outputs: took })
        }
        Err(refusal) => {
            unsaid(answer, &refusal);
            Err(refusal)
        }
    }
}

/// All that comes before the model is asked, and when the last byte was in.
async fn read(
    app: &App,
    model: &Model,
    coming: &Coming,
    parts: &Parts,
    body: Body,
) -> Result<(Asking, Duration), Refusal> {
    if !opaque::is_opaque(model.signature()) {
        let name = model.name();
        let message = format!(
            "this model takes tensors: ask it at /v2/models/{name}/infer or /v1/models/{name}:predict; /v2/models/{name} says \
             which tensors"
        );
        return Err(Refusal::bad_request(message));
    }
    let body =
        coding::read(&parts.headers, body, coming.until(model.spec().max_latency), &app.options, &app.room).await?;
    let query = parts.uri.query().unwrap_or_default();
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let id = parts.extensions.get().map(RequestId::as_str).unwrap_or_default();
    let (begin, query, room) = (begin(headers, query, id), query.to_owned(), app.room.clone());
    let takes_whole = model.takes_whole();
    let read = reading(&body, body.bytes.len() >= LONG_CONVERSION, move |bytes| {
        rows(&begin, bytes, &query, takes_whole, &room)
    });
    Ok((read.await??, body.took))
}

/// What a whole body asks for; its rows begin with `begin`. A model that takes bodies whole gets one row, unless the query says that
/// there are many.
fn rows(begin: &[u8], body: &[u8], query: &str, takes_whole: bool, room: &Room) -> Result<Asking, Refusal> {
    let timeout = timeout(query)?;
    let splits = !takes_whole || query.split('&').any(|pair| pair == ARE_ROWS);
    let many = (splits && has_instances(body)).then(|| serde_json::from_slice::<HowMany>(body).ok()).flatten();
    let count = many.as_ref().map_or(1, |many| many.instances.0);
    if count == 0 {
        return Err(Refusal::bad_request("'instances' is empty"));
    }
    let takes = body.len().saturating_add((begin.len() + EACH).saturating_mul(count));
    let _taken = room.admit(takes, body.len())?;
    let row = |text: &[u8]| [begin, text].concat();
    let many = many.and_then(|_| serde_json::from_slice::<Many<'_>>(body).ok());
    let is_many = many.is_some();
    let rows = match many {
        Some(Many { instances }) => instances.iter().map(|text| row(text.get().as_bytes())).collect(),
        // One document, whatever it holds: the model's to read.
        None => vec![row(body)],
    };
    Ok(Asking { rows, is_many, timeout, _taken })
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

/// What stands before a body, of a head's headers and query.
pub(super) fn begin<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>, query: &str, id: &str) -> Vec<u8> {
    let mut head = RequestHead { query: query.into(), request_id: id.into(), ..RequestHead::default() };
    for (name, value) in headers {
        // Who may ask is our affair, and not the model's.
        let is_secret =
            ["authorization", "proxy-authorization", "cookie"].iter().any(|secret| name.eq_ignore_ascii_case(secret));
        let Some(value) = std::str::from_utf8(value).ok().filter(|_| !is_secret) else { continue };
        if head.content_type.is_empty() && name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()) {
            head.content_type = value.into();
        }
        let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        head.headers.push((if is_lower { name.into() } else { name.to_ascii_lowercase().into() }, value.into()));
    }
    // Whoever reads a head keeps the order of one name's values alone.
    head.headers.sort_by(|(one, _), (other, _)| one.cmp(other));
    opaque::begin(&head)
}

/// How long after its arrival the answer is of use: `timeout` in µs of the query, as the parameter of that name elsewhere.
fn timeout(query: &str) -> Result<Option<Duration>, Refusal> {
    let Some(text) = query.split('&').find_map(|pair| pair.strip_prefix("timeout=")) else { return Ok(None) };
    let digits = Some(text).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(0) => Ok(None),
        Some(us) => Ok(Some(Duration::from_micros(us))),
        None => Err(Refusal::bad_request("the query's 'timeout' is not a whole number of microseconds")),
    }
}

/// What a client gets for the rows' answers.
fn write(
    app: &App,
    model: &Model,
    outputs: &Tensors,
    is_many: bool,
) -> Result<(StatusCode, HeaderValue, Bytes), Refusal> {
    let nonsense = |why: String| {
        let why = on_one_line(&why, MOST_LOGGED);
        model.tell_failed(format_args!("an answer is not as docs/workers.md has it: {why}"));
        Refusal::from(Error::ModelFailed)
    };
    let unlisted = || nonsense("its numbers are none, or among them is one that JSON cannot say".to_owned());
    let answers = outputs.get(opaque::ANSWER).map(Tensor::data);
    let Some(Data::Bytes(answers)) = answers else { return Err(nonsense("it has no 'answer'".to_owned())) };
    let said = answers.iter().map(|answer| said(answer).map_err(nonsense)).collect::<Result<Vec<_>, _>>()?;
    // The first error is that of the whole request.
    if let Some(one) = said.iter().find(|one| !one.status.is_success()) {
        let Said { status, has_type, told, .. } = one;
        if status.is_server_error() {
            let why = on_one_line(&String::from_utf8_lossy(&told[..told.len().min(MOST_LOGGED)]), MOST_LOGGED);
            model.tell_failed(format_args!("a request failed: {why}"));
        }
        return match (has_type, status.is_server_error()) {
            (true, _) => {
                let taken = app.room.reserve_answer(one.most(), &app.options)?;
                let body = one.body().ok_or_else(unlisted)?.into_owned();
                Ok((*status, one.content_type.clone(), body::counted(body, taken)))
            }
            (false, true) => Err(Refusal::from(Error::ModelFailed)),
            (false, false) => Err(Refusal::new(*status, String::from_utf8_lossy(told).into_owned())),
        };
    }
    let bytes = said.iter().map(|said| said.most() + 1).sum::<usize>() + 32;
    let taken = app.room.reserve_answer(bytes, &app.options)?;
    if let ([one], false) = (&said[..], is_many) {
        let body = one.body().ok_or_else(unlisted)?.into_owned();
        return Ok((one.status, one.content_type.clone(), body::counted(body, taken)));
    }
    let mut written = Vec::with_capacity(bytes);
    written.extend_from_slice(b"{\"predictions\":[");
    for (i, one) in said.iter().enumerate() {
        let body = one.body().ok_or_else(unlisted)?;
        if one.content_type != JSON || serde_json::from_slice::<&RawValue>(&body).is_err() {
            let message = "an answer to one of the 'instances' is not JSON, so that they cannot be answered together; send each in a \
                           request of its own";
            return Err(Refusal::bad_request(message));
        }
        written.extend_from_slice(if i > 0 { b"," } else { b"" });
        written.extend_from_slice(&body);
    }
    written.extend_from_slice(b"]}");
    Ok((StatusCode::OK, JSON, body::counted(written, taken)))
}

/// One element of the model's output; why it is none, for the operator.
fn said(element: &[u8]) -> Result<Said<'_>, String> {
    let (AnswerHead { status, content_type, numbers }, told) =
        opaque::decode(element).map_err(|error| error.to_string())?;
    // Others than these would be no answers: 1xx, 304 and such have no body, and 3xx say where else to ask.
    let known = |status: &StatusCode| status.is_success() || status.is_client_error() || status.is_server_error();
    let status = StatusCode::from_u16(status)
        .ok()
        .filter(known)
        .ok_or_else(|| format!("its status {status} is none of 200 to 299 and 400 to 599"))?;
    let has_type = content_type.is_some();
    let content_type = match content_type.as_deref() {
        None | Some(opaque::JSON) => JSON,
        Some(other) => HeaderValue::try_from(other)
            .map_err(|_| format!("its content_type {} is no value of a header", Quoted(other)))?,
    };
    Ok(Said { status, content_type, has_type, told, numbers })
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
    fn rows_take_their_part_of_the_room_before_they_are_written() {
        let begin = vec![b'h'; 2000];
        let ask = |body: &[u8], room| {
            rows(&begin, body, "", false, &Room::new(room)).map_err(|refusal| refusal.status().as_u16())
        };
        let many = format!("{{\"instances\":[{}]}}", ["1"; 400].join(","));
        let busy = Room::new(1 << 20);
        let held = rows(&begin, many.as_bytes(), "", false, &busy).unwrap();
        assert_eq!((held.rows.len(), held.is_many, held.rows[399].len()), (400, true, 2001));
        let full = rows(&begin, many.as_bytes(), "", false, &busy).err();
        assert_eq!(full.map(|refusal| refusal.status().as_u16()), Some(503));
        drop(held);
        assert!(rows(&begin, many.as_bytes(), "", false, &busy).is_ok());
        assert_eq!(ask(many.as_bytes(), 400 * 2000).err(), Some(413));
        assert_eq!(ask(&[b' '; 100_000], 1 << 20).map(|asking| (asking.is_many, asking.rows.len())), Ok((false, 1)));
        assert_eq!(ask(&[b' '; 100_000], 150_000).err(), Some(413));
        // Not UTF-8, and so no JSON: the model's to read.
        assert_eq!(ask(b"{\"instances\":[\"\xff\"]}", 1 << 20).map(|asking| asking.is_many), Ok(false));
    }

    #[test]
    fn an_element_is_read_as_it_is_written_and_nothing_else_is() {
        let bytes =
            opaque::encode(&AnswerHead { status: 202, content_type: Some("text/plain".into()), numbers: false }, b"so");
        let one = said(&bytes).expect("it is one");
        let body = one.body().expect("it is text");
        assert_eq!(
            (one.status.as_u16(), one.content_type.to_str().ok(), &body[..]),
            (202, Some("text/plain"), &b"so"[..])
        );
        let forged = AnswerHead { content_type: Some("a\r\nb: c".into()), ..AnswerHead::default() };
        let of = |status| opaque::encode(&AnswerHead { status, ..AnswerHead::default() }, b"");
        let range = "is none of 200 to 299 and 400 to 599";
        for (bad, why) in [
            (b"".to_vec(), "it has no length".to_owned()),
            (opaque::encode(&forged, b""), "its content_type 'a\\r\\nb: c' is no value of a header".to_owned()),
            (of(101), format!("its status 101 {range}")),
            (of(301), format!("its status 301 {range}")),
            (of(600), format!("its status 600 {range}")),
            (of(7), format!("its status 7 {range}")),
            (b"\x0e\0\0\0{\"status\":\"4\"}".to_vec(), "invalid type: string \"4\"".to_owned()),
        ] {
            let told = said(&bad).err().unwrap_or_default();
            assert!(told.contains(&why), "{told}");
        }
    }

    #[test]
    fn instances_with_anything_beside_them_and_those_of_a_model_that_takes_them_itself_are_one_row() {
        let room = Room::new(1 << 20);
        let count = |body: &str, query: &str, takes_whole| {
            let asking = rows(b"", body.as_bytes(), query, takes_whole, &room).unwrap();
            (asking.rows.len(), asking.is_many)
        };
        let two = r#"{"instances":[1,2]}"#;
        assert_eq!(count(two, "", false), (2, true));
        assert_eq!(count(r#"{"instances":[1,2],"e":"5"}"#, "", false), (1, false));
        assert_eq!(count(two, "a=b", true), (1, false));
        assert_eq!(count(two, "a=b&instances=rows", true), (2, true));
    }
}
