//! How connections hear that the server is about to go, at little cost for each time they are polled.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

use super::timer::poll_deadline;

/// How long a client is waited for once the server is going, whose request is not whole or who takes nothing of an answer: who is slow takes
/// some within this time.
pub(super) const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Ends the wait for a request when the server has been going for that long. It is to be polled when the server goes. That a part of it comes
/// is no reason to wait on: a byte now and then would hold up the end.
pub(super) struct LastWait {
    closing: Arc<watch::Receiver<bool>>,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl LastWait {
    /// Of a server that goes when this becomes true.
    pub(super) fn new(closing: &Arc<watch::Receiver<bool>>) -> LastWait {
        LastWait { closing: Arc::clone(closing), since: None, timer: None }
    }

    /// The same for what is done with what came.
    pub(super) fn going(&self) -> Going {
        Going::new(&self.closing)
    }

    /// Called while it is waited for.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !*self.closing.borrow() {
            return Poll::Pending;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        poll_deadline(&mut self.timer, since + LAST_PATIENCE, cx)
    }
}

/// Tells who works on a request that the server goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Going(Option<Arc<watch::Receiver<bool>>>);

impl Going {
    /// Of a server that goes when this becomes true.
    pub(super) fn new(closing: &Arc<watch::Receiver<bool>>) -> Going {
        Going(Some(Arc::clone(closing)))
    }

    /// Returns when the server has been going for as long as a client is waited for.
    pub(super) async fn is_over(&self) {
        let Some(closing) = &self.0 else { return pending().await };
        wait_until_true(&mut watch::Receiver::clone(closing)).await;
        sleep(LAST_PATIENCE).await;
    }
}

/// Returns when the value is true, or when nobody is left to make it so.
pub(super) async fn wait_until_true(value: &mut watch::Receiver<bool>) {
    // To ask takes a lock that all who wait share. Who has asked once is woken, and need not ask again before the value has changed.
    let seen = value.clone();
    let mut asked_by: Option<Waker> = None;
    let mut waiting = pin!(value.wait_for(|&value| value));
    poll_fn(|cx| {
        let has_asked = asked_by.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if has_asked && matches!(seen.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        // A task that has used up its turn is told to come again, and has not asked.
        let asks = tokio::task::coop::has_budget_remaining();
        let polled = waiting.as_mut().poll(cx).map(drop);
        asked_by = asks.then(|| cx.waker().clone());
        polled
    })
    .await;
}
