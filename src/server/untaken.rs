//! Requests over HTTP/2 that wait for their clients, and how many each connection may have of them.
//!
//! A client closes its windows, asks for as much as it may, and takes nothing: each answer waits, until `write_timeout` ends it. Or it sends heads
//! whose bodies do not come: each waits until `body_timeout`. What waits is
//! bounded for all connections together, and each may have a part of what is left free, as with the [room](super::room) for bodies: the more
//! connections let answers wait, the fewer each of them may have. A few are always allowed, or a flood would cut off who reads or
//! sends slowly. A body that comes at a stroke with its head needs no place, and beyond its part a connection hears that a request is refused. With
//! answers it ends: what h2 keeps of a stream is kept as long as its connection, and the stream alone would give little
//! back.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use http::StatusCode;
use hyper::body::{Frame, SizeHint};

use super::body::BrokenOff;
use super::status::Refusal;

/// Requests of all connections that may wait, but for the few of each. At some two kilobytes of an answer they take 64 MB, and by their heads,
/// where bodies are waited for, as many times what a head takes.
const MOST: usize = 32 * 1024;

/// A connection may have this part of those places that are free. One that is alone may let all its requests wait.
const PART: usize = 64;

/// Each connection may have as many at any time.
const FEW: usize = 8;

/// Places of all connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Untaken(Arc<AtomicUsize>);

/// Those of one connection.
#[derive(Debug, Clone)]
pub(super) struct OfConnection(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    all: Untaken,
    own: AtomicUsize,
    is_over: AtomicBool,
}

/// The place of one request, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(OfConnection);

impl Untaken {
    /// A connection without any.
    pub(super) fn of_connection(&self) -> OfConnection {
        OfConnection(Arc::new(Counts { all: self.clone(), own: AtomicUsize::new(0), is_over: AtomicBool::new(false) }))
    }
}

impl OfConnection {
    /// A place for one more; `None` where the connection has its part.
    fn place(&self) -> Option<Place> {
        let Counts { all: Untaken(all), own, .. } = &*self.0;
        // Connections that look at the same moment may have one more each, which is no harm.
        let free = MOST.saturating_sub(all.load(Ordering::Relaxed));
        if own.load(Ordering::Relaxed) >= FEW.max(free / PART) {
            return None;
        }
        all.fetch_add(1, Ordering::Relaxed);
        own.fetch_add(1, Ordering::Relaxed);
        Some(Place(self.clone()))
    }

    /// The same for an answer: without a place the connection is to end.
    pub(super) fn place_or_end(&self) -> Option<Place> {
        let place = self.place();
        self.0.is_over.fetch_or(place.is_none(), Ordering::Relaxed);
        place
    }

    /// A body whose request has a place while it waits for it.
    pub(super) fn awaited<B>(&self, body: B) -> Awaited<B> {
        Awaited { body, connection: self.clone(), place: None }
    }

    /// Whether it has gone beyond its part.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let OfConnection(counts) = &self.0;
        counts.all.0.fetch_sub(1, Ordering::Relaxed);
        counts.own.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a request, which breaks off where it does not come and there is no place to wait for it.
pub(super) struct Awaited<B> {
    body: B,
    connection: OfConnection,
    place: Option<Place>,
}

impl<B> HttpBody for Awaited<B>
where
    B: HttpBody<Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    type Data = B::Data;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.place = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        if self.place.is_none() {
            self.place = self.connection.place();
            if self.place.is_none() {
                let message = "refused: as many requests wait for their bodies as may; send a body behind its head";
                let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message);
                let refusal = refusal.retry_after(Duration::from_secs(1));
                return Poll::Ready(Some(Err(axum::Error::new(BrokenOff(refusal)))));
            }
        }
        Poll::Pending
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
    fn all_of(connection: &OfConnection) -> Vec<Place> {
        std::iter::from_fn(|| connection.place()).take(256).collect()
    }

    #[test]
    fn a_connection_alone_may_let_all_its_requests_wait_and_of_many_each_a_part() {
        let untaken = Untaken::default();
        let alone = all_of(&untaken.of_connection());
        assert_eq!(alone.len(), 256);
        drop(alone);
        let connections: Vec<_> = (0..4096).map(|_| untaken.of_connection()).collect();
        let held: Vec<_> = connections.iter().map(all_of).collect();
        let all = untaken.0.load(Ordering::Relaxed);
        assert_eq!(all, held.iter().map(Vec::len).sum::<usize>());
        assert!(all <= MOST + 4096 * FEW && held.iter().all(|held| held.len() >= FEW), "{all}");
        drop(held);
        assert_eq!(untaken.0.load(Ordering::Relaxed), 0);
        assert_eq!(all_of(&connections[0]).len(), 256, "all is given back");
    }
}
