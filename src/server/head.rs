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
        /// `X-Request-Id`.
        id: Option<&'a [u8]>,
        /// What its headers ask for besides.
        manner: Manner,
        /// Whether the connection is to end behind the answer.
        closes: bool,
    },
    /// Anything else.
    Other,
}

/// What the headers of a request ask for, besides what it is and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Manner {
    /// Nothing.
    Plain,
    /// What changes how it is read or answered, and not whether it is.
    Particular,
    /// What hyper or the door must see before anything is decided.
    Unusual,
}

/// What the body of a request for inference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// Named tensors.
    Tensors {
        /// Bytes of JSON at its begin, where binary tensors follow.
        json: Option<usize>,
    },
    /// Rows or columns of values, as in the protocol of TensorFlow Serving.
    Values,
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
    /// Whether the client asks nothing behind it (RFC 9112, section 9.3).
    pub(super) is_last: bool,
}

/// The headers of `bytes`, a complete head.
pub(super) fn with_headers<T>(bytes: &[u8], take: impl FnOnce(&[httparse::Header<'_>]) -> T) -> T {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(bytes);
    debug_assert!(parsed.is_ok_and(|status| status.is_complete()), "it was parsed before");
    take(request.headers)
}

/// What begins a connection of a proxy that speaks the PROXY protocol (HAProxy's, versions 1 and 2). Of the second the empty lines in front,
/// which may come before a request, are gone.
const PROXIES: [&[u8]; 2] = [b"PROXY ", b"\0\r\nQUIT\n"];

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
        Err(_) if PROXIES.iter().any(|begin| bytes.starts_with(begin)) => {
            let message = "the PROXY protocol is not spoken here: turn it off at the proxy";
            return Err(Refusal::bad_request(message));
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
    let (mut closes, mut keeps) = (false, false);
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if header.name.eq_ignore_ascii_case("authorization") {
            tokens += 1;
        } else if header.name.eq_ignore_ascii_case("connection") {
            let mut options = header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            closes |= options.clone().any(|option| option.eq_ignore_ascii_case(b"close"));
            keeps |= options.any(|option| option.eq_ignore_ascii_case(b"keep-alive"));
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
    let is_last = closes || !(is_http_11 || keeps);
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
            let is_unusual = !is_http_11 || !is_understood;
            let manner = request.headers.iter().map(manner).max().unwrap_or(Manner::Plain);
            let manner = if is_unusual { Manner::Unusual } else { manner };
            match asked(path, length) {
                Some((model, version, form)) => {
                    Ask::Infer { model, version, form, who, id: values("x-request-id").next(), manner, closes: is_last }
                }
                None => Ask::Other,
            }
        }
        _ => Ask::Other,
    };
    Ok(Some(Head { ask, len, framing, is_last }))
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

/// Which model a POST to `path` asks, in which version, if it names one, and with what: where a name is written as it is. Others go the long way.
fn asked(path: &str, json: Option<usize>) -> Option<(&str, Option<&str>, Form<'_>)> {
    let (named, form) = if let Some(below) = path.strip_prefix("/models/") {
        let (named, query) = below.split_once('?').unwrap_or((below, ""));
        (named, Form::Any { query })
    } else if let Some(below) = path.strip_prefix("/v2/models/") {
        (below.strip_suffix("/infer")?, Form::Tensors { json })
    } else {
        let named = path.strip_prefix("/v1/models/")?.strip_suffix(":predict")?;
        (Some(named).filter(|named| !named.contains(':'))?, Form::Values)
    };
    if named.contains(['%', '?']) || path.contains('#') {
        return None;
    }
    match named.split_once('/') {
        None => Some((named, None, form)),
        Some((model, rest)) => {
            let version = rest.strip_prefix("versions/").filter(|version| !version.contains('/'))?;
            Some((model, Some(version), form))
        }
    }
}

fn manner(header: &httparse::Header<'_>) -> Manner {
    let is = |name: &str| header.name.eq_ignore_ascii_case(name);
    let says = |value: &str| header.value.eq_ignore_ascii_case(value.as_bytes());
    // The last three are what browsers say.
    const UNUSUAL: [&str; 6] = ["expect", "upgrade", "transfer-encoding", "origin", "sec-fetch-site", "sec-fetch-mode"];
    if is("connection") {
        match () {
            () if says("keep-alive") => Manner::Plain,
            () if says("close") => Manner::Particular,
            () => Manner::Unusual,
        }
    } else if UNUSUAL.into_iter().any(is) {
        Manner::Unusual
    } else if is("content-encoding") || (is("accept-encoding") && ["gzip", "deflate"].into_iter().any(says)) {
        // A coding that is named alone is a wish for a compressed answer: see `Coding::wished`.
        Manner::Particular
    } else {
        Manner::Plain
    }
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
        assert_eq!(head, Head { ask: Ask::Other, len: post.len(), framing: Framing::Length(12), is_last: false });
        let chunked = check(b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap().unwrap();
        assert_eq!(chunked.framing, Framing::Chunked);
        let old = check(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap();
        assert_eq!(old.framing, Framing::Length(0));
    }

    #[test]
    fn a_proxy_that_speaks_a_protocol_of_its_own_is_told_so() {
        for begin in [&b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nGET / HTTP/1.1\r\n\r\n"[..], b"\0\r\nQUIT\n\x21\x11\0\x0c"]
        {
            assert!(check(begin).unwrap_err().message().contains("PROXY protocol"));
        }
    }

    #[test]
    fn what_a_request_for_inference_asks_for_is_known_from_its_head() {
        let asked = |path: &str, lines: &str| {
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n{lines}\r\n");
            match check(head.as_bytes()).unwrap().unwrap().ask {
                Ask::Infer { model, version, manner, .. } => {
                    Some((model.to_owned(), version.map(str::to_owned), manner))
                }
                Ask::Other => None,
            }
        };
        let m = |version: Option<&str>, manner| Some(("m".to_owned(), version.map(str::to_owned), manner));
        let plain = "Accept: */*\r\nConnection: keep-alive\r\nX-Request-Id: a\r\nAccept-Encoding: gzip, br\r\n";
        for path in ["/v2/models/m/infer", "/v1/models/m:predict", "/models/m"] {
            assert_eq!(asked(path, plain), m(None, Manner::Plain), "{path}");
        }
        for path in ["/v2/models/m/versions/3/infer", "/v1/models/m/versions/3:predict", "/models/m/versions/3"] {
            assert_eq!(asked(path, ""), m(Some("3"), Manner::Plain), "{path}");
        }
        for (line, manner) in [
            ("connection: close", Manner::Particular),
            ("Content-Encoding: gzip", Manner::Particular),
            ("Accept-Encoding: Deflate", Manner::Particular),
            ("Connection: close\r\nExpect: 100-continue", Manner::Unusual),
            ("Origin: http://a", Manner::Unusual),
            ("Connection: Upgrade", Manner::Unusual),
            ("Upgrade: h2c", Manner::Unusual),
            ("Inference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 1", Manner::Unusual),
            ("Inference-Header-Content-Length: +1", Manner::Unusual),
        ] {
            assert_eq!(asked("/v2/models/m/infer", &format!("{line}\r\n")), m(None, manner), "{line}");
        }
        for path in [
            "/v2/models/m/ready",
            "/v2/models/a%20b/infer",
            "/v2/models/m/infer?a",
            "/v2/models/m/x/infer",
            "/v1/models/m",
            "/v1/models/m:x:predict",
            "/v1/models/m/labels/a:predict",
            "/models/m/x",
            "/infer",
        ] {
            assert_eq!(asked(path, ""), None, "{path}");
        }
    }

    #[test]
    fn whether_a_connection_ends_and_how_a_request_is_named_is_known_from_its_head() {
        let asked = |lines: &str| {
            let head = format!("POST /models/m HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            match check(head.as_bytes()).unwrap().unwrap().ask {
                Ask::Infer { id, closes, .. } => (id.map(<[u8]>::to_vec), closes),
                Ask::Other => panic!("it asks for inference"),
            }
        };
        assert_eq!(asked("Connection: Close\r\n"), (None, true));
        assert_eq!(asked("Connection: TE , close\r\n"), (None, true));
        assert_eq!(asked("Connection: keep-alive\r\nx-request-id: a\r\n"), (Some(b"a".to_vec()), false));
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
