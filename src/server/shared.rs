//! A page that is costly to write, written once for all who ask at the same time.
//!
//! Whoever asks gets a page that was begun after that. One that took a millisecond of a processor is not begun again for
//! twenty, so a flood of askers costs a twentieth of a core at most, off the threads that serve inference.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Times of its own cost that pass from one writing to the next.
const REST: u32 = 20;

/// The page, as it is and compressed.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
    plain: Slot,
    packed: Slot,
}

type Slot = Arc<Mutex<Option<Written>>>;

#[derive(Debug)]
struct Written {
    begun: Instant,
    cost: Duration,
    page: Bytes,
}

impl Shared {
    /// The page as `write` writes it now; `None` if that panics.
    pub(super) async fn get(&self, write: impl FnOnce() -> Bytes + Send + 'static) -> Option<Bytes> {
        Shared::of(&self.plain, write).await
    }

    /// The same for those who get it compressed, as `write` does it.
    pub(super) async fn get_packed(&self, write: impl FnOnce() -> Bytes + Send + 'static) -> Option<Bytes> {
        Shared::of(&self.packed, write).await
    }

    async fn of(slot: &Slot, write: impl FnOnce() -> Bytes + Send + 'static) -> Option<Bytes> {
        let asked = Instant::now();
        // Who waits here is served by the one who writes.
        let mut last = Arc::clone(slot).lock_owned().await;
        if let Some(last) = &*last {
            if last.begun >= asked {
                return Some(last.page.clone());
            }
            tokio::time::sleep_until(last.begun + last.cost * REST).await;
        }
        let begun = Instant::now();
        // It is written and kept though its asker leaves: else whoever comes and goes would have it written without a rest.
        let timed = move || {
            let before = worked();
            let page = write();
            *last = Some(Written { begun, cost: worked().saturating_sub(before), page: page.clone() });
            page
        };
        tokio::task::spawn_blocking(timed).await.ok()
    }
}

/// How long this thread has had a processor. On a busy machine it waits for one many times as long as it needs it.
#[cfg(target_os = "linux")]
fn worked() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// The clock, where the processor's time is not to be had.
#[cfg(not(target_os = "linux"))]
fn worked() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn counted(count: &Arc<AtomicU32>) -> impl FnOnce() -> Bytes + Send + 'static {
        let count = Arc::clone(count);
        move || Bytes::from(count.fetch_add(1, Ordering::Relaxed).to_string())
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_gets_one_page_and_who_asks_later_a_newer_one() {
        let (shared, count) = (Shared::default(), Arc::new(AtomicU32::new(0)));
        let all = futures_util::future::join_all((0..100).map(|_| shared.get(counted(&count)))).await;
        let written = count.load(Ordering::Relaxed);
        assert!(written <= 2, "{written} pages for 100 askers");
        assert!(all.iter().all(Option::is_some));
        assert_eq!(shared.get(counted(&count)).await, Some(Bytes::from(written.to_string())));
    }

    #[tokio::test]
    async fn a_page_whose_asker_leaves_counts_as_written() {
        let (shared, count) = (Shared::default(), Arc::new(AtomicU32::new(0)));
        let (begun, told) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let slow = {
            let count = Arc::clone(&count);
            move || {
                begun.send(()).unwrap();
                wait.recv().unwrap();
                Bytes::from(count.fetch_add(1, Ordering::Relaxed).to_string())
            }
        };
        let asker = {
            let shared = shared.clone();
            tokio::spawn(async move { shared.get(slow).await })
        };
        tokio::task::spawn_blocking(move || told.recv()).await.unwrap().unwrap();
        asker.abort();
        assert!(asker.await.is_err());
        // Whoever comes next waits for that page, and begins none beside it.
        let next = tokio::spawn({
            let (shared, count) = (shared.clone(), Arc::clone(&count));
            async move { shared.get(move || Bytes::from(format!("after {}", count.load(Ordering::Relaxed)))).await }
        });
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        assert_eq!(next.await.unwrap(), Some(Bytes::from("after 1")));
    }
}
