//! The life of one worker after another in one place of a model: started, watched, killed, replaced.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::frame::Word;
use super::link::{Link, Reader, Wires};
use super::message::{self, Ready, Setup};
use super::process::{self, Ends, Process};
use super::said::{self, Last, Pipe};
use super::{PROTOCOL, Shared, WorkerError};

/// From one look at its memory to the next.
const MEMORY_PACE: Duration = Duration::from_millis(200);
/// From one question whether it is alive to the next.
const PING_PACE: Duration = Duration::from_secs(5);
/// How often shared memory is let go that was not used in the last two such terms.
const TIDY_PACE: Duration = Duration::from_secs(30);
/// How long a worker that is told to end may take.
const DRAIN: Duration = Duration::from_secs(2);
/// How long what it printed and answered last is waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Ends without an answered batch between them, from which on it is a crash loop.
pub(super) const LOOP: u32 = 3;
/// Waits before the next one is started, by the number of such ends: none after the first.
const WAITS_SECONDS: [u64; 6] = [0, 1, 2, 5, 10, 30];

/// A worker that runs and has not been asked anything yet.
struct Started {
    body: Body,
    reader: Reader,
    write: OwnedWriteHalf,
}

/// A worker's process, and what it prints.
struct Body {
    process: Process,
    said: JoinHandle<()>,
    last: Arc<Last>,
}

impl Body {
    /// Ends it, and says why it ended as well as can be known.
    async fn end(mut self, why: WorkerError) -> WorkerError {
        if matches!(why, WorkerError::Unready | WorkerError::Gone) {
            // It has closed its socket, and so most likely ends by itself: how, tells more than that we kill it.
            let _ = timeout(LAST_WORDS, self.process.ended()).await;
        }
        let status = self.process.end().await;
        let _ = timeout(LAST_WORDS, &mut self.said).await;
        self.said.abort();
        let ending = status.map_or_else(|error| error.to_string(), process::ending);
        let words = self.last.words();
        match why {
            WorkerError::Unready => WorkerError::Ended(format!("{ending} before it was ready{words}")),
            WorkerError::Gone => WorkerError::Ended(format!("{ending}{words}")),
            other => other,
        }
    }
}

/// Keeps a worker in `place` until the model goes. `first` hears what the first one says of itself; where that is no *ready*, there
/// is no second.
pub(super) async fn keep(shared: Arc<Shared>, place: usize, first: oneshot::Sender<Result<Ready, WorkerError>>) {
    let mut first = Some(first);
    let mut ends = 0;
    while !shared.is_closing() {
        let began = Instant::now();
        let ended = match open(&shared).await {
            Ok((started, ready)) => {
                let is_first = first.is_some();
                let told = first.take().map(|first| first.send(Ok(ready.clone())));
                if told.is_some_and(|told| told.is_err()) {
                    return;
                }
                live(&shared, place, started, ready, is_first).await
            }
            Err(why) => match first.take() {
                Some(first) => {
                    let _ = first.send(Err(why));
                    return;
                }
                None => Ended { why, has_answered: false },
            },
        };
        if shared.is_closing() {
            return;
        }
        ends = if ended.has_answered { 1 } else { ends + 1 };
        let wait = Duration::from_secs(WAITS_SECONDS[(ends as usize - 1).min(WAITS_SECONDS.len() - 1)]);
        shared.ended(place, ended.why.in_public(), ends);
        if ends >= LOOP {
            tracing::error!(
                model = shared.model,
                "crash loop: its worker has ended {ends} times without answering a batch; the next one starts in {} s: {}",
                wait.as_secs(),
                ended.why
            );
        } else {
            let lived = began.elapsed().as_secs_f64();
            tracing::error!(
                model = shared.model,
                "its worker has ended after {lived:.1} s and is replaced: {}",
                ended.why
            );
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = shared.closing() => return,
        }
    }
}

/// How a worker ended.
struct Ended {
    why: WorkerError,
    has_answered: bool,
}

/// Starts a worker and waits until it is ready.
async fn open(shared: &Shared) -> Result<(Started, Ready), WorkerError> {
    let (process, Ends { socket, stdout, stderr }) = Process::start(&shared.program, &shared.model)?;
    let last = Arc::new(Last::default());
    let said = {
        let (model, worker, last) = (shared.model.clone(), process.id(), Arc::clone(&last));
        tokio::spawn(async move {
            let (stdout, stderr) = ((stdout, Pipe::Stdout), (stderr, Pipe::Stderr));
            tokio::join!(said::follow(stdout, &model, worker, &last), said::follow(stderr, &model, worker, &last));
        })
    };
    let (read, write) = socket.into_split();
    let mut started = Started { body: Body { process, said, last }, reader: Reader::new(read), write };
    let limit = shared.program.start_timeout;
    let ready = tokio::select! {
        ready = timeout(limit, introduce(shared, &mut started)) => {
            ready.unwrap_or(Err(WorkerError::Slow { limit_ms: limit.as_millis() }))
        }
        () = shared.closing() => Err(WorkerError::Start("it is not needed any more".into())),
    };
    match ready {
        Ok(ready) => Ok((started, ready)),
        Err(why) => Err(started.body.end(why).await),
    }
}

/// Says what the worker is for, and hears what it is.
async fn introduce(shared: &Shared, started: &mut Started) -> Result<Ready, WorkerError> {
    let setup = message::setup(&Setup {
        version: PROTOCOL,
        model: &shared.model,
        max_batch_size: shared.limits.max_batch_rows,
        max_latency_ms: shared.limits.max_latency.as_secs_f64() * 1e3,
        stuck_after_ms: shared.limits.stuck_after.as_secs_f64() * 1e3,
        runners: shared.limits.workers,
        target: shared.program.target.as_deref(),
        hooks: true,
    })?;
    let Started { reader, write, .. } = started;
    let said = async {
        // A worker that ends before it has read this says why by how it ends.
        let _ = write.write_all(&shared.program.preamble).await;
        let _ = write.write_all(&setup).await;
        std::future::pending().await
    };
    let heard = async {
        while let Some(frame) = reader.next().await? {
            match frame.head.word() {
                Word::Ready => return message::ready(frame.meta(), frame.data()),
                Word::Failed => return Err(WorkerError::Refused(message::not_ready(frame.meta())?)),
                Word::Done => return Err(WorkerError::Protocol("it says 'done' before 'ready'".into())),
                Word::Pong | Word::Unknown => {}
            }
        }
        Err(WorkerError::Unready)
    };
    let ready = tokio::select! {
        ready = heard => ready?,
        never = said => never,
    };
    let says = (ready.signature.clone(), ready.hooks, ready.whole);
    if *shared.known.get_or_init(|| says.clone()) != says {
        let why = "it takes or gives other tensors than the workers before it, or has other hooks, or takes bodies otherwise: reload the model";
        return Err(WorkerError::Protocol(why.into()));
    }
    Ok(ready)
}

/// Has the worker answer batches until it ends.
async fn live(shared: &Arc<Shared>, place: usize, started: Started, ready: Ready, is_first: bool) -> Ended {
    let Started { body, reader, write } = started;
    let process = &body.process;
    let (link, wires): (Arc<Link>, Wires) = Link::new(reader, write, ready.shared_memory);
    let why = {
        let carried = wires.carry(&link, &ready.signature);
        let mut carried = std::pin::pin!(carried);
        let opened = async {
            if let Some(example) = ready.example.as_ref().filter(|_| !is_first) {
                // What it sets up at its first batch is then set up before there is a request.
                let limit = shared.program.start_timeout;
                if timeout(limit, link.run(example, true)).await.is_err() {
                    return WorkerError::Slow { limit_ms: limit.as_millis() };
                }
            }
            shared.open(place, &link, ready.concurrency);
            std::future::pending().await
        };
        let why = tokio::select! {
            biased; // what has been answered counts before anything else does
            carried = carried.as_mut() => carried.err().unwrap_or(WorkerError::Gone),
            slow = opened => slow,
            () = process.ended() => {
                shared.close(place, WorkerError::Gone.in_public());
                // A worker that answers and ends has answered. Its end is heard of by a signal, and that may come before its socket is read.
                let carried = timeout(LAST_WORDS, carried.as_mut()).await;
                carried.ok().and_then(Result::err).unwrap_or(WorkerError::Gone)
            }
            () = link.given_up() => WorkerError::Stuck { limit_ms: shared.limits.stuck_after.as_millis() },
            resident = watch_memory(process.id(), shared.program.max_memory) => resident,
            slow = watch_life(&link, shared.limits.stuck_after) => slow,
            never = tidy(&link) => never,
            () = shared.closing() => {
                link.drain();
                let until = Instant::now() + DRAIN;
                tokio::select! {
                    _ = carried.as_mut() => {}
                    () = sleep_until(until) => {}
                }
                let _ = tokio::time::timeout_at(until, process.ended()).await;
                WorkerError::Gone
            }
        };
        shared.close(place, why.in_public());
        why
    };
    let has_answered = link.answered() > u64::from(!is_first && ready.example.is_some());
    // They hear of it now, and not when the process is buried.
    link.over(&why.in_public());
    Ended { why: body.end(why).await, has_answered }
}

/// Returns when the process takes more memory than it may.
async fn watch_memory(process: i32, most: Option<u64>) -> WorkerError {
    let Some(most) = most else { return std::future::pending().await };
    loop {
        sleep(MEMORY_PACE).await;
        if let Some(resident) = process::resident(process).filter(|&resident| resident > most) {
            return WorkerError::Memory { resident_mb: resident >> 20, most_mb: most >> 20 };
        }
    }
}

/// Lets go what its calls do not need any more, for as long as it lives.
async fn tidy(link: &Link) -> WorkerError {
    loop {
        sleep(TIDY_PACE).await;
        link.tidy();
    }
}

/// Returns when a worker that has nothing to do does not say that it is alive.
async fn watch_life(link: &Link, limit: Duration) -> WorkerError {
    loop {
        sleep(PING_PACE).await;
        // One that computes may have no time to say so; its batch has a limit of its own.
        if link.busy() == 0 && timeout(limit, link.ping()).await.is_err() && link.busy() == 0 {
            return WorkerError::Silent { limit_ms: limit.as_millis() };
        }
    }
}
