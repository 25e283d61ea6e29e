//! What a caller, a model's file or a setting says, in a message: escaped, and cut where it is long. A message is then no longer than its
//! sentence, cannot forge a line of the log, and does nothing to a terminal.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;

/// Most characters of a caller's text that are repeated.
const MOST_CHARS: usize = 40;
/// The same of a path or of a name in a graph, in characters or bytes.
const MOST_OF_A_PLACE: usize = 200;
/// Most names of a list.
const MOST_NAMES: usize = 16;
/// Most dimensions of a caller's shape that are repeated.
const MOST_DIMS: usize = 8;
/// Most bytes that the log repeats of a text of several lines.
const MOST_LOGGED: usize = 16 * 1024;

/// A text between quotation marks: `'x'`. What cannot be printed is escaped; behind 40 characters it is cut. A backslash stays as it
/// is: JSON escapes it once more.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quote(f, self.0, MOST_CHARS)
    }
}

/// The same of what says where something is, a path or a name in a graph, of which the end may be what tells it from others: behind 200
/// characters it is cut.
#[derive(Debug, Clone, Copy)]
pub struct QuotedPlace<'a>(pub &'a str);

impl fmt::Display for QuotedPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quote(f, self.0, MOST_OF_A_PLACE)
    }
}

fn quote(f: &mut fmt::Formatter<'_>, text: &str, most: usize) -> fmt::Result {
    f.write_str("'")?;
    let mut chars = text.chars();
    for c in chars.by_ref().take(most) {
        match c {
            '"' | '\'' | '\\' => write!(f, "{c}")?,
            c => write!(f, "{}", c.escape_debug())?,
        }
    }
    f.write_str(if chars.next().is_some() { "…'" } else { "'" })
}

/// Names, quoted and with commas between them: `'a', 'b'`. Behind 16 they are counted.
pub fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let mut listed: Vec<String> = names.iter().take(MOST_NAMES).map(|name| Quoted(name.as_ref()).to_string()).collect();
    if names.len() > MOST_NAMES {
        listed.push(format!("and {} more", names.len() - MOST_NAMES));
    }
    listed.join(", ")
}

/// A shape: `[1, 64]`. Behind 8 dimensions it is cut, and their number is said.
#[derive(Debug, Clone, Copy)]
pub struct Dims<'a, T>(pub &'a [T]);

impl<T: fmt::Display> fmt::Display for Dims<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().take(MOST_DIMS).enumerate() {
            write!(f, "{}{dim}", if i > 0 { ", " } else { "" })?;
        }
        match self.0.len() {
            rank if rank > MOST_DIMS => write!(f, ", … {rank} dimensions]"),
            _ => f.write_str("]"),
        }
    }
}

/// What a parser of JSON says, fit for a caller: what it repeats of the text is cut, and types go by their plain names.
pub fn of_parser(error: &impl fmt::Display) -> String {
    let (mut text, mut quote, mut repeated, mut is_escaped) = (String::new(), None, 0, false);
    for c in error.to_string().chars() {
        if quote.is_none() {
            (quote, repeated) = (matches!(c, '"' | '`').then_some(c), 0);
        } else if !is_escaped && quote == Some(c) {
            quote = None;
        } else {
            repeated += 1;
        }
        is_escaped = c == '\\' && !is_escaped;
        match repeated.cmp(&(MOST_CHARS + 1)) {
            Ordering::Less => text.push(c),
            Ordering::Equal if quote.is_some() => text.push('…'),
            _ if quote.is_none() => text.push(c),
            _ => {}
        }
    }
    for (own, plain) in
        [("usize", "a whole number from 0 on"), ("u64", "a whole number from 0 on"), ("i64", "a whole number")]
    {
        text = text.replace(&format!("expected {own}"), &format!("expected {plain}"));
    }
    text
}

/// A path in a message, without quotation marks.
pub fn shown(path: &Path) -> String {
    on_one_line(&path.display().to_string(), MOST_OF_A_PLACE)
}

/// A message of ours within `bytes`, with no character that would end or hide its line, or turn it round.
pub fn on_one_line(message: &str, bytes: usize) -> String {
    let mut line = String::with_capacity(message.len().min(bytes));
    for c in message.chars() {
        if line.len() + c.len_utf8() > bytes {
            line.push('…');
            break;
        }
        match c {
            c if c.is_control() => line.push(' '),
            c if is_hidden(c) => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line
}

/// A message for the log that may have several lines, such as a traceback, within 16 KiB: all but the first are indented, so that none of
/// them looks like another entry.
pub fn on_lines(message: &str) -> String {
    let mut lines = String::with_capacity(message.len().min(MOST_LOGGED));
    for (i, line) in message.lines().enumerate() {
        let left = MOST_LOGGED.saturating_sub(lines.len());
        if left == 0 {
            lines.push('…');
            break;
        }
        if i > 0 {
            lines.push_str("\n    ");
        }
        lines.push_str(&on_one_line(line, left));
    }
    lines
}

/// A message for a terminal that may have several lines: no character of it does anything but end a line.
pub fn printable(message: &str) -> String {
    message.split('\n').map(|line| on_one_line(line, usize::MAX)).collect::<Vec<_>>().join("\n")
}

/// Whether a character is not seen and changes how what stands around it is: marks of direction, breaks, and signs of no width. Not
/// those that scripts and pictures are joined by.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_escaped_and_cut() {
        assert_eq!(Quoted("it's").to_string(), "'it's'");
        assert_eq!(Quoted(r"C:\models").to_string(), r"'C:\models'");
        assert_eq!(Quoted("a\nINFO b\u{202e}").to_string(), "'a\\nINFO b\\u{202e}'");
        assert_eq!(Quoted(&"ä".repeat(40)).to_string(), format!("'{}'", "ä".repeat(40)));
        assert_eq!(Quoted(&"ä".repeat(41)).to_string(), format!("'{}…'", "ä".repeat(40)));
    }

    #[test]
    fn a_place_is_cut_later_and_names_are_counted_where_they_are_many() {
        let place = format!("/encoder/{}\u{1b}", "a".repeat(190));
        assert_eq!(QuotedPlace(&place).to_string(), format!("'{}\\u{{1b}}'", place.trim_end_matches('\u{1b}')));
        assert_eq!(QuotedPlace(&"ä".repeat(201)).to_string(), format!("'{}…'", "ä".repeat(200)));
        assert_eq!(listed(&["a", "b\n"]), "'a', 'b\\n'");
        assert!(listed(&["a"; 18]).ends_with("'a', and 2 more"));
    }

    #[test]
    fn what_is_printed_of_several_lines_does_nothing_to_a_terminal() {
        assert_eq!(printable("a\n\u{1b}[31mb\u{202e}\r\n\tc\n"), "a\n [31mb\\u{202e} \n c\n");
    }

    #[test]
    fn a_shape_is_cut() {
        assert_eq!(Dims(&[1, -1]).to_string(), "[1, -1]");
        assert_eq!(Dims::<usize>(&[]).to_string(), "[]");
        assert_eq!(Dims(&[7; 9]).to_string(), "[7, 7, 7, 7, 7, 7, 7, 7, … 9 dimensions]");
    }

    #[test]
    fn a_parser_repeats_little_and_names_no_types() {
        let long = format!("invalid type: string \"{}\", expected usize at line 1", "a\\\"".repeat(50));
        let said = of_parser(&long);
        assert_eq!(
            said,
            format!("invalid type: string \"{}a…\", expected a whole number from 0 on at line 1", "a\\\"".repeat(13))
        );
        let field = format!("unknown field `{}`, there are no fields", "b".repeat(99));
        assert_eq!(of_parser(&field), format!("unknown field `{}…`, there are no fields", "b".repeat(40)));
        assert_eq!(of_parser(&"missing field `inputs`"), "missing field `inputs`");
    }

    #[test]
    fn a_message_stays_on_one_line() {
        assert_eq!(on_one_line("a\r\nb", 10), "a  b");
        assert_eq!(on_one_line("äää", 4), "ää…");
        assert_eq!(on_one_line("äää", 6), "äää");
        assert_eq!(on_one_line("a\u{202e}b\u{9b}2Jc\u{2066}\u{2028}", 99), "a\\u{202e}b 2Jc\\u{2066}\\u{2028}");
        assert_eq!(
            on_one_line("नमस्ते 👩\u{200d}🔬", 99),
            "नमस्ते 👩\u{200d}🔬",
            "what scripts and pictures are made of stays"
        );
    }

    #[test]
    fn a_message_of_several_lines_forges_none() {
        let message = "Traceback:\n  File \"a\"\r\n2026-01-01 ERROR forged\u{1b}[31m\u{202d}\n";
        assert_eq!(on_lines(message), "Traceback:\n      File \"a\"\n    2026-01-01 ERROR forged [31m\\u{202d}");
        for long in ["ä".repeat(MOST_LOGGED), "a\n".repeat(MOST_LOGGED)] {
            let logged = on_lines(&long);
            assert!(logged.len() < MOST_LOGGED + 16 && logged.ends_with('…'), "{}", logged.len());
        }
    }
}
