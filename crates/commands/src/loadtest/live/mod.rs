//! What is seen while a run goes on: charts in a terminal, a line now and then elsewhere.

mod course;
mod picture;
#[cfg(unix)]
mod quiet;
mod screen;

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use self::course::Course;
use self::picture::{Picture, milliseconds};
use self::screen::Screen;
use crate::complain;
use crate::layout::grouped;
use uncork_loadtest::{Load, Pulse};

/// How often a terminal's picture changes: faster is not read.
const BETWEEN_PICTURES: Duration = Duration::from_millis(250);
/// How often a line is written elsewhere.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// What is shown of one run while it goes on.
pub(super) struct Live {
    title: String,
    warm_up: Duration,
    whole: Duration,
    is_quiet: bool,
    /// What [`finished`] said of the runs before.
    before: Vec<String>,
}

impl Live {
    pub(super) fn new(title: String, load: &Load, is_quiet: bool, before: Vec<String>) -> Live {
        Live { title, warm_up: load.warm_up(), whole: load.warm_up() + load.length(), is_quiet, before }
    }

    /// Shows what comes until nothing more does.
    pub(super) fn watch(&self, pulses: &Receiver<Pulse>) {
        if self.is_quiet {
            return pulses.iter().for_each(drop);
        }
        let began = Instant::now();
        let mut screen = may_draw().then(Screen::enter).and_then(Result::ok);
        let between = if screen.is_some() { BETWEEN_PICTURES } else { BETWEEN_LINES };
        let (mut course, mut next) = (Course::default(), began + between);
        loop {
            match pulses.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(pulse) => course.hear(began.elapsed(), pulse),
                Err(RecvTimeoutError::Timeout) => {
                    let elapsed = began.elapsed();
                    course.pass(elapsed);
                    match &mut screen {
                        Some(screen) => screen.show(&self.picture(&course, elapsed)),
                        None => self.line(&course.now(), elapsed),
                    }
                    next += between;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn picture<'a>(&'a self, course: &'a Course, elapsed: Duration) -> Picture<'a> {
        Picture { title: &self.title, warm_up: self.warm_up, whole: self.whole, elapsed, course, before: &self.before }
    }

    fn line(&self, now: &Pulse, elapsed: Duration) {
        let batch = now.mean_batch_rows().map_or(String::new(), |rows| format!(", {rows:.1} rows a batch"));
        complain(&format!(
            "{:3.0} of {:.0} s: {} answers, {} refused, {} errors in the last second; p50 {} ms, p99 {} ms{batch}",
            elapsed.as_secs_f64(),
            self.whole.as_secs_f64(),
            grouped(now.good),
            grouped(now.refused),
            grouped(now.failed),
            milliseconds(now, 0.5),
            milliseconds(now, 0.99),
        ));
    }
}

/// Whether stderr is a terminal that can be drawn on, nobody wants it plain (`NO_COLOR`), and it is not kept as a log (`CI`).
fn may_draw() -> bool {
    let stderr = std::io::stderr();
    let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    let is_kept = std::env::var_os("CI").is_some();
    let is_plain = anstream::AutoStream::choice(&stderr) == anstream::ColorChoice::Never;
    stderr.is_terminal() && !is_dumb && !is_kept && !is_plain
}

/// A line that stays: one run of several is over.
pub(super) fn finished(line: &str) {
    complain(line);
}
