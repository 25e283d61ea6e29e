//! A connection that shows hyper only heads that passed [`head::check`], that keeps time, and that answers some requests before
//! hyper hears of them. As long as all are such requests, there is no hyper.
//!
//! The guard follows the framing of what passes through: head, body, head. While the client's next bytes are overdue,
//! or an answer is not taken, it ends the connection with an error; [`Guard::finish`] then says why to the client.
//!
//! A chunked body is followed as long as it has one reading only ([`Chunks`]); behind one that has not, the connection is closed
//! after the answer, so that no head comes where two readers of chunks might disagree.

mod arrivals;
mod ending;
mod times;
mod wire;

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Buf;
use http::StatusCode;
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::Options;
use super::body;
use super::chunks::{Chunks, Followed};
use super::head::{self, Framing};
use super::idle::Rest;
use super::outstanding::{Begun, BodyEnd, Outstanding};
use super::parting::{MOMENT, Parting};
use super::quick::{Quick, Reply, Ride, Since, Taken, Through};
use super::socket::Socket;
use super::status::Refusal;
use super::timer::poll_deadline;
use arrivals::Arrivals;

/// How long a connection that is closed early still swallows what its client is sending. A socket that is closed with
/// unread bytes sends a reset, and the reset destroys the answer that the client has not read yet.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes that are read at once as long as there is no hyper: a longer request is for hyper.
const AT_ONCE: usize = 16 * 1024;

/// Bytes that are kept of what a client sends while its request is being answered: more is left in the socket.
const AHEAD: usize = 8 * 1024;

/// A chunked body may take so many times what a body may have, and some more: its sizes stand between its data. In chunks of one byte
/// it takes six times as much.
const TIMES_CHUNKED: u64 = 8;
const MORE_CHUNKED: u64 = 64 * 1024;

/// What the next byte of the client belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A head.
    Head,
    /// A body with so many bytes to come.
    Body(u64),
    /// A chunked body.
    Chunks(Chunks),
    /// A body whose end is in doubt, behind which the connection ends.
    Last,
    /// Nothing that is read: a chunked body was refused.
    Refused,
    /// What is to come of a body that nobody wants, since its request was refused.
    Unwanted(u64),
}

/// The guarded connection.
pub(super) struct Guard {
    socket: Socket,
    max_head_bytes: usize,
    max_body_bytes: usize,
    head_timeout: Duration,
    body_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,

    phase: Phase,
    /// What has come of a head that is not complete.
    head: Vec<u8>,
    /// Told when the chunked body that comes in has ended.
    chunks_end: BodyEnd,
    /// Bytes of it that may still come, its sizes included.
    chunked_left: u64,
    /// Whether any head has passed: before that, an idle connection is a slow head.
    greeted: bool,
    outstanding: Outstanding,
    /// Of the head that comes next.
    through: Option<Through>,
    /// When the bytes came that were read last.
    heard: Arrivals,
    /// Since when no answer of its own stands before the next request.
    free: Instant,
    /// Whether the last request that its client makes has come: what comes behind is none.
    is_last: bool,
    /// Why the connection is to end.
    refusal: Option<Refusal>,

    quick: Arc<Quick>,
    /// What came before there was hyper, and is for it.
    handed: Vec<u8>,
    /// A request that is answered without hyper.
    ride: Option<Ride>,
    /// What is being written without hyper, and how much of it is.
    reply: Option<Reply>,
    /// What came behind such a request, and when.
    ahead: Vec<u8>,
    ahead_came: Arrivals,
    /// Since when the rest is awaited of a request whose begin is the first of what came ahead.
    rest_since: Option<Instant>,
    /// The client has gone, or its last answer is written.
    is_over: bool,
    /// Whether the client sends no more.
    parting: Parting,

    /// Since when the client owes bytes, and the timer that wakes for it. The timer may stand too early, never too
    /// late: moving it for each request would cost more than waking once in vain.
    reading_since: Option<Instant>,
    read_timer: Option<Pin<Box<Sleep>>>,
    /// The same for bytes that the client does not take.
    writing_since: Option<Instant>,
    write_timer: Option<Pin<Box<Sleep>>>,
    /// Whether TLS still has a part of what was written.
    is_flushing: bool,
    /// Whether the connection makes room for another.
    rest: Rest,
}

impl Guard {
    /// Guards `socket`, which was opened at `opened` and of which `first` was read already, by the bounds of `options`.
    pub(super) fn new(
        socket: Socket,
        first: Vec<u8>,
        opened: Instant,
        options: &Options,
        quick: Arc<Quick>,
        rest: Rest,
    ) -> Guard {
        let mut ahead_came = Arrivals::default();
        ahead_came.push(first.len(), socket.heard());
        Guard {
            socket,
            max_head_bytes: options.max_head_bytes,
            max_body_bytes: options.max_body_bytes,
            head_timeout: options.head_timeout,
            body_timeout: options.body_timeout,
            idle_timeout: options.idle_timeout,
            write_timeout: options.write_timeout,
            phase: Phase::Head,
            head: Vec::new(),
            chunks_end: BodyEnd::default(),
            chunked_left: 0,
            greeted: false,
            outstanding: Outstanding::default(),
            through: None,
            heard: Arrivals::default(),
            free: opened,
            is_last: false,
            refusal: None,
            quick,
            handed: Vec::new(),
            ride: None,
            reply: None,
            ahead: first,
            ahead_came,
            rest_since: None,
            is_over: false,
            parting: Parting::new(),
            reading_since: Some(opened),
            read_timer: None,
            writing_since: None,
            write_timer: None,
            is_flushing: false,
            rest,
        }
    }

    /// The count of unanswered requests, which whoever answers counts down.
    pub(super) fn outstanding(&self) -> Outstanding {
        self.outstanding.clone()
    }

    /// Answers what needs no hyper, until something comes that does (`true`), or nothing comes any more. The error is the one that hyper would
    /// have been given.
    pub(super) fn poll_plain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut bytes = [MaybeUninit::uninit(); AT_ONCE];
        let mut read = ReadBuf::uninit(&mut bytes);
        loop {
            let may_wait = match self.rest_since {
                Some(since) => ready!(self.poll_rest(since, cx))?,
                None => true,
            };
            let most = if may_wait { AT_ONCE } else { 0 };
            ready!(self.poll_for_hyper(cx, &mut read, most))?;
            if self.rest_since.is_none() {
                self.handed.extend_from_slice(read.filled());
                return Poll::Ready(Ok(!self.handed.is_empty()));
            }
        }
    }

    /// The server is going: a request of which a part has come is answered all the same, by hyper. Says whether there is one.
    pub(super) fn hand_over(&mut self) -> io::Result<bool> {
        if self.rest_since.is_none() {
            return Ok(false);
        }
        let mut bytes = [MaybeUninit::uninit(); AT_ONCE];
        let mut read = ReadBuf::uninit(&mut bytes);
        // It has come already, so nobody is to be woken.
        if self.poll_for_hyper(&mut Context::from_waker(Waker::noop()), &mut read, 0)?.is_ready() {
            self.handed.extend_from_slice(read.filled());
        }
        Ok(!self.handed.is_empty())
    }

    /// Completes when more of the request has come behind what came ahead (`true`), or is waited for no longer.
    fn poll_rest(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut bytes = [MaybeUninit::uninit(); AT_ONCE];
        let mut read = ReadBuf::uninit(&mut bytes);
        if self.parting.poll_read(&mut self.socket, cx, &mut read)?.is_ready() {
            self.keep_ahead(read.filled());
            return Poll::Ready(Ok(!read.filled().is_empty()));
        }
        // The rest of a request that takes longer makes it hyper's.
        ready!(poll_deadline(&mut self.read_timer, since + MOMENT, cx));
        Poll::Ready(Ok(false))
    }

    /// Follows `bytes`, just read. Fails with the number of them that are still good.
    fn follow(&mut self, bytes: &[u8]) -> Result<(), (usize, Refusal)> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.phase {
                Phase::Refused => return Ok(()),
                Phase::Last => {
                    self.count_chunked(rest.len());
                    return Ok(());
                }
                Phase::Chunks(chunks) => match chunks.follow(rest) {
                    Followed::Within(chunks) => {
                        self.phase = Phase::Chunks(chunks);
                        let most = self.max_body_bytes;
                        if chunks.announced() > most as u64 {
                            self.refuse_chunks(body::too_large(most));
                        }
                        self.count_chunked(rest.len());
                        return Ok(());
                    }
                    Followed::Ended(taken) => {
                        self.chunks_end.is_reached();
                        self.phase = Phase::Head;
                        at += taken;
                    }
                    Followed::Lost => self.phase = Phase::Last,
                    Followed::Endless => {
                        let message = "the size of a chunk has more than 16 digits";
                        self.refuse_chunks(Refusal::bad_request(message).and_close());
                    }
                },
                Phase::Body(left) => {
                    let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    at += taken;
                    self.phase = match left - taken as u64 {
                        0 => Phase::Head,
                        left => Phase::Body(left),
                    };
                }
                Phase::Unwanted(left) => {
                    let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    at += taken;
                    self.refuse_body(left - taken as u64);
                }
                Phase::Head if self.is_last => return Ok(()),
                // An empty line in front of a request is nothing (RFC 9112, section 2.2): some clients send one behind a body.
                Phase::Head if self.head.is_empty() && begins_blank(rest) => at += 1,
                Phase::Head => {
                    let taken = self.follow_head(rest, at).map_err(|refusal| (at, refusal.and_close()))?;
                    at += taken;
                }
            }
        }
        Ok(())
    }

    /// When all of the first `length` bytes had come of what was read last.
    fn arrived(&self, length: usize) -> Instant {
        self.heard.of(length).unwrap_or_else(|| self.socket.heard())
    }

    /// Counts so many more bytes of a chunked body.
    fn count_chunked(&mut self, bytes: usize) {
        match self.chunked_left.checked_sub(bytes as u64) {
            Some(left) => self.chunked_left = left,
            None => self.refuse_chunks(body::too_large(self.max_body_bytes)),
        }
    }

    /// Reads no more of a chunked body. Whoever answers its request says why.
    fn refuse_chunks(&mut self, refusal: Refusal) {
        self.phase = Phase::Refused;
        self.chunks_end.is_refused(refusal);
    }

    /// Follows `bytes` in a head, from place `at` of what was read, and returns how many of them belong to it.
    fn follow_head(&mut self, bytes: &[u8], at: usize) -> Result<usize, Refusal> {
        let before = self.head.len();
        let parsed = if before == 0 {
            head::check(bytes)?
        } else {
            self.head.extend_from_slice(bytes);
            // Parsing anew for each crumb would make a head sent byte by byte cost its length squared.
            if head::ends_within(&self.head, before) { head::check(&self.head)? } else { None }
        };
        if let Some(head) = &parsed {
            self.parting.asked(self.quick.cap(&head.ask));
            self.is_last |= head.is_last;
        }
        let parsed = parsed.map(|head| (head.len, head.framing));
        let seen = before + bytes.len();
        if parsed.map_or(seen, |(len, _)| len) > self.max_head_bytes {
            let message = format!("a request's head may have {} bytes at most", self.max_head_bytes);
            return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
        }
        // A head begins or ends here, so another clock runs. Only on a new connection does the clock of its opening go on.
        if parsed.is_some() || (before == 0 && self.greeted) {
            self.reading_since = None;
        }
        let Some((len, framing)) = parsed else {
            if before == 0 {
                self.head.extend_from_slice(bytes);
                self.outstanding.begun();
            }
            return Ok(bytes.len());
        };
        self.head.clear();
        self.greeted = true;
        let mut begun =
            Begun { arrived: self.arrived(at + len - before), chunks_end: None, through: self.through.take() };
        self.phase = match framing {
            Framing::Length(0) => Phase::Head,
            Framing::Length(length) => Phase::Body(length),
            Framing::Chunked => {
                self.chunks_end = BodyEnd::default();
                self.chunked_left = (self.max_body_bytes as u64).saturating_mul(TIMES_CHUNKED) + MORE_CHUNKED;
                begun.chunks_end = Some(self.chunks_end.clone());
                Phase::Chunks(Chunks::BEGIN)
            }
        };
        self.outstanding.pass(begun);
        Ok(len - before)
    }

    /// Takes a request that is answered without hyper from the begin of `bytes`, just read, or what is left of one that was
    /// refused; says how many bytes that was. None are taken of one that has `most` at most while its rest is awaited. Where anything that came
    /// before is hyper's and not yet answered, all that follows is hyper's too: answers keep their order.
    fn take(&mut self, bytes: &[u8], most: usize) -> Option<usize> {
        match self.phase {
            Phase::Unwanted(left) => {
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.refuse_body(left - taken as u64);
                return Some(taken);
            }
            Phase::Head if self.head.is_empty() && self.outstanding.none() && self.writing_since.is_none() => {}
            _ => return None,
        }
        if self.is_last {
            return None;
        }
        // The way of the head to hyper tells what is wrong with it.
        let head = head::check(bytes).ok().flatten()?;
        let Framing::Length(length) = head.framing else { return None };
        if head.len > self.max_head_bytes || length > self.max_body_bytes as u64 {
            return None;
        }
        let rest = &bytes[head.len..];
        let there = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        let body = (there as u64 == length).then(|| &rest[..there]);
        let is_short = head.len as u64 + length <= most as u64;
        if body.is_none() && is_short && self.quick.may_answer(&head.ask) {
            self.rest_since.get_or_insert_with(Instant::now);
            return Some(0);
        }
        self.rest_since = None;
        let since = Since { arrived: self.arrived(head.len), free: self.free };
        match self.quick.take(&head, &bytes[..head.len], body, since) {
            Taken::Passed => return None,
            Taken::Through(through) => {
                self.through = Some(through);
                return None;
            }
            Taken::Refused(reply) => {
                self.reply = Some(reply);
                self.refuse_body(length - there as u64);
            }
            Taken::Riding(ride, cap) => {
                self.parting.asked(Some(cap));
                self.ride = Some(ride);
            }
        }
        self.greeted = true;
        self.reading_since = None;
        Some(head.len + there)
    }

    /// Lets so many bytes of a body come to nothing.
    fn refuse_body(&mut self, left: u64) {
        if left > 0 {
            self.phase = Phase::Unwanted(left);
            return;
        }
        // Who has just sent the last of it was no idle client.
        (self.phase, self.reading_since) = (Phase::Head, None);
    }

    /// Goes on with the request that is answered without hyper, until nothing is left to do of it.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(reply) = &mut self.reply {
                let (is_written, mut socket) = (!reply.bytes.has_remaining(), Pin::new(&mut self.socket));
                let moved = if is_written {
                    socket.poll_flush(cx).map_ok(|()| 0)
                } else {
                    socket.as_mut().poll_write(cx, reply.bytes.chunk())
                };
                match moved {
                    Poll::Pending => {
                        let since = *self.writing_since.get_or_insert_with(Instant::now);
                        ready!(poll_deadline(&mut self.write_timer, since + self.write_timeout, cx));
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(_)) if is_written => {
                        self.is_over |= reply.closes;
                        (self.reply, self.free) = (None, Instant::now());
                        (self.writing_since, self.reading_since) = (None, None);
                        if !self.ahead.is_empty() {
                            // Others have their turn before what came behind it.
                            return pin!(tokio::task::yield_now()).poll(cx).map(Ok);
                        }
                    }
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(more)) => {
                        reply.bytes.advance(more);
                        self.writing_since = None;
                    }
                }
            } else if let Some(ride) = &mut self.ride {
                if let Poll::Ready(reply) = ride.as_mut().poll(cx) {
                    (self.ride, self.reply) = (None, Some(reply));
                } else {
                    ready!(self.poll_gone(cx))?;
                    // Nobody is left to be answered.
                    (self.ride, self.is_over) = (None, true);
                }
            } else {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Completes when the client is gone. What it sends meanwhile is kept.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; AHEAD];
        while self.ahead.len() < AHEAD && !self.parting.waits() {
            let mut read = ReadBuf::new(&mut bytes[self.ahead.len()..]);
            ready!(self.parting.poll_read(&mut self.socket, cx, &mut read))?;
            if read.filled().is_empty() && !self.parting.waits() {
                return Poll::Ready(Ok(()));
            }
            self.keep_ahead(read.filled());
        }
        self.parting.poll_reset(&self.socket, cx).map(Ok)
    }

    /// Keeps what was just read for later.
    fn keep_ahead(&mut self, bytes: &[u8]) {
        self.ahead.extend_from_slice(bytes);
        self.ahead_came.push(bytes.len(), self.socket.heard());
    }

    /// Reads what came ahead, and then what the socket has.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            let before = buf.filled().len();
            ready!(self.parting.poll_read(&mut self.socket, cx, buf))?;
            self.heard.set(buf.filled().len() - before, self.socket.heard());
        } else {
            let length = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead[..length]);
            self.ahead.drain(..length);
            self.heard = self.ahead_came.split_to(length);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what hyper is to see, and answers what needs no hyper. Reads nothing where it has begun to wait for the rest of a request of at
    /// most `most` bytes.
    fn poll_for_hyper(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, most: usize) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        while self.refusal.is_none() {
            ready!(self.poll_own(cx))?;
            if self.is_over {
                return Poll::Ready(Ok(()));
            }
            if self.phase == Phase::Refused {
                return Poll::Pending;
            }
            if self.poll_bytes(cx, buf)?.is_pending() {
                ready!(self.poll_overdue(cx));
                if !self.head.is_empty() {
                    let message = format!("the request's head took longer than {:?}", self.head_timeout);
                    self.refusal = Some(Refusal::new(StatusCode::REQUEST_TIMEOUT, message).and_close());
                }
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let bytes = &buf.filled()[before..];
            if !bytes.is_empty() {
                self.rest.ends();
            }
            if bytes.is_empty()
                && self.parting.waits()
                && matches!(self.phase, Phase::Head | Phase::Last)
                && self.owes()
            {
                // Where hyper fails to read, nobody is left to be answered.
                ready!(self.parting.poll_reset(&self.socket, cx));
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if !bytes.is_empty() && self.phase == Phase::Head && self.head.is_empty() {
                let blank = drop_blank(buf, before);
                self.heard.drop_first(blank);
                if buf.filled().len() == before {
                    continue;
                }
            }
            let bytes = &buf.filled()[before..];
            if let Some(taken) = self.take(bytes, most).filter(|_| !bytes.is_empty()) {
                // What came behind it is looked at when it is answered. It came earlier than what is ahead already.
                if taken < bytes.len() {
                    self.ahead.splice(..0, bytes[taken..].iter().copied());
                    self.heard.drop_first(taken);
                    self.ahead_came.put_back(std::mem::take(&mut self.heard));
                }
                buf.set_filled(before);
                if self.rest_since.is_some() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match self.follow(bytes) {
                Ok(()) => {
                    if self.phase == Phase::Refused {
                        // Whoever reads the body is to look at once.
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err((good, refusal)) => {
                    self.refusal = Some(refusal);
                    buf.set_filled(before + good);
                    if good > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        // The requests before the bad head are answered first: an error now would drop them.
        if self.owes() { Poll::Pending } else { Poll::Ready(Err(io::ErrorKind::InvalidData.into())) }
    }
}

/// Whether the first that comes is the end of a line.
fn begins_blank(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\r' | b'\n', ..])
}

/// Drops empty lines from the begin of what was read behind `before`. How many bytes that were.
fn drop_blank(buf: &mut ReadBuf<'_>, before: usize) -> usize {
    let read = &buf.filled()[before..];
    let blank = (0..read.len()).take_while(|&at| begins_blank(&read[at..])).count();
    if blank > 0 {
        let rest = read[blank..].to_vec();
        buf.set_filled(before);
        buf.put_slice(&rest);
    }
    blank
}

#[cfg(test)]
mod tests;
