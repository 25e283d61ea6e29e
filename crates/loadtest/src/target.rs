//! What is asked, and whether an answer is a good one: the seam behind which protocols differ.

use serde_json::Value;

use super::tally::{Ending, without_numbers};
use super::wire::Answer;

/// The two statuses by which servers say that they have too much to do.
pub(super) const REFUSALS: [u16; 2] = [429, 503];

/// A kind of request over HTTP/1.1. The generator knows nothing of what is in them.
pub trait Target: Send + Sync {
    /// The bytes of the request with this number and of so many rows, from its first line to the end of its body; put into
    /// `scratch` where they are not at hand.
    fn request<'a>(&'a self, number: u64, rows: usize, scratch: &'a mut Vec<u8>) -> &'a [u8];

    /// The rows that the request with this number really has, if it was asked for with so many.
    fn rows(&self, number: u64, rows: usize) -> usize {
        let _ = number;
        rows
    }

    /// How the request ended that had this number and so many rows, and that was answered so.
    fn judge(&self, number: u64, rows: usize, answer: &Answer<'_>) -> Ending {
        let _ = (number, rows);
        by_status(answer)
    }
}

/// Judges by the status alone.
pub(super) fn by_status(answer: &Answer<'_>) -> Ending {
    let status = answer.status;
    match status {
        200..=299 => Ending::Good,
        _ if REFUSALS.contains(&status) => Ending::Refused { status, reason: reason(answer.body) },
        300..=399 if answer.location.is_some() => {
            Ending::Failed { status, reason: redirect(answer.location.unwrap_or_default()) }
        }
        _ => Ending::Failed { status, reason: reason(answer.body) },
    }
}

/// What follows `?` is left out: it differs from one request to the next, and may be nobody else's business.
fn redirect(location: &str) -> String {
    const LONGEST: usize = 100;
    let place = location.split(['?', '#']).next().unwrap_or_default();
    let place: String = place.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    format!("redirected to {place}, which is not asked: give that URL if you mean it")
}

/// Where servers say in JSON what is wrong: uncork and Triton, OpenAI, many others, FastAPI, and FastAPI of a malformed request.
const SAID_AT: [&str; 5] = ["/error", "/error/message", "/message", "/detail", "/detail/0/msg"];
/// Longer JSON is searched for its `error`, and not read.
const LONGEST_JSON: usize = 4096;

/// The server's words, numbers aside: of JSON its error or message, of a page its title, or the first line of anything else.
fn reason(body: &[u8]) -> String {
    let json = Some(body).filter(|body| body.len() <= LONGEST_JSON && body.trim_ascii_start().starts_with(b"{"));
    let json = json.and_then(|body| serde_json::from_slice::<Value>(body).ok());
    let told = |json: &Value| SAID_AT.iter().find_map(|at| json.pointer(at)?.as_str().map(str::to_owned));
    if let Some(words) = json.as_ref().and_then(told) {
        return without_numbers(words.trim());
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(500)]);
    let words = text.split_once("\"error\"").and_then(|(_, rest)| rest.split('"').nth(1));
    let words = words.or_else(|| title(&text)).or_else(|| text.lines().find(|line| !line.trim().is_empty()));
    without_numbers(words.unwrap_or("no words").trim())
}

/// That of a page, without the status in front of it: it is told anyway.
fn title(page: &str) -> Option<&str> {
    // Letters of ASCII are as long in either case.
    let lower = page.to_ascii_lowercase();
    let from = lower.find("<title>")? + "<title>".len();
    let to = from + lower[from..].find("</title>")?;
    let title = page[from..to].trim();
    let words = title.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    Some(if words.is_empty() { title } else { words })
}

/// A request's bytes, with the length of its body among its headers.
pub fn message(method: &str, path: &str, host: &str, headers: &[(String, String)], body: Option<&[u8]>) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let has = |name: &str| headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let mut add = |name: &str, value: &str| head += &format!("{name}: {value}\r\n");
    if !has("host") {
        add("host", host);
    }
    if !has("user-agent") {
        add("user-agent", concat!("uncork-loadtest/", env!("CARGO_PKG_VERSION")));
    }
    for (name, value) in headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("content-length")) {
        add(name, value);
    }
    if let Some(body) = body {
        add("content-length", &body.len().to_string());
    }
    head += "\r\n";
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body.unwrap_or_default());
    bytes
}

/// One and the same request, over and over.
#[derive(Debug, Clone)]
pub struct Same {
    bytes: Vec<u8>,
}

impl Same {
    /// The bytes of a whole request, from its first line to the end of its body if it has one, as [`message`] puts them together.
    pub fn new(bytes: Vec<u8>) -> Same {
        Same { bytes }
    }
}

impl Target for Same {
    fn request<'a>(&'a self, _number: u64, _rows: usize, _scratch: &'a mut Vec<u8>) -> &'a [u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_known_by_its_status_and_counted_by_its_words() {
        let ending = |status, body: &str| {
            by_status(&Answer { status, body: body.as_bytes(), keeps_alive: true, batch_rows: None, location: None })
        };
        let reason = "the queue is full: N of N rows".to_owned();
        let body = r#"{"error":"the queue is full: 12 of 12 rows"}"#;
        assert_eq!(ending(503, body), Ending::Refused { status: 503, reason: reason.clone() });
        assert_eq!(ending(500, body), Ending::Failed { status: 500, reason });
        assert_eq!(ending(502, "\n<p>Bad"), Ending::Failed { status: 502, reason: "<p>Bad".into() });
        let nginx = "<html>\r\n<head><title>429 Too Many Requests</title></head>\r\n<body>\r\n<center>";
        assert_eq!(ending(429, nginx), Ending::Refused { status: 429, reason: "Too Many Requests".into() });
        for (body, reason) in [
            ("<!DOCTYPE HTML>\n<html>\n <HEAD>\n<TITLE>Error response</TITLE>", "Error response"),
            ("<title>404</title>", "N"),
            ("<title>cut off", "<title>cut off"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"{"detail":[{"type":"missing","loc":["body"],"msg":"Field required"}]}"#, "Field required"),
            (r#"{"error":{"message":"no model \"a\"","type":"x"}}"#, r#"no model "a""#),
            (r#"{"code":5,"message":"9 rows are too many"}"#, "N rows are too many"),
            (r#"{"error":"cut off"#, "cut off"),
            (r#"{"a":1}"#, r#"{"a":N}"#),
        ] {
            assert_eq!(ending(404, body), Ending::Failed { status: 404, reason: reason.into() }, "{body}");
        }
        assert_eq!(ending(404, ""), Ending::Failed { status: 404, reason: "no words".into() });
        assert_eq!(ending(201, ""), Ending::Good);
    }

    #[test]
    fn a_redirect_names_where_to_without_its_query() {
        let location = Some("http://b:81/log-in?key=hidden");
        let answer = Answer { status: 302, body: b"", keeps_alive: true, batch_rows: None, location };
        let Ending::Failed { status: 302, reason } = by_status(&answer) else { panic!("it is no answer") };
        assert!(reason.contains("redirected to http://b:81/log-in,") && !reason.contains("hidden"), "{reason}");
    }

    #[test]
    fn a_message_has_what_http_asks_for_and_the_callers_headers_win() {
        let own = [("Host".to_owned(), "other".to_owned()), ("X-A".to_owned(), "b".to_owned())];
        let bytes = message("POST", "/v2", "here:80", &own, Some(b"{}"));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("POST /v2 HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("Host: other\r\n") && !text.contains("here:80"), "{text}");
        assert!(text.ends_with("X-A: b\r\ncontent-length: 2\r\n\r\n{}"), "{text}");
    }
}
