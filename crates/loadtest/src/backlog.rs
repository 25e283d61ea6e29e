//! Which requests a generator that is behind still sends: pure, from how late it is and for how long.
//!
//! Whoever is behind for a moment catches up by sending late. Whoever asks for more than can be sent never catches up: the backlog grows
//! until every request goes out when its time is over, and nothing is measured any more. So a backlog that lasts is cut to what is
//! still nearly punctual.

use std::time::Duration;

/// A backlog of this age is none of a moment: interruptions by the machine are over, and made up for, before.
const LASTING: Duration = Duration::from_millis(100);
/// The part of a request's time that the generator may take where it is behind for long: most of it is the server's.
const PART: u32 = 4;
/// Less than this is no backlog: turns of the loop take as long.
const LEAST: Duration = Duration::from_millis(1);

/// How late is too late.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backlog {
    timeout: Duration,
    /// How late a request may be sent where the backlog lasts, if there is such a bound.
    lasting: Option<Duration>,
    /// When requests began to be later than that.
    since: Option<Duration>,
}

impl Backlog {
    /// Of requests that are due by a schedule and have failed after `timeout`; within `deadline` their answers are of use.
    pub(super) fn new(timeout: Duration, deadline: Option<Duration>) -> Backlog {
        let of_use = deadline.map_or(timeout, |deadline| deadline.min(timeout));
        Backlog { timeout, lasting: Some((of_use / PART).max(LEAST)), since: None }
    }

    /// Of callers that ask when they were answered: they ask less of a late generator, and are behind no schedule.
    pub(super) fn of_callers(timeout: Duration) -> Backlog {
        Backlog { timeout, lasting: None, since: None }
    }

    /// A turn of the loop begins at `now`, and the oldest request that it finds, if any, was due at `oldest`.
    pub(super) fn turn(&mut self, now: Duration, oldest: Option<Duration>) {
        let Some(lasting) = self.lasting else { return };
        let late = oldest.map_or(Duration::ZERO, |due| now.saturating_sub(due));
        if late > lasting {
            self.since.get_or_insert(now);
        } else if late <= lasting / 2 {
            // Cutting the backlog alone does not get there: the generator has caught up.
            self.since = None;
        }
    }

    /// Whether it is too late at `now` to send what was due at `due`.
    pub(super) fn is_too_late(&self, now: Duration, due: Duration) -> bool {
        let late = now.saturating_sub(due);
        let lasts = self.since.is_some_and(|since| now.saturating_sub(since) > LASTING);
        late >= self.timeout || self.lasting.is_some_and(|lasting| lasts && late > lasting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Lets a generator that sends one request each `takes` microseconds, in turns of up to 256, loose on one due each `gap`, for 5 s, and
    /// stands still for `still` at the first second. How late each request was sent, in its order, or that it was not.
    fn sent(mut backlog: Backlog, gap: u64, takes: u64, still: Duration) -> Vec<Option<Duration>> {
        let due = |i: usize| Duration::from_micros(i as u64 * gap);
        let (mut now, mut lates, mut has_stood) = (Duration::ZERO, Vec::new(), false);
        while now < ms(5000) {
            if now >= ms(1000) && !has_stood {
                (now, has_stood) = (now + still, true);
            }
            let began = now;
            backlog.turn(began, Some(due(lates.len())).filter(|due| *due <= began));
            let mut sent = 0;
            while due(lates.len()) <= began && sent < 256 {
                let is_too_late = backlog.is_too_late(began, due(lates.len()));
                lates.push((!is_too_late).then(|| began - due(lates.len())));
                sent += usize::from(!is_too_late);
                now += Duration::from_micros(if is_too_late { 0 } else { takes });
            }
            now = now.max(due(lates.len()));
        }
        lates
    }

    #[test]
    fn who_asks_for_more_than_can_be_sent_gets_what_can_be_nearly_in_time() {
        for (deadline, most) in [(Some(ms(50)), 12_500), (Some(ms(5)), 1250), (None, 250_000)] {
            // One each 22 µs, of which each takes 40.
            let lates = sent(Backlog::new(ms(1000), deadline), 22, 40, Duration::ZERO);
            let last = &lates[lates.len() / 2..];
            let most = Duration::from_micros(most);
            assert!(last.iter().flatten().all(|late| *late <= most), "{deadline:?}: {:?}", last.iter().flatten().max());
            let share = last.iter().flatten().count() as f64 / last.len() as f64;
            assert!((0.54..0.56).contains(&share), "{deadline:?}: as many as it can are sent, and not {share}");
        }
    }

    #[test]
    fn a_moment_of_standing_still_is_made_up_for() {
        for (timeout, deadline) in [(10_000, None), (1000, Some(ms(50))), (1000, Some(ms(5)))] {
            let lates = sent(Backlog::new(ms(timeout), deadline), 50, 20, ms(50));
            assert!(lates.iter().all(Option::is_some), "{deadline:?}");
            assert!(lates.iter().flatten().max() >= Some(&ms(49)), "{deadline:?}: all count from when they were due");
        }
        // 10 s is the timeout unless something else is asked for.
        let lates = sent(Backlog::new(ms(10_000), None), 50, 20, ms(2000));
        assert!(lates.iter().all(Option::is_some));
    }

    #[test]
    fn what_is_over_is_never_sent() {
        let backlogs = [Backlog::new(ms(300), None), Backlog::of_callers(ms(300))];
        for backlog in backlogs {
            assert!(!backlog.is_too_late(ms(1299), ms(1000)));
            assert!(backlog.is_too_late(ms(1300), ms(1000)));
        }
        let lates = sent(backlogs[0], 50, 20, ms(1000));
        assert!(lates.iter().flatten().all(|late| *late < ms(300)));
        let left_out = lates.iter().filter(|late| late.is_none()).count();
        assert!((14_000..20_000).contains(&left_out), "what was due in 700 of 1000 ms, 20 a ms: {left_out}");
    }

    #[test]
    fn callers_that_wait_are_behind_no_schedule() {
        let mut backlog = Backlog::of_callers(ms(1000));
        for now in 0..1000 {
            backlog.turn(ms(1000 + now), Some(ms(100 + now)));
        }
        assert!(!backlog.is_too_late(ms(2000), ms(1100)));
    }
}
