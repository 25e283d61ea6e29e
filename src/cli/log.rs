//! Starts the log: what it says, in which form. It goes to stderr; stdout is for what programs read.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Starts it. Without a form it is for people: in colours on a terminal, plain elsewhere.
pub(super) fn start(filter: &str, format: Option<LogFormat>) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    // A subscriber that somebody set before stays: whoever embeds this has chosen it.
    let _ = match format {
        Some(LogFormat::Json) => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
        }
        Some(LogFormat::Pretty) => log.with_ansi(true).with_target(false).try_init(),
        None => log.with_ansi(stderr().is_terminal()).with_target(false).try_init(),
    };
}
