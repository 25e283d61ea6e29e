//! Requests that mean harm, or come from whom they should not.

mod access;
mod frames;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use uncork::registry::{Caps, ModelSpec, Registry, Source};
use uncork::server::{Options, Server};

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

/// A server of one stand-in, `m`. It ends with the value.
struct Running {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

async fn start(options: Options) -> Running {
    start_slow(options, Duration::ZERO, Caps::new(Duration::from_secs(10), 8)).await
}

/// The same, whose batches take so long, under these caps.
async fn start_slow(options: Options, base: Duration, caps: Caps) -> Running {
    let model = ModelSpec::new("m", Source::Synthetic { base, per_row: Duration::ZERO }, caps);
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
    let server = Server::bind("127.0.0.1:0", options).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    Running { address, _stop: stop }
}

impl Running {
    /// The status of the answer to a request of these lines, and the whole answer.
    async fn ask(&self, line: &str, lines: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\n{lines}Connection: close\r\nContent-Length: {length}\r\n\r\n");
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            String::from_utf8_lossy(&answer).into_owned()
        };
        let answer = tokio::time::timeout(HANGS, exchange).await.expect("an answer in time");
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }
}

#[tokio::test]
async fn a_body_longer_than_any_number_of_bytes_is_refused_in_words_and_counted() {
    let running = start(Options::default()).await;
    for length in ["18446744073709551613", "18446744073709551614", "18446744073709551615"] {
        let exchange = async {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            let head =
                format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::time::timeout(HANGS, exchange).await.expect("an answer in time");
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("{\"error\":\""), "{length}: {answer}");
    }
    let (_, metrics) = running.ask("GET /metrics", "Host: localhost\r\n", "").await;
    assert!(metrics.contains("uncork_http_requests_total{code=\"413\"} 3"), "{metrics}");
}

#[tokio::test]
async fn a_body_of_many_empty_members_or_one_that_takes_too_long_to_unpack_is_refused_and_counted() {
    use std::io::Write;
    let packed = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    for (max_latency, body, status, words, outcome) in [
        (Duration::from_secs(10), packed(b"").repeat(100_000), 400, "more than 64 members of gzip", "invalid"),
        (Duration::from_millis(1), packed(&[b' '; 32 << 20]), 503, "to arrive and to be unpacked", "shed"),
    ] {
        let running = start_slow(Options::default(), Duration::ZERO, Caps::new(max_latency, 8)).await;
        let exchange = async {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            let head = "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n";
            let length = format!("Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), length.as_bytes(), &body].concat()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::time::timeout(HANGS, exchange).await.expect("an answer in time");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(words), "{answer}");
        let (_, metrics) = running.ask("GET /metrics", "Host: localhost\r\n", "").await;
        let line = format!("uncork_requests_total{{model=\"m\",version=\"1\",outcome=\"{outcome}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
        let reason = format!(
            "uncork_sheds_total{{model=\"m\",version=\"1\",reason=\"slow_body\"}} {}\n",
            u8::from(outcome == "shed")
        );
        assert!(metrics.contains(&reason), "{metrics}");
    }
}

#[tokio::test]
async fn a_chunked_body_is_bounded_by_what_it_announces_and_by_all_that_comes_of_it() {
    const MOST: usize = 64 * 1024;
    let running = start(Options { max_body_bytes: MOST, ..Options::default() }).await;
    let answer = async |begin: &str, again: &str| {
        let exchange = async {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            let head = "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(format!("{head}{begin}").as_bytes()).await.unwrap();
            let (mut reading, mut writing) = stream.split();
            let again = again.repeat(MOST / again.len().max(1));
            let flood = async {
                // Until the server takes no more.
                while !again.is_empty() && writing.write_all(again.as_bytes()).await.is_ok() {}
            };
            let answer = async {
                let mut answer = Vec::new();
                while !answer.ends_with(b"}") && reading.read_buf(&mut answer).await.unwrap() > 0 {}
                String::from_utf8(answer).unwrap()
            };
            tokio::join!(flood, answer).1
        };
        tokio::time::timeout(HANGS, exchange).await.expect("an answer in time")
    };
    for (begin, again, status, words) in [
        // Digits without end, at once and behind a chunk that others read otherwise.
        ("", "0", 400, "more than 16 digits"),
        ("1 \r\na\r\n", "0", 413, "larger than the 65536 bytes"),
        ("1 \r\na\r\n1", " ", 413, "larger than the 65536 bytes"),
        // A long way to say little.
        ("", "0000000000000001\r\n \r\n", 413, "larger than the 65536 bytes"),
        // Too much, before any of it comes.
        ("FFFFFFFFFFFFFFFF\r\n", "", 413, "larger than the 65536 bytes"),
        ("10001\r\nabc", "", 413, "larger than the 65536 bytes"),
        ("3\r\nabc\r\nFFFE\r\n", "", 413, "larger than the 65536 bytes"),
    ] {
        let answer = answer(begin, again).await;
        let is_told = answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(words);
        assert!(is_told && answer.contains("connection: close"), "{begin:?} {again:?}: {answer}");
    }
    // What is sent byte by byte takes six times its length, and is taken.
    let body = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[3]}]}"#;
    let bytes = format!("{}{body}", " ".repeat(MOST - body.len()));
    let chunks: String = bytes.chars().map(|byte| format!("1\r\n{byte}\r\n")).collect();
    let answer = answer(&format!("{chunks}0\r\n\r\n"), "").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_text_that_is_no_element_is_bounded_before_it_is_kept_or_repeated() {
    let running = start(Options::default()).await;
    let ask = |path: &'static str, body: String| {
        let running = &running;
        async move { running.ask(&format!("POST {path}"), "Host: localhost\r\n", &body).await }
    };
    let (v2, v1) = ("/v2/models/m/infer", "/v1/models/m:predict");
    let with =
        |member: &str| format!(r#"{{{member},"inputs":[{{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}}]}}"#);
    let long = "\u{7f}".repeat(3_000_000);
    for (path, body) in [
        (v2, with(&format!("\"id\":\"{}\"", "i".repeat(1025)))),
        (v2, with(&format!("\"id\":\"\\n{}\"", "i".repeat(1024)))),
        (v2, with(&format!("\"id\":\"{long}\""))),
        (v2, with(&format!("\"\\n{long}\":1"))),
        (v2, with("\"id\":1").replace("[1,1]", &format!("\"{long}\""))),
        (v2, with("\"id\":\"1\"").replace("\"x\"", &format!("\"{long}\""))),
        (v1, format!(r#"{{"instances":[{{"x":[1]}},"{long}"]}}"#)),
        (v1, format!(r#"{{"instances":[{{"\n{long}":[1]}}]}}"#)),
        (v1, format!(r#"{{"signature_name":"{long}","instances":[[1]]}}"#)),
        ("/v2/repository/index", format!(r#"{{"ready":"{}"}}"#, &long[..60_000])),
    ] {
        let (status, answer) = ask(path, body.clone()).await;
        assert_eq!(status, 400, "{} {answer}", &body[..40]);
        assert!(answer.len() < 700, "{} {answer}", &body[..40]);
    }
    let (status, answer) = ask(v2, with(&format!("\"id\":\"{}\"", "i".repeat(1024)))).await;
    assert!(status == 200 && answer.contains(&"i".repeat(1024)), "{answer}");
}

#[tokio::test]
async fn a_connection_has_one_request_answered_a_turn_however_many_it_sends_at_once() {
    use std::io::{Read, Write};
    let running = start(Options::default()).await;
    let wrong = "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";
    for asked in ["GET /v2/models HTTP/1.1\r\nHost: localhost\r\n\r\n", wrong] {
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            stream.write_all(asked.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"}") {
                assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
            }
            streams.push(stream.into_std().unwrap());
        }
        let [many, one] = &mut streams[..] else { panic!("there are two") };
        many.write_all(asked.repeat(64).as_bytes()).unwrap();
        one.write_all(asked.as_bytes()).unwrap();
        let (mut told, mut bytes) = (Vec::new(), [0; 64 * 1024]);
        while one.read(&mut bytes).is_err() {
            tokio::task::yield_now().await;
        }
        while let Ok(length) = many.read(&mut bytes) {
            told.extend_from_slice(&bytes[..length]);
        }
        let answers = String::from_utf8_lossy(&told).matches("HTTP/1.1 ").count();
        assert!(answers < 8, "{answers} of those who came with one: {asked}");
    }
}

/// The only thread for blocking work stands, and what takes long is not done elsewhere.
#[test]
fn long_tensors_are_read_apart_from_what_answers_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let running = start(Options::default()).await;
        let (release, until) = std::sync::mpsc::channel::<()>();
        let stands = tokio::task::spawn_blocking(move || until.recv());
        let rows = 2 * 1024 * 1024;
        let json = format!(
            r#"{{"inputs":[{{"name":"x","shape":[{rows},1],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}]}}"#,
            4 * rows
        );
        let head = format!(
            "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n",
            json.len(),
            json.len() + 4 * rows
        );
        let mut long = TcpStream::connect(running.address).await.unwrap();
        long.write_all(&[head.as_bytes(), json.as_bytes(), &vec![0; 4 * rows]].concat()).await.unwrap();
        let short = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;
        for _ in 0..50 {
            let (status, answer) = running.ask("POST /v2/models/m/infer", "Host: localhost\r\n", short).await;
            assert_eq!(status, 200, "{answer}");
        }
        let mut byte = [0; 12];
        assert_eq!(long.try_read(&mut byte).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{byte:?}");
        drop(release);
        tokio::time::timeout(HANGS, long.read_exact(&mut byte)).await.expect("an answer in time").unwrap();
        assert_eq!(&byte, b"HTTP/1.1 413", "no queue takes so many rows");
        let _ = stands.await;
    });
}

/// A client that sends its body behind the head, as Python's does, and reads the answer to one request after the other.
#[tokio::test]
async fn a_refusal_ends_no_connection_without_a_word_though_the_body_comes_behind_it() {
    let running = start(Options::default()).await;
    let exchange = async {
        for (length, chunked, behind) in
            [(20usize, false, true), (60_000, false, true), (20, true, true), (1_000_000, false, false)]
        {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            for i in 0..50 {
                let framing =
                    if chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {length}") };
                let head = format!("POST /v2/models/nope/infer HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                for _ in 0..i {
                    tokio::task::yield_now().await;
                }
                let body = if chunked { "5\r\nabcde\r\n5\r\nabcde\r\n0\r\n\r\n".into() } else { " ".repeat(length) };
                // Of a long body the server takes as much as it likes.
                let _ = stream.write_all(body.as_bytes()).await;
                let mut answer = Vec::new();
                while !String::from_utf8_lossy(&answer).contains("served here: 'm'\"}") {
                    let read = stream.read_buf(&mut answer).await.expect("an answer");
                    assert!(read > 0, "request {i} of {length} bytes: {}", String::from_utf8_lossy(&answer));
                }
                let goes_on = !String::from_utf8_lossy(&answer).contains("connection: close");
                assert_eq!(goes_on, behind, "request {i} of {length} bytes: {}", String::from_utf8_lossy(&answer));
                if !goes_on {
                    break;
                }
            }
        }
        // Who waits to be told to send a body is not told to.
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let head = "POST /nope HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("connection: close"), "{answer}");
    };
    tokio::time::timeout(HANGS, exchange).await.expect("answers in time");
}
