//! The models over HTTP and gRPC: the Open Inference Protocol v2, TensorFlow Serving's REST API, `/metrics`, `/status` and the page at `/`.
//!
//! A request's way: `connection` accepts, `guard` lets only sound heads through and keeps time, `arrival` stamps,
//! `routes` finds the handler, `access` knows who may use it, `body` reads, `v2` turns JSON and binary tensors into a `call` and what comes of it back, `v1` nested lists, `status` says what went wrong;
//! `connection` logs and traces it on its way out.

mod access;
mod app;
mod arrival;
mod body;
mod call;
mod chunks;
mod closing;
mod connection;
mod decimals;
mod docs;
mod frames;
mod goodbye;
mod grpc;
mod guard;
mod head;
mod http2;
mod idle;
mod listener;
mod office;
mod opaque;
mod options;
mod outstanding;
mod overview;
mod page;
mod parting;
mod quick;
mod refusals;
mod room;
mod routes;
mod shared;
mod socket;
mod status;
mod threads;
mod timer;
mod tls;
mod trace;
mod unread;
mod untaken;
mod v1;
mod v2;
mod validity;

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

pub use access::Access;
pub(crate) use access::is_host;
pub use listener::Address;
pub(crate) use listener::UNIX;
pub use options::Options;
pub use tls::Tls;

use crate::registry::Registry;
use crate::repository::Repository;
use access::Door;
use app::App;
use connection::{Connections, Counter};
use idle::Idle;
use listener::Listener;
use office::Office;
use quick::Quick;
use refusals::Refusals;
use routes::For;
use threads::Threads;
use tls::Certificates;
use untaken::Untaken;

/// How long answers to operators may take that are made at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    /// At least one.
    listeners: Vec<Listener>,
    options: Options,
    door: Door,
    certificates: Option<Certificates>,
    threads: Option<Threads>,
    /// Where operators are served beside, if anywhere.
    office: Option<Office>,
    repository: Option<Repository>,
}

/// How a server came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Every request in flight was answered.
    Drained,
    /// `drain_timeout` passed first.
    CutOff {
        /// Connections that were cut.
        connections: usize,
    },
    /// Nobody could connect any more, which the log explains. What was open was drained.
    Broken,
}

impl Server {
    /// Takes hold of `address`: `host:port`, where port 0 takes a free one, or `unix:PATH`. Clients that connect wait until
    /// [`serve`](Self::serve).
    ///
    /// # Errors
    /// The address is taken, or other machines can reach it and `options.access` does not say who may ask there; a
    /// file of the options cannot be used; or one of their times or numbers is beyond its bounds.
    pub async fn bind(address: impl AsRef<str>, options: Options) -> io::Result<Server> {
        options.check().map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, wrong))?;
        let listener = Listener::open(address.as_ref()).await?;
        let door = Door::of(&options.access)?;
        door.may_open(&listener.address())?;
        let certificates = options.tls.as_ref().map(Certificates::read).transpose()?;
        Ok(Server {
            listeners: vec![listener],
            options,
            door,
            certificates,
            threads: None,
            office: None,
            repository: None,
        })
    }

    /// Listens at `address` as well.
    ///
    /// # Errors
    /// As those of [`bind`](Self::bind).
    pub async fn and(mut self, address: impl AsRef<str>) -> io::Result<Server> {
        let listener = Listener::open(address.as_ref()).await?;
        self.door.may_open(&listener.address())?;
        self.listeners.push(listener);
        Ok(self)
    }

    /// Serves operators at `address` as well, on a thread of its own: health, metrics, status, the page, what is told of models, loading
    /// and unloading. What is asked there waits behind no inference, for which it is not the place (421). Rights and TLS are the same
    /// at all addresses. It is served to the end of the drain.
    ///
    /// # Errors
    /// As those of [`bind`](Self::bind), or the system gives no more threads.
    pub async fn admin(mut self, address: impl AsRef<str>) -> io::Result<Server> {
        let mut office = self.office.take().map_or_else(Office::new, Ok)?;
        self.door.may_open(&office.listen(address.as_ref()).await?.address())?;
        Ok(Server { office: Some(office), ..self })
    }

    /// Serves connections on `count` threads of its own instead of on the runtime that [`serve`](Self::serve) is called
    /// in. That one then has nothing to do but to batch for the models that were loaded in it: what decides about batches does not
    /// wait behind what reads and writes.
    ///
    /// One more accepts connections. Another serves those over plain TCP whose first request is a `GET`: what probes, scrapes and people ask waits
    /// behind no inference. Inference is answered there too, and such a connection then ends (`Connection: close`).
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn threads(self, count: NonZeroUsize) -> io::Result<Server> {
        Ok(Server { threads: Some(Threads::start(count)?), ..self })
    }

    /// Lets holders of the right `admin` load and unload models by name, and tells of those that cannot be loaded.
    pub fn repository(self, repository: Repository) -> Server {
        Server { repository: Some(repository), ..self }
    }

    /// The first address of TCP that is listened on, with the real port. Panics where there is none.
    pub fn address(&self) -> SocketAddr {
        let tcp = |address| if let Address::Tcp(address) = address { Some(address) } else { None };
        self.addresses()
            .find_map(tcp)
            .expect("a server on Unix sockets alone has no address of TCP: ask for addresses()")
    }

    /// Where it listens, in the order in which that was asked for.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        self.listeners.iter().map(Listener::address)
    }

    /// How clients reach it, as text: `http://127.0.0.1:8080`, `https://…` or `unix:PATH`.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.addresses().map(|address| self.url(address))
    }

    /// How operators reach it at addresses of their own, in the same form.
    pub fn admin_urls(&self) -> impl Iterator<Item = String> {
        self.office.iter().flat_map(Office::addresses).map(|address| self.url(address))
    }

    fn url(&self, address: Address) -> String {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        match address {
            Address::Tcp(address) => format!("{scheme}://{address}"),
            unix @ Address::Unix(_) => unix.to_string(),
        }
    }

    /// Answers until `shutdown` completes, then drains and returns.
    ///
    /// The drain, step by step: the server says "not ready" and goes on for `drain_delay`, closing each connection behind the
    /// answer that it gives; it stops accepting; every
    /// connection ends behind the answer that it is at; the models finish what still waits; addresses for operators close. What is not done after
    /// `drain_timeout` is cut off. Dropping the future cuts everything off at once.
    ///
    /// The registry is drained with it, for whoever else holds it as well: its models answer nobody afterwards.
    pub async fn serve(self, registry: Registry, shutdown: impl Future<Output = ()>) -> Ended {
        let options = Arc::new(self.options);
        let app = App::new(registry.clone(), self.repository, Arc::clone(&options));
        let (tracer, refusals) = (registry.tracer().clone(), Arc::<Refusals>::default());
        let quick = Quick {
            app: app.clone(),
            door: self.door.clone(),
            fronts: Arc::default(),
            epoch: Instant::now(),
            refusals: Arc::clone(&refusals),
            http: registry.metrics().http(),
            is_traced: tracer.is_on(),
            serves: For::Everybody,
        };
        let counter = Counter {
            router: routes::router(app.clone(), self.door.clone(), For::Everybody),
            options: Arc::clone(&options),
            tracer,
            refusals,
            registry: registry.clone(),
            quick,
            certificates: self.certificates.clone(),
            untaken: Untaken::default(),
            idle: Idle::default(),
        };
        let mut office = self.office.map(|office| {
            let quick = Quick { serves: For::Operators, ..counter.quick.clone() };
            let router = routes::router(app, self.door.clone(), For::Operators);
            office.open(Counter { router, quick, ..counter.clone() })
        });
        let threads = self.threads.unwrap_or_else(Threads::of_caller);
        let mut open = Connections::new(counter, threads).open(self.listeners);
        let retirement = async {
            shutdown.await;
            registry.retire();
            tokio::time::sleep(options.drain_delay).await;
        };
        let http = registry.metrics().http();
        let follow_certificates = async {
            match &self.certificates {
                Some(certificates) => certificates.follow(&http).await,
                None => pending().await,
            }
        };
        let office_broken = async {
            match &mut office {
                Some(office) => office.broken().await,
                None => pending().await,
            }
        };
        let is_broken = tokio::select! {
            () = self.door.follow(&http.stale_tokens) => false,
            () = follow_certificates => false,
            () = retirement => false,
            () = open.broken() => true,
            () = office_broken => true,
        };
        let until = Instant::now() + options.drain_timeout;
        // Connections first: the other order would refuse requests whose bodies are still coming in.
        let connections = open.close(until).await;
        let is_drained = connections == 0 && timeout_at(until, registry.drain()).await.is_ok();
        let ended = match is_drained {
            _ if is_broken => Ended::Broken,
            true => Ended::Drained,
            false => Ended::CutOff { connections },
        };
        // Last: how the drain goes is told to its end.
        if let Some(office) = office {
            office.close(Instant::now() + LAST_ANSWERS).await;
        }
        ended
    }
}
