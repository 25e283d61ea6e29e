//! Reads a request's body within a size and a time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::Options;
use super::outstanding::BodyEnd;
use super::room::{Room, Taken};
use super::status::Refusal;

/// Most bytes that are set aside for a body on the strength of its announced length alone.
pub(super) const TRUSTED_LENGTH: u64 = 1024 * 1024;

/// Tensors and texts below this many bytes take no part of the room for bodies: the number of connections bounds those.
pub(super) const UNCOUNTED: usize = 64 * 1024;

/// Most bytes of what names things and holds no tensors, unpacked: its reader keeps no others waiting.
pub(super) const SMALL: usize = 64 * 1024;

/// Bytes of JSON from which on a thread for blocking work does the conversion: it then takes about a
/// millisecond, for which a worker of the runtime would keep others' requests waiting.
pub(super) const LONG_CONVERSION: usize = 256 * 1024;

/// Bytes that come piece by piece, each within the room: what they will take is set aside there before they take it.
#[derive(Debug)]
pub(super) struct Growing {
    bytes: Vec<u8>,
    /// Up to here the place for them is doubled when it is full.
    enough: usize,
    room: Room,
    taken: Option<Taken>,
}

impl Growing {
    /// No bytes yet. There will hardly be more than `enough`.
    pub(super) fn new(enough: usize, room: &Room) -> Growing {
        Growing { bytes: Vec::new(), enough, room: room.clone(), taken: None }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Sees to it that `more` bytes find a place. While they move to a larger one they take both, of which the new one is not yet filled:
    /// no more than its own size together, where that is twice the old one's.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), Refusal> {
        let (has, needed) = (self.bytes.capacity(), self.bytes.len() + more);
        if needed > has {
            let grown = needed.max(has.saturating_mul(2).min(self.enough));
            self.room.take(grown - has, &mut self.taken)?;
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        Ok(())
    }

    /// Sees to it that there is a place for `length` bytes in all, and grows no further than that as long as it is enough.
    pub(super) fn expect(&mut self, length: usize) -> Result<(), Refusal> {
        self.enough = length;
        self.reserve(length.saturating_sub(self.len()))
    }

    /// Adds `piece`; 503 where there is no room for it.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        self.reserve(piece.len())?;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// All of it, whose last byte was in at `at`.
    pub(super) fn whole(self, at: Instant) -> Whole {
        Whole::new(self.bytes.into(), at, self.taken)
    }
}

/// A whole body, and its part of the room.
#[derive(Debug)]
pub(super) struct Whole {
    /// What the client sent.
    pub(super) bytes: Bytes,
    /// When the last of it was in.
    pub(super) at: Instant,
    _taken: Option<Taken>,
}

impl Whole {
    /// A body whose last byte was in at `at`, and its part of the room.
    pub(super) fn new(bytes: Bytes, at: Instant, taken: Option<Taken>) -> Whole {
        Whole { bytes, at, _taken: taken }
    }
}

/// An answer's body, which keeps its part of the room until its last byte is sent.
pub(super) fn counted(written: impl Into<Bytes>, taken: Option<Taken>) -> Bytes {
    let written = written.into();
    match taken {
        None => written,
        Some(_taken) => Bytes::from_owner(Counted { written, _taken }),
    }
}

/// A body as hyper reads it, which breaks off where no more of it is taken from the connection.
pub(super) struct Followed<B> {
    pub(super) body: B,
    /// Of a chunked one.
    pub(super) end: Option<BodyEnd>,
}

/// Why it broke off.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message())]
pub(super) struct BrokenOff(pub(super) Refusal);

impl<B> HttpBody for Followed<B>
where
    B: HttpBody<Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    type Data = B::Data;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, axum::Error>>> {
        if let Some(refusal) = self.end.as_ref().and_then(BodyEnd::refusal) {
            return Poll::Ready(Some(Err(axum::Error::new(BrokenOff(refusal.clone())))));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(axum::Error::new)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What is said of a body that could not be read.
pub(super) fn broken_off(error: &axum::Error) -> Refusal {
    let known =
        |error: &(dyn std::error::Error + 'static)| error.downcast_ref().map(|BrokenOff(refusal)| refusal.clone());
    let mut causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    causes.find_map(known).unwrap_or_else(|| Refusal::bad_request("the body broke off").and_close())
}

/// A body and its part of the room.
struct Counted {
    written: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.written
    }
}

/// Runs a conversion on a thread for blocking work. Where the caller leaves meanwhile, it runs to its end and is dropped.
pub(super) async fn long<T: Send + 'static>(convert: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(convert)
        .await
        .map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error"))
}

/// The whole body; 413 where it has more than `most` bytes, 408 where it takes too long, 400 where it breaks off, 503 where
/// there is no room.
pub(super) async fn read(body: Body, most: usize, options: &Options, room: &Room) -> Result<Whole, Refusal> {
    let too_large = || too_large(most);
    let announced = body.size_hint().lower();
    if announced > most as u64 {
        return Err(too_large());
    }
    tokio::time::timeout(options.body_timeout, collect(body, announced, most, room))
        .await
        .map_err(|_| slow(options.body_timeout))??
        .ok_or_else(too_large)
}

/// The whole body, or `None` where it goes beyond `limit`.
async fn collect(mut body: Body, announced: u64, limit: usize, room: &Room) -> Result<Option<Whole>, Refusal> {
    let mut first: Option<Bytes> = None;
    // One that does not say how long it is may be as long as any.
    let enough = if announced > 0 { announced as usize } else { limit };
    let mut joined = Growing::new(enough, room);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken_off(&error))?;
        // Trailers say nothing that is used here.
        let Ok(data) = frame.into_data() else { continue };
        let so_far = joined.len() + first.as_ref().map_or(0, Bytes::len);
        if data.len() > limit - so_far {
            return Ok(None);
        }
        if so_far == 0 {
            // A body that came in one piece, as nearly all do, is not copied.
            first = Some(data);
            continue;
        }
        if let Some(first) = first.take() {
            joined.reserve(announced.min(TRUSTED_LENGTH) as usize)?;
            joined.push(&first)?;
        }
        joined.push(&data)?;
    }
    let at = Instant::now();
    Ok(Some(match first {
        Some(first) => Whole::new(first, at, None),
        None => joined.whole(at),
    }))
}

/// What is said of a body that is larger than `most` bytes.
pub(super) fn too_large(most: usize) -> Refusal {
    let message = format!("the body is larger than the {most} bytes that are taken here");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message).and_close()
}

fn slow(limit: Duration) -> Refusal {
    let message = format!("the request's body took longer than {limit:?}");
    Refusal::new(StatusCode::REQUEST_TIMEOUT, message).and_close()
}
