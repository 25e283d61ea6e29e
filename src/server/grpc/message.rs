//! Messages of a gRPC call: five bytes and then so many as they say, compressed or not.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>. Each is read within a size and a time, and takes part
//! of the room for bodies where it comes in pieces.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout_at};

use crate::server::Options;
use crate::server::body::{TRUSTED_LENGTH, Whole, broken_off};
use crate::server::closing::Going;
use crate::server::http2::Line;
use crate::server::room::{Room, Taken};
use crate::server::status::Refusal;
use crate::server::v2::coding::{Coding, Until};

/// How messages are compressed that say they are.
pub(super) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

const ACCEPTED: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Bytes before each message: whether it is compressed, and its length.
pub(super) const HEAD: usize = 5;

/// Bytes of a call's messages that are kept while those before them are answered.
const MOST_AHEAD: usize = 4 * 1024 * 1024;

/// The messages of a call, as they come.
pub(super) struct Messages {
    body: Body,
    /// What came and is not taken yet: in one piece, or joined.
    piece: Bytes,
    joined: BytesMut,
    /// What `joined` may become before it takes more room.
    held: usize,
    taken: Option<Taken>,
    /// Since when the message is waited for, or read; and when its first byte came.
    since: Instant,
    begun: Option<Instant>,
    is_ended: bool,
    /// How long the message that is read was waited for once it had begun.
    took: Duration,

    /// What is known of how messages are compressed.
    said: Said,
    accepted: Option<Coding>,
    options: Arc<Options>,
    room: Room,
    bounds: Bounds,
    line: Line,
}

/// What the headers of a call say of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// They are not compressed.
    Nothing,
    /// Those that are compressed are so in a way that is not known here.
    Unknown,
    Known(Coding),
}

impl Said {
    fn of(headers: &HeaderMap) -> Said {
        match headers.get(ENCODING) {
            None => Said::Nothing,
            Some(value) if value.as_bytes().eq_ignore_ascii_case(b"identity") => Said::Nothing,
            Some(value) => Coding::named(value).map_or(Said::Unknown, Said::Known),
        }
    }

    fn coding(self) -> Option<Coding> {
        if let Said::Known(coding) = self { Some(coding) } else { None }
    }
}

/// What a client that compresses in a way that is not known here is told: how it may. In a header.
pub(super) fn accepted_instead(headers: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
    let known = HeaderValue::from_static("identity,gzip,deflate");
    (Said::of(headers) == Said::Unknown).then_some((ACCEPTED, known))
}

/// What a message may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes at most, packed and unpacked.
    pub(super) most: usize,
    /// How long after it came it is of use to unpack it.
    pub(super) within: Duration,
}

/// One of them.
pub(super) struct Message {
    /// What it holds.
    pub(super) whole: Whole,
    /// When it came.
    pub(super) arrived: Instant,
    /// How its answer is to be compressed: as itself was.
    pub(super) coding: Option<Coding>,
    /// The room for all that it takes.
    pub(super) room: Room,
    packed: Option<Packed>,
}

/// How a message is compressed, if that is known, and within what it is unpacked.
struct Packed {
    by: Result<Coding, Refusal>,
    bounds: Bounds,
    going: Going,
}

impl Messages {
    /// The messages in `body`, each within `bounds`.
    pub(super) fn new(
        headers: &HeaderMap,
        body: Body,
        options: &Arc<Options>,
        room: &Room,
        bounds: Bounds,
        line: Line,
    ) -> Messages {
        let said = Said::of(headers);
        let is_accepted = |coding: &Coding| {
            let accepted = headers.get(ACCEPTED).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let name = coding.name();
            accepted.split(',').any(|word| word.trim().as_bytes() == name.as_bytes())
        };
        Messages {
            body,
            piece: Bytes::new(),
            joined: BytesMut::new(),
            held: 0,
            taken: None,
            since: Instant::now(),
            begun: None,
            is_ended: false,
            took: Duration::ZERO,
            said,
            accepted: said.coding().filter(is_accepted),
            options: Arc::clone(options),
            room: room.clone(),
            bounds: Bounds { most: bounds.most.min(options.max_body_bytes), ..bounds },
            line,
        }
    }

    /// How answers are compressed to messages that are.
    pub(super) fn accepted(&self) -> Option<Coding> {
        self.accepted
    }

    /// How a message is compressed that says that it is; or why that is wrong, by gRPC's own words
    /// (<https://github.com/grpc/grpc/blob/master/doc/compression.md>).
    fn coding(&self) -> Result<Coding, Refusal> {
        match self.said {
            Said::Known(coding) => Ok(coding),
            Said::Unknown => {
                let message = "this grpc-encoding is not served: send messages as they are, or as gzip or deflate";
                Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, message))
            }
            Said::Nothing => {
                let message = "the message says that it is compressed, and no grpc-encoding says how";
                Err(Refusal::bad_request(message).internal())
            }
        }
    }

    /// The only message of a call.
    pub(super) async fn only(mut self) -> Result<Message, Refusal> {
        self.begun = Some(self.since);
        let message = self.next().await?.ok_or_else(|| Refusal::bad_request("the call has no message"))?;
        self.begun = Some(self.since);
        match self.next().await? {
            None => message.unpacked().await,
            Some(_) => Err(Refusal::bad_request("the call has more than one message")),
        }
    }

    /// The next message, as it was sent; `None` behind the last. What has come of it is kept where the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Refusal> {
        loop {
            if let Some((is_packed, bytes, taken)) = self.whole()? {
                let arrived = self.begun.take().unwrap_or(self.since);
                self.since = Instant::now();
                let whole = Whole::new(bytes, std::mem::take(&mut self.took), taken);
                let packed =
                    is_packed.then(|| Packed { by: self.coding(), bounds: self.bounds, going: self.line.going() });
                let coding = self.accepted.filter(|_| is_packed);
                let next = self.room.of_the_next();
                let room = std::mem::replace(&mut self.room, next);
                // What has come behind it is of the next.
                self.taken = self.taken.take().map(|taken| taken.of(&self.room));
                return Ok(Some(Message { whole, arrived, coding, room, packed }));
            }
            if self.is_ended {
                let is_cut = !(self.piece.is_empty() && self.joined.is_empty());
                return if is_cut { Err(Refusal::bad_request("the message broke off")) } else { Ok(None) };
            }
            self.set_apart()?;
            let patience = if self.begun.is_some() { self.options.body_timeout } else { self.options.idle_timeout };
            let begun = self.begun;
            timeout_at(self.since + patience, self.fill()).await.map_err(|_| slow(patience))??;
            // As the kernel has it: how late the server looked is not its sender's time.
            self.took = begun.map_or(Duration::ZERO, |begun| self.line.heard().saturating_duration_since(begun));
        }
    }

    /// Whether more of what comes can be kept while messages before it are answered.
    pub(super) fn may_read_ahead(&self) -> bool {
        !self.is_ended && self.joined.len() + self.piece.len() < MOST_AHEAD
    }

    /// Keeps what comes next. Left unread, many small frames would be taken for a flood, which ends the connection.
    pub(super) async fn read_ahead(&mut self) -> Result<(), Refusal> {
        self.set_apart()?;
        self.fill().await?;
        self.since = Instant::now();
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), Refusal> {
        match self.body.frame().await {
            None => self.is_ended = true,
            Some(Err(error)) => return Err(broken_off(&error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.add(data)?;
                }
                self.is_ended = self.body.is_end_stream();
            }
        }
        Ok(())
    }

    /// Takes a message that is there: whether it is compressed, its bytes, and their part of the room.
    fn whole(&mut self) -> Result<Option<(bool, Bytes, Option<Taken>)>, Refusal> {
        let have = if self.joined.is_empty() { &self.piece[..] } else { &self.joined[..] };
        let Some((head, rest)) = have.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > self.bounds.most {
            let message = format!("the message is larger than the {} bytes that are taken here", self.bounds.most);
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let is_packed = match head[0] {
            0 => false,
            1 => true,
            _ => return Err(Refusal::bad_request("the call is not made of gRPC's messages")),
        };
        if rest.len() < length {
            return Ok(None);
        }
        if self.joined.is_empty() {
            self.piece.advance(HEAD);
            return Ok(Some((is_packed, self.piece.split_to(length), None)));
        }
        self.joined.advance(HEAD);
        let bytes = self.joined.split_to(length).freeze();
        let taken = if self.joined.is_empty() {
            self.held = 0;
            self.taken.take()
        } else {
            self.held = self.held.saturating_sub(HEAD + length);
            self.taken.as_mut().map(|taken| taken.split(length))
        };
        Ok(Some((is_packed, bytes, taken)))
    }

    fn add(&mut self, data: Bytes) -> Result<(), Refusal> {
        if data.is_empty() {
            return Ok(());
        }
        if self.begun.is_none() {
            (self.begun, self.since) = (Some(self.line.heard()), Instant::now());
        }
        if self.piece.is_empty() && self.joined.is_empty() {
            // One that came in one piece, as nearly all do, is not copied.
            self.piece = data;
            return Ok(());
        }
        let needed = self.joined.len() + data.len();
        if needed > self.held {
            let announced = self.announced().min(TRUSTED_LENGTH as usize);
            self.hold(needed.max(announced).max(self.held.saturating_mul(2).min(HEAD + self.bounds.most)))?;
        }
        self.joined.extend_from_slice(&data);
        Ok(())
    }

    /// What has come of a message whose rest is waited for is counted, and keeps nothing alive but itself.
    fn set_apart(&mut self) -> Result<(), Refusal> {
        let have = self.joined.len() + self.piece.len();
        if have > self.held {
            self.hold(have)?;
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.piece));
        Ok(())
    }

    /// Takes room for `bytes` bytes of a message that comes in pieces, and then the memory.
    fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.room.take(bytes.saturating_sub(self.held), &mut self.taken)?;
        self.held = bytes;
        self.joined.reserve(bytes - self.joined.len());
        Ok(())
    }

    /// Bytes of the message that has begun, its head among them.
    fn announced(&self) -> usize {
        let head = self.joined.first_chunk::<HEAD>();
        head.map_or(0, |head| HEAD + u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize)
    }
}

impl Message {
    /// What it holds, where that can be read as it is.
    pub(super) fn plain(self) -> Option<Whole> {
        Some(self.whole).filter(|_| self.packed.is_none())
    }

    /// The message as it was before it was compressed.
    pub(super) async fn unpacked(self) -> Result<Message, Refusal> {
        let Some(Packed { by, bounds, going }) = self.packed else { return Ok(self) };
        let by = by?;
        let until = Until { since: self.arrived, within: bounds.within, going, said_in: "grpc-encoding" };
        let unpacked = by.unpacked(self.whole, bounds.most, until, &self.room).await;
        let whole = unpacked.map_err(Refusal::of_no_model)?;
        Ok(Message { whole, packed: None, ..self })
    }
}

/// A message with its head, of which `write` writes what follows.
pub(super) fn framed(length: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + length);
    bytes.resize(HEAD, 0);
    write(&mut bytes);
    said(&mut bytes, false);
    bytes
}

/// Writes a message.
pub(super) fn write(message: &impl prost::Message, to: &mut Vec<u8>) {
    message.encode(to).expect("memory takes every byte");
}

/// A framed message, compressed where that is wanted and gains something.
pub(super) async fn packed(message: Bytes, coding: Option<Coding>, room: &Room) -> Result<Bytes, Refusal> {
    let Some(coding) = coding else { return Ok(message) };
    Ok(coding.packed(message, HEAD, |framed| said(framed, true), room).await?.0)
}

/// Writes the head of a message that is there.
fn said(framed: &mut [u8], is_packed: bool) {
    let length = u32::try_from(framed.len() - HEAD).unwrap_or(u32::MAX);
    framed[0] = is_packed.into();
    framed[1..HEAD].copy_from_slice(&length.to_be_bytes());
}

/// How messages are compressed, in a header.
pub(super) fn encoding(coding: Option<Coding>) -> Option<(HeaderName, HeaderValue)> {
    coding.map(|coding| (ENCODING, coding.name()))
}

fn slow(limit: Duration) -> Refusal {
    Refusal::new(StatusCode::REQUEST_TIMEOUT, format!("the call's message took longer than {limit:?}"))
}
