//! What is seen while a run goes on: a few lines that change in a terminal, a line now and then elsewhere.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::complain;
use crate::layout::{grouped, table};
use crate::plot::{bars, terminal_width};
use uncork_loadtest::{Load, Pulse};

/// How often a terminal's lines change: faster is not read.
const BETWEEN_VIEWS: Duration = Duration::from_millis(250);
/// How often a line is written elsewhere.
const BETWEEN_LINES: Duration = Duration::from_secs(5);
/// The stretch that counts as now.
const NOW: Duration = Duration::from_secs(1);
/// Seconds that are drawn as bars, one each.
const PAST: usize = 30;

enum Place {
    Terminal,
    Lines,
    Nowhere,
}

/// A view of one run.
pub(super) struct View {
    title: String,
    warm_up: Duration,
    whole: Duration,
    place: Place,
}

impl View {
    pub(super) fn new(title: String, load: &Load, is_quiet: bool) -> View {
        let place = match is_quiet {
            true => Place::Nowhere,
            false if std::io::stderr().is_terminal() => Place::Terminal,
            false => Place::Lines,
        };
        View { title, warm_up: load.warm_up(), whole: load.warm_up() + load.length(), place }
    }

    /// Shows what comes until nothing more does.
    pub(super) fn watch(&self, pulses: &Receiver<Pulse>) {
        let began = Instant::now();
        let (between, mut so_far) = match self.place {
            Place::Terminal => (BETWEEN_VIEWS, Pulse::default()),
            Place::Lines => (BETWEEN_LINES, Pulse::default()),
            Place::Nowhere => return pulses.iter().for_each(drop),
        };
        let mut recent: VecDeque<(Instant, Pulse)> = VecDeque::new();
        let (mut past, mut next_bar) = (VecDeque::with_capacity(PAST), began + NOW);
        let (mut next, mut drawn) = (began + between, 0);
        loop {
            match pulses.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(pulse) => {
                    so_far.add(&pulse);
                    recent.push_back((Instant::now(), pulse));
                }
                Err(RecvTimeoutError::Timeout) => {
                    while recent.front().is_some_and(|(at, _)| at.elapsed() > NOW) {
                        recent.pop_front();
                    }
                    let now = sum(&recent);
                    if Instant::now() >= next_bar {
                        next_bar += NOW;
                        if past.len() == PAST {
                            past.pop_front();
                        }
                        past.push_back(Second::of(&now));
                    }
                    match self.place {
                        Place::Terminal => drawn = self.draw(&now, &so_far, &past, began.elapsed(), drawn),
                        _ => self.line(&now, began.elapsed()),
                    }
                    next += between;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        erase(drawn);
    }

    /// Draws over the last view of `drawn` lines, and says how many lines this one has.
    fn draw(&self, now: &Pulse, so_far: &Pulse, past: &VecDeque<Second>, elapsed: Duration, drawn: usize) -> usize {
        let width = terminal_width();
        let seconds = elapsed.as_secs_f64();
        let share = (seconds / self.whole.as_secs_f64()).min(1.0);
        let bar = (share * 20.0).round() as usize;
        let state = match elapsed {
            elapsed if elapsed < self.warm_up => "warming up",
            elapsed if elapsed < self.whole => "measuring",
            _ => "waiting for the last answers",
        };
        let bar = format!("{}{}", "█".repeat(bar), "░".repeat(20 - bar));
        let heading = format!("{bar} {seconds:.0} of {:.0} s, {state}", self.whole.as_secs_f64());
        let rate = |count: u64, over: f64| grouped((count as f64 / over.max(1e-9)).round() as u64);
        let (this, all) = (seconds.clamp(1e-9, NOW.as_secs_f64()), seconds);
        let line = |name: &str, now: String, so_far: String| vec![name.to_owned(), now, so_far, " ".repeat(PAST)];
        let counts = |name: &str, of: &dyn Fn(&Pulse) -> u64| line(name, rate(of(now), this), rate(of(so_far), all));
        let times = |name: &str, quantile: f64| line(name, milliseconds(now, quantile), milliseconds(so_far, quantile));
        // The newest at the right; the highest of them is of full height.
        let drawn_as = |mut cells: Vec<String>, of: &dyn Fn(&Second) -> f64| {
            let values: Vec<f64> = past.iter().map(of).collect();
            cells[3] = format!("{:>PAST$}", bars(&values));
            cells
        };
        let batch = |pulse: &Pulse| pulse.mean_batch_rows().map_or("–".into(), |rows| format!("{rows:.1}"));
        let lines = [
            {
                let mut heads = line("", "last second".into(), "so far".into());
                heads[3] = format!("last {PAST} s");
                heads
            },
            counts("due/s", &|pulse| pulse.due),
            drawn_as(counts("answers/s", &|pulse| pulse.good), &|second| second.answers),
            drawn_as(counts("refused/s", &|pulse| pulse.refused), &|second| second.refused),
            counts("errors/s", &|pulse| pulse.failed),
            times("p50 ms", 0.5),
            drawn_as(times("p99 ms", 0.99), &|second| second.p99_ms),
            times("max ms", 1.0),
            drawn_as(line("batch rows", batch(now), batch(so_far)), &|second| second.batch_rows),
            line("under way", now.busy_connections.to_string(), String::new()),
            line("waiting", now.waiting.to_string(), String::new()),
        ];
        let text = format!("{}\n{heading}\n{}", self.title, table(&lines, 1, width));
        let cut = |line: &str| line.chars().take(width.saturating_sub(1)).collect::<String>();
        let lines: Vec<String> = text.lines().map(cut).collect();
        let up = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
        // To the end of each line, and below the last, nothing of the earlier view stays.
        let text = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect::<String>();
        // Nothing is lost with a look.
        let _ = write!(std::io::stderr().lock(), "{up}{text}\x1b[J");
        lines.len()
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

/// What is drawn of a second.
struct Second {
    answers: f64,
    refused: f64,
    p99_ms: f64,
    batch_rows: f64,
}

impl Second {
    fn of(pulse: &Pulse) -> Second {
        let p99_us = if pulse.latency.is_empty() { 0 } else { pulse.latency.value_at_quantile(0.99) };
        Second {
            answers: pulse.good as f64,
            refused: pulse.refused as f64,
            p99_ms: p99_us as f64 / 1e3,
            batch_rows: pulse.mean_batch_rows().unwrap_or_default(),
        }
    }
}

/// A line that stays: one run of several is over.
pub(super) fn finished(line: &str) {
    complain(line);
}

fn sum(recent: &VecDeque<(Instant, Pulse)>) -> Pulse {
    let mut sum = Pulse::default();
    recent.iter().for_each(|(_, pulse)| sum.add(pulse));
    if let Some((_, last)) = recent.back() {
        (sum.busy_connections, sum.waiting) = (last.busy_connections, last.waiting);
    }
    sum
}

/// Of good answers.
fn milliseconds(pulse: &Pulse, quantile: f64) -> String {
    if pulse.latency.is_empty() {
        return "–".into();
    }
    let ms = pulse.latency.value_at_quantile(quantile) as f64 / 1e3;
    if ms < 100.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
}

fn erase(drawn: usize) {
    if drawn > 0 {
        let _ = write!(std::io::stderr().lock(), "\x1b[{drawn}A\x1b[J");
    }
}
