//! A chart of points and lines as SVG, coloured by the page that it stands in.

use super::report::digits;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Lines of the grid that there are about.
const TICKS: f64 = 5.0;

/// Points of one kind.
pub(super) struct Points {
    /// Coordinates, and what a pointer that rests on the point shows.
    pub(super) at: Vec<(f64, f64, String)>,
    /// Whether a line joins them.
    pub(super) joined: bool,
    /// A line from one end to the other, straight between these; may be none.
    pub(super) line: Vec<(f64, f64)>,
}

/// A chart; both axes reach from 0 or below to the farthest point.
pub(super) struct Chart {
    /// What it shows, for those who cannot see it.
    pub(super) title: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    /// Each kind has a colour of its own, by the page's classes `c0`, `c1` ….
    pub(super) points: Vec<Points>,
    /// Heights to draw a dashed line at.
    pub(super) rules: Vec<f64>,
}

impl Chart {
    pub(super) fn svg(&self) -> String {
        let ends = self.points.iter().flat_map(|points| points.line.iter().copied());
        let all: Vec<(f64, f64)> =
            self.points.iter().flat_map(|points| &points.at).map(|&(x, y, _)| (x, y)).chain(ends).collect();
        let farthest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let right = farthest(&mut all.iter().map(|p| p.0)).max(1.0);
        let top = farthest(&mut all.iter().map(|p| p.1).chain(self.rules.iter().copied())).max(1e-9);
        let bottom = all.iter().map(|p| p.1).chain(self.rules.iter().copied()).fold(0.0, f64::min);
        let (top, bottom) = (up(top, top - bottom), -up(-bottom, top - bottom));
        let at_x = |x: f64| LEFT + x / right * (WIDTH - LEFT - RIGHT);
        let at_y = |y: f64| HEIGHT - BOTTOM - (y - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM);

        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", self.title);
        let mut add = |text: String| svg.push_str(&text);
        for y in ticks(bottom, top) {
            let (h, label) = (at_y(y), number(y));
            add(format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{h:.1}\" y2=\"{h:.1}\"/>",
                WIDTH - RIGHT
            ));
            add(format!("<text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>\n", LEFT - 8.0, h + 4.0));
        }
        for x in ticks(0.0, right) {
            let (w, h) = (at_x(x), HEIGHT - BOTTOM + 18.0);
            add(format!("<text class=\"x\" x=\"{w:.1}\" y=\"{h:.1}\">{}</text>\n", number(x)));
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        add(format!("<text class=\"x\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>", HEIGHT - 6.0, self.x));
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        add(format!("<text class=\"x\" transform=\"translate(14 {middle:.1}) rotate(-90)\">{}</text>\n", self.y));
        for &rule in &self.rules {
            let h = at_y(rule);
            add(format!(
                "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{h:.1}\" y2=\"{h:.1}\"/>\n",
                WIDTH - RIGHT
            ));
        }
        for (i, points) in self.points.iter().enumerate() {
            let place = |x: f64, y: f64| format!("{:.1},{:.1}", at_x(x), at_y(y));
            let mut path = |points: Vec<String>, kind: &str| {
                add(format!("<polyline class=\"{kind} c{i}\" points=\"{}\"/>\n", points.join(" ")));
            };
            if !points.line.is_empty() {
                path(points.line.iter().map(|&(x, y)| place(x, y)).collect(), "fit");
            }
            if points.joined {
                path(points.at.iter().map(|&(x, y, _)| place(x, y)).collect(), "joint");
            }
            for (x, y, note) in &points.at {
                let (w, h) = (at_x(*x), at_y(*y));
                add(format!(
                    "<circle class=\"c{i}\" cx=\"{w:.1}\" cy=\"{h:.1}\" r=\"4\"><title>{note}</title></circle>\n"
                ));
            }
        }
        svg + "</svg>"
    }
}

/// Lines of a grid between two heights, at numbers that are easily read.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let step = step(to - from);
    let first = (from / step - 1e-9).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

/// 1, 2 or 5 times a power of ten, some [`TICKS`] of which make `span`.
fn step(span: f64) -> f64 {
    let rough = (span / TICKS).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0].iter().map(|step| step * power).find(|&step| step >= rough).unwrap_or(10.0 * power)
}

/// The next line of the grid for `span` at or above `x`.
fn up(x: f64, span: f64) -> f64 {
    let step = step(span);
    (x / step - 1e-9).ceil() * step
}

fn number(x: f64) -> String {
    let text = digits(x.abs());
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{text}", if x < 0.0 { "−" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_numbers_that_are_easily_read() {
        assert_eq!(ticks(0.0, 128.0), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(-20.0, 30.0), [-20.0, -10.0, 0.0, 10.0, 20.0, 30.0]);
        assert_eq!((up(8.4, 8.4), up(0.0, 8.4), up(10.0, 10.0)), (10.0, 0.0, 10.0));
        assert_eq!([-0.5, 0.0, 1500.0].map(number), ["−0.5", "0", "1500"]);
    }
}
