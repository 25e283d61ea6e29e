//! One connection, and at most one request on it at a time.

use std::io::{self, Read, Write};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use super::place::Address;
use super::wire::Reader;

/// A connection whose thread does not wait.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tcp(address) => TcpStream::connect(*address).map(Stream::Tcp),
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// What a poll watches.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Stream::Tcp(stream) => stream.take_error(),
            Stream::Unix(stream) => stream.take_error(),
        }
    }

    /// Fails with `NotConnected` until it is there.
    fn peer(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.peer_addr()?;
                // An answer's last bytes wait for nothing; where that cannot be had, it is only slower.
                let _ = stream.set_nodelay(true);
                Ok(())
            }
            Stream::Unix(stream) => stream.peer_addr().map(drop),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }
}

/// A request on its way. Times are since the begin of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) rows: usize,
    pub(super) due: Duration,
    pub(super) taken: Duration,
    /// It was sent once before, on a connection that the server had closed.
    pub(super) again: bool,
}

/// What a connection is doing.
#[derive(Debug)]
pub(super) enum State {
    /// It is not there yet; since when.
    Connecting(Duration),
    /// Nothing is asked; since when.
    Idle(Duration),
    /// A request was sent, at least in part.
    Busy {
        request: Request,
        sent: Duration,
        /// How long it was idle before.
        after_idling: Duration,
    },
}

pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) state: State,
    pub(super) reader: Reader,
    /// Tells it from an earlier one in the same place.
    pub(super) serial: u64,
    /// What did not fit into the socket's buffer.
    unsent: Vec<u8>,
}

impl Connection {
    pub(super) fn open(
        address: &Address,
        registry: &Registry,
        token: Token,
        serial: u64,
        now: Duration,
    ) -> io::Result<Connection> {
        let mut stream = Stream::connect(address)?;
        registry.register(stream.source(), token, Interest::READABLE | Interest::WRITABLE)?;
        let state = State::Connecting(now);
        Ok(Connection { stream, state, reader: Reader::default(), serial, unsent: Vec::new() })
    }

    /// Whether it is there, now that something happened to it.
    ///
    /// # Errors
    /// Why it will never be.
    pub(super) fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends as much of `bytes` as goes; the rest follows with [`go_on`](Self::go_on).
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = write(&mut self.stream, bytes)?;
        if sent < bytes.len() {
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
        Ok(())
    }

    /// Sends what is left of the request.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let sent = write(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..sent);
        Ok(())
    }

    /// Reads what is there; `None` if nothing is.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            return match self.stream.read(buffer) {
                Ok(length) => Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }
}

/// Writes until all is written or the socket takes no more.
fn write(stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => sent += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
