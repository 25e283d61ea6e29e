//! The page: one file, for light and dark, that fetches nothing from anywhere.

use uncork_commands::layout::ms;

use super::chart::{Chart, Points};
use super::findings::{Curve, GOOD, HAND_OVER, OFF, Point};
use super::report::{Report, digits, rate};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9dce0; --paper: #fff; --panel: #f6f7f8;
  --c0: #0b68cb; --c1: #c2570c; --c2: #1a7f4b; --c3: #8a3ffc; --c4: #b3261e; --c5: #5c6f00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --soft: #a0a6ae; --line: #363b42; --paper: #14171a;
  --panel: #1d2125; --c0: #6cb2ff; --c1: #ffa057; --c2: #5fd495; --c3: #c4a2ff; --c4: #ff8d85; --c5: #c5d65a; } }
body { margin: 2rem auto; max-width: 50rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.soft { color: var(--soft); } svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); } .x { text-anchor: middle; } .y { text-anchor: end; }
.grid { stroke: var(--line); } .rule { stroke: var(--soft); stroke-dasharray: 5 5; }
polyline { fill: none; stroke: currentColor; } .fit { stroke-width: 1.5; stroke-dasharray: 2 3; } .joint { stroke-width: 1.5; }
circle { fill: currentColor; } .c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); }
.c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); }
.legend span { margin-right: 1.5rem; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
pre { background: var(--panel); padding: 1rem; border-radius: 6px; overflow-x: auto; }
";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let name = escaped(&report.spec.name);
    let paragraphs =
        |texts: &[String]| texts.iter().map(|text| format!("<p>{}</p>\n", escaped(text))).collect::<String>();
    let mut body = format!("<h1>Profile of {name}</h1>\n<p class=\"soft\">{}</p>\n", escaped(&report.heading()));
    body += &paragraphs(&report.sentences());
    let (place, settings) = report.settings();
    body += &format!("<p>{}:</p>\n<pre>{}</pre>\n", escaped(place), escaped(&settings));
    for (title, note, chart) in charts(report) {
        body += &format!("<h2>{title}</h2>\n{}<p class=\"soft\">{note}</p>\n{}\n", legend(report), chart.svg());
    }
    body += &format!("<h2>All sizes</h2>\n{}", table(&report.table()));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Profile of {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// Title, note and chart, from the most to the least important.
fn charts(report: &Report) -> Vec<(&'static str, String, Chart)> {
    let right = report.curves[0].points.last().map_or(1, |last| last.rows);
    let note = |p: &Point| {
        let (median, p95, speed) = (digits(ms(p.median)), digits(ms(p.p95)), rate(p.throughput()));
        format!("{} rows: {median} ms, p95 {p95} ms, {speed} rows/s, {:+.0} % off", p.rows, 100.0 * p.residual())
    };
    let points = |y: &dyn Fn(&Point) -> f64, joined: bool, fitted: bool| {
        let of = |curve: &Curve| {
            let at = curve.points.iter().map(|p| (p.rows as f64, y(p), note(p))).collect();
            Points { at, joined, line: if fitted { curve.drawn(right) } else { Vec::new() } }
        };
        report.curves.iter().map(of).collect::<Vec<_>>()
    };
    let chart = |title, y, points, rules| Chart { title, x: "rows of a batch", y, points, rules };
    let good = report.curves[report.advice.curve].best().served() * GOOD;
    vec![
        (
            "Time of a batch",
            "Medians, and the line that the server's estimator fits through them; where they are clearly none, its curve."
                .to_owned(),
            chart("Time of a batch by its rows", "ms", points(&|p| ms(p.median), false, true), vec![]),
        ),
        (
            "Rows a second, as served",
            format!(
                "With {} ms for each batch's way to its runner and back. The dashed line is 90 % of the most: the cap is the \
                 smallest batch above it.",
                ms(HAND_OVER)
            ),
            chart("Rows a second by the rows of a batch", "rows/s", points(&Point::served, true, false), vec![good]),
        ),
        (
            "Off the line",
            "Above 0 a batch takes longer than the line says; the dashed lines are at 10 %.".to_owned(),
            chart(
                "Residuals of the fitted line in per cent",
                "%",
                points(&|p| 100.0 * p.residual(), true, false),
                vec![100.0 * OFF, -100.0 * OFF],
            ),
        ),
    ]
}

fn legend(report: &Report) -> String {
    let entry = |(i, curve): (usize, &Curve)| format!("<span class=\"c{i}\">● {}</span>", report.label(curve));
    let entries: String = report.curves.iter().enumerate().map(entry).collect();
    format!("<p class=\"legend\">{entries}</p>\n")
}

fn table(lines: &[Vec<String>]) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = lines.first().map_or(String::new(), |headings| row(headings, "th"));
    let body: String = lines.iter().skip(1).map(|cells| row(cells, "td")).collect();
    format!("<div class=\"scroll\"><table>\n<thead>{head}</thead>\n<tbody>{body}</tbody>\n</table></div>\n")
}

/// Text that may hold anything, as names of files and models do.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
