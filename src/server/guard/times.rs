//! How long the guarded connection waits for its client.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::super::timer::poll_deadline;
use super::{Guard, Phase};

impl Guard {
    /// Whether an answer of hyper's is to come, or to be taken. Sending it wakes the connection.
    pub(super) fn owes(&self) -> bool {
        !self.outstanding.none() || self.writing_since.is_some()
    }

    /// How long the client may keep the server waiting now; `None` where it is the server's turn, or the body's own
    /// clock runs.
    fn patience(&self) -> Option<Duration> {
        match self.phase {
            Phase::Unwanted(_) => Some(self.body_timeout),
            _ if !self.outstanding.none() => None,
            Phase::Head if self.greeted && self.head.is_empty() => Some(self.idle_timeout),
            Phase::Head => Some(self.head_timeout),
            Phase::Body(_) | Phase::Chunks(_) | Phase::Last | Phase::Refused => None,
        }
    }

    /// Whether the connection does nothing but wait for the client's next request. No answer of HTTP/1 is made while it is sent: what is left of one
    /// waits for the socket.
    fn rests(&self) -> bool {
        let is_between = self.phase == Phase::Head && self.greeted && self.head.is_empty() && self.ahead.is_empty();
        is_between && !self.owes() && !self.is_flushing
    }

    /// Called when nothing can be read: completes when the client's time is up, or the connection is to make room for another.
    pub(super) fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(patience) = self.patience() else {
            self.reading_since = None;
            self.rest.ends();
            return Poll::Pending;
        };
        let since = *self.reading_since.get_or_insert_with(Instant::now);
        if !self.rests() {
            self.rest.ends();
        } else if self.rest.poll_asked(since, &mut self.read_timer, cx).is_ready() {
            return Poll::Ready(());
        }
        poll_deadline(&mut self.read_timer, since + patience, cx)
    }

    /// Turns a write that does not move into an error when the client's time is up.
    pub(super) fn watch_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.writing_since = None;
            // A long answer that is being taken is no idle connection: its clock begins anew with each piece. It is set
            // here because hyper does not read again behind an answer; it waits for the wake-up of its last attempt.
            self.reading_since = None;
            if self.refusal.is_some() || self.parting.waits() {
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
