//! Where clients connect: addresses of TCP and paths of Unix sockets, any number of them.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream, lookup_host};

use super::socket::{self, Stream};

/// What an address begins with that is the path of a Unix socket.
pub(crate) const UNIX: &str = "unix:";

/// Connections that the system may hold until they are accepted, if it lets so many: all clients of a server that comes back ask
/// again at once, and one that finds no room tries again after a second.
const BACKLOG: u32 = 16_384;

/// One of them.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile),
}

/// The path of a Unix socket, which goes with its listener.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// With the real port.
    Tcp(SocketAddr),
    /// A Unix socket. Who may open the file may ask.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl Listener {
    /// Takes hold of `address`: `host:port`, where port 0 takes a free one, or `unix:PATH`.
    pub(super) async fn open(address: &str) -> io::Result<Listener> {
        if let Some(path) = address.strip_prefix(UNIX) {
            return open_unix(Path::new(path)).await;
        }
        let mut last = None;
        for address in lookup_host(address).await? {
            match open_tcp(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")))
    }

    /// Where it listens.
    pub(super) fn address(&self) -> Address {
        match self {
            Listener::Tcp(_, address) => Address::Tcp(*address),
            Listener::Unix(_, file) => Address::Unix(file.0.clone()),
        }
    }

    /// The same, for the runtime of the calling thread.
    pub(super) fn moved_here(self) -> io::Result<Listener> {
        Ok(match self {
            Listener::Tcp(listener, address) => Listener::Tcp(TcpListener::from_std(listener.into_std()?)?, address),
            Listener::Unix(listener, file) => Listener::Unix(UnixListener::from_std(listener.into_std()?)?, file),
        })
    }

    /// The next connection.
    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        match self {
            Listener::Tcp(listener, _) => listener.poll_accept(cx).map_ok(|(stream, _)| {
                // Answers are written in one piece; waiting for more to send would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY");
                }
                Stream::Tcp(stream)
            }),
            Listener::Unix(listener, _) => listener.poll_accept(cx).map_ok(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

/// The next connection of any listener, beginning with the one at `first`.
pub(super) fn accept_any(listeners: &[Listener], first: usize, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
    let (before, behind) = listeners.split_at(first);
    behind.iter().chain(before).map(|listener| listener.poll_accept(cx)).find(Poll::is_ready).unwrap_or(Poll::Pending)
}

/// Whether an accept failed for the sake of the one connection that it would have returned.
pub(super) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Nobody listens there any more. It may be gone already.
        let _ = fs::remove_file(&self.0);
    }
}

fn open_tcp(address: SocketAddr) -> io::Result<Listener> {
    let unbound = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As tokio does: a server that was just ended leaves the address behind for a while.
    #[cfg(not(windows))]
    unbound.set_reuseaddr(true)?;
    unbound.bind(address)?;
    let listener = unbound.listen(BACKLOG)?;
    socket::stamp(&listener);
    let address = listener.local_addr()?;
    Ok(Listener::Tcp(listener, address))
}

async fn open_unix(path: &Path) -> io::Result<Listener> {
    // One that nobody listens on any more is what a server left that was killed.
    if fs::metadata(path).is_ok_and(|about| about.file_type().is_socket()) {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let listener = UnixListener::bind(path)?;
    socket::stamp(&listener);
    Ok(Listener::Unix(listener, SocketFile(path.to_owned())))
}
