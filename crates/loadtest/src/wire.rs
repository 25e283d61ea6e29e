//! HTTP/1.1 answers, read from whatever bytes have come so far.

/// Headers of an answer that are understood; more of them make it malformed.
const MOST_HEADERS: usize = 96;
/// Bytes of an answer's head.
const MOST_HEAD: usize = 64 * 1024;
/// Bytes of an answer's body: far more than tensors that make sense, so that a server gone wrong does not fill the memory.
pub(super) const MOST_BODY: usize = 256 << 20;

/// What is said of a longer one.
pub(super) const TOO_LONG: &str = "an answer of more than 256 MiB, which are the most that are read";
/// Why a request has no answer whose connection the server closed, after a part of one or before.
pub(super) const IN_THE_MIDDLE: &str = "the server closed the connection in the middle of an answer";
pub(super) const WITHOUT_AN_ANSWER: &str = "the server closed the connection without an answer";

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// What is known of an answer from its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    framing: Framing,
    keeps_alive: bool,
    length: usize,
    batch_rows: Option<u32>,
    /// Where `Location` begins and ends, among the bytes of the answer.
    location: Option<(usize, usize)>,
}

/// A whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: &'a [u8],
    /// Whether the connection can be used again.
    pub keeps_alive: bool,
    /// The rows of the batch that it rode in, if the server says so: `Server-Timing: batch;desc="17 rows"`.
    pub batch_rows: Option<u32>,
    /// Where else to ask, of a redirect.
    pub location: Option<&'a str>,
}

/// Not an answer, for this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Reads one answer after the other from the bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Bytes that earlier reads left.
    kept: Vec<u8>,
    head: Option<Head>,
    /// Where the next chunk's size begins.
    chunk_at: usize,
    /// The chunks' contents so far.
    unchunked: Vec<u8>,
}

impl Reader {
    /// Whether part of an answer is there.
    pub(super) fn has_part(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Takes in `bytes`; if they complete the answer, `then` is given it.
    ///
    /// # Errors
    /// The bytes are no answer, or go on behind it: nothing more was asked for.
    pub(super) fn read<T>(&mut self, bytes: &[u8], then: impl FnOnce(Answer<'_>) -> T) -> Result<Option<T>, Malformed> {
        if self.kept.is_empty() {
            // The usual case: the whole answer came at once, and nothing is copied.
            let complete = self.complete(bytes)?;
            if complete.is_none() {
                self.kept.extend_from_slice(bytes);
                return Ok(None);
            }
            let told = self.answer(bytes, then);
            self.reset();
            return Ok(Some(told));
        }
        self.kept.extend_from_slice(bytes);
        let kept = std::mem::take(&mut self.kept);
        if self.complete(&kept)?.is_none() {
            self.kept = kept;
            return Ok(None);
        }
        let told = self.answer(&kept, then);
        self.reset();
        Ok(Some(told))
    }

    /// The server closed the connection; that ends an answer whose length is not told.
    pub(super) fn close<T>(&mut self, then: impl FnOnce(Answer<'_>) -> T) -> Option<T> {
        let kept = std::mem::take(&mut self.kept);
        let is_whole = matches!(self.head, Some(Head { framing: Framing::UntilClose, .. }));
        let told = is_whole.then(|| self.answer(&kept, then));
        self.reset();
        told
    }

    fn reset(&mut self) {
        self.kept.clear();
        self.head = None;
        self.chunk_at = 0;
        self.unchunked.clear();
    }

    fn answer<T>(&self, bytes: &[u8], then: impl FnOnce(Answer<'_>) -> T) -> T {
        let head = self.head.expect("an answer is told once its head is there");
        let body = match head.framing {
            Framing::Length(length) => &bytes[head.length..head.length + length],
            Framing::Chunked => &self.unchunked,
            Framing::UntilClose => &bytes[head.length..],
        };
        let keeps_alive = head.keeps_alive && head.framing != Framing::UntilClose;
        let location = head.location.and_then(|(from, to)| std::str::from_utf8(&bytes[from..to]).ok());
        then(Answer { status: head.status, body, keeps_alive, batch_rows: head.batch_rows, location })
    }

    fn complete(&mut self, bytes: &[u8]) -> Result<Option<()>, Malformed> {
        let head = match self.head {
            Some(head) => head,
            None => match read_head(bytes)? {
                Some(head) => {
                    self.chunk_at = head.length;
                    *self.head.insert(head)
                }
                None => return Ok(None),
            },
        };
        let end = match head.framing {
            Framing::Length(length) => head.length + length,
            Framing::UntilClose if bytes.len() > MOST_BODY => return Err(Malformed(TOO_LONG)),
            Framing::UntilClose => return Ok(None),
            Framing::Chunked => match self.chunks(bytes)? {
                Some(end) => end,
                None => return Ok(None),
            },
        };
        match bytes.len() {
            there if there < end => Ok(None),
            there if there > end => Err(Malformed("an answer with more bytes than it announced")),
            _ => Ok(Some(())),
        }
    }

    /// Takes in whole chunks; says where the last one ends.
    fn chunks(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        const WRONG: Malformed = Malformed("an answer in chunks that are not well formed");
        loop {
            let rest = &bytes[self.chunk_at..];
            let (line, size) = match httparse::parse_chunk_size(rest) {
                Ok(httparse::Status::Complete((line, size))) => (line, usize::try_from(size).unwrap_or(usize::MAX)),
                Ok(httparse::Status::Partial) => return Ok(None),
                Err(_) => return Err(WRONG),
            };
            if size == 0 {
                return trailers(&rest[line..]).map(|length| length.map(|length| self.chunk_at + line + length));
            }
            if size > MOST_BODY - self.unchunked.len() {
                return Err(Malformed(TOO_LONG));
            }
            let Some(chunk) = rest.get(line..line + size + 2) else { return Ok(None) };
            let (content, end) = chunk.split_at(size);
            if end != b"\r\n" {
                return Err(WRONG);
            }
            self.unchunked.extend_from_slice(content);
            self.chunk_at += line + size + 2;
        }
    }
}

/// The length of what follows the last chunk.
fn trailers(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    if bytes.starts_with(b"\r\n") {
        return Ok(Some(2));
    }
    match bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        Some(at) => Ok(Some(at + 4)),
        None if bytes.len() > MOST_HEAD => Err(Malformed("an answer with endless trailers")),
        None => Ok(None),
    }
}

/// The head of the answer, and the interim ones before it, as long as all of them are no longer than a head may be.
fn read_head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut before = 0;
    loop {
        match read_one_head(&bytes[before..])? {
            None => return Ok(None),
            Some(head) if !(100..200).contains(&head.status) => {
                let location = head.location.map(|(from, to)| (before + from, before + to));
                return Ok(Some(Head { length: before + head.length, location, ..head }));
            }
            Some(interim) => before += interim.length,
        }
        if before > MOST_HEAD {
            return Err(Malformed("an answer with endless headers"));
        }
    }
}

fn read_one_head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() > MOST_HEAD => {
            return Err(Malformed("an answer with endless headers"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        // An alert of TLS (RFC 8446, section 5.1): nothing that is HTTP begins so.
        Err(_) if bytes.starts_with(&[21, 3]) => return Err(Malformed("an answer in TLS: the server wants https://")),
        Err(_) => return Err(Malformed("an answer that is not HTTP/1.1")),
    };
    let status = response.code.unwrap_or_default();
    let has_body = status != 204 && status != 304;
    let mut framing = if has_body { Framing::UntilClose } else { Framing::Length(0) };
    let mut keeps_alive = response.version == Some(1);
    let (mut batch_rows, mut location) = (None, None);
    for header in response.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            14 if is("content-length") && has_body && framing != Framing::Chunked => {
                let length = std::str::from_utf8(header.value).ok().and_then(|value| value.trim().parse().ok());
                let length: u64 = length.ok_or(Malformed("an answer whose length makes no sense"))?;
                let length = usize::try_from(length).ok().filter(|length| *length <= MOST_BODY);
                framing = Framing::Length(length.ok_or(Malformed(TOO_LONG))?);
            }
            17 if is("transfer-encoding") && has_body => {
                let last = header.value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                if last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    framing = Framing::Chunked;
                }
            }
            10 if is("connection") => {
                let mut options = header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                keeps_alive = match keeps_alive {
                    true => !options.any(|option| option.eq_ignore_ascii_case(b"close")),
                    false => options.any(|option| option.eq_ignore_ascii_case(b"keep-alive")),
                };
            }
            8 if is("location") => {
                // It is a piece of these bytes.
                let from = header.value.as_ptr() as usize - bytes.as_ptr() as usize;
                location = Some((from, from + header.value.len()));
            }
            13 if is("server-timing") => batch_rows = batch_rows.or_else(|| rows_of_batch(header.value)),
            _ => {}
        }
    }
    Ok(Some(Head { status, framing, keeps_alive, length, batch_rows, location }))
}

/// `queue;dur=1.2, batch;dur=3.4;desc="17 rows"`
pub(super) fn rows_of_batch(value: &[u8]) -> Option<u32> {
    let value = std::str::from_utf8(value).ok()?;
    let batch = value.split(',').map(str::trim).find(|metric| metric.split(';').next() == Some("batch"))?;
    let description = batch.split(';').find_map(|part| part.trim().strip_prefix("desc="))?;
    let (number, words) = description.trim_matches('"').split_once(' ')?;
    if words.starts_with("row") { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads `bytes` in pieces of at most `piece`, and closes.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<(u16, Vec<u8>, bool)>, Malformed> {
        let mut reader = Reader::default();
        let mut answers = Vec::new();
        let own = |answer: Answer<'_>| (answer.status, answer.body.to_vec(), answer.keeps_alive);
        for piece in bytes.chunks(piece) {
            answers.extend(reader.read(piece, own)?);
        }
        answers.extend(reader.close(own));
        Ok(answers)
    }

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwith\r\na;x=y\r\n in chunks\r\n0\r\nA: b\r\n\r\n";

    #[test]
    fn answers_are_read_however_they_are_cut() {
        for (bytes, expected) in [
            (&b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"[..], (200, &b"hi"[..], true)),
            (b"HTTP/1.1 503 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", (503, b"hi", false)),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", (200, b"", false)),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", (200, b"", true)),
            (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", (200, b"until the end", false)),
            (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"", true)),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", (200, b"x", true)),
            (CHUNKED, (200, b"with in chunks", true)),
        ] {
            let expected = vec![(expected.0, expected.1.to_vec(), expected.2)];
            for piece in [1, 2, 3, 7, bytes.len()] {
                let found = read(bytes, piece).unwrap();
                assert_eq!(found, expected, "{} in pieces of {piece}", String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn a_redirect_says_where_to_however_it_is_cut() {
        let bytes =
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 302 Found\r\nlocation: http://b:81/a\r\ncontent-length: 0\r\n\r\n";
        for piece in [1, 5, bytes.len()] {
            let mut reader = Reader::default();
            let own = |answer: Answer<'_>| answer.location.map(str::to_owned);
            let told: Vec<_> = bytes.chunks(piece).filter_map(|piece| reader.read(piece, own).unwrap()).collect();
            assert_eq!(told, [Some("http://b:81/a".to_owned())], "in pieces of {piece}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_told_with_the_limit() {
        let long = |length: &str| {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            read(text.as_bytes(), text.len()).unwrap_err().0
        };
        assert!(long("300000000").contains(&format!("{} MiB", MOST_BODY >> 20)));
        assert!(long("x").contains("no sense"));
    }

    /// Each interim answer took a frame of the stack.
    #[test]
    fn interim_answers_without_end_are_no_answer() {
        let continues = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(200_000);
        assert!(read(&continues, continues.len()).is_err());
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for bytes in [
            &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxyz\r\n",
        ] {
            assert!(read(bytes, bytes.len()).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(
            read(&[21, 3, 3, 0, 2, 2, 70], 7).unwrap_err().0.contains("https://"),
            "what a TLS server says to plain HTTP"
        );
    }

    #[test]
    fn the_batch_is_read_from_the_servers_timing() {
        for (value, rows) in [
            (&b"queue;dur=0.100, batch;dur=1.200;desc=\"17 rows\""[..], Some(17)),
            (b"batch;desc=\"1 row\"", Some(1)),
            (b"queue;dur=3", None),
            (b"batch;dur=3", None),
            (b"batch;desc=\"many rows\"", None),
        ] {
            assert_eq!(rows_of_batch(value), rows);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes: Vec<u8>, piece in 1usize..50, damage in any::<prop::sample::Index>(), byte: u8) {
            let _ = read(&bytes, piece);
            let mut damaged = CHUNKED.to_vec();
            let at = damage.index(damaged.len());
            damaged[at] = byte;
            let _ = read(&damaged, piece);
        }
    }
}
