//! How connections hear that the server is about to go, at little cost for each time they are polled.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

use tokio::sync::watch;

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
