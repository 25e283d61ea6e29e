//! Regular expressions as RE2 reads them, which is what ONNX asks for: classes such as `\w` are ASCII's, and among all
//! matches at the leftmost place the longest one is taken, where Perl takes the first alternative.

use std::sync::Mutex;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input, MatchKind, meta};

use crate::value::OpError;
use uncork_model::quote::Quoted;

/// Most bytes that a compiled expression may take.
const MAX_SIZE: usize = 10 << 20;

/// A compiled expression.
pub(super) struct Pattern {
    first: meta::Regex,
    longest: DFA,
    cache: Mutex<Cache>,
}

impl Pattern {
    pub(super) fn new(expression: &str) -> Result<Pattern, OpError> {
        let wrong = |reason: String| OpError(format!("the expression {} cannot be read: {reason}", Quoted(expression)));
        let own = translated(expression);
        let config = meta::Config::new().nfa_size_limit(Some(MAX_SIZE));
        let first = meta::Builder::new().configure(config).build(&own).map_err(|e| wrong(e.to_string()))?;
        let longest = DFA::builder()
            .configure(DFA::config().match_kind(MatchKind::All))
            .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_SIZE)))
            .build(&own)
            .map_err(|e| wrong(e.to_string()))?;
        let cache = Mutex::new(longest.create_cache());
        Ok(Pattern { first, longest, cache })
    }

    /// Where the longest of the leftmost matches behind `start` begins and ends.
    pub(super) fn find(&self, text: &str, start: usize) -> Result<Option<(usize, usize)>, OpError> {
        if start > text.len() {
            return Ok(None);
        }
        let Some(found) = self.first.find(Input::new(text).range(start..)) else { return Ok(None) };
        let input = Input::new(text).range(found.start()..).anchored(Anchored::Yes);
        let mut cache = self.cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let longest = self.longest.try_search_fwd(&mut cache, &input).map_err(|e| OpError(e.to_string()))?;
        Ok(Some((found.start(), longest.map_or(found.end(), |end| end.offset()))))
    }

    /// Whether the whole text is a match.
    pub(super) fn is_all(&self, text: &str) -> Result<bool, OpError> {
        let input = Input::new(text).anchored(Anchored::Yes);
        let mut cache = self.cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let longest = self.longest.try_search_fwd(&mut cache, &input).map_err(|e| OpError(e.to_string()))?;
        Ok(longest.is_some_and(|end| end.offset() == text.len()))
    }
}

/// The same expression in the syntax of this crate's engine.
fn translated(expression: &str) -> String {
    let mut own = String::new();
    let mut chars = expression.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('w') => own.push_str("[0-9A-Za-z_]"),
                Some('W') => own.push_str("[^0-9A-Za-z_]"),
                Some('d') => own.push_str("[0-9]"),
                Some('D') => own.push_str("[^0-9]"),
                Some('s') => own.push_str(r"[\t\n\x0C\r ]"),
                Some('S') => own.push_str(r"[^\t\n\x0C\r ]"),
                Some(edge @ ('b' | 'B')) if !in_class => own.extend(["(?-u:\\", &edge.to_string(), ")"]),
                Some(other) => own.extend(['\\', other]),
                None => own.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                own.push('[');
                own.extend(chars.next_if_eq(&'^'));
                // A bracket that closes nothing yet is a letter.
                if chars.next_if_eq(&']').is_some() {
                    own.push_str("\\]");
                }
            }
            '[' if chars.peek() == Some(&':') => {
                own.push('[');
                for c in chars.by_ref() {
                    own.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' => own.push_str("\\["),
            ']' => {
                in_class = false;
                own.push(']');
            }
            '&' | '~' if in_class => own.extend(['\\', c]),
            // Between two ends of a range stands one; two are a difference of sets.
            '-' if in_class && chars.peek() == Some(&'-') => own.push_str("\\-"),
            c => own.push(c),
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(expression: &str, text: &'a str) -> Vec<&'a str> {
        let pattern = Pattern::new(expression).unwrap();
        let (mut at, mut found) = (0, Vec::new());
        while let Some((start, end)) = pattern.find(text, at).unwrap() {
            found.push(&text[start..end]);
            at = end.max(start + 1);
        }
        found
    }

    #[test]
    fn the_longest_match_is_taken_and_classes_are_those_of_ascii() {
        assert_eq!(all("a|ab", "xab"), ["ab"]);
        assert_eq!(all(r"\w+", "naïve ü_9"), ["na", "ve", "_9"]);
        assert_eq!(all(r"\b\w\w+\b", "a bc d-efg"), ["bc", "efg"]);
        assert_eq!(all("[[a]+", "[a]"), ["[a"]);
        assert_eq!(all("[a&&b]+", "a&b"), ["a&b"]);
        assert_eq!(all("[[:alpha:]]+", "ab1"), ["ab"]);
        assert_eq!(all("[]x]+", "]x"), ["]x"]);
        assert_eq!(all("[^\\W\\d]+", "a1_"), ["a", "_"]);
    }

    #[test]
    fn a_whole_text_matches_or_not() {
        let pattern = Pattern::new("a|ab+").unwrap();
        assert_eq!(["a", "abb", "aba", ""].map(|text| pattern.is_all(text).unwrap()), [true, true, false, false]);
    }

    #[test]
    fn an_expression_that_cannot_be_read_or_is_too_large_is_refused() {
        assert!(Pattern::new("(").is_err());
        assert!(Pattern::new(r"(?:\pL{1000}){1000}").is_err());
    }
}
