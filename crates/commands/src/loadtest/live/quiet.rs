//! Keys that are pressed while a picture is on the terminal do not appear in it.

use std::io::{self, stderr};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The terminal echoes again when it is dropped, and forgets what was typed meanwhile.
pub(super) struct Quiet(Termios);

impl Quiet {
    pub(super) fn begin() -> io::Result<Quiet> {
        let usual = tcgetattr(stderr())?;
        let mut quiet = usual.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stderr(), OptionalActions::Now, &quiet)?;
        Ok(Quiet(usual))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Whoever closed the terminal needs nothing back.
        let _ = tcsetattr(stderr(), OptionalActions::Flush, &self.0);
    }
}
