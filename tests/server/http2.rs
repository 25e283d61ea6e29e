//! HTTP/2 at the port of HTTP/1.1: by prior knowledge, and over TLS (`sockets`).

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use uncork::registry::{Caps, ModelSpec, Registry, Source};
use uncork::server::{Ended, Options, Server};

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Ended>,
}

/// A server of one stand-in, `m`, whose batches take `base`.
async fn start(options: Options, base: Duration) -> Running {
    let caps = Caps::new(Duration::from_secs(10), 8);
    let model = ModelSpec::new("m", Source::Synthetic { base, per_row: Duration::ZERO }, caps);
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
    let server = Server::bind("127.0.0.1:0", options).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    Running { address, stop: Some(stop), serving }
}

type Sender = SendRequest<Full<Bytes>>;
type BoxBody = http_body_util::combinators::BoxBody<Bytes, std::io::Error>;

/// A connection, and what becomes of it.
async fn connect(address: SocketAddr) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    let uri = format!("http://localhost{path}");
    Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

async fn send(sender: &mut Sender, request: Request<Full<Bytes>>) -> (StatusCode, HeaderMap, String) {
    let exchange = async {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        (head.status, head.headers, text)
    };
    tokio::time::timeout(HANGS, exchange).await.expect("an answer in time")
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, what).await.expect("it comes in time")
}

#[tokio::test]
async fn every_route_is_answered_over_one_connection_of_http_2() {
    let server = start(Options::default(), Duration::ZERO).await;
    let (mut sender, _connection) = connect(server.address).await;
    let (status, headers, text) = send(&mut sender, request("POST", "/v2/models/m/infer", BODY)).await;
    assert!(status == 200 && text.contains("\"data\":[3.0]"), "{status} {text}");
    assert!(headers.contains_key("server-timing") && headers.contains_key("x-request-id"), "{headers:?}");
    let (status, _, text) = send(&mut sender, request("GET", "/v2/health/ready", "")).await;
    assert!(status == 200 && text.contains("\"ready\":true"), "{status} {text}");
    let (status, headers, text) = send(&mut sender, request("POST", "/v2/models/m/infer", "{")).await;
    assert!(status == 400 && text.starts_with("{\"error\":"), "{status} {text}");
    assert!(!headers.contains_key("connection"), "HTTP/2 has no such header: {headers:?}");
    let (_, _, metrics) = send(&mut sender, request("GET", "/metrics", "")).await;
    assert!(metrics.contains("uncork_http_requests_total{code=\"400\"} 1\n"), "{metrics}");
    assert!(metrics.contains("outcome=\"on_time\"} 1\n"), "{metrics}");
    assert!(metrics.contains("uncork_http_connections 1\n"), "{metrics}");
}

#[tokio::test]
async fn requests_of_one_connection_share_batches() {
    let server = start(Options::default(), Duration::from_millis(20)).await;
    let (sender, _connection) = connect(server.address).await;
    let asking = (0..16).map(|_| {
        let mut sender = sender.clone();
        async move { send(&mut sender, request("POST", "/v2/models/m/infer", BODY)).await }
    });
    let answers = futures_util::future::join_all(asking).await;
    assert!(answers.iter().all(|(status, _, text)| *status == 200 && text.contains("[3.0]")));
    let (largest, _) =
        answers.iter().map(|(_, headers, _)| rows(headers)).fold((0, 0), |(most, n), r| (most.max(r), n));
    assert!(largest > 1, "no two requests rode together");
}

/// Rows of the batch that an answer came from.
fn rows(headers: &HeaderMap) -> usize {
    let timing = headers["server-timing"].to_str().unwrap();
    timing.split("desc=\"").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_preface_may_come_in_any_pieces_and_http_1_that_begins_alike_is_http_1() {
    let server = start(Options::default(), Duration::ZERO).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    // The preface and empty settings, byte by byte; answered by settings and their acknowledgement.
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut head = [0; 9];
    within(stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(head[3], 4, "a frame of settings: {head:?}");
    for head in ["P", "PR", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(format!("{head}X / HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; 9];
        within(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 ", "{head}");
    }
}

#[tokio::test]
async fn an_idle_connection_of_http_2_is_closed_and_one_that_waits_for_its_answer_is_not() {
    let options = Options { idle_timeout: Duration::from_millis(100), ..Options::default() };
    let server = start(options, Duration::from_millis(400)).await;
    let (mut sender, connection) = connect(server.address).await;
    let (status, ..) = send(&mut sender, request("POST", "/v2/models/m/infer", BODY)).await;
    assert_eq!(status, 200);
    within(connection).await.unwrap().unwrap();
    assert!(sender.is_closed());
}

#[tokio::test]
async fn a_page_of_another_site_is_refused_by_authority() {
    let server = start(Options::default(), Duration::ZERO).await;
    let (mut sender, _connection) = connect(server.address).await;
    let mut forged = request("GET", "/v2", "");
    *forged.uri_mut() = "http://evil.example/v2".parse().unwrap();
    let (status, _, text) = send(&mut sender, forged.clone()).await;
    assert!(status == 403 && text.contains("evil.example"), "{status} {text}");
    forged.headers_mut().insert("host", "localhost".parse().unwrap());
    let (status, _, text) = send(&mut sender, forged).await;
    assert!(status == 400 && text.contains("two hosts"), "{status} {text}");
}

#[tokio::test]
async fn a_drain_answers_what_is_in_flight_and_sends_the_client_elsewhere() {
    let mut server = start(Options::default(), Duration::from_millis(300)).await;
    let (mut sender, connection) = connect(server.address).await;
    let (mut other, idle) = connect(server.address).await;
    send(&mut other, request("GET", "/v2", "")).await;
    let asked = sender.send_request(request("POST", "/v2/models/m/infer", BODY));
    let asked = tokio::spawn(asked);
    // It is in flight when the model has it.
    while !send(&mut other, request("GET", "/metrics", ""))
        .await
        .2
        .contains("uncork_in_flight_batches{model=\"m\",version=\"1\"} 1\n")
    {}
    server.stop.take().unwrap().send(()).unwrap();
    assert_eq!(within(asked).await.unwrap().unwrap().status(), 200);
    within(connection).await.unwrap().unwrap();
    within(idle).await.unwrap().unwrap();
    assert_eq!(within(server.serving).await.unwrap(), Ended::Drained);
}

#[tokio::test]
async fn a_client_that_is_refused_while_it_sends_may_send_on_and_reads_why() {
    let server = start(Options::default(), Duration::ZERO).await;
    let stream = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let (pieces, mut taken) = mpsc::channel(1);
    let body = StreamBody::new(futures_util::stream::poll_fn(move |cx| {
        taken.poll_recv(cx).map(|piece: Option<Bytes>| piece.map(|piece| Ok::<_, std::io::Error>(Frame::data(piece))))
    }));
    let request = Request::post("http://localhost/v2/models/nobody/infer").body(body).unwrap();
    let answer = within(sender.send_request(request)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let text = within(answer.into_body().collect()).await.unwrap().to_bytes();
    assert!(text.starts_with(b"{\"error\":"), "{text:?}");
    // A stream that was reset takes nothing.
    for _ in 0..1000 {
        within(pieces.send(Bytes::from_static(&[b' '; 16 * 1024]))).await.expect("the stream is open");
    }
}

/// A body that is announced with so many bytes, of which the first piece comes at once and the others as they are sent, and what becomes of it.
async fn announce(sender: &mut SendRequest<BoxBody>, bytes: usize) -> (mpsc::Sender<Bytes>, String) {
    let (pieces, mut taken) = mpsc::channel(1);
    let body = StreamBody::new(futures_util::stream::poll_fn(move |cx| {
        taken.poll_recv(cx).map(|piece: Option<Bytes>| piece.map(|piece| Ok::<_, std::io::Error>(Frame::data(piece))))
    }));
    let request = Request::post("http://localhost/v2/models/m/infer").header("content-length", bytes);
    let answer = within(sender.send_request(request.body(body.boxed()).unwrap())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    // All of it is there, and it ends, whatever becomes of the body.
    let text = within(answer.into_body().collect()).await.unwrap().to_bytes();
    (pieces, String::from_utf8(text.to_vec()).unwrap())
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_answered_taken_for_a_while_and_then_stopped() {
    const PIECE: usize = 16 * 1024;
    const MB: usize = 1024 * 1024;
    let server = start(Options { max_body_bytes: 6 * MB, ..Options::default() }, Duration::ZERO).await;
    let stream = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let (mut sender, connection) = http2::handshake::<_, _, BoxBody>(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    for (announced, least, most) in [
        // A little longer, and four times as long: whoever reads when he has sent everything can do so.
        (6 * MB + 1, 6 * MB, 7 * MB),
        (24 * MB, 23 * MB, 24 * MB),
        // No more than that is taken, and what is on the way.
        (1000 * MB, 24 * MB, 27 * MB),
    ] {
        let (pieces, text) = announce(&mut sender, announced).await;
        assert!(text.contains("larger than the 6291456 bytes"), "{text}");
        let mut sent = 0;
        while sent + PIECE <= announced && within(pieces.send(Bytes::from_static(&[b' '; PIECE]))).await.is_ok() {
            sent += PIECE;
        }
        assert!((least..=most).contains(&sent), "{announced}: {sent}");
    }
    // What nobody reads of it holds up no other request of the connection.
    let body = Full::new(Bytes::from(format!("{}{BODY}", " ".repeat(2 * MB)))).map_err(|never| match never {}).boxed();
    let request = Request::post("http://localhost/v2/models/m/infer").body(body).unwrap();
    assert_eq!(within(sender.send_request(request)).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn heads_are_refused_as_over_http_1_in_words_and_are_counted() {
    let server = start(Options { max_head_bytes: 4096, ..Options::default() }, Duration::ZERO).await;
    let (mut sender, _connection) = connect(server.address).await;
    let with = |name, value: &str| {
        let mut request = request("GET", "/v2", "");
        request.headers_mut().append(name, value.parse().unwrap());
        request
    };
    let many = |fields| {
        let mut request = request("GET", "/v2", "");
        request.headers_mut().extend(
            (0..fields)
                .map(|i| {
                    (
                        format!("x-{i}").parse::<hyper::header::HeaderName>().unwrap(),
                        hyper::header::HeaderValue::from_static("a"),
                    )
                })
                .collect::<HeaderMap>(),
        );
        request
    };
    let mut two = with("authorization", "Bearer a");
    two.headers_mut().append("authorization", "Bearer b".parse().unwrap());
    let of = |uri: &str| {
        let mut request = request("GET", "/v2", "");
        *request.uri_mut() = uri.parse().unwrap();
        request
    };
    for (request, expected, words) in [
        (with("x-long", &"x".repeat(4500)), 431, "may have 4096 bytes at most"),
        // Beyond a quarter more, nothing of it is kept that could be told of.
        (with("x-long", &"x".repeat(9000)), 431, ""),
        (many(100), 200, "uncork"),
        (many(101), 431, "may have 100 headers at most"),
        (two, 400, "Authorization is given twice"),
        (of("ftp://localhost/v2"), 400, "neither http nor https"),
        (of("http://me@localhost/v2"), 400, "names a user"),
        (with("host", "elsewhere"), 400, "names two hosts"),
        (with("host", "LOCALHOST:80"), 200, "uncork"),
    ] {
        let (status, headers, text) = send(&mut sender, request).await;
        assert!(status == expected && text.contains(words), "{status} {text}");
        assert!(words.is_empty() || headers.contains_key("x-request-id"), "{headers:?}");
    }
    let (_, _, metrics) = send(&mut sender, request("GET", "/metrics", "")).await;
    assert!(metrics.contains("uncork_http_requests_total{code=\"431\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn an_idle_connection_of_http_2_makes_room_and_one_with_a_request_does_not() {
    let options = Options { max_connections: NonZeroUsize::MIN, ..Options::default() };
    let server = start(options, Duration::from_millis(1500)).await;
    let (mut sender, connection) = connect(server.address).await;
    let begun = Instant::now();
    let answered = tokio::spawn(async move {
        let answer = send(&mut sender, request("POST", "/v2/models/m/infer", BODY)).await;
        // The sender is kept: without it the client would end the connection.
        (answer.0, sender)
    });
    let newcomer = async {
        loop {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let _ = stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text).await;
            if text.starts_with(b"HTTP/1.1 200 ") {
                return Instant::now();
            }
            tokio::task::yield_now().await;
        }
    };
    let let_in = within(newcomer).await;
    assert!(let_in - begun >= Duration::from_millis(2500), "{:?}", let_in - begun);
    let (status, _sender) = within(answered).await.unwrap();
    assert_eq!(status, 200);
    within(connection).await.unwrap().expect("it ends in order");
}
