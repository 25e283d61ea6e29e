//! Addresses for those who operate the server, on a thread of their own: what probes, scrapes and people ask there waits behind no
//! inference.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Options;
use super::connection::{Connections, Counter};
use super::listener::{Address, Listener};
use super::threads::Threads;

/// Connections that are open there at once, at most: probes, scrapes and the pages of a few people. They are beside
/// `max_connections`, which a flood of inference fills.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// How long the requests that are answered at the end may take.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Where operators will be served.
#[derive(Debug)]
pub(super) struct Office {
    /// At least one, of the thread's own runtime.
    listeners: Vec<Listener>,
    thread: Threads,
}

/// Where they are served. Dropping it cuts their connections off.
pub(super) struct Open {
    close: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    /// Lives as long as what runs on it.
    _thread: Threads,
}

impl Office {
    /// On a new thread, and without an address yet.
    pub(super) fn new() -> io::Result<Office> {
        Ok(Office { listeners: Vec::new(), thread: Threads::one("admin")? })
    }

    /// Takes hold of `address`, as a server does.
    pub(super) async fn listen(&mut self, address: &str) -> io::Result<&Listener> {
        let address = address.to_owned();
        // A socket belongs to the runtime in which it is opened.
        let opening = self.thread.place().handle.spawn(async move { Listener::open(&address).await });
        self.listeners.push(opening.await.map_err(io::Error::other)??);
        Ok(self.listeners.last().expect("it was just put there"))
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Address> {
        self.listeners.iter().map(Listener::address)
    }

    /// Serves until it is closed.
    pub(super) fn open(self, mut counter: Counter) -> Open {
        let Office { listeners, thread } = self;
        let max_connections = counter.options.max_connections.min(CONNECTIONS);
        counter.options = Arc::new(Options { max_connections, ..Options::clone(&counter.options) });
        let (close, closed) = oneshot::channel();
        let serving = async move {
            let mut connections = Connections::new(counter, Threads::of_caller());
            tokio::select! {
                never = connections.accept(&listeners) => match never {},
                _ = closed => {}
            }
            drop(listeners);
            // What is not done by then is cut off.
            let _ = timeout(LAST_ANSWERS, connections.close()).await;
        };
        Open { close, serving: thread.place().handle.spawn(serving), _thread: thread }
    }
}

impl Open {
    /// Answers what was asked already, and ends.
    pub(super) async fn close(self) {
        // Nobody is there to be told where it has panicked.
        let _ = self.close.send(());
        let _ = self.serving.await;
    }
}
