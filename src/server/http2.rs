//! HTTP/2, over TLS or by prior knowledge: a connection whose streams are all served in its own task.
//!
//! hyper and h2 speak it. What is added is the first look, since HTTP/1.1 is spoken at the same port; the stamp of what is read;
//! and the times that a client may take. Bounds that HTTP/1.1 does not need are here, each with its reason.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::{AUTHORIZATION, HOST};
use http::{Request, StatusCode};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, timeout, timeout_at};

use super::Options;
use super::closing::{LAST_PATIENCE, LastWait};
use super::frames::Frames;
use super::head;
use super::socket::Socket;
use super::status::Refusal;
use super::timer::poll_deadline;
use super::untaken::{Awaited, OfConnection, Place, Untaken};

/// What a client of HTTP/2 sends first (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Requests of one connection that may be open at once: each takes memory that nothing else counts, for its head and what is known of it.
/// Clients wait with further ones. Of those that wait for their clients there are fewer, where [many](Untaken) do.
const MOST_STREAMS: u32 = 256;
/// The same of a connection beside which [so many](Untaken::wide) are open that may have more.
const FEW_STREAMS: u32 = 32;

/// Streams that a client has reset before they were looked at, and streams that were reset for its mistakes: beyond these it
/// is sent away (CVE-2023-44487 and its likes). The first is fewer than begin in a turn, behind which they are looked at.
const MOST_RESET: usize = 10;
const MOST_MISTAKEN: usize = 1024;

/// Bytes that may be on their way to the server before they are read: of one stream, and of all. A body of a tensor comes in
/// few steps, and a connection holds no more than this of bodies that nobody counts.
const WINDOW: u32 = 1024 * 1024;

/// Bytes of an answer that are handed to h2 at a time, a frame: what it holds is not waited for.
const PIECE: usize = 16 * 1024;

/// How long a connection that is to end waits for its client, once nothing is in flight.
const LINGER: Duration = Duration::from_secs(1);
/// How often a connection is asked whether its other end is there: one that watches the health says nothing for days, and would keep its
/// place after its end without a word. The question waits behind what is being written, for which a client has `write_timeout`.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Bytes of a connection that are read before others have their turn: each may be a field of a head.
const TURN: usize = 32 * 1024;
/// Requests of it that are begun before: each takes some ten microseconds, and a thousand connections may each begin as many.
const TURN_HEADS: usize = 16;

/// What a connection turns out to speak.
pub(super) enum Spoken {
    /// HTTP/1, with the bytes that were read.
    One(Vec<u8>),
    /// HTTP/2, with the bytes that were read, the preface among them.
    Two(Vec<u8>),
}

/// Reads the first bytes of a connection, for `patience` at most, as many as it takes to see what is spoken. `None` where none came.
pub(super) async fn listen(socket: &mut Socket, opened: Instant, patience: Duration) -> Option<Spoken> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        let read = timeout_at(opened + patience, socket.read_buf(&mut bytes)).await;
        let seen = bytes.len().min(PREFACE.len());
        if bytes[..seen] != PREFACE[..seen] {
            return Some(Spoken::One(bytes));
        }
        if seen == PREFACE.len() {
            return Some(Spoken::Two(bytes));
        }
        // What is begun and not gone on with is a slow head, which the guard knows what to say about.
        if !matches!(read, Ok(Ok(1..))) {
            return (seen > 0).then_some(Spoken::One(bytes));
        }
    }
}

/// Refuses a head that HTTP/1 would refuse before a request is made of it: one that is too long, or of which it is in doubt what host it names
/// or who asks (RFC 9113, section 8.3.1).
pub(super) fn check<B>(request: &Request<B>, options: &Options) -> Result<(), Refusal> {
    if request.headers().len() > head::MAX_HEADERS {
        return Err(head::too_many());
    }
    // As the protocol counts a field (RFC 9113, section 6.5.2).
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    if fields.sum::<usize>() > options.max_head_bytes {
        return Err(Refusal::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("a request's head may have {} bytes at most", options.max_head_bytes),
        ));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, other) = (hosts.next(), hosts.next());
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let differs = host
        .zip(authority)
        .is_some_and(|(host, own)| !without_its_port(host.as_bytes()).eq_ignore_ascii_case(without_its_port(own)));
    if differs || other.is_some() {
        return Err(Refusal::bad_request("the request names two hosts"));
    }
    if authority.is_some_and(|authority| authority.contains(&b'@')) {
        return Err(Refusal::bad_request("the request's authority names a user, which no host does"));
    }
    if request.uri().scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(Refusal::bad_request("the request's scheme is neither http nor https"));
    }
    if request.headers().get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(head::two_tokens());
    }
    Ok(())
}

/// A host without the port that its scheme has anyway.
fn without_its_port(host: &[u8]) -> &[u8] {
    host.strip_suffix(b":443").or(host.strip_suffix(b":80")).unwrap_or(host)
}

/// A connection as its requests see it.
#[derive(Debug, Clone)]
pub(super) struct Line(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// When the bytes came that were read last.
    heard: Mutex<Instant>,
    /// Bytes that were read in this turn, which is a poll of the connection: in one, hyper reads again for each request that it begins.
    read: AtomicUsize,
    /// Requests that may still begin in this turn.
    heads: AtomicUsize,
    /// Whether no further request is wanted on it.
    is_over: AtomicBool,
    /// Becomes true when the server is about to go.
    closing: Arc<watch::Receiver<bool>>,
    untaken: OfConnection,
}

impl Line {
    /// When a request came that is looked at now.
    pub(super) fn heard(&self) -> Instant {
        *locked(&self.0.heard)
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Returns when the server is about to go: what waits for its client then ends.
    pub(super) async fn closing(&self) {
        let mut closing = watch::Receiver::clone(&self.0.closing);
        let _ = closing.wait_for(|&closing| closing).await;
    }

    /// A body of it, for which its client is waited for.
    pub(super) fn awaited<B>(&self, body: B) -> Awaited<B> {
        self.0.untaken.awaited(body, LastWait::new(&self.0.closing))
    }

    /// A place for a stream of gRPC on it.
    pub(super) fn stream(&self) -> Result<Place, Refusal> {
        self.0.untaken.stream()
    }

    /// Sends the client elsewhere with what it asks next.
    pub(super) fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Serves a connection that began with `first` to its end: `answer` answers each request, and when `closing` becomes true, no
/// further one is taken.
pub(super) async fn serve<A, F>(
    socket: Socket,
    first: Vec<u8>,
    options: &Options,
    untaken: &Untaken,
    answer: A,
    closing: watch::Receiver<bool>,
) where
    A: Fn(Request<Incoming>, Line) -> F,
    F: Future<Output = Response> + Send + 'static,
{
    let (wide, untaken) = (untaken.wide(), untaken.of_connection());
    let line = Line(Arc::new(Shared {
        heard: Mutex::new(socket.heard()),
        read: AtomicUsize::new(0),
        heads: AtomicUsize::new(TURN_HEADS),
        is_over: AtomicBool::new(false),
        closing: Arc::new(closing),
        untaken: untaken.clone(),
    }));
    let streams = Streams {
        begun: Arc::default(),
        pace: Arc::default(),
        patience: options.write_timeout,
        untaken: untaken.clone(),
    };
    let (paces, asked) = (Arc::clone(&streams.pace), line.clone());
    let service = service_fn(move |request| {
        let pace = Pace::default();
        *locked(&paces) = Some(pace.clone());
        // Boxed, or an answer that waits for its client would keep the place of all that making it took: kilobytes.
        let answering = Box::pin(answer(request, asked.clone()));
        async move { Ok::<_, std::convert::Infallible>(answering.await.map(|body| Paced { body, rest: None, pace })) }
    });
    let begun = Arc::clone(&streams.begun);
    let mut wire = Stamped {
        frames: Frames::new(Instant::now(), PREFACE.len()),
        socket,
        ahead: first,
        line: line.clone(),
        patience: options.write_timeout,
        stuck_since: None,
        timer: None,
    };
    let mut connection = Box::pin(
        http2::Builder::new(streams)
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(options.write_timeout + KEEP_ALIVE)
            .max_concurrent_streams(if wide.is_some() { MOST_STREAMS } else { FEW_STREAMS })
            .max_pending_accept_reset_streams(MOST_RESET)
            .max_local_error_reset_streams(MOST_MISTAKEN)
            // What is somewhat longer is refused in words, and what is longer yet by a bare 431.
            .max_header_list_size(u32::try_from(options.max_head_bytes / 4 * 5).unwrap_or(u32::MAX))
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .serve_connection(TokioIo::new(&mut wire), service),
    );
    let mut closing = pin!(line.closing());
    let mut open: FuturesUnordered<Stream> = FuturesUnordered::new();
    let (mut is_ending, mut goes_since, mut idle_since, mut timer) = (false, None, None, None);
    let ended = poll_fn(|cx| {
        line.0.read.store(0, Ordering::Relaxed);
        line.0.heads.store(TURN_HEADS, Ordering::Relaxed);
        loop {
            let goes = goes_since.is_none() && closing.as_mut().poll(cx).is_ready();
            if goes {
                goes_since = Some(Instant::now());
            }
            if goes || (!is_ending && line.is_over()) {
                (is_ending, idle_since) = (true, None);
                connection.as_mut().graceful_shutdown();
                // Begun anew, each looks at its time again.
                locked(&begun).extend(std::mem::take(&mut open));
            }
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended.map_err(|error| error.to_string()));
            }
            // Who has been told to ask elsewhere, and has had the time to hear it, is not waited for.
            let is_late = goes_since.is_some_and(|since: Instant| since.elapsed() > LINGER);
            let streams = std::mem::take(&mut *locked(&begun)).into_iter().filter(|_| !is_late);
            open.extend(streams.map(|stream| if is_ending { stream.hurried() } else { stream }));
            while let Poll::Ready(Some(())) = open.poll_next_unpin(cx) {}
            if untaken.is_over() {
                return Poll::Ready(Err("too many of its answers are not taken".to_owned()));
            }
            if !open.is_empty() {
                idle_since = None;
            }
            if !is_ending && line.is_over() {
                continue;
            }
            if !open.is_empty() {
                return Poll::Pending;
            }
            let patience = if is_ending { LINGER } else { options.idle_timeout };
            let since = *idle_since.get_or_insert_with(Instant::now);
            ready!(poll_deadline(&mut timer, since + patience, cx));
            if is_ending {
                return Poll::Ready(Ok(()));
            }
            line.end();
        }
    })
    .await;
    if let Err(error) = &ended {
        tracing::debug!(%error, "connection ended");
    }
    drop((open, connection, wide));
    if ended.is_ok() {
        // Where hyper has not come to its end: over TLS the other end is to know that nothing was cut off.
        let _ = timeout(LINGER, wire.shutdown()).await;
    }
}

/// A lock that a panic poisoned is as good as before.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes what hyper would spawn, so that no request outlives its connection.
#[derive(Clone)]
struct Streams {
    begun: Arc<Mutex<Vec<Stream>>>,
    /// That of the request for which hyper is about to spawn something.
    pace: Arc<Mutex<Option<Pace>>>,
    patience: Duration,
    untaken: OfConnection,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, serving: F) {
        let pace = locked(&self.pace).take().unwrap_or_default();
        let (patience, untaken) = (self.patience, self.untaken.clone());
        let stream = Stream { serving: Box::pin(serving), pace, patience, untaken, place: None, timer: None };
        locked(&self.begun).push(stream);
    }
}

/// Since when a client takes nothing of an answer; `None` while there is nothing to take.
#[derive(Debug, Clone, Default)]
struct Pace(Arc<Mutex<Option<Instant>>>);

/// A request and its answer. It ends early where the client does not take the answer.
struct Stream {
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
    pace: Pace,
    patience: Duration,
    untaken: OfConnection,
    /// Of its answer, while that waits for the client.
    place: Option<Place>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    /// The same on a connection that is to end.
    fn hurried(self) -> Stream {
        Stream { patience: self.patience.min(LAST_PATIENCE), ..self }
    }
}

impl Future for Stream {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.serving.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = *locked(&this.pace.0) else {
            this.place = None;
            return Poll::Pending;
        };
        if this.place.is_none() {
            this.place = this.untaken.place_or_end();
            if this.place.is_none() {
                return Poll::Ready(());
            }
        }
        poll_deadline(&mut this.timer, since + this.patience, cx)
    }
}

/// An answer's body in pieces, which notes when each is taken.
struct Paced {
    body: Body,
    rest: Option<Bytes>,
    pace: Pace,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let next = match this.rest.take() {
            Some(rest) => Some(Ok(Frame::data(rest))),
            None => match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    *locked(&this.pace.0) = None;
                    return Poll::Pending;
                }
            },
        };
        *locked(&this.pace.0) = next.is_some().then(Instant::now);
        Poll::Ready(next.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(mut data) if data.len() > PIECE => {
                    this.rest = Some(data.split_off(PIECE));
                    Frame::data(data)
                }
                Ok(data) => Frame::data(data),
                Err(other) => other,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Asked before the first piece is taken.
        self.body.size_hint()
    }
}

/// The connection as h2 reads and writes it: notes when bytes came, and fails where none are taken for too long, or where too many frames come
/// that carry nothing.
struct Stamped {
    socket: Socket,
    frames: Frames,
    /// What was read before.
    ahead: Vec<u8>,
    line: Line,
    patience: Duration,
    stuck_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stamped {
    fn wrote(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.frames.wrote(bytes);
        }
        self.watched(written, cx)
    }

    fn watched<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck_since = None;
            return written;
        }
        let since = *self.stuck_since.get_or_insert_with(Instant::now);
        ready!(poll_deadline(&mut self.timer, since + self.patience, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Stamped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let (read, heads) = (&this.line.0.read, &this.line.0.heads);
        if read.load(Ordering::Relaxed) >= TURN || heads.load(Ordering::Relaxed) == 0 {
            // Behind whatever else has come to this thread, which a waker alone would not see to.
            return pin!(yield_now()).poll(cx).map(Ok);
        }
        let before = buf.filled().len();
        if this.ahead.is_empty() {
            ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
            *locked(&this.line.0.heard) = this.socket.heard();
        } else {
            let length = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead[..length]);
            this.ahead.drain(..length);
        }
        let (came, mut left) = (&buf.filled()[before..], heads.load(Ordering::Relaxed));
        let Some(followed) = this.frames.follow(this.socket.heard(), came, &mut left) else {
            return Poll::Ready(Err(io::Error::other("too many frames that carry nothing")));
        };
        if followed < came.len() {
            this.ahead.splice(..0, came[followed..].iter().copied());
            buf.set_filled(before + followed);
        }
        read.fetch_add(followed, Ordering::Relaxed);
        heads.store(left, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.wrote(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.watched(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper::client;
    use hyper_util::rt::TokioExecutor;
    use tokio::net::UnixStream;

    use super::super::socket::{Stream, Wire};
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// How long a connection lasts on which an answer is waited for that does not come; `None` where an hour is not its end.
    async fn lasts(end: UnixStream) -> Option<Duration> {
        let (begun, (_open, closing)) = (Instant::now(), watch::channel(false));
        let socket = Socket::Plain(Wire::new(Stream::Unix(end)));
        let options = Options::default();
        let untaken = Untaken::default();
        let served = serve(socket, Vec::new(), &options, &untaken, |_, _| std::future::pending(), closing);
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

    #[tokio::test]
    async fn a_burst_of_heads_is_read_in_turns() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let bytes = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &requests(250)].concat();
        let writing = tokio::spawn(async move { other.write_all(&bytes).await.map(|()| other) });
        yield_now().await;
        let (begun, (_open, closing)) = (AtomicUsize::new(0), watch::channel(false));
        let (options, untaken) = (Options::default(), Untaken::default());
        let answer = |_, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        };
        let socket = Socket::Plain(Wire::new(Stream::Unix(own)));
        let mut served = pin!(serve(socket, Vec::new(), &options, &untaken, answer, closing));
        while begun.load(Ordering::Relaxed) < 250 {
            let before = begun.load(Ordering::Relaxed);
            poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx).is_ready())).await;
            let in_turn = begun.load(Ordering::Relaxed) - before;
            // A part of another may have come in the last one.
            assert!(in_turn <= TURN_HEADS + 1, "{in_turn} requests begin in a turn");
            yield_now().await;
        }
        writing.await.unwrap().unwrap();
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
        tokio::join!(serve(socket, Vec::new(), &options, &untaken, answer, closing), goes);
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
        let mut served = pin!(serve(socket, Vec::new(), &options, &untaken, answer, closing));
        assert!(timeout(Duration::from_secs(2), served.as_mut()).await.is_err());
        open.send_replace(true);
        let begun = Instant::now();
        let asks_on = async {
            for i in 0.. {
                let _ = writing.write_all(&more(i)).await;
                let _ = timeout(Duration::from_millis(500), reading.read_buf(&mut Vec::with_capacity(4096))).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        tokio::select! {
            () = served => begun.elapsed(),
            () = asks_on => unreachable!("it asks on for ever"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_no_body_or_asks_on_is_not_waited_for_long_once_the_server_goes() {
        let heads = |from: u32, to: u32| -> Vec<u8> {
            let head = |i: u32| {
                [&[0, 0, 6, 1, 4][..], &(2 * i + 1).to_be_bytes(), &[0x83, 0x86, 0x84, 0x41, 1, b'a']].concat()
            };
            (from..to).flat_map(head).collect()
        };
        let took = goes(heads(0, 8), |_| Vec::new()).await;
        assert!((LAST_PATIENCE..LAST_PATIENCE * 2).contains(&took), "{took:?}");
        // None of its pings is answered.
        let took = goes(heads(0, 1), |i| heads(i + 1, i + 2)).await;
        assert!(took < LAST_PATIENCE * 2, "{took:?}");
        // Who sends some of it now and then is waited for.
        let took = goes(heads(0, 1), |i| [&[0, 0, 1, 0, u8::from(i == 30)][..], &[0, 0, 0, 1, b' ']].concat()).await;
        assert!(took > LAST_PATIENCE * 2, "{took:?}");
    }

    #[tokio::test]
    async fn beside_many_connections_another_has_few_requests_open() {
        let untaken = Untaken::default();
        let may_open = async |untaken: &Untaken| {
            let (own, mut other) = UnixStream::pair().unwrap();
            let (_open, closing) = watch::channel(false);
            let (socket, options) = (Socket::Plain(Wire::new(Stream::Unix(own))), Options::default());
            other.write_all(&[PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()).await.unwrap();
            let mut settings = [0; 128];
            let read = async { other.read(&mut settings).await.unwrap() };
            let length = tokio::select! {
                length = read => length,
                () = serve(socket, Vec::new(), &options, untaken, |_, _| std::future::pending(), closing) => 0,
            };
            let most = settings[9..length].chunks(6).find(|setting| setting[..2] == [0, 3]).expect("it is said");
            u32::from_be_bytes([most[2], most[3], most[4], most[5]])
        };
        let others: Vec<_> = std::iter::from_fn(|| untaken.wide()).collect();
        assert_eq!((others.len(), may_open(&untaken).await), (256, FEW_STREAMS));
        drop(others);
        assert_eq!(may_open(&untaken).await, MOST_STREAMS);
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
}
