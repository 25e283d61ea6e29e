//! Requests over HTTP/2 that wait for their clients, and how many each connection may have of them.
//!
//! A client closes its windows, asks for as much as it may, and takes nothing: each answer waits, until `write_timeout` ends it. Or it sends heads
//! whose bodies do not come: each waits until `body_timeout`. What waits is
//! bounded for all connections together, and each may have a part of what is left free, as with the [room](super::room) for bodies: the more
//! connections let answers wait, the fewer each of them may have. A few are always allowed, or a flood would cut off who reads or
//! sends slowly. A body that comes at a stroke with its head needs no place, and beyond its part a connection hears that a request is refused. With
//! answers it ends: what h2 keeps of a stream is kept as long as its connection, and the stream alone would give little
//! back.
//!
//! Whoever has no right has places of his own: what is refused by its head, and calls that ask for no right, take none from callers who have one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use http::StatusCode;
use hyper::body::{Frame, SizeHint};

use super::body::{BrokenOff, gone};
use super::closing::LastWait;
use super::status::Refusal;
use crate::metrics::TurnedAway;

/// Answers that nobody takes. At some two kilobytes they take 64 MB, and 590 where each has the sixteen that are counted nowhere else. A
/// connection that is alone may let all its answers wait.
const ANSWERS: Bounds = Bounds { most: 32 * 1024, part: 64, few: 8 };

/// Bodies that are waited for. Their heads take 12 kilobytes each and 45 at most, and so 100 and 370 MB; what has come of the bodies is counted elsewhere.
/// They have a quarter of the places, of which a connection that is alone may have as many.
const BODIES: Bounds = Bounds { most: 8 * 1024, part: 16, few: 4 };

/// Bodies that nobody wants, behind a refusal, and those of calls that ask for no right.
const STRANGERS: Bounds = Bounds { most: 4 * 1024, part: 8, few: 4 };

/// Streams of gRPC, also those on which nothing is under way.
const STREAMS: Bounds = Bounds { most: 8 * 1024, part: 16, few: 4 };

/// Connections that may have many requests open. What h2 keeps of a request is kept for the next as long as its connection: after 250 at once
/// an idle one takes 440 kilobytes, so all of these take 110 MB. After the few of another it takes a tenth.
const WIDE: Bounds = Bounds { most: 256, part: 1, few: 0 };

/// How many may wait.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Of all connections together, but for the few of each.
    most: usize,
    /// A connection may have one of so many places that are free.
    part: usize,
    /// Each connection may have as many at any time.
    few: usize,
}

/// Places of all connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Untaken {
    answers: Arc<AtomicUsize>,
    bodies: Arc<AtomicUsize>,
    strangers: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
    wide: Arc<AtomicUsize>,
}

/// Those of one connection.
#[derive(Debug, Clone)]
pub(super) struct OfConnection {
    answers: Arc<Counts>,
    bodies: Arc<Counts>,
    strangers: Arc<Counts>,
    streams: Arc<Counts>,
    is_over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Counts {
    bounds: Bounds,
    all: Arc<AtomicUsize>,
    own: AtomicUsize,
}

/// The place of one request, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Counts>);

impl Untaken {
    /// A place for a connection with many requests, as long as it lasts; `None` where enough have one.
    pub(super) fn wide(&self) -> Option<Place> {
        place(&Arc::new(Counts { bounds: WIDE, all: self.wide.clone(), own: AtomicUsize::new(0) }))
    }

    /// A connection without any.
    pub(super) fn of_connection(&self) -> OfConnection {
        let counts =
            |bounds, all: &Arc<AtomicUsize>| Arc::new(Counts { bounds, all: all.clone(), own: AtomicUsize::new(0) });
        OfConnection {
            answers: counts(ANSWERS, &self.answers),
            bodies: counts(BODIES, &self.bodies),
            strangers: counts(STRANGERS, &self.strangers),
            streams: counts(STREAMS, &self.streams),
            is_over: Arc::default(),
        }
    }
}

impl OfConnection {
    /// A place for an answer. Without one the connection is to end.
    pub(super) fn place_or_end(&self) -> Option<Place> {
        let place = place(&self.answers);
        self.is_over.fetch_or(place.is_none(), Ordering::Relaxed);
        place
    }

    /// A body whose request has a place while it waits for it, for as long as `last` says once the server goes.
    pub(super) fn awaited<B>(&self, body: B, last: LastWait) -> Awaited<B> {
        Awaited { body, of: self.clone(), is_strange: false, place: None, last }
    }

    /// A place for a stream of gRPC.
    pub(super) fn stream(&self) -> Result<Place, Refusal> {
        place(&self.streams).ok_or_else(|| {
            let message = "refused: as many streams are open as may; send more requests on those that are";
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).turned_away(TurnedAway::Streams);
            refusal.retry_after(Duration::from_secs(1))
        })
    }

    /// Whether it has gone beyond its part.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// A place for one more; `None` where the connection has its part.
fn place(counts: &Arc<Counts>) -> Option<Place> {
    let Counts { bounds, all, own } = &**counts;
    // Connections that look at the same moment may have one more each, which is no harm.
    let free = bounds.most.saturating_sub(all.load(Ordering::Relaxed));
    if own.load(Ordering::Relaxed) >= bounds.few.max(free / bounds.part) {
        return None;
    }
    all.fetch_add(1, Ordering::Relaxed);
    own.fetch_add(1, Ordering::Relaxed);
    Some(Place(counts.clone()))
}

impl Place {
    /// How many places of its kind are taken, this one among them.
    pub(super) fn taken(&self) -> usize {
        self.0.all.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Place(counts) = self;
        counts.all.fetch_sub(1, Ordering::Relaxed);
        counts.own.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a request, which breaks off where it does not come and there is no place to wait for it.
pub(super) struct Awaited<B> {
    body: B,
    of: OfConnection,
    is_strange: bool,
    place: Option<Place>,
    last: LastWait,
}

impl<B> Awaited<B> {
    /// The same body where no right is asked for, or where nobody wants it any more.
    pub(super) fn of_a_stranger(self) -> Awaited<B> {
        Awaited { is_strange: true, place: None, ..self }
    }
}

impl<B> HttpBody for Awaited<B>
where
    B: HttpBody<Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    type Data = B::Data;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, axum::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.place = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        if this.place.is_none() {
            this.place = place(if this.is_strange { &this.of.strangers } else { &this.of.bodies });
            if this.place.is_none() {
                let message = "refused: as many requests wait for their bodies as may; send a body behind its head";
                let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message);
                let refusal = refusal.turned_away(TurnedAway::Waiting).retry_after(Duration::from_secs(1));
                return Poll::Ready(Some(Err(axum::Error::new(BrokenOff(refusal)))));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as a connection gets, of 256 that it may ask for at once.
    fn all_of(counts: &Arc<Counts>) -> Vec<Place> {
        std::iter::from_fn(|| place(counts)).take(256).collect()
    }

    #[test]
    fn a_connection_alone_may_let_all_its_requests_wait_and_of_many_each_a_part() {
        let kinds: [fn(OfConnection) -> Arc<Counts>; 4] = [
            |connection| connection.answers,
            |connection| connection.bodies,
            |connection| connection.strangers,
            |connection| connection.streams,
        ];
        for of in kinds {
            let untaken = Untaken::default();
            let connections: Vec<_> = (0..4096).map(|_| of(untaken.of_connection())).collect();
            let Counts { bounds, all, .. } = &*connections[0];
            assert_eq!(all_of(&connections[0]).len(), 256);
            let held: Vec<_> = connections.iter().map(all_of).collect();
            let held_by_all = all.load(Ordering::Relaxed);
            assert_eq!(held_by_all, held.iter().map(Vec::len).sum::<usize>());
            assert!(held_by_all <= bounds.most + 4096 * bounds.few, "{held_by_all}");
            assert!(held.iter().all(|held| held.len() >= bounds.few));
            drop(held);
            assert_eq!(all.load(Ordering::Relaxed), 0);
            assert_eq!(all_of(&connections[0]).len(), 256, "all is given back");
        }
    }
}
