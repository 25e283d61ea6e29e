//! A client's socket, which tells since when its bytes have waited.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Bytes read at once at most.
const SCRATCH: usize = 64 * 1024;

thread_local! {
    /// Where bytes come to first. One for each thread: what waits there for its request is nothing.
    static SCRATCH_OF_THREAD: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; SCRATCH]);
}

/// The socket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    /// When nothing more was there to be read, if that was ever seen: what comes later has waited no longer.
    empty_at: Option<Instant>,
}

/// Has the kernel note when bytes come, where it can, for all connections of a listener from their first byte on.
pub(super) fn stamp(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::socket::setsockopt(listener, nix::sys::socket::sockopt::ReceiveTimestampns, &true) {
        tracing::debug!(%error, "SO_TIMESTAMPNS");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}

impl Socket {
    /// A connection of a listener that stamps.
    pub(super) fn new(stream: TcpStream) -> Socket {
        Socket { stream, empty_at: None }
    }

    /// The stream itself, for what comes behind the last request.
    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads what is there, and says when the kernel received the last of it: the whole request, if that was small. Nothing
    /// is read at the end of what the client sends.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<Instant>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let mut received = None;
            let tried = self.stream.try_io(Interest::READABLE, || {
                SCRATCH_OF_THREAD.with_borrow_mut(|scratch| {
                    let room = buf.remaining().min(scratch.len());
                    let (length, age) = receive(&self.stream, &mut scratch[..room])?;
                    buf.put_slice(&scratch[..length]);
                    received = Some((length, age));
                    // Less than there was room for: the socket is empty, and asking it again would be in vain.
                    if (1..room).contains(&length) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                })
            });
            let before = self.empty_at;
            if let Some((_, age)) = received {
                let now = Instant::now();
                if tried.is_err() {
                    self.empty_at = Some(now);
                }
                // The kernel's time is the wall's, which may have been set meanwhile.
                let arrived = age.and_then(|age| now.checked_sub(age)).unwrap_or(now);
                let arrived = before.map_or(arrived, |before| arrived.max(before));
                return Poll::Ready(Ok(arrived));
            }
            match tried {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.empty_at = Some(Instant::now()),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => {}
            }
        }
    }

    /// As [`AsyncWrite::poll_write`].
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }
}

/// Reads, and says how long ago the last of it came.
#[cfg(target_os = "linux")]
fn receive(stream: &TcpStream, into: &mut [u8]) -> io::Result<(usize, Option<std::time::Duration>)> {
    use std::os::fd::AsRawFd;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use nix::sys::time::TimeSpec;

    let mut control = nix::cmsg_space!(TimeSpec);
    let mut slices = [io::IoSliceMut::new(into)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::empty())?;
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
        _ => None,
    });
    let age = stamp.and_then(|stamp| SystemTime::now().duration_since(UNIX_EPOCH + stamp).ok());
    Ok((message.bytes, age))
}

/// Reads; how long ago it came is not known here.
#[cfg(not(target_os = "linux"))]
fn receive(stream: &TcpStream, into: &mut [u8]) -> io::Result<(usize, Option<std::time::Duration>)> {
    Ok((stream.try_read(into)?, None))
}
