//! Lines of text: tables, numbers, and sentences that break.

use std::time::Duration;

/// A table of at most `width` columns where that is possible: the first `names` cells of each line begin in one column,
/// the others end in one.
pub fn table(lines: &[Vec<String>], names: usize, width: usize) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let longest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(longest).collect();
    let gap = if widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1) > width { 1 } else { 2 };
    let line = |cells: &Vec<String>| {
        let mut text = String::new();
        for (column, (cell, wide)) in cells.iter().zip(&widths).enumerate() {
            let before = if column > 0 { gap } else { 0 };
            text += &match column < names {
                true => format!("{:before$}{cell:<wide$}", ""),
                false => format!("{:before$}{cell:>wide$}", ""),
            };
        }
        text.trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `12.34%` of a whole, or nothing where there is no whole.
pub fn percent(part: u64, of: u64) -> String {
    if of == 0 { "–".into() } else { format!("{:.2}%", 100.0 * part as f64 / of as f64) }
}

/// Milliseconds of an average over so many; nothing of none.
pub fn millis(time: Duration, of: u64) -> String {
    if of == 0 { "–".into() } else { format!("{:.2}", ms(time)) }
}

/// Milliseconds, rounded once: 60.7 ms are not written as 60.699999999999996.
pub fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// `1,234,567`
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`
pub fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `a`, `a and b`, `a, b and c`
pub fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Breaks a sentence into lines.
pub fn wrap(sentence: &str, width: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    // A number stays with its sign.
    let sentence = sentence.replace(" %", "\u{a0}%");
    for word in sentence.split(' ') {
        let wide = word.chars().count();
        if column > 0 && column + 1 + wide > width {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += wide;
    }
    text.replace('\u{a0}', " ")
}
