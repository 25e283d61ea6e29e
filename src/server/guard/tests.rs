//! Which requests need hyper, and when that is known.

use std::future::poll_fn;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::super::access::{Access, Door};
use super::super::app::App;
use super::super::idle::Idle;
use super::super::refusals::Refusals;
use super::super::routes::For;
use super::super::socket::{Stream, Wire};
use super::*;
use crate::registry::{Caps, ModelSpec, Registry, Source};

/// Far longer than anything here takes.
const HANGS: Duration = Duration::from_secs(20);

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[3]}]}"#;

/// A connection to a stand-in `m`: the client's end and the guard of the other.
async fn guarded() -> (UnixStream, Guard) {
    let source = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
    let model = ModelSpec::new("m", source, Caps::new(HANGS, 8));
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
    let options = Arc::new(Options::default());
    let quick = Quick {
        app: App::new(registry.clone(), None, Arc::clone(&options)),
        door: Door::of(&Access::default()).unwrap(),
        fronts: Arc::default(),
        epoch: Instant::now(),
        refusals: Arc::default(),
        http: registry.metrics().http(),
        is_traced: false,
        serves: For::Everybody,
    };
    let (client, server) = UnixStream::pair().unwrap();
    let socket = Socket::Plain(Wire::new(Stream::Unix(server)));
    (client, Guard::new(socket, Vec::new(), Instant::now(), &options, Arc::new(quick), Idle::default().rest()))
}

fn head(length: usize) -> String {
    format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
}

/// Has the guard read until it waits for the rest of a request.
async fn waits(guard: &mut Guard) {
    let waiting = async {
        while guard.rest_since.is_none() {
            let is_pending = poll_fn(|cx| Poll::Ready(guard.poll_plain(cx).is_pending())).await;
            assert!(is_pending, "hyper is asked for too early");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANGS, waiting).await.expect("what was sent is read");
}

/// Whether the guard asks for hyper before the client has heard an answer to its end.
async fn needs_hyper(guard: &mut Guard, client: &mut UnixStream) -> bool {
    let mut heard = Vec::new();
    let answered = async {
        while !heard.ends_with(b"]}]}") {
            assert!(client.read_buf(&mut heard).await.unwrap() > 0, "{}", String::from_utf8_lossy(&heard));
        }
    };
    let first = async {
        tokio::select! {
            needs = poll_fn(|cx| guard.poll_plain(cx)) => needs.unwrap(),
            () = answered => false,
        }
    };
    tokio::time::timeout(HANGS, first).await.expect("one of both comes")
}

#[tokio::test]
async fn a_body_that_follows_its_head_needs_no_hyper_wherever_the_request_is_cut() {
    let (mut client, mut guard) = guarded().await;
    let text = head(BODY.len()) + BODY;
    let behind_head = text.len() - BODY.len();
    for cuts in [vec![], vec![behind_head], vec![behind_head + 9], vec![behind_head, behind_head + 1, text.len() - 1]] {
        let mut from = 0;
        for &cut in &cuts {
            client.write_all(&text.as_bytes()[from..cut]).await.unwrap();
            from = cut;
            waits(&mut guard).await;
        }
        client.write_all(&text.as_bytes()[from..]).await.unwrap();
        assert!(!needs_hyper(&mut guard, &mut client).await, "cut at {cuts:?}");
    }
}

#[tokio::test]
async fn what_is_not_followed_by_its_rest_or_is_long_is_for_hyper() {
    for (length, waits_first) in [(BODY.len(), true), (AT_ONCE, false)] {
        let (mut client, mut guard) = guarded().await;
        client.write_all(head(length).as_bytes()).await.unwrap();
        if waits_first {
            waits(&mut guard).await;
        }
        assert!(needs_hyper(&mut guard, &mut client).await, "{length} bytes");
        assert_eq!(guard.handed, head(length).as_bytes(), "hyper sees all of it");
    }
}

#[tokio::test]
async fn a_server_that_goes_hands_over_what_has_begun_and_nothing_else() {
    let (mut client, mut guard) = guarded().await;
    assert!(!guard.hand_over().unwrap(), "nothing has come");
    client.write_all(head(BODY.len()).as_bytes()).await.unwrap();
    waits(&mut guard).await;
    assert!(guard.hand_over().unwrap());
    assert_eq!(guard.handed, head(BODY.len()).as_bytes());
}

#[tokio::test]
async fn a_connection_that_ends_while_more_comes_is_closed_and_not_reset() {
    let (mut client, guard) = guarded().await;
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let ending = tokio::spawn(async move { guard.finish(&Refusals::default()).await });
    let mut rest = Vec::new();
    let read = tokio::time::timeout(HANGS, client.read_to_end(&mut rest)).await.unwrap();
    assert_eq!((read.map_err(|error| error.kind()), rest.len()), (Ok(0), 0));
    drop(client);
    ending.await.unwrap();
}
