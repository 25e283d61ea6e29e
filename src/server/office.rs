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
