//! Charts as SVG, coloured by the page that they stand in.

use uncork_loadtest::short;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Lines of the grid that there are about.
const TICKS: f64 = 5.0;
/// Marks beyond these are too many to tell apart; a line alone is drawn.
const MOST_MARKS: usize = 60;

/// How numbers become distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From 0.
    Linear,
    /// From the smallest, by powers of ten.
    Log,
}

/// Points of one kind, in a colour of their own.
pub(super) struct Series {
    pub(super) name: &'static str,
    /// `None` breaks the line.
    pub(super) points: Vec<(f64, Option<f64>)>,
    /// The number of the page's colour.
    pub(super) colour: usize,
}

/// A chart of lines.
pub(super) struct Chart {
    /// What it shows, for those who cannot see it.
    pub(super) title: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) scale_x: Scale,
    pub(super) scale_y: Scale,
    pub(super) series: Vec<Series>,
    /// Values of y, and of x, to draw a dashed line at.
    pub(super) rules_y: Vec<f64>,
    pub(super) rules_x: Vec<f64>,
}

/// One direction of a chart.
struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Axis {
        let values = values.filter(|value| value.is_finite());
        let most = values.clone().fold(f64::MIN_POSITIVE, f64::max);
        match scale {
            Scale::Linear => {
                let most = if most > 1e-12 { most } else { 1.0 };
                Axis { scale, from: 0.0, to: (most / step(most) - 1e-9).ceil() * step(most) }
            }
            Scale::Log => {
                let least = values.filter(|value| *value > 0.0).fold(f64::MAX, f64::min).min(most);
                // At least a decade, so that there is a tick to read it by.
                let from = 10f64.powf((least.max(1e-3)).log10().floor());
                let to = most.max(from * 10.0);
                Axis { scale, from, to: 10f64.powf((to.log10() - 1e-9).ceil()).min(to * 1.3) }
            }
        }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        part.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.to);
                (0..=(self.to / step + 1e-9).floor() as usize).map(|i| i as f64 * step).collect()
            }
            Scale::Log => {
                let decades = (self.to / self.from).log10();
                let within: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let first = self.from.log10().round() as i32;
                let all = (first..=first + decades.ceil() as i32)
                    .flat_map(|decade| within.iter().map(move |part| part * 10f64.powi(decade)));
                all.filter(|tick| *tick <= self.to * 1.0001).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, some [`TICKS`] of which make `span`.
fn step(span: f64) -> f64 {
    let rough = (span / TICKS).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0].iter().map(|step| step * power).find(|&step| step >= rough * 0.999).unwrap_or(10.0 * power)
}

fn at_x(part: f64) -> f64 {
    LEFT + part * (WIDTH - LEFT - RIGHT)
}

fn at_y(part: f64) -> f64 {
    HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
}

fn frame(title: &str, x: &str, y: &str) -> String {
    let (middle, side) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" data-x=\"{x}\">\n\
         <text class=\"x\" x=\"{middle:.1}\" y=\"{:.1}\">{x}</text>\
         <text class=\"x\" transform=\"translate(12 {side:.1}) rotate(-90)\">{y}</text>\n",
        HEIGHT - 6.0
    )
}

fn line_across(class: &str, h: f64) -> String {
    format!("<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{h:.1}\" y2=\"{h:.1}\"/>", WIDTH - RIGHT)
}

fn grid_y(axis: &Axis) -> String {
    let tick = |y: f64| {
        let h = at_y(axis.place(y));
        let label = format!("<text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n", LEFT - 8.0, h + 4.0, short(y));
        line_across("grid", h) + &label
    };
    axis.ticks().into_iter().map(tick).collect()
}

impl Chart {
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::new(self.scale_x, points().map(|point| point.0).chain(self.rules_x.iter().copied()));
        let y = Axis::new(self.scale_y, points().filter_map(|point| point.1).chain(self.rules_y.iter().copied()));
        let mut svg = frame(self.title, self.x, self.y) + &grid_y(&y);
        for tick in x.ticks() {
            let w = at_x(x.place(tick));
            svg +=
                &format!("<text class=\"x\" x=\"{w:.1}\" y=\"{:.1}\">{}</text>\n", HEIGHT - BOTTOM + 18.0, short(tick));
        }
        for rule in &self.rules_y {
            svg += &line_across("rule", at_y(y.place(*rule)));
        }
        for rule in &self.rules_x {
            let (w, top, bottom) = (at_x(x.place(*rule)), at_y(1.0), at_y(0.0));
            svg += &format!("<line class=\"rule\" x1=\"{w:.1}\" x2=\"{w:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>");
        }
        svg += &format!("<line class=\"at\" y1=\"{:.1}\" y2=\"{:.1}\" visibility=\"hidden\"/>\n", at_y(1.0), at_y(0.0));
        for Series { name, points, colour } in &self.series {
            for run in points.split(|point| point.1.is_none()) {
                let place =
                    |point: &(f64, Option<f64>)| (at_x(x.place(point.0)), at_y(y.place(point.1.unwrap_or_default())));
                let line: Vec<String> = run.iter().map(place).map(|(w, h)| format!("{w:.1},{h:.1}")).collect();
                // For the pointer: what is at each of the points.
                let value =
                    |point: &(f64, Option<f64>)| format!("{} {}", short(point.0), short(point.1.unwrap_or_default()));
                let values: Vec<String> = run.iter().map(value).collect();
                svg += &format!(
                    "<polyline class=\"c{colour}\" points=\"{}\" data-name=\"{name}\" data-values=\"{}\"/>\n",
                    line.join(" "),
                    values.join(",")
                );
                let marked = if points.len() <= MOST_MARKS { run } else { &[] };
                for point in marked {
                    let ((w, h), value) = (place(point), point.1.unwrap_or_default());
                    svg += &format!(
                        "<circle class=\"c{colour}\" cx=\"{w:.1}\" cy=\"{h:.1}\" r=\"3\"><title>{name}: {} at {}</title></circle>\n",
                        short(value),
                        short(point.0)
                    );
                }
            }
        }
        svg + "</svg>"
    }

    /// Names of the kinds of points, in their colours.
    pub(super) fn legend(&self) -> String {
        let entry = |series: &Series| format!("<span class=\"c{}\">● {}</span>", series.colour, series.name);
        self.series.iter().map(entry).collect()
    }
}

/// Bars of equal width with a name below each.
pub(super) fn bars(title: &str, x: &str, y: &str, bars: &[(String, f64)]) -> String {
    let axis = Axis::new(Scale::Linear, bars.iter().map(|bar| bar.1));
    let mut svg = frame(title, x, y) + &grid_y(&axis);
    let wide = 1.0 / bars.len().max(1) as f64;
    // Names that would touch are left out.
    let every = (bars.len() / 14) + 1;
    for (i, (name, value)) in bars.iter().enumerate() {
        let (left, right) = (at_x((i as f64 + 0.1) * wide), at_x((i as f64 + 0.9) * wide));
        let (top, bottom) = (at_y(axis.place(*value)), at_y(0.0));
        svg += &format!(
            "<rect class=\"c0\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{name}: {}</title></rect>\n",
            right - left,
            bottom - top,
            short(*value)
        );
        if i % every == 0 {
            let (middle, h) = ((left + right) / 2.0, HEIGHT - BOTTOM + 18.0);
            svg += &format!("<text class=\"x\" x=\"{middle:.1}\" y=\"{h:.1}\">{name}</text>\n");
        }
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_numbers_that_are_easily_read() {
        let ticks = |scale, values: &[f64]| Axis::new(scale, values.iter().copied()).ticks();
        assert_eq!(ticks(Scale::Linear, &[3.0, 87.0]), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(Scale::Log, &[3.0, 87.0]), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(Scale::Log, &[0.5, 90_000.0]).first(), Some(&0.1));
        for scale in [Scale::Linear, Scale::Log] {
            assert!(!ticks(scale, &[]).is_empty() && !ticks(scale, &[0.0]).is_empty());
        }
    }

    #[test]
    fn everything_lies_within_its_chart() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = Axis::new(scale, [0.02, 7.0, 1300.0].into_iter());
            for value in [0.0, 0.02, 1.0, 1300.0, 1e9] {
                assert!((0.0..=1.0).contains(&axis.place(value)), "{scale:?}: {value}");
            }
            assert!(axis.place(7.0) < axis.place(1300.0));
        }
    }
}
