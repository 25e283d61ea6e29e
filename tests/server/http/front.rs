//! When a request's time begins, which of them are refused unread, and what is no request at all.

use super::*;

fn model(name: &str, base_ms: u64, cap_ms: u64) -> ModelSpec {
    let cap = Duration::from_millis(cap_ms);
    ModelSpec { max_latency: cap, ..stand_in(name, "1", Duration::from_millis(base_ms)) }
}

/// What a slow model took at best was held against the cap of another: all requests to that one were refused, on an idle machine.
#[tokio::test]
async fn how_long_a_slow_model_takes_says_nothing_of_a_quick_one() {
    let server = start(Options::default(), vec![model("slow", 200, 1000), model("quick", 0, 150)]).await;
    let mut connection = server.connect().await;
    let body = request(json!([1])).to_string();
    for name in ["slow", "slow", "slow", "slow", "slow", "quick"] {
        let head =
            format!("POST /v2/models/{name}/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        connection.send(head + &body).await;
        let (head, body) = connection.answer().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{name}: {head} {}", String::from_utf8_lossy(&body));
    }
}

/// One byte of a head, or the empty line that some clients send behind a body, began the next request's time.
#[tokio::test]
async fn the_time_that_a_head_takes_to_come_is_its_sender_s_and_an_empty_line_is_nothing() {
    let options = Options { head_timeout: Duration::from_millis(500), ..Options::default() };
    let server = start(options, vec![model("slow", 300, 10_000), model("m", 0, 200)]).await;
    let body = request(json!([1])).to_string();
    let asking = post_sized("", &body);
    let (begin, rest) = asking.split_at(20);
    let mut connection = server.connect().await;
    for (early, late) in
        [("", &*asking), (begin, rest), ("\r\n", &*asking), ("\r\n\r\n\n", &*asking), ("\r\n", &*asking)]
    {
        connection.send(early).await;
        // One takes longer than the cap, and two longer than a head may.
        let times = if early.is_empty() { 0 } else { 2 - usize::from(early == begin) };
        for _ in 0..times {
            assert_eq!(server.ask(Method::POST, "/v2/models/slow/infer", Some(body.clone())).await.status, 200);
        }
        connection.send(late).await;
        let (head, body) = connection.answer().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{early:?}: {head} {}", String::from_utf8_lossy(&body));
    }
    // In one piece with the body.
    connection.send(format!("{asking}\r\n")).await;
    assert!(connection.answer().await.0.starts_with("HTTP/1.1 200"));
    connection.send(&asking).await;
    assert!(connection.answer().await.0.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn what_comes_behind_the_last_request_of_a_connection_is_no_request() {
    let server = simple().await;
    let body = request(json!([1])).to_string();
    let asks = [
        "GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
        "GET /v2/health/live HTTP/1.0\r\n\r\n".to_owned(),
        post_sized("Connection: te, close\r\n", &body),
    ];
    for ask in asks {
        let all = server.raw(format!("{ask}GARBAGE\r\n\r\n")).await;
        assert_eq!(all.matches("HTTP/1.1 ").count() + all.matches("HTTP/1.0 ").count(), 1, "{all}");
        assert!(all.contains(" 200 OK\r\n"), "{all}");
    }
}

/// What waits behind its own connection's answers tells nothing of the server: it was taken for a queue in the sockets, and that for an overload. Each
/// request had the arrival of the first that was under way, too, and was refused as too late long before it was.
#[tokio::test]
async fn who_sends_the_next_requests_before_an_answer_has_them_all_answered() {
    let server = start(Options::default(), vec![model("m", 30, 600)]).await;
    let asking = post_sized("", &request(json!([1])).to_string());
    let mut connection = server.connect().await;
    for _ in 0..6 {
        connection.send(&asking).await;
    }
    for i in 0..60 {
        let (head, body) = connection.answer().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{i}: {head} {}", String::from_utf8_lossy(&body));
        connection.send(&asking).await;
    }
}
