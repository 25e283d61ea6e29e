//! Threads for HTTP: an event loop on each. One of them is a desk, where connections that do not begin with inference are served: what probes
//! and scrapes ask for waits behind no inference then.

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
    desk: Option<Thread>,
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
            desk: None,
        }
    }

    /// Starts `count` threads, and a desk beside them.
    pub(super) fn start(count: NonZeroUsize) -> io::Result<Threads> {
        let started =
            (0..count.get()).map(|number| Thread::start(&format!("http-{number}"))).collect::<io::Result<_>>()?;
        Ok(Threads { threads: started, desk: Some(Thread::start("http-desk")?) })
    }

    /// Starts a single one, which is called `name`.
    pub(super) fn one(name: &str) -> io::Result<Threads> {
        Ok(Threads { threads: vec![Thread::start(name)?], desk: None })
    }

    /// A place on the thread with the fewest connections: shares that the kernel draws by chance differ, and the thread with
    /// most of them would be late first.
    pub(super) fn place(&self) -> Place {
        let least = self.threads.iter().min_by_key(|thread| thread.load.load(Ordering::Relaxed));
        least.expect("there is a thread").place()
    }

    /// Where connections are accepted: at the desk, or on the first thread.
    pub(super) fn reception(&self) -> Handle {
        self.desk.as_ref().unwrap_or(&self.threads[0]).handle.clone()
    }

    /// A place at the desk, if there is one.
    pub(super) fn desk(&self) -> Option<Place> {
        self.desk.as_ref().map(Thread::place)
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
