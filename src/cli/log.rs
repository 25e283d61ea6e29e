//! Starts the log: what it says, in which form. It goes to stderr; stdout is for what programs read.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogFormat;

/// Starts it. Without a form it is for people: in colours on a terminal, plain elsewhere.
pub(super) fn start(filter: &str, format: Option<LogFormat>) {
    let filter: Targets = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let filter = without_a_line_for_each_peer(filter);
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(stderr);
    // It would tell of a log that cannot be written, with a panic where that cannot be written either.
    let log = log.log_internal_errors(false);
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
    use tracing::Level;

    use super::*;

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
