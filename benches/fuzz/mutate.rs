//! Changes bytes as a hostile or broken client might: pieces flipped, cut, doubled, moved between inputs, numbers at their extremes.

use rand::RngExt;
use rand::rngs::StdRng;

/// What parsers trip over.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\0",
    b" ",
    b"\t",
    b"/",
    b"//",
    b"%2e%2e/",
    b"%",
    b"?",
    b"#",
    b":",
    b",",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"[",
    b"]",
    b"{",
    b"}",
    b"[[[[[[[[",
    b"null",
    b"true",
    b"NaN",
    b"-Infinity",
    b"\"Infinity\"",
    b"-0",
    b"1e999",
    b"1e-999",
    b"0x10",
    b"1_000",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"Content-Length: 5\r\n",
    b"Content-Length: 18446744073709551615\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Accept-Encoding: gzip\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Inference-Header-Content-Length: 2\r\n",
    b"Host: a\r\n",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\"shape\":[0]",
    b"\"shape\":[-1,4]",
    b"\"shape\":[4294967296,4294967296]",
    b"\"datatype\":\"BYTES\"",
    b"\"datatype\":\"FP16\"",
    b"\"parameters\":{\"binary_data_size\":8}",
    b"\"parameters\":{\"binary_data\":true}",
    b"\"parameters\":{\"classification\":3}",
    b"\"parameters\":{\"timeout\":1}",
    b"\"parameters\":{\"binary_data_output\":true}",
    b"\"instances\"",
    b"\"b64\"",
    b"\"data\":[]",
    b"\"id\":\"\"",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "127",
    "255",
    "65536",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "18446744073709551616",
    "1e308",
    "-1e40",
    "0.1",
    "1.0",
];

/// Most bytes that an input grows to.
const LONGEST: usize = 16 << 10;

/// Changes `input` in one to eight places, with pieces of `other` among what comes in.
pub(crate) fn mutate(mut input: Vec<u8>, other: &[u8], chance: &mut StdRng) -> Vec<u8> {
    for _ in 0..1 + (chance.random_range(0..8u32) & chance.random_range(0..8u32)) {
        let at = chance.random_range(0..=input.len());
        let most = 1usize << chance.random_range(0..8u32);
        let end = (at + chance.random_range(0..=most)).min(input.len());
        match chance.random_range(0..9u32) {
            0 if at < input.len() => input[at] ^= 1 << chance.random_range(0..8u32),
            1 if at < input.len() => input[at] = chance.random_range(0..=255u32) as u8,
            2 => drop(input.drain(at..end)),
            3 => {
                let piece = input[at..end].to_vec();
                for _ in 0..1usize << chance.random_range(0..6u32) {
                    input.splice(at..at, piece.iter().copied());
                }
            }
            4 | 5 => {
                let word = WORDS[chance.random_range(0..WORDS.len())];
                let end = if chance.random_range(0..2u32) == 0 { at } else { end };
                input.splice(at..end, word.iter().copied());
            }
            6 => {
                let from = chance.random_range(0..=other.len());
                let to = (from + chance.random_range(0..=64usize)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
            7 => renumber(&mut input, at, chance),
            _ => input.truncate(end),
        }
        input.truncate(LONGEST);
    }
    input
}

/// Puts another number in the place of the first one from `at` on.
fn renumber(input: &mut Vec<u8>, at: usize, chance: &mut StdRng) {
    let Some(begin) = input[at..].iter().position(u8::is_ascii_digit).map(|i| at + i) else { return };
    let length = input[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = NUMBERS[chance.random_range(0..NUMBERS.len())];
    input.splice(begin..begin + length, number.bytes());
}
