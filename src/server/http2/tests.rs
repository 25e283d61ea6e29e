//! How long connections of HTTP/2 last, and what of theirs is begun when.

use http_body_util::Empty;
use hyper::client;
use hyper_util::rt::TokioExecutor;
use tokio::net::UnixStream;

use super::super::idle::Idle;
use super::super::socket::{Stream, Wire};
use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// How long a connection lasts on which an answer is waited for that does not come; `None` where an hour is not its end.
async fn lasts(end: UnixStream) -> Option<Duration> {
    let (begun, (_open, closing)) = (Instant::now(), watch::channel(false));
    let socket = Socket::Plain(Wire::new(Stream::Unix(end)));
    let options = Options::default();
    let untaken = Untaken::default();
    let served =
        serve(socket, Vec::new(), &options, (&untaken, Idle::default().rest()), |_, _| std::future::pending(), closing);
    timeout(HOUR, served).await.ok().map(|()| begun.elapsed())
}

/// Requests for `/` of the host 'a', each with a field of 500 bytes.
fn requests(count: u32) -> Vec<u8> {
    let one = |i: u32| {
        let head = [&[0, 2, 0, 1, 5][..], &(2 * i + 1).to_be_bytes()].concat();
        let fields = [0x82, 0x86, 0x84, 0x41, 1, b'a', 0, 1, b'x', 0x7f, 0xf5, 2];
        [&head[..], &fields, &[b'v'; 500]].concat()
    };
    (0..count).flat_map(one).collect()
}

/// The most requests of a burst of 250 that begin in a turn, beside so many other connections.
async fn most_in_turn(others: usize) -> usize {
    let (own, mut other) = UnixStream::pair().unwrap();
    let bytes = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &requests(250)].concat();
    let writing = tokio::spawn(async move { other.write_all(&bytes).await.map(|()| other) });
    yield_now().await;
    let (begun, (_open, closing)) = (AtomicUsize::new(0), watch::channel(false));
    let (options, untaken) = (Options::default(), Untaken::default());
    let _others: Vec<_> = (0..others).map(|_| untaken.wide().unwrap()).collect();
    let answer = |_, _| {
        begun.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    };
    let socket = Socket::Plain(Wire::new(Stream::Unix(own)));
    let mut served = pin!(serve(socket, Vec::new(), &options, (&untaken, Idle::default().rest()), answer, closing));
    let mut most = 0;
    while begun.load(Ordering::Relaxed) < 250 {
        let before = begun.load(Ordering::Relaxed);
        poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx).is_ready())).await;
        most = most.max(begun.load(Ordering::Relaxed) - before);
        yield_now().await;
    }
    writing.await.unwrap().unwrap();
    most
}

#[tokio::test]
async fn a_burst_of_heads_is_read_in_turns() {
    // A part of another may have come in the last one.
    assert!(most_in_turn(255).await <= TURN_HEADS + 1);
    let alone = most_in_turn(0).await;
    assert!((2 * TURN_HEADS..=2 * TURN / 521).contains(&alone), "{alone}, of 521 bytes each");
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_of_an_answer_is_not_waited_for_long_once_the_server_goes() {
    let (own, mut other) = UnixStream::pair().unwrap();
    // No window for any answer.
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    other.write_all(&[PREFACE, &settings, &requests(8)].concat()).await.unwrap();
    let (begun, (open, closing)) = (Instant::now(), watch::channel(false));
    let (options, untaken) = (Options::default(), Untaken::default());
    let answer = |_, _| async { Response::new(Body::from("taken by nobody")) };
    let socket = Socket::Plain(Wire::new(Stream::Unix(own)));
    let goes = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        open.send_replace(true);
    };
    tokio::join!(serve(socket, Vec::new(), &options, (&untaken, Idle::default().rest()), answer, closing), goes);
    assert!(begun.elapsed() < LAST_PATIENCE * 2, "{:?}", begun.elapsed());
}

/// How long a server lasts that goes, on whose connection these bytes came, and behind them more every half second.
async fn goes(bytes: Vec<u8>, more: impl Fn(u32) -> Vec<u8>) -> Duration {
    let (own, other) = UnixStream::pair().unwrap();
    let (mut reading, mut writing) = other.into_split();
    writing.write_all(&[PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &bytes].concat()).await.unwrap();
    let (open, closing) = watch::channel(false);
    let (options, untaken) = (Options::default(), Untaken::default());
    let answer = |request: Request<Incoming>, line: Line| async move {
        let body = http_body_util::BodyExt::collect(line.awaited(request.into_body())).await;
        Response::new(Body::from(if body.is_ok() { "all of it" } else { "a part" }))
    };
    let socket = Socket::Plain(Wire::new(Stream::Unix(own)));
    let mut served = pin!(serve(socket, Vec::new(), &options, (&untaken, Idle::default().rest()), answer, closing));
    assert!(timeout(Duration::from_secs(2), served.as_mut()).await.is_err());
    open.send_replace(true);
    let begun = Instant::now();
    let asks_on = async {
        for i in 0..1000 {
            let _ = writing.write_all(&more(i)).await;
            let _ = timeout(Duration::from_millis(500), reading.read_buf(&mut Vec::with_capacity(4096))).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = served => begun.elapsed(),
        () = asks_on => panic!("it is waited for without end"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_sends_no_body_or_asks_on_is_not_waited_for_long_once_the_server_goes() {
    let heads = |from: u32, to: u32| -> Vec<u8> {
        let head =
            |i: u32| [&[0, 0, 6, 1, 4][..], &(2 * i + 1).to_be_bytes(), &[0x83, 0x86, 0x84, 0x41, 1, b'a']].concat();
        (from..to).flat_map(head).collect()
    };
    let took = goes(heads(0, 8), |_| Vec::new()).await;
    assert!((LAST_PATIENCE..LAST_PATIENCE * 2).contains(&took), "{took:?}");
    // None of its pings is answered.
    let took = goes(heads(0, 1), |i| heads(i + 1, i + 2)).await;
    assert!(took < LAST_PATIENCE * 2, "{took:?}");
    // Nor is a byte of it now and then.
    let took = goes(heads(0, 1), |_| [0, 0, 1, 0, 0, 0, 0, 0, 1, b' '].to_vec()).await;
    assert!((LAST_PATIENCE..LAST_PATIENCE * 2).contains(&took), "{took:?}");
}

#[tokio::test]
async fn beside_many_connections_another_has_few_requests_open_and_a_small_window() {
    let untaken = Untaken::default();
    let told = async |untaken: &Untaken| {
        let (own, mut other) = UnixStream::pair().unwrap();
        let (_open, closing) = watch::channel(false);
        let (socket, options) = (Socket::Plain(Wire::new(Stream::Unix(own))), Options::default());
        other.write_all(&[PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()).await.unwrap();
        let mut settings = [0; 128];
        let read = async { other.read(&mut settings).await.unwrap() };
        let length = tokio::select! {
            length = read => length,
            () = serve(socket, Vec::new(), &options, (untaken, Idle::default().rest()), |_, _| std::future::pending(), closing) => 0,
        };
        // Requests that may be open, and the window of each (RFC 9113, section 6.5.2).
        [3, 4].map(|kind| {
            let setting = settings[9..length].chunks(6).find(|setting| setting[..2] == [0, kind]).expect("it is said");
            u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]])
        })
    };
    let others: Vec<_> = std::iter::from_fn(|| untaken.wide()).collect();
    assert_eq!((others.len(), told(&untaken).await), (256, [FEW_STREAMS, SMALL_WINDOW]));
    drop(others);
    assert_eq!(told(&untaken).await, [MOST_STREAMS, WINDOW]);
    assert!(untaken.wide().is_some(), "it is given back");
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_other_end_is_gone_without_a_word_ends_and_one_that_only_waits_stays() {
    let (own, mut other) = UnixStream::pair().unwrap();
    // Settings without any, and GET / of the host 'a': stream 1, whole.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let request = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'a'];
    other.write_all(&[PREFACE, &settings, &request].concat()).await.unwrap();
    let asked = KEEP_ALIVE * 2 + Options::default().write_timeout;
    let lasted = lasts(own).await.expect("it ends");
    assert!((asked..asked + KEEP_ALIVE).contains(&lasted), "{lasted:?}");

    let (own, other) = UnixStream::pair().unwrap();
    tokio::spawn(async move {
        let (mut sender, connection) =
            client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(other)).await.unwrap();
        let request = Request::get("http://a/").body(Empty::<Bytes>::new()).unwrap();
        tokio::join!(sender.send_request(request), connection)
    });
    assert_eq!(lasts(own).await, None);
}

/// A client opens a stream before it hears that the connection ends, and makes room for its answer. h2 took that for a mistake: `PROTOCOL_ERROR`, and
/// all that was under way was lost. grpcio does this at each restart.
#[tokio::test(start_paused = true)]
async fn what_comes_behind_the_end_of_a_connection_is_no_mistake() {
    let (own, mut other) = UnixStream::pair().unwrap();
    let (open, closing) = watch::channel(false);
    let (options, untaken) = (Options::default(), Untaken::default());
    let socket = Socket::Plain(Wire::new(Stream::Unix(own)));
    let answer = |_, _| std::future::ready(Response::default());
    let served = serve(socket, Vec::new(), &options, (&untaken, Idle::default().rest()), answer, closing);
    let client = async move {
        let begin = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &requests(1)].concat();
        other.write_all(&begin).await.unwrap();
        let (mut ends, mut begun) = (Vec::new(), false);
        let mut head = [0; 9];
        while other.read_exact(&mut head).await.is_ok() {
            let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
            other.read_exact(&mut payload).await.unwrap();
            match head[3] {
                // Settings: whoever has them has begun.
                4 if !std::mem::replace(&mut begun, true) => open.send(true).unwrap(),
                6 if head[4] == 0 => {
                    let heard = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &payload].concat();
                    let window = [0, 0, 4, 8, 0, 0, 0, 0, 3, 0, 0, 3, 232];
                    let next = &requests(2)[requests(1).len()..];
                    other.write_all(&[&heard[..], next, &window].concat()).await.unwrap();
                }
                7 => ends.push(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
                _ => {}
            }
        }
        ends
    };
    let (ends, ()) = timeout(HOUR, async { tokio::join!(client, served) }).await.unwrap();
    assert!(ends.len() >= 2 && ends.iter().all(|code| *code == 0), "{ends:?}");
}
