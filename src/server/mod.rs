//! The models over HTTP/1.1: the Open Inference Protocol v2 with JSON tensors, `/metrics`, `/status` and the page at `/`.
//!
//! A request's way: `connection` accepts, `guard` lets only sound heads through and keeps time, `arrival` stamps,
//! `routes` finds the handler, `access` knows who may use it, `body` reads, `v2` turns JSON into tensors and back, `status` says what went wrong;
//! `connection` logs and traces it on its way out.

mod access;
mod app;
mod arrival;
mod body;
mod connection;
mod guard;
mod head;
mod options;
mod overview;
mod page;
mod refusals;
mod routes;
mod status;
mod trace;
mod v2;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, ToSocketAddrs};

pub use access::Access;
pub use options::Options;

use crate::registry::Registry;
use access::Door;
use connection::{Connections, Counter};

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
    door: Door,
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
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let door = Door::of(&options.access, address)?;
        Ok(Server { listener, address, options, door })
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
        let router = routes::router(registry.clone(), Arc::clone(&options), self.door.clone());
        let (tracer, refusals) = (registry.tracer().clone(), Arc::default());
        let (registry_of_all, options_of_all) = (registry.clone(), Arc::clone(&options));
        let counter = Counter { router, options: options_of_all, tracer, refusals, registry: registry_of_all };
        let mut connections = Connections::new(counter);
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
