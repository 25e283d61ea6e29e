//! The server span of one request, with a child for each stage, named as OpenTelemetry's conventions for HTTP have it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::header::{HOST, HeaderMap, USER_AGENT};
use http::{Method, Uri, Version};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Link, Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Context, KeyValue, StringValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span};
use tokio::time::Instant;

use super::{RequestId, SpanRef, Tracer, context, ms, span_ref};

/// Paths that get no span: they are asked for every few seconds, for ever, and there is nothing to learn from it.
const POLLED: [&str; 7] = [
    "/metrics",
    "/status",
    "/v2/health/live",
    "/v2/health/ready",
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];

/// What a request's head says.
#[derive(Debug)]
pub struct Head<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its target.
    pub uri: &'a Uri,
    /// Its HTTP version.
    pub version: Version,
    /// Its headers, `traceparent` and `tracestate` among them.
    pub headers: &'a HeaderMap,
    /// Who sent it.
    pub peer: Option<SocketAddr>,
    /// Whether it came over TLS.
    pub is_secured: bool,
    /// Its name.
    pub id: &'a RequestId,
}

/// How an answer came about.
#[derive(Debug, Clone, Copy)]
pub struct Ride {
    /// From arrival to the release of the batch.
    pub queue: Duration,
    /// From release to outputs.
    pub batch: Duration,
    /// Rows of the batch.
    pub batch_rows: usize,
    /// The batch's own span.
    pub batch_span: Option<SpanRef>,
}

/// The span of a request, or none where it is not sampled. Clones are the same span. Dropping the last one unfinished ends
/// it as the span of a request whose caller has left.
#[derive(Debug, Clone, Default)]
pub struct RequestSpan(Option<Arc<Open>>);

#[derive(Debug)]
struct Open {
    tracer: Arc<SdkTracer>,
    own: SpanRef,
    /// What children are made in.
    context: Context,
    /// The moment of arrival on both clocks: spans are told in the wall's time, durations are taken by the steady one.
    arrival: Instant,
    arrival_wall: SystemTime,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    span: Span,
    /// Where the next stage begins.
    mark: Instant,
    finished: bool,
}

impl Tracer {
    /// Begins the span of a request that came in at `arrival`, if it is sampled.
    pub fn request(&self, head: &Head<'_>, arrival: Instant) -> RequestSpan {
        let Some(tracer) = &self.0 else { return RequestSpan::default() };
        if POLLED.contains(&head.uri.path()) {
            return RequestSpan::default();
        }
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(head.headers));
        let arrival_wall = SystemTime::now() - arrival.elapsed();
        let (name, method) = method_names(head.method);
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Server).with_start_time(arrival_wall);
        let mut span = tracer.build_with_context(builder, &parent);
        if !span.is_recording() {
            return RequestSpan::default();
        }
        span.set_attributes(attributes(head, method));
        let context = Context::new().with_remote_span_context(span.span_context().clone());
        let own = span_ref(span.span_context());
        let state = Mutex::new(State { span, mark: arrival, finished: false });
        RequestSpan(Some(Arc::new(Open { tracer: Arc::clone(tracer), own, context, arrival, arrival_wall, state })))
    }
}

impl RequestSpan {
    /// Which span it is; `None` where the request is not sampled.
    pub fn span_ref(&self) -> Option<SpanRef> {
        self.0.as_ref().map(|open| open.own)
    }

    /// The pattern of the path that answers the request: `/v2/models/{model}/infer`.
    pub fn route(&self, method: &Method, route: &str) {
        let Some(open) = &self.0 else { return };
        let mut state = open.lock();
        state.span.update_name(format!("{} {route}", method_names(method).0));
        state.span.set_attribute(KeyValue::new("http.route", route.to_owned()));
    }

    /// The model that is asked.
    pub fn model(&self, name: &str, version: &str) {
        self.set(|| {
            let name = KeyValue::new("uncork.model.name", name.to_owned());
            [name, KeyValue::new("uncork.model.version", version.to_owned())]
        });
    }

    /// All of the request was in at `at`: the end of the stage `receive`.
    pub fn received(&self, at: Instant) {
        let Some(open) = &self.0 else { return };
        open.stage("receive", at, None);
    }

    /// The request is taken apart: the end of the stage `decode`.
    pub fn decoded(&self, rows: usize) {
        self.set(|| [KeyValue::new("uncork.request.rows", rows as i64)]);
        let Some(open) = &self.0 else { return };
        open.stage("decode", Instant::now(), None);
    }

    /// The outputs are there: the end of the stages `queue` and `execute`.
    pub fn executed(&self, ride: Ride) {
        let Some(open) = &self.0 else { return };
        self.set(|| {
            [
                KeyValue::new("uncork.queue_ms", ms(ride.queue)),
                KeyValue::new("uncork.batch_ms", ms(ride.batch)),
                KeyValue::new("uncork.batch.rows", ride.batch_rows as i64),
            ]
        });
        let released = open.arrival + ride.queue;
        open.stage("queue", released, None);
        open.stage("execute", released + ride.batch, ride.batch_span);
        open.lock().mark = Instant::now();
    }

    /// The answer is written: the end of the stage `encode`.
    pub fn encoded(&self, outcome: &'static str) {
        self.set(|| [outcome_attribute(outcome)]);
        let Some(open) = &self.0 else { return };
        open.stage("encode", Instant::now(), None);
    }

    /// Ends the span with the answer's status, and, for a refusal, why.
    pub fn finish(&self, status: u16, refused_for: Option<&'static str>) {
        let Some(open) = &self.0 else { return };
        let mut state = open.lock();
        state.finished = true;
        let span = &mut state.span;
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if let Some(reason) = refused_for {
            span.set_attribute(outcome_attribute(reason));
        }
        if status >= 500 {
            // By the conventions a 4xx is the caller's error, not this span's.
            span.set_attribute(KeyValue::new("error.type", refused_for.unwrap_or("internal")));
            span.set_status(Status::error(""));
        }
        span.end_with_timestamp(open.wall(Instant::now()));
    }

    fn set<const N: usize>(&self, attributes: impl FnOnce() -> [KeyValue; N]) {
        if let Some(open) = &self.0 {
            open.lock().span.set_attributes(attributes());
        }
    }
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wall's time of `instant`.
    fn wall(&self, instant: Instant) -> SystemTime {
        self.arrival_wall + instant.saturating_duration_since(self.arrival)
    }

    /// A child from the end of the stage before to `end`.
    fn stage(&self, name: &'static str, end: Instant, link: Option<SpanRef>) {
        let begin = {
            let mut state = self.lock();
            // The parts of a split request are not told apart, so their stages may overlap; none ends before it begins.
            let begin = state.mark.min(end);
            state.mark = end;
            begin
        };
        let builder = SpanBuilder::from_name(name).with_start_time(self.wall(begin));
        let builder = match link {
            Some(batch) => builder.with_links(vec![Link::with_context(context(batch))]),
            None => builder,
        };
        self.tracer.build_with_context(builder, &self.context).end_with_timestamp(self.wall(end));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let end = self.wall(Instant::now());
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.finished {
            state.span.set_attribute(outcome_attribute("departed"));
            state.span.end_with_timestamp(end);
        }
    }
}

fn outcome_attribute(outcome: &'static str) -> KeyValue {
    KeyValue::new("uncork.outcome", outcome)
}

/// A method's place in a span's name, and as an attribute: a method that nobody knows must not make names without end.
fn method_names(method: &Method) -> (&'static str, &'static str) {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.iter().find(|known| **known == method.as_str()).map_or(("HTTP", "_OTHER"), |known| (known, known))
}

/// Most bytes of a path or of what a client calls itself: spans wait in memory.
const MOST_OF_A_HEADER: usize = 256;

fn attributes(head: &Head<'_>, method: &'static str) -> Vec<KeyValue> {
    let text = |value: &str| StringValue::from(value[..value.floor_char_boundary(MOST_OF_A_HEADER)].to_owned());
    let mut found = Vec::with_capacity(16); // those here, and those that follow until the end
    found.push(KeyValue::new("http.request.method", method));
    found.push(KeyValue::new("url.path", text(head.uri.path())));
    found.push(KeyValue::new("url.scheme", if head.is_secured { "https" } else { "http" }));
    let version = match head.version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    found.push(KeyValue::new("network.protocol.version", version));
    found.push(KeyValue::new("uncork.request_id", text(head.id.as_str())));
    if let Some((host, port)) = head.headers.get(HOST).and_then(|host| host_and_port(host.to_str().ok()?)) {
        found.push(KeyValue::new("server.address", host.into_owned()));
        found.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
    }
    if let Some(peer) = head.peer {
        found.push(KeyValue::new("client.address", peer.ip().to_string()));
        found.push(KeyValue::new("client.port", i64::from(peer.port())));
    }
    if let Some(agent) = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        found.push(KeyValue::new("user_agent.original", text(agent)));
    }
    found
}

fn host_and_port(host: &str) -> Option<(Cow<'_, str>, Option<u16>)> {
    let authority: http::uri::Authority = host.parse().ok()?;
    Some((Cow::Owned(authority.host().to_owned()), authority.port_u16()))
}

/// A request's headers as OpenTelemetry wants to read them.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
