//! Compressed bodies, of requests and of answers.
//!
//! Source: RFC 9110, section 8.4.1. `deflate` is what that says, zlib's format, and not the bare stream that some old clients send.

use std::io::{Read, Write};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::server::Options;
use crate::server::body::{self, Room, Whole, long};
use crate::server::status::Refusal;

/// Answers below this many bytes are sent as they are.
pub(in crate::server) const LEAST: usize = 1024;

/// Bytes that are unpacked at a time, and room taken for them.
const PIECE: usize = 64 * 1024;

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
        match headers.get(CONTENT_ENCODING) {
            None => Ok(None),
            Some(value) if value.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(None),
            Some(value) => Coding::named(value).map(Some).ok_or_else(|| {
                let message = "this Content-Encoding is not served: send the body as it is, or as gzip or deflate";
                Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
            }),
        }
    }

    /// How the client wishes the answer to be compressed, if it does. Most HTTP libraries say in every request that they
    /// could read compressed answers, in a list; nobody wished for that, and it costs more time than it saves. So it is a
    /// wish where one coding is named alone.
    fn wished(headers: &HeaderMap) -> Option<Coding> {
        headers.get(ACCEPT_ENCODING).and_then(Coding::named)
    }

    /// The body as it was before it was compressed: 413 where that has more than `most` bytes, 503 where there is no room.
    pub(in crate::server) fn unpack(self, body: &Whole, most: usize, room: &Room) -> Result<Whole, Refusal> {
        let (packed, at) = (&body.bytes[..], body.at);
        match self {
            Coding::Gzip => unpack(MultiGzDecoder::new(packed), at, most, room),
            Coding::Deflate => unpack(ZlibDecoder::new(packed), at, most, room),
        }
    }

    /// Compresses `bytes`, fast rather than well.
    pub(in crate::server) fn pack(self, bytes: &[u8]) -> Vec<u8> {
        let to = Vec::with_capacity(bytes.len() / 2);
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
}

/// The whole body of a request with these headers, unpacked.
pub(in crate::server) async fn read(
    headers: &HeaderMap,
    body: Body,
    options: &Options,
    room: &Room,
) -> Result<Whole, Refusal> {
    let coding = Coding::of_body(headers)?;
    let body = body::read(body, options, room).await?;
    let Some(coding) = coding else { return Ok(body) };
    let (room, most) = (room.clone(), options.max_body_bytes);
    long(move || coding.unpack(&body, most, &room)).await?
}

/// An answer of this body, compressed if the client, who sent these headers, wishes that.
pub(in crate::server) async fn as_wished(headers: &HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let Some(coding) = Coding::wished(headers).filter(|_| body.len() >= LEAST) else {
        return Ok(Response::new(Body::from(body)));
    };
    let packed = long(move || coding.pack(&body)).await?;
    let mut response = Response::new(Body::from(packed));
    response.headers_mut().insert(CONTENT_ENCODING, coding.name());
    Ok(response)
}

fn unpack(mut from: impl Read, at: Instant, most: usize, room: &Room) -> Result<Whole, Refusal> {
    let (mut unpacked, mut taken) = (Vec::new(), None);
    let mut piece = vec![0; PIECE];
    loop {
        let length = match from.read(&mut piece) {
            Ok(0) => return Ok(Whole::new(unpacked.into(), at, taken)),
            Ok(length) => length,
            Err(error) => {
                return Err(Refusal::bad_request(format!("the body is not what its Content-Encoding says: {error}")));
            }
        };
        if length > most - unpacked.len() {
            let message = format!("the unpacked body is larger than the {most} bytes that this server takes");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        room.take(length, &mut taken)?;
        unpacked.extend_from_slice(&piece[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: Vec<u8>) -> Whole {
        Whole::new(bytes.into(), Instant::now(), None)
    }

    #[test]
    fn what_is_packed_is_unpacked_within_the_bound_and_the_room() {
        let text = b"inference ".repeat(20_000);
        for coding in Coding::ALL {
            let packed = whole(coding.pack(&text));
            assert!(packed.bytes.len() < text.len() / 10);
            let unpacked = coding.unpack(&packed, text.len(), &Room::new(1 << 20)).unwrap();
            assert_eq!(unpacked.bytes, text);
            let status = |most, room| coding.unpack(&packed, most, &Room::new(room)).unwrap_err().status().as_u16();
            assert_eq!((status(text.len() - 1, 1 << 20), status(1 << 20, 100_000)), (413, 503), "{coding:?}");
            let cut = whole(packed.bytes[..packed.bytes.len() - 9].to_vec());
            assert_eq!(coding.unpack(&cut, 1 << 20, &Room::new(1 << 20)).unwrap_err().status().as_u16(), 400);
        }
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
