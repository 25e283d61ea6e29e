//! Who goes where a newcomer finds no room: of the connections that wait for their first requests or their next, the one that has waited longest.
//!
//! Clients keep connections that they do not use, and so may strangers. Without this, as many as may be open would shut everybody else out
//! until `idle_timeout`, or until `head_timeout` where nothing has ever come.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::timer::poll_deadline;

/// How long a connection waits for a request before it may be asked to go. Who asks again and again is busy.
const RESTED: Duration = Duration::from_secs(1);

/// Connections that may be open beyond the bound while others, which were asked to go, are still there. No more than may be open besides: where few
/// may be, there are few descriptors.
const MOST_BEYOND: usize = 64;

/// The connections of one server that may be asked to go.
#[derive(Debug, Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Queue>>);

/// Since when a connection waits, and its number among those that wait since then.
type Place = (Instant, u64);

/// Those that have rested, and how to wake each. Who is not in it any more was asked to go.
#[derive(Debug, Default)]
struct Queue {
    rested: BTreeMap<Place, Waker>,
    next: u64,
    /// Connections beyond the bound for which nobody has gone: who was asked had a request just then, and nobody else was there.
    owed: usize,
}

impl Queue {
    /// A place for one that waits since `since`, unless it is to go at once.
    fn enter(&mut self, since: Instant, waker: Waker) -> Option<Place> {
        if self.owed > 0 {
            self.owed -= 1;
            return None;
        }
        let place = (since, self.next);
        self.next += 1;
        self.rested.insert(place, waker);
        Some(place)
    }

    /// Who has waited longest is to go.
    fn ask(&mut self) -> Option<Waker> {
        self.rested.pop_first().map(|(_, waker)| waker)
    }

    /// The one at `place` waits no more. If it was asked to go, the next one goes for it.
    fn leave(&mut self, place: Place) -> Option<Waker> {
        if self.rested.remove(&place).is_some() {
            return None;
        }
        let next = self.ask();
        self.owed += usize::from(next.is_none());
        next
    }
}

impl Idle {
    /// Whether one more may come in where `open` connections are open and `bound` may be. Where there is no room, another is asked to go, and the
    /// newcomer does not wait for that.
    pub(super) fn lets_in(&self, open: usize, bound: usize) -> bool {
        if open < bound {
            // All have gone that had to.
            self.queue().owed = 0;
            return true;
        }
        if open - bound >= MOST_BEYOND.min(bound) {
            return false;
        }
        let asked = self.queue().ask();
        asked.map(Waker::wake).is_some()
    }

    /// Does `work` for a connection on which nothing has come since `since`; `None` if it is to go before that is done.
    pub(super) async fn unless_asked<T>(&self, since: Instant, work: impl Future<Output = T>) -> Option<T> {
        let (mut rest, mut timer, mut work) = (self.rest(), None, pin!(work));
        let done = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => rest.poll_asked(since, &mut timer, cx).map(|()| None),
        });
        let done = done.await;
        if done.is_some() {
            rest.ends();
        }
        done
    }

    /// What one connection has to do with it.
    pub(super) fn rest(&self) -> Rest {
        Rest { idle: self.clone(), place: None }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // It is whole between any two of its methods.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's waiting for its next request.
#[derive(Debug)]
pub(super) struct Rest {
    idle: Idle,
    /// While it may be asked to go, and until it looks whether it was.
    place: Option<Place>,
}

impl Rest {
    /// Completes when the connection, which waits since `since`, is to go. `timer` wakes it when it has rested: it may stand too early, never too
    /// late.
    pub(super) fn poll_asked(
        &mut self,
        since: Instant,
        timer: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if since.elapsed() < RESTED {
            ready!(poll_deadline(timer, since + RESTED, cx));
        }
        let mut queue = self.idle.queue();
        let is_asked = match self.place {
            None => {
                self.place = queue.enter(since, cx.waker().clone());
                self.place.is_none()
            }
            Some(place) => match queue.rested.get_mut(&place) {
                Some(waker) => {
                    waker.clone_from(cx.waker());
                    false
                }
                None => true,
            },
        };
        if is_asked {
            self.place = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Says that the connection has something to do.
    pub(super) fn ends(&mut self) {
        if let Some(place) = self.place.take() {
            let next = self.idle.queue().leave(place);
            if let Some(waker) = next {
                waker.wake();
            }
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        // Whether it was asked or not, it goes: nobody has to go for it.
        if let Some(place) = self.place {
            self.idle.queue().rested.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// A connection that waits since now, and its timer.
    struct Waiting(Rest, Instant, Option<Pin<Box<Sleep>>>);

    impl Waiting {
        fn of(idle: &Idle) -> Waiting {
            Waiting(idle.rest(), Instant::now(), None)
        }

        /// Whether it is to go.
        async fn is_asked(&mut self) -> bool {
            let Waiting(rest, since, timer) = self;
            poll_fn(|cx| Poll::Ready(rest.poll_asked(*since, timer, cx).is_ready())).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_longest_goes_and_nobody_who_came_to_wait_within_a_second() {
        let idle = Idle::default();
        let mut first = Waiting::of(&idle);
        advance(Duration::from_millis(10)).await;
        let mut second = Waiting::of(&idle);
        advance(RESTED - Duration::from_millis(11)).await;
        // The later one looks first.
        assert!(!second.is_asked().await && !first.is_asked().await);
        assert!(!idle.lets_in(2, 2), "nobody has rested");
        advance(Duration::from_millis(11)).await;
        assert!(!second.is_asked().await && !first.is_asked().await);
        assert!(idle.lets_in(2, 2));
        assert!(!second.is_asked().await && first.is_asked().await);
        drop(first);
        let _third = Waiting::of(&idle);
        assert!(idle.lets_in(2, 2));
        assert!(second.is_asked().await);
        drop(second);
        assert!(!idle.lets_in(2, 2), "the last has not rested");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_rested_is_woken_and_one_that_is_asked_too() {
        let idle = Idle::default();
        let Waiting(mut rest, since, mut timer) = Waiting::of(&idle);
        let asked = tokio::spawn(async move { poll_fn(|cx| rest.poll_asked(since, &mut timer, cx)).await });
        while !idle.lets_in(1, 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        asked.await.unwrap();
        assert!((RESTED..RESTED + Duration::from_millis(3)).contains(&since.elapsed()), "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn another_goes_for_one_that_was_asked_and_had_a_request_just_then() {
        let idle = Idle::default();
        let mut waiting: Vec<_> = (0..3).map(|_| Waiting::of(&idle)).collect();
        advance(RESTED).await;
        for waiting in &mut waiting {
            assert!(!waiting.is_asked().await);
        }
        assert!(idle.lets_in(3, 3));
        waiting[0].0.ends();
        waiting[0].1 = Instant::now();
        assert!(!waiting[0].is_asked().await && waiting[1].is_asked().await && !waiting[2].is_asked().await);

        // Nobody else is there: it goes itself when it has rested.
        assert!(idle.lets_in(3, 3));
        waiting[2].0.ends();
        assert!(!waiting[0].is_asked().await);
        advance(RESTED).await;
        assert!(waiting[0].is_asked().await);
        waiting[0].1 = Instant::now();
        advance(RESTED).await;
        assert!(!waiting[0].is_asked().await, "only once");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_goes_any_more_where_there_is_room_again() {
        let idle = Idle::default();
        let (mut first, mut second) = (Waiting::of(&idle), Waiting::of(&idle));
        advance(RESTED).await;
        assert!(!first.is_asked().await);
        assert!(idle.lets_in(1, 1));
        first.0.ends();
        assert!(idle.lets_in(0, 1));
        assert!(!second.is_asked().await);
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_let_in_while_those_who_were_asked_are_still_there() {
        let idle = Idle::default();
        let mut waiting: Vec<_> = (0..2 * MOST_BEYOND).map(|_| Waiting::of(&idle)).collect();
        advance(RESTED).await;
        for waiting in &mut waiting {
            assert!(!waiting.is_asked().await);
        }
        let let_in = |bound: usize| (bound..).take_while(|&open| idle.lets_in(open, bound)).count();
        assert_eq!(let_in(4096), MOST_BEYOND);
        assert_eq!(let_in(2), 2, "no more than may be open besides");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_gone_is_not_asked() {
        let idle = Idle::default();
        let mut gone = Waiting::of(&idle);
        advance(RESTED).await;
        assert!(!gone.is_asked().await);
        drop(gone);
        assert!(!idle.lets_in(1, 1));
    }
}
