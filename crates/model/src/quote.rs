//! What a caller wrote, in a message: escaped, and cut where it is long. A message is then no longer than its sentence, and
//! cannot forge a line of the log.

use std::fmt;

/// Most characters of a caller's text that are repeated.
const MOST_CHARS: usize = 40;
/// Most dimensions of a caller's shape that are repeated.
const MOST_DIMS: usize = 8;

/// A text between quotation marks: `'x'`. What cannot be printed is escaped; behind 40 characters it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("'")?;
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(MOST_CHARS) {
            match c {
                '"' | '\'' => write!(f, "{c}")?,
                c => write!(f, "{}", c.escape_debug())?,
            }
        }
        f.write_str(if chars.next().is_some() { "…'" } else { "'" })
    }
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

/// A message of ours within `bytes`, with no character that would end or hide its line.
pub fn on_one_line(message: &str, bytes: usize) -> String {
    let mut line = String::with_capacity(message.len().min(bytes));
    for c in message.chars() {
        if line.len() + c.len_utf8() > bytes {
            line.push('…');
            break;
        }
        line.push(if c.is_control() { ' ' } else { c });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_escaped_and_cut() {
        assert_eq!(Quoted("it's").to_string(), "'it's'");
        assert_eq!(Quoted("a\nINFO b\u{202e}").to_string(), "'a\\nINFO b\\u{202e}'");
        assert_eq!(Quoted(&"ä".repeat(40)).to_string(), format!("'{}'", "ä".repeat(40)));
        assert_eq!(Quoted(&"ä".repeat(41)).to_string(), format!("'{}…'", "ä".repeat(40)));
    }

    #[test]
    fn a_shape_is_cut() {
        assert_eq!(Dims(&[1, -1]).to_string(), "[1, -1]");
        assert_eq!(Dims::<usize>(&[]).to_string(), "[]");
        assert_eq!(Dims(&[7; 9]).to_string(), "[7, 7, 7, 7, 7, 7, 7, 7, … 9 dimensions]");
    }

    #[test]
    fn a_message_stays_on_one_line() {
        assert_eq!(on_one_line("a\r\nb", 10), "a  b");
        assert_eq!(on_one_line("äää", 4), "ää…");
        assert_eq!(on_one_line("äää", 6), "äää");
    }
}
