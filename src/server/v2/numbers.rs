//! Long lists of numbers, as images are, read in one pass.
//!
//! A JSON reader finds where a list ends by reading all of it; then its elements are read again. Here a list is set apart
//! first, by its brackets alone. What is left of the text is short, and the list's elements are read once, with JSON's rules
//! for numbers. Whoever finds anything unusual gives up, and the request is read in the other way, which has the last word:
//! what is read here would be read there, to the same bits.

use memchr::memchr2_iter;
use memchr::memmem::Finder;

use super::data::Nesting;
use crate::server::call::MOST;
use crate::server::room::UNCOUNTED;

/// Bytes of JSON from which on a search for lists is worth it.
const LEAST: usize = 4 * 1024;

/// Most bytes of what is left behind of a text: longer ones, whose lists are not most of them, are read the other way, without a copy.
const LONGEST_REST: usize = UNCOUNTED;

/// Lists within lists that are set apart.
const DEEPEST: usize = 16;

/// A JSON text whose long lists are set apart.
#[derive(Debug)]
pub(super) struct Apart<'a> {
    /// The text, with `[]` in the place of each.
    pub(super) text: String,
    /// Where those are in it, and the lists.
    pub(super) lists: Vec<(usize, &'a [u8])>,
}

/// Sets apart the lists that are members called `data`, whatever is in them. `None` where the other way is as good.
///
/// A quotation mark within a text has a backslash before it, so that `"data":` without one is nothing else. That holds for
/// JSON: whoever reads what is left finds out whether it is, and [`floats`] whether the lists are.
pub(super) fn set_apart(json: &[u8]) -> Option<Apart<'_>> {
    if json.len() < LEAST {
        return None;
    }
    let member = Finder::new("\"data\"");
    let (mut text, mut lists, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(found) = member.find(&json[at..]) {
        let (begin, end) = (at + found, at + found + member.needle().len());
        let is_token = begin == 0 || json[begin - 1] != b'\\';
        let colon = Some(behind_blanks(json, end)).filter(|&colon| is_token && json.get(colon) == Some(&b':'));
        let list = colon.map(|colon| behind_blanks(json, colon + 1)).filter(|&list| json.get(list) == Some(&b'['));
        let left = &json[at..list.unwrap_or(end)];
        if text.len() + left.len() > LONGEST_REST {
            return None;
        }
        text.extend_from_slice(left);
        at = end;
        if let Some(list) = list {
            at = list + list_len(&json[list..])?;
            if lists.len() == MOST {
                return None;
            }
            lists.push((text.len(), &json[list..at]));
            text.extend_from_slice(b"[]");
        }
    }
    if text.len() + json.len() - at > LONGEST_REST {
        return None;
    }
    text.extend_from_slice(&json[at..]);
    let text = String::from_utf8(text).ok()?;
    (!lists.is_empty()).then_some(Apart { text, lists })
}

fn behind_blanks(json: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = json.get(at) {
        at += 1;
    }
    at
}

/// The length of a list at the begin of `json`, as far as its brackets say.
fn list_len(json: &[u8]) -> Option<usize> {
    let mut depth = 0;
    for at in memchr2_iter(b'[', b']', json) {
        if json[at] == b'[' {
            depth += 1;
            if depth > DEEPEST {
                return None;
            }
        } else {
            depth -= 1;
            if depth == 0 {
                return Some(at + 1);
            }
        }
    }
    None
}

/// What may follow in a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// An element, or a list's begin.
    Item,
    /// The same, or the list's end.
    First,
    /// A comma, or the list's end.
    Behind,
}

/// Reads a list, of which nothing is known, as the elements of a tensor of `shape` that has `expected` of them. `None` where
/// that is not what it is.
pub(super) fn floats(list: &[u8], shape: &[usize], expected: usize) -> Option<Vec<f32>> {
    // Every element takes two bytes at least, its comma included: a shape alone makes nobody set memory aside.
    let mut found = Vec::with_capacity(expected.min(list.len() / 2 + 1));
    let (mut nesting, mut open, mut next, mut at) = (Nesting::new(shape), 0usize, Next::Item, 0);
    while let Some(&byte) = list.get(at) {
        match (byte, next) {
            (b' ' | b'\n' | b'\r' | b'\t', _) => at += 1,
            (b',', Next::Behind) => (at, next) = (at + 1, Next::Item),
            (b'[', Next::First | Next::Item) => {
                nesting.open(found.len()).ok()?;
                (at, open, next) = (at + 1, open + 1, Next::First);
            }
            (b']', Next::First | Next::Behind) => {
                nesting.close(found.len()).ok()?;
                (at, open, next) = (at + 1, open - 1, Next::Behind);
                if open == 0 {
                    return (at == list.len() && found.len() == expected).then_some(found);
                }
            }
            (b'-' | b'0'..=b'9', Next::First | Next::Item) if open > 0 => {
                nesting.element(found.len()).ok()?;
                // One stands behind the other, in nearly all that follows.
                loop {
                    let (number, end) = float(list, at)?;
                    if found.len() == expected {
                        return None; // no memory is taken for what is too many
                    }
                    found.push(number);
                    at = end;
                    if list.get(at) != Some(&b',') {
                        break;
                    }
                    let behind = at + 1 + usize::from(list.get(at + 1) == Some(&b' '));
                    if !matches!(list.get(behind), Some(b'-' | b'0'..=b'9')) {
                        break;
                    }
                    at = behind;
                }
                next = Next::Behind;
            }
            _ => return None,
        }
    }
    None
}

/// Powers of ten that a double has exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Digits that 64 bits hold, whichever they are.
const MOST_DIGITS: usize = 19;

/// The number that stands at `at`, rounded once, and where it ends.
fn float(text: &[u8], at: usize) -> Option<(f32, usize)> {
    let is_negative = text.get(at) == Some(&b'-');
    let begin = at + usize::from(is_negative);
    let (mut end, mut digits) = ones(text, begin, 0);
    let mut count = end - begin;
    if count == 0 || (text[begin] == b'0' && count > 1) {
        return None;
    }
    let mut exponent = 0;
    if text.get(end) == Some(&b'.') {
        let point = end + 1;
        (end, digits) = eights(text, point, digits);
        if end == point {
            return None;
        }
        count += end - point;
        exponent = -i32::try_from(end - point).ok()?;
    }
    if let Some(b'e' | b'E') = text.get(end) {
        let has_sign = matches!(text.get(end + 1), Some(b'-' | b'+'));
        let power = end + 1 + usize::from(has_sign);
        let (behind, value) = ones(text, power, 0);
        if behind == power {
            return None;
        }
        // What is larger than this is read the long way.
        let value = if behind - power > 4 { 10_000 } else { value as i32 };
        exponent += if text[end + 1] == b'-' { -value } else { value };
        end = behind;
    }
    let number = match short(digits, count, exponent) {
        Some(number) => number,
        None => long(&text[begin..end])?,
    };
    Some((f32::from_bits(number.to_bits() | u32::from(is_negative) << 31), end))
}

/// `digits` * 10^`exponent` as the nearest float, where a double tells it.
///
/// The double is two roundings away from the number, each of half a unit in its last place. So it is on the same side as the
/// number of each point halfway between two floats, unless it is within two such units of one.
fn short(digits: u64, count: usize, exponent: i32) -> Option<f32> {
    let power = *POWERS.get(exponent.unsigned_abs() as usize)?;
    if count > MOST_DIGITS {
        return None;
    }
    let double = if exponent < 0 { digits as f64 / power } else { digits as f64 * power };
    let behind_float = double.to_bits() & 0x1fff_ffff;
    let is_near_half = behind_float.abs_diff(0x1000_0000) <= 4;
    let is_normal = double > f64::from(f32::MIN_POSITIVE) && double < f64::from(f32::MAX);
    ((is_normal && !is_near_half) || digits == 0).then_some(double as f32)
}

/// The same for any number, without its sign; `None` where it is beyond all floats.
#[cold]
fn long(text: &[u8]) -> Option<f32> {
    fast_float2::parse(text).ok().filter(|number: &f32| number.is_finite())
}

/// Reads digits at `at` behind `digits`: where they end, and all of them as a number, which wraps where there are too many.
fn ones(text: &[u8], mut at: usize, mut digits: u64) -> (usize, u64) {
    while let Some(byte @ b'0'..=b'9') = text.get(at) {
        digits = digits.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        at += 1;
    }
    (at, digits)
}

/// The same, eight digits at a time.
fn eights(text: &[u8], mut at: usize, mut digits: u64) -> (usize, u64) {
    const TENS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    while let Some(eight) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let values = u64::from_le_bytes(*eight) ^ 0x3030_3030_3030_3030;
        // What is above 9 in the place of a digit's value leaves something in the upper half of its byte, or comes to it.
        let others = (values | values.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0;
        if others == 0 {
            digits = digits.wrapping_mul(100_000_000).wrapping_add(joined(values));
            at += 8;
            continue;
        }
        // A carry only goes to bytes behind the first that is no digit.
        let count = others.trailing_zeros() / 8;
        if count > 0 {
            let first = joined(values << (64 - 8 * count));
            digits = digits.wrapping_mul(TENS[count as usize]).wrapping_add(first);
        }
        return (at + count as usize, digits);
    }
    ones(text, at, digits)
}

/// The number of eight digits, of which the first is in the lowest byte.
fn joined(values: u64) -> u64 {
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let first = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(100 + (1_000_000 << 32));
    let second = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(1 + (10_000 << 32));
    first.wrapping_add(second) >> 32
}

/// Where `part` begins in `text`, of which it is a part.
pub(super) fn place(text: &str, part: &str) -> usize {
    part.as_ptr().addr().wrapping_sub(text.as_ptr().addr())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::data;
    use super::*;
    use crate::tensor::{Data, DataType};

    /// What the other way says of a list that is one JSON value.
    fn read_twice(list: &str, shape: &[usize], expected: usize) -> Option<Vec<f32>> {
        serde_json::from_str::<serde::de::IgnoredAny>(list).ok()?;
        match data::read(list, DataType::Fp32, shape) {
            Ok(Data::Fp32(found)) => (found.len() == expected).then_some(found),
            _ => None,
        }
    }

    fn assert_same(list: &str, shape: &[usize]) {
        let expected = shape.iter().product();
        let bits = |found: Option<Vec<f32>>| found.map(|v| v.into_iter().map(f32::to_bits).collect::<Vec<_>>());
        let (once, twice) = (floats(list.as_bytes(), shape, expected), read_twice(list, shape, expected));
        assert_eq!(bits(once), bits(twice), "{list} as {shape:?}");
    }

    /// Whatever it says of a number, the other way says the same.
    fn assert_rounded(number: &str) {
        assert_same(&format!("[{number}]"), &[1]);
        assert_same(&format!("[-{number}, 1]"), &[2]);
    }

    #[test]
    fn numbers_have_the_bits_that_the_other_way_gives_them() {
        for number in [
            "0",
            "0.0",
            "0e5",
            "1",
            "16777217",
            "1.0000000596046448",
            "1.00000005960464477540",
            "3.4028235e38",
            "1e-45",
            "0.7",
            "1.17549435e-38",
            "7.0064923216240854e-46",
            "123456789012345678",
            "0.000000000000000000012345678901234567",
            "9999999999999999999",
            "99999999999999999999",
            "1e22",
            "1e-22",
            "1E+2",
            "4.5e0003",
            "12345678",
            "1.2345678",
            "1.12345678123",
            "0.00000000",
        ] {
            assert_rounded(number);
            let Some(found) = floats(format!("[{number}]").as_bytes(), &[1], 1) else {
                panic!("{number} is read here")
            };
            assert_eq!(found[0], number.parse::<f32>().unwrap());
        }
    }

    #[test]
    fn what_is_no_json_or_no_float_is_left_to_the_other_way() {
        for number in [
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "1e+",
            "-",
            "--1",
            "1.5.5",
            "1_0",
            "0x10",
            "1e39",
            "1e99999999999",
            "NaN",
            "inf",
            "null",
            "\"NaN\"",
            "true",
            "{}",
            "1 2",
            "1,",
            ",1",
            "1;2",
            "1/2",
            "1:2",
            "1.2345678:",
        ] {
            assert!(floats(format!("[{number}]").as_bytes(), &[1], 1).is_none(), "{number}");
        }
    }

    #[test]
    fn lists_are_nested_as_the_shape_is_or_flat() {
        for (list, shape) in [
            ("[1,2,3,4,5,6]", &[2, 3][..]),
            ("[[1,2,3],[4,5,6]]", &[2, 3]),
            (" [ [ 1 , 2,  3 ]\n,[4,5 ,6]\t]".trim_start(), &[2, 3]),
            ("[[[1],[2],[3]],[[4],[5],[6]]]", &[2, 3, 1]),
            ("[]", &[0, 3]),
            ("[[],[]]", &[2, 0]),
        ] {
            assert!(floats(list.as_bytes(), shape, shape.iter().product()).is_some(), "{list}");
            assert_same(list, shape);
        }
        for list in [
            "[[1,2],[3,4],[5,6]]",
            "[[1,2,3],[4,5]]",
            "[[1,2,3],4,5,6]",
            "[[1,2,3],[4,5,[6]]]",
            "[1,2,3,4,5]",
            "[1,2,3,4,5,6,7]",
            "[[1,2,3][4,5,6]]",
            "[[1,2,3],,[4,5,6]]",
            "[[1,2,3],[4,5,6],]",
            "[,[1,2,3],[4,5,6]]",
            "[[1,2,3],[4,5,6]",
            "5",
            "",
        ] {
            assert_eq!(floats(list.as_bytes(), &[2, 3], 6), None, "{list}");
        }
    }

    #[test]
    fn only_members_are_set_apart() {
        let long = format!("[{}]", vec!["1.5"; 2000].join(", "));
        let body = format!(r#"{{"name":"data","id":"a\"data\":[1]","data" : {long}, "b":[{{"data":7}}]}}"#);
        let apart = set_apart(body.as_bytes()).unwrap();
        assert_eq!(apart.text, r#"{"name":"data","id":"a\"data\":[1]","data" : [], "b":[{"data":7}]}"#);
        let place = apart.text.find("[]").unwrap();
        assert_eq!(apart.lists, [(place, long.as_bytes())]);
        assert!(set_apart(&body.as_bytes()[..body.len() / 2]).is_none(), "a list without an end");
        assert!(set_apart(format!(r#"{{"data":{}{}}}"#, "[".repeat(5000), "]".repeat(5000)).as_bytes()).is_none());
        assert!(set_apart(br#"{"data":[1]}"#).is_none(), "it is short");
    }

    proptest! {
        #[test]
        fn any_number_is_rounded_as_the_other_way_does(bits in any::<u64>(), near in any::<u32>(), more in "[0-9]{0,12}") {
            let double = f64::from_bits(bits);
            // Halfway between two floats, and a little above it.
            let float = f64::from(f32::from_bits(near & 0x7fff_ffff));
            let half = f64::from_bits(float.to_bits() + 0x1000_0000);
            for number in [double.abs(), half] {
                if number.is_finite() {
                    assert_rounded(&format!("{number}"));
                    assert_rounded(&format!("{number:e}"));
                    let text = format!("{number}");
                    let point = if text.contains('.') { "" } else { ".0" };
                    assert_rounded(&format!("{text}{point}{more}"));
                }
            }
        }

        #[test]
        fn any_text_of_its_characters_is_read_alike(list in "\\[[0-9.eE+\\-,\\[\\] ]{0,12}\\]", n in 0usize..4) {
            let expected = n;
            if let Some(found) = floats(list.as_bytes(), &[n], expected) {
                prop_assert_eq!(Some(found), read_twice(&list, &[n], expected));
            }
        }

        #[test]
        fn what_the_other_way_takes_is_taken_here(numbers in proptest::collection::vec(any::<f32>(), 1..40), digits in 0usize..20) {
            let finite: Vec<f32> = numbers.into_iter().filter(|x| x.is_finite()).collect();
            let list = format!("[{}]", finite.iter().map(|x| format!("{x:.digits$}")).collect::<Vec<_>>().join(", "));
            assert_same(&list, &[finite.len()]);
        }
    }
}
