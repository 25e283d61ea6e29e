//! A request written by hand, with places that differ from one request to the next.

use super::target::Target;

/// SplitMix64's step from one number to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A piece of a template.
#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    /// `{{i}}`: the request's number.
    Number,
    /// `{{random}}`: a number from 0 to 1.
    Random,
    /// `{{random:A..B}}`: a whole number from A to B.
    Whole(i64, i64),
}

/// A request as HTTP writes it: its line, its headers, an empty line, its body. `Host` and the length are filled in.
#[derive(Debug, Clone)]
pub struct Template {
    head: Vec<Piece>,
    body: Option<Vec<Piece>>,
    seed: u64,
}

impl Template {
    /// Reads a request whose path is below that of the server, as `POST /predict` and what follows. It gets those of `headers` that it
    /// does not have itself.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(
        text: &str,
        host: &str,
        headers: &[(String, String)],
        below: impl Fn(&str) -> String,
        seed: u64,
    ) -> Result<Template, String> {
        let text = text.replace("\r\n", "\n");
        let (head, body) = match text.split_once("\n\n") {
            Some((head, body)) => (head, Some(body.trim_end_matches('\n')).filter(|body| !body.is_empty())),
            None => (text.trim_end(), None),
        };
        if let Some(line) = body.and_then(another_request) {
            return Err(format!(
                "'{line}' would be sent as part of the body, since a file has one request; give the other a file of its own, or \
                 give what is really a body with --body"
            ));
        }
        let mut lines = head.lines();
        let first: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let (method, path) = match first[..] {
            [method, path] | [method, path, "HTTP/1.1"] if path.starts_with('/') => (method, path),
            _ => return Err("the first line must be a method and a path, as in POST /v1/models/m:predict".into()),
        };
        if method == "HEAD" || method == "CONNECT" {
            return Err(format!("{method} is not sent: its answers end otherwise"));
        }
        let mut filled = format!("{method} {} HTTP/1.1\r\n", below(path));
        let mut names = vec!["content-length".to_owned(), "transfer-encoding".to_owned()];
        for line in lines {
            let (name, value) =
                line.split_once(':').ok_or_else(|| format!("'{line}' is no header, as in Name: value"))?;
            if name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding") {
                continue;
            }
            names.push(name.trim().to_ascii_lowercase());
            filled += &format!("{}: {}\r\n", name.trim(), value.trim());
        }
        let mut head = pieces(&filled)?;
        let has_host = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let own = (!has_host).then(|| ("host".to_owned(), host.to_owned()));
        for (name, value) in own.iter().chain(headers).filter(|(name, _)| !names.contains(&name.to_ascii_lowercase())) {
            head.push(Piece::Text(format!("{name}: {value}\r\n")));
        }
        Ok(Template { head, body: body.map(pieces).transpose()?, seed })
    }
}

/// A line within a body that begins another request.
fn another_request(body: &str) -> Option<&str> {
    const METHODS: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"];
    let begins = |line: &&str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [method, path] | [method, path, "HTTP/1.1"] => {
            METHODS.contains(&method) && (path.starts_with('/') || path.contains("://"))
        }
        _ => false,
    };
    body.split("\n\n").filter_map(|part| part.lines().find(|line| !line.is_empty())).find(begins)
}

impl Target for Template {
    fn request<'a>(&'a self, number: u64, _rows: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let mut chance = beginning(self.seed, number);
        let mut text = String::new();
        fill(&self.head, number, &mut chance, &mut text);
        if let Some(pieces) = &self.body {
            let mut body = String::new();
            fill(pieces, number, &mut chance, &mut body);
            text += &format!("content-length: {}\r\n\r\n{body}", body.len());
        } else {
            text += "\r\n";
        }
        scratch.clear();
        scratch.extend_from_slice(text.as_bytes());
        scratch
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or("'{{' without '}}'")?;
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(match name.trim() {
            "i" => Piece::Number,
            "random" => Piece::Random,
            name => {
                let range = name.strip_prefix("random:").and_then(|range| range.split_once(".."));
                let range = range.and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)));
                match range.filter(|(from, to)| from <= to) {
                    Some((from, to)) => Piece::Whole(from, to),
                    None => {
                        return Err(format!(
                            "'{{{{{name}}}}}' is none of {{{{i}}}}, {{{{random}}}}, {{{{random:0..9}}}}"
                        ));
                    }
                }
            }
        });
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

fn fill(pieces: &[Piece], number: u64, chance: &mut u64, text: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(own) => text.push_str(own),
            Piece::Number => text.push_str(&number.to_string()),
            Piece::Random => text.push_str(&format!("{:.6}", unit(chance))),
            Piece::Whole(from, to) => {
                let span = (i128::from(*to) - i128::from(*from) + 1) as f64;
                let whole = i128::from(*from) + (unit(chance) * span) as i128;
                text.push_str(&whole.min(i128::from(*to)).to_string());
            }
        }
    }
}

/// From 0 to 1, by SplitMix64: a request's numbers follow from its own, whichever thread sends it.
fn unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(STEP);
    (mixed(*state) >> 11) as f64 / (1u64 << 53) as f64
}

/// Where a request's numbers begin. Both are mixed: were they steps of the same walk, one request's second number would be the next one's
/// first.
fn beginning(seed: u64, number: u64) -> u64 {
    mixed(mixed(seed.wrapping_add(STEP)) ^ number)
}

/// A number in which each bit depends on all of another: SplitMix64's finaliser.
pub fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Template, String> {
        Template::read(text, "here:80", &[], |path| format!("/gate{path}"), 1)
    }

    fn request(template: &Template, number: u64) -> String {
        String::from_utf8(template.request(number, 1, &mut Vec::new()).to_vec()).unwrap()
    }

    #[test]
    fn a_template_becomes_a_request() {
        let template =
            read("POST /a?n={{i}}\nX-A: b\nContent-Length: 9\n\n{\"i\":{{i}},\"r\":{{random:3..3}}}\n").unwrap();
        assert_eq!(
            request(&template, 7),
            "POST /gate/a?n=7 HTTP/1.1\r\nX-A: b\r\nhost: here:80\r\ncontent-length: 13\r\n\r\n{\"i\":7,\"r\":3}"
        );
        assert_eq!(request(&read("GET /\n").unwrap(), 0), "GET /gate/ HTTP/1.1\r\nhost: here:80\r\n\r\n");
    }

    #[test]
    fn a_template_gets_the_headers_that_it_does_not_have() {
        let headers = [("x-a", "c"), ("Host", "there"), ("X-B", "{{i}}"), ("Content-Length", "9")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let with = |text: &str| Template::read(text, "here:80", &headers, str::to_owned, 1).unwrap();
        let template = with("GET /\nX-A: b\n");
        assert_eq!(request(&template, 7), "GET / HTTP/1.1\r\nX-A: b\r\nHost: there\r\nX-B: {{i}}\r\n\r\n");
        assert_eq!(
            request(&with("GET /\nhost: own\n"), 7),
            "GET / HTTP/1.1\r\nhost: own\r\nx-a: c\r\nX-B: {{i}}\r\n\r\n"
        );
    }

    #[test]
    fn random_places_differ_between_requests_and_not_between_runs() {
        let template = read("GET /{{random}}/{{random:0..999999}}").unwrap();
        assert_ne!(request(&template, 1), request(&template, 2));
        assert_eq!(request(&template, 1), request(&template.clone(), 1));
    }

    /// The second number of a request was the first of the next one, so that bodies were windows of one row of numbers.
    #[test]
    fn no_random_number_is_met_again_in_another_request() {
        let with = |seed| {
            let text = "GET /{{random:0..999999999999}}/{{random:0..999999999999}}/{{random:0..999999999999}}";
            Template::read(text, "here", &[], str::to_owned, seed).unwrap()
        };
        let mut seen = std::collections::HashSet::new();
        for (seed, number) in (0..4).flat_map(|seed| (0..200).map(move |number| (seed, number))) {
            let text = request(&with(seed), number);
            let path = text.split(' ').nth(1).unwrap();
            for random in path.split('/').skip(1) {
                assert!(seen.insert(random.to_owned()), "{random} of request {number} with seed {seed}");
            }
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_what_to_write() {
        for (text, words) in [
            ("", "first line"),
            ("POST predict", "first line"),
            ("GET /\nnonsense", "no header"),
            ("GET /{{j}}", "none of"),
            ("GET /{{i", "without"),
            ("GET /{{random:9..1}}", "none of"),
            ("HEAD /", "not sent"),
            ("GET /a\n\nGET /b\n", "'GET /b' would be sent as part of the body"),
            ("POST /a\n\n{}\n\nPOST /b HTTP/1.1\nX-A: b\n\n{}", "'POST /b HTTP/1.1' would be sent"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        for body in ["GET well /soon", "GET rich\n\nquick", "POST", "get /a"] {
            assert!(read(&format!("POST /a\n\n{body}")).is_ok(), "{body}");
        }
    }
}
