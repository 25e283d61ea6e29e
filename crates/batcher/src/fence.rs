//! Panics in what users write, kept from the task that owns a pool: they would end every batcher there.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;

use super::executor::{BatchError, Executor, Ran};

/// What has come back of a batch.
pub(super) type Outcome<A> = Result<Ran<A>, BatchError>;

/// What `f` returns, or the words of its panic. What it was changing is its user's to keep whole.
pub(super) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| words(&*panic))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// An executor whose panics fail the batch in which they happen.
pub(super) struct FencedExecutor<I, A>(Box<dyn Executor<I, A>>);

impl<I: 'static, A: 'static> FencedExecutor<I, A> {
    pub(super) fn new(executor: impl Executor<I, A>) -> FencedExecutor<I, A> {
        FencedExecutor(Box::new(executor))
    }

    pub(super) fn execute(&mut self, ticket: u64, batch: Vec<I>) -> Running<A> {
        Running::start(|| self.0.execute(ticket, batch))
    }

    pub(super) fn rehearse(&mut self, ticket: u64, rows: usize) -> Running<A> {
        Running::start(|| self.0.rehearse(ticket, rows))
    }

    pub(super) fn give_up(&mut self, ticket: u64, is_replaced: bool) {
        // The batch has failed already.
        let _ = caught(|| self.0.give_up(ticket, is_replaced));
    }
}

/// A batch that an executor runs.
pub(super) enum Running<A> {
    Started(BoxFuture<'static, Outcome<A>>),
    /// It panicked, with these words.
    Panicked(String),
    Over,
}

impl<A> Running<A> {
    fn start(start: impl FnOnce() -> BoxFuture<'static, Outcome<A>>) -> Running<A> {
        caught(start).map_or_else(Running::Panicked, Running::Started)
    }

    /// Lets the future go, which may panic as well.
    fn end(&mut self) -> Result<(), String> {
        let over = std::mem::replace(self, Running::Over);
        caught(|| drop(over))
    }
}

impl<A> Future for Running<A> {
    type Output = Outcome<A>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<A>> {
        let polled = match &mut *self {
            Running::Started(future) => caught(|| future.as_mut().poll(context)),
            Running::Panicked(words) => Err(std::mem::take(words)),
            Running::Over => return Poll::Pending,
        };
        let outcome = match polled {
            Ok(polled) => Ok(ready!(polled)),
            Err(words) => Err(words),
        };
        let ended = self.end();
        let outcome = outcome.and_then(|outcome| ended.map(|()| outcome));
        Poll::Ready(outcome.unwrap_or_else(|words| Err(BatchError::new(format!("the executor panicked: {words}")))))
    }
}
