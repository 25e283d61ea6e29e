//! Connections on which nothing is asked make room for newcomers, and no others do.

use super::*;

const LIVE: &str = "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n";

/// How long a connection is idle before it may have to go.
const RESTED: Duration = Duration::from_secs(1);

async fn of_two() -> Running {
    with(Options { max_connections: NonZeroUsize::new(2).unwrap(), ..Options::default() }).await
}

impl Running {
    /// A connection on which `request` was answered.
    async fn idle(&self, request: &str) -> Raw {
        let mut connection = self.connect().await;
        connection.send(request).await;
        assert!(connection.answer().await.0.starts_with("HTTP/1.1 200 "));
        connection
    }
}

/// Two connections on which `request` was answered fill the house, and the first goes.
async fn the_first_goes(request: String) {
    let server = of_two().await;
    let begun = Instant::now();
    let (first, mut second) = (server.idle(&request).await, server.idle(&request).await);
    server.until_room().await;
    assert!(begun.elapsed() >= RESTED, "{:?}", begun.elapsed());
    assert_eq!(first.rest().await, "");
    second.send(&request).await;
    assert!(second.answer().await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn where_all_connections_are_taken_the_longest_idle_makes_room_for_a_newcomer() {
    let infer = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;
    // hyper answers the one, and not the other.
    tokio::join!(the_first_goes(LIVE.to_owned()), the_first_goes(post_sized("", infer)));
}

#[tokio::test]
async fn connections_on_which_nothing_ever_came_make_room() {
    let most = NonZeroUsize::new(2).unwrap();
    let server = with(Options { max_connections: most, head_timeout: 2 * HANGS, ..Options::default() }).await;
    let begun = Instant::now();
    let (first, mut second) = (server.connect().await, server.connect().await);
    server.until_room().await;
    assert!(begun.elapsed() >= RESTED, "{:?}", begun.elapsed());
    assert_eq!(first.rest().await, "");
    second.send(LIVE).await;
    assert!(second.answer().await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn connections_with_something_under_way_make_no_room() {
    let server = of_two().await;
    let mut half = server.idle(LIVE).await;
    half.send(&LIVE[..20]).await;
    let mut awaited = server.idle(LIVE).await;
    awaited.send(post("Expect: 100-continue\r\nContent-Length: 2\r\n", "")).await;
    awaited.until("100 Continue\r\n\r\n").await;
    let begun = Instant::now();
    while begun.elapsed() < RESTED + RESTED / 2 {
        let refused = server.raw(LIVE).await;
        assert_eq!(parse(&refused).0, 503, "{refused}");
        tokio::time::sleep(SHORT).await;
    }
    half.send(&LIVE[20..]).await;
    assert!(half.answer().await.0.starts_with("HTTP/1.1 200 "));
    awaited.send("{}").await;
    assert!(awaited.answer().await.0.starts_with("HTTP/1.1 400 "));
}
