//! Arrivals from the lines of a file: a time in seconds, and optionally rows, a deadline and a priority.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::Arrival;
use uncork_core::estimator::Instant;
use uncork_core::policy::Priority;

/// Beyond this, nanoseconds since zero do not fit into 64 bits; time stamps in seconds do, in milliseconds they do not.
const LATEST_SECONDS: f64 = 1e10;
/// What a line of names calls the arrival.
const ARRIVAL: &str = "seconds";
/// Deadlines that make sense, in milliseconds: from a microsecond to an hour.
const DEADLINE_MS: RangeInclusive<f64> = 0.001..=3_600_000.0;

/// What is wrong with a file of arrivals, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do about it.
    pub problem: String,
}

/// What may stand on a line behind the arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// Rows of the request; 1 where nothing is said.
    Rows,
    /// Milliseconds from its arrival to its deadline, where that is before the model's cap.
    Deadline,
    /// Its priority, from 1 (the most urgent) to 10.
    Priority,
}

impl Column {
    /// As a line of names calls them; in the order that they have without one.
    const NAMED: [(&str, Column); 3] =
        [("rows", Column::Rows), ("deadline_ms", Column::Deadline), ("priority", Column::Priority)];
}

/// Reads arrivals line by line: a time in seconds, not before that of the line above, and perhaps, behind commas, the
/// request's rows, its deadline in milliseconds after its arrival, and its priority. A field that is empty or missing says
/// nothing.
///
/// If the first line has names, the first of them is `seconds`, and those after it say which columns there are, and in which
/// order: `rows`, `deadline_ms`, `priority`. Blank lines, and what follows a `#`, are passed over.
#[derive(Debug, Clone)]
pub struct TraceReader {
    max_rows: usize,
    /// Lines so far.
    line: usize,
    /// Those behind the arrival; known from the first line with anything on it.
    columns: Option<Vec<Column>>,
    last: Option<Instant>,
}

impl TraceReader {
    /// For requests of at most `max_rows` rows.
    #[must_use]
    pub fn new(max_rows: usize) -> TraceReader {
        TraceReader { max_rows, line: 0, columns: None, last: None }
    }

    /// Reads the next line, with or without its end: an arrival, or nothing where it has none.
    ///
    /// # Errors
    /// What is wrong with this line.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Arrival>, TraceError> {
        self.line += 1;
        let line = if self.line == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let read = match std::str::from_utf8(line) {
            Ok(text) => self.content(text.split('#').next().unwrap_or_default().trim()),
            Err(_) => Err("is not text (UTF-8); the file must hold an arrival in seconds a line".into()),
        };
        read.map_err(|problem| TraceError { line: self.line, problem })
    }

    /// To be called behind the last line.
    ///
    /// # Errors
    /// There was no arrival.
    pub fn finish(self) -> Result<(), TraceError> {
        if self.last.is_some() {
            return Ok(());
        }
        let problem = "holds no arrivals; it must hold one in seconds a line, such as 0.25 or 0.25,3 for 3 rows";
        Err(TraceError { line: 0, problem: problem.into() })
    }

    fn content(&mut self, content: &str) -> Result<Option<Arrival>, String> {
        if content.is_empty() {
            return Ok(None);
        }
        let columns = match &self.columns {
            Some(columns) => columns,
            None if are_names(content) => {
                self.columns = Some(named_columns(content)?);
                return Ok(None);
            }
            None => self.columns.insert(Column::NAMED.map(|(_, column)| column).to_vec()),
        };
        let arrival = parse_arrival(content, columns, self.max_rows)?;
        if let Some(last) = self.last.replace(arrival.at).filter(|last| *last > arrival.at) {
            let (now, before) = (content.split(',').next().unwrap_or_default(), last.as_nanos() as f64 / 1e9);
            return Err(format!("{now} s is before the arrival above it, {before} s; sort the file (sort -n)"));
        }
        Ok(Some(arrival))
    }
}

/// `seconds,rows` and the like; `nan` and `inf` are numbers.
fn are_names(line: &str) -> bool {
    let first = name(line.split(',').next().unwrap_or_default());
    first.starts_with(char::is_alphabetic) && first.parse::<f64>().is_err()
}

/// Without the quotes that some programs put around it.
fn name(field: &str) -> &str {
    field.trim_matches(['"', '\'', ' ', '\t'])
}

fn named_columns(line: &str) -> Result<Vec<Column>, String> {
    let mut columns = Vec::new();
    let mut names = line.split(',').map(name);
    let first = names.next().unwrap_or_default();
    if !first.eq_ignore_ascii_case(ARRIVAL) {
        return Err(format!(
            "the first column is called '{}'; it must be {ARRIVAL}, and its times be in seconds, not milliseconds",
            shown(first)
        ));
    }
    for given in names {
        let known = Column::NAMED.iter().find(|(name, _)| given.eq_ignore_ascii_case(name));
        match known {
            Some((_, column)) if !columns.contains(column) => columns.push(*column),
            Some(_) => return Err(format!("the column '{}' is there twice", shown(given))),
            None => {
                let names = Column::NAMED.map(|(name, _)| name).join(", ");
                return Err(format!("the column '{}' is none of {names}; rename it or leave it out", shown(given)));
            }
        }
    }
    Ok(columns)
}

fn parse_arrival(line: &str, columns: &[Column], max_rows: usize) -> Result<Arrival, String> {
    let mut fields = line.split(',').map(str::trim);
    let seconds = fields.next().unwrap_or_default();
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
    let mut arrival = Arrival::at(at);
    let mut columns = columns.iter();
    for field in fields {
        let Some(column) = columns.next() else {
            return Err(format!(
                "'{}' has more fields than there are columns; write seconds or seconds,rows",
                shown(line)
            ));
        };
        match column {
            _ if field.is_empty() => {}
            Column::Rows => arrival.rows = parse_rows(field, max_rows)?,
            Column::Deadline => arrival.within = Some(parse_deadline(field)?),
            Column::Priority => {
                let level = field.parse().ok().and_then(Priority::new);
                arrival.priority = level.ok_or_else(|| format!("'{}' is no priority from 1 to 10", shown(field)))?;
            }
        }
    }
    Ok(arrival)
}

fn parse_rows(field: &str, max_rows: usize) -> Result<usize, String> {
    match field.parse::<usize>() {
        Ok(0) => Err("0 rows; a request has at least 1".into()),
        Ok(rows) if rows > max_rows => {
            Err(format!("{rows} rows do not fit into a batch of at most {max_rows}; raise the maximum batch size"))
        }
        Ok(rows) => Ok(rows),
        Err(_) => Err(format!("'{}' is no number of rows", shown(field))),
    }
}

fn parse_deadline(field: &str) -> Result<Duration, String> {
    let ms = field.parse::<f64>().ok().filter(|ms| DEADLINE_MS.contains(ms));
    ms.map(|ms| Duration::from_nanos((ms * 1e6).round() as u64)).ok_or_else(|| {
        let (least, most) = (DEADLINE_MS.start(), DEADLINE_MS.end());
        format!("'{}' is no deadline from {least} to {most} ms after the arrival", shown(field))
    })
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

    fn read(text: &[u8], max_rows: usize) -> Result<Vec<Arrival>, TraceError> {
        let mut reader = TraceReader::new(max_rows);
        let mut arrivals = Vec::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            arrivals.extend(reader.line(line)?);
        }
        reader.finish().map(|()| arrivals)
    }

    fn parsed(text: &str) -> Vec<(u64, usize)> {
        let arrivals = read(text.as_bytes(), 8).expect("a good file");
        arrivals.into_iter().map(|a| (a.at.as_nanos(), a.rows)).collect()
    }

    /// Rows, deadline in ms and priority.
    fn terms(text: &str) -> Vec<(usize, Option<u128>, u8)> {
        let arrivals = read(text.as_bytes(), 8).expect("a good file");
        let within = |a: &Arrival| a.within.map(|within| within.as_millis());
        arrivals.iter().map(|a| (a.rows, within(a), a.priority.level())).collect()
    }

    fn refused(text: &[u8]) -> (usize, String) {
        let error = read(text, 8).expect_err("a bad file");
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
        assert_eq!(parsed("\"Seconds\"\n1"), [(1_000_000_000, 1)]);
    }

    #[test]
    fn deadline_and_priority_may_follow_and_names_say_which_columns_there_are() {
        let plain = (1, None, 5);
        assert_eq!(terms("1\n1,2\n1,2,30\n1,2,30,1\n"), [plain, (2, None, 5), (2, Some(30), 5), (2, Some(30), 1)]);
        assert_eq!(terms("1,\n1,,\n1,,,9\n1, , 20 ,"), [plain, plain, (1, None, 9), (1, Some(20), 5)]);
        assert_eq!(terms("seconds,priority,deadline_ms\n1,2,30\n1\n1,3"), [(1, Some(30), 2), plain, (1, None, 3)]);
        assert_eq!(terms("\"seconds\",\"Priority\"\n1,1"), [(1, None, 1)]);
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
            (b"1,9", 1, "9 rows do not fit into a batch of at most 8; raise the maximum batch size"),
            (b"1,-1", 1, "'-1' is no number of rows"),
            (b"1,2,0", 1, "'0' is no deadline from 0.001 to 3600000 ms after the arrival"),
            (b"1,2,nan", 1, "'nan' is no deadline"),
            (b"1,2,-5", 1, "'-5' is no deadline"),
            (b"1,2,3,0", 1, "'0' is no priority from 1 to 10"),
            (b"1,2,3,11", 1, "'11' is no priority"),
            (b"1,2,3,high", 1, "'high' is no priority"),
            (b"1,2,3,4,5", 1, "more fields than there are columns"),
            (b"seconds,rows\n1,2,3", 2, "more fields than there are columns"),
            (b"#\nseconds,user", 2, "the column 'user' is none of rows, deadline_ms, priority; rename it"),
            (b"ms,rows\n5,1", 1, "the first column is called 'ms'; it must be seconds"),
            (b"rows,seconds", 1, "the first column is called 'rows'; it must be seconds"),
            (b"seconds,rows,rows", 1, "the column 'rows' is there twice"),
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
            let _ = read(&bytes, 4);
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
