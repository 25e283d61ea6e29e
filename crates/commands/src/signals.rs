//! The signals by which a server is told to end, or to read its configuration again.

use std::io;
use std::time::{Duration, Instant};

/// Whoever signals a process and then its whole group means one signal: GNU's `timeout` does so.
const ECHO: Duration = Duration::from_millis(200);

/// A signal to end, by its name and its exit code: 128 and its number, as shells have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// `SIGTERM`, `SIGINT`.
    pub by: &'static str,
    /// What the process ends with where it ends by it.
    pub exit_code: u8,
}

const INTERRUPT: Told = Told { by: "SIGINT", exit_code: 130 };

/// SIGTERM and SIGINT, from the moment of [`listen`](Signals::listen) on.
#[cfg(unix)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Takes the signals over: from here on they end nothing by themselves.
    pub fn listen() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told { by: "SIGTERM", exit_code: 143 },
            _ = self.interrupt.recv() => INTERRUPT,
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Nothing is to be taken over.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals)
    }

    /// The next Ctrl-C.
    pub async fn next(&mut self) -> Told {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without the handler the system's own stays in place, and ends the process.
            std::future::pending::<()>().await;
        }
        INTERRUPT
    }
}

impl Signals {
    /// The next signal after one that has just come, which echoes for 200 ms.
    pub async fn once_more(&mut self) -> Told {
        let since = Instant::now();
        loop {
            let told = self.next().await;
            if since.elapsed() >= ECHO {
                return told;
            }
        }
    }
}

/// SIGHUP, from the moment of [`listen`](Hangups::listen) on. Several that come before they are asked for are one.
#[cfg(unix)]
pub struct Hangups(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Hangups {
    /// Takes the signal over: from here on it ends nothing.
    pub fn listen() -> io::Result<Hangups> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(Hangups)
    }

    /// Returns at the next one.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// There is no such signal here.
#[cfg(not(unix))]
pub struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    /// Nothing is to be taken over.
    pub fn listen() -> io::Result<Hangups> {
        Ok(Hangups)
    }

    /// Never returns.
    pub async fn next(&mut self) {
        std::future::pending::<()>().await;
    }
}
