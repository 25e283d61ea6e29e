//! Where a server is: an address, and what its requests begin with. It is the only one that is ever talked to.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::connection::Connection;
use super::target::message;
use super::tls::{Tls, Trust};

/// Time to connect, and to be answered a question about the server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Over TCP.
    Tcp(SocketAddr),
    /// At the path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// Whether somebody listens there.
    fn probe(&self) -> io::Result<()> {
        match self {
            Address::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).map(drop),
            Address::Unix(path) => UnixStream::connect(path).map(drop),
        }
    }
}

/// How connections speak.
#[derive(Debug, Clone, Default)]
pub struct Speech {
    /// What secures them, if anything.
    pub tls: Option<Tls>,
    /// HTTP/2, by prior knowledge or by name over TLS, and not HTTP/1.1.
    pub http2: bool,
}

/// A server's place, as its URL says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// For the header of that name.
    pub host: String,
    name: String,
    port: u16,
    /// Whether connections are secured: `https://`.
    pub is_secured: bool,
    /// Of `unix:PATH`.
    socket: Option<PathBuf>,
    /// With a `/` in front, and the query; otherwise as it was given, since to many servers `/a/` is another place than `/a`.
    pub path: String,
}

impl fmt::Display for Url {
    /// As it could be written, but for the values of its query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(socket) => write!(f, "unix:{}", socket.display()),
            None => {
                let scheme = if self.is_secured { "https" } else { "http" };
                let path = if self.path == "/" { String::new() } else { without_values(&self.path) };
                write!(f, "{scheme}://{}{path}", self.host)
            }
        }
    }
}

/// A URL or a path without what its query says: many a secret is in one.
pub fn without_values(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let hidden = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() => format!("{name}=***"),
        None if !pair.is_empty() => "***".to_owned(),
        _ => pair.to_owned(),
    };
    format!("{path}?{}", query.split('&').map(hidden).collect::<Vec<_>>().join("&"))
}

impl Url {
    /// Reads `http://host[:port][/path]`, the same with `https`, or `unix:PATH` of a socket.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Url, String> {
        const FORM: &str = "write it as http://127.0.0.1:8080";
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(format!("{text}: no path; write it as unix:/run/uncork.sock"));
            }
            let (host, path) = ("localhost".to_owned(), PathBuf::from(path));
            return Ok(Url {
                host,
                name: String::new(),
                port: 0,
                is_secured: false,
                socket: Some(path),
                path: "/".into(),
            });
        }
        let (is_secured, rest) = match text.split_once("://") {
            Some(("http" | "grpc", rest)) => (false, rest),
            Some(("https" | "grpcs", rest)) => (true, rest),
            Some((scheme, _)) => return Err(format!("{text}: '{scheme}' is neither http nor https; {FORM}")),
            None => (false, text),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (host, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if host.contains('@') {
            return Err(format!(
                "{text}: a name and password are not sent from a URL; use --header 'Authorization: …'"
            ));
        }
        if host.is_empty() || path.contains(|c: char| c.is_control() || c == ' ') {
            return Err(format!("{text}: no URL; {FORM}"));
        }
        let (name, port) = match host.rsplit_once(':') {
            // A colon within brackets belongs to an IPv6 address.
            Some((name, port)) if !port.contains(']') => {
                let port = port.parse().map_err(|_| format!("{text}: '{port}' is no port; {FORM}"))?;
                (name, port)
            }
            _ => (host, if is_secured { 443 } else { 80 }),
        };
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        let name = name.trim_matches(['[', ']']).to_owned();
        Ok(Url { host: host.to_owned(), name, port, is_secured, socket: None, path })
    }

    /// A path below the URL's own.
    pub fn below(&self, path: &str) -> String {
        let base = self.path.split('?').next().unwrap_or_default().trim_end_matches('/');
        format!("{base}{path}")
    }

    /// The first of its addresses that takes a connection, where HTTP/2 is spoken or HTTP/1.1; `trust` is whose word is taken for the
    /// certificate of a server whose connections are secured.
    ///
    /// # Errors
    /// None does, or there are no roots.
    pub fn connect(&self, trust: &Trust, http2: bool) -> Result<Place, String> {
        let tls = self.is_secured.then(|| Tls::new(&self.name, trust)).transpose()?;
        let speech = Speech { tls, http2 };
        let addresses = match &self.socket {
            Some(path) => vec![Address::Unix(path.clone())],
            None => {
                let found = (self.name.as_str(), self.port).to_socket_addrs();
                let found = found.map_err(|error| format!("{}: no address is known: {error}", self.host))?;
                found.map(Address::Tcp).collect()
            }
        };
        let mut failure = "it has no address".to_owned();
        for address in addresses {
            match address.probe() {
                Ok(()) => return Ok(Place { address, speech, host: self.host.clone() }),
                Err(error) => failure = format!("{address}: {error}"),
            }
        }
        let whom = if self.socket.is_some() { "the socket" } else { &self.host };
        Err(format!("no connection to {whom} ({failure}); is the server up?"))
    }
}

/// An address that took a connection.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where.
    pub address: Address,
    /// How it is spoken to.
    pub speech: Speech,
    host: String,
}

impl Place {
    /// Asks one question outside the load: status and body of the answer.
    ///
    /// # Errors
    /// Why there was none.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Option<&[u8]>,
    ) -> Result<(u16, Vec<u8>), String> {
        let failed = |error: io::Error| format!("{method} {path}: {error}");
        let why = |why: &str| format!("{method} {path}: {why}");
        let (began, mut buffer) = (Instant::now(), vec![0; 64 * 1024]);
        let (mut poll, mut connection) = self.connection(began).map_err(|error| why(&error))?;
        let mut events = Events::with_capacity(8);
        connection.send(&message(method, path, &self.host, headers, body)).map_err(why)?;
        loop {
            connection.go_on().map_err(why)?;
            let own = |answer: super::wire::Answer<'_>| (answer.status, answer.body.to_vec());
            if let Some(told) = connection.hear(&mut buffer, own).map_err(why)? {
                return Ok(told);
            }
            if !wait(&mut poll, &mut events, began).map_err(failed)? {
                return Err(format!("{method} {path}: no answer within {} s", PATIENCE.as_secs()));
            }
        }
    }

    /// Whether connections can be secured, before hours of them break for the same reason.
    ///
    /// # Errors
    /// Why not.
    pub fn secure(&self) -> Result<(), String> {
        let secured = self.connection(Instant::now()).map(drop);
        secured.map_err(|why| format!("no secured connection to {}: {why}", self.host))
    }

    /// A connection that can be used, and what watches it.
    fn connection(&self, began: Instant) -> Result<(Poll, Connection), String> {
        let failed = |error: io::Error| error.to_string();
        let mut poll = Poll::new().map_err(failed)?;
        let mut events = Events::with_capacity(8);
        let connection = Connection::open(&self.address, &self.speech, poll.registry(), Token(0), 0, Duration::ZERO);
        let mut connection = connection.map_err(failed)?;
        while !connection.is_connected()? {
            if !wait(&mut poll, &mut events, began).map_err(failed)? {
                let seconds = PATIENCE.as_secs();
                return Err(match self.speech.tls {
                    Some(_) => format!("it was not secured within {seconds} s; does the server speak TLS there?"),
                    None => format!("no connection within {seconds} s"),
                });
            }
        }
        Ok((poll, connection))
    }
}

/// Waits until something happens; whether there is time left.
fn wait(poll: &mut Poll, events: &mut Events, began: Instant) -> io::Result<bool> {
    let left = PATIENCE.saturating_sub(began.elapsed());
    if left.is_zero() {
        return Ok(false);
    }
    match poll.poll(events, Some(left)) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, name, port, path) in [
            ("http://127.0.0.1:8080", "127.0.0.1", 8080, "/"),
            ("127.0.0.1:8080/", "127.0.0.1", 8080, "/"),
            ("http://gate/way/?a=b#c", "gate", 80, "/way/?a=b"),
            ("http://[::1]:81/x/", "::1", 81, "/x/"),
            ("http://a/log-in?next=/a/", "a", 80, "/log-in?next=/a/"),
            ("http://[::1]?q", "::1", 80, "/?q"),
            ("https://a/b", "a", 443, "/b"),
            ("https://a:8443", "a", 8443, "/"),
        ] {
            let url = Url::read(text).expect(text);
            assert_eq!((url.name.as_str(), url.port, url.path.as_str()), (name, port, path), "{text}");
        }
        let socket = Url::read("unix:/run/uncork.sock").expect("a socket");
        assert_eq!((socket.socket, &*socket.host), (Some("/run/uncork.sock".into()), "localhost"));
        assert_eq!(Url::read("unix:///run/a.sock").expect("a socket").socket, Some("/run/a.sock".into()));
        let below = |text: &str| Url::read(text).expect(text).below("/v2/models/m");
        assert_eq!(below("http://a"), "/v2/models/m");
        assert_eq!(below("http://a/gate/way/"), "/gate/way/v2/models/m");
        let written = |text: &str| Url::read(text).expect(text).to_string();
        assert_eq!(written("http://a/"), "http://a");
        assert_eq!(written("https://a:81/x/"), "https://a:81/x/");
    }

    #[test]
    fn the_values_of_a_query_are_not_shown() {
        for (url, shown) in [
            ("http://a/b?api_key=hidden&n=5", "http://a/b?api_key=***&n=***"),
            ("http://a/b?hidden", "http://a/b?***"),
            ("http://a/b?n=", "http://a/b?n="),
            ("http://a/b/", "http://a/b/"),
            ("http://a?k=hidden", "http://a/?k=***"),
        ] {
            assert_eq!(Url::read(url).expect(url).to_string(), shown);
        }
        assert_eq!(without_values("/a?next=/b?c=hidden#d"), "/a?next=***");
    }

    #[test]
    fn what_is_no_url_is_refused_with_what_to_write() {
        for (text, words) in [
            ("ftp://a", "neither http nor https"),
            ("http://", "no URL"),
            ("unix:", "no path"),
            ("http://a:x", "no port"),
            ("http://a:99999", "no port"),
            ("http://u:p@a/", "--header"),
            ("http://a/b c", "no URL"),
        ] {
            let error = Url::read(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
