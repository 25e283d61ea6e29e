//! Arrivals from the text of a file: a time in seconds a line, `,rows` optional.

use super::Arrival;
use crate::estimator::Instant;

/// Beyond this, nanoseconds since zero do not fit into 64 bits; time stamps in seconds do, in milliseconds they do not.
const LATEST_SECONDS: f64 = 1e10;

/// What is wrong with a file of arrivals, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do about it.
    pub problem: String,
}

/// Reads arrivals: on each line a time in seconds, not before that of the line above, and optionally a comma and the
/// request's rows, from 1 to `max_rows`. Blank lines, what follows a `#`, and one line of column names are passed over.
///
/// # Errors
/// The first line that is wrong; a text without arrivals.
pub fn parse_trace(text: &[u8], max_rows: usize) -> Result<Vec<Arrival>, TraceError> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = std::str::from_utf8(text).map_err(|error| {
        let line = 1 + text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        TraceError { line, problem: "is not text (UTF-8); the file must hold an arrival in seconds a line".into() }
    })?;
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut may_be_names = true;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let is_first = std::mem::replace(&mut may_be_names, false);
        if is_first && are_names(content) {
            continue;
        }
        let arrival = parse_arrival(content, max_rows).map_err(|problem| TraceError { line, problem })?;
        if let Some(last) = arrivals.last().filter(|last| last.at > arrival.at) {
            let (now, before) = (content.split(',').next().unwrap_or_default(), last.at.as_nanos() as f64 / 1e9);
            let problem = format!("{now} s is before the arrival above it, {before} s; sort the file (sort -n)");
            return Err(TraceError { line, problem });
        }
        arrivals.push(arrival);
    }
    if arrivals.is_empty() {
        let problem = "holds no arrivals; it must hold one in seconds a line, such as 0.25 or 0.25,3 for 3 rows";
        return Err(TraceError { line: 0, problem: problem.into() });
    }
    Ok(arrivals)
}

/// `arrival,rows` and the like; `nan` and `inf` are numbers.
fn are_names(line: &str) -> bool {
    let first = line.split(',').next().unwrap_or_default().trim_matches(['"', '\'', ' ']);
    first.starts_with(char::is_alphabetic) && first.parse::<f64>().is_err()
}

fn parse_arrival(line: &str, max_rows: usize) -> Result<Arrival, String> {
    let mut fields = line.split(',').map(str::trim);
    let seconds = fields.next().unwrap_or_default();
    let rows = fields.next();
    if fields.next().is_some() {
        return Err(format!("'{}' has more than two fields; write seconds or seconds,rows", shown(line)));
    }
    let at = match seconds.parse::<f64>() {
        Ok(at) if !at.is_finite() => {
            return Err(format!("'{}' is no finite number of seconds", shown(seconds)));
        }
        Ok(at) if at < 0.0 => {
            return Err(format!("{seconds} s is negative; count from the first arrival"));
        }
        Ok(at) if at > LATEST_SECONDS => {
            return Err(format!("{seconds} s is above {LATEST_SECONDS:e}; arrivals are in seconds, not milliseconds"));
        }
        Ok(at) => Instant::from_nanos((at * 1e9).round() as u64),
        Err(_) => return Err(format!("'{}' is no number of seconds", shown(seconds))),
    };
    let rows = match rows.map(str::parse::<usize>) {
        None => 1,
        Some(Ok(0)) => return Err("0 rows; a request has at least 1".into()),
        Some(Ok(rows)) if rows > max_rows => {
            return Err(format!("{rows} rows do not fit into a batch of at most {max_rows}; raise --max-batch-size"));
        }
        Some(Ok(rows)) => rows,
        Some(Err(_)) => {
            return Err(format!("'{}' is no number of rows", shown(rows.unwrap_or_default())));
        }
    };
    Ok(Arrival { rows, ..Arrival::at(at) })
}

/// The beginning of a text that may be anything, so that a message stays a line.
fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Vec<(u64, usize)> {
        let arrivals = parse_trace(text.as_bytes(), 8).expect("a good file");
        arrivals.into_iter().map(|a| (a.at.as_nanos(), a.rows)).collect()
    }

    fn refused(text: &[u8]) -> (usize, String) {
        let error = parse_trace(text, 8).expect_err("a bad file");
        (error.line, error.problem)
    }

    #[test]
    fn a_time_a_line_with_or_without_rows() {
        assert_eq!(parsed("0\n0.5\n0.5,8\n1e0\n"), [(0, 1), (500_000_000, 1), (500_000_000, 8), (1_000_000_000, 1)]);
        assert_eq!(parsed("\u{feff}0.1, 2\r\n 0.2\r\n"), [(100_000_000, 2), (200_000_000, 1)]);
    }

    #[test]
    fn column_names_blank_lines_and_comments_are_passed_over() {
        assert_eq!(parsed("# a trace\n\nseconds,rows\n1,2 # the first\n\n"), [(1_000_000_000, 2)]);
        assert_eq!(parsed("\"arrival\"\n1"), [(1_000_000_000, 1)]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, problem) in [
            (&b"1\n2\n1.5\n"[..], 3, "1.5 s is before the arrival above it, 2 s; sort the file"),
            (b"1\n-2", 2, "-2 s is negative"),
            (b"nan", 1, "'nan' is no finite number"),
            (b"1\ninf", 2, "'inf' is no finite number"),
            (b"1\n1e999", 2, "'1e999' is no finite number"),
            (b"1700000000000", 1, "seconds, not milliseconds"),
            (b"seconds\nabc", 2, "'abc' is no number of seconds"),
            (b"1;2", 1, "'1;2' is no number of seconds"),
            (b"12:30", 1, "'12:30' is no number"),
            (b"1,0", 1, "0 rows; a request has at least 1"),
            (b"1,9", 1, "9 rows do not fit into a batch of at most 8; raise --max-batch-size"),
            (b"1,-1", 1, "'-1' is no number of rows"),
            (b"1,", 1, "'' is no number of rows"),
            (b"1,2,3", 1, "more than two fields"),
            (b"1\n2\n\xff\xfe", 3, "is not text"),
            (b"", 0, "holds no arrivals"),
            (b"seconds\n# nothing\n", 0, "holds no arrivals"),
        ] {
            let (at, found) = refused(text);
            assert!(at == line && found.contains(problem), "{text:?}: {at}: {found}");
        }
    }

    #[test]
    fn a_message_stays_a_line_whatever_the_file_holds() {
        let (_, problem) = refused("0\u{1b}[31m\u{7}".repeat(1000).as_bytes());
        assert!(problem.chars().count() < 100 && !problem.contains('\u{1b}'), "{problem}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_arrivals_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_trace(&bytes, 4);
        }

        #[test]
        fn what_was_written_is_read(gaps in prop::collection::vec((0u64..1_000_000_000, 1usize..9), 1..50)) {
            let arrivals: Vec<(u64, usize)> =
                gaps.iter().scan(0, |at, &(gap, rows)| { *at += gap; Some((*at, rows)) }).collect();
            let line = |&(at, rows): &(u64, usize)| format!("{}.{:09},{rows}\n", at / 1_000_000_000, at % 1_000_000_000);
            prop_assert_eq!(parsed(&arrivals.iter().map(line).collect::<String>()), arrivals);
        }
    }
}
