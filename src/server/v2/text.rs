//! Texts in JSON, within bounds: names, ids, and elements that are byte strings.
//!
//! A reader of JSON puts a text that has escapes together in memory of its own, which it doubles as it goes, and repeats a text that
//! stands in the wrong place in what it says, escaped. So it gets to see none that is long.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr2, memchr3};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use crate::error::Error;

/// Most bytes of a name or of a request's id: they are kept until the answer is sent, and no name of a model's is as long.
const LONGEST: usize = 1024;

/// Most bytes of any other text that is no element of a tensor, its escapes as they are written. What a reader repeats of it takes six
/// times as much.
const LONGEST_ELSEWHERE: usize = 64 * 1024;

/// A name or an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Text<'a>(pub(in crate::server) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text<'a>, D::Error> {
        struct Bounded;

        impl<'de> Visitor<'de> for Bounded {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                check(text).map(|()| Text(Cow::Borrowed(text))).map_err(E::custom)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                check(text).map(|()| Text(Cow::Owned(text.to_owned()))).map_err(E::custom)
            }
        }

        from.deserialize_str(Bounded)
    }
}

/// Refuses a name or an id that is too long to be kept.
pub(in crate::server) fn check(text: &str) -> Result<(), String> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    Err(format!("a name or an id has {LONGEST} bytes at most, and one has {}", text.len()))
}

/// Refuses any other text that is no element of a tensor, where it is long.
pub(in crate::server) fn check_elsewhere(text: &str) -> Result<(), Error> {
    if text.len() <= LONGEST_ELSEWHERE {
        return Ok(());
    }
    let length = text.len();
    Err(Error::Invalid(format!(
        "a text of {length} bytes is not among the elements of a tensor: no other has more than {LONGEST_ELSEWHERE}"
    )))
}

/// Refuses JSON in which a text is long that does not belong to the value of one of these `members`. Nothing else is looked at.
pub(in crate::server) fn refuse_long(json: &str, members: &[&str]) -> Result<(), Error> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr(b'"', rest)) {
        let begin = at + found;
        let end = begin + text_len(&bytes[begin..]);
        at = end;
        let text = &json[begin..end];
        if members.iter().any(|member| text[1..].strip_suffix('"') == Some(member)) {
            at += value_behind(&bytes[end..]);
        } else {
            check_elsewhere(text)?;
        }
    }
    Ok(())
}

/// The bytes of a colon and a value at the begin of `json`, if they are there.
fn value_behind(json: &[u8]) -> usize {
    let blanks = |json: &[u8]| json.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
    let colon = blanks(json);
    if json.get(colon) != Some(&b':') {
        return 0;
    }
    let begin = colon + 1 + blanks(&json[colon + 1..]);
    let value = &json[begin..];
    let (opens, closes) = match value.first() {
        Some(b'"') => return begin + text_len(value),
        Some(b'[') => (b'[', b']'),
        Some(b'{') => (b'{', b'}'),
        _ => return begin,
    };
    let (mut at, mut depth) = (0, 0usize);
    while let Some(found) = memchr3(b'"', opens, closes, &value[at..]) {
        let here = at + found;
        at = here + 1;
        match value[here] {
            b'"' => at = here + text_len(&value[here..]),
            byte if byte == opens => depth += 1,
            _ => depth -= 1,
        }
        if depth == 0 {
            return begin + at;
        }
    }
    json.len()
}

/// The bytes of a text at the begin of `json`, its quotation marks among them.
pub(in crate::server) fn text_len(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

/// What a well-formed text of JSON says, between its quotation marks. It takes no more memory than it is written in. `None` where
/// it is no text, or one that no UTF-8 has.
pub(in crate::server) fn unescaped(token: &str) -> Option<Vec<u8>> {
    let mut rest = token.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
    let mut said = Vec::with_capacity(rest.len());
    while let Some(at) = memchr(b'\\', rest) {
        said.extend_from_slice(&rest[..at]);
        let (escape, behind) = rest[at + 1..].split_first()?;
        rest = behind;
        said.push(match escape {
            b'"' | b'\\' | b'/' => *escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = unit(&mut rest)?;
                if (0xd800..0xdc00).contains(&unit) {
                    rest = rest.strip_prefix(b"\\u")?;
                    let low = self::unit(&mut rest)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                    unit = 0x1_0000 + ((unit - 0xd800) << 10) + low;
                }
                said.extend_from_slice(char::from_u32(unit)?.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return None,
        });
    }
    said.extend_from_slice(rest);
    Some(said)
}

/// Four hexadecimal digits, taken from the begin of `rest`.
fn unit(rest: &mut &[u8]) -> Option<u32> {
    let (digits, behind) = rest.split_first_chunk::<4>()?;
    *rest = behind;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | (*digit as char).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_a_reader_of_json_hears() {
        for token in [
            "\"\"",
            "\"a\"",
            r#""a\"\\\/\b\f\n\r\tb""#,
            r#""\u0000\u00e9\u20AC\ud83d\ude00é""#,
            r#""\ud83d""#,
            r#""\ud83d\u0041""#,
            r#""\ude00""#,
            "1",
            "\"",
        ] {
            let heard = serde_json::from_str::<String>(token).ok().map(String::into_bytes);
            assert_eq!(unescaped(token), heard, "{token}");
        }
        let text = unescaped(&format!("\"{}\"", "\\u0001".repeat(1000))).unwrap();
        assert!(text.len() == 1000 && text.capacity() <= 6000, "{}", text.capacity());
    }

    #[test]
    fn a_long_text_is_refused_wherever_it_is_no_element() {
        let long = "a".repeat(LONGEST_ELSEWHERE);
        let is_refused = |json: String| refuse_long(&json, &["data"]).is_err();
        for json in [
            format!(r#"{{"id":"{long}"}}"#),
            format!(r#"{{"{long}":1}}"#),
            format!(r#"{{"data":[1],"id":"\"{long}"}}"#),
            format!(r#"{{"data":["]"],"id":"{long}"}}"#),
            format!(r#"{{"data":{{"}}":1}},"id":"{long}"}}"#),
            format!(r#"{{"data":"\"","id":"{long}"}}"#),
            format!(r#"["data","{long}"]"#),
            format!(r#"{{"\"data":["{long}"]}}"#),
            format!(r#"{{"data":1,"id":"{long}"}}"#),
        ] {
            assert!(is_refused(json.clone()), "{}", &json[..20]);
        }
        for json in [
            format!(r#"{{"data":["{long}\""]}}"#),
            format!(r#"{{"data" : [["]","{long}"]]}}"#),
            format!(r#"{{"data":"{long}"}}"#),
            format!(r#"{{"id":"{}"}}"#, &long[2..]),
            "{\"data\":[\"".into(),
            "\"\\".into(),
            "\"data\":".into(),
            "\"data\"".into(),
        ] {
            assert!(!is_refused(json.clone()), "{}", &json[..json.len().min(20)]);
        }
    }

    #[test]
    fn a_name_or_an_id_is_kept_up_to_1024_bytes() {
        let read = |length: usize, escape: &str| {
            let text = format!("\"{escape}{}\"", "a".repeat(length));
            serde_json::from_str::<Text<'_>>(&text).map(|text| text.0.len()).map_err(|error| error.to_string())
        };
        assert_eq!((read(1024, ""), read(1023, "\\n")), (Ok(1024), Ok(1024)));
        for escape in ["", "\\n"] {
            assert!(read(1025, escape).unwrap_err().contains("a name or an id has 1024 bytes at most"));
        }
    }
}
