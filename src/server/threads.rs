//! Threads for HTTP: an event loop on each. One of them is a desk, where connections that do not begin with inference are served: what probes
//! and scrapes ask for waits behind no inference then. Another accepts, and answers nobody: however much is asked at the desk, who comes
//! for inference does not wait behind it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::quick::Fronts;

/// The threads. They end, and what runs on them with them, when this is dropped.
#[derive(Debug)]
pub(super) struct Threads {
    threads: Vec<Thread>,
    beside: Option<Beside>,
}

/// What there is beside the threads for inference.
#[derive(Debug)]
struct Beside {
    reception: Thread,
    desk: Thread,
}

#[derive(Debug)]
struct Thread {
    handle: Handle,
    /// Connections on it.
    load: Arc<AtomicUsize>,
    /// What it knows of the queue in their sockets.
    fronts: Arc<Mutex<Fronts>>,
    /// Dropped, it ends the thread.
    _stop: Option<oneshot::Sender<()>>,
}

/// A place on a thread, for a connection.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) handle: Handle,
    pub(super) fronts: Arc<Mutex<Fronts>>,
    load: Arc<AtomicUsize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// The calling runtime's own, however many it has.
    pub(super) fn of_caller() -> Threads {
        Threads {
            threads: vec![Thread {
                handle: Handle::current(),
                load: Arc::default(),
                fronts: Arc::default(),
                _stop: None,
            }],
            beside: None,
        }
    }

    /// Starts `count` threads, and a reception and a desk beside them.
    pub(super) fn start(count: NonZeroUsize) -> io::Result<Threads> {
        let started =
            (0..count.get()).map(|number| Thread::start(&format!("http-{number}"))).collect::<io::Result<_>>()?;
        let beside = Beside { reception: Thread::start("http-accept")?, desk: Thread::start("http-desk")? };
        Ok(Threads { threads: started, beside: Some(beside) })
    }

    /// Starts a single one, which is called `name`.
    pub(super) fn one(name: &str) -> io::Result<Threads> {
        Ok(Threads { threads: vec![Thread::start(name)?], beside: None })
    }

    /// A place on the thread with the fewest connections: shares that the kernel draws by chance differ, and the thread with
    /// most of them would be late first.
    pub(super) fn place(&self) -> Place {
        let least = self.threads.iter().min_by_key(|thread| thread.load.load(Ordering::Relaxed));
        least.expect("there is a thread").place()
    }

    /// Where connections are accepted: on a thread of its own, or on the first.
    pub(super) fn reception(&self) -> Handle {
        self.beside.as_ref().map_or(&self.threads[0], |beside| &beside.reception).handle.clone()
    }

    /// A place at the desk, if there is one.
    pub(super) fn desk(&self) -> Option<Place> {
        self.beside.as_ref().map(|beside| beside.desk.place())
    }
}

impl Thread {
    fn place(&self) -> Place {
        self.load.fetch_add(1, Ordering::Relaxed);
        Place { handle: self.handle.clone(), fronts: Arc::clone(&self.fronts), load: Arc::clone(&self.load) }
    }

    fn start(name: &str) -> io::Result<Thread> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // What other threads wake here are requests that have their answers: finishing goes before reading.
            .global_queue_interval(1)
            .thread_name(format!("{name}-work"))
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Nothing is sent: it ends when the sender is gone.
            let _ = runtime.block_on(stopped);
            // A conversion that still runs must not hold the process.
            runtime.shutdown_background();
        })?;
        Ok(Thread { handle, load: Arc::default(), fronts: Arc::default(), _stop: Some(stop) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::super::{Ended, Options, Server};
    use super::*;
    use crate::registry::{Caps, ModelSpec, Registry, Source};

    const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;

    /// Asks on `stream`. Returns the head of the answer, and reads its body too.
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_whose_accepting_has_ended_says_so() {
        let registry = tokio::task::spawn_blocking(|| Registry::load(Vec::new())).await.unwrap().unwrap();
        let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
        let mut server = server.threads(NonZeroUsize::MIN).unwrap();
        // The thread that accepts ends, and what runs on it.
        server.threads.as_mut().unwrap().beside.as_mut().unwrap().reception._stop = None;
        let ended = tokio::time::timeout(Duration::from_secs(20), server.serve(registry, std::future::pending())).await;
        assert_eq!(ended, Ok(Ended::Broken));
    }

    /// A server, of whose threads one stands.
    struct Standing {
        address: SocketAddr,
        place: Place,
        stop: oneshot::Sender<()>,
        serving: thread::JoinHandle<Ended>,
    }

    fn start(which: fn(&Threads) -> Place) -> Standing {
        let (told, addresses) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let source = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
                let model = ModelSpec::new("m", source, Caps::new(Duration::from_secs(10), 8));
                let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
                let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
                let server = server.threads(NonZeroUsize::MIN).unwrap();
                let place = which(server.threads.as_ref().unwrap());
                told.send((server.address(), place)).unwrap();
                server.serve(registry, async { drop(stopped.await) }).await
            })
        });
        let (address, place) = addresses.recv().unwrap();
        Standing { address, place, stop, serving }
    }

    impl Standing {
        /// Has it stand until what is returned is dropped.
        fn stand(&self) -> mpsc::Sender<()> {
            let (release, until) = mpsc::channel::<()>();
            let (stands, standing) = mpsc::channel();
            self.place.handle.spawn(async move {
                stands.send(()).unwrap();
                let _ = until.recv();
            });
            standing.recv().unwrap();
            release
        }
    }

    #[test]
    fn who_comes_for_inference_is_answered_while_those_who_only_ask_wait() {
        let server = start(|threads| threads.desk().unwrap());
        let release = server.stand();
        assert!(ask(&mut connect(server.address), "POST /v2/models/m/infer", BODY).starts_with("HTTP/1.1 200"));
        drop((release, server.stop));
        server.serving.join().unwrap();
    }

    #[test]
    fn who_only_asks_is_answered_while_the_threads_for_inference_do_not_move() {
        let server = start(Threads::place);
        let address = server.address;
        let mut early = connect(address);
        assert!(ask(&mut early, "POST /v2/models/m/infer", BODY).starts_with("HTTP/1.1 200"));
        let release = server.stand();

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
        drop((early, waits, server.stop));
        server.serving.join().unwrap();
    }
}
