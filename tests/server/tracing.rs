//! What the server tells a collector about requests and batches, and that telling costs nobody an answer.
//!
//! The collector here is a real receiver of OTLP, over a socket, with OpenTelemetry's own messages.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use uncork::registry::{Caps, ModelSpec, Registry, Source};
use uncork::runner::synthetic::Synthetic;
use uncork::runner::{Runner, RunnerError, Signature};
use uncork::server::{Ended, Options, Server};
use uncork::telemetry::{Counts, Sampling, Settings, Traces};
use uncork::tensor::{Data, Tensors};

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

/// A caller's trace, and the span in it from which it asks.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

const SPAN_KIND_SERVER: i32 = 2;
const STATUS_UNSET: i32 = 0;
const STATUS_ERROR: i32 = 2;

fn traceparent(sampled: bool) -> (&'static str, String) {
    ("traceparent", format!("00-{TRACE}-{CALLER}-0{}", u8::from(sampled)))
}

/// A receiver of OTLP over HTTP, with all that it got.
struct Collector {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>,
    _tasks: JoinSet<()>,
}

impl Collector {
    async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let posts = Arc::new(Mutex::new(Vec::new()));
        let (mut tasks, kept) = (JoinSet::new(), Arc::clone(&posts));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let kept = Arc::clone(&kept);
                connections.spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let kept = Arc::clone(&kept);
                        async move {
                            assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/traces"));
                            let (head, body) = request.into_parts();
                            let body = body.collect().await.unwrap().to_bytes();
                            let message = ExportTraceServiceRequest::decode(body).unwrap();
                            kept.lock().unwrap().push((head.headers, message));
                            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
                        }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    connection.serve_connection(TokioIo::new(stream), service).await.unwrap();
                });
            }
        });
        Collector { address, posts, _tasks: tasks }
    }

    fn settings(&self) -> Settings {
        to(self.address)
    }

    fn spans(&self) -> Spans {
        let posts = self.posts.lock().unwrap();
        let resources = posts.iter().flat_map(|(_, message)| &message.resource_spans);
        Spans(resources.flat_map(|r| &r.scope_spans).flat_map(|s| s.spans.clone()).collect())
    }
}

fn to(address: SocketAddr) -> Settings {
    Settings::to(format!("http://{address}{}", Settings::PATH).parse().unwrap())
}

struct Spans(Vec<Span>);

impl Spans {
    fn named(&self, name: &str) -> Vec<&Span> {
        self.0.iter().filter(|span| span.name == name).collect()
    }

    /// The only span of that name.
    fn one(&self, name: &str) -> &Span {
        let found = self.named(name);
        let names: Vec<&str> = self.0.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(found.len(), 1, "'{name}' among {names:?}");
        found[0]
    }

    fn children(&self, parent: &Span) -> Vec<&Span> {
        self.0.iter().filter(|span| span.parent_span_id == parent.span_id).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn value(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match found {
        any_value::Value::StringValue(text) => json!(text),
        any_value::Value::IntValue(n) => json!(n),
        any_value::Value::DoubleValue(x) => json!(x),
        other => panic!("{key} is {other:?}"),
    })
}

fn attribute(span: &Span, key: &str) -> Value {
    value(&span.attributes, key).unwrap_or_else(|| panic!("no {key} in {:?}", span.attributes))
}

fn number(span: &Span, key: &str) -> f64 {
    attribute(span, key).as_f64().unwrap()
}

fn status(span: &Span) -> i32 {
    span.status.as_ref().map_or(STATUS_UNSET, |status| status.code)
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Ended>,
    traces: Traces,
}

/// The model `m`, with caps that refuse nothing here.
fn model(source: Source) -> ModelSpec {
    ModelSpec::new("m", source, Caps::new(HANGS, 8))
}

/// A stand-in whose batches take `base`.
fn stand_in(base: Duration) -> ModelSpec {
    model(Source::Synthetic { base, per_row: Duration::ZERO })
}

/// Holds the batches of a stand-in back for as long as it is shut.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn model(&self) -> ModelSpec {
        let gate = self.clone();
        model(Source::runners("gated", move |_| {
            Ok(Gated { gate: gate.clone(), inner: Synthetic::new(Duration::ZERO, Duration::ZERO) })
        }))
    }

    fn set(&self, is_shut: bool) {
        *self.0.0.lock().unwrap() = is_shut;
        self.0.1.notify_all();
    }
}

struct Gated {
    gate: Gate,
    inner: Synthetic,
}

impl Runner for Gated {
    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let (is_shut, opened) = &*self.gate.0;
        drop(opened.wait_while(is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap());
        self.inner.run(batch)
    }
}

/// Fails at every batch whose first number is 7.
struct Failing(Synthetic);

impl Runner for Failing {
    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        match batch.get("x").unwrap().data() {
            Data::Fp32(x) if x[0] == 7.0 => Err(RunnerError::Failed("out of cheese".into())),
            _ => self.0.run(batch),
        }
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Running {
    async fn start(settings: Settings, model: ModelSpec) -> Running {
        let traces = Traces::start(settings);
        let tracer = traces.tracer();
        let load = move || Registry::load_traced(vec![model], tracer);
        let registry = tokio::task::spawn_blocking(load).await.unwrap().unwrap();
        let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
        Running { address, stop, serving, traces }
    }

    /// Answers what is asked, sends all spans, and ends.
    async fn end(self) -> Counts {
        self.end_within(HANGS).await
    }

    async fn end_within(self, within: Duration) -> Counts {
        self.stop.send(()).unwrap();
        assert_eq!(self.serving.await.unwrap(), Ended::Drained);
        self.traces.finish(within).await
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, String)], body: String) -> Answer {
        let exchange = async {
            let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            let mut request = Request::builder().method(method).uri(path).header("host", self.address.to_string());
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let answer = async move {
                let (head, body) = sender.send_request(request).await.unwrap().into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                Answer {
                    status: head.status.as_u16(),
                    headers: head.headers,
                    body: String::from_utf8(body.to_vec()).unwrap(),
                }
            };
            let (answer, _) = tokio::join!(answer, connection);
            answer
        };
        tokio::time::timeout(HANGS, exchange).await.expect("an answer in time")
    }

    async fn infer(&self, headers: &[(&str, String)], body: &Value) -> Answer {
        self.ask("POST", "/v2/models/m/infer", headers, body.to_string()).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], String::new()).await
    }

    /// Waits until a gauge of the model says `value`.
    async fn until(&self, gauge: &str, value: usize) {
        let line = format!("{gauge}{{model=\"m\",version=\"1\"}} {value}\n");
        let looking = async { while !self.get("/metrics").await.body.contains(&line) {} };
        tokio::time::timeout(HANGS, looking).await.expect(&line);
    }
}

/// A request of so many rows.
fn rows(n: usize) -> Value {
    json!({"inputs": [{"name": "x", "shape": [n, 1], "datatype": "FP32", "data": vec![1.0; n]}]})
}

#[tokio::test]
async fn a_request_s_span_continues_the_trace_of_its_caller_and_says_what_happened_when() {
    let collector = Collector::start().await;
    let settings = Settings {
        headers: vec![("api-key".parse().unwrap(), "secret".parse().unwrap())],
        service_name: Some("shop".into()),
        ..collector.settings()
    };
    let running = Running::start(settings, stand_in(Duration::from_millis(20))).await;
    let headers = [traceparent(true), ("tracestate", "a=b".into()), ("x-request-id", "order-7".into())];
    assert_eq!(running.infer(&headers, &rows(3)).await.status, 200);
    assert_eq!(running.end().await, Counts { sent: 7, dropped: 0, failed: 0 });

    let spans = collector.spans();
    let span = spans.one("POST /v2/models/{model}/infer");
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!((span.kind, status(span), span.trace_state.as_str()), (SPAN_KIND_SERVER, STATUS_UNSET, "a=b"));
    for (key, expected) in [
        ("http.request.method", json!("POST")),
        ("http.route", json!("/v2/models/{model}/infer")),
        ("http.response.status_code", json!(200)),
        ("url.path", json!("/v2/models/m/infer")),
        ("url.scheme", json!("http")),
        ("server.address", json!("127.0.0.1")),
        ("client.address", json!("127.0.0.1")),
        ("uncork.request_id", json!("order-7")),
        ("uncork.model.name", json!("m")),
        ("uncork.model.version", json!("1")),
        ("uncork.request.rows", json!(3)),
        ("uncork.batch.rows", json!(3)),
        ("uncork.outcome", json!("on_time")),
    ] {
        assert_eq!(attribute(span, key), expected, "{key}");
    }
    assert!(number(span, "uncork.batch_ms") >= 20.0 && number(span, "uncork.queue_ms") >= 0.0);

    let mut stages = spans.children(span);
    stages.sort_by_key(|stage| stage.start_time_unix_nano);
    let names: Vec<_> = stages.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["receive", "decode", "queue", "execute", "encode"]);
    assert!(stages.iter().all(|stage| stage.trace_id == span.trace_id && stage.trace_state == "a=b"));
    for pair in stages.windows(2) {
        assert!(pair[0].end_time_unix_nano <= pair[1].start_time_unix_nano, "{} overlaps", pair[1].name);
    }
    let (first, last) = (stages[0], stages[4]);
    assert_eq!(first.start_time_unix_nano, span.start_time_unix_nano);
    assert!(last.end_time_unix_nano <= span.end_time_unix_nano);
    let executed = stages[3].end_time_unix_nano - stages[3].start_time_unix_nano;
    assert!(executed >= 20_000_000, "a batch takes 20 ms, this one {executed} ns");

    let posts = collector.posts.lock().unwrap();
    let (headers, message) = &posts[0];
    assert_eq!(headers["api-key"], "secret");
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let resource = &message.resource_spans[0].resource.as_ref().unwrap().attributes;
    assert_eq!(value(resource, "service.name"), Some(json!("shop")));
    assert_eq!(value(resource, "service.version"), Some(json!(env!("CARGO_PKG_VERSION"))));
}

#[tokio::test]
async fn a_batch_s_span_links_to_the_spans_of_all_requests_in_it_and_they_to_it() {
    let (collector, gate) = (Collector::start().await, Gate::default());
    let running = Running::start(collector.settings(), gate.model()).await;
    gate.set(true);
    let infer = |i: usize| {
        let parent = format!("00-{:032x}-{CALLER}-01", 0xabc0 + i);
        let running = &running;
        async move { running.infer(&[("traceparent", parent)], &rows(1)).await.status }
    };
    let others = async {
        // While the first is with the runner, the others gather behind it.
        running.until("uncork_in_flight_batches", 1).await;
        let opening = async {
            running.until("uncork_queue_rows", 7).await;
            gate.set(false);
        };
        tokio::join!(join_all((1..8).map(infer)), opening).0
    };
    let (first, others) = tokio::join!(infer(0), others);
    assert_eq!((first, others), (200, vec![200; 7]));
    running.end().await;

    let spans = collector.spans();
    let requests = spans.named("POST /v2/models/{model}/infer");
    let batches = spans.named("batch");
    let traces: HashSet<&Vec<u8>> = requests.iter().map(|request| &request.trace_id).collect();
    assert_eq!((requests.len(), traces.len()), (8, 8));
    let mut sizes: Vec<usize> = batches.iter().map(|batch| batch.links.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 7], "what waited together rides together");
    let mut batch_of = HashMap::new();
    for batch in &batches {
        assert!(
            batch.parent_span_id.is_empty() && !traces.contains(&batch.trace_id),
            "a batch is of no request's trace"
        );
        assert_eq!(attribute(batch, "uncork.batch.requests"), json!(batch.links.len()), "every request is sampled");
        assert_eq!(attribute(batch, "uncork.batch.rows"), json!(batch.links.len()));
        assert_eq!(attribute(batch, "uncork.model.name"), json!("m"));
        assert_eq!(attribute(batch, "uncork.model.version"), json!("1"));
        assert!(attribute(batch, "uncork.batch.release_reason").is_string());
        let took = (batch.end_time_unix_nano - batch.start_time_unix_nano) as f64 / 1e6;
        assert!((number(batch, "uncork.batch.real_ms") - took).abs() < 0.001, "{took} ms");
        assert!(number(batch, "uncork.batch.held_ms") >= 0.0 && number(batch, "uncork.batch.predicted_ms") >= 0.0);
        for link in &batch.links {
            let other = batch_of.insert((&link.trace_id, &link.span_id), batch);
            assert!(other.is_none(), "a request rides in one batch");
        }
    }
    for request in requests {
        let batch = batch_of[&(&request.trace_id, &request.span_id)];
        assert_eq!(attribute(request, "uncork.batch.rows"), attribute(batch, "uncork.batch.rows"));
        let stages = spans.children(request);
        let execute = stages.iter().find(|stage| stage.name == "execute").unwrap();
        assert_eq!((&execute.links[0].trace_id, &execute.links[0].span_id), (&batch.trace_id, &batch.span_id));
    }
}

#[tokio::test]
async fn a_batch_with_one_sampled_request_has_a_span_with_that_link_and_the_numbers_of_the_whole() {
    let (collector, gate) = (Collector::start().await, Gate::default());
    let running = Running::start(collector.settings(), gate.model()).await;
    gate.set(true);
    let (unsampled, one) = ([traceparent(false)], rows(1));
    let first = running.infer(&unsampled, &one);
    let others = async {
        running.until("uncork_in_flight_batches", 1).await;
        let (plain, sampled) = ([traceparent(false)], [traceparent(true)]);
        let (two, three) = (rows(2), rows(3));
        let opening = async {
            running.until("uncork_queue_rows", 5).await;
            gate.set(false);
        };
        let others = tokio::join!(running.infer(&plain, &two), running.infer(&sampled, &three), opening);
        [others.0.status, others.1.status]
    };
    let (first, others) = tokio::join!(first, others);
    assert_eq!((first.status, others), (200, [200; 2]));
    running.end().await;
    let spans = collector.spans();
    let batch = spans.one("batch");
    assert_eq!(hex(&batch.links[0].trace_id), TRACE);
    assert_eq!(batch.links.len(), 1);
    assert_eq!(
        (attribute(batch, "uncork.batch.requests"), attribute(batch, "uncork.batch.rows")),
        (json!(2), json!(5))
    );
}

#[tokio::test]
async fn a_failed_batch_s_span_says_why_and_its_request_s_span_only_that_it_failed() {
    let collector = Collector::start().await;
    let failing = Source::runners("failing", |_| Ok(Failing(Synthetic::new(Duration::ZERO, Duration::ZERO))));
    let running = Running::start(collector.settings(), model(failing)).await;
    let mut seven = rows(1);
    seven["inputs"][0]["data"] = json!([7.0]);
    let answer = running.infer(&[], &seven).await;
    assert!(answer.status == 500 && !answer.body.contains("cheese"), "{}", answer.body);
    running.end().await;
    let spans = collector.spans();
    let (batch, request) = (spans.one("batch"), spans.one("POST /v2/models/{model}/infer"));
    assert_eq!((status(batch), status(request)), (STATUS_ERROR, STATUS_ERROR));
    assert_eq!(batch.status.as_ref().unwrap().message, "out of cheese");
    assert_eq!(attribute(request, "uncork.outcome"), json!("failed"));
}

#[tokio::test]
async fn a_request_that_its_caller_does_not_sample_has_no_span_nor_has_its_batch() {
    let collector = Collector::start().await;
    let running = Running::start(collector.settings(), stand_in(Duration::ZERO)).await;
    assert_eq!(running.infer(&[traceparent(false)], &rows(1)).await.status, 200);
    // Probes and scrapes come for ever, and have none either.
    for path in ["/metrics", "/status", "/v2/health/live", "/v2/health/ready"] {
        assert_eq!(running.get(path).await.status, 200);
    }
    assert_eq!(running.end().await, Counts::default());
}

#[tokio::test]
async fn without_a_caller_s_decision_the_ratio_decides() {
    let collector = Collector::start().await;
    let none = Sampling { follow_caller: true, ratio: 0.0 };
    let running = Running::start(Settings { sampling: none, ..collector.settings() }, stand_in(Duration::ZERO)).await;
    assert_eq!(running.infer(&[], &rows(1)).await.status, 200);
    assert_eq!(running.infer(&[traceparent(true)], &rows(1)).await.status, 200);
    running.end().await;
    let span = hex(&collector.spans().one("POST /v2/models/{model}/infer").trace_id);
    assert_eq!(span, TRACE, "only that of the caller who wants it");

    let all = Sampling { follow_caller: false, ratio: 1.0 };
    let collector = Collector::start().await;
    let running = Running::start(Settings { sampling: all, ..collector.settings() }, stand_in(Duration::ZERO)).await;
    for headers in [vec![], vec![traceparent(false)], vec![("traceparent", "00-nonsense".to_owned())]] {
        assert_eq!(running.infer(&headers, &rows(1)).await.status, 200);
    }
    running.end().await;
    assert_eq!(collector.spans().named("POST /v2/models/{model}/infer").len(), 3);
}

#[tokio::test]
async fn a_refused_request_s_span_says_why() {
    let collector = Collector::start().await;
    let running = Running::start(collector.settings(), stand_in(Duration::from_millis(50))).await;
    let mut hurried = rows(1);
    hurried["parameters"] = json!({"timeout": 1000});
    assert_eq!(running.infer(&[], &hurried).await.status, 503);
    assert_eq!(running.infer(&[], &json!({})).await.status, 400);
    assert_eq!(running.get("/v2/models/other").await.status, 404);
    assert_eq!(running.get("/nowhere").await.status, 404);
    running.end().await;

    let spans = collector.spans();
    let mut infer = spans.named("POST /v2/models/{model}/infer");
    infer.sort_by_key(|span| span.start_time_unix_nano);
    let [late, invalid] = infer[..] else { panic!("{infer:?}") };
    assert_eq!((status(late), attribute(late, "http.response.status_code")), (STATUS_ERROR, json!(503)));
    assert_eq!(
        (attribute(late, "uncork.outcome"), attribute(late, "error.type")),
        (json!("own_deadline"), json!("own_deadline"))
    );
    assert_eq!(attribute(late, "uncork.model.name"), json!("m"));
    assert_eq!((status(invalid), attribute(invalid, "uncork.outcome")), (STATUS_UNSET, json!("invalid")));
    let unknown = spans.one("GET /v2/models/{model}");
    assert_eq!(attribute(unknown, "uncork.outcome"), json!("not_found"));
    assert_eq!(attribute(spans.one("GET"), "url.path"), json!("/nowhere"), "no pattern, no name made of a path");
    assert!(spans.named("batch").is_empty());
}

#[tokio::test]
async fn a_caller_who_leaves_while_its_request_waits_leaves_a_span_that_says_so() {
    let (collector, gate) = (Collector::start().await, Gate::default());
    let running = Running::start(collector.settings(), gate.model()).await;
    gate.set(true);
    let second = async {
        running.until("uncork_in_flight_batches", 1).await;
        let body = rows(2).to_string();
        let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        running.until("uncork_queue_rows", 2).await;
        stream.set_zero_linger().unwrap();
        drop(stream);
        running.until("uncork_queue_rows", 0).await;
        gate.set(false);
    };
    let one = rows(1);
    let (first, ()) = tokio::join!(running.infer(&[], &one), second);
    assert_eq!(first.status, 200);
    running.end().await;
    let spans = collector.spans();
    let spans = spans.named("POST /v2/models/{model}/infer");
    let gone: Vec<_> = spans.iter().filter(|span| attribute(span, "uncork.outcome") == json!("departed")).collect();
    assert_eq!((spans.len(), gone.len()), (2, 1));
    assert_eq!(attribute(gone[0], "uncork.request.rows"), json!(2));
    assert!(gone[0].attributes.iter().all(|a| a.key != "http.response.status_code"), "there was no answer");
}

#[tokio::test]
async fn a_collector_that_hangs_delays_no_answer_and_what_it_does_not_take_is_counted() {
    // Connections are made, by the kernel, and nobody ever reads from them.
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let running = Running::start(to(hung.local_addr().unwrap()), stand_in(Duration::ZERO)).await;
    let stream = TokioIo::new(TcpStream::connect(running.address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    // The queue of 8192 spans must fill, with 6 for each request; then some more.
    let (mut asked, mut more) = (0, 100);
    let mut slowest = Duration::ZERO;
    while more > 0 {
        let body = Full::new(Bytes::from(rows(1).to_string()));
        let request = Request::post("/v2/models/m/infer").header("host", "a").body(body).unwrap();
        let begin = Instant::now();
        let response = tokio::time::timeout(HANGS, sender.send_request(request)).await.expect("an answer").unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
        slowest = slowest.max(begin.elapsed());
        asked += 1;
        assert!(asked < 10_000, "the queue is bounded: {:?}", running.traces.counts());
        more -= u32::from(running.traces.counts().dropped > 0);
    }
    // A post to it is given up after 10 seconds; whoever waited for one would have waited longer than this.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    drop(sender);
    connection.await.unwrap().unwrap();
    let begin = Instant::now();
    let counts = running.end_within(Duration::from_millis(100)).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "the end waits no longer than it is told to");
    assert_eq!((counts.sent, counts.failed), (0, 0));
    assert!(counts.dropped > 100, "{counts:?}");
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_the_spans_and_nothing_else() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let running = Running::start(to(gone), stand_in(Duration::ZERO)).await;
    for _ in 0..10 {
        assert_eq!(running.infer(&[], &rows(1)).await.status, 200);
    }
    assert_eq!(running.end().await, Counts { sent: 0, dropped: 0, failed: 70 });
}

#[tokio::test]
async fn every_answer_names_its_request_by_the_caller_s_name_if_that_is_sane() {
    let collector = Collector::start().await;
    let running = Running::start(collector.settings(), stand_in(Duration::ZERO)).await;
    let mut seen = HashSet::new();
    for (method, path, body, expected) in [
        ("POST", "/v2/models/m/infer", rows(1).to_string(), 200),
        ("POST", "/v2/models/m/infer", "{".to_owned(), 400),
        ("GET", "/nowhere", String::new(), 404),
        ("PUT", "/metrics", String::new(), 405),
        ("GET", "/", String::new(), 200),
    ] {
        let given = running.ask(method, path, &[("x-request-id", "a.B-9".into())], body.clone()).await;
        assert_eq!(given.status, expected);
        assert_eq!(given.headers["x-request-id"], "a.B-9");
        let made = running.ask(method, path, &[("x-request-id", "a b\"".into())], body).await;
        let made = made.headers["x-request-id"].to_str().unwrap().to_owned();
        assert!(made.len() == 16 && made.bytes().all(|b| b.is_ascii_hexdigit()), "{made:?}");
        assert!(seen.insert(made), "names are made once");
    }
    // What never becomes a request has a name too.
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("\r\nx-request-id: "), "{answer}");
    running.end().await;
}
