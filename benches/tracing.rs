//! What naming and tracing cost a request: without traces, with a request that is not sampled, with one that is.
//!
//! ```sh
//! cargo bench --bench tracing
//! ```
//!
//! Nanoseconds of the thread that answers, the median of rounds. A sampled request has seven spans: its own, five stages and
//! its share of a batch, here the whole of it. They are taken by a collector in the same process, which is waited for
//! between the rounds, and, in the last row, by nobody: the queue is full and they are dropped.

use std::hint::black_box;
use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderValue};
use http::{Method, Uri, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use uncork::batcher::estimator;
use uncork::batcher::policy::ReleaseReason;
use uncork::batcher::{Landed, Observer, Released, Rider};
use uncork::telemetry::{BatchTracer, Head, RequestId, Ride, Settings, Tracer, Traces};

const ROUNDS: usize = 501;
/// Requests of a round: so few that most rounds pass without the system giving the processor to somebody else.
const REQUESTS: usize = 20;
/// Rounds whose spans fit into the queue together.
const ROUNDS_QUEUED: usize = 50;

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (taking, hung) = runtime.block_on(async {
        let taking = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let hung = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let to = |listener: &TcpListener| {
            let address = listener.local_addr().expect("it is bound");
            Traces::start(Settings::to(format!("http://{address}{}", Settings::PATH).parse().expect("an address")))
        };
        let traces = (to(&taking), (to(&hung), hung));
        tokio::spawn(take_all(taking));
        traces
    });
    let (hung, _listener) = hung;

    println!("{:>34}{:>12}", "", "ns/request");
    row("a name is made", |_| drop(black_box(RequestId::made())), || {});
    let named = headers(&[("x-request-id", "0af76519-16cd-43dd-8448-eb211c80319c")]);
    row("a name is taken", |_| drop(black_box(RequestId::of(&named))), || {});
    let plain = headers(&[]);
    let off = Way::of(&Tracer::off());
    row("traces off", |id| off.go(&plain, id), || {});
    let on = Way::of(&taking.tracer());
    let unsampled = headers(&[("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")]);
    row("traces on, not sampled", |id| on.go(&unsampled, id), || {});
    row("sampled and sent", |id| on.go(&plain, id), || until_sent(&taking));
    let full = Way::of(&hung.tracer());
    let id = RequestId::made();
    while hung.counts().dropped == 0 {
        full.go(&plain, &id);
    }
    row("sampled and dropped", |id| full.go(&plain, id), || {});
}

/// The median of rounds of `each`, with `between` them.
fn row(name: &str, each: impl Fn(&RequestId), between: impl Fn()) {
    let id = RequestId::made();
    let mut times: Vec<u128> = (0..ROUNDS)
        .map(|round| {
            let begin = Instant::now();
            (0..REQUESTS).for_each(|_| each(&id));
            let time = begin.elapsed();
            if round % ROUNDS_QUEUED == 0 {
                between();
            }
            time.as_nanos() / REQUESTS as u128
        })
        .collect();
    times.sort_unstable();
    println!("{name:>34}{:>12}", times[ROUNDS / 2]);
}

/// All that a request tells on its way.
struct Way {
    tracer: Tracer,
    batches: BatchTracer,
    uri: Uri,
}

impl Way {
    fn of(tracer: &Tracer) -> Way {
        let uri = Uri::from_static("/v2/models/digits/infer");
        Way { tracer: tracer.clone(), batches: tracer.of_model("digits", "1"), uri }
    }

    fn go(&self, headers: &HeaderMap, id: &RequestId) {
        let (method, uri) = (&Method::POST, &self.uri);
        let head = Head { method, uri, version: Version::HTTP_11, headers, peer: None, is_secured: false, id };
        let arrival = tokio::time::Instant::now();
        let span = self.tracer.request(&head, arrival);
        span.route(method, "/v2/models/{model}/infer");
        span.model("digits", "1");
        span.received(arrival);
        span.decoded(1);
        let (at, predicted) = (estimator::Instant::EPOCH, Some(Duration::from_millis(1)));
        let riders = &[Rider { arrival: at, span: span.span_ref() }][..];
        let (reason, held) = (ReleaseReason::Ripe, Duration::ZERO);
        let batch_span = self.batches.released(at, &Released { ticket: 0, riders, rows: 1, reason, held, predicted });
        let (took, span_of_batch) = (Duration::from_millis(1), batch_span);
        self.batches
            .landed(at, &Landed { ticket: 0, riders, rows: 1, predicted, took, span: span_of_batch, failed: None });
        span.executed(Ride { queue: Duration::ZERO, batch: Duration::ZERO, batch_rows: 1, batch_span });
        span.encoded("on_time");
        span.finish(200, None);
        black_box(&span);
    }
}

fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
    // As many as a client sends.
    let usual = [("host", "127.0.0.1:8080"), ("user-agent", "bench"), ("accept", "*/*"), ("content-length", "120")];
    let all = usual.iter().chain(given);
    all.map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

fn until_sent(traces: &Traces) {
    let mut before = None;
    loop {
        // A post goes out when it is full, or after a second.
        std::thread::sleep(Duration::from_millis(1100));
        let now = traces.counts();
        if before.replace(now) == Some(now) {
            return;
        }
    }
}

/// Answers every post with success, once it is in.
async fn take_all(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut heard = Vec::new();
            while !is_whole(&heard) && stream.read_buf(&mut heard).await.is_ok_and(|n| n > 0) {}
            // Whoever hangs up before that has not lost anything.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        });
    }
}

/// Whether a message's head is there and as much behind it as it says.
fn is_whole(heard: &[u8]) -> bool {
    let Some(head) = heard.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&heard[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    heard.len() >= head + 4 + length.unwrap_or(0)
}
