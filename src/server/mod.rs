//! The models over HTTP/1.1: the Open Inference Protocol v2, `/metrics`, `/status` and the page at `/`.
//!
//! A request's way: `connection` accepts, `guard` lets only sound heads through and keeps time, `arrival` stamps,
//! `routes` finds the handler, `access` knows who may use it, `body` reads, `v2` turns JSON and binary tensors into a `call` and what comes of it back, `status` says what went wrong;
//! `connection` logs and traces it on its way out.

mod access;
mod app;
mod arrival;
mod body;
mod call;
mod connection;
mod guard;
mod head;
mod options;
mod overview;
mod page;
mod quick;
mod refusals;
mod routes;
mod shared;
mod socket;
mod status;
mod threads;
mod trace;
mod v2;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs, lookup_host};
use tokio::time::Instant;

pub use access::Access;
pub use options::Options;

use crate::registry::Registry;
use access::Door;
use app::App;
use connection::{Connections, Counter};
use quick::Quick;
use refusals::Refusals;
use threads::Threads;

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
    door: Door,
    threads: Option<Threads>,
}

/// How a server came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every request in flight was answered.
    Drained,
    /// `drain_timeout` passed first.
    CutOff {
        /// Connections that were cut.
        connections: usize,
    },
}

impl Server {
    /// Takes hold of `address`; port 0 takes a free one. Clients that connect wait until [`serve`](Self::serve). Fails for an
    /// address that other machines can reach, unless `options.access` says who may ask there.
    pub async fn bind(address: impl ToSocketAddrs, options: Options) -> io::Result<Server> {
        let listener = listen(address).await?;
        let address = listener.local_addr()?;
        let door = Door::of(&options.access, address)?;
        Ok(Server { listener, address, options, door, threads: None })
    }

    /// Serves connections on `count` threads of its own instead of on the runtime that [`serve`](Self::serve) is called
    /// in. That one then has nothing to do but to accept, and to batch for the models that were loaded in it: what decides
    /// about batches does not wait behind what reads and writes.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn threads(self, count: NonZeroUsize) -> io::Result<Server> {
        Ok(Server { threads: Some(Threads::start(count)?), ..self })
    }

    /// The address that is listened on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown` completes, then drains and returns.
    ///
    /// The drain, step by step: the server says "not ready" and goes on for `drain_delay`, closing each connection behind the
    /// answer that it gives; it stops accepting; every
    /// connection ends behind the answer that it is at; the models finish what still waits. What is not done after
    /// `drain_timeout` is cut off. Dropping the future cuts everything off at once.
    pub async fn serve(self, registry: Registry, shutdown: impl Future<Output = ()>) -> Ended {
        let options = Arc::new(self.options);
        let app = App::new(registry.clone(), Arc::clone(&options));
        let (tracer, refusals) = (registry.tracer().clone(), Arc::<Refusals>::default());
        let quick = Quick {
            app: app.clone(),
            door: self.door.clone(),
            fronts: Arc::default(),
            epoch: Instant::now(),
            refusals: Arc::clone(&refusals),
            http: registry.metrics().http(),
            is_traced: tracer.is_on(),
        };
        let (router, registry_of_all) = (routes::router(app, self.door.clone()), registry.clone());
        let counter =
            Counter { router, options: Arc::clone(&options), tracer, refusals, registry: registry_of_all, quick };
        let threads = self.threads.unwrap_or_else(Threads::of_caller);
        let mut connections = Connections::new(counter, threads);
        let retirement = async {
            shutdown.await;
            registry.retire();
            tokio::time::sleep(options.drain_delay).await;
        };
        tokio::select! {
            never = connections.accept(&self.listener) => match never {},
            () = self.door.follow() => {}
            () = retirement => {}
        }
        drop(self.listener);
        // Connections first: the other order would refuse requests whose bodies are still coming in.
        let drain = async {
            connections.close().await;
            registry.drain().await;
        };
        match tokio::time::timeout(options.drain_timeout, drain).await {
            Ok(()) => Ended::Drained,
            Err(_) => Ended::CutOff { connections: connections.len() },
        }
    }
}

/// Connections that the system may hold until they are accepted, if it lets so many: all clients of a server that comes back ask
/// again at once, and one that finds no room tries again after a second.
const BACKLOG: u32 = 16_384;

async fn listen(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let mut last = None;
    for address in lookup_host(address).await? {
        let unbound = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // As tokio does: a server that was just ended leaves the address behind for a while.
        #[cfg(not(windows))]
        unbound.set_reuseaddr(true)?;
        match unbound.bind(address).and_then(|()| unbound.listen(BACKLOG)) {
            Ok(listener) => {
                socket::stamp(&listener);
                return Ok(listener);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")))
}
