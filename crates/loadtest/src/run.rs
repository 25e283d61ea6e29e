//! A whole run: threads that send, and what they saw together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::backlog::Backlog;
use super::generator::{Generator, Orders, Seen};
use super::place::{Address, Speech};
use super::pulse::Pulse;
use super::source::Load;
use super::tally::Tally;
use super::target::Target;

/// Time for threads to be there before the first request is due.
const HEAD_START: Duration = Duration::from_millis(20);

/// How a load is sent.
#[derive(Debug, Clone)]
pub struct Means {
    /// Where to.
    pub address: Address,
    /// How connections speak.
    pub speech: Speech,
    /// Threads that send.
    pub threads: usize,
    /// Connections at most, of all threads together.
    pub connections: usize,
    /// A request without an answer so long after it was due has none.
    pub timeout: Duration,
    /// Time from due within which answers are of use, if that is known. Where the generator is behind for long, it sends nothing that is
    /// later than a quarter of this or of `timeout`, whichever is less.
    pub deadline: Option<Duration>,
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What became of the requests.
    pub tally: Tally,
    /// Length of the measurement; shorter than planned if it was interrupted.
    pub seconds: f64,
    /// The busiest thread's part of the time that it did not spend waiting, or with nothing more to do.
    pub busy: f64,
    /// Whether it was ended early.
    pub interrupted: bool,
    /// Connections at once.
    pub connections: usize,
    /// Whether there would have been more, had the system allowed more open files.
    pub out_of_files: bool,
}

/// Sends a load. `watch` is run meanwhile and hears what happens; it ends when the channel does.
///
/// # Errors
/// A sentence, where the load makes no sense, or the machine does not give what it takes.
pub fn run(
    load: &Load,
    target: &dyn Target,
    means: &Means,
    stop: &AtomicBool,
    watch: impl FnOnce(Receiver<Pulse>),
) -> Result<Run, String> {
    load.check()?;
    let threads = means.threads.clamp(1, means.connections.max(1));
    let (pulses, watched) = mpsc::channel();
    let epoch = Instant::now() + HEAD_START;
    let orders = |thread: usize, pulses: Sender<Pulse>| Orders {
        address: means.address.clone(),
        speech: means.speech.clone(),
        target,
        source: load.source(thread, threads),
        first_number: thread as u64,
        step: threads as u64,
        epoch,
        warm_up: load.warm_up(),
        length: load.length(),
        timeout: means.timeout,
        backlog: match load {
            Load::Open(_) => Backlog::new(means.timeout, means.deadline),
            Load::Closed(_) => Backlog::of_callers(means.timeout),
        },
        max_connections: (means.connections / threads + usize::from(thread < means.connections % threads)).max(1),
        stop,
        pulses,
    };
    let seen: Vec<std::io::Result<Seen>> = std::thread::scope(|scope| {
        let send = |thread| {
            let orders = orders(thread, pulses.clone());
            scope.spawn(move || Generator::new(orders)?.run())
        };
        let running: Vec<_> = (0..threads).map(send).collect();
        drop(pulses);
        watch(watched);
        let died = |_| Err(std::io::Error::other("a thread ended early"));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
    });
    let interrupted = stop.load(Ordering::Relaxed);
    let mut tally = Tally::new(load.warm_up(), load.length());
    let (mut busy, mut connections, mut out_of_files) = (0.0f64, 0, false);
    for seen in seen {
        let seen = seen.map_err(|error| format!("the load cannot be generated: {error}"))?;
        tally.add(&seen.tally);
        busy = busy.max(seen.busy);
        connections += seen.connections;
        out_of_files |= seen.out_of_files;
    }
    let planned = load.length();
    let measured = epoch.elapsed().saturating_sub(load.warm_up()).min(planned);
    let seconds = if interrupted { measured } else { planned }.as_secs_f64().max(1e-3);
    Ok(Run { tally, seconds, busy, interrupted, connections, out_of_files })
}
