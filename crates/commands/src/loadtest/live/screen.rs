//! The terminal while a picture is on it: a screen of its own, behind which what was printed before is kept.

use std::io::{self, BufWriter, Stderr, stderr};

use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};

use super::picture::Picture;

/// Gives the terminal back when it is dropped. Keys are not read, so that Ctrl-C stays the signal that it is.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stderr>>>,
    #[cfg(unix)]
    _quiet: Option<super::quiet::Quiet>,
}

impl Screen {
    /// # Errors
    /// The terminal does not say how large it is.
    pub(super) fn enter() -> io::Result<Screen> {
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(stderr())))?;
        if terminal.size()?.width == 0 || terminal.size()?.height == 0 {
            return Err(io::Error::other("a terminal without a size"));
        }
        // From here on whatever goes wrong gives it back.
        let mut screen = Screen {
            terminal,
            #[cfg(unix)]
            _quiet: super::quiet::Quiet::begin().ok(),
        };
        execute!(screen.terminal.backend_mut(), EnterAlternateScreen)?;
        // Not the terminal's own `clear`: it asks where the cursor is, and not every terminal answers.
        screen.terminal.backend_mut().clear()?;
        Ok(screen)
    }

    pub(super) fn show(&mut self, picture: &Picture<'_>) {
        // Nothing is lost with a look.
        let _ = self.terminal.draw(|frame| picture.draw(frame));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whoever closed the terminal needs nothing back.
        let _ = execute!(self.terminal.backend_mut(), LeaveAlternateScreen, Show);
    }
}
