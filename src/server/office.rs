//! Addresses for those who operate the server, on a thread of their own: what probes, scrapes and people ask there waits behind no
//! inference.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::Options;
use super::connection::{Connections, Counter, Open};
use super::listener::{Address, Listener};
use super::threads::Threads;

/// Connections that are open there at once, at most: probes, scrapes and the pages of a few people. They are beside
/// `max_connections`, which a flood of inference fills.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// Where operators will be served.
#[derive(Debug)]
pub(super) struct Office {
    /// At least one.
    listeners: Vec<Listener>,
    thread: Threads,
}

impl Office {
    /// On a new thread, and without an address yet.
    pub(super) fn new() -> io::Result<Office> {
        Ok(Office { listeners: Vec::new(), thread: Threads::one("admin")? })
    }

    /// Takes hold of `address`, as a server does.
    pub(super) async fn listen(&mut self, address: &str) -> io::Result<&Listener> {
        self.listeners.push(Listener::open(address).await?);
        Ok(self.listeners.last().expect("it was just put there"))
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Address> {
        self.listeners.iter().map(Listener::address)
    }

    /// Serves there.
    pub(super) fn open(self, mut counter: Counter) -> Open {
        let max_connections = counter.options.max_connections.min(CONNECTIONS);
        counter.options = Arc::new(Options { max_connections, ..Options::clone(&counter.options) });
        Connections::new(counter, self.thread).open(self.listeners)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::super::Server;
    use super::*;
    use crate::registry::{Caps, ModelSpec, Registry, Source};

    const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;

    /// Asks on a connection of its own, or on `stream`: the head of the answer, until its first byte with no more than that.
    fn ask(stream: &mut TcpStream, line: &str, body: &str) -> String {
        let length = body.len();
        write!(stream, "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        stream.read_exact(&mut vec![0; length.unwrap_or_default()]).unwrap();
        head
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    #[test]
    fn who_only_asks_is_answered_while_the_threads_for_inference_do_not_move() {
        let (told, addresses) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (release, until) = mpsc::channel::<()>();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let source = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
                let model = ModelSpec::new("m", source, Caps::new(Duration::from_secs(10), 8));
                let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
                let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
                let server = server.threads(NonZeroUsize::MIN).unwrap();
                let place = server.threads.as_ref().unwrap().place();
                told.send((server.address(), place)).unwrap();
                server.serve(registry, async { drop(stopped.await) }).await
            })
        });
        let (address, place) = addresses.recv().unwrap();
        let mut early = connect(address);
        assert!(ask(&mut early, "POST /v2/models/m/infer", BODY).starts_with("HTTP/1.1 200"));
        let (stands, standing) = mpsc::channel();
        place.handle.spawn(async move {
            stands.send(()).unwrap();
            let _ = until.recv();
        });
        standing.recv().unwrap();

        let mut asks = connect(address);
        for path in ["/v2/health/live", "/v2/health/ready", "/metrics", "/status", "/v2/models/m", "/"] {
            let head = ask(&mut asks, &format!("GET {path}"), "");
            assert!(head.starts_with("HTTP/1.1 200") && !head.contains("connection: close"), "{path}: {head}");
        }
        assert!(ask(&mut asks, "POST /v2/repository/index", "{}").starts_with("HTTP/1.1 200"));
        let mut waits = connect(address);
        write!(waits, "POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len())
            .unwrap();
        // Whoever goes on to inference is answered, and is to come again: on a connection that is no probe's.
        let head = ask(&mut asks, "POST /v2/models/m/infer", BODY);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
        assert_eq!(asks.read(&mut [0]).unwrap(), 0);
        waits.set_nonblocking(true).unwrap();
        assert_eq!(waits.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock, "that thread stands");
        waits.set_nonblocking(false).unwrap();

        drop(release);
        let mut begin = [0; 12];
        waits.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        drop((early, waits, stop));
        serving.join().unwrap();
    }
}
