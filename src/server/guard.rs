//! A connection that shows hyper only heads that passed [`head::check`], and that keeps time.
//!
//! The guard follows the framing of what passes through: head, body, head. While the client's next bytes are overdue,
//! or an answer is not taken, it ends the connection with an error; [`Guard::finish`] then says why to the client.
//!
//! A chunked body is not followed: the connection is closed behind the answer, so no head comes after it. That costs
//! such a client a connection for each request and saves a second reader of chunks that might disagree with hyper's.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Options;
use super::head::{self, Framing};
use super::refusals::Refusals;
use super::status::Refusal;
use crate::telemetry::RequestId;

/// How long a connection that is closed early still swallows what its client is sending. A socket that is closed with
/// unread bytes sends a reset, and the reset destroys the answer that the client has not read yet.
const LINGER: Duration = Duration::from_secs(1);

/// Requests of one connection whose heads passed and that are not answered yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Outstanding(Arc<AtomicUsize>);

impl Outstanding {
    /// Says that one request is answered.
    pub(super) fn answered(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// What the next byte of the client belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A head.
    Head,
    /// A body with so many bytes to come.
    Body(u64),
    /// A chunked body, behind which the connection ends.
    Last,
}

/// The guarded connection.
#[derive(Debug)]
pub(super) struct Guard {
    stream: TcpStream,
    max_head_bytes: usize,
    head_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,

    phase: Phase,
    /// What has come of a head that is not complete.
    head: Vec<u8>,
    /// Whether any head has passed: before that, an idle connection is a slow head.
    greeted: bool,
    outstanding: Outstanding,
    /// Why the connection is to end.
    refusal: Option<Refusal>,

    /// Since when the client owes bytes, and the timer that wakes for it. The timer may stand too early, never too
    /// late: moving it for each request would cost more than waking once in vain.
    reading_since: Option<Instant>,
    read_timer: Option<Pin<Box<Sleep>>>,
    /// The same for bytes that the client does not take.
    writing_since: Option<Instant>,
    write_timer: Option<Pin<Box<Sleep>>>,
}

impl Guard {
    /// Guards `stream` by the bounds of `options`.
    pub(super) fn new(stream: TcpStream, options: &Options) -> Guard {
        Guard {
            stream,
            max_head_bytes: options.max_head_bytes,
            head_timeout: options.head_timeout,
            idle_timeout: options.idle_timeout,
            write_timeout: options.write_timeout,
            phase: Phase::Head,
            head: Vec::new(),
            greeted: false,
            outstanding: Outstanding::default(),
            refusal: None,
            reading_since: None,
            read_timer: None,
            writing_since: None,
            write_timer: None,
        }
    }

    /// The count of unanswered requests, which whoever answers counts down.
    pub(super) fn outstanding(&self) -> Outstanding {
        self.outstanding.clone()
    }

    /// Ends the connection when hyper is done with it: tells the client and the log why it was refused, if it was, and lets
    /// what it is still sending run out, for one second at most.
    pub(super) async fn finish(mut self, refusals: &Refusals) {
        let between_requests = self.phase == Phase::Head && self.head.is_empty();
        if self.refusal.is_none() && between_requests {
            return;
        }
        let farewell = async {
            if let Some(refusal) = self.refusal.take() {
                let id = RequestId::made();
                refusals.note(&refusal, &id, None);
                self.stream.write_all(&refusal.to_message(&id)).await?;
            }
            self.stream.shutdown().await?;
            let mut swallowed = [0; 8 * 1024];
            while self.stream.read(&mut swallowed).await? > 0 {}
            io::Result::Ok(())
        };
        // A client that is gone needs no farewell, so both kinds of failure are fine.
        let _ = tokio::time::timeout(LINGER, farewell).await;
    }

    /// Follows `bytes`, just read. Fails with the number of them that are still good.
    fn follow(&mut self, bytes: &[u8]) -> Result<(), (usize, Refusal)> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.phase {
                Phase::Last => return Ok(()),
                Phase::Body(left) => {
                    let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    at += taken;
                    self.phase = match left - taken as u64 {
                        0 => Phase::Head,
                        left => Phase::Body(left),
                    };
                }
                Phase::Head => {
                    let taken = self.follow_head(rest).map_err(|refusal| (at, refusal.and_close()))?;
                    at += taken;
                }
            }
        }
        Ok(())
    }

    /// Follows `bytes` in a head and returns how many of them belong to it.
    fn follow_head(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        let before = self.head.len();
        let parsed = if before == 0 {
            head::check(bytes)?
        } else {
            self.head.extend_from_slice(bytes);
            // Parsing anew for each crumb would make a head sent byte by byte cost its length squared.
            if ends_within(&self.head, before) { head::check(&self.head)? } else { None }
        };
        let seen = before + bytes.len();
        if parsed.map_or(seen, |head| head.len) > self.max_head_bytes {
            let message = format!("a request's head may have {} bytes at most", self.max_head_bytes);
            return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
        }
        // A head begins or ends here, so another clock runs. Only on a new connection does the clock of its opening go on.
        if parsed.is_some() || (before == 0 && self.greeted) {
            self.reading_since = None;
        }
        let Some(head) = parsed else {
            if before == 0 {
                self.head.extend_from_slice(bytes);
            }
            return Ok(bytes.len());
        };
        self.head.clear();
        self.greeted = true;
        self.outstanding.0.fetch_add(1, Ordering::Relaxed);
        self.phase = match head.framing {
            Framing::Length(0) => Phase::Head,
            Framing::Length(length) => Phase::Body(length),
            Framing::Chunked => Phase::Last,
        };
        Ok(head.len - before)
    }

    /// How long the client may keep the server waiting now; `None` where it is the server's turn, or the body's own
    /// clock runs.
    fn patience(&self) -> Option<Duration> {
        match self.phase {
            _ if !self.outstanding.none() => None,
            Phase::Head if self.greeted && self.head.is_empty() => Some(self.idle_timeout),
            Phase::Head => Some(self.head_timeout),
            Phase::Body(_) | Phase::Last => None,
        }
    }

    /// Called when nothing can be read: completes when the client's time is up.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(patience) = self.patience() else {
            self.reading_since = None;
            return Poll::Pending;
        };
        let since = *self.reading_since.get_or_insert_with(Instant::now);
        poll_deadline(&mut self.read_timer, since + patience, cx)
    }

    /// Turns a write that does not move into an error when the client's time is up.
    fn watch_write(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.writing_since = None;
            // A long answer that is being taken is no idle connection: its clock begins anew with each piece. It is set
            // here because hyper does not read again behind an answer; it waits for the wake-up of its last attempt.
            self.reading_since = None;
            if self.refusal.is_some() {
                cx.waker().wake_by_ref();
            } else if self.poll_overdue(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            return written;
        }
        let since = *self.writing_since.get_or_insert_with(Instant::now);
        ready!(poll_deadline(&mut self.write_timer, since + self.write_timeout, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Whether an empty line ends behind position `from`.
fn ends_within(head: &[u8], from: usize) -> bool {
    let window = &head[from.saturating_sub(3)..];
    window.windows(2).any(|w| w == b"\n\n") || window.windows(3).any(|w| w == b"\n\r\n")
}

/// Completes at `deadline`. The timer is moved only when it stands later than that, or has gone off.
fn poll_deadline(timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    loop {
        ready!(timer.as_mut().poll(cx));
        if timer.deadline() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline);
    }
}

impl AsyncRead for Guard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        if this.refusal.is_none() {
            if Pin::new(&mut this.stream).poll_read(cx, buf)?.is_pending() {
                ready!(this.poll_overdue(cx));
                if !this.head.is_empty() {
                    let message = format!("the request's head took longer than {:?}", this.head_timeout);
                    this.refusal = Some(Refusal::new(StatusCode::REQUEST_TIMEOUT, message).and_close());
                }
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            match this.follow(&buf.filled()[before..]) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err((good, refusal)) => {
                    this.refusal = Some(refusal);
                    buf.set_filled(before + good);
                    if good > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        // The requests before the bad head are answered first: an error now would drop them. Sending their answers wakes
        // the connection.
        if this.outstanding.none() && this.writing_since.is_none() {
            Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
        } else {
            Poll::Pending
        }
    }
}

impl AsyncWrite for Guard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch_write(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refusal.is_some() {
            // The refusal is still to be written, by `finish`.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
