//! Ctrl-C ends a run early, with what was measured so far; a second one ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::signals::Signals;

/// Hears the signals to end for as long as it is there.
pub(super) struct Stop {
    told: Arc<AtomicBool>,
    done: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Stop {
    /// Takes the signals over.
    ///
    /// # Errors
    /// They cannot be had.
    pub(super) fn listen() -> Result<Stop, String> {
        let failed = |error: std::io::Error| format!("the signals to end cannot be heard: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let told = Arc::new(AtomicBool::new(false));
        let (done, over) = oneshot::channel();
        let mut signals = {
            let _within = runtime.enter();
            Signals::listen().map_err(failed)?
        };
        let tell = Arc::clone(&told);
        let listen = async move {
            let twice = async {
                signals.next().await;
                tell.store(true, Ordering::Relaxed);
                // Whoever asks again does not want the report.
                std::process::exit(signals.once_more().await.exit_code.into());
            };
            tokio::select! {
                () = twice => {}
                _ = over => {}
            }
        };
        let thread = std::thread::spawn(move || runtime.block_on(listen));
        Ok(Stop { told, done: Some(done), thread: Some(thread) })
    }

    /// Set once a signal came.
    pub(super) fn told(&self) -> &AtomicBool {
        &self.told
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            // It may have heard a signal and be gone.
            let _ = done.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
