//! A worker in Rust: a process that runs any [`Runner`] behind the protocol.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError, mpsc};

use uncork_model::runner::{Runner, RunnerError};
use uncork_model::tensor::Tensors;

use super::WorkerError;
use super::frame::{self, HEAD, Head, Order, Word};
use super::message;

/// A model that is run by a process of its own.
pub struct Hosted {
    /// What runs it. Its inputs and outputs have their rows along the first axis.
    pub runner: Box<dyn Runner>,
    /// What callers are told of it.
    pub platform: String,
    /// A row that it takes.
    pub example: Option<Tensors>,
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosted").field("platform", &self.platform).finish_non_exhaustive()
    }
}

/// A frame of uncork's.
struct Told {
    head: Head,
    bytes: Vec<u8>,
}

/// Runs, as a worker, what `load` makes of the target that uncork names, with the socket as standard input. Returns the process's
/// exit code when it is told to end, and ends the process itself when uncork is gone: for a program that does nothing else.
pub fn host(load: impl FnOnce(Option<&str>) -> Result<Hosted, String>) -> u8 {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let ends = socket.and_then(|socket| Ok((socket.try_clone()?, socket)));
    match ends.map_err(|error| error.to_string()).and_then(|(read, write)| serve(read, write, load)) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("{why}");
            1
        }
    }
}

fn serve(
    mut read: UnixStream,
    write: UnixStream,
    load: impl FnOnce(Option<&str>) -> Result<Hosted, String>,
) -> Result<u8, String> {
    let setup = next(&mut read)?;
    if setup.head.kind != Order::Setup as u8 {
        return Err("this is what uncork starts as a worker; it serves nothing by itself".into());
    }
    let target = message::target(&setup.bytes[..setup.head.meta]).map_err(|error| error.to_string())?;
    let write = Mutex::new(write);
    let send = |frame: Result<Vec<u8>, WorkerError>| {
        let frame = frame.map_err(|error| error.to_string())?;
        let mut write = write.lock().unwrap_or_else(PoisonError::into_inner);
        write.write_all(&frame).map_err(|error| error.to_string())
    };
    let Hosted { mut runner, platform, example } = match load(target.as_deref()) {
        Ok(hosted) => hosted,
        Err(why) => {
            send(message::words_of(0, &RunnerError::Failed(why)))?;
            return Ok(1);
        }
    };
    let signature = runner.signature().clone();
    send(message::introduction(&signature, &platform, example.as_ref()))?;
    std::thread::scope(|scope| {
        let _gone = EndsWithItsPanic;
        let (batches, inbox) = mpsc::channel::<Option<Told>>();
        let send = &send;
        scope.spawn(move || {
            while let Ok(told) = next(&mut read) {
                let is_taken = match told.head.kind {
                    kind if kind == Order::Ping as u8 => send(Ok(frame::bare(Word::Pong as u8, told.head.id))).is_ok(),
                    kind if kind == Order::Run as u8 => batches.send(Some(told)).is_ok(),
                    kind if kind == Order::Drain as u8 => {
                        let _ = batches.send(None);
                        return;
                    }
                    _ => true,
                };
                if !is_taken {
                    break;
                }
            }
            // Nobody is left to answer, whatever the model is at.
            std::process::exit(1);
        });
        while let Ok(Some(Told { head, bytes })) = inbox.recv() {
            let (meta, data) = bytes.split_at(head.meta);
            let outputs = match message::batch(meta, data, &signature) {
                Ok((batch, false)) => runner.run(batch),
                Ok((batch, true)) => runner.rehearse(batch),
                Err(error) => Err(RunnerError::Failed(error.to_string())),
            };
            send(match &outputs {
                Ok(outputs) => message::outputs(head.id, outputs),
                Err(why) => message::words_of(head.id, why),
            })?;
        }
        Ok(0)
    })
}

/// A process whose runner has panicked ends: the scope would wait for the reader, which answers that all is well.
struct EndsWithItsPanic;

impl Drop for EndsWithItsPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(101);
        }
    }
}

fn next(from: &mut UnixStream) -> Result<Told, String> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head).map_err(|error| error.to_string())?;
    let head = Head::read(&head).map_err(|error| error.to_string())?;
    let mut bytes = head.buffer();
    from.take(head.rest() as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() < head.rest() { Err("the socket ended within a frame".into()) } else { Ok(Told { head, bytes }) }
}
