//! Compressed bodies, of requests and of answers.
//!
//! Source: RFC 9110, section 8.4.1. `deflate` is what that says, zlib's format, and not the bare stream that some old clients send.

use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use tokio::time::{Instant, sleep};

use crate::error::Error;
use crate::metrics::TurnedAway;
use crate::server::Options;
use crate::server::body::{self, Growing, Wanted, Whole, counted, long, long_while_wanted};
use crate::server::closing::Going;
use crate::server::room::Room;
use crate::server::status::Refusal;

/// Answers below this many bytes are sent as they are.
const LEAST: usize = 1024;

/// Bytes that are unpacked at a time, and room taken for them.
const PIECE: usize = 64 * 1024;

/// Bytes that are unpacked before it is asked again whether anybody waits. They may hold a thousand blocks with nothing in them, which take
/// some milliseconds.
const FED: usize = 16 * 1024;

/// Members that a body in gzip may have, however little is in them. Further ones hold `LEAST_IN_MEMBER` bytes on average, all members counted: to
/// begin one takes as long as a kilobyte. Who packs in pieces, as bgzip does, has 64 KiB in each.
const MEMBERS: usize = 64;
const LEAST_IN_MEMBER: usize = 1024;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    const ALL: [Coding; 2] = [Coding::Gzip, Coding::Deflate];

    /// Its name in headers.
    pub(in crate::server) fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        })
    }

    pub(in crate::server) fn named(value: &HeaderValue) -> Option<Coding> {
        Coding::ALL.into_iter().find(|coding| value.as_bytes().eq_ignore_ascii_case(coding.name().as_bytes()))
    }

    /// How a request's body is compressed; 415 for what is not known here.
    fn of_body(headers: &HeaderMap) -> Result<Option<Coding>, Refusal> {
        let mut said = headers.get_all(CONTENT_ENCODING).iter();
        let only = said.next().filter(|_| said.next().is_none());
        match only {
            None if !headers.contains_key(CONTENT_ENCODING) => Ok(None),
            Some(value) if value.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(None),
            // RFC 9110, section 8.4.1.3: it means the same.
            Some(value) if value.as_bytes().eq_ignore_ascii_case(b"x-gzip") => Ok(Some(Coding::Gzip)),
            several_or_one => several_or_one.and_then(Coding::named).map(Some).ok_or_else(|| {
                let message = "this Content-Encoding is not served: send the body as it is, or as gzip or deflate";
                Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
            }),
        }
    }

    /// How the client wishes the answer to be compressed, if it does. Most HTTP libraries say in every request that they
    /// could read compressed answers, in a list; nobody wished for that, and it costs more time than it saves. So it is a
    /// wish where one coding is named alone.
    pub(in crate::server) fn wished(headers: &HeaderMap) -> Option<Coding> {
        headers.get(ACCEPT_ENCODING).and_then(Coding::named)
    }

    /// The body as it was before it was compressed: 413 where that has more than `most` bytes, 503 where there is no room, or where it is not
    /// unpacked in time. That is done on a thread for blocking work, and ends where it is too late, or where the caller leaves.
    pub(in crate::server) async fn unpacked(
        self,
        body: Whole,
        most: usize,
        until: Until,
        room: &Room,
    ) -> Result<Whole, Refusal> {
        let (room, said_in) = (room.clone(), until.said_in);
        let unpacked = long_while_wanted(move |wanted| self.unpack(&body, most, &room, (wanted, said_in)));
        tokio::select! {
            biased;
            unpacked = unpacked => unpacked?,
            () = sleep(until.left()) => Err(until.is_over()),
            () = until.going.is_over() => {
                let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is going, and the body takes long to unpack");
                Err(refusal.turned_away(TurnedAway::ShuttingDown).retry_after(Duration::from_secs(1)).and_close())
            }
        }
    }

    fn unpack(
        self,
        body: &Whole,
        most: usize,
        room: &Room,
        (wanted, said_in): (&Wanted, &str),
    ) -> Result<Whole, Refusal> {
        let (packed, took) = (&body.bytes[..], body.took);
        let fed = || Fed { left: packed, wanted };
        match self {
            Coding::Gzip => unpack(|| Members::of(fed()), took, said_by_gzip(packed), (most, said_in), room),
            Coding::Deflate => unpack(|| ZlibDecoder::new(fed()), took, None, (most, said_in), room),
        }
    }

    /// Compresses `bytes`, fast rather than well, behind what stands in `to`.
    pub(in crate::server) fn pack(self, bytes: &[u8], to: Vec<u8>) -> Vec<u8> {
        let packed = match self {
            Coding::Gzip => {
                let mut packer = GzEncoder::new(to, Compression::fast());
                packer.write_all(bytes).and_then(|()| packer.finish())
            }
            Coding::Deflate => {
                let mut packer = ZlibEncoder::new(to, Compression::fast());
                packer.write_all(bytes).and_then(|()| packer.finish())
            }
        };
        packed.expect("memory takes every byte")
    }

    /// `body` but for its first `head` bytes compressed, behind as many that are 0 before `finish` sees all of it; and whether
    /// it is: not where it is short, where nothing is gained, and where there is no room for both.
    pub(in crate::server) async fn packed(
        self,
        body: Bytes,
        head: usize,
        finish: fn(&mut [u8]),
        room: &Room,
    ) -> Result<(Bytes, bool), Refusal> {
        let most = most_packed(body.len());
        if body.len() < LEAST {
            return Ok((body, false));
        }
        let Ok(taken) = room.reserve_much(most) else { return Ok((body, false)) };
        long(move || {
            // What is not written to of it takes no memory.
            let mut to = Vec::with_capacity(most);
            to.resize(head, 0);
            let mut packed = self.pack(&body[head..], to);
            if packed.len() >= body.len() {
                return (body, false);
            }
            finish(&mut packed);
            packed.shrink_to_fit();
            let taken = taken.map(|taken| taken.keep(packed.len()));
            (counted(packed, taken), true)
        })
        .await
    }
}

/// Until when it is of use that a body is unpacked.
#[derive(Debug, Clone)]
pub(in crate::server) struct Until {
    /// When its request came.
    pub(in crate::server) since: Instant,
    /// How long after that an answer is of use.
    pub(in crate::server) within: Duration,
    /// Tells that the server goes, after which it may take a little longer.
    pub(in crate::server) going: Going,
    /// The header that says how it is packed.
    pub(in crate::server) said_in: &'static str,
}

/// Where HTTP says how a body is packed.
pub(in crate::server) const SAID_IN: &str = "Content-Encoding";

impl Until {
    fn left(&self) -> Duration {
        self.within.saturating_sub(self.since.elapsed())
    }

    /// What is said of a body that is not unpacked by then.
    fn is_over(&self) -> Refusal {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Refusal::from(Error::SlowBody { took_ms: ms(self.since.elapsed()), deadline_ms: ms(self.within) })
    }
}

/// The whole body of a request with these headers, unpacked.
pub(in crate::server) async fn read(
    headers: &HeaderMap,
    body: Body,
    until: Until,
    options: &Options,
    room: &Room,
) -> Result<Whole, Refusal> {
    read_within(options.max_body_bytes, headers, body, Some(until), options, room).await
}

/// The same of one that has `most` bytes at most, packed and unpacked. Without `until` it may take as long to unpack as to come.
pub(in crate::server) async fn read_within(
    most: usize,
    headers: &HeaderMap,
    body: Body,
    until: Option<Until>,
    options: &Options,
    room: &Room,
) -> Result<Whole, Refusal> {
    let coding = Coding::of_body(headers)?;
    let body = body::read(body, most, options, room).await?;
    let Some(coding) = coding else { return Ok(body) };
    let now =
        || Until { since: Instant::now(), within: options.body_timeout, going: Going::default(), said_in: SAID_IN };
    let until = until.unwrap_or_else(now);
    coding.unpacked(body, most, until, room).await
}

/// An answer of this body, compressed if the client, who sent these headers, wishes that and there is room for it.
pub(in crate::server) async fn as_wished(headers: &HeaderMap, body: Bytes, room: &Room) -> Result<Response, Refusal> {
    let Some(coding) = Coding::wished(headers) else { return Ok(Response::new(Body::from(body))) };
    let (body, is_packed) = coding.packed(body, 0, |_| (), room).await?;
    let mut response = Response::new(Body::from(body));
    if is_packed {
        response.headers_mut().insert(CONTENT_ENCODING, coding.name());
    }
    Ok(response)
}

/// Most bytes that so many take when they are compressed: those that nothing is gained by stand in blocks of their own (RFC 1951,
/// section 3.2.4), behind and before what the formats add.
fn most_packed(bytes: usize) -> usize {
    bytes + bytes / 1024 + 64
}

/// The length that the end of a gzip stream says (RFC 1952, section 2.3.1), which is that of its last part alone. `None` where it cannot
/// be true, as nothing is packed to less than a 1,032nd.
fn said_by_gzip(packed: &[u8]) -> Option<usize> {
    let said = u32::from_le_bytes(*packed.last_chunk()?) as usize;
    Some(said).filter(|said| *said <= packed.len().saturating_mul(1032))
}

/// What is packed, a little at a time, for as long as anybody waits for it.
#[derive(Clone, Copy)]
struct Fed<'a> {
    left: &'a [u8],
    wanted: &'a Wanted,
}

impl Read for Fed<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(to)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Fed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if !self.wanted.is_so() {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        Ok(&self.left[..self.left.len().min(FED)])
    }

    fn consume(&mut self, count: usize) {
        self.left = &self.left[count..];
    }
}

/// Unpacks gzip, one member behind the other (RFC 1952, section 2.2), and says what stands there if not another one.
struct Members<'a> {
    of: GzDecoder<Fed<'a>>,
    /// How many have begun, and what was in them so far.
    begun: usize,
    bytes: usize,
}

impl<'a> Members<'a> {
    fn of(fed: Fed<'a>) -> Members<'a> {
        Members { of: GzDecoder::new(fed), begun: 1, bytes: 0 }
    }
}

impl Read for Members<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.of.read(to)?;
            self.bytes += count;
            let rest = *self.of.get_ref();
            if count > 0 || to.is_empty() || rest.left.is_empty() {
                return Ok(count);
            }
            if !rest.left.starts_with(&[0x1f, 0x8b]) {
                let message = format!("behind its end it has {} bytes that are no gzip", rest.left.len());
                return Err(io::Error::other(message));
            }
            if self.begun >= MEMBERS + self.bytes / LEAST_IN_MEMBER {
                let message = format!(
                    "it has more than {MEMBERS} members of gzip with less than {LEAST_IN_MEMBER} bytes in each, on average: \
                     compress it in one piece"
                );
                return Err(io::Error::other(message));
            }
            self.begun += 1;
            self.of.reset(rest);
        }
    }
}

/// What the reader that `open` gives unpacks, which is `said` bytes long where nothing was said wrongly. Where it is not known how long it
/// is, that is found out first, keeping nothing: memory that grew with it would be left behind at every step.
fn unpack<R: Read>(
    open: impl Fn() -> R,
    took: Duration,
    said: Option<usize>,
    (most, said_in): (usize, &str),
    room: &Room,
) -> Result<Whole, Refusal> {
    let too_large = || {
        let message = format!("the unpacked body is larger than the {most} bytes that are taken here");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let begun = Instant::now();
    let broken = |error| Refusal::bad_request(format!("the body is not what its {said_in} says: {error}"));
    let mut piece = vec![0; PIECE];
    let count = |from: &mut R, piece: &mut [u8]| {
        let mut length = 0;
        loop {
            match from.read(piece).map_err(broken)? {
                0 => return Ok(length),
                more => length += more,
            }
            if length > most {
                return Err(too_large());
            }
        }
    };
    let mut length = match said {
        Some(said) => said,
        None => count(&mut open(), &mut piece)?,
    };
    if length > most {
        return Err(too_large());
    }
    let mut unpacked = Growing::new(length, room);
    unpacked.expect(length)?;
    let mut from = open();
    loop {
        let more = from.read(&mut piece).map_err(broken)?;
        if more == 0 {
            // It is there when it is unpacked: how long that takes is its sender's choice, as the time that it takes to come.
            return Ok(unpacked.whole(took + begun.elapsed()));
        }
        if more > length - unpacked.len() {
            length = count(&mut open(), &mut vec![0; PIECE])?;
            unpacked.expect(length)?;
        }
        unpacked.push(&piece[..more])?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use tokio::sync::watch;

    use super::*;
    use crate::server::body::Waits;
    use crate::server::closing::LAST_PATIENCE;

    /// What is packed, for one who waits.
    fn unpack(coding: Coding, body: &Whole, most: usize, room: usize) -> Result<Whole, Refusal> {
        coding.unpack(body, most, &Room::new(room), (&Waits::default().wanted(), SAID_IN))
    }

    fn whole(bytes: Vec<u8>) -> Whole {
        Whole::new(bytes.into(), Duration::ZERO, None)
    }

    #[test]
    fn what_is_packed_is_unpacked_within_the_bound_and_the_room() {
        let text = b"inference ".repeat(20_000);
        for coding in Coding::ALL {
            let packed = whole(coding.pack(&text, Vec::new()));
            assert!(packed.bytes.len() < text.len() / 10);
            let unpacked = unpack(coding, &packed, text.len(), 1 << 20).unwrap();
            assert_eq!(unpacked.bytes, text);
            assert!(unpacked.took > packed.took, "to unpack it is a part of its coming");
            let status = |most, room| unpack(coding, &packed, most, room).unwrap_err().status().as_u16();
            assert_eq!((status(text.len() - 1, 1 << 20), status(1 << 20, 100_000)), (413, 503), "{coding:?}");
            let refused = |bytes: Vec<u8>| unpack(coding, &whole(bytes), 1 << 20, 1 << 20).unwrap_err();
            if coding == Coding::Gzip {
                let told = refused([&packed.bytes[..], b"junk"].concat());
                assert!(told.message().ends_with("behind its end it has 4 bytes that are no gzip"), "{told:?}");
            }
            let cut = whole(packed.bytes[..packed.bytes.len() - 9].to_vec());
            assert_eq!(unpack(coding, &cut, 1 << 20, 1 << 20).unwrap_err().status().as_u16(), 400);
        }
    }

    #[test]
    fn what_is_unpacked_takes_room_for_all_the_memory_that_it_is_given() {
        let status = |coding: Coding, packed: Vec<u8>, most, room| {
            let unpacked = unpack(coding, &whole(packed), most, room);
            unpacked.map_or_else(|e| e.status().as_u16(), |whole| whole.bytes.len() as u16)
        };
        let packed = |coding: Coding| coding.pack(&[b' '; 300_000], Vec::new());
        // All of it is asked for at once, and no more: memory that grew by doubling was counted by what was in it.
        let zlib = |most, room| status(Coding::Deflate, packed(Coding::Deflate), most, room);
        assert_eq!(
            (zlib(1 << 20, 299_000), zlib(1 << 20, 301_000), zlib(299_999, 1 << 20)),
            (503, 300_000u32 as u16, 413)
        );
        // gzip says how long it is, which is held against the bound before anything is unpacked, and may be a lie.
        let gzip = |more: &[u8], most, room| status(Coding::Gzip, [&packed(Coding::Gzip), more].concat(), most, room);
        assert_eq!((gzip(&[], 1 << 20, 301_000), gzip(&[], 299_999, 1 << 20)), (300_000u32 as u16, 413));
        let second = Coding::Gzip.pack(b"x", Vec::new());
        assert_eq!((gzip(&second, 1 << 20, 302_000), gzip(&second, 300_000, 1 << 20)), (300_001u32 as u16, 413));
        let mut bomb = packed(Coding::Gzip);
        let end = bomb.len() - 4;
        bomb[end..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(status(Coding::Gzip, bomb, usize::MAX, 1 << 20), 400);
    }

    #[test]
    fn a_body_in_gzip_has_few_members_or_much_in_each() {
        let of = |count: usize, bytes: usize| Coding::Gzip.pack(&vec![b' '; bytes], Vec::new()).repeat(count);
        let told = |packed| unpack(Coding::Gzip, &whole(packed), 1 << 20, 4 << 20).map(|whole| whole.bytes.len());
        assert_eq!(told(of(MEMBERS, 0)).ok(), Some(0));
        assert_eq!(told(of(MEMBERS, 1)).ok(), Some(MEMBERS));
        for packed in [of(MEMBERS + 1, 0), of(4 * MEMBERS, LEAST_IN_MEMBER / 2)] {
            let refused = told(packed).unwrap_err();
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
            assert!(refused.message().contains("more than 64 members of gzip"), "{}", refused.message());
        }
        assert_eq!(told(of(4 * MEMBERS, LEAST_IN_MEMBER)).ok(), Some(4 * MEMBERS * LEAST_IN_MEMBER));
        // As bgzip packs: 64 KiB in each, and one with nothing in it behind them.
        let blocks = [of(16, 65_280), of(1, 0)].concat();
        assert_eq!(told(blocks).ok(), Some(16 * 65_280));
    }

    #[test]
    fn it_is_unpacked_a_little_at_a_time_for_as_long_as_anybody_waits() {
        let (packed, waits) = (vec![0; 3 * FED], Waits::default());
        let wanted = waits.wanted();
        let mut fed = Fed { left: &packed, wanted: &wanted };
        assert_eq!(fed.fill_buf().unwrap().len(), FED);
        fed.consume(FED);
        drop(waits);
        assert!(fed.fill_buf().unwrap_err().to_string().contains("nobody waits"));
        for coding in Coding::ALL {
            let packed = whole(coding.pack(b"inference", Vec::new()));
            assert!(coding.unpack(&packed, 1 << 20, &Room::new(1 << 20), (&wanted, SAID_IN)).is_err(), "{coding:?}");
        }
    }

    #[test]
    fn what_is_not_unpacked_in_time_or_when_the_server_has_long_been_going_is_told_so() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).max_blocking_threads(1).build().unwrap();
        let (text, room) = ([b' '; 1024], Room::new(1 << 20));
        runtime.block_on(async {
            let unpacked = |coding: Coding, within, going| {
                let until = Until { since: Instant::now(), within, going, said_in: SAID_IN };
                let room = &room;
                async move { coding.unpacked(whole(coding.pack(&text, Vec::new())), 1024, until, room).await }
            };
            // The only thread for blocking work has something else to do.
            let (release, until) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || until.recv());
            for coding in Coding::ALL {
                let (goes, closing) = watch::channel(false);
                let mut late = Box::pin(unpacked(coding, Duration::from_millis(50), Going::default()));
                let mut last = Box::pin(unpacked(coding, Duration::MAX, Going::new(&Arc::new(closing))));
                assert!(late.as_mut().now_or_never().is_none() && last.as_mut().now_or_never().is_none());
                tokio::time::advance(Duration::from_millis(60)).await;
                let told = late.now_or_never().expect("it is told").unwrap_err();
                assert_eq!(
                    (told.status(), told.reason()),
                    (StatusCode::SERVICE_UNAVAILABLE, "slow_body"),
                    "{coding:?}"
                );
                goes.send_replace(true);
                assert!(last.as_mut().now_or_never().is_none());
                tokio::time::advance(LAST_PATIENCE + Duration::from_millis(10)).await;
                let told = last.now_or_never().expect("it is told").unwrap_err();
                assert!(told.message().starts_with("the server is going"), "{coding:?}: {}", told.message());
            }
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            for coding in Coding::ALL {
                let unpacked = unpacked(coding, Duration::MAX, Going::default()).await;
                assert_eq!(unpacked.unwrap().bytes, &text[..]);
            }
        });
    }

    #[tokio::test]
    async fn an_answer_is_compressed_within_the_room_and_keeps_what_it_takes_of_it() {
        let (answer, room) = (Bytes::from(vec![b'x'; 400_000]), Room::new(500_000));
        let packed =
            |body: Bytes, room: Room| async move { Coding::Gzip.packed(body, 0, |_| (), &room).await.unwrap() };
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            // xorshift32
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as u8 & 63
        })
        .take(400_000)
        .collect();
        let (first, is_packed) = packed(noise.into(), room.clone()).await;
        assert!(is_packed && first.len() > 200_000, "{}", first.len());
        assert_eq!(
            packed(answer.clone(), room.clone()).await,
            (answer.clone(), false),
            "the first has most of the room"
        );
        drop(first);
        let (second, is_packed) = packed(answer.clone(), room.clone()).await;
        assert!(is_packed && second.len() < 4000);
        assert!(packed(answer, room.clone()).await.1, "the second has next to nothing of it");
    }

    #[test]
    fn a_wish_is_one_coding_alone() {
        let wished =
            |value| Coding::wished(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]));
        assert_eq!((wished("gzip"), wished("Deflate")), (Some(Coding::Gzip), Some(Coding::Deflate)));
        assert_eq!((wished("gzip, deflate, br"), wished("identity"), wished("")), (None, None, None));
        assert_eq!(Coding::wished(&HeaderMap::new()), None);
    }
}
