//! The page at `/`: its files, embedded in the program, and the headers that they go out with.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{StatusCode, Uri};

use super::app::InPath;
use super::routes::no_such_path;
use super::status::Refusal;

/// The page may use scripts and styles that are files of this server, talk to this server, and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const CSS: &str = "text/css; charset=utf-8";
pub(super) const SCRIPT: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("page/page.html");

/// A file of a page: name, media type, content.
pub(super) type File = (&'static str, &'static str, &'static str);

/// Below `/page/`.
const FILES: &[File] = &[
    ("page.css", CSS, include_str!("page/page.css")),
    ("charts.js", SCRIPT, include_str!("page/charts.js")),
    ("figures.js", SCRIPT, include_str!("page/figures.js")),
    ("digit.js", SCRIPT, include_str!("page/digit.js")),
    ("live.js", SCRIPT, include_str!("page/live.js")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("models.js", SCRIPT, include_str!("page/models.js")),
    ("numbers.js", SCRIPT, include_str!("page/numbers.js")),
    ("pixels.js", SCRIPT, include_str!("page/pixels.js")),
    ("plot.js", SCRIPT, include_str!("page/plot.js")),
    ("time.js", SCRIPT, include_str!("page/time.js")),
    ("words.js", SCRIPT, include_str!("page/words.js")),
];

/// `GET /`
pub(super) async fn page(headers: HeaderMap) -> Response {
    embedded(&headers, HTML, PAGE)
}

/// `GET /page/{file}`
pub(super) async fn file(InPath(name): InPath, uri: Uri, headers: HeaderMap) -> Result<Response, Refusal> {
    named(FILES, &name, &uri, &headers).await
}

/// The one of `files` that has this name.
pub(super) async fn named(files: &[File], name: &str, uri: &Uri, headers: &HeaderMap) -> Result<Response, Refusal> {
    match files.iter().find(|(known, ..)| *known == name) {
        Some((_, media_type, text)) => Ok(embedded(headers, media_type, text)),
        None => Err(no_such_path(uri.clone()).await),
    }
}

/// A browser keeps these and asks each time whether they are still right: after an update of the server, no old script
/// meets a new page.
pub(super) fn embedded(request: &HeaderMap, media_type: &'static str, text: &'static str) -> Response {
    let etag = etag(text);
    let known = request.get(IF_NONE_MATCH).is_some_and(|known| *known == etag);
    let headers: [(HeaderName, HeaderValue); 6] = [
        (CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ETAG, etag),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    if known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, text).into_response()
}

/// The same for the same text in every process. Some ten microseconds for a file, which is asked for when a page is loaded.
fn etag(text: &str) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish())).expect("quotes and hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all files together: the page stays what a slow link loads at once.
    const MOST_BYTES: usize = 80 * 1024;

    #[test]
    fn the_page_is_small() {
        let bytes: usize = PAGE.len() + FILES.iter().map(|(_, _, text)| text.len()).sum::<usize>();
        assert!(bytes <= MOST_BYTES, "{bytes} bytes");
    }

    #[test]
    fn every_file_that_another_names_is_served() {
        let names = |text: &'static str| {
            let quoted = text.split('"').filter_map(|word| word.strip_prefix("./").or(word.strip_prefix("page/")));
            quoted.filter(|word| word.ends_with(".js") || word.ends_with(".css"))
        };
        let named: Vec<&str> = names(PAGE).chain(FILES.iter().flat_map(|(_, _, text)| names(text))).collect();
        assert!(named.len() >= FILES.len());
        for name in named {
            assert!(FILES.iter().any(|(known, ..)| *known == name), "{name} is not served");
        }
    }

    #[test]
    fn nothing_in_the_page_needs_what_its_policy_forbids_or_writes_markup() {
        for text in FILES.iter().map(|(_, _, text)| *text).chain([PAGE]) {
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacent", "document.write", " style=\"", "eval(", "onclick="]
            {
                assert!(!text.contains(forbidden), "{forbidden}");
            }
        }
    }
}
