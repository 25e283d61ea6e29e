//! A client's socket, which tells since when its bytes have waited: TCP, TLS over it, or a Unix socket.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

/// Bytes read at once at most.
const SCRATCH: usize = 64 * 1024;

thread_local! {
    /// Where bytes come to first. One for each thread: what waits there for its request is nothing.
    static SCRATCH_OF_THREAD: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; SCRATCH]);
}

/// What the system gives for a connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection as it comes from the system.
#[derive(Debug)]
pub(super) struct Wire {
    /// Shared with whoever waits for its [reset](Socket::reset).
    stream: Arc<Stream>,
    /// When nothing more was there to be read, if that was ever seen: what comes later has waited no longer.
    empty_at: Option<Instant>,
    /// When the kernel received the last of what was read.
    heard: Instant,
}

/// A connection as its requests come from it.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(Wire),
    Tls(Box<TlsStream<Wire>>),
}

/// Has the kernel note when bytes come, where it can, for all connections of a listener from their first byte on.
pub(super) fn stamp(listener: &impl AsFd) {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::socket::setsockopt(listener, nix::sys::socket::sockopt::ReceiveTimestampns, &true) {
        tracing::debug!(%error, "SO_TIMESTAMPNS");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}

impl Stream {
    /// The same connection, for the runtime of the calling thread.
    pub(super) fn moved_here(self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream.into_std()?)?),
            Stream::Unix(stream) => Stream::Unix(UnixStream::from_std(stream.into_std()?)?),
        })
    }

    /// The first byte, which stays to be read; `None` where the client goes without one, and on a Unix socket.
    pub(super) async fn first_byte(&self) -> io::Result<Option<u8>> {
        let Stream::Tcp(stream) = self else { return Ok(None) };
        let mut byte = [0];
        Ok((stream.peek(&mut byte).await? > 0).then_some(byte[0]))
    }

    /// Writes `bytes` as far as they go at once, and closes. What the client has sent until now is swallowed: unread, it would have the
    /// system send a reset, which destroys what the client has not read yet.
    pub(super) fn leave_with(self, bytes: &[u8]) -> io::Result<()> {
        fn leave(mut stream: impl io::Read + io::Write, bytes: &[u8]) -> io::Result<()> {
            stream.write_all(bytes)?;
            let _ = stream.read(&mut [0; 16 * 1024])?;
            Ok(())
        }
        match self {
            Stream::Tcp(stream) => leave(stream.into_std()?, bytes),
            Stream::Unix(stream) => leave(stream.into_std()?, bytes),
        }
    }

    /// Who is at the other end, where that has an address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        if let Stream::Tcp(stream) = self { stream.peer_addr().ok() } else { None }
    }

    fn poll_write_with(&self, cx: &mut Context<'_>, write: impl Fn() -> io::Result<usize>) -> Poll<io::Result<usize>> {
        loop {
            ready!(match self {
                Stream::Tcp(stream) => stream.poll_write_ready(cx),
                Stream::Unix(stream) => stream.poll_write_ready(cx),
            })?;
            match write() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    fn try_read(&self, read: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.try_io(Interest::READABLE, read),
            Stream::Unix(stream) => stream.try_io(Interest::READABLE, read),
        }
    }

    /// Reads, and says how long ago the last of it came.
    #[cfg(target_os = "linux")]
    fn receive(&self, into: &mut [u8]) -> io::Result<(usize, Option<std::time::Duration>)> {
        use std::os::fd::AsRawFd;
        use std::time::{Duration, SystemTime, UNIX_EPOCH};

        use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
        use nix::sys::time::TimeSpec;

        let descriptor = match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        };
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut slices = [io::IoSliceMut::new(into)];
        let message = recvmsg::<()>(descriptor, &mut slices, Some(&mut control), MsgFlags::empty())?;
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        });
        let age = stamp.and_then(|stamp| SystemTime::now().duration_since(UNIX_EPOCH + stamp).ok());
        Ok((message.bytes, age))
    }

    /// Whether more has come than was read.
    #[cfg(target_os = "linux")]
    fn has_unread(&self) -> bool {
        use std::os::fd::AsRawFd;

        use nix::sys::socket::{MsgFlags, recv};

        let looks = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.as_fd().as_raw_fd(), &mut [0], looks).is_ok_and(|bytes| bytes > 0)
    }

    /// The same where that is not known.
    #[cfg(not(target_os = "linux"))]
    fn has_unread(&self) -> bool {
        true
    }

    /// Reads; how long ago it came is not known here.
    #[cfg(not(target_os = "linux"))]
    fn receive(&self, into: &mut [u8]) -> io::Result<(usize, Option<std::time::Duration>)> {
        let length = match self {
            Stream::Tcp(stream) => stream.try_read(into),
            Stream::Unix(stream) => stream.try_read(into),
        };
        Ok((length?, None))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Wire {
    /// A connection of a listener that [stamps](stamp).
    pub(super) fn new(stream: Stream) -> Wire {
        Wire { stream: Arc::new(stream), empty_at: None, heard: Instant::now() }
    }

    /// The first byte, as [`Stream::first_byte`] has it.
    pub(super) async fn first_byte(&self) -> io::Result<Option<u8>> {
        self.stream.first_byte().await
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            ready!(this.stream.poll_read_ready(cx))?;
            let mut received = None;
            let tried = this.stream.try_read(|| {
                SCRATCH_OF_THREAD.with_borrow_mut(|scratch| {
                    let room = buf.remaining().min(scratch.len());
                    let (length, age) = this.stream.receive(&mut scratch[..room])?;
                    buf.put_slice(&scratch[..length]);
                    received = Some(age);
                    // Less than there was room for: the socket is empty, and asking it again would be in vain.
                    if (1..room).contains(&length) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                })
            });
            let before = this.empty_at;
            if let Some(age) = received {
                let now = Instant::now();
                if tried.is_err() {
                    this.empty_at = Some(now);
                }
                // The kernel's time is the wall's, which may have been set meanwhile.
                let arrived = age.and_then(|age| now.checked_sub(age)).unwrap_or(now);
                this.heard = before.map_or(arrived, |before| arrived.max(before));
                return Poll::Ready(Ok(()));
            }
            match tried {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => this.empty_at = Some(Instant::now()),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => {}
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write_with(cx, || match &*self.stream {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_with(cx, || match &*self.stream {
            Stream::Tcp(stream) => stream.try_write_vectored(slices),
            Stream::Unix(stream) => stream.try_write_vectored(slices),
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // nothing is kept here
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = SockRef::from(&*self.stream);
        Poll::Ready(stream.shutdown(Shutdown::Write))
    }
}

/// Calls a method of whichever stream is meant.
macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self {
            Socket::Plain($stream) => $call,
            Socket::Tls($stream) => $call,
        }
    };
}

impl Socket {
    /// Whether it speaks TLS.
    pub(super) fn is_secured(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// Whether more has come than was read. To close it over that resets the connection, and what the other end has not taken yet of
    /// its answers is lost (RFC 9112, section 9.6).
    pub(super) fn has_unread(&self) -> bool {
        self.wire().stream.has_unread()
    }

    /// Who is at the other end, where that has an address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.wire().stream.peer()
    }

    /// Returns when the other end has reset the connection, which reading does not tell behind the end of what it sends.
    pub(super) fn reset(&self) -> impl Future<Output = ()> + Send + use<> {
        let stream = Arc::clone(&self.wire().stream);
        async move {
            // Where even that cannot be known, nothing is.
            let _ = match &*stream {
                Stream::Tcp(stream) => stream.ready(Interest::ERROR).await,
                Stream::Unix(stream) => stream.ready(Interest::ERROR).await,
            };
        }
    }

    /// When the kernel received the last of what was read last: the whole request, if that was small.
    pub(super) fn heard(&self) -> Instant {
        self.wire().heard
    }

    fn wire(&self) -> &Wire {
        match self {
            Socket::Plain(wire) => wire,
            Socket::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}
