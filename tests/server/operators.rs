//! An address for operators: what is served there, and that nothing else holds it up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uncork::registry::{Caps, ModelSpec, Registry, Source};
use uncork::server::{Ended, Options, Server};

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;

/// A server of one stand-in, `m`, whose event loop is a thread of its own. It ends when it is dropped.
struct Running {
    main: SocketAddr,
    admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    /// Blocks the event loop until something comes, or the sender is gone.
    block: mpsc::Sender<mpsc::Receiver<()>>,
    ended: Option<thread::JoinHandle<Ended>>,
}

fn start(options: Options, base: Duration) -> Running {
    let (told, addresses) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let (block, blocked) = mpsc::channel::<mpsc::Receiver<()>>();
    let ended = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let source = Source::Synthetic { base, per_row: Duration::ZERO };
            let model = ModelSpec::new("m", source, Caps::new(Duration::from_secs(10), 8));
            let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
            let server = Server::bind("127.0.0.1:0", options).await.unwrap().admin("127.0.0.1:0").await.unwrap();
            let admin = server.admin_urls().next().unwrap();
            told.send((server.address(), admin.strip_prefix("http://").unwrap().parse().unwrap())).unwrap();
            let mut serving = std::pin::pin!(server.serve(registry, async { drop(stopped.await) }));
            loop {
                tokio::select! {
                    biased;
                    ended = serving.as_mut() => return ended,
                    () = tokio::task::yield_now() => {
                        if let Ok(until) = blocked.try_recv() {
                            let _ = until.recv();
                        }
                    }
                }
            }
        })
    });
    let (main, admin) = addresses.recv_timeout(HANGS).unwrap();
    Running { main, admin, stop: Some(stop), block, ended: Some(ended) }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(ended) = self.ended.take() {
            let _ = ended.join();
        }
    }
}

/// Sends a request, and nothing more on this connection.
fn begin(address: SocketAddr, line: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

/// The status of an answer, and all of it.
fn finish(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default(), text)
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    finish(begin(address, &format!("GET {path}"), ""))
}

const FOR_OPERATORS: [&str; 10] = [
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/m/ready",
    "/v2/models/m",
    "/v2/models/stats",
    "/v1/models/m",
    "/metrics",
    "/status",
    "/page/page.js",
    "/docs",
];

#[test]
fn operators_have_all_but_inference_at_their_address() {
    let server = start(Options::default(), Duration::ZERO);
    for path in FOR_OPERATORS {
        assert_eq!(get(server.admin, path).0, get(server.main, path).0, "{path}");
        assert!(path.starts_with("/page") || get(server.admin, path).0 == 200, "{path}");
    }
    assert_eq!(finish(begin(server.admin, "POST /v2/repository/index", "{}")).0, 200);
    for path in ["/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v1/models/m:predict", "/models/m"] {
        let (status, text) = finish(begin(server.admin, &format!("POST {path}"), BODY));
        assert!(status == 421 && text.contains("this address is for operators"), "{path}: {text}");
    }
    assert_eq!(finish(begin(server.main, "POST /v2/models/m/infer", BODY)).0, 200);
}

#[test]
fn the_page_is_told_whether_its_address_is_for_operators() {
    let server = start(Options::default(), Duration::ZERO);
    for path in ["/status", "/status?history=hour"] {
        for (address, told) in [(server.admin, true), (server.main, false), (server.admin, true)] {
            let (_, text) = get(address, path);
            assert!(text.contains(&format!("\"for_operators\":{told}")), "{path}: {text}");
        }
    }
}

#[test]
fn operators_are_answered_while_nothing_else_moves() {
    let server = start(Options::default(), Duration::ZERO);
    let (_release, until) = mpsc::channel();
    server.block.send(until).unwrap();
    // This one is answered when the other thread moves again.
    let waiting = begin(server.main, "GET /v2/health/live", "");
    for path in FOR_OPERATORS.into_iter().filter(|path| !path.starts_with("/page")) {
        let (status, text) = get(server.admin, path);
        assert_eq!(status, 200, "{path}: {text}");
    }
    waiting.set_nonblocking(true).unwrap();
    let nothing = (&waiting).read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(nothing, Err(std::io::ErrorKind::WouldBlock), "the rest of the server is blocked");
}

#[test]
fn operators_are_answered_where_every_connection_is_taken() {
    let server = start(Options { max_connections: NonZeroUsize::MIN, ..Options::default() }, Duration::ZERO);
    let mut held = TcpStream::connect(server.main).unwrap();
    // With a half head: who is idle makes room.
    held.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\nGET /").unwrap();
    let mut byte = [0];
    held.read_exact(&mut byte).unwrap();
    assert_eq!(get(server.main, "/v2/health/live").0, 503);
    assert_eq!(get(server.admin, "/v2/health/live").0, 200);
}

#[test]
fn at_the_operators_address_an_idle_connection_makes_room_and_none_of_another_address_does() {
    let server = start(Options { max_connections: NonZeroUsize::MIN, ..Options::default() }, Duration::ZERO);
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"{\"live\":true}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
    };
    let mut held = [server.main, server.admin].map(|address| TcpStream::connect(address).unwrap());
    ask(&mut held[0]);
    // Who asks on has been idle for less long: the other one would go first if both were of one house.
    (0..20).for_each(|_| ask(&mut held[1]));
    let begun = Instant::now();
    while get(server.admin, "/v2/health/live").0 != 200 {
        assert!(begun.elapsed() < HANGS);
    }
    assert_eq!(held[1].read(&mut [0]).unwrap(), 0, "it is closed");
    ask(&mut held[0]);
}

#[test]
fn operators_are_answered_to_the_end_of_the_drain() {
    let mut server = start(Options::default(), Duration::from_millis(600));
    let riding = begin(server.main, "POST /v2/models/m/infer", BODY);
    while !get(server.admin, "/metrics").1.contains("uncork_in_flight_batches{model=\"m\",version=\"1\"} 1") {}
    server.stop.take();
    let mut seen = Vec::new();
    loop {
        let (status, text) = get(server.admin, "/v2/health/ready");
        if status == 503 {
            seen.push(text);
            break;
        }
    }
    assert_eq!(get(server.admin, "/v2/health/live").0, 200, "{seen:?}");
    assert_eq!(finish(riding).0, 200);
    assert_eq!(server.ended.take().unwrap().join().unwrap(), Ended::Drained);
    assert!(TcpStream::connect(server.admin).is_err(), "nobody listens there any more");
}

#[test]
fn an_address_for_operators_that_others_reach_needs_tokens_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
        let error = server.admin("0.0.0.0:0").await.unwrap_err().to_string();
        assert!(error.contains("tokens_file"), "{error}");
    });
}
