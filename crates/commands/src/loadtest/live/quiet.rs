//! Keys that are pressed while a picture is on the terminal do not appear in it, and Ctrl-Z does not leave the shell on its screen: a run that
//! stands measures nothing.

use std::io::{self, stderr};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// What a terminal takes for no key at all: `_POSIX_VDISABLE`.
const NO_KEY: u8 = if cfg!(target_os = "linux") { 0 } else { 0xff };

/// The terminal echoes again when it is dropped, and forgets what was typed meanwhile.
pub(super) struct Quiet(Termios);

impl Quiet {
    pub(super) fn begin() -> io::Result<Quiet> {
        let usual = tcgetattr(stderr())?;
        let mut quiet = usual.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        quiet.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
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
