//! Batches a plain function: 880 squares whose computation takes `0.001 * ln(n + 1)` seconds for n of them, asked for one
//! after the other and then all at once.
//!
//! ```text
//! cargo run --release --example from_scratch
//! ```
//!
//! The task is that of "Service batching from scratch" (2020), where it took 90.9 s one by one and 0.124 s batched. There a
//! lone caller waited out a batching window of 0.1 s each time. Here there is no window to wait out, so the ratio printed
//! is what batching itself gains.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use uncork_batcher::{Batcher, Caps, Error};

const ITEMS: u64 = 880;

fn squares(xs: Vec<u64>) -> Vec<u64> {
    std::thread::sleep(Duration::from_secs_f64(0.001 * ((xs.len() + 1) as f64).ln()));
    xs.into_iter().map(|x| x * x).collect()
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let batcher = Batcher::new(Caps::new(Duration::from_millis(500), 200), squares);

    let start = Instant::now();
    for x in 0..ITEMS {
        assert_eq!(batcher.submit(x).await?, x * x);
    }
    let one_by_one = start.elapsed();
    println!("one by one:  {:>8.3} s for {ITEMS} items", one_by_one.as_secs_f64());

    let start = Instant::now();
    let answers = try_join_all((0..ITEMS).map(|x| batcher.submit(x))).await?;
    let batched = start.elapsed();
    assert!(answers.into_iter().eq((0..ITEMS).map(|x| x * x)), "each caller has its own answer");
    println!("all at once: {:>8.3} s for {ITEMS} items", batched.as_secs_f64());
    println!("batching is {:.0} times as fast", one_by_one.as_secs_f64() / batched.as_secs_f64());
    Ok(())
}
