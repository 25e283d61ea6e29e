//! Starts the log: what it says, in which form. It goes to stderr; stdout is for what programs read.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogFormat;

/// Starts it. Without a form it is for people: in colours on a terminal, plain elsewhere.
pub(super) fn start(filter: &str, format: Option<LogFormat>) {
    let filter: Targets = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(stderr);
    // A subscriber that somebody set before stays: whoever embeds this has chosen it.
    let _ = match format {
        Some(LogFormat::Json) => {
            let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
            log.finish().with(filter).try_init()
        }
        Some(LogFormat::Pretty) => log.with_ansi(true).with_target(false).finish().with(filter).try_init(),
        None => log.with_ansi(stderr().is_terminal()).with_target(false).finish().with(filter).try_init(),
    };
}
