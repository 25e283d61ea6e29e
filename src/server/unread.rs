//! What a handler leaves of a body, as one does that refuses a request by its head.
//!
//! hyper closes a connection of HTTP/1 behind an answer where the body is not all read, and has told nobody: the client's next request on it
//! would be lost. So a little that is left is swallowed, and behind more the answer says that the connection ends.
//!
//! A stream of HTTP/2 would be reset. That is right (RFC 9113, section 8.1), and clients that are still sending, curl and httpx among
//! them, take it for a broken stream and never look at the answer. curl reads while it sends, and stops when it has read a refusal. httpx reads
//! when it has sent all of it. So the rest is swallowed behind the answer, as much as four good requests may have, however much was announced.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use http::Request;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use super::Options;
use super::untaken::Awaited;

/// Most bytes that are swallowed: a connection is worth that much, and no more.
const MOST: u64 = 256 * 1024;

/// Behind an answer of HTTP/2, so many times as much as a good request may have is swallowed, and at least `LEAST_BEHIND`: a client may have
/// a megabyte on its way before it can read anything, and more before it does.
const TIMES_BEHIND: u64 = 4;
const LEAST_BEHIND: u64 = 16 * 1024 * 1024;

/// How much is swallowed there, where a body may have `most` bytes.
pub(super) fn most_behind(most: usize) -> u64 {
    (most as u64).saturating_mul(TIMES_BEHIND).max(LEAST_BEHIND)
}

/// How long they may take. They are on their way when a head is answered, or the client waits for the answer first.
const PATIENCE: Duration = Duration::from_millis(500);

/// What was left of a body, once its handler is done.
pub(super) struct Unread<B> {
    left: Arc<Mutex<Option<B>>>,
    /// Whether the client sends a body only when it is told to, which reading it would do.
    is_expecting: bool,
}

/// A request's body, which is given back where its handler drops it unread.
struct Lent<B: HttpBody> {
    body: Option<B>,
    left: Arc<Mutex<Option<B>>>,
}

/// The same request for a handler, and what it will leave of its body, if it has one.
pub(super) fn lent<B>(request: Request<B>) -> (Request<Body>, Option<Unread<B>>)
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync> + Unpin + Send + 'static,
{
    if request.body().is_end_stream() {
        return (request.map(Body::new), None);
    }
    let left = Arc::default();
    let unread = Unread { left: Arc::clone(&left), is_expecting: request.headers().contains_key(EXPECT) };
    (request.map(|body| Body::new(Lent { body: Some(body), left })), Some(unread))
}

impl<B: HttpBody<Data = Bytes> + Unpin> Unread<B> {
    /// Swallows what is left. Says whether it came to its end, so that the connection can go on.
    pub(super) async fn swallow(self) -> bool {
        match self.left() {
            None => true,
            Some(body) if self.is_expecting || body.size_hint().lower() > MOST => false,
            Some(body) => swallow(body, MOST, PATIENCE).await,
        }
    }

    fn left(&self) -> Option<B> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<B> Unread<Awaited<B>>
where
    B: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    /// Swallows what is left behind the answer, which nobody waits for any more.
    pub(super) async fn swallow_behind(self, options: Arc<Options>) {
        if let Some(body) = self.left().filter(|_| !self.is_expecting) {
            swallow(body.of_a_stranger(), most_behind(options.max_body_bytes), options.body_timeout).await;
        }
    }
}

/// Swallows `most` bytes at most, and says whether that was all.
async fn swallow(mut body: impl HttpBody<Data = Bytes> + Unpin, most: u64, patience: Duration) -> bool {
    let swallow = async {
        let mut left = most;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
            let Some(less) = left.checked_sub(length) else { return false };
            left = less;
        }
        true
    };
    tokio::time::timeout(patience, swallow).await.unwrap_or(false)
}

impl<B: HttpBody> Drop for Lent<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

impl<B: HttpBody + Unpin> HttpBody for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if frame.is_none() {
            self.body = None; // it does not say itself that it has ended where it came in chunks
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}
