//! One connection, and at most one request on it at a time.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use mio::{Interest, Registry, Token};

use super::http2::Http2;
use super::place::{Address, Speech};
use super::stream::{Shared, Stream};
use super::wire::{Answer, IN_THE_MIDDLE, Reader, WITHOUT_AN_ANSWER};

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

impl Request {
    /// Whether its time is over: `timeout` after it was due.
    pub(super) fn is_over(&self, at: Duration, timeout: Duration) -> bool {
        self.due + timeout <= at
    }
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
    /// The same, but the request's time is over; the connection can be used again once its answer is there.
    Unwanted { sent: Duration },
}

impl State {
    /// The request whose time is over at `now`, `timeout` after it was due, and when it was sent.
    pub(super) fn timed_out(&self, now: Duration, timeout: Duration) -> Option<(Request, Duration)> {
        match *self {
            State::Busy { request, sent, .. } if request.is_over(now, timeout) => Some((request, sent)),
            _ => None,
        }
    }

    /// Whether the server has said nothing for `timeout` since it was asked, or did not take the connection for as long. A request that
    /// was sent late has no time left for an answer; that is not the server's fault, and no reason to connect anew.
    pub(super) fn is_given_up(&self, now: Duration, timeout: Duration) -> bool {
        match *self {
            State::Connecting(since) | State::Unwanted { sent: since } => since + timeout <= now,
            State::Idle(_) | State::Busy { .. } => false,
        }
    }
}

pub(super) struct Connection {
    stream: Shared,
    protocol: Protocol,
    pub(super) state: State,
    /// Tells it from an earlier one in the same place.
    pub(super) serial: u64,
}

enum Protocol {
    One {
        reader: Reader,
        /// What did not fit into the socket's buffer.
        unsent: Vec<u8>,
    },
    Two(Box<Http2>),
}

impl Connection {
    pub(super) fn open(
        address: &Address,
        speech: &Speech,
        registry: &Registry,
        token: Token,
        serial: u64,
        now: Duration,
    ) -> io::Result<Connection> {
        let mut stream = Stream::connect(address, speech.tls.as_ref(), speech.http2)?;
        registry.register(stream.source(), token, Interest::READABLE | Interest::WRITABLE)?;
        let stream = Shared(Rc::new(RefCell::new(stream)));
        let protocol = match speech.http2 {
            true => Protocol::Two(Box::new(Http2::new(stream.clone(), speech.tls.is_some()))),
            false => Protocol::One { reader: Reader::default(), unsent: Vec::new() },
        };
        Ok(Connection { stream, protocol, state: State::Connecting(now), serial })
    }

    /// No poll watches it from now on.
    pub(super) fn forget(&mut self, registry: &Registry) {
        // It is closed in any case.
        let _ = registry.deregister(self.stream.0.borrow_mut().source());
    }

    /// Whether it is there, now that something happened to it.
    ///
    /// # Errors
    /// Why it will never be.
    pub(super) fn is_connected(&mut self) -> Result<bool, &'static str> {
        let is_there = self.stream.0.borrow_mut().is_there();
        match (is_there.map_err(|error| broken(&error))?, &mut self.protocol) {
            (true, Protocol::Two(http2)) => http2.is_open(),
            (is_there, _) => Ok(is_there),
        }
    }

    /// Whether nothing has come that nobody asked for, the end least of all, now that something happened to it.
    pub(super) fn is_idle(&mut self, buffer: &mut [u8]) -> bool {
        match &mut self.protocol {
            Protocol::Two(http2) => http2.is_alive(),
            Protocol::One { .. } => {
                let read = self.stream.0.borrow_mut().read(buffer);
                read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
        }
    }

    /// Whether sending may have read the begin of the answer: no event will tell of it.
    pub(super) fn reads_ahead(&self) -> bool {
        matches!(self.protocol, Protocol::Two(_))
    }

    /// How long ago the last of what was heard came, where the kernel says so.
    pub(super) fn age(&self) -> Option<Duration> {
        self.stream.0.borrow().age()
    }

    /// Whether part of an answer is there.
    pub(super) fn has_part(&self) -> bool {
        match &self.protocol {
            Protocol::One { reader, .. } => reader.has_part(),
            Protocol::Two(http2) => http2.has_part(),
        }
    }

    /// Sends as much of `bytes` as goes; the rest follows with [`go_on`](Self::go_on).
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        match &mut self.protocol {
            Protocol::Two(http2) => http2.send(bytes),
            Protocol::One { unsent, .. } => {
                let sent = write(&mut self.stream.0.borrow_mut(), bytes).map_err(|error| broken(&error))?;
                unsent.extend_from_slice(&bytes[sent..]);
                Ok(())
            }
        }
    }

    /// Sends what is left of the request.
    pub(super) fn go_on(&mut self) -> Result<(), &'static str> {
        // Where h2 has bytes left, it sends them when it is asked what came.
        let Protocol::One { unsent, .. } = &mut self.protocol else { return Ok(()) };
        let mut stream = self.stream.0.borrow_mut();
        let sent = write(&mut stream, unsent).and_then(|sent| stream.flush().map(|_| sent));
        unsent.drain(..sent.map_err(|error| broken(&error))?);
        Ok(())
    }

    /// Whether nothing is left of the request: a server may answer before it has read all of it.
    pub(super) fn is_sent(&self) -> bool {
        // h2 keeps what belongs to one request from the next.
        if let Protocol::One { unsent, .. } = &self.protocol { unsent.is_empty() } else { true }
    }

    /// Hears what came; `then` is given the answer if it is whole.
    pub(super) fn hear<T>(
        &mut self,
        buffer: &mut [u8],
        mut then: impl FnMut(Answer<'_>) -> T,
    ) -> Result<Option<T>, &'static str> {
        let reader = match &mut self.protocol {
            Protocol::Two(http2) => return Ok(http2.hear()?.map(|heard| then(heard.answer()))),
            Protocol::One { reader, .. } => reader,
        };
        loop {
            let read = self.stream.0.borrow_mut().read(buffer);
            let told = match read {
                Ok(0) => {
                    let why = if reader.has_part() { IN_THE_MIDDLE } else { WITHOUT_AN_ANSWER };
                    return reader.close(&mut then).map(Some).ok_or(why);
                }
                Ok(length) => reader.read(&buffer[..length], &mut then).map_err(|malformed| malformed.0)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
                Err(error) => return Err(broken(&error)),
            };
            if told.is_some() {
                return Ok(told);
            }
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

pub(super) fn is_out_of_sockets(error: &io::Error) -> bool {
    // EMFILE and ENFILE, for which there is no kind.
    matches!(error.raw_os_error(), Some(23 | 24)) && cfg!(unix)
}

/// Where there was no connection as long as a request had time.
pub(super) const NOT_MADE: &str = "no connection was made in time";
/// The same where connections are to be secured.
pub(super) const NOT_SECURED: &str = "no connection was secured in time; does the server speak TLS there?";
const NO_PORT: &str = "no free port on this machine";
const NO_FILES: &str = "no more open files allowed (ulimit -n)";

/// Whether that says something of this machine, and nothing of the server.
pub(super) fn is_own_fault(word: &str) -> bool {
    [NO_PORT, NO_FILES].contains(&word)
}

/// A word about what went wrong, one of a few.
pub(super) fn broken(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the server refused the connection",
        io::ErrorKind::ConnectionReset => "the server reset the connection",
        io::ErrorKind::BrokenPipe | io::ErrorKind::WriteZero => "the server closed the connection while being asked",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "the server cannot be reached"
        }
        io::ErrorKind::AddrNotAvailable => NO_PORT,
        io::ErrorKind::UnexpectedEof => "the server closed the connection before it was secured",
        io::ErrorKind::InvalidData => certificate(error),
        _ if is_out_of_sockets(error) => NO_FILES,
        _ => "the connection broke",
    }
}

/// What TLS finds wrong.
fn certificate(error: &io::Error) -> &'static str {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "the server's certificate is not to be trusted; name its root with --ca, or take any with --insecure"
        }
        Some(rustls::Error::NoApplicationProtocol) => "the server does not speak that protocol over TLS",
        Some(rustls::Error::InvalidMessage(_)) => "the server does not speak TLS",
        _ => "the connection could not be secured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_over_from_due_on_and_its_connection_from_sending_on() {
        let ms = Duration::from_millis;
        let request = Request { number: 0, rows: 1, due: ms(100), taken: ms(100), again: false };
        let (timeout, sent) = (ms(1000), ms(900));
        let busy = State::Busy { request, sent, after_idling: ms(0) };
        assert!(busy.timed_out(ms(1099), timeout).is_none());
        assert!(busy.timed_out(ms(1100), timeout).is_some_and(|(_, at)| at == sent));
        assert!(!busy.is_given_up(ms(1899), timeout));
        let unwanted = State::Unwanted { sent };
        assert!(unwanted.timed_out(ms(1900), timeout).is_none(), "it is counted once");
        assert!(!unwanted.is_given_up(ms(1899), timeout) && unwanted.is_given_up(ms(1900), timeout));
        assert!(State::Connecting(ms(0)).is_given_up(ms(1000), timeout));
        assert!(!State::Idle(ms(0)).is_given_up(ms(9000), timeout));
    }
}
