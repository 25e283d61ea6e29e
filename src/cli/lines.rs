//! Lines on their way to stderr: kept in bounds, and written by a thread of their own. Whoever logs waits for no reader.
//!
//! `tracing-appender` does the like. Its queue is bounded in lines and not in bytes, and where that is full at the end it writes to stdout,
//! which may be the same pipe.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that may wait.
const MOST_WAITING: usize = 1 << 20;

/// How often a full pipe is asked whether it has room.
const FULL: Duration = Duration::from_millis(5);

/// What is to be written. Whoever has it may add to it.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that found no room. From the first of them on there is none, until what waits is written: they are one gap, which is told of
    /// where it is.
    left_out: u64,
    is_writing: bool,
    /// Who writes. What it adds itself always has room: that is how it tells of a gap.
    writer: Option<ThreadId>,
}

impl Lines {
    /// Writes them to `out` from now on. `tell` is called on the writing thread with the number of lines that were left out, to add a line
    /// about it.
    pub(super) fn write_to(
        &self,
        mut out: impl Write + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<()> {
        let Lines(shared) = self.clone();
        let write = move || {
            let mut waiting = shared.waiting();
            waiting.writer = Some(thread::current().id());
            loop {
                waiting.is_writing = false;
                if waiting.is_idle() {
                    shared.changed.notify_all();
                    let idle = shared.changed.wait_while(waiting, |waiting| waiting.is_idle());
                    waiting = idle.unwrap_or_else(PoisonError::into_inner);
                }
                waiting.is_writing = true;
                if let Some(line) = waiting.lines.pop_front() {
                    waiting.bytes -= line.len();
                    drop(waiting);
                    write(&mut out, &line);
                } else {
                    let left_out = mem::take(&mut waiting.left_out);
                    drop(waiting);
                    tell(left_out);
                }
                waiting = shared.waiting();
            }
        };
        thread::Builder::new().name("uncork-log".into()).spawn(write).map(drop)
    }

    /// Adds a line, with its end.
    pub(super) fn add(&self, line: &[u8]) {
        let Lines(shared) = self;
        let mut waiting = shared.waiting();
        let was_idle = waiting.is_idle();
        let has_room = waiting.left_out == 0 && waiting.bytes + line.len() <= MOST_WAITING;
        if has_room || waiting.writer == Some(thread::current().id()) {
            waiting.bytes += line.len();
            waiting.lines.push_back(line.to_vec());
        } else {
            waiting.left_out += 1;
        }
        drop(waiting);
        if was_idle {
            shared.changed.notify_all();
        }
    }

    /// Waits until all are written, or for this long.
    pub(super) fn finish(&self, within: Duration) {
        let Lines(shared) = self;
        let is_left = |waiting: &mut Waiting| waiting.is_writing || !waiting.is_idle();
        // What is left then is lost: the process ends.
        let _ = shared.changed.wait_timeout_while(shared.waiting(), within, is_left);
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Whether there is nothing to do.
    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.left_out == 0
    }
}

/// Writes a line. Nothing is left to be done about one that cannot be written, as on a full disk. Where another process has set what stderr is
/// shared with so that a full pipe says so instead of waiting, it is this thread that waits.
fn write(out: &mut impl Write, mut line: &[u8]) {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return,
            Ok(written) => line = &line[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(FULL),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;

    /// Takes what is written when somebody takes it from here.
    struct Slow(SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let Slow(taken) = self;
            taken.send(line.to_vec()).map_err(io::Error::other).map(|()| line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_finds_no_room_is_one_gap_that_is_told_of_where_it_is() {
        let lines = Lines::default();
        let long = vec![b'x'; MOST_WAITING / 4];
        for _ in 0..4 {
            lines.add(&long);
        }
        lines.add(b"one");
        lines.add(b"two");
        let (taken, take) = sync_channel(0);
        let gap = lines.clone();
        lines.write_to(Slow(taken), move |left_out| gap.add(format!("{left_out} left out").as_bytes())).unwrap();
        // Nobody reads.
        lines.finish(Duration::ZERO);
        for _ in 0..4 {
            assert!(take.recv().unwrap() == long);
        }
        assert_eq!(String::from_utf8(take.recv().unwrap()).unwrap(), "2 left out");
        lines.finish(Duration::MAX);
        lines.add(b"three");
        assert_eq!(take.recv().unwrap(), b"three");
        // Longer than all that may wait.
        lines.add(&vec![b'x'; MOST_WAITING + 1]);
        assert_eq!(take.recv().unwrap(), b"1 left out");
    }

    /// Has no room at every other time, and then for a byte.
    struct Full<W>(W, bool);

    impl<W: Write> Write for Full<W> {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let Full(out, is_full) = self;
            *is_full = !*is_full;
            if *is_full { Err(io::ErrorKind::WouldBlock.into()) } else { out.write(&line[..1]) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_that_says_it_is_full_is_written_to_when_it_is_not() {
        let (lines, (taken, take)) = (Lines::default(), sync_channel(3));
        lines.add(b"one");
        lines.write_to(Full(Slow(taken), false), |_| ()).unwrap();
        lines.finish(Duration::MAX);
        let written: Vec<u8> = take.try_iter().flatten().collect();
        assert_eq!(written, b"one");
    }
}
