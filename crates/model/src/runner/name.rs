//! What a model or a pool may be called: what fits into a path, a metric's label and a shell without being quoted.

/// In bytes.
const LONGEST: usize = 128;

/// What is wrong with the letters of a name, if anything.
#[must_use]
pub fn malformed_name(name: &str) -> Option<String> {
    let is_sane = name.len() <= LONGEST
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    let message =
        || format!("must be letters, digits, '.', '-' and '_', beginning with a letter or digit, at most {LONGEST}");
    (!is_sane).then(message)
}
