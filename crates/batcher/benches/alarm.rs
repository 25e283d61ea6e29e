//! How late holds end, by the batcher's alarm and by tokio's timer, side by side; and what holds cost the processor.
//!
//! ```sh
//! cargo bench --bench alarm
//! ```
//!
//! Each row is one caller whose items are held for the time named, one after the other, by a batcher that answers at once.
//! Late is what the caller waited beyond that. Processor time is that of all threads of this process, for each hold.

use std::fs;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use uncork_batcher::{BatchError, Batcher, Caps, Executor, Ran};
use uncork_core::policy::{Decision, Policy, ReleaseReason, View};

const HOLDS: usize = 3000;
/// How long nothing happens where idleness is measured.
const IDLE: Duration = Duration::from_secs(3);

fn main() {
    println!("{:>16}{:>10}{:>30}{:>12}{:>12}", "", "holds", "late by, us", "cpu", "cpu");
    let [p10, p50, p90, p99] = ["p10", "p50", "p90", "p99"];
    println!("{:>16}{:>10}{p10:>9}{p50:>7}{p90:>7}{p99:>7}{:>12}{:>12}", "hold, us", "/s", "us/hold", "%");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        // Kept to the end: the threads of those that are gone would not be counted.
        let mut batchers = Vec::new();
        for us in [25, 50, 100, 200, 400, 800, 1600] {
            let hold = Duration::from_micros(us);
            measure(&format!("tokio {us}"), hold, async || tokio::time::sleep(hold).await).await;
            let batcher = holding(hold);
            measure(&format!("batcher {us}"), hold, async || batcher.submit(()).await.expect("an answer")).await;
            batchers.push(batcher);
        }
        let used = Used::so_far();
        tokio::time::sleep(IDLE).await;
        let Used { cpu, wakes } = used.since();
        println!("{} batchers idle for {IDLE:?}: {cpu:?} of processor time, {wakes} wake-ups", batchers.len());
    });
}

async fn measure(name: &str, hold: Duration, wait: impl AsyncFn()) {
    let mut late = Vec::with_capacity(HOLDS);
    let (begin, used) = (Instant::now(), Used::so_far());
    for _ in 0..HOLDS {
        let start = Instant::now();
        wait().await;
        late.push(start.elapsed().saturating_sub(hold));
    }
    let (time, cpu) = (begin.elapsed(), used.since().cpu);
    late.sort();
    let [p10, p50, p90, p99] = [0.1, 0.5, 0.9, 0.99].map(|q| late[(HOLDS as f64 * q) as usize].as_micros());
    let rate = HOLDS as f64 / time.as_secs_f64();
    let (each, share) = (cpu.as_secs_f64() * 1e6 / HOLDS as f64, 100.0 * cpu.as_secs_f64() / time.as_secs_f64());
    println!("{name:>16}{rate:>10.0}{p10:>9}{p50:>7}{p90:>7}{p99:>7}{each:>12.1}{share:>12.1}");
}

/// What this process has used of the processors.
struct Used {
    cpu: Duration,
    wakes: u64,
}

impl Used {
    /// From proc(5): nanoseconds on a processor and voluntary switches, of all threads there are.
    fn so_far() -> Used {
        let mut used = Used { cpu: Duration::ZERO, wakes: 0 };
        for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let nanos = read("schedstat").split(' ').next().and_then(|n| n.parse().ok());
            used.cpu += Duration::from_nanos(nanos.unwrap_or(0));
            let status = read("status");
            let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            used.wakes += switches.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        used
    }

    fn since(self) -> Used {
        let now = Used::so_far();
        Used { cpu: now.cpu.saturating_sub(self.cpu), wakes: now.wakes.saturating_sub(self.wakes) }
    }
}

/// A batcher whose items are each held for this long.
fn holding(hold: Duration) -> Batcher<(), ()> {
    let caps = Caps::new(Duration::from_secs(1), 2);
    Batcher::builder(caps).policy(Hold(hold)).start(AtOnce)
}

struct Hold(Duration);

impl Policy for Hold {
    fn decide(&self, now: uncork_core::estimator::Instant, view: View<'_>) -> Decision {
        let Some(first) = view.queue.first() else { return Decision::Park };
        let until = first.arrival + self.0;
        if now < until {
            return Decision::WaitUntil(until);
        }
        Decision::Release { entries: 1, reason: ReleaseReason::Ripe }
    }
}

struct AtOnce;

impl Executor<(), ()> for AtOnce {
    fn execute(&mut self, _ticket: u64, batch: Vec<()>) -> BoxFuture<'static, Result<Ran<()>, BatchError>> {
        std::future::ready(Ok(batch.into())).boxed()
    }
}
