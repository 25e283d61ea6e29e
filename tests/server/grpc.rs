//! What the server promises clients of gRPC, one test for each promise. `tests/clients` has the clients that others wrote.

// The server's own messages: what a client of this proto would have.
#[allow(clippy::all, dead_code, unreachable_pub, reason = "written by a program, and not used whole")]
#[path = "../../src/server/grpc/proto/inference.rs"]
#[rustfmt::skip]
mod inference;
#[allow(clippy::all, dead_code, unreachable_pub, reason = "written by a program, and not used whole")]
#[path = "../../src/server/grpc/proto/health.rs"]
#[rustfmt::skip]
mod health;
#[allow(clippy::all, dead_code, unreachable_pub, reason = "written by a program, and not used whole")]
#[path = "../../src/server/grpc/proto/reflection.rs"]
#[rustfmt::skip]
mod reflection;

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use uncork::registry::{Caps, ModelSpec, Registry, Source};
use uncork::server::{Access, Ended, Options, Server};
use uncork::telemetry::Tracer;

use crate::folder::Folder;
use inference::infer_parameter::ParameterChoice;
use inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse, ModelReadyRequest, ModelReadyResponse,
    ModelStreamInferResponse,
};

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Ended>,
}

/// A server of one stand-in, `m`, whose batches take `base` and may take `cap` with all that is before them.
async fn start(options: Options, base: Duration, cap: Duration) -> Running {
    let model = ModelSpec::new("m", Source::Synthetic { base, per_row: Duration::ZERO }, Caps::new(cap, 8));
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
    let server = Server::bind("127.0.0.1:0", options).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    Running { address, stop: Some(stop), serving }
}

async fn simple() -> Running {
    start(Options::default(), Duration::ZERO, Duration::from_secs(10)).await
}

type Body = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

/// A client of one connection.
#[derive(Clone)]
struct Client(SendRequest<Body>);

/// How a call ended.
#[derive(Debug)]
struct Called {
    headers: HeaderMap,
    /// Headers and trailers together.
    ending: HeaderMap,
    messages: Vec<Bytes>,
}

impl Called {
    fn status(&self) -> &str {
        self.ending["grpc-status"].to_str().unwrap()
    }

    fn message(&self) -> String {
        percent_encoding::percent_decode_str(self.ending["grpc-message"].to_str().unwrap())
            .decode_utf8()
            .unwrap()
            .into()
    }

    fn only<M: Message + Default>(&self) -> M {
        assert_eq!((self.status(), self.messages.len()), ("0", 1), "{self:?}");
        M::decode(&self.messages[0][..]).unwrap()
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = vec![0];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes.into()
}

/// Messages of a body, none of them compressed.
fn messages(mut body: &[u8]) -> Vec<Bytes> {
    let mut found = Vec::new();
    while let Some((head, rest)) = body.split_first_chunk::<5>() {
        assert_eq!(head[0], 0);
        let (message, rest) = rest.split_at(u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize);
        found.push(Bytes::copy_from_slice(message));
        body = rest;
    }
    found
}

impl Client {
    async fn connect(address: SocketAddr) -> Client {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Client(sender)
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)], body: Body) -> Response<Incoming> {
        let mut request = Request::post(format!("http://localhost/{path}")).header("te", "trailers");
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sending = self.0.clone().send_request(request.body(body).unwrap());
        tokio::time::timeout(HANGS, sending).await.expect("an answer in time").unwrap()
    }

    /// Calls with bytes as they are.
    async fn raw(&self, path: &str, headers: &[(&str, &str)], bytes: Bytes) -> Called {
        let response = self.send(path, headers, Full::new(bytes).boxed()).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/grpc".parse().unwrap())
        );
        let headers = response.headers().clone();
        let body = tokio::time::timeout(HANGS, response.into_body().collect()).await.expect("it ends").unwrap();
        let mut ending = headers.clone();
        ending.extend(body.trailers().cloned().unwrap_or_default());
        Called { headers, ending, messages: messages(&body.to_bytes()) }
    }

    async fn call(&self, method: &str, request: &impl Message) -> Called {
        self.call_with(method, &[], request).await
    }

    async fn call_with(&self, method: &str, headers: &[(&str, &str)], request: &impl Message) -> Called {
        self.raw(&path(method), headers, framed(&request.encode_to_vec())).await
    }

    async fn get(&self, path: &str) -> String {
        let request = Request::get(format!("http://localhost{path}")).body(Full::new(Bytes::new()).boxed()).unwrap();
        let response = self.0.clone().send_request(request).await.unwrap();
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }
}

fn path(method: &str) -> String {
    if method.contains('/') { method.to_owned() } else { format!("inference.GRPCInferenceService/{method}") }
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(choice) }
}

/// A request of these numbers, a row each, for the stand-in, which answers 2x + 1.
fn raw(numbers: &[f32]) -> ModelInferRequest {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let shape = vec![numbers.len() as i64, 1];
    let input = InferInputTensor { name: "x".into(), datatype: "FP32".into(), shape, ..Default::default() };
    ModelInferRequest {
        model_name: "m".into(),
        id: "seven".into(),
        inputs: vec![input],
        raw_input_contents: vec![bytes.into()],
        ..Default::default()
    }
}

fn typed(numbers: &[f32]) -> ModelInferRequest {
    let mut request = raw(numbers);
    request.raw_input_contents.clear();
    request.inputs[0].contents = Some(InferTensorContents { fp32_contents: numbers.to_vec(), ..Default::default() });
    request
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

#[tokio::test]
async fn a_call_is_answered_in_the_form_in_which_it_asks() {
    let server = simple().await;
    let client = Client::connect(server.address).await;
    let called = client.call("ModelInfer", &raw(&[1.0, 2.0])).await;
    let answer: ModelInferResponse = called.only();
    assert_eq!((&*answer.model_name, &*answer.model_version, &*answer.id), ("m", "1", "seven"));
    let output = &answer.outputs[0];
    assert_eq!((&*output.name, &*output.datatype, &output.shape[..]), ("y", "FP32", &[2, 1][..]));
    assert_eq!((numbers(&answer.raw_output_contents[0]), &output.contents), (vec![3.0, 5.0], &None));
    assert!(called.headers["server-timing"].to_str().unwrap().contains("batch;dur="), "{called:?}");
    assert!(called.headers.contains_key("x-request-id"));
    let answer: ModelInferResponse = client.call("ModelInfer", &typed(&[1.0, 2.0])).await.only();
    assert_eq!(answer.outputs[0].contents.as_ref().unwrap().fp32_contents, [3.0, 5.0]);
    assert!(answer.raw_output_contents.is_empty() && answer.parameters.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn operators_call_all_but_inference_at_their_address() {
    let source = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
    let model = ModelSpec::new("m", source, Caps::new(Duration::from_secs(10), 8));
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap().admin("127.0.0.1:0").await.unwrap();
    let url = server.admin_urls().next().unwrap();
    let (_stop, stopped) = oneshot::channel::<()>();
    let _serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    let client = Client::connect(url.strip_prefix("http://").unwrap().parse().unwrap()).await;
    assert_eq!(client.call("ServerReady", &()).await.status(), "0");
    for inference in ["ModelInfer", "ModelStreamInfer"] {
        let refused = client.call(inference, &raw(&[1.0])).await;
        assert_eq!(refused.status(), "12", "{inference}");
        assert!(refused.message().contains("this address is for operators"), "{}", refused.message());
    }
}

#[tokio::test]
async fn calls_count_as_requests_of_any_protocol_do() {
    let server = simple().await;
    let client = Client::connect(server.address).await;
    client.call("ModelInfer", &raw(&[1.0])).await.only::<ModelInferResponse>();
    let wrong = client.call("ModelInfer", &ModelInferRequest { model_name: "m".into(), ..Default::default() }).await;
    assert_eq!((wrong.status(), &*wrong.message()), ("3", "a request needs at least one input"));
    let metrics = client.get("/metrics").await;
    for line in [
        "uncork_http_requests_total{code=\"200\"} 1\n",
        "uncork_http_requests_total{code=\"400\"} 1\n",
        "uncork_requests_total{model=\"m\",version=\"1\",outcome=\"on_time\"} 1\n",
        "uncork_requests_total{model=\"m\",version=\"1\",outcome=\"invalid\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn calls_and_messages_of_streams_that_no_model_counts_are_counted_and_probes_are_not() {
    let source = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
    let model = ModelSpec::new("m", source, Caps::new(Duration::from_secs(10), 8));
    let (registry, _opening) = Registry::open(vec![model], Tracer::off());
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
    let address = server.address();
    let (_stop, stopped) = oneshot::channel::<()>();
    let _serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    let client = Client::connect(address).await;
    let ready = ModelReadyRequest { name: "m".into(), ..Default::default() };
    assert!(!client.call("ModelReady", &ready).await.only::<ModelReadyResponse>().ready);
    assert_eq!(client.call("ModelMetadata", &ready).await.status(), "14");
    assert_eq!(client.call("ModelInfer", &raw(&[1.0])).await.status(), "14");
    let two = [framed(&raw(&[1.0]).encode_to_vec()), framed(&raw(&[2.0]).encode_to_vec())].concat();
    let answers = client.raw(&path("ModelStreamInfer"), &[], two.into()).await;
    assert_eq!((answers.status(), answers.messages.len()), ("0", 2));
    let metrics = client.get("/metrics").await;
    assert!(metrics.contains("uncork_turned_away_total{reason=\"loading\"} 3\n"), "{metrics}");
}

#[tokio::test]
async fn each_error_has_its_status_and_a_sentence() {
    let options = Options { max_body_bytes: 4096, ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let change = |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut request = raw(&[1.0]);
        change(&mut request);
        framed(&request.encode_to_vec())
    };
    let with = |name: &str, choice: ParameterChoice| {
        change(&|r| {
            r.parameters.insert(name.into(), parameter(choice.clone()));
        })
    };
    let output = |name: &str| InferRequestedOutputTensor { name: name.into(), ..Default::default() };
    let cases = [
        (change(&|r| r.model_name = "nobody".into()), "5", "unknown model 'nobody'"),
        (change(&|r| r.model_version = "7".into()), "5", "has no version '7'"),
        (change(&|r| r.inputs[0].name = "z".into()), "3", "'z'"),
        (change(&|r| r.inputs[0].datatype = "FP99".into()), "3", "unknown datatype 'FP99'"),
        (change(&|r| r.inputs[0].datatype = "INT64".into()), "3", "FP32"),
        (change(&|r| r.inputs[0].shape = vec![1, -1]), "3", "negative"),
        (change(&|r| r.inputs[0].shape = vec![2, 1]), "3", "takes 8 bytes, but 4 are given"),
        (change(&|r| r.raw_input_contents.push(Bytes::new())), "3", "2 raw_input_contents for 1 inputs"),
        (change(&|r| r.inputs[0].contents = Some(Default::default())), "3", "both contents and raw"),
        (change(&|r| r.raw_input_contents.clear()), "3", "its contents have 0"),
        (change(&|r| r.outputs = vec![output("nothing")]), "3", "unknown output 'nothing'"),
        (change(&|r| r.outputs = vec![output("y"), output("y")]), "3", "asked for twice"),
        (change(&|r| r.inputs[0].shape = vec![1; 2000]), "3", "1024 dimensions"),
        (with("timeout", ParameterChoice::StringParam("soon".into())), "3", "'timeout' must be"),
        (with("priority", ParameterChoice::Int64Param(-1)), "3", "'priority' must be"),
        (with("unknown", ParameterChoice::DoubleParam(1.0)), "0", ""),
        (with("priority", ParameterChoice::Uint64Param(4_000_000_000)), "0", ""),
        (with("timeout", ParameterChoice::Int64Param(9_000_000)), "0", ""),
        (framed(&[0x0b]), "3", "not protobuf"),
        (framed(&vec![0; 5000]), "8", "larger than the 4096 bytes"),
        (Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), "8", "larger than the 4096 bytes"),
        (Bytes::from_static(&[0, 0, 0, 0, 9, 1]), "3", "broke off"),
        (Bytes::from_static(&[7, 0, 0, 0, 0]), "3", "not made of gRPC's messages"),
        (Bytes::new(), "3", "no message"),
        ([framed(&[]), framed(&[])].concat().into(), "3", "more than one message"),
    ];
    for (i, (bytes, status, words)) in cases.into_iter().enumerate() {
        let called = client.raw(&path("ModelInfer"), &[], bytes).await;
        assert_eq!(called.status(), status, "{i}: {called:?}");
        assert!(status == "0" || called.message().contains(words), "{i}: {}", called.message());
    }
    for (method, headers, status) in [
        ("ModelNothing", &[][..], "12"),
        ("Nobody/ModelInfer", &[], "12"),
        ("ModelInfer", &[("content-type", "application/grpc+json")], "12"),
        ("ModelInfer", &[("grpc-timeout", "soon")], "3"),
        ("ModelInfer", &[("content-type", "application/grpc+proto")], "0"),
    ] {
        let called = client.raw(&path(method), headers, change(&|_| {})).await;
        assert_eq!(called.status(), status, "{method} {headers:?}: {called:?}");
    }
    client.call("ModelInfer", &raw(&[1.0])).await.only::<ModelInferResponse>();
    let fixed = client.raw(&path("RepositoryModelLoad"), &[], framed(&[])).await;
    assert_eq!(fixed.status(), "12", "its models do not change: {fixed:?}");
}

#[tokio::test]
async fn messages_are_compressed_both_ways_within_the_bound() {
    let options = Options { max_body_bytes: 64 * 1024, ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let pack = |bytes: &[u8]| {
        use std::io::Write;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        let mut framed = framed(&packer.finish().unwrap()).to_vec();
        framed[0] = 1;
        Bytes::from(framed)
    };
    let headers = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity, gzip")];
    let request = raw(&[1.0; 600]);
    let response = client.send(&path("ModelInfer"), &headers, Full::new(pack(&request.encode_to_vec())).boxed()).await;
    assert_eq!(response.headers()["grpc-encoding"], "gzip");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body[0], 1, "compressed");
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&body[5..]), &mut unpacked).unwrap();
    let answer = ModelInferResponse::decode(&unpacked[..]).unwrap();
    assert_eq!(numbers(&answer.raw_output_contents[0]), [3.0; 600]);
    // A small one comes as it is.
    let small = client.raw(&path("ModelInfer"), &headers, pack(&raw(&[1.0]).encode_to_vec())).await;
    assert_eq!(numbers(&small.only::<ModelInferResponse>().raw_output_contents[0]), [3.0]);
    let bomb = client.raw(&path("ModelInfer"), &headers, pack(&vec![0; 10 << 20])).await;
    assert_eq!(bomb.status(), "8", "{bomb:?}");
    let unknown = client.raw(&path("ModelInfer"), &[("grpc-encoding", "snappy")], pack(&[])).await;
    assert_eq!(
        (unknown.status(), &unknown.headers["grpc-accept-encoding"]),
        ("12", &"identity,gzip,deflate".parse().unwrap())
    );
    let unknown = client.raw(&path("ModelStreamInfer"), &[("grpc-encoding", "snappy")], pack(&[])).await;
    assert_eq!((unknown.status(), unknown.headers.contains_key("grpc-accept-encoding")), ("12", true), "{unknown:?}");
    for (method, headers) in
        [("ModelInfer", &[][..]), ("ModelStreamInfer", &[]), ("ModelInfer", &[("grpc-encoding", "identity")])]
    {
        let unsaid = client.raw(&path(method), headers, pack(&raw(&[1.0]).encode_to_vec())).await;
        assert_eq!((unsaid.status(), unsaid.headers.contains_key("grpc-accept-encoding")), ("13", false), "{unsaid:?}");
        assert!(unsaid.message().contains("no grpc-encoding says how"), "{}", unsaid.message());
    }
    let plain =
        client.raw(&path("ModelInfer"), &[("grpc-encoding", "snappy")], framed(&raw(&[1.0]).encode_to_vec())).await;
    assert_eq!(plain.status(), "0", "it is not compressed: {plain:?}");
    let broken = client.raw(&path("ModelInfer"), &headers, Bytes::from_static(&[1, 0, 0, 0, 2, 0x1f, 0x8b])).await;
    assert_eq!(broken.status(), "3", "{broken:?}");
    assert!(broken.message().contains("is not what its grpc-encoding says"), "{}", broken.message());
}

/// The only thread for blocking work stands, and what takes long is not done elsewhere.
#[test]
fn a_long_message_is_parsed_apart_from_what_answers_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let server = simple().await;
        let client = Client::connect(server.address).await;
        let (release, until) = std::sync::mpsc::channel::<()>();
        let stands = tokio::task::spawn_blocking(move || until.recv());
        // A field that is not known, three bytes each.
        let long = [raw(&[1.0]).encode_to_vec(), [0xf8, 1, 1].repeat(100_000)].concat();
        let infer = path("ModelInfer");
        let mut long = std::pin::pin!(client.raw(&infer, &[], framed(&long)));
        let (sender, body) = stream(&client, "ModelStreamInfer").await;
        let no_model = ModelInferRequest { model_name: "nope".into(), ..Default::default() };
        let no_model = [no_model.encode_to_vec(), [0xf8, 1, 1].repeat(100_000)].concat();
        sender.send(framed(&no_model)).unwrap();
        let short = raw(&[2.0]);
        for _ in 0..50 {
            tokio::select! {
                biased;
                called = &mut long => panic!("parsed by the thread that answers others: {called:?}"),
                called = client.call("ModelInfer", &short) => assert_eq!(called.status(), "0", "{called:?}"),
            }
        }
        drop(release);
        assert_eq!(numbers(&long.await.only::<ModelInferResponse>().raw_output_contents[0]), [3.0]);
        let mut body = body.await.unwrap().into_body();
        let told = ModelStreamInferResponse::decode(next(&mut body).await.unwrap()).unwrap();
        assert!(told.error_message.contains("nope"), "{told:?}");
        let _ = stands.await;
    });
}

#[tokio::test]
async fn what_cannot_be_in_time_is_refused_with_when_to_ask_again() {
    // Two batches of eight are in time, of the eight that are asked for.
    let server = start(Options::default(), Duration::from_millis(100), Duration::from_millis(250)).await;
    let client = Client::connect(server.address).await;
    let request = raw(&[1.0]);
    let called = futures_util::future::join_all((0..64).map(|_| client.call("ModelInfer", &request))).await;
    let refused: Vec<_> = called.iter().filter(|called| called.status() != "0").collect();
    assert!((1..64).contains(&refused.len()), "{}", refused.len());
    for called in refused {
        assert_eq!(called.status(), "14", "{called:?}");
        assert!(called.message().contains("refused"), "{}", called.message());
        let pushback: u64 = called.ending["grpc-retry-pushback-ms"].to_str().unwrap().parse().unwrap();
        assert!(pushback >= 1 && called.ending.contains_key("grpc-status-details-bin"), "{called:?}");
    }
}

#[tokio::test]
async fn a_deadline_that_only_its_caller_has_is_what_cannot_be_kept() {
    let server = start(Options::default(), Duration::from_millis(100), Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let called = client.call_with("ModelInfer", &[("grpc-timeout", "20m")], &raw(&[1.0])).await;
    assert_eq!(called.status(), "4", "{called:?}");
    let mut request = raw(&[1.0]);
    request.parameters.insert("timeout".into(), parameter(ParameterChoice::Int64Param(20_000)));
    assert_eq!(client.call("ModelInfer", &request).await.status(), "4");
    let metrics = client.get("/metrics").await;
    let outcome = |outcome: &str| format!("uncork_requests_total{{model=\"m\",version=\"1\",outcome=\"{outcome}\"}} ");
    assert!(metrics.contains(&(outcome("own_deadline") + "2\n")), "{metrics}");
    assert!(metrics.contains(&(outcome("shed") + "0\n")), "{metrics}");
    let called = client.call_with("ModelInfer", &[("grpc-timeout", "9S")], &raw(&[1.0])).await;
    assert_eq!(called.status(), "0", "{called:?}");
}

/// A call whose messages are sent one by one.
async fn stream(client: &Client, method: &str) -> (mpsc::UnboundedSender<Bytes>, JoinHandle<Response<Incoming>>) {
    stream_with(client, method, &[]).await
}

async fn stream_with(
    client: &Client,
    method: &str,
    lines: &'static [(&'static str, &'static str)],
) -> (mpsc::UnboundedSender<Bytes>, JoinHandle<Response<Incoming>>) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let frames = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|b| b.map(|b| Ok(Frame::data(b)))));
    let (client, method) = (client.clone(), path(method));
    let sending = tokio::spawn(async move { client.send(&method, lines, StreamBody::new(frames).boxed()).await });
    (sender, sending)
}

/// The next message of a stream, or its trailers.
async fn next(body: &mut Incoming) -> Result<Bytes, HeaderMap> {
    let frame = tokio::time::timeout(HANGS, body.frame()).await.expect("it comes in time").unwrap().unwrap();
    match frame.into_data() {
        Ok(data) => Ok(messages(&data).remove(0)),
        Err(frame) => Err(frame.into_trailers().unwrap()),
    }
}

#[tokio::test]
async fn a_stream_is_answered_in_its_order_and_goes_on_behind_an_error() {
    let server = simple().await;
    let client = Client::connect(server.address).await;
    let (sender, sending) = stream(&client, "ModelStreamInfer").await;
    for i in 0..200 {
        let mut request = raw(&[i as f32]);
        request.id = i.to_string();
        if i == 100 {
            request.inputs[0].name = "z".into();
        }
        if i == 199 {
            let wanted = parameter(ParameterChoice::BoolParam(true));
            request.parameters.insert("triton_enable_empty_final_response".into(), wanted);
        }
        sender.send(framed(&request.encode_to_vec())).unwrap();
    }
    let mut body = sending.await.unwrap().into_body();
    for i in 0..200 {
        let message = ModelStreamInferResponse::decode(next(&mut body).await.unwrap()).unwrap();
        let answer = message.infer_response.unwrap();
        assert_eq!(answer.id, i.to_string());
        if i == 100 {
            assert!(message.error_message.contains("'z'"), "{}", message.error_message);
        } else {
            assert_eq!(numbers(&answer.raw_output_contents[0]), [2.0 * i as f32 + 1.0]);
            assert_eq!(answer.parameters.contains_key("triton_final_response"), i == 199);
        }
    }
    drop(sender);
    assert_eq!(next(&mut body).await.unwrap_err()["grpc-status"], "0");
}

#[tokio::test]
async fn many_small_requests_that_are_sent_ahead_on_a_stream_are_all_answered() {
    let server = start(Options::default(), Duration::from_millis(1), Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let (sender, sending) = stream(&client, "ModelStreamInfer").await;
    let request = framed(&raw(&[1.0]).encode_to_vec());
    for _ in 0..6000 {
        sender.send(request.clone()).unwrap();
    }
    drop(sender);
    let mut body = sending.await.unwrap().into_body();
    for i in 0..6000 {
        let message = next(&mut body).await.unwrap_or_else(|trailers| panic!("{trailers:?} behind {i} answers"));
        assert_eq!(ModelStreamInferResponse::decode(message).unwrap().error_message, "");
    }
    assert_eq!(next(&mut body).await.unwrap_err()["grpc-status"], "0");
}

#[tokio::test]
async fn a_message_of_a_stream_that_cannot_be_unpacked_is_told_so_and_the_stream_goes_on() {
    let server = simple().await;
    let client = Client::connect(server.address).await;
    let (sender, sending) = stream_with(&client, "ModelStreamInfer", &[("grpc-encoding", "gzip")]).await;
    let mut damaged = framed(b"no gzip at all").to_vec();
    damaged[0] = 1;
    sender.send(damaged.into()).unwrap();
    sender.send(framed(&raw(&[2.0]).encode_to_vec())).unwrap();
    let mut body = sending.await.unwrap().into_body();
    let first = ModelStreamInferResponse::decode(next(&mut body).await.unwrap()).unwrap();
    assert!(first.error_message.contains("not what its"), "{}", first.error_message);
    let second = ModelStreamInferResponse::decode(next(&mut body).await.unwrap()).unwrap();
    assert_eq!(numbers(&second.infer_response.unwrap().raw_output_contents[0]), [5.0]);
}

#[tokio::test]
async fn a_stream_ends_when_the_server_goes_and_what_was_asked_is_answered() {
    let mut server = start(Options::default(), Duration::from_millis(300), Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let (sender, sending) = stream(&client, "ModelStreamInfer").await;
    sender.send(framed(&raw(&[1.0]).encode_to_vec())).unwrap();
    let mut body = sending.await.unwrap().into_body();
    let in_flight = "uncork_in_flight_batches{model=\"m\",version=\"1\"} 1\n";
    while !client.get("/metrics").await.contains(in_flight) {}
    server.stop.take().unwrap().send(()).unwrap();
    let answer = ModelStreamInferResponse::decode(next(&mut body).await.unwrap()).unwrap();
    assert_eq!(numbers(&answer.infer_response.unwrap().raw_output_contents[0]), [3.0]);
    assert_eq!(next(&mut body).await.unwrap_err()["grpc-status"], "14");
    assert_eq!(tokio::time::timeout(HANGS, server.serving).await.unwrap().unwrap(), Ended::Drained);
}

#[tokio::test]
async fn a_token_that_is_taken_out_ends_in_open_streams_as_well() {
    ends_in_open_streams("other fedcba9876543210\n").await;
}

#[tokio::test]
async fn a_token_whose_holder_has_another_ends_in_open_streams_as_well() {
    ends_in_open_streams("one 00112233445566778\nother fedcba9876543210\n").await;
}

/// The token of `one` does, once the file is `after`.
async fn ends_in_open_streams(after: &str) {
    const ONE: &[(&str, &str)] = &[("authorization", "Bearer 0123456789abcdef")];
    let folder = Folder::new();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "one 0123456789abcdef\nother fedcba9876543210\n").unwrap();
    let options = Options { access: Access::Tokens { file: file.clone(), hosts: Vec::new() }, ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let reflection = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let (asking, reflecting) = stream_with(&client, reflection, ONE).await;
    let look = || asking.send(framed(&[])).unwrap();
    look();
    let mut reflected = reflecting.await.unwrap().into_body();
    next(&mut reflected).await.expect("an answer");
    let (sender, sending) = stream_with(&client, "ModelStreamInfer", ONE).await;
    let ask = || sender.send(framed(&raw(&[1.0]).encode_to_vec())).unwrap();
    ask();
    let mut body = sending.await.unwrap().into_body();
    let mut answer = async || ModelStreamInferResponse::decode(next(&mut body).await.unwrap()).unwrap().error_message;
    assert_eq!(answer().await, "");
    std::fs::write(&file, after).unwrap();
    let refused = async {
        loop {
            ask();
            let told = answer().await;
            if !told.is_empty() {
                return told;
            }
        }
    };
    let told = tokio::time::timeout(HANGS, refused).await.expect("the stream hears of it");
    assert!(told.contains("this token is not known"), "{told}");
    look();
    assert_eq!(next(&mut reflected).await.unwrap_err()["grpc-status"], "16");
}

#[tokio::test]
async fn those_who_watch_leave_connections_to_others() {
    use health::{HealthCheckRequest, HealthCheckResponse};
    let options = Options { max_connections: 16.try_into().unwrap(), ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let mut watching = Vec::new();
    for is_let_in in [true, true, false] {
        let (sender, sending) = stream(&client, "grpc.health.v1.Health/Watch").await;
        sender.send(framed(&HealthCheckRequest::default().encode_to_vec())).unwrap();
        drop(sender);
        let response = sending.await.unwrap();
        let refused = response.headers().get("grpc-status").cloned();
        assert_eq!(refused.is_none(), is_let_in, "{refused:?}");
        if is_let_in {
            let mut body = response.into_body();
            assert_eq!(HealthCheckResponse::decode(next(&mut body).await.unwrap()).unwrap().status, 1);
            watching.push(body);
        }
    }
}

#[tokio::test]
async fn a_stream_that_says_nothing_is_closed() {
    let options = Options { idle_timeout: Duration::from_millis(100), ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let (sender, sending) = stream(&client, "ModelStreamInfer").await;
    sender.send(framed(&raw(&[1.0]).encode_to_vec())).unwrap();
    let mut body = sending.await.unwrap().into_body();
    next(&mut body).await.unwrap();
    assert_eq!(next(&mut body).await.unwrap_err()["grpc-status"], "4");
}

#[tokio::test]
async fn a_slow_message_is_told_so() {
    let options = Options { body_timeout: Duration::from_millis(100), ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    for method in ["ModelInfer", "ModelStreamInfer"] {
        let (sender, sending) = stream(&client, method).await;
        sender.send(framed(&raw(&[1.0]).encode_to_vec()).slice(..9)).unwrap();
        let response = sending.await.unwrap();
        let status = match response.headers().get("grpc-status") {
            Some(status) => status.clone(),
            None => next(&mut response.into_body()).await.unwrap_err()["grpc-status"].clone(),
        };
        assert_eq!(status, "4", "{method}");
    }
}

#[tokio::test]
async fn the_server_and_its_models_are_described() {
    use inference::{
        ModelConfigRequest, ModelConfigResponse, ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest,
        ModelReadyResponse, ModelStatisticsRequest, ModelStatisticsResponse, RepositoryIndexRequest,
        RepositoryIndexResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
        ServerReadyRequest, ServerReadyResponse,
    };
    let server = simple().await;
    let client = Client::connect(server.address).await;
    assert!(client.call("ServerLive", &ServerLiveRequest {}).await.only::<ServerLiveResponse>().live);
    assert!(client.call("ServerReady", &ServerReadyRequest {}).await.only::<ServerReadyResponse>().ready);
    let name = || "m".to_owned();
    let ready = ModelReadyRequest { name: name(), version: "1".into() };
    assert!(client.call("ModelReady", &ready).await.only::<ModelReadyResponse>().ready);
    let unknown = ModelReadyRequest { name: "n".into(), version: String::new() };
    assert!(!client.call("ModelReady", &unknown).await.only::<ModelReadyResponse>().ready, "as Triton has it");
    let metadata: ServerMetadataResponse = client.call("ServerMetadata", &ServerMetadataRequest {}).await.only();
    assert_eq!((&*metadata.name, metadata.extensions.is_empty()), ("uncork", false));
    let asked = ModelMetadataRequest { name: name(), version: String::new() };
    let metadata: ModelMetadataResponse = client.call("ModelMetadata", &asked).await.only();
    assert_eq!((&metadata.versions[..], &metadata.inputs[0].shape[..]), (&["1".to_owned()][..], &[-1, 1][..]));
    client.call("ModelInfer", &raw(&[1.0, 2.0])).await.only::<ModelInferResponse>();
    let asked = ModelConfigRequest { name: name(), version: String::new() };
    let config = client.call("ModelConfig", &asked).await.only::<ModelConfigResponse>().config.unwrap();
    assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (8, &[1][..]));
    for name in ["m", ""] {
        let asked = ModelStatisticsRequest { name: name.into(), version: String::new() };
        let statistics: ModelStatisticsResponse = client.call("ModelStatistics", &asked).await.only();
        let of_m = &statistics.model_stats[0];
        assert_eq!((of_m.inference_count, of_m.execution_count), (2, 1), "{statistics:?}");
        assert_eq!(of_m.inference_stats.as_ref().unwrap().success.unwrap().count, 1);
    }
    let index: RepositoryIndexResponse =
        client.call("RepositoryIndex", &RepositoryIndexRequest::default()).await.only();
    assert_eq!((&*index.models[0].name, &*index.models[0].state), ("m", "READY"));
}

#[tokio::test]
async fn health_is_checked_and_watched_until_the_server_goes() {
    use health::{HealthCheckRequest, HealthCheckResponse};
    let options = Options { drain_delay: Duration::from_secs(2), ..Options::default() };
    let mut server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    for (service, status) in [("", "0"), ("inference.GRPCInferenceService", "0"), ("m", "0"), ("nobody", "5")] {
        let asked = HealthCheckRequest { service: service.into() };
        let called = client.call("grpc.health.v1.Health/Check", &asked).await;
        assert_eq!(called.status(), status, "{service}");
        assert!(status != "0" || called.only::<HealthCheckResponse>().status == 1);
    }
    let (sender, sending) = stream(&client, "grpc.health.v1.Health/Watch").await;
    sender.send(framed(&HealthCheckRequest { service: "m".into() }.encode_to_vec())).unwrap();
    drop(sender);
    let mut body = sending.await.unwrap().into_body();
    let status = |message: Bytes| HealthCheckResponse::decode(message).unwrap().status;
    assert_eq!(status(next(&mut body).await.unwrap()), 1, "SERVING");
    server.stop.take().unwrap().send(()).unwrap();
    assert_eq!(status(next(&mut body).await.unwrap()), 2, "NOT_SERVING");
    assert_eq!(next(&mut body).await.unwrap_err()["grpc-status"], "14");
    assert_eq!(tokio::time::timeout(HANGS, server.serving).await.unwrap().unwrap(), Ended::Drained);
}

#[tokio::test]
async fn services_are_found_by_reflection() {
    use reflection::server_reflection_request::MessageRequest;
    use reflection::server_reflection_response::MessageResponse;
    use reflection::{ServerReflectionRequest, ServerReflectionResponse};
    let server = simple().await;
    let client = Client::connect(server.address).await;
    for version in ["v1", "v1alpha"] {
        let method = format!("grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let ask =
            |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) }.encode_to_vec();
        let questions = [
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol("inference.GRPCInferenceService".into())),
            ask(MessageRequest::FileByFilename("none.proto".into())),
        ];
        let called = client.raw(&method, &[], questions.map(|q| framed(&q)).concat().into()).await;
        assert_eq!(called.status(), "0");
        let answers: Vec<_> = called
            .messages
            .iter()
            .map(|m| ServerReflectionResponse::decode(&m[..]).unwrap().message_response.unwrap())
            .collect();
        assert!(matches!(&answers[0], MessageResponse::ListServicesResponse(list) if list.service.len() == 4));
        assert!(
            matches!(&answers[1], MessageResponse::FileDescriptorResponse(r) if !r.file_descriptor_proto.is_empty())
        );
        assert!(matches!(&answers[2], MessageResponse::ErrorResponse(e) if e.error_code == 5));
    }
}

#[tokio::test]
async fn a_token_s_rights_hold_for_calls() {
    let folder = Folder::new();
    let file = folder.path().join("tokens");
    std::fs::write(
        &file,
        "a 0123456789abcdef inference\nb fedcba9876543210 scrape\nc 00112233445566778899 inference rate=1\n",
    )
    .unwrap();
    let options = Options { access: Access::Tokens { file, hosts: Vec::new() }, ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    let infer = raw(&[1.0]);
    let as_a = [("authorization", "Bearer 0123456789abcdef")];
    let as_b = [("authorization", "Bearer fedcba9876543210")];
    let as_c = [("authorization", "Bearer 00112233445566778899")];
    for (method, none, a, b) in [
        ("ModelInfer", "16", "0", "7"),
        ("ModelStreamInfer", "16", "0", "7"),
        ("ServerMetadata", "16", "0", "7"),
        ("ModelMetadata", "16", "5", "7"),
        ("ModelConfig", "16", "5", "7"),
        ("ModelStatistics", "16", "0", "7"),
        ("RepositoryIndex", "16", "0", "7"),
        ("RepositoryModelLoad", "16", "7", "7"),
        ("RepositoryModelUnload", "16", "7", "7"),
        ("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "16", "0", "7"),
        ("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "16", "0", "7"),
        ("ServerLive", "0", "0", "0"),
        ("ServerReady", "0", "0", "0"),
        ("grpc.health.v1.Health/Check", "0", "0", "0"),
    ] {
        // Calls that ask for other messages get an empty one.
        let message = if method.ends_with("Infer") { framed(&infer.encode_to_vec()) } else { framed(&[]) };
        for (headers, expected) in [(&[][..], none), (&as_a[..], a), (&as_b[..], b)] {
            let called = client.raw(&path(method), headers, message.clone()).await;
            assert_eq!(called.status(), expected, "{method} {headers:?}: {called:?}");
        }
    }
    let statuses =
        [client.call_with("ModelInfer", &as_c, &infer).await, client.call_with("ModelInfer", &as_c, &infer).await];
    assert_eq!((statuses[0].status(), statuses[1].status()), ("0", "8"), "a call a second");
}

#[tokio::test]
async fn one_token_s_flood_of_calls_makes_room_for_another() {
    let folder = Folder::new();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "flood 0123456789abcdef\nfew fedcba9876543210\n").unwrap();
    let options = Options { access: Access::Tokens { file, hosts: Vec::new() }, ..Options::default() };
    let server = start(options, Duration::from_millis(50), Duration::from_millis(230)).await;
    let client = Client::connect(server.address).await;
    let infer = raw(&[1.0]);
    let ask = async |token: &str| client.call_with("ModelInfer", &[("authorization", token)], &infer).await;
    let made_room = |called: &Called| called.status() != "0" && called.message().contains("callers who take less");
    // Each asks again at once, so that there is never room.
    let one = |_| Box::pin(async { while !made_room(&ask("Bearer 0123456789abcdef").await) {} });
    let flood = futures_util::future::select_all((0..64).map(one));
    let few = async {
        loop {
            ask("Bearer fedcba9876543210").await;
        }
    };
    tokio::time::timeout(HANGS, async {
        tokio::select! { _ = flood => {}, () = few => {} }
    })
    .await
    .expect("somebody makes room");
}

#[tokio::test]
async fn memory_for_messages_and_answers_is_bounded_and_given_back() {
    let bytes = 256 * 1024;
    let options =
        Options { max_bodies_bytes: bytes, max_body_bytes: bytes, max_answer_bytes: bytes, ..Options::default() };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    // Each holds most of a message back.
    let whole = framed(&raw(&[0.5; 20_000]).encode_to_vec());
    let mut held = Vec::new();
    for _ in 0..4 {
        let (sender, sending) = stream(&client, "ModelInfer").await;
        sender.send(whole.slice(..40_000)).unwrap();
        sender.send(whole.slice(40_000..70_000)).unwrap();
        held.push((sender, sending));
    }
    let (ended, _, others) = futures_util::future::select_all(
        held.into_iter().map(|(sender, sending)| Box::pin(async move { (sending.await.unwrap(), sender) })),
    )
    .await;
    assert_eq!(ended.0.headers()["grpc-status"], "14", "{ended:?}");
    drop((ended, others));
    let again = async {
        while client.raw(&path("ModelInfer"), &[], framed(&raw(&[0.5; 200]).encode_to_vec())).await.status() != "0" {}
    };
    tokio::time::timeout(HANGS, again).await.expect("there is room again");
}

#[tokio::test]
async fn one_token_s_messages_leave_room_for_another_s() {
    const FLOOD: &[(&str, &str)] = &[("authorization", "Bearer 0123456789abcdef")];
    const FEW: &[(&str, &str)] = &[("authorization", "Bearer fedcba9876543210")];
    let folder = Folder::new();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "flood 0123456789abcdef\nfew fedcba9876543210\n").unwrap();
    let mb = 1024 * 1024;
    let options = Options {
        access: Access::Tokens { file, hosts: Vec::new() },
        max_body_bytes: mb,
        max_answer_bytes: mb,
        max_bodies_bytes: 12 * mb,
        ..Options::default()
    };
    let server = start(options, Duration::ZERO, Duration::from_secs(10)).await;
    // Nearly as large as it may be, and of a shape for which it is refused once there was room for it.
    let mut long = raw(&[0.5; 240_000]);
    long.inputs[0].shape = vec![1, 240_000];
    let whole = framed(&long.encode_to_vec());
    for method in ["ModelInfer", "ModelStreamInfer"] {
        // Each comes by a connection of its own, as windows of one would hold them up, and keeps its last byte back.
        let mut held = Vec::new();
        for _ in 0..13 {
            let client = Client::connect(server.address).await;
            let (sender, sending) = stream_with(&client, method, FLOOD).await;
            sender.send(whole.slice(..whole.len() - 1)).unwrap();
            held.push(Box::pin(async move {
                let (head, mut body) = sending.await.unwrap().into_parts();
                // In a stream the status is behind the answers.
                let status = match head.headers.get("grpc-status") {
                    Some(status) => status.clone(),
                    None => next(&mut body).await.unwrap_err()["grpc-status"].clone(),
                };
                (status, client, sender)
            }));
        }
        let refused = futures_util::future::select_all(held);
        let ((status, ..), _, others) = tokio::time::timeout(HANGS, refused).await.expect("one is refused");
        assert_eq!(status, "14", "{method}");
        let client = Client::connect(server.address).await;
        let called = client.raw(&path("ModelInfer"), FEW, whole.clone()).await;
        assert_eq!(called.status(), "3", "{method}: {}", called.message());
        drop(others);
    }
}

#[tokio::test]
async fn a_call_is_a_post_of_a_path_alone() {
    let server = start(Options::default(), Duration::ZERO, Duration::from_secs(10)).await;
    let client = Client::connect(server.address).await;
    for (method, path) in [(Method::PUT, path("ServerLive")), (Method::POST, path("ServerLive?a"))] {
        let uri = format!("http://localhost/{path}");
        let request = Request::builder().method(method).uri(&uri).header("content-type", "application/grpc");
        let request = request.body(Full::new(framed(&[])).boxed()).unwrap();
        let answer = tokio::time::timeout(HANGS, client.0.clone().send_request(request)).await.unwrap().unwrap();
        assert_eq!(answer.headers()["grpc-status"], "12", "{uri}");
    }
    let long = "x".repeat(20_000);
    let called = client.raw(&path("ServerLive"), &[("x-long", long.as_str())], framed(&[])).await;
    assert_eq!(called.status(), "8", "its head is too long: {called:?}");
}
