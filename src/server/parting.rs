//! How a client parts: whether one that sends no more waits for what it has asked, or has given up, or is gone.
//!
//! One that closes its side at a stroke with the last that it sends, as `nc -N` does, waits for its answer. One that has waited before it closes
//! has given up: until something is written to it, nothing else would tell. Whoever resets the connection is gone.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::socket::Socket;

/// How long it may take what a client does at a stroke: to send head and body apart, one right behind the other, and then to close its side.
pub(super) const MOMENT: Duration = Duration::from_millis(20);

/// The part of a latency cap that such a moment is at most: a caller who gives up has waited longer.
const PART: u32 = 4;

/// What is known of a client's end.
pub(super) struct Parting {
    /// Since when nothing more has come.
    quiet_since: Option<Instant>,
    moment: Duration,
    waits: bool,
    reset: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Parting {
    /// A client that may send.
    pub(super) fn new() -> Parting {
        Parting { quiet_since: None, moment: MOMENT, waits: false, reset: None }
    }

    /// Says that something was asked, to be answered within `cap` if it has one.
    pub(super) fn asked(&mut self, cap: Option<Duration>) {
        self.moment = cap.map_or(MOMENT, |cap| MOMENT.min(cap / PART));
    }

    /// Whether the client sends no more, and waits for what it is owed.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Reads from the client's socket.
    pub(super) fn poll_read(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if Pin::new(socket).poll_read(cx, buf)?.is_pending() {
            self.quiet_since.get_or_insert_with(Instant::now);
            return Poll::Pending;
        }
        if buf.filled().len() > before {
            self.quiet_since = None;
        } else {
            self.waits |= self.quiet_since.is_none_or(|since| since.elapsed() < self.moment);
        }
        Poll::Ready(Ok(()))
    }

    /// Completes when a client has reset the connection of which nothing more is read.
    pub(super) fn poll_reset(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<()> {
        let reset = self.reset.get_or_insert_with(|| Box::pin(socket.reset()));
        ready!(reset.as_mut().poll(cx));
        self.reset = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::super::socket::{Stream, Wire};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_closes_within_a_moment_waits_and_a_moment_is_a_quarter_of_the_cap_at_most() {
        let ms = Duration::from_millis;
        for (cap, later, waits) in [
            (None, ms(0), true),
            (None, ms(19), true),
            (None, ms(20), false),
            (Some(ms(1000)), ms(19), true),
            (Some(ms(1000)), ms(20), false),
            (Some(ms(20)), ms(4), true),
            (Some(ms(20)), ms(5), false),
        ] {
            let (own, mut other) = UnixStream::pair().unwrap();
            let mut socket = Socket::Plain(Wire::new(Stream::Unix(own)));
            let (mut parting, mut bytes) = (Parting::new(), [0; 8]);
            let mut read = ReadBuf::new(&mut bytes);
            other.write_all(b"a").await.unwrap();
            poll_fn(|cx| parting.poll_read(&mut socket, cx, &mut read)).await.unwrap();
            parting.asked(cap);
            let pending = poll_fn(|cx| Poll::Ready(parting.poll_read(&mut socket, cx, &mut read).is_pending()));
            assert!(pending.await);
            tokio::time::advance(later).await;
            drop(other);
            poll_fn(|cx| parting.poll_read(&mut socket, cx, &mut read)).await.unwrap();
            assert_eq!((read.filled(), parting.waits()), (&b"a"[..], waits), "{cap:?} {later:?}");
        }
    }
}
