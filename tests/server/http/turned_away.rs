//! Whoever is turned away before a model counts him is counted all the same, and probes are not.

use uncork::metrics::TurnedAway;

use super::*;

/// What has been counted, by reason.
fn counted(metrics: &str) -> Vec<(&'static str, u64)> {
    let of = |reason: TurnedAway| {
        let series = format!("uncork_turned_away_total{{reason=\"{}\"}} ", reason.label());
        let count = metrics.lines().find_map(|line| line.strip_prefix(&*series));
        (reason.label(), count.expect(&series).parse().unwrap())
    };
    TurnedAway::ALL.into_iter().map(of).filter(|(_, count)| *count > 0).collect()
}

impl Running {
    async fn turned_away(&self) -> Vec<(&'static str, u64)> {
        counted(&self.get("/metrics").await.text)
    }
}

#[tokio::test]
async fn before_any_model_is_there_each_reason_stands_at_nothing_and_whoever_asks_one_is_counted_and_no_probe() {
    let (registry, _opening) = Registry::open(vec![stand_in("m", "1", Duration::ZERO)], Tracer::off());
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    let server = Running { address, stop: Some(stop), serving };
    assert_eq!(server.turned_away().await, []);
    for probe in ["/v2/health/ready", "/v2/models/m/ready", "/v2/models/m", "/v1/models/m"] {
        assert_eq!(server.get(probe).await.status, 503, "{probe}");
    }
    assert_eq!(server.turned_away().await, []);
    for path in ["/v2/models/m/infer", "/v1/models/m:predict", "/models/m"] {
        assert_eq!(server.ask(Method::POST, path, Some("{}".into())).await.status, 503, "{path}");
    }
    assert_eq!(server.ask(Method::POST, "/v2/models/unknown/infer", Some("{}".into())).await.status, 404);
    assert_eq!(server.turned_away().await, [("loading", 3)]);
}

#[tokio::test]
async fn a_connection_for_which_there_is_no_place_is_counted() {
    let server = with(Options { max_connections: NonZeroUsize::MIN, ..Options::default() }).await;
    let mut held = server.connect().await;
    held.send("GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\nGET /").await;
    held.until("{\"live\":true}").await;
    for _ in 0..2 {
        assert_eq!(parse(&server.raw(post_sized("", "{}")).await).0, 503);
    }
    held.send("metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let metrics = String::from_utf8(held.answer().await.1).unwrap();
    assert_eq!(counted(&metrics), [("connections", 2)]);
}

#[tokio::test]
async fn a_body_for_which_there_is_no_room_is_nobody_s_fault_and_an_answer_for_which_there_is_none_is_the_model_s() {
    let options = Options { max_body_bytes: 64 * 1024, max_bodies_bytes: 64 * 1024, ..Options::default() };
    let server = with_room_for_rows(options).await;
    let outcome = async |outcome: &str| {
        let metrics = server.get("/metrics").await.text;
        let series = format!("uncork_requests_total{{model=\"m\",version=\"1\",outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&*series)).expect(&series).to_owned()
    };
    assert_eq!(server.infer(&request(json!(vec![1; 5000]))).await.status, 503);
    assert_eq!((&*outcome("failed").await, server.turned_away().await), ("1", Vec::new()));
    let mut other = server.connect().await;
    other.send(post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "")).await;
    other.until("100 Continue\r\n\r\n").await;
    other.send(format!("b000\r\n{}\r\n", " ".repeat(0xb000))).await;
    // In pieces, between which it is waited for: a body that comes at once takes none of the room.
    let piece = format!("6000\r\n{}\r\n", " ".repeat(0x6000));
    let both = async {
        for read in 0.. {
            let mut one = server.connect().await;
            one.send(post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "")).await;
            one.until("100 Continue\r\n\r\n").await;
            one.send(piece.repeat(2) + "0\r\n\r\n").await;
            if one.answer().await.0.starts_with("HTTP/1.1 503 ") {
                return read;
            }
        }
        unreachable!("it goes on")
    };
    let read = tokio::time::timeout(HANGS, both).await.expect("there is no room for both");
    assert_eq!(server.turned_away().await, [("bodies", 1)]);
    assert_eq!(outcome("invalid").await, read.to_string(), "those that were read are no requests");
}
