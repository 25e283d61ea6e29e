//! A connection whose thread does not wait, over TCP or a Unix socket, secured or not.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
#[cfg(target_os = "linux")]
use std::time::UNIX_EPOCH;
use std::time::{Duration, SystemTime};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::place::Address;
use super::tls::Tls;

/// The socket, and when the kernel had the last that was read of it, where it says so.
struct Socket {
    wire: Wire,
    came: Option<SystemTime>,
}

enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn new(wire: Wire) -> Socket {
        #[cfg(target_os = "linux")]
        // Where it cannot be had, what comes has come when it is read.
        let _ = nix::sys::socket::setsockopt(&wire, nix::sys::socket::sockopt::ReceiveTimestampns, &true);
        Socket { wire, came: None }
    }
}

impl Read for Socket {
    #[cfg(target_os = "linux")]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::fd::{AsFd, AsRawFd};

        use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let mut slices = [io::IoSliceMut::new(buffer)];
        let descriptor = self.wire.as_fd().as_raw_fd();
        let message = recvmsg::<()>(descriptor, &mut slices, Some(&mut control), MsgFlags::empty())?;
        self.came = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(UNIX_EPOCH + Duration::from(stamp)),
            _ => None,
        });
        Ok(message.bytes)
    }

    #[cfg(not(target_os = "linux"))]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.wire {
            Wire::Tcp(stream) => stream.read(buffer),
            Wire::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.wire {
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Wire {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Wire::Tcp(stream) => stream.as_fd(),
            Wire::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A connection.
pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<rustls::ClientConnection>>,
}

impl Stream {
    pub(super) fn connect(address: &Address, tls: Option<&Tls>, http2: bool) -> io::Result<Stream> {
        let socket = match address {
            Address::Tcp(address) => TcpStream::connect(*address).map(Wire::Tcp),
            Address::Unix(path) => UnixStream::connect(path).map(Wire::Unix),
        }?;
        let socket = Socket::new(socket);
        let tls = tls.map(|tls| tls.begin(http2).map(Box::new)).transpose()?;
        Ok(Stream { socket, tls })
    }

    /// What a poll watches.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match &mut self.socket.wire {
            Wire::Tcp(stream) => stream,
            Wire::Unix(stream) => stream,
        }
    }

    /// Whether it is there, and secured where it is to be.
    ///
    /// # Errors
    /// Why it will never be.
    pub(super) fn is_there(&mut self) -> io::Result<bool> {
        let (error, peer) = match &self.socket.wire {
            Wire::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Wire::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        if let Some(error) = error {
            return Err(error);
        }
        match peer {
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            other => other?,
        }
        if let Wire::Tcp(stream) = &self.socket.wire {
            // An answer's last bytes wait for nothing; where that cannot be had, it is only slower.
            let _ = stream.set_nodelay(true);
        }
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.is_handshaking() {
            if would_block(tls.complete_io(&mut self.socket))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How long ago the kernel had the last that was read, where it says so. Whoever has much to do reads later than it came.
    pub(super) fn age(&self) -> Option<Duration> {
        self.socket.came.map(|came| SystemTime::now().duration_since(came).unwrap_or_default())
    }

    /// Reads what is there; 0 is the end. `WouldBlock` where nothing is.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Many a server closes without saying goodbye.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// Writes as much as goes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        let taken = tls.writer().write(bytes)?;
        self.flush()?;
        if taken == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends what is sealed and did not go; whether nothing is left.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            if would_block(tls.write_tls(&mut self.socket))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Nothing, where the socket has nothing or takes nothing at present.
fn would_block<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same for what polls: whoever owns it polls again whenever something happens to the socket, so nobody is woken.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Rc<RefCell<Stream>>);

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match would_block(self.0.borrow_mut().read(buffer.initialize_unfilled())) {
            Ok(Some(length)) => {
                buffer.advance(length);
                Poll::Ready(Ok(()))
            }
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match would_block(self.0.borrow_mut().write(bytes)) {
            Ok(Some(length)) => Poll::Ready(Ok(length)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.borrow_mut().flush() {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_read_late_has_come_when_the_kernel_had_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = Stream::connect(&Address::Tcp(listener.local_addr().unwrap()), None, false).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        while !stream.is_there().unwrap() {}
        assert_eq!(stream.age(), None, "nothing was read");
        let late = Duration::from_millis(5);
        // The system begins to stamp some time after it was asked to.
        let mut stamped = 0;
        for byte in 0..=u8::MAX {
            server.write_all(&[byte]).unwrap();
            let written = Instant::now();
            while written.elapsed() < late {
                std::hint::spin_loop();
            }
            let mut buffer = [0; 2];
            while would_block(stream.read(&mut buffer)).unwrap().is_none() {}
            let Some(age) = stream.age() else { continue };
            assert!(age >= late, "{age:?}");
            stamped += 1;
            if stamped == 2 {
                return;
            }
        }
        panic!("nothing is stamped");
    }
}
