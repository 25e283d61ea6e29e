//! Has the allocator give memory back to the system where nothing else does.
//!
//! mimalloc gives back what has been free for a second, and looks for it when memory of large pieces comes and goes. On a server that is
//! idle after a flood, none does: it would keep all of it.

use std::hint::black_box;
use std::time::Duration;

use tokio::task::JoinHandle;

/// How often it is to look.
const LOOK: Duration = Duration::from_secs(1);

/// Bytes that no piece of memory for small things is taken from, so that asking for them and giving them back has it look. They are not
/// touched, so they are none of the system's.
const LARGE: usize = 16 * 1024 * 1024;

/// Looks until it is dropped.
#[derive(Debug)]
pub(super) struct GivingBack(JoinHandle<()>);

impl GivingBack {
    /// Looks on a thread for what blocks: gigabytes take a while.
    pub(super) fn start() -> GivingBack {
        GivingBack(tokio::spawn(async {
            loop {
                tokio::time::sleep(LOOK).await;
                // A panic is none that could be helped here.
                let _ = tokio::task::spawn_blocking(|| drop(black_box(Vec::<u8>::with_capacity(LARGE)))).await;
            }
        }))
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        self.0.abort();
    }
}
