//! What the server promises its HTTP clients, one test for each promise.

mod front;
mod idle;
mod repository;
mod rows;
mod shares;
mod turned_away;
mod v1;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uncork::opaque::{self, AnswerHead, RequestHead};
use uncork::registry::{BatchSizes, Caps, Device, HookFunctions, Lengths, ModelSpec, Registry, Shapes, Source};
use uncork::repository::Repository;
use uncork::runner::synthetic::Synthetic;
use uncork::runner::{Rows, Runner, RunnerError, Signature, TensorSpec};
use uncork::server::{Ended, Options, Server};
use uncork::telemetry::Tracer;
use uncork::tensor::{Data, DataType, Tensor, Tensors};

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

/// Short enough that a test waits it out.
const SHORT: Duration = Duration::from_millis(150);

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Ended>,
}

fn stand_in(name: &str, version: &str, base: Duration) -> ModelSpec {
    let n = |n| NonZeroUsize::new(n).unwrap();
    ModelSpec {
        name: name.into(),
        version: version.into(),
        source: Source::Synthetic { base, per_row: Duration::ZERO },
        shapes: Shapes::default(),
        device: Device::Flex,
        max_latency: Duration::from_secs(10),
        max_batch_rows: n(8),
        allowed_batch_sizes: BatchSizes::default(),
        lengths: Lengths::default(),
        pool: None,
        weight: NonZeroUsize::MIN,
        runners: n(1),
        threads: n(1),
        stuck_after: Duration::from_secs(60),
        hooks: HookFunctions::default(),
        max_queue_rows: n(64),
        max_queue_bytes: n(1 << 20),
    }
}

async fn start(options: Options, models: Vec<ModelSpec>) -> Running {
    let registry = tokio::task::spawn_blocking(|| Registry::load(models)).await.unwrap().unwrap();
    let server = Server::bind("127.0.0.1:0", options).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    Running { address, stop: Some(stop), serving }
}

/// Two versions of the stand-in `m` under the default bounds.
async fn simple() -> Running {
    start(Options::default(), vec![stand_in("m", "9", Duration::ZERO), stand_in("m", "10", Duration::ZERO)]).await
}

async fn with(options: Options) -> Running {
    start(options, vec![stand_in("m", "1", Duration::ZERO)]).await
}

/// One stand-in `m` that takes thousands of rows at once.
async fn with_room_for_rows(options: Options) -> Running {
    let rows = NonZeroUsize::new(8192).unwrap();
    let model = ModelSpec { max_batch_rows: rows, max_queue_rows: rows, ..stand_in("m", "1", Duration::ZERO) };
    start(options, vec![model]).await
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {:?}", self.text))
    }

    /// The sentence of an error; fails where the body is anything else.
    fn error(&self) -> String {
        let body = self.json();
        let object = body.as_object().unwrap();
        assert_eq!(object.keys().collect::<Vec<_>>(), ["error"], "{body}");
        assert_eq!(self.headers["content-type"], "application/json");
        body["error"].as_str().unwrap().to_owned()
    }
}

impl Running {
    async fn ask(&self, method: Method, path: &str, body: Option<String>) -> Answer {
        self.send(Request::builder().method(method).uri(path), body).await
    }

    async fn send(&self, request: http::request::Builder, body: Option<String>) -> Answer {
        let exchange = async {
            let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            let request = request.header("host", self.address.to_string());
            let request = request.body(Full::new(Bytes::from(body.unwrap_or_default()))).unwrap();
            let answer = async {
                let response = sender.send_request(request).await.unwrap();
                let (head, body) = response.into_parts();
                let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
                Answer { status: head.status.as_u16(), headers: head.headers, text }
            };
            tokio::select! {
                answer = answer => answer,
                // A server that closes first leaves the answer to be read.
                Err(error) = connection => panic!("the connection broke: {error}"),
            }
        };
        tokio::time::timeout(HANGS, exchange).await.expect("an answer in time")
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    async fn infer(&self, body: &Value) -> Answer {
        self.ask(Method::POST, "/v2/models/m/infer", Some(body.to_string())).await
    }

    /// Fails unless a sound request is answered rightly.
    async fn assert_unharmed(&self) {
        let answer = self.infer(&request(json!([3.0]))).await;
        assert_eq!((answer.status, &answer.json()["outputs"][0]["data"]), (200, &json!([7.0])));
    }

    async fn connect(&self) -> Raw {
        Raw(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends `bytes` on a connection of their own and returns all that comes back.
    async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut connection = self.connect().await;
        connection.send(bytes).await;
        connection.rest().await
    }

    /// The head and the body of the answer to a request in bytes, in one piece.
    async fn post_bytes(&self, path: &str, lines: &str, body: &[u8]) -> (String, Vec<u8>) {
        let mut connection = self.connect().await;
        let is_chunked = lines.contains("chunked");
        let length = if is_chunked { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}{length}\r\n");
        let body = match is_chunked {
            true => [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat(),
            false => body.to_vec(),
        };
        connection.send([head.into_bytes(), body].concat()).await;
        connection.answer().await
    }

    /// The head and the body of the answer.
    async fn get_bytes(&self, path: &str, lines: &str) -> (String, Vec<u8>) {
        let mut connection = self.connect().await;
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).await;
        connection.answer().await
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    async fn ended(self) -> Ended {
        tokio::time::timeout(HANGS, self.serving).await.expect("the server ends").unwrap()
    }
}

/// A connection without a client library's good manners.
struct Raw(TcpStream);

impl Raw {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The head and the body of the next answer.
    async fn answer(&mut self) -> (String, Vec<u8>) {
        let read = async {
            let mut all = Vec::new();
            loop {
                if let Some(at) = all.windows(4).position(|w| w == b"\r\n\r\n") {
                    let head = String::from_utf8(all[..at].to_vec()).unwrap();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                    let end = at + 4 + length.unwrap_or("0").parse::<usize>().unwrap();
                    if all.len() >= end {
                        return (head, all[at + 4..end].to_vec());
                    }
                }
                assert!(self.0.read_buf(&mut all).await.unwrap() > 0, "an answer: {all:?}");
            }
        };
        tokio::time::timeout(HANGS, read).await.expect("an answer")
    }

    /// All that comes until the server closes.
    async fn rest(mut self) -> String {
        let mut all = Vec::new();
        let read = tokio::time::timeout(HANGS, self.0.read_to_end(&mut all)).await;
        read.expect("the server closes the connection").expect("the connection is closed in order");
        String::from_utf8(all).unwrap()
    }

    /// What comes until `end` has come.
    async fn until(&mut self, end: &str) -> String {
        let mut all = String::new();
        while !all.ends_with(end) {
            let byte = tokio::time::timeout(HANGS, self.0.read_u8()).await.expect("more comes");
            all.push(char::from(byte.unwrap_or_else(|e| panic!("{e} after {all:?}"))));
        }
        all
    }
}

/// Status and JSON body of the one answer in `text`.
fn parse(text: &str) -> (u16, Value) {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text:?}")))
}

fn request(data: Value) -> Value {
    let rows = data.as_array().unwrap().len();
    json!({ "inputs": [{ "name": "x", "shape": [rows, 1], "datatype": "FP32", "data": data }] })
}

/// A request to infer, as bytes, with further header lines.
fn post(lines: &str, body: &str) -> String {
    format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}")
}

fn post_sized(lines: &str, body: &str) -> String {
    post(&format!("{lines}Content-Length: {}\r\n", body.len()), body)
}

#[tokio::test]
async fn grpc_web_is_told_what_to_use_instead() {
    let server = simple().await;
    for kind in ["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"] {
        let path = "/inference.GRPCInferenceService/ModelInfer";
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", kind);
        let answer = server.send(request, Some(String::new())).await;
        assert_eq!(answer.status, 415, "{kind}");
        assert!(
            answer.error().contains("use gRPC over HTTP/2 (application/grpc), or the same calls in JSON under /v2")
        );
    }
}

#[tokio::test]
async fn health_answers_have_json_bodies() {
    let server = simple().await;
    for (path, expected) in [
        ("/v2/health/live", json!({"live": true})),
        ("/v2/health/ready", json!({"ready": true, "live": true})),
        ("/v2/models/m/ready", json!({"name": "m", "ready": true})),
        ("/v2/models/m/versions/9/ready", json!({"name": "m", "ready": true})),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.json()), (200, expected), "{path}");
        assert_eq!(answer.headers["content-type"], "application/json");
    }
}

#[tokio::test]
async fn metadata_lists_what_is_there_and_nothing_else() {
    let server = simple().await;
    let metadata = server.get("/v2").await.json();
    assert_eq!(
        metadata,
        json!({"name": "uncork", "version": env!("CARGO_PKG_VERSION"), "extensions": ["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"]})
    );
    let model = server.get("/v2/models/m").await.json();
    let tensor = |name| json!([{"name": name, "datatype": "FP32", "shape": [-1, 1]}]);
    assert_eq!(model["name"], "m");
    assert_eq!(model["versions"], json!(["9", "10"]), "by number, not by letter");
    assert_eq!((&model["inputs"], &model["outputs"]), (&tensor("x"), &tensor("y")));
    assert!(model["platform"].is_string());
}

/// One row of a recorded tensor, as an input of a request or an output of its answer.
fn recorded_row(tensor: &Value, row: usize) -> Value {
    let mut shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone()).unwrap();
    let width: usize = shape[1..].iter().product();
    shape[0] = 1;
    let data = &tensor["data"].as_array().unwrap()[row * width..][..width];
    json!({"name": tensor["name"], "datatype": tensor["datatype"], "shape": shape, "data": data})
}

#[tokio::test]
async fn columns_of_texts_and_numbers_come_in_by_name_from_many_callers_and_a_map_goes_out_with_the_names_of_its_keys()
{
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/pipelines");
    let source = Source::Onnx(format!("{folder}/titanic_logistic.onnx").into());
    let server = start(Options::default(), vec![ModelSpec { source, ..stand_in("m", "1", Duration::ZERO) }]).await;
    let model = server.get("/v2/models/m").await.json();
    assert_eq!(model["inputs"][3], json!({"name": "sex", "datatype": "BYTES", "shape": [-1, 1]}));
    let labels = json!({"labels": ["0", "1"]});
    let map = json!({"name": "output_probability", "datatype": "FP32", "shape": [-1, 2], "parameters": labels});
    assert_eq!(model["outputs"][1], map);

    let record = std::fs::read(format!("{folder}/titanic_logistic.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let row = |kind: &str, row| -> Vec<Value> {
        record[kind].as_array().unwrap().iter().map(|tensor| recorded_row(tensor, row)).collect()
    };
    // JSON has no word for the gaps of the other rows.
    let rows = [1, 2, 3, 4, 5, 7, 8, 9];
    let requests: Vec<Value> = rows.iter().map(|&i| json!({"inputs": row("inputs", i)})).collect();
    let answers = futures_util::future::join_all(requests.iter().map(|request| server.infer(request))).await;
    for (answer, &i) in answers.iter().zip(&rows) {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let (found, expected) = (&answer.json()["outputs"], row("outputs", i));
        assert_eq!(found[0]["data"], expected[0]["data"], "row {i}");
        for (a, b) in found[1]["data"].as_array().unwrap().iter().zip(expected[1]["data"].as_array().unwrap()) {
            assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-5, "row {i}: {found} {expected:?}");
        }
    }
}

#[tokio::test]
async fn a_model_takes_any_body_and_gives_any_answer_by_functions_of_the_program_s_own() {
    let elements = |tensors: &Tensors, name: &str| opaque::elements(tensors.get(name).unwrap().data()).to_vec();
    let Signature { inputs, outputs } = opaque::signature();
    let hooks = HookFunctions::default()
        .prepare(inputs, move |request| {
            let number = |element: &Vec<u8>| {
                let (head, body) = opaque::decode::<RequestHead<'_>>(element).unwrap();
                let digits = std::str::from_utf8(body).ok().filter(|_| head.content_type == "text/roman");
                match digits {
                    Some("XII") => Ok(12.0),
                    _ => Err(RunnerError::Input("no Roman would write that".into())),
                }
            };
            let numbers = elements(&request, opaque::REQUEST).iter().map(number).collect::<Result<Vec<f32>, _>>()?;
            Ok(Tensors::one("x", Tensor::new(vec![numbers.len(), 1], numbers).unwrap()))
        })
        .finish(outputs, move |outputs| {
            let rows = outputs.rows();
            let head = AnswerHead { content_type: Some("text/plain".into()), ..AnswerHead::default() };
            let said = vec![opaque::encode(&head, b"a quarter of a hundred"); rows];
            Ok(Tensors::one(opaque::ANSWER, Tensor::new(vec![rows], said).unwrap()))
        });
    let server = start(Options::default(), vec![ModelSpec { hooks, ..stand_in("m", "1", Duration::ZERO) }]).await;
    let ask = async |body: &str| {
        let request = Request::builder().method(Method::POST).uri("/models/m").header("content-type", "text/roman");
        server.send(request, Some(body.to_owned())).await
    };
    let answer = ask("XII").await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "a quarter of a hundred"));
    assert_eq!(answer.headers["content-type"], "text/plain");
    let answer = ask("IIX").await;
    assert_eq!((answer.status, answer.error()), (400, "no Roman would write that".to_owned()));
}

#[tokio::test]
async fn an_answer_carries_the_model_the_version_the_id_and_the_times() {
    let server = simple().await;
    let mut body = request(json!([1, -0.5]));
    body["id"] = json!("a\"1");
    let answer = server.infer(&body).await;
    let outputs = json!([{"name": "y", "shape": [2, 1], "datatype": "FP32", "data": [3.0, 0.0]}]);
    let expected = json!({"model_name": "m", "model_version": "10", "id": "a\"1", "outputs": outputs});
    assert_eq!((answer.status, answer.json()), (200, expected), "without a version the highest answers");
    let timing = answer.headers["server-timing"].to_str().unwrap();
    let (queue, batch) = timing.split_once(", ").unwrap();
    let times = [queue.strip_prefix("queue;dur=").unwrap(), batch.strip_prefix("batch;dur=").unwrap()];
    let (batch, rows) = times[1].split_once(';').unwrap();
    assert!([times[0], batch].iter().all(|t| t.parse::<f64>().is_ok_and(|t| t >= 0.0)), "{timing}");
    assert_eq!(rows, "desc=\"2 rows\"");
    let older = server.ask(Method::POST, "/v2/models/m/versions/9/infer", Some(request(json!([1])).to_string())).await;
    assert_eq!(older.json()["model_version"], "9");
    assert!(older.json().get("id").is_none(), "what was not sent is not echoed");
}

#[tokio::test]
async fn head_works_where_get_does() {
    let server = simple().await;
    // The metrics say something else each time, in as many digits as it takes.
    let metrics = server.ask(Method::HEAD, "/metrics", None).await;
    assert_eq!((metrics.status, metrics.text.as_str()), (200, ""));
    for path in ["/", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/m", "/v2/models/m/ready"] {
        let (get, head) = (server.get(path).await, server.ask(Method::HEAD, path, None).await);
        assert_eq!((head.status, head.text.as_str()), (200, ""), "{path}");
        assert_eq!(head.headers["content-length"], get.headers["content-length"], "{path}");
    }
}

#[tokio::test]
async fn the_page_and_the_metrics_come_with_fitting_headers() {
    let server = simple().await;
    let page = server.send(Request::get("/").header("accept", "text/html"), None).await;
    assert_eq!((page.status, &page.headers["content-type"]), (200, &"text/html; charset=utf-8".parse().unwrap()));
    assert_eq!(page.headers["cache-control"], "no-cache");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.text.contains("# TYPE uncork_adaptive_batch_size histogram"), "{}", metrics.text);
    assert_eq!(metrics.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
    let open = server.send(Request::get("/metrics").header("accept", accept), None).await;
    assert_eq!(open.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text.ends_with("# EOF\n"), "{}", open.text);
    // As Prometheus asks that keeps native histograms.
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,\
                  application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let (head, body) = server.get_bytes("/metrics", &format!("Accept: {accept}\r\n")).await;
    let media_type = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    assert!(head.contains(&format!("content-type: {media_type}")), "{head}");
    assert!(body.windows(27).any(|bytes| bytes == b"uncork_adaptive_batch_size\x12"), "{body:?}");
    // As Prometheus asks in any case.
    let (head, packed) = server.get_bytes("/metrics", "Accept-Encoding: gzip\r\n").await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut unpacked = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
    assert!(unpacked.contains("# TYPE uncork_adaptive_batch_size histogram"), "{unpacked}");
    assert!(packed.len() * 5 < unpacked.len(), "{} of {}", packed.len(), unpacked.len());
}

/// Triton's clients ask for these.
#[tokio::test]
async fn what_triton_has_and_is_not_served_is_told_in_words() {
    let server = simple().await;
    for (path, words) in [
        ("/v2/systemsharedmemory/status", "send tensors within the request"),
        ("/v2/cudasharedmemory/region/a/register", "send tensors within the request"),
        ("/v2/trace/setting", "set in the configuration"),
        ("/v2/logging", "set in the configuration"),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.text.contains(words), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_files_of_the_page_are_sent_once_and_then_only_asked_for() {
    let server = simple().await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page/page.css", "text/css; charset=utf-8"),
        ("/page/main.js", "text/javascript; charset=utf-8"),
    ] {
        let get = || Request::get(path).header("accept", "text/html");
        let first = server.send(get(), None).await;
        assert_eq!((first.status, first.headers["content-type"].to_str().unwrap()), (200, kind), "{path}");
        let again = server.send(get().header("if-none-match", &first.headers["etag"]), None).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path}");
        assert_eq!(again.headers["etag"], first.headers["etag"], "{path}");
        let other = server.send(get().header("if-none-match", "\"0123\""), None).await;
        assert_eq!(other.status, 200, "{path}");
    }
    assert_eq!(server.get("/page/main.css").await.status, 404);
    assert_eq!(server.get("/page/../page.css").await.status, 404);
}

#[tokio::test]
async fn the_status_tells_of_every_model_and_of_what_happened_to_it_last() {
    let server = simple().await;
    let one = request(json!([1.0]));
    assert_eq!(server.infer(&one).await.status, 200);
    let told = server.get("/status").await;
    assert_eq!((told.status, &told.headers["cache-control"]), (200, &"no-store".parse().unwrap()));
    let told = told.json();
    assert_eq!(told["server"]["ready"], true);
    let [first, last] = &told["models"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&first["version"], &last["version"]), (&json!("9"), &json!("10")));
    assert_eq!((&first["totals"]["on_time"], &last["totals"]["on_time"]), (&json!(0), &json!(1)));
    assert_eq!(last["releases"][0]["reason"], "ripe");
    assert_eq!(last["queue"]["max_rows"], 64);
    assert_eq!(last["batch_edges"], json!([1, 2, 4, 8]));
    assert_eq!((&last["history"]["step_s"], &last["warning"]), (&json!(1.0), &Value::Null));
    let hour = server.get("/status?history=hour").await.json()["models"][1]["history"].clone();
    assert_eq!((&hour["step_s"], &hour["rows"]), (&json!(30.0), &json!([1])));
    let newest = last["estimate"]["samples"].as_array().unwrap().last().unwrap();
    assert_eq!(newest[0], 1);
}

#[tokio::test]
async fn every_error_has_its_status_and_a_sentence_and_harms_nobody_else() {
    let server = simple().await;
    let input = |over: Value| {
        let mut input = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]});
        input.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
        json!({"inputs": [input]}).to_string()
    };
    let x = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]});
    let wrong_parameter = json!({"parameters": {"timeout": "soon"}, "inputs": [x]}).to_string();
    let unknown_output = json!({"inputs": [x], "outputs": [{"name": "y"}, {"name": "z"}]}).to_string();
    let infer = "/v2/models/m/infer";
    for (path, body, status, words) in [
        (infer, String::new(), 400, "not an infer request"),
        (infer, "{\"inputs\":".into(), 400, "not an infer request"),
        (infer, "[".repeat(100_000), 400, "not an infer request"),
        (infer, "{}".into(), 400, "inputs"),
        (infer, "{\"inputs\":[]}".into(), 400, "at least one input"),
        (infer, input(json!({"name": "w"})), 400, "unknown input 'w'; this model takes 'x'"),
        (infer, json!({"inputs": [x, x]}).to_string(), 400, "'x' is given twice"),
        (infer, input(json!({"datatype": "FP64"})), 400, "input 'x' is FP64; this model takes FP32"),
        (infer, input(json!({"datatype": "fp32"})), 400, "unknown datatype 'fp32'"),
        (infer, input(json!({"shape": [1, 2], "data": [1, 2]})), 400, "has shape [1, 2]; this model takes [-1, 1]"),
        (infer, input(json!({"shape": [1]})), 400, "has shape [1]; this model takes [-1, 1]"),
        (infer, input(json!({"shape": [0, 1], "data": []})), 400, "at least one row"),
        (infer, input(json!({"shape": [2, 1]})), 400, "has 2 elements, but the data has 1"),
        (infer, input(json!({"shape": [-1, 1]})), 400, "negative dimension"),
        (infer, input(json!({"shape": [1u64 << 62, 1]})), 400, "can be addressed"),
        (infer, input(json!({"data": [[1, 2]]})), 400, "nested data disagrees with shape [1, 1]"),
        (infer, input(json!({"data": ["1"]})), 400, "element 0 (\"1\") is not a number"),
        (infer, input(json!({"data": [1e39]})), 400, "out of range for FP32"),
        (infer, wrong_parameter, 400, "'timeout'"),
        (infer, unknown_output, 400, "unknown output 'z'; this model gives 'y'"),
        (infer, request(json!(vec![0; 65])).to_string(), 413, "65 rows; at most 64"),
        ("/v2/models/n/infer", input(json!({})), 404, "unknown model 'n'"),
        ("/v2/models/m/versions/11/infer", input(json!({})), 404, "no version '11'"),
        ("/v2/models/m/infers", input(json!({})), 404, "nothing at '/v2/models/m/infers'"),
        ("/v2/models/%ff/infer", input(json!({})), 400, "not UTF-8"),
    ] {
        let answer = server.ask(Method::POST, path, Some(body.clone())).await;
        let error = answer.error();
        assert_eq!(answer.status, status, "{body} at {path}: {error}");
        assert!(error.contains(words), "{body} at {path}: {error}");
        server.assert_unharmed().await;
    }
    for path in ["/v2/models/n", "/v2/models/n/ready", "/v2/models/m/versions/8", "/v3", "/v2/", "/favicon.ico"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.error().is_empty()), (404, false), "{path}");
    }
}

#[tokio::test]
async fn configuration_and_statistics_are_told_as_triton_s_clients_read_them() {
    let server = simple().await;
    for path in ["/v2/models/m/config", "/v2/models/m/versions/10/config"] {
        let config = server.get(path).await.json();
        assert_eq!((&config["name"], &config["max_batch_size"]), (&json!("m"), &json!(8)), "{path}");
        assert_eq!(config["input"], json!([{"name": "x", "data_type": "TYPE_FP32", "dims": [1]}]));
        assert_eq!(config["dynamic_batching"]["max_queue_delay_microseconds"], json!(0));
        assert_eq!(config["parameters"]["max_latency_ms"]["string_value"], json!("10000"));
        assert_eq!(config["version_policy"]["specific"]["versions"], json!([9, 10]));
    }
    for rows in [3, 3, 1] {
        server.infer(&request(Value::from(vec![1; rows]))).await.json();
    }
    assert_eq!(server.infer(&json!({"inputs": []})).await.status, 400);
    let wide = json!({"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]});
    assert_eq!(server.infer(&wide).await.status, 400);
    let all = server.get("/v2/models/stats").await.json();
    assert_eq!(all["model_stats"].as_array().map(Vec::len), Some(2));
    let stats = server.get("/v2/models/m/versions/10/stats").await.json()["model_stats"][0].clone();
    assert_eq!((&stats["inference_count"], &stats["execution_count"]), (&json!(7), &json!(3)), "rows and batches");
    let sizes: Vec<_> = stats["batch_stats"].as_array().unwrap().iter().map(|size| &size["batch_size"]).collect();
    assert_eq!(sizes, [&json!(1), &json!(3)]);
    assert_eq!(stats["inference_stats"]["success"]["count"], json!(3));
    assert_eq!(stats["inference_stats"]["fail"]["count"], json!(0), "what was wrong met no model");
    let index = server.ask(Method::POST, "/v2/repository/index", Some("{}".into())).await.json();
    let version = |v: &str| json!({"name": "m", "version": v, "state": "READY", "reason": ""});
    let listed = index.as_array().unwrap();
    assert!(listed.len() == 2 && ["9", "10"].iter().all(|v| listed.contains(&version(v))), "{index}");
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_counted_as_invalid_once() {
    let server = with(Options::default()).await;
    for body in ["{", r#"{"inputs":[]}"#, r#"{"inputs":[{"name":"z","shape":[1,1],"datatype":"FP32","data":[1]}]}"#] {
        assert_eq!(server.ask(Method::POST, "/v2/models/m/infer", Some(body.to_owned())).await.status, 400);
    }
    server.assert_unharmed().await;
    let text = server.get("/metrics").await.text;
    for line in [r#"outcome="invalid"} 3"#, r#"outcome="on_time"} 1"#] {
        let whole = format!(r#"uncork_requests_total{{model="m",version="1",{line}"#);
        assert!(text.contains(&whole), "{whole} is not in\n{text}");
    }
}

#[tokio::test]
async fn what_is_no_number_is_answered_by_name_and_taken_by_name() {
    let server = with(Options::default()).await;
    let answer = server.infer(&request(json!([3e38, "-Infinity", "NaN"]))).await.json(); // y = 2x + 1
    assert_eq!(answer["outputs"][0]["data"], json!(["Infinity", "-Infinity", "NaN"]));
    // As Python's `json` writes them.
    let bare = request(json!(["NaN", "-Infinity"]))
        .to_string()
        .replace("\"NaN\"", "NaN")
        .replace("\"-Infinity\"", "-Infinity");
    let answer = server.ask(Method::POST, "/v2/models/m/infer", Some(bare)).await.json();
    assert_eq!(answer["outputs"][0]["data"], json!(["NaN", "-Infinity"]));
}

#[tokio::test]
async fn another_method_is_answered_with_those_that_are_allowed() {
    let server = simple().await;
    for (method, path, allowed) in [
        (Method::GET, "/v2/models/m/infer", "POST"),
        (Method::DELETE, "/v2/models/m", "GET,HEAD"),
        (Method::POST, "/metrics", "GET,HEAD"),
        (Method::OPTIONS, "/", "GET,HEAD"),
    ] {
        let answer = server.ask(method.clone(), path, None).await;
        assert_eq!((answer.status, answer.error().is_empty()), (405, false), "{method} {path}");
        assert_eq!(answer.headers["allow"], allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn only_the_outputs_asked_for_are_given() {
    let server = simple().await;
    for wanted in [json!([{"name": "y", "parameters": {"binary_data": false}}]), json!([]), Value::Null] {
        let mut body = request(json!([1]));
        body["outputs"] = wanted.clone();
        let answer = server.infer(&body).await.json();
        assert_eq!(answer["outputs"].as_array().map(Vec::len), Some(1), "{wanted}");
    }
}

/// A request of 104 kB that named one output 8,000 times was answered with as many copies, and 4 GiB of them ended the process.
#[tokio::test]
async fn an_output_that_is_asked_for_twice_is_refused() {
    let server = simple().await;
    let mut body = request(json!([1]));
    for (times, why) in
        [(2, "output 'y' is asked for twice"), (1024, "output 'y' is asked for twice"), (8000, "1024 inputs, outputs")]
    {
        body["outputs"] = json!(vec![json!({"name": "y"}); times]);
        let answer = server.infer(&body).await;
        assert!(answer.status == 400 && answer.error().contains(why), "{times}: {}", answer.error());
    }
    server.assert_unharmed().await;
}

#[tokio::test]
async fn an_answer_over_the_bound_is_answered_413_before_it_is_written() {
    let server = with_room_for_rows(Options { max_answer_bytes: 4096, ..Options::default() }).await;
    let answer = server.infer(&request(json!(vec![1; 1000]))).await;
    assert_eq!(answer.status, 413);
    assert!(
        answer.error().contains("more than the 4096 that this server writes; ask for fewer rows"),
        "{}",
        answer.error()
    );
    // Classes are texts, many times as long as the numbers that they are made of: they are not made to find that out.
    let mut classes = request(json!(vec![1; 700]));
    classes["outputs"] = json!([{"name": "y", "parameters": {"classification": 1_000_000_000}}]);
    let answer = server.infer(&classes).await;
    assert!(answer.status == 413 && answer.error().contains("could take 4200 bytes"), "{}", answer.error());
    server.assert_unharmed().await;
}

#[tokio::test]
async fn answers_that_do_not_fit_in_memory_are_refused_and_small_ones_are_given() {
    let options = Options { max_bodies_bytes: 64 * 1024, ..Options::default() };
    let server = with_room_for_rows(options).await;
    let answer = server.infer(&request(json!(vec![1; 5000]))).await;
    assert_eq!(answer.status, 503);
    assert!(answer.error().contains("fill the 65536 bytes"), "{}", answer.error());
    server.assert_unharmed().await;
}

#[tokio::test]
async fn the_room_of_an_answer_is_given_back_once_it_is_sent() {
    let options = Options { max_bodies_bytes: 128 * 1024, ..Options::default() };
    let server = with_room_for_rows(options).await;
    for _ in 0..3 {
        let answer = server.infer(&request(json!(vec![1; 5000]))).await;
        assert_eq!((answer.status, answer.json()["outputs"][0]["data"].as_array().map(Vec::len)), (200, Some(5000)));
    }
}

/// A name of 30 MB was answered, and logged, with all of it; line ends in it made lines of the log.
#[tokio::test]
async fn what_a_caller_wrote_is_repeated_in_short_and_escaped() {
    let server = simple().await;
    let long = "\nINFO all is well ".repeat(20_000);
    let input = |name: &str, datatype: &str, shape: Value, data: Value| json!({"inputs": [{"name": name, "shape": shape, "datatype": datatype, "data": data}]});
    let mut unknown_output = request(json!([1]));
    unknown_output["outputs"] = json!([{ "name": long }]);
    let mut wrong_member = request(json!([1]));
    wrong_member["outputs"] = json!(long);
    for body in [
        input(&long, "FP32", json!([1, 1]), json!([1])),
        input("x", &long, json!([1, 1]), json!([1])),
        input(&long, "FP32", json!([1, 1]), json!(["a"])),
        input("x", "FP32", json!(vec![1; 100_000]), json!([1])),
        input("x", "FP32", json!(vec![-1; 100_000]), json!([1])),
        input("x", "FP32", json!(vec![2; 100_000]), json!([1])),
        unknown_output,
        wrong_member,
    ] {
        let answer = server.infer(&body).await;
        let error = answer.error();
        assert_eq!(answer.status, 400, "{error}");
        assert!(error.len() < 2100 && !error.contains('\n'), "{} bytes: {error}", error.len());
        assert!(error.len() < 400 || error.contains("not an infer request"), "{} bytes: {error}", error.len());
    }
    let path = format!("/v2/models/{}", "%0AINFO".repeat(1000));
    let answer = server.ask(Method::GET, &path, None).await;
    assert_eq!(answer.status, 404);
    assert!(answer.error().contains("unknown model '\\nINFO\\nINFO"), "{}", answer.error());
    // Whoever reads the JSON reads what he wrote: a backslash is escaped once, by JSON.
    let answer = server.ask(Method::GET, "/v2/models/C:%5Cmodels", None).await;
    assert!(answer.error().contains(r"unknown model 'C:\models'"), "{}", answer.text);
    server.assert_unharmed().await;
}

#[tokio::test]
async fn the_time_that_a_body_takes_to_come_is_told_apart_from_its_decoding() {
    let server = start(Options::default(), vec![stand_in("m", "1", SHORT)]).await;
    let body = request(json!([3])).to_string();
    let mut slow = server.connect().await;
    slow.send(post(&format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len()), "")).await;
    slow.until("100 Continue\r\n\r\n").await;
    let begin = Instant::now();
    server.assert_unharmed().await; // it takes a batch's time
    let waited = begin.elapsed();
    slow.send(&body).await;
    assert!(slow.answer().await.0.starts_with("HTTP/1.1 200"));
    let metrics = server.get("/metrics").await.text;
    let seconds = |stage: &str| -> f64 {
        let series = format!("uncork_stage_duration_seconds_sum{{model=\"m\",version=\"1\",stage=\"{stage}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&*series)).unwrap().parse().unwrap()
    };
    let (waited, receive, decode) = (waited.as_secs_f64(), seconds("receive"), seconds("decode"));
    assert!(receive >= waited && decode > 0.0 && decode < waited / 2.0, "{waited}: {receive} and {decode}");
    // To Triton's clients all of it is time in the queue.
    let stats = server.get("/v2/models/m/stats").await.json();
    let queue = stats["model_stats"][0]["inference_stats"]["queue"]["ns"].as_f64().unwrap();
    assert!(queue * 1e-9 >= receive + decode, "{stats}");
}

#[tokio::test]
async fn nested_data_and_unknown_members_are_taken() {
    let server = simple().await;
    let mut body = request(json!([[1], [2], [3]]));
    body["model_name"] = json!("m");
    body["parameters"] = json!({"priority": 1, "sequence_id": "s", "binary_data_output": false});
    body["inputs"][0]["parameters"] = json!({"content_type": "np"});
    let answer = server.infer(&body).await.json();
    assert_eq!(answer["outputs"][0]["data"], json!([3.0, 5.0, 7.0]));
}

/// BYTES of three characters in JSON take 24 bytes of memory each: bodies of 64 MiB made a server hold gigabytes of what its
/// model did not even take.
#[tokio::test]
async fn name_type_and_shape_are_held_against_the_model_before_an_element_is_read() {
    let server = simple().await;
    for (input, words) in [
        (r#""name":"x","shape":[1,1],"datatype":"BYTES","data":[{}]"#, "input 'x' is BYTES; this model takes FP32"),
        (r#""name":"z","shape":[1,1],"datatype":"FP32","data":[{}]"#, "unknown input 'z'"),
        (r#""name":"x","shape":[1,2],"datatype":"FP32","data":[{}]"#, "has shape [1, 2]; this model takes [-1, 1]"),
    ] {
        let body = format!(r#"{{"inputs":[{{{input}}}]}}"#);
        let answer = server.ask(Method::POST, "/v2/models/m/infer", Some(body)).await;
        assert_eq!(answer.status, 400);
        assert!(answer.error().contains(words), "{}", answer.error());
    }
}

/// Says bytes that are no text, as soon as its gate is open.
struct Odd {
    gate: Arc<(Mutex<bool>, Condvar)>,
    signature: Signature,
}

impl Runner for Odd {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        drop(self.gate.1.wait_while(self.gate.0.lock().unwrap(), |is_shut| *is_shut).unwrap());
        let bytes = vec![vec![0xff]; batch.rows()];
        Ok(Tensors::one("y", Tensor::new(vec![batch.rows()], bytes).unwrap()))
    }
}

/// A server of the model `m`, which takes 12 numbers a row, and the gate of its runner.
async fn odd(options: Options) -> (Running, Arc<(Mutex<bool>, Condvar)>) {
    let gate = Arc::<(Mutex<bool>, Condvar)>::default();
    let of_runner = Arc::clone(&gate);
    let source = Source::runners("odd", move |_| {
        let inputs = vec![TensorSpec::new("x", DataType::Fp32, vec![Some(12)])];
        let outputs = vec![TensorSpec::new("y", DataType::Bytes, Vec::new())];
        Ok(Odd { gate: Arc::clone(&of_runner), signature: Signature { inputs, outputs } })
    });
    let rows = NonZeroUsize::new(8192).unwrap();
    let bytes = NonZeroUsize::new(1 << 24).unwrap();
    let bounds = ModelSpec {
        max_batch_rows: rows,
        max_queue_rows: rows,
        max_queue_bytes: bytes,
        ..stand_in("m", "1", Duration::ZERO)
    };
    (start(options, vec![ModelSpec { source, ..bounds }]).await, gate)
}

fn wide(rows: usize) -> Value {
    json!({"inputs": [{"name": "x", "shape": [rows, 12], "datatype": "FP32", "data": vec![0; rows * 12]}]})
}

#[tokio::test]
async fn tensors_take_their_part_of_the_room_before_they_are_read() {
    // 192 kB of text are 384 kB of numbers: there is room for those of one request.
    let (server, gate) = odd(Options { max_bodies_bytes: 600 * 1024, ..Options::default() }).await;
    *gate.0.lock().unwrap() = true;
    let server = Arc::new(server);
    let asked = Arc::clone(&server);
    let first = tokio::spawn(async move { asked.infer(&wide(8000)).await.status });
    let there = async {
        loop {
            let model = server.get("/status").await.json()["models"][0].clone();
            if model["queue"]["rows"] != json!(0) || model["in_flight"] != json!(0) {
                return;
            }
        }
    };
    tokio::time::timeout(HANGS, there).await.expect("the first has its room");
    let second = server.infer(&wide(8000)).await;
    assert_eq!(second.status, 503, "{}", second.text);
    assert!(second.error().contains("fill the 614400 bytes kept for them"), "{}", second.error());
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    assert_eq!(first.await.unwrap(), 400, "what it said is no text");
    // What would never have room is told so, and not to come again.
    let never = server.infer(&wide(11_000)).await;
    assert_eq!(never.status, 413, "{}", never.text);
    assert!(never.error().contains("more than the 614400 kept for all requests"), "{}", never.error());
}

#[tokio::test]
async fn an_answer_that_json_cannot_carry_is_refused_in_words_that_say_how_to_ask_and_given_in_binary() {
    let (server, _) = odd(Options::default()).await;
    let answer = server.infer(&wide(1)).await;
    assert_eq!(answer.status, 400);
    let said = answer.error();
    assert!(
        said.contains("output 'y' holds bytes that are not UTF-8 at element 0")
            && said.contains("\"binary_data\": true"),
        "{said}"
    );
    let mut body = wide(1);
    body["parameters"] = json!({"binary_data_output": true});
    let (head, answer) = server.post_bytes("/v2/models/m/infer", "", body.to_string().as_bytes()).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && answer.ends_with(&[1, 0, 0, 0, 0xff]), "{head}");
    let text = server.get("/metrics").await.text;
    for outcome in ["invalid", "on_time"] {
        let line = format!(r#"uncork_requests_total{{model="m",version="1",outcome="{outcome}"}} 1"#);
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn binary_tensors_come_and_go_behind_the_json() {
    let server = simple().await;
    let json = r#"{"id":"7","parameters":{"binary_data_output":true},
        "inputs":[{"name":"x","shape":[2,1],"datatype":"FP32","parameters":{"binary_data_size":8}}]}"#;
    let body = [json.as_bytes(), &1.5f32.to_le_bytes(), &f32::INFINITY.to_le_bytes()].concat();
    // By the short way, and, since it names its request, by hyper's.
    for more in ["", "Accept-Encoding: gzip\r\n", "Transfer-Encoding: chunked\r\n"] {
        let head = format!("Inference-Header-Content-Length: {}\r\n{more}", json.len());
        let (head, answer) = server.post_bytes("/v2/models/m/infer", &head, &body).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("content-type: application/octet-stream"), "{head}");
        let length = head.lines().find_map(|l| l.strip_prefix("inference-header-content-length: ")).unwrap();
        let (json, behind) = answer.split_at(length.parse().unwrap());
        let json: Value = serde_json::from_slice(json).unwrap();
        let y = json!({"name": "y", "shape": [2, 1], "datatype": "FP32", "parameters": {"binary_data_size": 8}});
        assert_eq!((&json["id"], &json["outputs"]), (&json!("7"), &json!([y])));
        assert_eq!(behind, [4.0f32.to_le_bytes(), f32::INFINITY.to_le_bytes()].concat());
    }
}

/// Triton's perf_analyzer announces the length of a body that is JSON from its first byte to its last.
#[tokio::test]
async fn json_that_is_announced_to_its_last_byte_is_json() {
    let server = simple().await;
    let body = request(json!([1])).to_string();
    let head = format!("Inference-Header-Content-Length: {}\r\n", body.len());
    let (head, answer) = server.post_bytes("/v2/models/m/infer", &head, body.as_bytes()).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("application/json"), "{head}");
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["outputs"][0]["data"], json!([3.0]));
}

#[tokio::test]
async fn a_body_without_json_is_one_row_and_its_answer_binary() {
    let server = simple().await;
    let head = "Inference-Header-Content-Length: 0\r\n";
    let (head, answer) = server.post_bytes("/v2/models/m/infer", head, &1f32.to_le_bytes()).await;
    let length = head.lines().find_map(|l| l.strip_prefix("inference-header-content-length: ")).unwrap();
    assert_eq!(answer[length.parse::<usize>().unwrap()..], 3f32.to_le_bytes());
}

#[tokio::test]
async fn bodies_may_be_compressed_both_ways() {
    use std::io::{Read, Write};
    let server = simple().await;
    let body = request(Value::from(vec![1; 64])).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    zlib.write_all(body.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for (coding, packed) in [("gzip", gzip.clone()), ("x-gzip", gzip), ("deflate", zlib.finish().unwrap())] {
        let head = format!("Content-Encoding: {coding}\r\n");
        let (head, answer) = server.post_bytes("/v2/models/m/infer", &head, &packed).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("content-encoding"), "{head}");
        assert!(answer.starts_with(b"{\"model_name\":\"m\""));
    }
    let many = json!({"inputs": [{"name": "x", "shape": [64, 1], "datatype": "FP32", "data": vec![0.1234567; 64]}],
        "id": "a".repeat(1024)});
    let (head, answer) =
        server.post_bytes("/v2/models/m/infer", "Accept-Encoding: gzip\r\n", many.to_string().as_bytes()).await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer[..]).read_to_string(&mut text).unwrap();
    assert!(text.ends_with("}]}") && answer.len() < text.len() / 2);
    // What most libraries say by default is no wish.
    let default = "Accept-Encoding: gzip, deflate\r\n";
    let (head, _) = server.post_bytes("/v2/models/m/infer", default, many.to_string().as_bytes()).await;
    assert!(!head.contains("content-encoding"), "{head}");
}

#[tokio::test]
async fn classes_are_given_where_they_are_wanted() {
    let server = simple().await;
    let mut body = request(json!([1, 2]));
    body["outputs"] = json!([{"name": "y", "parameters": {"classification": 3}}]);
    let answer = server.infer(&body).await.json();
    let y = json!({"name": "y", "shape": [2, 1], "datatype": "BYTES", "data": ["3.000000:0", "5.000000:0"]});
    assert_eq!(answer["outputs"][0], y);
}

/// Two scores at each of two times, ordered by time first. The number of the row is one of them.
struct ByTime(Signature);

impl Runner for ByTime {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let Some(Data::Fp32(x)) = batch.get("x").map(|x| x.data().clone()) else { panic!("x is FP32") };
        let scores: Vec<f32> = x.iter().flat_map(|&x| [0.0, 0.0, x, 0.0]).collect();
        Ok(Tensors::one("y", Tensor::new(vec![x.len(), 2, 2], scores).unwrap()))
    }
}

#[tokio::test]
async fn classes_are_those_of_each_row_wherever_the_rows_of_an_output_are() {
    let source = Source::runners("by time", |_| {
        let inputs = vec![TensorSpec::new("x", DataType::Fp32, vec![Some(1)])];
        let own = TensorSpec::new("y", DataType::Fp32, vec![Some(2), Some(2)]);
        Ok(ByTime(Signature { inputs, outputs: vec![TensorSpec { rows: Rows::Axis(1), ..own }] }))
    });
    let model = ModelSpec::new("m", source, Caps::new(Duration::from_secs(10), 8));
    let server = start(Options::default(), vec![model]).await;
    let mut body = request(json!([1, 2, 3]));
    assert_eq!(server.infer(&body).await.json()["outputs"][0]["shape"], json!([2, 3, 2]));
    body["outputs"] = json!([{"name": "y", "parameters": {"classification": 1}}]);
    let answer = server.infer(&body).await.json();
    assert_eq!(answer["outputs"][0]["shape"], json!([3, 1]), "{answer}");
    assert_eq!(answer["outputs"][0]["data"], json!(["1.000000:2", "2.000000:2", "3.000000:2"]));
}

#[tokio::test]
async fn what_this_server_would_misread_is_refused_in_words() {
    let server = simple().await;
    let body = request(json!([1])).to_string();
    for (header, status, words) in [
        ("Inference-Header-Content-Length: 9999", 400, "but the body has"),
        ("Inference-Header-Content-Length: nine", 400, "one number of bytes"),
        ("Inference-Header-Content-Length: +68", 400, "one number of bytes"),
        ("Inference-Header-Content-Length: 0\r\nInference-Header-Content-Length: 3", 400, "one number of bytes"),
        ("Content-Encoding: br", 415, "gzip or deflate"),
        ("Content-Encoding: identity\r\nContent-Encoding: gzip", 415, "gzip or deflate"),
        ("Content-Encoding: gzip", 400, "not what its Content-Encoding says"),
    ] {
        let refused = parse(&server.raw(post_sized(&format!("{header}\r\nConnection: close\r\n"), &body)).await);
        assert_eq!(refused.0, status, "{header}");
        assert!(refused.1["error"].as_str().unwrap().contains(words), "{}", refused.1);
    }
}

#[tokio::test]
async fn a_list_in_the_place_of_an_object_is_refused() {
    let server = simple().await;
    let input = r#"{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}"#;
    for body in [
        r#"["i",null,[["x",[1,1],"FP32",[1],null]],null]"#.to_owned(),
        r#"{"inputs":[["x",[1,1],"FP32",[1],null]]}"#.to_owned(),
        format!(r#"{{"inputs":[{input}],"parameters":[1,2,true]}}"#),
        format!(r#"{{"inputs":[{input}],"outputs":[["y",null]]}}"#),
    ] {
        let answer = server.ask(Method::POST, "/v2/models/m/infer", Some(body.clone())).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.error().contains("object"), "{}", answer.text);
    }
    let listed = json!({"instances": [[1]], "parameters": [1, 2, true]}).to_string();
    assert_eq!(server.ask(Method::POST, "/v1/models/m:predict", Some(listed)).await.status, 400);
}

#[tokio::test]
async fn a_caller_shortens_its_deadline_and_cannot_lengthen_it() {
    let mut slow = stand_in("m", "1", Duration::from_millis(40));
    slow.max_latency = Duration::from_secs(5);
    let server = start(Options::default(), vec![slow]).await;
    for timeout in [json!(2000), json!("2000")] {
        let mut body = request(json!([1]));
        body["parameters"] = json!({ "timeout": timeout });
        let answer = server.infer(&body).await;
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert!(answer.error().contains("past the deadline of 2.0 ms"), "{}", answer.text);
        // A batch takes 40 ms, however empty the queue is.
        assert!(!answer.headers.contains_key("retry-after") && answer.error().contains("a retry would be no better"));
    }
    let mut body = request(json!([1]));
    for enough in [json!(4_000_000), json!(3_600_000_000u64), json!(0)] {
        body["parameters"] = json!({ "timeout": enough });
        assert_eq!(server.infer(&body).await.status, 200, "{enough} µs is enough");
    }
}

#[tokio::test]
async fn a_priority_that_is_no_number_is_answered_400_with_the_bounds() {
    let server = with(Options::default()).await;
    let mut body = request(json!([1]));
    for known in [json!(1), json!("10"), json!(0), json!(11), json!(u64::MAX)] {
        body["parameters"] = json!({ "priority": known });
        assert_eq!(server.infer(&body).await.status, 200, "{known}");
    }
    for unknown in [json!(1.5), json!(-1), json!("high")] {
        body["parameters"] = json!({ "priority": unknown });
        let answer = server.infer(&body).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.error().contains("from 1, the most urgent, to 10"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_slow_head_is_answered_408_and_a_silent_connection_is_closed() {
    let server = with(Options { head_timeout: SHORT, ..Options::default() }).await;
    let mut slow = server.connect().await;
    slow.send("GET /v2 HTTP/1.1\r\nHost:").await;
    let (status, error) = parse(&slow.rest().await);
    assert_eq!(status, 408);
    assert!(error["error"].as_str().unwrap().contains("head took longer than 150ms"), "{error}");
    assert_eq!(server.connect().await.rest().await, "", "nothing was asked, so nothing is said");
    server.assert_unharmed().await;
}

#[tokio::test]
async fn a_slow_head_is_answered_408_on_a_used_connection_too() {
    let server = with(Options { head_timeout: SHORT, ..Options::default() }).await;
    let mut connection = server.connect().await;
    connection.send("GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n").await;
    connection.until("{\"live\":true}").await;
    connection.send("GET /v2 HTTP/1.1\r\n").await;
    assert_eq!(parse(&connection.rest().await).0, 408);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_word() {
    let server = with(Options { idle_timeout: SHORT, ..Options::default() }).await;
    let mut connection = server.connect().await;
    for _ in 0..2 {
        connection.send("GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n").await;
        connection.until("{\"live\":true}").await;
    }
    assert_eq!(connection.rest().await, "");
}

#[tokio::test]
async fn a_request_that_takes_longer_than_a_connection_may_idle_is_answered() {
    let options = Options { idle_timeout: SHORT, head_timeout: SHORT, ..Options::default() };
    let server = start(options, vec![stand_in("m", "1", 2 * SHORT)]).await;
    let answer = server.infer(&request(json!([3]))).await;
    assert_eq!((answer.status, &answer.json()["outputs"][0]["data"]), (200, &json!([7.0])));
}

#[tokio::test]
async fn a_request_that_comes_in_pieces_is_answered_like_one_in_a_piece() {
    let server = with(Options::default()).await;
    let text = post_sized("", &request(json!([3])).to_string());
    let head = text.find("\r\n\r\n").unwrap() + 4;
    // How long the last piece is waited for: not at all, and longer than one that follows its head at once.
    for pause in [Duration::ZERO, Duration::from_millis(25)] {
        for cuts in [vec![10], vec![head], vec![head, head + 1], vec![head + 9, text.len() - 1]] {
            let (mut connection, mut from) = (server.connect().await, 0);
            for cut in cuts {
                connection.send(&text[from..cut]).await;
                from = cut;
                // Behind this one's answer the piece has been read.
                server.assert_unharmed().await;
            }
            stall(pause);
            server.assert_unharmed().await;
            connection.send(&text[from..]).await;
            let (head, body) = connection.answer().await;
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(answer["outputs"][0]["data"], json!([7.0]), "{head}");
        }
    }
}

#[tokio::test]
async fn a_slow_body_is_answered_408() {
    let server = with(Options { body_timeout: SHORT, ..Options::default() }).await;
    for lines in ["Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut slow = server.connect().await;
        slow.send(post(lines, "")).await;
        let (status, error) = parse(&slow.rest().await);
        assert_eq!(status, 408, "{lines}");
        assert!(error["error"].as_str().unwrap().contains("body took longer than 150ms"), "{error}");
    }
    server.assert_unharmed().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let options = Options { write_timeout: SHORT, max_connections: NonZeroUsize::MIN, ..Options::default() };
    let server = with(options).await;
    let mut deaf = server.connect().await;
    // Pipelined requests whose answers go unread fill the buffers of both ends, after which sending gets stuck as well.
    let many = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    let sent = async { while deaf.0.write_all(many.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(HANGS, sent).await.expect("the server closes the connection");
    server.until_room().await;
}

#[tokio::test]
async fn a_body_over_the_bound_is_answered_413_with_and_without_its_length() {
    let server = with(Options { max_body_bytes: 4096, ..Options::default() }).await;
    // Announced, and never sent: the answer comes at once.
    let announced = server.raw(post("Content-Length: 4097\r\n", "")).await;
    assert_eq!(parse(&announced).0, 413, "{announced}");
    // Sent in full: the client reads its answer although the server did not want the rest.
    let sent = server.raw(post_sized("", &" ".repeat(1_000_000))).await;
    assert_eq!(parse(&sent).0, 413, "{sent}");
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(4096));
    let chunked = server
        .raw(post("Connection: close\r\nTransfer-Encoding: chunked\r\n", &format!("{chunk}1\r\n \r\n0\r\n\r\n")))
        .await;
    assert_eq!(parse(&chunked).0, 413, "{chunked}");
    let just = format!("{chunk}0\r\n\r\n");
    let just = server.raw(post("Connection: close\r\nTransfer-Encoding: chunked\r\n", &just)).await;
    assert_eq!(parse(&just).0, 400, "4096 blanks are no JSON, but not too many: {just}");
    server.assert_unharmed().await;
}

#[tokio::test]
async fn bodies_that_do_not_fit_in_memory_together_are_refused_and_the_room_is_given_back() {
    let server = with(Options { max_body_bytes: 4096, max_bodies_bytes: 4096, ..Options::default() }).await;
    let chunk = format!("400\r\n{}\r\n", " ".repeat(1024));
    let chunked = post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "");
    let mut other = server.connect().await;
    other.send(&chunked).await;
    other.until("100 Continue\r\n\r\n").await;
    other.send(chunk.repeat(3)).await;
    let end = format!("{}0\r\n\r\n", chunk.repeat(3));
    let both = async {
        // Until the server has read what the other sent, there is room.
        loop {
            let answer =
                server.raw(format!("{}{end}", post("Connection: close\r\nTransfer-Encoding: chunked\r\n", ""))).await;
            match parse(&answer) {
                (400, _) => tokio::task::yield_now().await,
                (status, error) => break (status, error["error"].as_str().unwrap().to_owned()),
            }
        }
    };
    let (status, error) = tokio::time::timeout(HANGS, both).await.expect("there is no room for both");
    assert_eq!(status, 503);
    assert!(error.contains("bodies of other requests fill the 4096 bytes"), "{error}");
    drop(other);
    let alone = async {
        while parse(
            &server.raw(format!("{}{end}", post("Connection: close\r\nTransfer-Encoding: chunked\r\n", ""))).await,
        )
        .0 != 400
        {}
    };
    tokio::time::timeout(HANGS, alone).await.expect("there is room again");
}

/// A request in two chunks, the first with `extension` behind its size.
fn in_chunks(number: u32, extension: &str) -> String {
    let body = request(json!([number])).to_string();
    let (first, second) = body.split_at(10);
    let chunks = format!("{:x}{extension}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    post("Transfer-Encoding: chunked\r\n", &chunks)
}

#[tokio::test]
async fn a_chunked_body_is_read_and_its_connection_kept() {
    let server = simple().await;
    let mut connection = server.connect().await;
    for number in 0..3 {
        // In two pieces, cut at other places, so that the end of a body is seen wherever it falls.
        let text = in_chunks(number, "");
        let (first, second) = text.split_at(text.len() - 1 - 7 * number as usize);
        connection.send(first).await;
        tokio::task::yield_now().await;
        connection.send(second).await;
        let (head, body) = connection.answer().await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["outputs"][0]["data"], json!([2.0 * f64::from(number) + 1.0]), "{head}");
        assert!(!head.contains("connection: close"), "{head}");
    }
    connection.send(post_sized("", &request(json!([3])).to_string())).await;
    assert!(connection.answer().await.0.starts_with("HTTP/1.1 200 "), "whatever the next one is");
    connection
        .send(
            in_chunks(4, "")
                + &in_chunks(5, "")
                + "GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
        .await;
    let answers = connection.rest().await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "sent ahead: {answers}");
}

#[tokio::test]
async fn a_connection_is_kept_behind_a_chunked_body_that_was_waited_for() {
    let server = simple().await;
    let mut connection = server.connect().await;
    for number in 0..3 {
        let text = in_chunks(number, "").replacen("Transfer", "Expect: 100-continue\r\nTransfer", 1);
        let (head, chunks) = text.split_at(text.find("\r\n\r\n").unwrap() + 4);
        connection.send(head).await;
        connection.until("100 Continue\r\n\r\n").await;
        connection.send(chunks).await;
        let (head, _) = connection.answer().await;
        assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("connection: close"), "{head}");
    }
}

#[tokio::test]
async fn behind_a_chunked_body_that_others_might_read_otherwise_the_connection_ends() {
    let server = simple().await;
    let answer = server.raw(in_chunks(3, ";a=b") + &in_chunks(4, "")).await;
    assert!(answer.contains("connection: close"), "{answer}");
    let (status, answer) = parse(&answer);
    assert_eq!((status, &answer["outputs"][0]["data"]), (200, &json!([7.0])));
}

#[tokio::test]
async fn while_models_are_loaded_probes_are_answered_and_say_what_is_missing() {
    let models = vec![stand_in("m", "1", Duration::ZERO)];
    let (registry, opening) = Registry::open(models.clone(), Tracer::off());
    let repository = Repository::new(registry.clone(), models, None);
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap().repository(repository);
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    let server = Running { address, stop: Some(stop), serving };
    assert_eq!(server.get("/v2/health/live").await.status, 200);
    let ready = server.get("/v2/health/ready").await;
    assert_eq!((ready.status, ready.json()), (503, json!({ "ready": false, "live": true, "loading": ["m"] })));
    let early = server.infer(&request(json!([3.0]))).await;
    assert_eq!((early.status, early.error().as_str()), (503, "model 'm' is being loaded"));
    assert_eq!((&early.headers["retry-after"], early.headers.get("connection")), (&"1".parse().unwrap(), None));
    assert_eq!(server.get("/v2/models/other").await.status, 404);
    let unloaded = server.ask(Method::POST, "/v2/repository/models/m/unload", None).await;
    assert_eq!((unloaded.status, unloaded.error().contains("still being loaded")), (503, true), "{}", unloaded.text);
    tokio::task::spawn_blocking(|| opening.load()).await.unwrap().unwrap();
    let ready = server.get("/v2/health/ready").await;
    assert_eq!((ready.status, ready.json()), (200, json!({ "ready": true, "live": true })));
    server.assert_unharmed().await;
}

#[tokio::test]
async fn requests_too_long_to_come_in_one_piece_are_refused_from_their_heads_where_the_model_has_too_much_to_do() {
    let model = ModelSpec { max_latency: Duration::from_millis(100), ..stand_in("m", "1", Duration::from_millis(30)) };
    let server = start(Options::default(), vec![model]).await;
    // Numbers that take time to read, and that the model is then not asked for.
    let body = request(json!(vec![0.123_456_7; 8])).to_string();
    let body = format!("{{\"id\":\"{}\",{}", "a".repeat(500), &body[1..]) + &" ".repeat(40_000);
    let is_seen = AtomicBool::new(false);
    let callers = futures_util::future::join_all((0..24).map(|_| async {
        while !is_seen.load(Ordering::Relaxed) {
            server.post_bytes("/v2/models/m/infer", "", body.as_bytes()).await;
        }
    }));
    let watcher = async {
        loop {
            let metrics = server.get("/metrics").await.text;
            let unread = "uncork_sheds_total{model=\"m\",version=\"1\",reason=\"unread\"} ";
            let count = metrics.lines().find_map(|line| line.strip_prefix(unread)).expect(unread);
            if count != "0" {
                return is_seen.store(true, Ordering::Relaxed);
            }
        }
    };
    tokio::time::timeout(HANGS, async { tokio::join!(callers, watcher) }).await.expect("some are refused unread");
}

#[tokio::test]
async fn a_head_over_the_bound_is_answered_431() {
    let server = with(Options { max_head_bytes: 2048, ..Options::default() }).await;
    let long = format!("X: {}\r\n", "x".repeat(2048));
    let many = "X: x\r\n".repeat(150);
    for lines in [&long, &many] {
        let answer = server.raw(format!("GET /v2 HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).await;
        assert_eq!(parse(&answer).0, 431, "{answer}");
    }
    // Without an end, and in small pieces.
    let mut connection = server.connect().await;
    for _ in 0..40 {
        // The server may have closed already.
        let _ = connection.0.write_all(format!("X: {}\r\n", "x".repeat(60)).as_bytes()).await;
    }
    server.assert_unharmed().await;
}

#[tokio::test]
async fn forms_by_which_requests_are_smuggled_are_refused_and_end_the_connection() {
    let server = simple().await;
    let body = request(json!([1])).to_string();
    let length = format!("Content-Length: {}\r\n", body.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    let hidden = "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n";
    for (head, status) in [
        (post(&format!("{length}{chunked}"), ""), 400),
        (post(&format!("{chunked}{length}"), ""), 400),
        (post(&format!("{length}{length}"), ""), 400),
        (post(&format!("{length}Content-Length: 3\r\n"), ""), 400),
        (post("Content-Length: +3\r\n", ""), 400),
        (post("Transfer-Encoding: gzip, chunked\r\n", ""), 501),
        (post("Transfer-Encoding : chunked\r\n", ""), 400),
        (post("Host: b\r\n", ""), 400),
        ("GET /v2 HTTP/1.1\r\n\r\n".into(), 400),
        ("GET /v2 HTTP/2.0\r\n\r\n".into(), 505),
        ("GET /v2\u{0} HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n".into(), 400),
    ] {
        let answer = server.raw(format!("{head}{hidden}")).await;
        let (found, error) = parse(&answer);
        assert_eq!(found, status, "{head:?} gave {answer}");
        assert!(error["error"].is_string(), "{error}");
        assert_eq!(answer.matches("content-length: ").count(), 1, "what follows is not answered: {answer}");
    }
    server.assert_unharmed().await;
}

#[tokio::test]
async fn sound_requests_before_a_bad_head_are_answered_first() {
    let server = start(Options::default(), vec![stand_in("m", "1", Duration::from_millis(20))]).await;
    let good = post_sized("", &request(json!([3])).to_string());
    let all = server.raw(format!("{good}{good}GET /v2 HTTP/1.1\r\n\r\n")).await;
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 2, "{all}");
    assert_eq!(all.matches("HTTP/1.1 400 Bad Request").count(), 1, "{all}");
    assert!(all.ends_with("exactly one Host header\"}"), "{all}");
}

#[tokio::test]
async fn heads_and_bodies_may_come_in_any_pieces() {
    let server = simple().await;
    let one = post_sized("", &request(json!([3])).to_string());
    let three = format!("{one}{one}{}", post_sized("Connection: close\r\n", &request(json!([3])).to_string()));
    for size in [1, 2, 3, 7, 50, 300] {
        let mut connection = server.connect().await;
        connection.0.set_nodelay(true).unwrap();
        for piece in three.as_bytes().chunks(size) {
            connection.send(piece).await;
        }
        let all = connection.rest().await;
        assert_eq!(all.matches("\"data\":[7.0]").count(), 3, "in pieces of {size}: {all}");
    }
}

impl Running {
    /// Returns when a new connection is served again.
    async fn until_room(&self) {
        let asking = async {
            while !self
                .raw("GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .await
                .contains("200 OK")
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(HANGS, asking).await.expect("there is room again");
    }
}

#[tokio::test]
async fn a_connection_over_the_cap_is_told_so_and_there_is_room_when_another_ends() {
    let server = with(Options { max_connections: NonZeroUsize::new(2).unwrap(), ..Options::default() }).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut connection = server.connect().await;
        // With a half head: who is idle makes room.
        connection.send("GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\nGET /").await;
        connection.until("{\"live\":true}").await;
        held.push(connection);
    }
    let refused = server.raw("GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (status, error) = parse(&refused);
    assert_eq!((status, &error["error"]), (503, &json!("refused: all 2 connections are taken")));
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    drop(held.pop());
    server.until_room().await;
}

#[tokio::test]
async fn each_of_hundreds_of_connections_over_the_cap_is_told_so_and_counted() {
    let server = with(Options { max_connections: NonZeroUsize::MIN, ..Options::default() }).await;
    let mut held = server.connect().await;
    held.send("GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\nGET /").await;
    held.until("{\"live\":true}").await;
    // None of them closes before the last has come: most cannot be waited for.
    let mut refused = Vec::new();
    for _ in 0..400 {
        refused.push(server.connect().await);
    }
    for connection in &mut refused {
        let told = connection.until("connections are taken\"}").await;
        assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    }
    held.send("metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let line = "uncork_http_requests_total{code=\"503\"} 400\n";
    let metrics = held.until("uncork_http_connections").await;
    assert!(metrics.contains(line) || held.until(line).await.contains(line));
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let server = with(Options { max_connections: NonZeroUsize::MIN, ..Options::default() }).await;
    let mut leaving = server.connect().await;
    leaving.send(post("Expect: 100-continue\r\nContent-Length: 9\r\n", "")).await;
    assert_eq!(leaving.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n", "its handler runs");
    assert_eq!(parse(&server.raw("GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n").await).0, 503);
    drop(leaving);
    server.until_room().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_is_counted_as_departed_and_not_run() {
    let server = start(Options::default(), vec![slow_of_one_row()]).await;
    let staying = in_flight_before_others(&server).await;
    let leaving = two_that_wait(&server, async |_| {}).await;
    // Longer than whoever closes his side with the request itself.
    stall(Duration::from_millis(25));
    drop(leaving);
    these_are_departed(&server, staying).await;
}

#[tokio::test]
async fn a_client_that_resets_behind_its_closed_side_is_counted_as_departed_and_not_run() {
    let server = start(Options::default(), vec![slow_of_one_row()]).await;
    let staying = in_flight_before_others(&server).await;
    let leaving = two_that_wait(&server, async |connection| connection.0.shutdown().await.unwrap()).await;
    for connection in leaving {
        connection.0.set_zero_linger().unwrap();
    }
    these_are_departed(&server, staying).await;
}

fn slow_of_one_row() -> ModelSpec {
    let mut model = stand_in("m", "1", Duration::from_millis(500));
    model.max_batch_rows = NonZeroUsize::MIN;
    model
}

async fn shows(server: &Running, line: &str) {
    let shown = async {
        while !server.get("/metrics").await.text.lines().any(|found| found == line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANGS, shown).await.unwrap_or_else(|_| panic!("the metrics never show {line}"));
}

/// A request that takes the only runner.
async fn in_flight_before_others(server: &Running) -> Raw {
    let mut staying = server.connect().await;
    staying.send(post_sized("Connection: close\r\n", &request(json!([3])).to_string())).await;
    shows(server, "uncork_in_flight_batches{model=\"m\",version=\"1\"} 1").await;
    staying
}

/// Two that wait for it, of which the second is answered by hyper. With each `then` is done at once.
async fn two_that_wait(server: &Running, then: impl AsyncFn(&mut Raw)) -> [Raw; 2] {
    let mut waiting = [server.connect().await, server.connect().await];
    for (connection, lines) in waiting.iter_mut().zip(["", "Accept-Encoding: gzip\r\n"]) {
        connection.send(post_sized(lines, &request(json!([3])).to_string())).await;
        then(connection).await;
    }
    shows(server, "uncork_queue_rows{model=\"m\",version=\"1\"} 2").await;
    waiting
}

/// They have gone before the one ahead of them is answered, and no batch is run for them.
async fn these_are_departed(server: &Running, staying: Raw) {
    shows(server, "uncork_queue_rows{model=\"m\",version=\"1\"} 0").await;
    shows(server, "uncork_requests_total{model=\"m\",version=\"1\",outcome=\"departed\"} 2").await;
    assert_eq!(parse(&staying.rest().await).0, 200);
    shows(server, "uncork_requests_total{model=\"m\",version=\"1\",outcome=\"on_time\"} 1").await;
}

#[tokio::test]
async fn a_client_that_closes_its_side_with_its_request_is_answered() {
    let server = start(Options::default(), vec![stand_in("m", "1", Duration::from_millis(30))]).await;
    let body = request(json!([3])).to_string();
    let long = format!("{}{body}", " ".repeat(40_000));
    for (asked, times) in [
        (post_sized("", &body), 1),
        (post_sized("Connection: close\r\n", &body), 1),
        // By hyper.
        (post_sized("Accept-Encoding: gzip\r\n", &body), 1),
        (post_sized("", &long), 1),
        ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 1),
        // Chunks that only hyper finds the end of.
        (post("Transfer-Encoding: chunked\r\n", &format!("{:x};a=b\r\n{body}\r\n0\r\n\r\n", body.len())), 1),
        // One behind the other, by each way and by both.
        (post_sized("", &body), 3),
        (post_sized("Accept-Encoding: gzip\r\n", &body), 3),
        (post_sized("", &body) + &post_sized("Accept-Encoding: gzip\r\n", &body), 2),
    ] {
        let mut connection = server.connect().await;
        connection.send(asked.repeat(times)).await;
        connection.0.shutdown().await.unwrap();
        let answers = connection.rest().await;
        let wanted = times * asked.matches(" HTTP/1.1\r\n").count();
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), wanted, "{times} times {asked:.90}: {answers:.300}");
    }
    // A request that is cut off is none.
    let mut cut = server.connect().await;
    cut.send(&post_sized("", &body)[..100]).await;
    cut.0.shutdown().await.unwrap();
    assert!(cut.rest().await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn a_retired_server_says_not_ready_and_still_answers() {
    let mut server = with(Options { drain_delay: Duration::from_secs(3600), ..Options::default() }).await;
    server.stop();
    let retired = async {
        while server.get("/v2/health/ready").await.status == 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANGS, retired).await.expect("the server says that it is not ready");
    let ready = server.get("/v2/health/ready").await;
    assert_eq!((ready.status, ready.json()), (503, json!({"ready": false, "live": true})));
    assert_eq!(ready.headers["connection"], "close", "clients are sent elsewhere from the first moment on");
    assert_eq!(server.get("/v2/models/m/ready").await.json(), json!({"name": "m", "ready": false}));
    assert_eq!(server.get("/v2/health/live").await.status, 200);
    let fresh = server.raw(post_sized("Connection: close\r\n", &request(json!([3])).to_string())).await;
    assert_eq!(parse(&fresh).0, 200, "new connections are taken as well");
}

#[tokio::test]
async fn a_drain_takes_no_connection_answers_what_is_in_flight_and_ends() {
    let mut server = with(Options::default()).await;
    let address = server.address;
    let mut idle = server.connect().await;
    idle.send("GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n").await;
    idle.until("{\"live\":true}").await;
    let body = request(json!([3])).to_string();
    let mut in_flight = server.connect().await;
    in_flight.send(post(&format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len()), "")).await;
    in_flight.until("100 Continue\r\n\r\n").await;
    let mut begun = server.connect().await;
    begun.send(post(&format!("Content-Length: {}\r\n", body.len()), "")).await;
    // One that hyper has, with a part of its next head.
    let mut head_begun = server.connect().await;
    head_begun.send("GET /v2 HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n").await;
    head_begun.answer().await;
    let next = post(&format!("Content-Length: {}\r\n", body.len()), &body);
    let (part, rest) = next.split_at(30);
    head_begun.send(part).await;
    server.assert_unharmed().await;
    server.stop();
    assert_eq!(idle.rest().await, "", "an idle connection is closed");
    assert!(TcpStream::connect(address).await.is_err(), "no other is accepted");
    assert!(!server.serving.is_finished(), "the request in flight is waited for");
    in_flight.send(&body).await;
    let answer = in_flight.rest().await;
    assert_eq!((parse(&answer).0, answer.contains("connection: close\r\n")), (200, true), "{answer}");
    begun.send(&body).await;
    assert_eq!(parse(&begun.rest().await).0, 200, "so is the one of which the head has come");
    head_begun.send(rest).await;
    assert_eq!(parse(&head_begun.rest().await).0, 200, "and the one of which a part of the head has");
    assert_eq!(server.ended().await, Ended::Drained);
}

#[tokio::test]
async fn a_drain_that_takes_too_long_is_cut_off() {
    let mut server = with(Options { drain_timeout: SHORT, ..Options::default() }).await;
    let mut stuck = server.connect().await;
    stuck.send(post("Expect: 100-continue\r\nContent-Length: 9\r\n", "")).await;
    stuck.until("100 Continue\r\n\r\n").await;
    server.stop();
    assert_eq!(server.ended().await, Ended::CutOff { connections: 1 });
}

#[tokio::test]
async fn a_drain_does_not_wait_long_for_the_rest_of_a_head() {
    let mut server = with(Options { head_timeout: 10 * HANGS, drain_timeout: HANGS / 2, ..Options::default() }).await;
    let mut fresh = server.connect().await;
    fresh.send("GET /v2/health/live HTTP/1.1\r\nHo").await;
    let mut used = server.connect().await;
    used.send("GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    used.answer().await;
    used.send("GET /v2 HTTP/1.1\r\nHo").await;
    server.assert_unharmed().await;
    server.stop();
    let drips = async {
        let mut drops = tokio::time::interval(Duration::from_millis(100));
        loop {
            drops.tick().await;
            // Nothing of it arrives once the server has closed.
            let _ = fresh.0.write_all(b"o").await;
        }
    };
    tokio::select! {
        ended = server.ended() => assert_eq!(ended, Ended::Drained),
        () = drips => {}
    }
}

/// Keeps the thread of client and server busy, so that what was sent waits in its socket.
fn stall(time: Duration) {
    let begin = std::time::Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Milliseconds from arrival to release, as an answer tells.
fn queued_ms(answer: &str) -> f64 {
    answer.split_once("queue;dur=").and_then(|(_, rest)| rest.split_once(',')).unwrap().0.parse().unwrap()
}

/// A connection on which bytes are stamped: the system begins with that some time after it was asked to.
async fn stamped(server: &Running) -> Raw {
    let mut client = server.connect().await;
    for _ in 0..1000 {
        client.send(post_sized("", &request(json!([3])).to_string())).await;
        stall(Duration::from_millis(3));
        if queued_ms(&client.until("]}]}").await) >= 2.9 {
            return client;
        }
    }
    panic!("nothing is stamped");
}

#[tokio::test]
async fn what_waited_in_its_socket_beyond_the_cap_is_refused_unparsed_and_its_connection_lives() {
    let mut model = stand_in("m", "1", Duration::ZERO);
    model.max_latency = Duration::from_millis(50);
    let server = start(Options::default(), vec![model]).await;
    let mut client = stamped(&server).await;
    // Sent by half: the other half is skipped when it comes.
    let body = "no JSON at all".repeat(10);
    let (half, rest) = body.split_at(70);
    client.send(post(&format!("Content-Length: {}\r\n", body.len()), half)).await;
    stall(Duration::from_millis(60));
    let refused = client.until("\"}").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("it waited too long"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n") && !refused.contains("connection: close"), "{refused}");
    client.send(rest).await;
    client.send(post_sized("", &request(json!([3])).to_string())).await;
    let answered = client.until("]}]}").await;
    assert!(answered.starts_with("HTTP/1.1 200 ") && answered.contains("[7.0]"), "{answered}");
    let metrics = server.get("/metrics").await.text;
    for line in [
        r#"uncork_http_requests_total{code="503"} 1"#,
        r#"uncork_sheds_total{model="m",version="1",reason="unread"} 1"#,
        r#"uncork_requests_total{model="m",version="1",outcome="shed"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    // The page counts it too.
    let told = server.get("/status").await.json()["models"][0].clone();
    assert_eq!((&told["refusals"][0]["reason"], &told["refusals"][0]["requests"]), (&json!("unread"), &json!(1)));
    let refused = told["history"]["refused"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!(refused, 1);
}

#[tokio::test]
async fn what_waited_too_long_is_refused_with_an_id_compressed_at_the_end_or_by_another_protocol() {
    let mut model = stand_in("m", "1", Duration::ZERO);
    model.max_latency = Duration::from_millis(50);
    let server = start(Options::default(), vec![model]).await;
    for (path, lines) in [
        ("v2/models/m/infer", "X-Request-Id: a-b\r\n"),
        ("v2/models/m/infer", "Accept-Encoding: gzip\r\n"),
        ("v2/models/m/infer", "Content-Encoding: gzip\r\n"),
        ("v2/models/m/infer", "Connection: close\r\n"),
        ("v1/models/m:predict", ""),
    ] {
        let mut client = stamped(&server).await;
        client.send(format!("POST /{path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: 2\r\n\r\n{{}}")).await;
        stall(Duration::from_millis(60));
        let refused = client.until("\"}").await;
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("it waited too long"), "{lines}{refused}");
        assert_eq!(refused.contains("\r\nconnection: close\r\n"), lines.starts_with("Connection"), "{refused}");
        assert_eq!(refused.contains("\r\nx-request-id: a-b\r\n"), lines.starts_with("X-"), "{refused}");
    }
}

#[tokio::test]
async fn a_wait_in_the_socket_counts_towards_the_latency() {
    let mut model = stand_in("m", "1", Duration::ZERO);
    model.max_latency = Duration::from_secs(5);
    let server = start(Options::default(), vec![model]).await;
    let mut client = stamped(&server).await;
    client.send(post_sized("", &request(json!([3])).to_string())).await;
    stall(Duration::from_millis(30));
    let answered = client.until("]}]}").await;
    assert!(queued_ms(&answered) >= 29.0, "{answered}");
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_their_order_whichever_way_they_go() {
    let server = simple().await;
    let infer = |x: i32, lines: &str| post_sized(lines, &request(json!([x])).to_string());
    let live = "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = [
        &infer(1, ""),
        live,
        &infer(2, "Accept-Encoding: gzip\r\n"),
        &infer(3, ""),
        &infer(4, "Connection: close\r\n"),
    ];
    for piece in [1, 7, 100, 10_000] {
        let mut client = server.connect().await;
        for bytes in all.concat().as_bytes().chunks(piece) {
            client.send(bytes).await;
        }
        let answers = client.rest().await;
        let places = ["[3.0]", "{\"live\":true}", "[5.0]", "[7.0]", "[9.0]"].map(|part| answers.find(part));
        assert!(places.is_sorted() && places[0].is_some(), "in pieces of {piece}: {answers}");
    }
}

/// A stand-in that does not come back while it is told to hang.
struct Hanging(Synthetic, Arc<(Mutex<bool>, Condvar)>);

impl Runner for Hanging {
    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let (hangs, changed) = &*self.1;
        drop(changed.wait_while(hangs.lock().unwrap(), |hangs| *hangs).unwrap());
        self.0.run(batch)
    }
}

#[tokio::test]
async fn a_model_that_does_not_come_back_is_given_up_named_and_ready_again_when_a_fresh_runner_works() {
    let switch = Arc::new((Mutex::new(false), Condvar::new()));
    let own = Arc::clone(&switch);
    let source = Source::runners("hanging", move |_| {
        Ok(Hanging(Synthetic::new(Duration::ZERO, Duration::ZERO), Arc::clone(&own)))
    });
    let hangs = |hangs: bool| {
        *switch.0.lock().unwrap() = hangs;
        switch.1.notify_all();
    };
    let model = ModelSpec { source, stuck_after: Duration::from_secs(1), ..stand_in("m", "1", Duration::ZERO) };
    let server = start(Options::default(), vec![model, stand_in("other", "1", Duration::ZERO)]).await;
    hangs(true);
    let failed = server.infer(&request(json!([1]))).await;
    assert_eq!(failed.status, 500);
    assert!(failed.error().starts_with("the model has not answered for 1.0 s and is given up"), "{}", failed.error());
    let ready = server.get("/v2/health/ready").await;
    let why = "model 'm': a batch has not come back for 1.0 s and was given up";
    assert_eq!((ready.status, ready.json()["stuck"].clone()), (503, json!([why])));
    let statuses = [server.get("/v2/models/m/ready").await.status, server.get("/v2/models/other/ready").await.status];
    assert_eq!(statuses, [503, 200]);
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("uncork_stuck_batches_total{model=\"m\",version=\"1\"} "), "{metrics}");
    assert!(!metrics.contains("uncork_stuck_batches_total{model=\"m\",version=\"1\"} 0"), "{metrics}");
    assert!(metrics.contains("uncork_in_flight_batches{model=\"m\",version=\"1\"} 0"), "{metrics}");
    hangs(false);
    let again = async { while server.get("/v2/health/ready").await.status != 200 {} };
    tokio::time::timeout(HANGS, again).await.unwrap();
    assert_eq!(server.infer(&request(json!([1]))).await.status, 200, "nobody had to ask for it");
}

#[tokio::test]
async fn what_is_told_of_many_models_takes_its_part_of_the_room_until_it_is_sent() {
    let models = || (0..60).map(|i| stand_in(&format!("m{i}"), "1", Duration::ZERO)).collect();
    let small = start(Options { max_bodies_bytes: 8 * 1024, ..Options::default() }, models()).await;
    let large = start(Options { max_bodies_bytes: 64 * 1024, ..Options::default() }, models()).await;
    let refused = small.get("/v2/models/stats").await;
    assert_eq!(refused.status, 503);
    assert!(refused.error().contains("fill the 8192 bytes"), "{}", refused.text);
    for _ in 0..10 {
        let told = large.get("/v2/models/stats").await;
        assert!(told.status == 200 && told.text.len() > 16 * 1024, "{} {}", told.status, told.text.len());
    }
}
