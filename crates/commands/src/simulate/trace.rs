//! Files of arrivals.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use uncork_sim::{Arrival, TraceReader};

/// A hundred million lines or so.
const MOST_BYTES: u64 = 2 << 30;

/// Bytes of a line: far more than a time and its columns have.
const LONGEST_LINE: u64 = 4096;

/// The arrivals of a file, or of stdin if it is called `-`; `shown` is what messages call it.
///
/// # Errors
/// It cannot be read, or the first line that is wrong.
pub(crate) fn read(file: &Path, shown: &str, max_rows: usize) -> Result<Vec<Arrival>, String> {
    let unreadable = |error: io::Error| format!("{shown} cannot be read: {error}");
    let source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(unreadable)?)
    };
    let mut lines = BufReader::new(source.take(MOST_BYTES));
    let mut reader = TraceReader::new(max_rows);
    let mut arrivals = Vec::new();
    let mut line = Vec::new();
    let mut bytes = 0;
    while lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(unreadable)? > 0 {
        if line.len() as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
            return Err(format!("{shown} has a line of {LONGEST_LINE} bytes or more: it is no file of arrivals"));
        }
        bytes += line.len() as u64;
        if bytes >= MOST_BYTES {
            return Err(format!("{shown} has {MOST_BYTES} bytes or more; simulate a part of it"));
        }
        let arrival = reader.line(&line).map_err(|error| format!("{shown}:{}: {}", error.line, error.problem))?;
        arrivals.extend(arrival);
        line.clear();
    }
    reader.finish().map(|()| arrivals).map_err(|error| format!("{shown} {}", error.problem))
}
