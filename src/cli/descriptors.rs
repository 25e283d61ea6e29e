//! File descriptors for the connections that may be open at once: the system's limit is often 1,024 where more is allowed for
//! the asking. Beyond the limit no connection can be accepted, nor told so: its client would wait unheard.

use std::num::NonZeroUsize;

use tracing::warn;

/// Descriptors for what is no connection of a client's: those that are told that there is no room, files of models, the log,
/// the listener, traces.
const OTHERS: usize = 384;

/// Raises the process's soft limit as far as `wanted` connections need and the hard limit lets it; says how many fit.
pub(super) fn make_room(wanted: NonZeroUsize) -> NonZeroUsize {
    let needed = wanted.get().saturating_add(OTHERS) as u64;
    let limit = match rlimit::Resource::NOFILE.get() {
        Ok((soft, _)) if soft >= needed => return wanted,
        Ok(_) => rlimit::increase_nofile_limit(needed),
        Err(error) => Err(error),
    };
    // Where the system does not say, accepting shows.
    let Ok(limit) = limit else { return wanted };
    let fitting = fitting(wanted, limit);
    if fitting < wanted {
        warn!(
            "max_connections = {wanted}, and the limit of open files is {limit}: no more than {fitting} connections are taken; raise \
             the hard limit (ulimit -Hn, LimitNOFILE=) to {needed}"
        );
    }
    fitting
}

/// How many of the wanted connections fit: an eighth of the limit in any case, for a limit that is very low.
fn fitting(wanted: NonZeroUsize, limit: u64) -> NonZeroUsize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let room = limit.saturating_sub(OTHERS).max(limit / 8);
    wanted.min(NonZeroUsize::new(room).unwrap_or(NonZeroUsize::MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_descriptors() {
        let fits = |wanted, limit| fitting(NonZeroUsize::new(wanted).unwrap(), limit).get();
        assert_eq!(fits(4096, 4096 + OTHERS as u64), 4096);
        assert_eq!(fits(4096, 1024), 1024 - OTHERS);
        assert_eq!((fits(4096, 256), fits(4096, 0), fits(10, u64::MAX)), (32, 1, 10));
    }
}
