//! Starts the log: what it says, in which form. It goes to stderr; stdout is for what programs read.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, IsTerminal, stderr};
use std::panic::{self, PanicHookInfo};
use std::thread;
use std::time::Duration;

use tracing::warn;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::lines::Lines;
use crate::config::LogFormat;
use crate::quote::{on_lines, printable};

/// How long the end of the process waits for whoever reads.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log, which is written to its end when this is dropped, or for as long as [`LAST_LINES`].
pub(super) struct Log(Lines);

impl Log {
    /// Says it, whatever the filter.
    pub(super) fn say(&self, text: &str) {
        let Log(lines) = self;
        lines.add(format!("{}\n", printable(text)).as_bytes());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let Log(lines) = self;
        lines.finish(LAST_LINES);
    }
}

/// Starts it. Without a form it is for people: in colours on a terminal, plain elsewhere. From here on nothing else is to write to stderr:
/// it would wait for whoever reads.
pub(super) fn start(filter: &str, format: Option<LogFormat>) -> io::Result<Log> {
    let filter: Targets = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let filter = without_a_line_for_each_peer(filter);
    let lines = Lines::default();
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(lines.clone());
    // It would tell of a log that cannot be written, with a panic where that cannot be written either.
    let log = log.log_internal_errors(false);
    // A subscriber that somebody set before stays: whoever embeds this has chosen it.
    let _ = match format {
        Some(LogFormat::Json) => {
            let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
            log.finish().with(filter).try_init()
        }
        _ => {
            let log = log.with_ansi(format.is_some() || stderr().is_terminal()).with_target(false);
            log.fmt_fields(Plain).finish().with(filter).try_init()
        }
    };
    lines
        .write_to(stderr(), |left_out| warn!(left_out, "lines of the log are left out: stderr took them too slowly"))?;
    let panics = lines.clone();
    panic::set_hook(Box::new(move |panic| panics.add(panic_text(panic).as_bytes())));
    Ok(Log(lines))
}

/// Messages and fields in which nothing forges a line of the log or does anything to a terminal, whatever they repeat.
struct Plain;

impl<'writer> FormatFields<'writer> for Plain {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        // What is told in several lines on purpose is indented already.
        writer.write_str(&on_lines(&text.replace("\n    ", "\n")))
    }
}

/// What is written of a panic without this hook.
fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let mut text = format!("\nthread '{}' {panic}\n", thread.name().unwrap_or("<unnamed>"));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        text += &format!("stack backtrace:\n{trace}");
    }
    text
}

/// What speaks HTTP/2 warns of each client that it sends away, as often as one comes: a flood of them would fill a disk. Whoever names it gets
/// its lines.
fn without_a_line_for_each_peer(filter: Targets) -> Targets {
    const LOUD: &str = "h2";
    let is_named = filter.iter().any(|(target, _)| target.split("::").next() == Some(LOUD));
    if is_named || filter.default_level() < Some(LevelFilter::ERROR) {
        filter
    } else {
        filter.with_target(LOUD, LevelFilter::ERROR)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing::Level;

    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    struct Held(Arc<Mutex<Vec<u8>>>);

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_that_is_logged_forges_a_line_or_does_anything_to_a_terminal() {
        let written = Held::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).fmt_fields(Plain);
        tracing::subscriber::with_default(log.finish(), || {
            let name = "a\u{1b}[31m\u{202e}\n2026-11-27T00:00:00Z  INFO forged";
            tracing::error!(name, shown = %name, "{name}");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let is_bare = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!written.contains(is_bare) && !written.contains("\n2026"), "{written:?}");
        assert!(written.contains("forged name="), "{written:?}");
    }

    #[test]
    fn http_2_tells_of_no_single_peer_unless_it_is_asked_to() {
        let would = |filter: &str| {
            let filter = without_a_line_for_each_peer(filter.parse().unwrap());
            let h2 = "h2::proto::streams";
            (
                filter.would_enable(h2, &Level::ERROR),
                filter.would_enable(h2, &Level::WARN),
                filter.would_enable("uncork", &Level::WARN),
            )
        };
        assert_eq!((would("info"), would("debug")), ((true, false, true), (true, false, true)));
        assert_eq!((would("info,h2=warn"), would("off")), ((true, true, true), (false, false, false)));
        assert_eq!(would("uncork=warn"), (false, false, true));
    }
}
