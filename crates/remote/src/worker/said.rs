//! What a worker prints, in our log: a line each, cut where it is long, counted where there are too many.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;
use uncork_model::quote::on_one_line;

/// Longer lines are cut.
const MOST_LINE: usize = 1000;
/// Lines a second that are logged of each worker's output; the others are counted.
const MOST_LINES: u32 = 100;

/// Where a worker writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pipe {
    Stdout,
    Stderr,
}

/// The last line that a worker wrote: of errors, and of anything.
#[derive(Debug, Default)]
pub(super) struct Last(Mutex<[Option<String>; 2]>);

impl Last {
    fn set(&self, pipe: Pipe, line: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[pipe as usize] = Some(line.to_owned());
    }

    /// What it wrote last, as the end of a sentence.
    pub(super) fn words(&self) -> String {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = last[Pipe::Stderr as usize].as_ref().or(last[Pipe::Stdout as usize].as_ref());
        line.map(|line| format!("{LAST}{line}")).unwrap_or_default()
    }
}

const LAST: &str = "; it wrote last: ";

/// A sentence without what a worker wrote last.
pub(super) fn without_words(text: &str) -> &str {
    text.split_once(LAST).map_or(text, |(own, _)| own)
}

/// Logs what comes through a pipe until that ends.
pub(super) async fn follow((mut from, pipe): (impl AsyncRead + Unpin, Pipe), model: &str, worker: i32, last: &Last) {
    let mut lines = Lines::default();
    let mut chunk = vec![0; 8 * 1024];
    let mut pace = Pace::new();
    loop {
        let count = from.read(&mut chunk).await.unwrap_or(0);
        // The last words of a process that dies may have no end.
        let bytes = if count == 0 { &b"\n"[..] } else { &chunk[..count] };
        for line in lines.take(bytes) {
            last.set(pipe, &line);
            if pace.has_room(model, worker) {
                tracing::info!(model, worker, "{line}");
            }
        }
        if count == 0 {
            break;
        }
    }
    pace.end(model, worker);
}

/// How many lines have come in this second.
struct Pace {
    since: Instant,
    lines: u32,
}

impl Pace {
    fn new() -> Pace {
        Pace { since: Instant::now(), lines: 0 }
    }

    fn has_room(&mut self, model: &str, worker: i32) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            self.end(model, worker);
            *self = Pace::new();
        }
        self.lines = self.lines.saturating_add(1);
        self.lines <= MOST_LINES
    }

    fn end(&self, model: &str, worker: i32) {
        let left_out = self.lines.saturating_sub(MOST_LINES);
        if left_out > 0 {
            tracing::warn!(model, worker, "{left_out} more lines of its output are left out");
        }
    }
}

/// Bytes, cut into lines.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = (MOST_LINE + 1).saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.begun);
                let line = on_one_line(line.trim_end(), MOST_LINE);
                whole.extend((!line.is_empty()).then_some(line));
                self.begun.clear();
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_words_count_though_no_line_end_follows() {
        let last = Last::default();
        follow((&b"one\nout of memory"[..], Pipe::Stderr), "m", 1, &last).await;
        assert_eq!(last.words(), "; it wrote last: out of memory");
    }

    #[test]
    fn lines_are_whole_escaped_and_cut() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"one\ntw"), ["one"]);
        assert_eq!(lines.take(b"o\r\n\n\x1b[31mred\n"), ["two", " [31mred"]);
        let long = lines.take(&[vec![b'x'; 100_000], b"\n".to_vec()].concat());
        assert!(long[0].len() < MOST_LINE + 10 && long[0].ends_with('…'), "{}", long[0].len());
        assert!(lines.begun.is_empty());
    }
}
