//! Whether the head of a request may be handed to hyper.
//!
//! hyper takes a request without `Host`, and one with both `Content-Length` and `Transfer-Encoding`: it drops the length
//! before a service could see it. Both are how requests are smuggled past a proxy that reads them otherwise, so heads
//! are looked at before hyper gets them, with the parser that hyper itself uses. hyper answers what it cannot parse with
//! an empty body; looking first also gives those their `{"error": …}`.

use http::{StatusCode, Uri};

use super::status::Refusal;

/// Headers of one request, of HTTP/2 as well. As many as hyper takes of HTTP/1.
pub(super) const MAX_HEADERS: usize = 100;

/// The longest body that hyper knows of: it refuses longer ones without a word, and what is beyond the bound of this server is refused later.
const LONGEST: u64 = u64::MAX - 2;

/// How the bytes behind a head are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes of body, then the next head.
    Length(u64),
    /// A chunked body.
    Chunked,
}

/// What is asked for, as far as it matters before anything is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask<'a> {
    /// Inference by a model.
    Infer {
        /// Its name, as the path has it.
        model: &'a str,
        /// Its version, if the path has one.
        version: Option<&'a str>,
        /// What its body is.
        form: Form<'a>,
        /// `Host` and `Authorization`, by which the door knows who asks.
        who: [Option<&'a [u8]>; 2],
        /// Whether no header asks for anything that hyper or a handler must see.
        is_plain: bool,
    },
    /// Anything else.
    Other,
}

/// What the body of a request for inference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// Named tensors.
    Tensors {
        /// Bytes of JSON at its begin, where binary tensors follow.
        json: Option<usize>,
    },
    /// Whatever the model takes.
    Any {
        /// What stands behind `?`.
        query: &'a str,
    },
}

/// A complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// What it asks for.
    pub(super) ask: Ask<'a>,
    /// Its length in bytes.
    pub(super) len: usize,
    /// What follows it.
    pub(super) framing: Framing,
}

/// The headers of `bytes`, a complete head.
pub(super) fn with_headers<T>(bytes: &[u8], take: impl FnOnce(&[httparse::Header<'_>]) -> T) -> T {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(bytes);
    debug_assert!(parsed.is_ok_and(|status| status.is_complete()), "it was parsed before");
    take(request.headers)
}

/// Looks at `bytes`, which begin with a head. `None`: the head goes on behind them.
pub(super) fn check(bytes: &[u8]) -> Result<Option<Head<'_>>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(too_many());
        }
        Err(httparse::Error::Version) => {
            return Err(Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.1"));
        }
        Err(error) => return Err(Refusal::bad_request(format!("not an HTTP/1.1 request: {error}"))),
    };
    if request.path.is_none_or(|path| path.parse::<Uri>().is_err()) {
        return Err(Refusal::bad_request("the request's target is not a valid URI"));
    }
    let is_http_11 = request.version == Some(1);
    let (mut hosts, mut tokens, mut length, mut chunked) = (0, 0, None, false);
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if header.name.eq_ignore_ascii_case("authorization") {
            tokens += 1;
        } else if header.name.eq_ignore_ascii_case("content-length") {
            // Digits only: `parse` alone would take a leading '+'.
            let digits = std::str::from_utf8(header.value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
            let value: Option<u64> = digits.and_then(|v| v.parse().ok());
            let Some(value) = value else {
                return Err(Refusal::bad_request("Content-Length is not a number of bytes"));
            };
            if value > LONGEST {
                let message = format!("a body of {value} bytes is longer than any that is taken");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            if length.replace(value).is_some() {
                return Err(Refusal::bad_request("Content-Length is given twice"));
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                let message = "the only Transfer-Encoding taken is 'chunked', once";
                return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, message));
            }
            chunked = true;
        }
    }
    if hosts > 1 || (hosts == 0 && is_http_11) {
        return Err(Refusal::bad_request("an HTTP/1.1 request needs exactly one Host header"));
    }
    if tokens > 1 {
        return Err(two_tokens());
    }
    if chunked && length.is_some() {
        return Err(Refusal::bad_request("Content-Length and Transfer-Encoding exclude each other"));
    }
    if chunked && !is_http_11 {
        return Err(Refusal::bad_request("HTTP/1.0 knows no Transfer-Encoding"));
    }
    let framing = if chunked { Framing::Chunked } else { Framing::Length(length.unwrap_or(0)) };
    let ask = match (request.method, request.path) {
        (Some("POST"), Some(path)) => {
            let values = |name: &'static str| {
                let named = request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
                named.map(|header| header.value)
            };
            let who = ["host", "authorization"].map(|name| values(name).next());
            let mut lengths = values("inference-header-content-length");
            let json = lengths.next();
            let length = json.filter(|text| text.iter().all(u8::is_ascii_digit));
            let length = length.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            // One that is not understood goes the long way, which says so, and so does one that is there twice.
            let is_understood = json.is_some() == length.is_some() && lengths.next().is_none();
            let is_plain = is_http_11 && is_understood && request.headers.iter().all(is_plain);
            ask(path, who, length, is_plain)
        }
        _ => Ask::Other,
    };
    Ok(Some(Head { ask, len, framing }))
}

/// What is said of a head with more than [`MAX_HEADERS`].
pub(super) fn too_many() -> Refusal {
    let message = format!("a request may have {MAX_HEADERS} headers at most");
    Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message)
}

/// What is said of a head of which it is in doubt who asks.
pub(super) fn two_tokens() -> Refusal {
    Refusal::bad_request("Authorization is given twice")
}

/// What a POST to `path` asks for.
fn ask<'a>(path: &'a str, who: [Option<&'a [u8]>; 2], json: Option<usize>, is_plain: bool) -> Ask<'a> {
    let (below, form) = match path.strip_prefix("/models/") {
        Some(below) => {
            let (below, query) = below.split_once('?').unwrap_or((below, ""));
            (Some(below), Form::Any { query })
        }
        None => {
            let below = path.strip_prefix("/v2/models/").and_then(|path| path.strip_suffix("/infer"));
            (below, Form::Tensors { json })
        }
    };
    // A name that is escaped goes the long way, and so do tensors with a query.
    let is_simple = |named: &&str| !named.contains(['%', '?']) && !path.contains('#');
    let Some(named) = below.filter(is_simple) else { return Ask::Other };
    let (model, version) = match named.split_once('/') {
        None => (named, None),
        Some((model, rest)) => match rest.strip_prefix("versions/") {
            Some(version) if !version.contains('/') => (model, Some(version)),
            _ => return Ask::Other,
        },
    };
    Ask::Infer { model, version, form, who, is_plain }
}

/// Whether a header says nothing that changes how a request is read or answered.
fn is_plain(header: &httparse::Header<'_>) -> bool {
    const TELLING: [&str; 8] = [
        "expect",
        "upgrade",
        "content-encoding",
        "x-request-id",
        "transfer-encoding",
        // What browsers say, which the door looks at.
        "origin",
        "sec-fetch-site",
        "sec-fetch-mode",
    ];
    if header.name.eq_ignore_ascii_case("connection") {
        return header.value.eq_ignore_ascii_case(b"keep-alive");
    }
    // A wish for a compressed answer: see `Coding::wished`.
    if header.name.eq_ignore_ascii_case("accept-encoding") {
        return !["gzip", "deflate"].iter().any(|coding| header.value.eq_ignore_ascii_case(coding.as_bytes()));
    }
    !TELLING.iter().any(|name| header.name.eq_ignore_ascii_case(name))
}

/// Whether an empty line ends behind position `from`.
pub(super) fn ends_within(head: &[u8], from: usize) -> bool {
    let window = &head[from.saturating_sub(3)..];
    window.windows(2).any(|w| w == b"\n\n") || window.windows(3).any(|w| w == b"\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> u16 {
        check(head.as_bytes()).unwrap_err().status().as_u16()
    }

    #[test]
    fn a_head_says_where_it_ends_and_what_follows() {
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n";
        let more = format!("{post}GET");
        let head = check(more.as_bytes()).unwrap().unwrap();
        assert_eq!(head, Head { ask: Ask::Other, len: post.len(), framing: Framing::Length(12) });
        let chunked = check(b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap().unwrap();
        assert_eq!(chunked.framing, Framing::Chunked);
        let old = check(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap();
        assert_eq!(old.framing, Framing::Length(0));
    }

    #[test]
    fn a_plain_request_for_inference_is_known_from_its_head() {
        let asked = |path: &str, lines: &str| {
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n{lines}\r\n");
            match check(head.as_bytes()).unwrap().unwrap().ask {
                Ask::Infer { model, version, is_plain, .. } => {
                    Some((model.to_owned(), version.map(str::to_owned), is_plain))
                }
                Ask::Other => None,
            }
        };
        let m = |version: Option<&str>, is_plain| Some(("m".to_owned(), version.map(str::to_owned), is_plain));
        assert_eq!(asked("/v2/models/m/infer", "Accept: */*\r\nConnection: keep-alive\r\n"), m(None, true));
        assert_eq!(asked("/v2/models/m/versions/3/infer", ""), m(Some("3"), true));
        for line in [
            "Expect: 100-continue",
            "Origin: http://a",
            "connection: close",
            "X-Request-Id: a",
            "Content-Encoding: gzip",
            "Upgrade: h2c",
            "Inference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 1",
            "Inference-Header-Content-Length: +1",
        ] {
            assert_eq!(asked("/v2/models/m/infer", &format!("{line}\r\n")), m(None, false), "{line}");
        }
        for path in [
            "/v2/models/m/ready",
            "/v2/models/a%20b/infer",
            "/v2/models/m/infer?a",
            "/v2/models/m/x/infer",
            "/models/m/x",
            "/infer",
        ] {
            assert_eq!(asked(path, ""), None, "{path}");
        }
    }

    #[test]
    fn a_request_in_a_model_s_own_words_is_known_with_its_query() {
        let asked = |path: &str| {
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
            match check(head.as_bytes()).unwrap().unwrap().ask {
                Ask::Infer { model, version, form: Form::Any { query }, .. } => {
                    Some([model, version.unwrap_or_default(), query].join(" "))
                }
                _ => None,
            }
        };
        for (path, is) in [
            ("/models/m", Some("m  ")),
            ("/models/m?a=/b?", Some("m  a=/b?")),
            ("/models/m/versions/3?a", Some("m 3 a")),
            ("/models/a%20b?a", None),
            ("/models/m?a#b", None),
            ("/v2/models/m/infer", None),
        ] {
            assert_eq!(asked(path).as_deref(), is, "{path}");
        }
    }

    #[test]
    fn every_proper_beginning_of_a_head_is_unfinished_and_not_an_error() {
        let whole = b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(check(&whole[..end]).unwrap(), None, "{end} bytes");
        }
    }

    #[test]
    fn forms_that_two_readers_could_read_differently_are_refused() {
        let both = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
        let both_turned = "POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n";
        assert_eq!((status(both), status(both_turned)), (400, 400));
        for (lines, expected) in [
            ("Content-Length: 4\r\nContent-Length: 4\r\n", 400),
            ("Content-Length: 4, 4\r\n", 400),
            ("Content-Length: +4\r\n", 400),
            ("Content-Length: -4\r\n", 400),
            ("Content-Length: 0x4\r\n", 400),
            ("Content-Length: 99999999999999999999\r\n", 400),
            ("Content-Length:\r\n", 400),
            ("Content-Length: 18446744073709551615\r\n", 413),
            ("Content-Length: 18446744073709551614\r\n", 413),
            ("Transfer-Encoding: gzip, chunked\r\n", 501),
            ("Transfer-Encoding: chunked, chunked\r\n", 501),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 501),
            ("Transfer-Encoding: xchunked\r\n", 501),
            ("Transfer-Encoding : chunked\r\n", 400),
            ("Content-Length: 4\r\n folded: 5\r\n", 400),
            ("Host: b\r\n", 400),
            ("Authorization: Bearer a\r\nauthorization: Bearer b\r\n", 400),
        ] {
            assert_eq!(status(&format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")), expected, "{lines:?}");
        }
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400, "no Host");
        assert_eq!(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    }

    #[test]
    fn what_is_not_http_1_is_refused() {
        assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
        assert_eq!(status("\u{16}\u{3}\u{1}\u{2}\0"), 400, "the start of a TLS handshake");
        let many = "a: b\r\n".repeat(MAX_HEADERS + 1);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{many}\r\n")), 431);
    }
}
