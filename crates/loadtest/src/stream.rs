//! A connection whose thread does not wait, over TCP or a Unix socket, secured or not.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::place::Address;
use super::tls::Tls;

/// The socket.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
            Address::Tcp(address) => TcpStream::connect(*address).map(Socket::Tcp),
            Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        }?;
        let tls = tls.map(|tls| tls.begin(http2).map(Box::new)).transpose()?;
        Ok(Stream { socket, tls })
    }

    /// What a poll watches.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match &mut self.socket {
            Socket::Tcp(stream) => stream,
            Socket::Unix(stream) => stream,
        }
    }

    /// Whether it is there, and secured where it is to be.
    ///
    /// # Errors
    /// Why it will never be.
    pub(super) fn is_there(&mut self) -> io::Result<bool> {
        let (error, peer) = match &self.socket {
            Socket::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            Socket::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        if let Some(error) = error {
            return Err(error);
        }
        match peer {
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            other => other?,
        }
        if let Socket::Tcp(stream) = &self.socket {
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
