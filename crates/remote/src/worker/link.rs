//! The connection to one worker: many calls on one socket, told apart by their ids.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use uncork_model::raw;
use uncork_model::runner::{RunnerError, Signature};
use uncork_model::tensor::Tensors;

use super::WorkerError;
use super::frame::{self, HEAD, Head, Order, Word};
use super::message::{self, Places};
use super::segment::{self, Segment, Segments};

/// Bytes that are read at a time: the answers to small batches come in one piece.
const BUFFER: usize = 64 * 1024;

type Outputs = Result<Tensors, RunnerError>;

/// Where calls go that a worker is to answer.
#[derive(Debug)]
pub(super) struct Link {
    outbox: mpsc::UnboundedSender<Item>,
    /// Where large tensors go, if the worker takes them so.
    segments: Option<Segments>,
    calls: Mutex<Calls>,
    /// Told when the worker is to be killed.
    given_up: Notify,
    is_given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    /// Batches and hooks that are out, by id.
    out: HashMap<u64, Waiting>,
    pings: HashMap<u64, oneshot::Sender<()>>,
    /// Why nothing more is answered, once that is so.
    over: Option<String>,
    answered: u64,
}

/// Who waits for an answer.
#[derive(Debug)]
struct Waiting {
    order: Order,
    done: oneshot::Sender<Outputs>,
    places: Places,
}

/// What is written to the socket.
enum Item {
    Frame(Vec<u8>),
    /// A frame, and a descriptor that goes with it.
    Descriptor(Vec<u8>, OwnedFd),
}

/// The end of the link that its keeper holds.
pub(super) struct Wires {
    read: Reader,
    write: OwnedWriteHalf,
    inbox: mpsc::UnboundedReceiver<Item>,
}

/// Reads frames.
pub(super) struct Reader(BufReader<OwnedReadHalf>);

/// A frame as it came.
pub(super) struct Frame {
    pub(super) head: Head,
    bytes: Vec<u8>,
}

impl Frame {
    pub(super) fn meta(&self) -> &[u8] {
        &self.bytes[..self.head.meta]
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.head.meta..]
    }
}

impl Reader {
    pub(super) fn new(read: OwnedReadHalf) -> Reader {
        Reader(BufReader::with_capacity(BUFFER, read))
    }

    /// The next frame; `None` where the worker has closed its end.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, WorkerError> {
        next(&mut self.0).await
    }
}

async fn next(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Frame>, WorkerError> {
    let mut head = [0; HEAD];
    let mut have = 0;
    while have < HEAD {
        match from.read(&mut head[have..]).await {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(WorkerError::Protocol("it closed its socket within a frame".into())),
            Ok(count) => have += count,
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => return Err(WorkerError::Socket(error.to_string())),
        }
    }
    let head = Head::read(&head)?;
    let mut bytes = head.buffer();
    while bytes.len() < head.rest() {
        let left = (head.rest() - bytes.len()) as u64;
        let count = (&mut *from).take(left).read_buf(&mut bytes).await;
        match count.map_err(|error| WorkerError::Socket(error.to_string()))? {
            0 => return Err(WorkerError::Protocol("it closed its socket within a frame".into())),
            _ => continue,
        }
    }
    Ok(Some(Frame { head, bytes }))
}

/// A process that is gone resets its socket where it had not read all.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

impl Link {
    /// A link over what a worker's socket was split into.
    pub(super) fn new(read: Reader, write: OwnedWriteHalf, shares: bool) -> (Arc<Link>, Wires) {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let segments = (shares && cfg!(target_os = "linux")).then(Segments::default);
        let link = Link {
            outbox,
            segments,
            calls: Mutex::default(),
            given_up: Notify::new(),
            is_given_up: AtomicBool::new(false),
        };
        (Arc::new(link), Wires { read, write, inbox })
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a batch run. Where the future is dropped before the answer, the worker is killed: it is stuck.
    pub(super) async fn run(&self, batch: &Tensors, rehearsal: bool) -> Outputs {
        self.call(Order::Run, batch, rehearsal).await
    }

    /// Has a hook run, [`Order::Prepare`] or [`Order::Finish`]. Where the future is dropped before the answer, the worker is told.
    pub(super) async fn hook(&self, order: Order, tensors: &Tensors) -> Outputs {
        self.call(order, tensors, false).await
    }

    async fn call(&self, order: Order, batch: &Tensors, rehearsal: bool) -> Outputs {
        let places = if order == Order::Run { self.places(batch) } else { Places::default() };
        let (done, answer) = oneshot::channel();
        let (id, frame) = {
            let mut calls = self.calls();
            if let Some(why) = &calls.over {
                return Err(RunnerError::Failed(why.clone()));
            }
            calls.last += 1;
            let id = calls.last;
            let frame = match message::call(order, id, batch, rehearsal, &places) {
                Ok(frame) => frame,
                Err(error) => {
                    drop(calls);
                    self.give_back(places);
                    return Err(RunnerError::Failed(error.to_string()));
                }
            };
            calls.out.insert(id, Waiting { order, done, places });
            (id, frame)
        };
        let out = Out { link: self, id, order };
        self.send(frame);
        let outputs = answer.await;
        drop(out);
        outputs.unwrap_or_else(|_| {
            let why = self.calls().over.clone();
            Err(RunnerError::Failed(why.unwrap_or_else(|| "its worker ended".into())))
        })
    }

    /// Asks whether the worker is alive; returns when it has said so, or is over.
    pub(super) async fn ping(&self) {
        let (heard, pong) = oneshot::channel();
        let id = {
            let mut calls = self.calls();
            calls.last += 1;
            let id = calls.last;
            calls.pings.insert(id, heard);
            id
        };
        self.send(frame::bare(Order::Ping as u8, id));
        let _ = pong.await;
    }

    /// Asks the worker to end when it has answered what it has.
    pub(super) fn drain(&self) {
        self.send(frame::bare(Order::Drain as u8, 0));
    }

    /// Where the worker is over, whoever waits hears of that elsewhere.
    fn send(&self, frame: Vec<u8>) {
        let _ = self.outbox.send(Item::Frame(frame));
    }

    /// Where the tensors of a batch go: large ones, of which those of the inputs are written there.
    fn places(&self, batch: &Tensors) -> Places {
        let Some(segments) = &self.segments else { return Places::default() };
        let (offsets, bytes) = segment::layout(batch.iter().map(|(_, tensor)| raw::len(tensor.data())));
        let inputs = (bytes >= segment::LEAST).then(|| self.segment(segments, bytes)).flatten();
        let write = |segment: &Segment| {
            batch.iter().zip(&offsets).try_for_each(|((_, tensor), &offset)| segment.write(tensor.data(), offset))
        };
        // Where there is no memory to share, they go in the frame.
        let written = inputs.map(|segment| (write(&segment), segment));
        let inputs = match written {
            Some((Ok(()), segment)) => Some((segment, offsets)),
            Some((Err(_), segment)) => {
                self.no_longer(segments, segment);
                None
            }
            None => None,
        };
        Places { inputs, answer: segments.outputs().and_then(|bytes| self.segment(segments, bytes)) }
    }

    /// A segment that the worker knows, or hears of first.
    fn segment(&self, segments: &Segments, bytes: usize) -> Option<Segment> {
        let (segment, is_new) = segments.take(bytes).ok()?;
        if is_new {
            let frame = message::of_segment(Order::Segment, &segment).ok();
            let Some((descriptor, frame)) = segment.descriptor().try_clone_to_owned().ok().zip(frame) else {
                segments.lose(segment);
                return None;
            };
            let _ = self.outbox.send(Item::Descriptor(frame, descriptor));
        }
        Some(segment)
    }

    /// The worker is done with them.
    fn give_back(&self, places: Places) {
        if let Some(segments) = &self.segments {
            let Places { inputs, answer } = places;
            let all = inputs.map(|(segment, _)| segment).into_iter().chain(answer);
            all.for_each(|segment| self.no_longer(segments, segment));
        }
    }

    /// Nobody uses the segment any more. The worker is told to forget one that is not kept.
    fn no_longer(&self, segments: &Segments, segment: Segment) {
        let gone = segments.give_back(segment).and_then(|gone| message::of_segment(Order::Forget, &gone).ok());
        gone.into_iter().for_each(|frame| self.send(frame));
    }

    /// Lets shared memory go that has not been used for long. The worker is told to forget it.
    pub(super) fn tidy(&self) {
        let gone = self.segments.iter().flat_map(Segments::next_term);
        let frames = gone.filter_map(|gone| message::of_segment(Order::Forget, &gone).ok());
        frames.for_each(|frame| self.send(frame));
    }

    /// Batches that are out.
    pub(super) fn busy(&self) -> usize {
        self.calls().out.values().filter(|waiting| waiting.order == Order::Run).count()
    }

    /// Calls of any kind that are out.
    pub(super) fn calls_out(&self) -> usize {
        self.calls().out.len()
    }

    /// Batches that were answered.
    pub(super) fn answered(&self) -> u64 {
        self.calls().answered
    }

    /// Whether batches may go there.
    pub(super) fn is_open(&self) -> bool {
        !self.is_given_up.load(Ordering::Relaxed)
    }

    /// Returns when the worker is to be killed.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// Nothing more comes: who waits is told why, and so is whoever asks from now on.
    pub(super) fn over(&self, why: &str) {
        let mut calls = self.calls();
        calls.over = Some(why.to_owned());
        calls.out.clear();
        calls.pings.clear();
    }

    fn take(&self, frame: &Frame, signature: &Signature) -> Result<(), WorkerError> {
        let id = frame.head.id;
        let outputs = match frame.head.word() {
            Word::Pong => {
                let heard = self.calls().pings.remove(&id);
                if let Some(heard) = heard {
                    let _ = heard.send(());
                }
                return Ok(());
            }
            Word::Done => {
                let asked = |waiting: &mut Waiting| (waiting.order, waiting.places.answer.take());
                // Nobody waits for the answer to a call that was cancelled.
                let Some((order, answer)) = self.calls().out.get_mut(&id).map(asked) else { return Ok(()) };
                let specs = if order == Order::Prepare { &signature.inputs } else { &signature.outputs };
                let (outputs, bytes) = message::done(frame.meta(), frame.data(), specs, answer.as_ref())?;
                if let Some(segments) = &self.segments {
                    segments.seen(bytes);
                    answer.into_iter().for_each(|segment| self.no_longer(segments, segment));
                }
                Ok(outputs)
            }
            Word::Failed => Err(message::failed(frame.meta())?),
            Word::Ready => return Err(WorkerError::Protocol("it says 'ready' twice".into())),
            Word::Unknown => return Ok(()),
        };
        let mut calls = self.calls();
        if let Some(waiting) = calls.out.remove(&id) {
            calls.answered += u64::from(waiting.order == Order::Run);
            drop(calls);
            self.give_back(waiting.places);
            let _ = waiting.done.send(outputs);
        }
        Ok(())
    }
}

impl Wires {
    /// Carries frames both ways until the worker closes its end, or breaks the protocol.
    pub(super) async fn carry(self, link: &Link, signature: &Signature) -> Result<(), WorkerError> {
        let Wires { mut read, mut write, mut inbox } = self;
        let reading = async {
            while let Some(frame) = read.next().await? {
                link.take(&frame, signature)?;
            }
            Ok(())
        };
        let writing = async {
            while let Some(item) = inbox.recv().await {
                let written = match item {
                    Item::Frame(frame) => write.write_all(&frame).await,
                    Item::Descriptor(frame, descriptor) => match with_descriptor(&write, &frame, &descriptor).await {
                        Ok(sent) => write.write_all(&frame[sent..]).await,
                        Err(error) => Err(error),
                    },
                };
                if let Err(error) = written {
                    tracing::debug!(%error, "a worker takes no more");
                    break;
                }
            }
            // Why it takes no more, reading tells.
            std::future::pending().await
        };
        tokio::select! {
            ended = reading => ended,
            never = writing => never,
        }
    }
}

/// Writes the begin of a frame, with a descriptor beside it, and says how much of the frame that was.
async fn with_descriptor(write: &OwnedWriteHalf, frame: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let stream: &UnixStream = write.as_ref();
    loop {
        stream.writable().await?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let descriptors = [descriptor.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            beside.push(SendAncillaryMessage::ScmRights(&descriptors));
            // Rust's programs ignore SIGPIPE.
            Ok(sendmsg(stream, &[IoSlice::new(frame)], &mut beside, SendFlags::empty())?)
        });
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
    }
}

/// A call that is out.
struct Out<'a> {
    link: &'a Link,
    id: u64,
    order: Order,
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        let mut calls = self.link.calls();
        if calls.out.remove(&self.id).is_none() {
            return;
        }
        drop(calls);
        match self.order {
            Order::Run => {
                self.link.is_given_up.store(true, Ordering::Relaxed);
                self.link.given_up.notify_one();
            }
            _ => self.link.send(frame::bare(Order::Cancel as u8, self.id)),
        }
    }
}
