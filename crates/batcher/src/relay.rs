//! Who polls the actor: its task, or a runner's thread that has just done a batch.
//!
//! A runner that is done needs the next batch at once. Were it to wake the actor's task and then be woken in turn, each would wait for a
//! processor: tenths of a millisecond for every batch where there are more threads than processors, and the runner idle meanwhile. So its
//! thread polls the actor itself, and finds its next batch sent before it looks for it.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;

/// Nobody polls.
const FREE: u8 = 0;
/// Somebody polls.
const TAKEN: u8 = 1;
/// Somebody polls, and was woken since: it is to be polled again.
const MISSED: u8 = 2;

thread_local! {
    /// What was woken within [`carrying_on`].
    static WOKEN: RefCell<Option<Vec<Arc<Shared>>>> = const { RefCell::new(None) };
    /// Whether this thread polls for a task.
    static CARRIES_ON: Cell<bool> = const { Cell::new(false) };
}

/// Calls `tell`, and polls on this thread what that wakes.
pub(super) fn carrying_on(tell: impl FnOnce()) {
    WOKEN.set(Some(Vec::new()));
    let mut woken = Woken(Vec::new());
    tell();
    woken.0 = WOKEN.take().unwrap_or_default();
    while let Some(shared) = woken.0.pop() {
        let _within = shared.runtime.enter();
        // Its task learns by itself of what is over.
        let _ = shared.poll(true);
    }
}

/// What was woken and is not polled yet. After a panic its tasks do that.
struct Woken(Vec<Arc<Shared>>);

impl Drop for Woken {
    fn drop(&mut self) {
        let by_tell = WOKEN.take().unwrap_or_default();
        by_tell.iter().chain(&self.0).for_each(|shared| shared.task.wake());
    }
}

/// Does what a runner's thread has no time for: beside the task, if this thread polls in its stead, and else here and now.
pub(super) fn aside(work: impl FnOnce() + Send + 'static) {
    if CARRIES_ON.get() {
        // Dropped undone where the runtime ends.
        drop(tokio::spawn(async move { work() }));
    } else {
        work();
    }
}

/// A future for a task, which [`carrying_on`] may poll as well.
pub(super) struct Relay(Arc<Shared>);

struct Shared {
    /// Taken out when it is over.
    work: Mutex<Option<BoxFuture<'static, ()>>>,
    /// One of [`FREE`], [`TAKEN`], [`MISSED`]: nobody waits for the lock above.
    state: AtomicU8,
    task: AtomicWaker,
    runtime: Handle,
}

impl Relay {
    /// Must be called within a tokio runtime.
    pub(super) fn new(work: impl Future<Output = ()> + Send + 'static) -> Relay {
        Relay(Arc::new(Shared {
            work: Mutex::new(Some(Box::pin(work))),
            state: AtomicU8::new(FREE),
            task: AtomicWaker::new(),
            runtime: Handle::current(),
        }))
    }
}

impl Future for Relay {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.task.register(context.waker());
        self.0.poll(false)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The runtime ends, or it is over: what it holds is let go now, and not with the last of its wakers.
        let work = self.0.lock().take();
        drop(work);
    }
}

impl Shared {
    fn poll(self: &Arc<Self>, carries_on: bool) -> Poll<()> {
        if !self.take() {
            return Poll::Pending; // whoever has it says when it is to be polled again
        }
        let waker = Waker::from(Arc::clone(self));
        let mut work = self.lock();
        let polled = work.as_mut().map(|work| {
            let mut context = Context::from_waker(&waker);
            CARRIES_ON.set(carries_on);
            catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)))
        });
        CARRIES_ON.set(false);
        let is_over = !matches!(polled, Some(Ok(Poll::Pending)));
        let over = if is_over { work.take() } else { None };
        drop(work);
        if self.state.swap(FREE, Ordering::AcqRel) == MISSED || is_over {
            self.task.wake();
        }
        drop(over);
        match polled {
            Some(Err(panic)) => resume_unwind(panic),
            _ if is_over => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// Whether it is this caller's to poll; if not, it is polled again afterwards.
    fn take(&self) -> bool {
        let taken = |state| Some(if state == FREE { TAKEN } else { MISSED });
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken) == Ok(FREE)
    }

    fn lock(&self) -> MutexGuard<'_, Option<BoxFuture<'static, ()>>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        let missed = |state| (state != FREE).then_some(MISSED);
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, missed).is_ok() {
            return;
        }
        let keep =
            |woken: &RefCell<Option<Vec<_>>>| woken.borrow_mut().as_mut().map(|woken| woken.push(Arc::clone(&self)));
        // Without its own memory, the thread is about to end.
        if WOKEN.try_with(keep).ok().flatten().is_none() {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use tokio::sync::{mpsc as inbox, oneshot};

    use super::*;

    /// A relay that says on which thread it took each message in, and ends with `None`.
    fn listening() -> (inbox::UnboundedSender<Option<u64>>, mpsc::Receiver<(u64, ThreadId)>, Relay) {
        let (tell, mut told) = inbox::unbounded_channel();
        let (seen, saw) = mpsc::channel();
        let relay = Relay::new(async move {
            while let Some(Some(message)) = told.recv().await {
                let _ = seen.send((message, thread::current().id()));
            }
        });
        (tell, saw, relay)
    }

    #[tokio::test]
    async fn what_carries_on_is_polled_where_it_was_woken_and_else_by_its_task() {
        let (tell, saw, relay) = listening();
        let task = tokio::spawn(relay);
        tokio::task::yield_now().await; // it waits now
        // This thread, the task's, is held up here, and does nothing for it.
        let (tell, saw, elsewhere) = thread::spawn(move || {
            carrying_on(|| tell.send(Some(1)).unwrap());
            assert_eq!(saw.try_recv(), Ok((1, thread::current().id())));
            tell.send(Some(2)).unwrap();
            let elsewhere = saw.try_recv();
            (tell, saw, elsewhere)
        })
        .join()
        .unwrap();
        assert_eq!(elsewhere, Err(mpsc::TryRecvError::Empty), "nobody said that it carries on");
        tell.send(None).unwrap();
        task.await.unwrap();
        assert_eq!(saw.try_recv(), Ok((2, thread::current().id())));
    }

    #[tokio::test]
    async fn its_task_ends_when_another_thread_has_brought_it_to_its_end() {
        let (tell, saw, relay) = listening();
        let task = tokio::spawn(relay);
        tokio::task::yield_now().await;
        thread::scope(|scope| drop(scope.spawn(|| carrying_on(|| tell.send(None).unwrap()))));
        assert_eq!(saw.recv(), Err(mpsc::RecvError), "what it held is let go");
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_on_another_thread_ends_its_task_too() {
        let (tell, told) = oneshot::channel::<()>();
        let (held, gone) = mpsc::channel::<()>();
        let task = tokio::spawn(Relay::new(async move {
            let _held = held;
            let _ = told.await;
            panic!("on purpose");
        }));
        tokio::task::yield_now().await;
        let ended = thread::scope(|scope| scope.spawn(|| carrying_on(|| tell.send(()).unwrap())).join());
        assert!(ended.is_err());
        task.await.unwrap();
        assert_eq!(gone.recv(), Err(mpsc::RecvError));
    }

    #[tokio::test]
    async fn what_was_woken_before_a_panic_of_who_wakes_is_polled_and_so_is_what_its_thread_wakes_afterwards() {
        let (tell, saw, relay) = listening();
        let task = tokio::spawn(relay);
        tokio::task::yield_now().await;
        let seen = tokio::task::spawn_blocking(move || {
            let panics = || {
                tell.send(Some(1)).unwrap();
                panic!("on purpose");
            };
            assert!(catch_unwind(AssertUnwindSafe(|| carrying_on(panics))).is_err());
            let next = || saw.recv_timeout(Duration::from_secs(10)).map(|(message, _)| message);
            let first = next();
            tell.send(Some(2)).unwrap();
            let second = next();
            tell.send(None).unwrap();
            (first, second)
        });
        assert_eq!(seen.await.unwrap(), (Ok(1), Ok(2)));
        task.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_dropped_with_its_task_is_gone_though_wakers_of_it_live() {
        let (tell, saw, relay) = listening();
        let task = tokio::spawn(relay);
        tokio::task::yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(saw.recv(), Err(mpsc::RecvError));
        assert!(tell.send(Some(1)).is_err());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_is_lost_whoever_polls() {
        const EACH: u64 = 20_000;
        let (tell, saw, relay) = listening();
        let task = tokio::spawn(relay);
        let tellers = [0, 1, 2, 3].map(|number| {
            let tell = tell.clone();
            thread::spawn(move || {
                for message in 0..EACH {
                    let say = || tell.send(Some(number * EACH + message)).unwrap();
                    if number % 2 == 0 { carrying_on(say) } else { say() }
                }
            })
        });
        let messages = tokio::task::spawn_blocking(move || {
            let next = || saw.recv_timeout(Duration::from_secs(20)).expect("a wake was lost").0;
            (0..4 * EACH).map(|_| next()).collect::<HashSet<_>>()
        });
        assert_eq!(messages.await.unwrap().len() as u64, 4 * EACH);
        tellers.into_iter().for_each(|teller| teller.join().unwrap());
        tell.send(None).unwrap();
        task.await.unwrap();
    }
}
