//! Reads a request's body within a size and a time.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Options;
use super::closing::{LAST_PATIENCE, LastWait};
use super::outstanding::BodyEnd;
use super::room::{Room, Taken};
use super::status::Refusal;

/// Most bytes that are set aside for a body on the strength of its announced length alone.
pub(super) const TRUSTED_LENGTH: u64 = 1024 * 1024;

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

    /// All of it, for which its client was waited for so long.
    pub(super) fn whole(self, took: Duration) -> Whole {
        Whole::new(self.bytes.into(), took, self.taken)
    }
}

/// A whole body, and its part of the room.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    /// What the client sent.
    pub(super) bytes: Bytes,
    /// How long its client was waited for until the last of it was in: no time where it was there when it was looked for. To unpack it is a
    /// part of this.
    pub(super) took: Duration,
    _taken: Option<Arc<Taken>>,
}

impl Whole {
    /// A body for which its client was waited for so long, and its part of the room.
    pub(super) fn new(bytes: Bytes, took: Duration, taken: Option<Taken>) -> Whole {
        Whole { bytes, took, _taken: taken.map(Arc::new) }
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
    pub(super) last: LastWait,
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
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        this.last.poll(cx).map(|()| Some(Err(axum::Error::new(BrokenOff(gone())))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What is said of a body that has not come whole when the server goes.
pub(super) fn gone() -> Refusal {
    let message =
        format!("the server is going, and the request's body took longer than {LAST_PATIENCE:?} from then on");
    Refusal::new(StatusCode::REQUEST_TIMEOUT, message).retry_after(Duration::from_secs(1)).and_close()
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

/// What `read` reads of a body, on a thread for blocking work where that takes long.
pub(super) async fn reading<T: Send + 'static>(
    whole: &Whole,
    is_long: bool,
    read: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> Result<T, Refusal> {
    if !is_long {
        return Ok(read(&whole.bytes));
    }
    let whole = whole.clone();
    let read = move || {
        let whole = whole; // all of it, not its bytes alone
        read(&whole.bytes)
    };
    long(read).await
}

/// Runs a conversion on a thread for blocking work. Where the caller leaves before it begins, it does not. Where he leaves meanwhile, it runs to
/// its end and is dropped: what it takes of the room it has to hold itself until then.
pub(super) async fn long<T: Send + 'static>(convert: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let mut conversion = JoinSet::new();
    conversion.spawn_blocking(convert);
    let converted = conversion.join_next().await.and_then(Result::ok);
    converted.ok_or_else(|| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error"))
}

/// Whether anybody waits for what is made on a thread for blocking work.
#[derive(Debug, Clone)]
pub(super) struct Wanted(Weak<()>);

/// Who waits for it.
#[derive(Debug, Default)]
pub(super) struct Waits(Arc<()>);

impl Waits {
    /// What tells whether this one waits: until it is dropped.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted(Arc::downgrade(&self.0))
    }
}

impl Wanted {
    /// Whether anybody does.
    pub(super) fn is_so(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// The same as [`long`] of a conversion that asks now and then whether it is wanted: no longer where the caller has left.
pub(super) async fn long_while_wanted<T: Send + 'static>(
    convert: impl FnOnce(&Wanted) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let waits = Waits::default();
    let wanted = waits.wanted();
    let converted = long(move || convert(&wanted)).await;
    drop(waits);
    converted
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
    let trusted = announced.min(TRUSTED_LENGTH) as usize;
    let mut took = Duration::ZERO;
    loop {
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => {
                // While it is waited for, what has come of it is counted, and keeps nothing alive but itself.
                if let Some(first) = first.take() {
                    joined.push(&first)?;
                }
                let since = Instant::now();
                let frame = body.frame().await;
                took += since.elapsed();
                frame
            }
        };
        let Some(frame) = frame else { break };
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
        joined.reserve(trusted.saturating_sub(joined.len()))?;
        if let Some(first) = first.take() {
            joined.push(&first)?;
        }
        joined.push(&data)?;
    }
    Ok(Some(match first {
        Some(first) => Whole::new(first, took, None),
        None => joined.whole(took),
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

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::sync::{oneshot, watch};
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A body of two pieces, of which the second comes so much later.
    fn two(later: Duration) -> Body {
        Body::from_stream(stream::unfold(0, move |i| async move {
            if i == 1 && !later.is_zero() {
                sleep(later).await;
            }
            (i < 2).then(|| (Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1024])), i + 1))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_waited_for_where_its_body_is_not_there_and_what_came_of_it_is_counted_meanwhile() {
        let read = async |later, room: usize| read(two(later), usize::MAX, &Options::default(), &Room::new(room)).await;
        let there = read(Duration::ZERO, 4096).await.unwrap();
        assert_eq!((there.bytes.len(), there.took), (2048, Duration::ZERO));
        let second = Duration::from_secs(1);
        assert_eq!(read(second, 4096).await.unwrap().took, second);
        let begun = Instant::now();
        assert_eq!(read(second, 512).await.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(begun.elapsed() < second, "the first piece alone is too much");
    }

    #[tokio::test]
    async fn a_conversion_hears_that_its_caller_has_left() {
        let ((begins, begun), (ends, ended)) = (oneshot::channel(), oneshot::channel());
        let mut converting = Box::pin(long_while_wanted(move |wanted| {
            begins.send(wanted.is_so()).unwrap();
            let since = std::time::Instant::now();
            while wanted.is_so() && since.elapsed() < Duration::from_secs(30) {
                std::thread::yield_now();
            }
            ends.send(()).unwrap();
        }));
        assert!(converting.as_mut().now_or_never().is_none());
        assert!(begun.await.unwrap(), "it is wanted at first");
        drop(converting);
        timeout(Duration::from_secs(20), ended).await.expect("it ends at once").unwrap();
    }

    #[test]
    fn a_conversion_whose_caller_leaves_before_it_begins_is_not_done() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (ends, ended) = std::sync::mpsc::channel::<()>();
            let _busy = tokio::task::spawn_blocking(move || ended.recv());
            let (does, done) = oneshot::channel();
            let mut converting = Box::pin(long(move || does.send(())));
            assert!(converting.as_mut().now_or_never().is_none());
            drop(converting);
            drop(ends);
            assert!(done.await.is_err(), "it was done for nobody");
        });
    }

    #[tokio::test]
    async fn a_body_keeps_its_part_of_the_room_while_it_is_read_though_its_caller_has_left() {
        let room = Room::new(4096);
        let whole = Whole::new(Bytes::from_static(b"body"), Duration::ZERO, Some(room.reserve(4096).unwrap()));
        let ((begins, begun), (ends, ended)) = (oneshot::channel(), std::sync::mpsc::channel());
        let mut reading = Box::pin(reading(&whole, true, move |_| {
            begins.send(()).unwrap();
            ended.recv()
        }));
        assert!(reading.as_mut().now_or_never().is_none());
        begun.await.unwrap();
        drop(reading);
        drop(whole);
        assert!(room.reserve(1).is_err(), "it is still read");
        ends.send(()).unwrap();
        let given_back = async {
            while room.reserve(1).is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), given_back).await.expect("its part is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_whole_is_not_waited_for_long_once_the_server_goes() {
        // A byte now and then, after which nothing comes: none at all, or one every 300 ms.
        let drips = |most: u32| {
            stream::unfold(0, move |i| async move {
                if i == most {
                    std::future::pending::<()>().await;
                }
                sleep(Duration::from_millis(300)).await;
                Some((std::io::Result::Ok(Bytes::from_static(b" ")), i + 1))
            })
        };
        for body in [drips(0), drips(10), drips(u32::MAX)] {
            let (goes, closing) = watch::channel(false);
            let (body, last) = (Body::from_stream(body), LastWait::new(&Arc::new(closing)));
            let mut waiting = Box::pin(Body::new(Followed { body, end: None, last }).collect());
            assert!(waiting.as_mut().now_or_never().is_none());
            goes.send_replace(true);
            let begun = Instant::now();
            let error = timeout(Duration::from_secs(60), waiting).await.expect("it ends").unwrap_err();
            assert_eq!(broken_off(&error).status(), StatusCode::REQUEST_TIMEOUT);
            assert!((LAST_PATIENCE..LAST_PATIENCE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        }
    }
}
