//! `ModelInfer` and `ModelStreamInfer`: from a message to a call, and from what comes of it to a message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesOrdered, Stream, StreamExt};
use http::StatusCode;
use prost::Message as _;
use tokio::time::Instant;

use super::Desk;
use super::contents;
use super::message::{Message, Messages, framed, packed, write};
use super::proto::inference::infer_parameter::ParameterChoice;
use super::proto::inference::model_infer_response::InferOutputTensor;
use super::proto::inference::{InferParameter, ModelInferResponse};
use super::request::{self, InferRequest};
use super::wire::{field_len, write_key};
use crate::raw;
use crate::registry::{Caller, Model, Registry};
use crate::server::access::Bearer;
use crate::server::arrival::{Arrival, Came};
use crate::server::body::{self, Whole, reading};
use crate::server::call::{Called, refusal, takes_tensors};
use crate::server::room::{Room, Taken};
use crate::server::status::Refusal;
use crate::server::untaken::Place;
use crate::server::v2::likeliest;
use crate::server::v2::request::Forms;
use crate::telemetry::{RequestId, RequestSpan};
use crate::tensor::{Data, Tensors};

/// Requests of one stream that are asked at the same time. The next is looked at when the first of them is answered.
const IN_FLIGHT: usize = 64;

/// Field numbers in `inference.proto`.
const RAW_OUTPUT_CONTENTS: u32 = 6;
const ERROR_MESSAGE: u32 = 1;
const INFER_RESPONSE: u32 = 2;

/// What an answer is written into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// A message of its own.
    Alone,
    /// A `ModelStreamInferResponse`.
    InStream,
}

/// A good answer.
pub(super) struct Written {
    /// The message with its head.
    pub(super) message: Bytes,
    /// The value of `Server-Timing`.
    pub(super) timing: String,
}

/// A request whose elements are read, whom it asks, and the part of the room that it takes.
struct Read {
    model: Arc<Model>,
    id: String,
    wants_final: bool,
    request: InferRequest,
    _taken: Option<Taken>,
}

/// How an answer is written.
struct How<'a> {
    forms: &'a Forms,
    as_contents: bool,
    wants_final: bool,
    frame: Frame,
}

/// A request as it came.
pub(super) struct Ask<'a> {
    /// Its message.
    pub(super) whole: &'a Whole,
    /// The room for all that it takes.
    pub(super) room: &'a Room,
    /// When it came.
    pub(super) arrival: Instant,
    /// Whose it is.
    pub(super) caller: Caller,
    /// How long after it came its answer is of use, where the call says so.
    pub(super) deadline: Option<Duration>,
    /// What it is traced by.
    pub(super) span: &'a RequestSpan,
    /// What its answer is written into.
    pub(super) frame: Frame,
}

impl Desk {
    /// Counts a request of a stream that no model counts.
    fn turn_away(&self, refusal: &Refusal) {
        if let Some(why) = refusal.why_turned_away() {
            self.quick.http.turn_away(why);
        }
    }

    /// Answers one request.
    pub(super) async fn infer(&self, ask: Ask<'_>) -> Result<Written, Refusal> {
        let (registry, span, room) = (self.app.registry.clone(), ask.span.clone(), ask.room.clone());
        let is_long = request::is_long(&ask.whole.bytes);
        let read = reading(ask.whole, is_long, move |bytes| read(&registry, &span, bytes, &room)).await??;
        let model = Arc::clone(&read.model);
        self.ask(&model, read, ask).await.map_err(|refusal| refusal.of(&model))
    }

    async fn ask(&self, model: &Arc<Model>, read: Read, ask: Ask<'_>) -> Result<Written, Refusal> {
        let Ask { whole, room, arrival, caller, deadline, span, frame } = ask;
        let Read { id, wants_final, request: InferRequest { mut call, forms, as_contents }, _taken, .. } = read;
        call.timeout = call.timeout.into_iter().chain(deadline).min();
        let (own, cap) = (call.timeout, model.spec().max_latency);
        let within = self.app.within(cap, own);
        let came = Came { arrival: Arrival(arrival), whole: arrival + whole.took, caller };
        let called =
            call.make(model, within, came, span).await.map_err(|error| refusal(error, own, cap).or_timeout())?;
        let timing = called.timing();
        let how = How { forms: &forms, as_contents, wants_final, frame };
        match self.write(model, &id, &called, how, room).await {
            Ok(message) => {
                called.written(span);
                Ok(Written { message, timing })
            }
            Err(refusal) => {
                called.unsaid(&refusal);
                Err(refusal)
            }
        }
    }

    /// Writes the answer. One that could be large is held against the bounds before, and keeps its part of the room until its
    /// last byte is sent.
    async fn write(
        &self,
        model: &Arc<Model>,
        id: &str,
        called: &Called,
        how: How<'_>,
        room: &Room,
    ) -> Result<Bytes, Refusal> {
        let How { forms, as_contents, wants_final, frame } = how;
        let (outputs, _chosen) = likeliest(room, &self.app.options, model, called.outputs(), forms).await?;
        let as_contents = as_contents && outputs.iter().all(|(_, tensor)| contents::has(tensor.data().datatype()));
        let most = outputs.iter().map(|(name, tensor)| {
            let elements = if as_contents { contents::most_bytes(tensor.data()) } else { raw::len(tensor.data()) };
            elements.saturating_add(64 + name.len() + 10 * tensor.shape().len())
        });
        let names = 128 + model.name().len() + model.version().len() + id.len();
        let taken = room.reserve_answer(most.fold(names, usize::saturating_add), &self.app.options)?;
        let head = head(model, id, &outputs, as_contents, parameters(called, wants_final));
        let raw: Vec<&Data> = if as_contents { Vec::new() } else { outputs.iter().map(|(_, t)| t.data()).collect() };
        Ok(body::counted(encode(&head, &raw, frame), taken))
    }

    /// Answers each message of a stream, in the order in which they come.
    pub(super) fn infer_each(
        self,
        messages: Messages,
        bearer: Bearer,
        deadline: Option<Duration>,
        place: Option<Place>,
    ) -> impl Stream<Item = Result<Bytes, Refusal>> {
        let (desk, asked) = (Arc::new(self), FuturesOrdered::new());
        let each = Each { desk, messages, bearer, deadline, asked, is_over: false, _place: place };
        stream::unfold(each, |mut each| async move { Some((each.next().await?, each)) })
    }
}

/// Reads a request. Its elements are read last: by then it is known that the model takes such tensors, and that there is room.
fn read(registry: &Registry, span: &RequestSpan, message: &[u8], room: &Room) -> Result<Read, Refusal> {
    let unread = request::parse(message)?;
    let version = Some(unread.version).filter(|version| !version.is_empty());
    let model = registry.answering(unread.model, version)?;
    span.model(model.name(), model.version());
    let (id, wants_final) = (unread.id.to_owned(), unread.wants_final);
    let read = || {
        takes_tensors(&model)?;
        let admitted = unread.admit(model.signature())?;
        let taken = room.admit(admitted.takes, message.len())?;
        Ok((admitted.read()?, taken))
    };
    let (request, _taken) = read().map_err(|refusal: Refusal| {
        refusal.count(&model);
        refusal.of(&model)
    })?;
    Ok(Read { model, id, wants_final, request, _taken })
}

/// What the client calls a request, where that can be read.
fn id(message: &[u8]) -> String {
    request::parse(message).map(|unread| unread.id.to_owned()).unwrap_or_default()
}

/// A stream, and what of it is being answered.
struct Each {
    desk: Arc<Desk>,
    messages: Messages,
    bearer: Bearer,
    deadline: Option<Duration>,
    asked: FuturesOrdered<BoxFuture<'static, Result<Bytes, Refusal>>>,
    /// No message is read any more.
    is_over: bool,
    _place: Option<Place>,
}

impl Each {
    async fn next(&mut self) -> Option<Result<Bytes, Refusal>> {
        loop {
            let may_read = !self.is_over && self.asked.len() < IN_FLIGHT;
            let may_keep = !self.is_over && self.messages.may_read_ahead();
            let messages = &mut self.messages;
            tokio::select! {
                biased;
                Some(answer) = self.asked.next(), if !self.asked.is_empty() => return Some(answer),
                () = self.desk.line.closing(), if may_read => {
                    self.is_over = true;
                    let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is going");
                    self.asked.push_back(Box::pin(async { Err(refusal.retry_after(Duration::from_secs(1))) }));
                }
                message = async {
                    if may_read { messages.next().await.map(Some) } else { messages.read_ahead().await.map(|()| None) }
                }, if may_read || may_keep => match message {
                    Ok(Some(Some(message))) => self.ask(message),
                    Ok(Some(None)) => self.is_over = true,
                    Ok(None) => {}
                    Err(refusal) => {
                        self.is_over = true;
                        self.desk.turn_away(&refusal);
                        self.asked.push_back(Box::pin(async { Err(refusal) }));
                    }
                },
                else => return None,
            }
        }
    }

    fn ask(&mut self, message: Message) {
        let (desk, bearer) = (Arc::clone(&self.desk), self.bearer);
        // The deadline is the whole call's.
        let left =
            self.deadline.map(|all| all.saturating_sub(message.arrived.saturating_duration_since(desk.arrival.0)));
        self.asked.push_back(Box::pin(async move {
            let (coding, room) = (message.coding, message.room.clone());
            let (whole, answered) = match desk.quick.door.pace(bearer) {
                Ok(caller) => match message.unpacked().await {
                    Ok(Message { whole, arrived, .. }) => {
                        let (span, frame) = (&RequestSpan::default(), Frame::InStream);
                        let ask =
                            Ask { whole: &whole, room: &room, arrival: arrived, caller, deadline: left, span, frame };
                        let answered = desk.infer(ask).await;
                        (Some(whole), answered)
                    }
                    // No later message can be read either.
                    Err(refusal) if refusal.ends_call() => return Err(refusal),
                    Err(refusal) => (None, Err(refusal)),
                },
                Err(refusal) => (message.plain(), Err(refusal)),
            };
            let (status, message) = match answered {
                Ok(written) => (StatusCode::OK, written.message),
                Err(refusal) => {
                    desk.quick.refusals.note(&refusal, &RequestId::made(), None);
                    desk.turn_away(&refusal);
                    let id = match &whole {
                        Some(whole) => reading(whole, request::is_long(&whole.bytes), id).await?,
                        None => String::new(),
                    };
                    (refusal.status(), apology(&refusal, &id))
                }
            };
            desk.quick.http.count(status.as_u16());
            packed(message, coding, &room).await
        }));
    }
}

/// All of an answer but what is raw.
fn head(
    model: &Model,
    id: &str,
    outputs: &Tensors,
    as_contents: bool,
    parameters: BTreeMap<String, InferParameter>,
) -> ModelInferResponse {
    let outputs = outputs.iter().map(|(name, tensor)| InferOutputTensor {
        name: name.to_string(),
        datatype: tensor.data().datatype().name().to_owned(),
        shape: tensor.shape().iter().map(|&n| n as i64).collect(),
        parameters: Default::default(),
        contents: as_contents.then(|| contents::of(tensor.data())),
    });
    ModelInferResponse {
        model_name: model.name().to_owned(),
        model_version: model.version().to_owned(),
        id: id.to_owned(),
        parameters,
        outputs: outputs.collect(),
        raw_output_contents: Vec::new(),
    }
}

/// What an answer says beside its outputs.
fn parameters(called: &Called, wants_final: bool) -> BTreeMap<String, InferParameter> {
    let named = |name: &str, choice| (name.to_owned(), InferParameter { parameter_choice: Some(choice) });
    // There is one answer to each request.
    let is_final = wants_final.then(|| named("triton_final_response", ParameterChoice::BoolParam(true)));
    let rows = called.chosen_rows().map(|rows| named("rows", ParameterChoice::StringParam(rows.to_owned())));
    is_final.into_iter().chain(rows).collect()
}

/// A message with its head, into which the raw elements are written without a detour.
fn encode(head: &ModelInferResponse, raw: &[&Data], frame: Frame) -> Vec<u8> {
    let length = raw.iter().map(|data| field_len(raw::len(data))).fold(head.encoded_len(), usize::saturating_add);
    framed(length + 16, |to| {
        if frame == Frame::InStream {
            write_key(INFER_RESPONSE, length, to);
        }
        write(head, to);
        for data in raw {
            write_key(RAW_OUTPUT_CONTENTS, raw::len(data), to);
            raw::write(data, to);
        }
    })
}

/// What a stream answers where there is no answer: why, and to which request.
fn apology(refusal: &Refusal, id: &str) -> Bytes {
    let empty = ModelInferResponse { id: id.to_owned(), ..ModelInferResponse::default() };
    let message = refusal.message();
    let bytes = framed(message.len() + id.len() + 32, |to| {
        write_key(ERROR_MESSAGE, message.len(), to);
        to.extend_from_slice(message.as_bytes());
        write_key(INFER_RESPONSE, empty.encoded_len(), to);
        write(&empty, to);
    });
    bytes.into()
}
