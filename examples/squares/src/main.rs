//! Batches a plain function with the batcher alone: no model, no server.

use std::time::Duration;

use uncork_batcher::{Batcher, Caps, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let caps = Caps::new(Duration::from_millis(50), 200);
    let squares = Batcher::new(caps, |xs: Vec<u64>| xs.iter().map(|x| x * x).collect());
    let (a, b) = tokio::try_join!(squares.submit(12), squares.submit(13))?;
    println!("{a} {b}");
    Ok(())
}
