//! A run drawn: from what is known of it to the cells of a screen, of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, LineGauge, RenderDirection, Sparkline};

use super::course::{Course, Second};
use crate::layout::{grouped, table};
use uncork_loadtest::Pulse;

/// Two charts stand side by side from this width on.
const WIDE: u16 = 60;
/// A chart with a frame has at least so many lines.
const FRAMED: u16 = 4;
/// Columns of a chart's name and value where it is one line.
const NAMED: u16 = 22;
/// Lines of earlier runs at most.
const MOST_BEFORE: usize = 4;
/// Lines of everything but charts and earlier runs.
const REST: u16 = 6;

/// All that is drawn.
pub(super) struct Picture<'a> {
    pub(super) title: &'a str,
    pub(super) warm_up: Duration,
    /// With the warm-up.
    pub(super) whole: Duration,
    pub(super) elapsed: Duration,
    pub(super) course: &'a Course,
    /// A line for each run that is over.
    pub(super) before: &'a [String],
}

/// A figure over time.
struct Figure {
    name: &'static str,
    color: Color,
    /// That of a second, in an unit of which a fraction does not show.
    of: fn(&Second) -> Option<u64>,
    /// Such a value, written.
    written: fn(u64) -> String,
}

const FIGURES: [Figure; 4] = [
    Figure { name: "answers/s", color: Color::Green, of: |second| Some(second.answers), written: grouped },
    Figure { name: "p99 ms", color: Color::Yellow, of: |second| second.p99_us, written: written_ms },
    Figure { name: "refused/s", color: Color::Red, of: |second| Some(second.refused), written: grouped },
    Figure {
        name: "batch rows",
        color: Color::Cyan,
        of: |second| second.batch_rows.map(|rows| (rows * 1e3) as u64),
        written: |thousandths| format!("{:.1}", thousandths as f64 / 1e3),
    },
];

impl Picture<'_> {
    /// The most telling parts that find room: how far it is, the figures, the charts.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.height < REST {
            let [gauge, figures] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
            self.draw_gauge(frame, gauge);
            frame.render_widget(Text::from(self.figures(area.width)), figures);
            return;
        }
        // Charts come first; what they leave is for the earlier runs.
        let room = usize::from((area.height - REST).saturating_sub(2 * FRAMED));
        let before = self.before.len().min(MOST_BEFORE).min(room);
        let parts = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(before as u16),
            Constraint::Fill(1),
            Constraint::Length(3),
            Constraint::Length(1),
        ];
        let [title, gauge, earlier, charts, figures, held] = Layout::vertical(parts).areas(area);
        frame.render_widget(Line::from(self.title).bold(), title);
        self.draw_gauge(frame, gauge);
        let lines = self.before[self.before.len() - before..].iter().map(|line| Line::from(line.as_str()).dim());
        frame.render_widget(Text::from_iter(lines), earlier);
        self.draw_charts(frame, charts);
        frame.render_widget(Text::from(self.figures(area.width)), figures);
        let (busy, waiting) = self.course.held();
        let words = format!("{busy} under way, {waiting} waiting for a connection. Ctrl-C ends the run with a report.");
        frame.render_widget(Line::from(words).dim(), held);
    }

    fn draw_gauge(&self, frame: &mut Frame<'_>, area: Rect) {
        let (elapsed, whole) = (self.elapsed.as_secs_f64(), self.whole.as_secs_f64());
        let state = match self.elapsed {
            elapsed if elapsed < self.warm_up => "warming up",
            elapsed if elapsed < self.whole => "measuring",
            _ => "waiting for the last answers",
        };
        let gauge = LineGauge::default()
            .label(format!("{elapsed:.0} of {whole:.0} s, {state}"))
            .ratio((elapsed / whole).clamp(0.0, 1.0))
            .filled_symbol("█")
            .unfilled_symbol("░");
        frame.render_widget(gauge, area);
    }

    /// Two by two with frames, or one below the other, or a line each: what finds room.
    fn draw_charts(&self, frame: &mut Frame<'_>, area: Rect) {
        let beside = if area.width >= WIDE && area.height >= 2 * FRAMED { 2 } else { 1 };
        let height = usize::from(area.height);
        let is_framed = height >= FIGURES.len() / beside * usize::from(FRAMED);
        let below = if is_framed { FIGURES.len() / beside } else { FIGURES.len().min(height) };
        let height = if is_framed { Constraint::Fill(1) } else { Constraint::Length(1) };
        let lines = Layout::vertical(vec![height; below]).split(area);
        for (line, figures) in lines.iter().zip(FIGURES.chunks(beside)) {
            let places = Layout::horizontal(vec![Constraint::Fill(1); beside]).split(*line);
            for (place, figure) in places.iter().zip(figures) {
                match is_framed {
                    true => self.draw_framed(frame, *place, figure),
                    false => self.draw_line(frame, *place, figure),
                }
            }
        }
    }

    fn draw_framed(&self, frame: &mut Frame<'_>, area: Rect, figure: &Figure) {
        let shown = self.shown(figure, area.width.saturating_sub(2));
        let block = Block::bordered()
            .border_style(Style::new().dim())
            .title(Line::from(format!(" {} {} ", figure.name, shown.newest)).bold())
            .title(Line::from(format!(" highest {} ", shown.highest)).right_aligned().dim())
            .title_bottom(Line::from(format!(" last {} s ", shown.values.len())).right_aligned().dim());
        frame.render_widget(bars(shown.values, figure).block(block), area);
    }

    fn draw_line(&self, frame: &mut Frame<'_>, area: Rect, figure: &Figure) {
        let [name, chart] = Layout::horizontal([Constraint::Length(NAMED), Constraint::Fill(1)]).areas(area);
        let shown = self.shown(figure, chart.width);
        frame.render_widget(Line::from(format!("{:<10} {:>9}", figure.name, shown.newest)), name);
        frame.render_widget(bars(shown.values, figure), chart);
    }

    fn shown(&self, figure: &Figure, columns: u16) -> Shown {
        let values: Vec<Option<u64>> = self.course.past().take(columns.into()).map(figure.of).collect();
        let written = |value: Option<u64>| value.map_or("–".into(), figure.written);
        let newest = written(values.first().copied().flatten());
        Shown { newest, highest: written(values.iter().copied().flatten().max()), values }
    }

    /// The last second and the whole run, in numbers.
    fn figures(&self, width: u16) -> String {
        let line = |name: &str, pulse: &Pulse, seconds: f64| {
            let rate = |count: u64| grouped((count as f64 / seconds.max(1e-9)).round() as u64);
            vec![
                name.to_owned(),
                rate(pulse.due),
                rate(pulse.good),
                rate(pulse.refused),
                rate(pulse.failed),
                milliseconds(pulse, 0.5),
                milliseconds(pulse, 0.99),
                milliseconds(pulse, 1.0),
                pulse.mean_batch_rows().map_or("–".into(), |rows| format!("{rows:.1}")),
            ]
        };
        let heads = ["", "due/s", "answers/s", "refused/s", "errors/s", "p50 ms", "p99 ms", "max ms", "batch"];
        let elapsed = self.elapsed.as_secs_f64();
        let lines = [
            heads.map(str::to_owned).to_vec(),
            line("last second", &self.course.now(), elapsed.min(1.0)),
            line("so far", self.course.so_far(), elapsed),
        ];
        table(&lines, 1, width.into())
    }
}

/// A figure's last seconds.
struct Shown {
    /// The newest first.
    values: Vec<Option<u64>>,
    newest: String,
    highest: String,
}

/// A bar for each second, the newest at the right, the highest of full height.
fn bars(values: Vec<Option<u64>>, figure: &Figure) -> Sparkline<'static> {
    let highest = values.iter().copied().flatten().max().unwrap_or(0).max(1);
    Sparkline::default().data(values).max(highest).direction(RenderDirection::RightToLeft).style(figure.color)
}

/// Of good answers.
pub(super) fn milliseconds(pulse: &Pulse, quantile: f64) -> String {
    match pulse.latency.is_empty() {
        true => "–".into(),
        false => written_ms(pulse.latency.value_at_quantile(quantile)),
    }
}

fn written_ms(us: u64) -> String {
    let ms = us as f64 / 1e3;
    if ms < 100.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Two thousand answers a second in batches of four, and in the last second none, but fifty refusals.
    fn course() -> Course {
        let mut course = Course::default();
        for second in 0..20 {
            let mut pulse = Pulse { due: 2000, good: 2000, busy_connections: 3, ..Pulse::default() };
            pulse.latency.record_n(1500 + 100 * second, 2000).unwrap();
            (pulse.batches, pulse.batched) = (500.0, 2000);
            course.hear(seconds(second as f64 + 0.5), pulse);
        }
        course.hear(seconds(20.5), Pulse { due: 50, refused: 50, ..Pulse::default() });
        course.pass(seconds(21.2));
        course
    }

    fn drawn(course: &Course, before: &[String], width: u16, height: u16) -> String {
        let picture = Picture {
            title: "digits at http://127.0.0.1:8080: Poisson arrivals, 2000/s",
            warm_up: seconds(1.0),
            whole: seconds(31.0),
            elapsed: seconds(21.2),
            course,
            before,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| picture.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_usual_terminal_has_four_charts_and_the_figures() {
        let text = drawn(&course(), &[], 80, 24);
        for part in [
            "digits at http://127.0.0.1:8080: Poisson arrivals, 2000/s",
            "21 of 31 s, measuring",
            " answers/s 0 ",
            " highest 2,000 ",
            " p99 ms – ",
            " highest 3.41 ",
            " refused/s 50 ",
            " batch rows – ",
            " highest 4.0 ",
            " last 21 s ",
            "last second    50         0        50        0      –      –      –     –",
            "0 under way, 0 waiting for a connection",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let bars = text.lines().filter(|line| line.contains("████")).count();
        assert!(bars >= 2 * 5, "bars are as high as their frames:\n{text}");
    }

    #[test]
    fn a_low_terminal_has_a_line_for_each_chart() {
        let text = drawn(&course(), &[], 50, 10);
        let line = text.lines().find(|line| line.contains("refused/s ")).unwrap();
        assert!(line.contains(" 50 ") && line.ends_with(" █\""), "the newest is at the right: {line:?}");
        assert!(text.lines().any(|line| line.contains("answers/s ") && line.contains("██████████████████ ")), "{text}");
        assert!(!text.contains("highest"), "{text}");
        let lower = drawn(&course(), &[], 50, 9);
        assert!(lower.contains("refused/s ") && !lower.contains("batch rows"), "the last one goes first:\n{lower}");
    }

    #[test]
    fn earlier_runs_stand_above_the_charts_the_newest_of_them() {
        let before: Vec<String> = (1..=9).map(|run| format!("run {run} met")).collect();
        let text = drawn(&course(), &before, 80, 24);
        assert!(!text.contains("run 5 met") && text.contains("run 6 met") && text.contains("run 9 met"), "{text}");
        assert!(text.contains(" batch rows – "), "{text}");
        assert!(!drawn(&course(), &before, 80, 10).contains("run 9 met"), "charts come first");
    }

    #[test]
    fn every_size_is_drawn_and_how_far_it_is_in_each() {
        for (course, before) in [(course(), vec!["run 1 met".to_owned()]), (Course::default(), Vec::new())] {
            let widths = [1, 2, 7, 8, 20, 39, WIDE - 1, WIDE, 80, 200];
            for (width, height) in widths.into_iter().flat_map(|width| (1..=30).map(move |height| (width, height))) {
                let text = drawn(&course, &before, width, height);
                assert!(width < 8 || text.contains("21 of 31"), "{width}x{height}:\n{text}");
            }
        }
    }
}
