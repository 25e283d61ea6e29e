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
use super::closing::{Going, LAST_PATIENCE, LastWait};
use super::frames::Frames;
use super::head;
use super::idle::Rest;
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
/// The same of a connection that may have few requests open: what a client may send unless it is told otherwise.
const SMALL_WINDOW: u32 = 65_535;

/// Bytes of an answer that are handed to h2 at a time, a frame: what it holds is not waited for.
const PIECE: usize = 16 * 1024;

/// How long a connection that is to end waits for its client, once nothing is in flight.
const LINGER: Duration = Duration::from_secs(1);
/// How often a connection is asked whether its other end is there: one that watches the health says nothing for days, and would keep its
/// place after its end without a word. The question waits behind what is being written, for which a client has `write_timeout`.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Bytes of a connection that are read before others have their turn: each may be a field of a head.
const TURN: usize = 32 * 1024;
/// Requests of it that are begun before: each takes some ten microseconds, and a thousand connections may each begin as many. Where few connections
/// are open, they have so many together: clients send all their heads before the first body, so that who begins a few at a time finishes all late.
const TURN_HEADS: usize = 16;
const ROUND_HEADS: usize = 4096;

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
    if host.is_none() && authority.is_none() {
        return Err(Refusal::bad_request("the request names no host"));
    }
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
    /// When it began.
    begun: Instant,
    /// Whether its client does not take what is being written.
    is_stuck: AtomicBool,
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

    /// The same for what is done with what came.
    pub(super) fn going(&self) -> Going {
        Going::new(&self.0.closing)
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

    /// The same, unless it has come only just: it would come again at once, and again, where nobody tells it of another place.
    pub(super) fn end_unless_new(&self) {
        if self.0.begun.elapsed() > LINGER {
            self.end();
        }
    }
}

/// Serves a connection that began with `first` to its end: `answer` answers each request, and when `closing` becomes true, no
/// further one is taken. By `rest` it makes room for another where it has nothing to do.
pub(super) async fn serve<A, F>(
    socket: Socket,
    first: Vec<u8>,
    options: &Options,
    (untaken, mut rest): (&Untaken, Rest),
    answer: A,
    closing: watch::Receiver<bool>,
) where
    A: Fn(Request<Incoming>, Line) -> F,
    F: Future<Output = Response> + Send + 'static,
{
    let (wide, untaken) = (untaken.wide(), untaken.of_connection());
    let (streams, window) = if wide.is_some() { (MOST_STREAMS, WINDOW) } else { (FEW_STREAMS, SMALL_WINDOW) };
    let turn_heads =
        |wide: &Option<Place>| wide.as_ref().map_or(TURN_HEADS, |wide| TURN_HEADS.max(ROUND_HEADS / wide.taken()));
    let line = Line(Arc::new(Shared {
        heard: Mutex::new(socket.heard()),
        read: AtomicUsize::new(0),
        heads: AtomicUsize::new(turn_heads(&wide)),
        is_over: AtomicBool::new(false),
        begun: Instant::now(),
        is_stuck: AtomicBool::new(false),
        closing: Arc::new(closing),
        untaken: untaken.clone(),
    }));
    let executor = Streams {
        begun: Arc::default(),
        pace: Arc::default(),
        patience: options.write_timeout,
        untaken: untaken.clone(),
    };
    let (paces, asked) = (Arc::clone(&executor.pace), line.clone());
    let service = service_fn(move |request| {
        let pace = Pace::default();
        *locked(&paces) = Some(pace.clone());
        // Boxed, or an answer that waits for its client would keep the place of all that making it took: kilobytes.
        let answering = Box::pin(answer(request, asked.clone()));
        async move { Ok::<_, std::convert::Infallible>(answering.await.map(|body| Paced { body, rest: None, pace })) }
    });
    let begun = Arc::clone(&executor.begun);
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
        http2::Builder::new(executor)
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(options.write_timeout + KEEP_ALIVE)
            .max_concurrent_streams(streams)
            .max_pending_accept_reset_streams(MOST_RESET)
            .max_local_error_reset_streams(MOST_MISTAKEN)
            // What is somewhat longer is refused in words, and what is longer yet by a bare 431.
            .max_header_list_size(u32::try_from(options.max_head_bytes / 4 * 5).unwrap_or(u32::MAX))
            .initial_stream_window_size(window)
            .initial_connection_window_size(window)
            .serve_connection(TokioIo::new(&mut wire), service),
    );
    let mut closing = pin!(line.closing());
    let mut open: FuturesUnordered<Stream> = FuturesUnordered::new();
    let (mut is_ending, mut goes_since, mut idle_since, mut timer) = (false, None, None, None);
    let ended = poll_fn(|cx| {
        line.0.read.store(0, Ordering::Relaxed);
        line.0.heads.store(turn_heads(&wide), Ordering::Relaxed);
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
            let is_stuck = line.0.is_stuck.load(Ordering::Relaxed);
            if !open.is_empty() {
                idle_since = None;
            }
            if is_ending || is_stuck || !open.is_empty() {
                rest.ends();
            }
            if !is_ending && line.is_over() {
                continue;
            }
            if !open.is_empty() {
                return Poll::Pending;
            }
            let patience = if is_ending { LINGER } else { options.idle_timeout };
            let since = *idle_since.get_or_insert_with(Instant::now);
            let makes_room = !is_ending && !is_stuck && rest.poll_asked(since, &mut timer, cx).is_ready();
            if !makes_room {
                ready!(poll_deadline(&mut timer, since + patience, cx));
            }
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
        self.line.0.is_stuck.store(written.is_pending(), Ordering::Relaxed);
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
        let (came, mut left) = (&mut buf.filled_mut()[before..], heads.load(Ordering::Relaxed));
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
mod tests;
