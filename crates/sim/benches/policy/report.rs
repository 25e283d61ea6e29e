//! What is printed: tables in Markdown, one line for each figure asked for, and all of it as JSON.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

/// What a figure has to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    AtLeast(f64),
    AtMost(f64),
}

impl Asked {
    fn holds(self, measured: f64) -> bool {
        match self {
            Asked::AtLeast(least) => measured >= least,
            Asked::AtMost(most) => measured <= most,
        }
    }
}

#[derive(Default)]
pub(crate) struct Report {
    section: String,
    begun: Option<Instant>,
    figures: Vec<Value>,
    lines: Vec<String>,
    sections: Map<String, Value>,
    /// All that was printed.
    page: String,
}

impl Report {
    /// What follows belongs to the section of this name.
    pub(crate) fn begin(&mut self, section: &str) {
        self.section = section.to_string();
        self.begun = Some(Instant::now());
        self.say(&format!("## {section}\n"));
        eprintln!("{section} …");
    }

    pub(crate) fn end(&mut self) {
        self.progress("");
        if let Some(begun) = self.begun {
            eprintln!("{}: {:.1} s", self.section, begun.elapsed().as_secs_f64());
        }
    }

    /// Says on a terminal what is being measured.
    pub(crate) fn progress(&self, what: &str) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{what}");
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.say(&format!("{text}\n"));
    }

    /// Prints a line, and keeps it for the page.
    fn say(&mut self, line: &str) {
        println!("{line}");
        self.page.push_str(line);
        self.page.push('\n');
    }

    /// A table in Markdown, its columns aligned; all but the first column to the right.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let header: Vec<String> = header.iter().map(ToString::to_string).collect();
        let width = |column: usize| {
            let cells = std::iter::once(&header).chain(rows).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(2)
        };
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let line = |row: &[String]| {
            let cell = |(column, (cell, width)): (usize, (&String, &usize))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
            format!("| {} |", row.iter().zip(&widths).enumerate().map(cell).collect::<Vec<_>>().join(" | "))
        };
        self.say(&line(&header));
        let rule = |(column, width): (usize, &usize)| match column {
            0 => "-".repeat(*width),
            _ => "-".repeat(width - 1) + ":",
        };
        self.say(&line(&widths.iter().enumerate().map(rule).collect::<Vec<_>>()));
        rows.iter().for_each(|row| self.say(&line(row)));
        self.say("");
    }

    /// One figure that was asked for: what, how much, and whether it holds.
    pub(crate) fn figure(&mut self, what: &str, asked: Asked, measured: f64, unit: &str) {
        let (sign, bound) = match asked {
            Asked::AtLeast(least) => ("≥", least),
            Asked::AtMost(most) => ("≤", most),
        };
        let verdict = if asked.holds(measured) { "holds" } else { "falls short" };
        let line = format!("figure: {what}: asked {sign} {bound} {unit}, measured {measured:.2} {unit}: {verdict}");
        println!("{line}\n");
        self.lines.push(line);
        self.figures.push(json!({
            "section": self.section, "what": what, "asked": format!("{sign} {bound}"), "measured": measured,
            "unit": unit, "holds": asked.holds(measured),
        }));
    }

    /// Numbers of the present section for programs.
    pub(crate) fn data(&mut self, name: &str, value: Value) {
        let section = self.sections.entry(self.section.clone()).or_insert_with(|| json!({}));
        section[name] = value;
    }

    pub(crate) fn print_figures(&self) {
        println!("## figures\n");
        self.lines.iter().for_each(|line| println!("{line}"));
    }

    /// Writes what was printed as a page, with a table of the figures in front.
    pub(crate) fn write_page(&mut self, path: &Path, heading: &str) -> std::io::Result<()> {
        let tables = std::mem::take(&mut self.page);
        let cell = |figure: &Value, key: &str| figure[key].as_str().unwrap_or_default().to_string();
        let row = |figure: &Value| {
            let measured = format!("{:.2}", figure["measured"].as_f64().unwrap_or_default());
            let verdict = if figure["holds"] == json!(true) { "holds" } else { "**falls short**" };
            vec![cell(figure, "what"), cell(figure, "asked"), measured, cell(figure, "unit"), verdict.to_string()]
        };
        let rows: Vec<Vec<String>> = self.figures.iter().map(row).collect();
        self.table(&["figure", "asked", "measured", "unit", ""], &rows);
        let figures = std::mem::take(&mut self.page);
        std::fs::write(path, format!("{heading}\n## figures\n\n{figures}{}\n", tables.trim_end()))
    }

    pub(crate) fn write_json(&self, path: &Path) -> std::io::Result<()> {
        let all = json!({ "figures": self.figures, "sections": self.sections });
        std::fs::write(path, format!("{all:#}\n"))
    }
}

/// A share in per cent.
pub(crate) fn percent(part: u64, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

/// The mean, least and greatest of some numbers.
pub(crate) fn summary(numbers: impl IntoIterator<Item = f64>) -> (f64, f64, f64) {
    let (mut count, mut sum, mut least, mut greatest) = (0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
    for number in numbers {
        (count, sum) = (count + 1.0, sum + number);
        (least, greatest) = (f64::min(least, number), f64::max(greatest, number));
    }
    (sum / count, least, greatest)
}
