//! Frames of HTTP/2 that no client would send.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uncork::server::{Access, Options};

use super::{HANGS, start};
use crate::folder::Folder;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// `:status: 200`, by HPACK's static table.
const OK: u8 = 0x88;
const BODY: &[u8] = br#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;

/// `GET / ` of `http://a`, by HPACK's static table.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends `frames` until the server takes no more, and says by which error codes it said goodbye.
async fn sent_away(options: Options, frames: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Vec<u32> {
    let server = start(options).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let flood = tokio::spawn(async move {
        for frame in frames {
            if writing.write_all(&frame).await.is_err() {
                return;
            }
        }
        // Kept open: the server is to be the one who ends it.
        std::future::pending::<()>().await;
    });
    let mut bytes = Vec::new();
    let closed = async { while reading.read_buf(&mut bytes).await.is_ok_and(|length| length > 0) {} };
    tokio::time::timeout(HANGS, closed).await.expect("the server ends the connection");
    flood.abort();
    let (mut rest, mut codes) = (&bytes[..], Vec::new());
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, behind)) = behind.split_at_checked(length) else { break };
        if head[3] == GOAWAY {
            codes.push(u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]));
        }
        rest = behind;
    }
    let (status, _) = server.ask("GET /v2/health/live", "Host: a\r\n", "").await;
    assert_eq!(status, 200, "others are served");
    codes
}

/// RFC 9113, section 7.
const ENHANCE_YOUR_CALM: u32 = 11;

#[tokio::test]
async fn who_opens_streams_and_resets_them_at_once_is_sent_away() {
    let pair = |i: u32| [frame(HEADERS, 5, 2 * i + 1, GET), frame(RST_STREAM, 0, 2 * i + 1, &[0, 0, 0, 8])].concat();
    let codes = sent_away(Options::default(), (0..200_000).map(pair)).await;
    assert!(codes.contains(&ENHANCE_YOUR_CALM), "{codes:?}");
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_followed() {
    let never = (0u32..1_000_000).map(|i| match i {
        0 => frame(HEADERS, 1, 1, GET),
        _ => frame(CONTINUATION, 0, 1, &[0x40, 1, b'x', 1, b'y']),
    });
    sent_away(Options::default(), never).await;
}

#[tokio::test]
async fn a_head_that_is_not_gone_on_with_is_not_waited_for() {
    let options = Options { idle_timeout: Duration::from_millis(100), ..Options::default() };
    sent_away(options, std::iter::once(frame(HEADERS, 1, 1, GET))).await;
}

#[tokio::test]
async fn frames_that_ask_for_answers_are_no_more_than_are_taken() {
    // None of the answers is read: the server stops reading instead of keeping them.
    let server = start(Options { write_timeout: Duration::from_millis(200), ..Options::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(10_000);
    let flood = async { while stream.write_all(&pings).await.is_ok() {} };
    tokio::time::timeout(HANGS, flood).await.expect("the server ends the connection");
    let (status, _) = server.ask("GET /v2/health/live", "Host: a\r\n", "").await;
    assert_eq!(status, 200, "others are served");
}

#[tokio::test]
async fn frames_that_carry_nothing_are_not_followed_without_end_though_their_answers_are_taken() {
    for (kind, stream, payload) in [
        (PING, 0, &[0; 8][..]),
        (SETTINGS, 0, &[]),
        (WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        (PRIORITY, 1, &[0; 5]),
        (0xfb, 0, b"of no known kind"),
    ] {
        let frames = frame(kind, 0, stream, payload).repeat(100);
        sent_away(Options::default(), std::iter::repeat_n(frames, 10_000)).await;
    }
}

/// A connection that takes nothing of its answers, and has asked for the health so many times.
async fn takes_nothing(address: SocketAddr, requests: u32) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let health = [&[0x82, 0x86, 0x04, 15][..], b"/v2/health/live", &[0x41, 1, b'a']].concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    bytes.extend((0..requests).flat_map(|i| frame(HEADERS, 5, 2 * i + 1, &health)));
    // Whoever has been sent away already need not take all of it.
    let _ = stream.write_all(&bytes).await;
    stream
}

/// The kinds of the frames that come, until there are so many of one kind, or the connection ends.
async fn kinds(stream: &mut TcpStream, kind: u8, most: usize) -> Vec<u8> {
    let (mut kinds, mut head) = (Vec::new(), [0; 9]);
    while kinds.iter().filter(|found| **found == kind).count() < most && stream.read_exact(&mut head).await.is_ok() {
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        kinds.push(head[3]);
    }
    kinds
}

#[tokio::test]
async fn answers_that_nobody_takes_are_bounded_for_all_connections_and_a_few_of_each_wait() {
    let server = start(Options::default()).await;
    let test = async {
        let mut all = Vec::new();
        for _ in 0..100 {
            all.push(takes_nothing(server.address, 256).await);
        }
        let ends = all.iter_mut().map(|stream| Box::pin(kinds(stream, DATA, 1)));
        let (seen, _, others) = futures_util::future::select_all(ends).await;
        assert!(!seen.contains(&DATA), "it takes nothing, and is sent away");
        drop(others);
        // Beside them, whoever reads slowly has what he asked for when he takes it.
        let mut slow = takes_nothing(server.address, 8).await;
        assert_eq!(kinds(&mut slow, HEADERS, 8).await.iter().filter(|kind| **kind == HEADERS).count(), 8);
        let room = (0..8).flat_map(|i| frame(WINDOW_UPDATE, 0, 2 * i + 1, &[0, 0, 1, 0]));
        slow.write_all(&room.collect::<Vec<_>>()).await.unwrap();
        assert_eq!(kinds(&mut slow, DATA, 8).await.iter().filter(|kind| **kind == DATA).count(), 8);
        drop(all);
    };
    tokio::time::timeout(HANGS, test).await.expect("a connection is sent away");
}

/// A connection with so many heads, behind each of which a body is to come; behind those of `whole` it comes at once.
async fn sends_heads(address: SocketAddr, requests: u32, whole: bool) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let infer = [&[0x83, 0x86, 0x04, 18][..], b"/v2/models/m/infer", &[0x41, 1, b'a']].concat();
    let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    for stream in (0..requests).map(|i| 2 * i + 1) {
        bytes.extend(frame(HEADERS, 4, stream, &infer));
        if whole {
            bytes.extend(frame(DATA, 1, stream, BODY));
        }
    }
    stream.write_all(&bytes).await.unwrap();
    stream
}

/// The first byte of each of the next answers: its status.
async fn statuses(stream: &mut TcpStream, answers: usize) -> Vec<u8> {
    let (mut statuses, mut head) = (Vec::new(), [0; 9]);
    while statuses.len() < answers {
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            statuses.push(payload[0]);
        }
    }
    statuses
}

#[tokio::test]
async fn requests_whose_bodies_do_not_come_are_bounded_for_all_connections_and_others_are_answered() {
    let test = async {
        let server = start(Options { body_timeout: HANGS * 2, ..Options::default() }).await;
        let mut all = Vec::new();
        for _ in 0..100 {
            all.push(sends_heads(server.address, 256, false).await);
        }
        let refused = all.iter_mut().map(|stream| Box::pin(statuses(stream, 1)));
        let (seen, _, others) = futures_util::future::select_all(refused).await;
        assert_ne!(seen, [OK]);
        drop(others);
        // Beside them, whoever sends his bodies behind their heads is answered.
        let mut other = sends_heads(server.address, 200, true).await;
        assert_eq!(statuses(&mut other, 200).await, [OK; 200]);
        drop(all);
    };
    tokio::time::timeout(HANGS, test).await.expect("a request is refused");
}

/// Reads until a request is refused: by its status, or by how a call of gRPC ends.
async fn refused(stream: &mut TcpStream) {
    let mut head = [0; 9];
    loop {
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let is_end = head[4] & 1 > 0;
        if head[3] == HEADERS && (is_end || payload[0] != OK) {
            return;
        }
    }
}

/// The head of a `POST` to this path, with these fields behind it.
fn post(path: &str, fields: &[u8]) -> Vec<u8> {
    [&[0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()], path.as_bytes(), &[0x41, 1, b'a'], fields].concat()
}

/// `content-type: application/grpc`.
const GRPC: &[u8] = b"\x0f\x10\x10application/grpc";
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// A connection on which so many streams begin with this head, and this behind it.
async fn begins(address: SocketAddr, streams: u32, head: &[u8], behind: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    for stream in (0..streams).map(|i| 2 * i + 1) {
        bytes.extend(frame(HEADERS, 4, stream, head));
        if !behind.is_empty() {
            bytes.extend(frame(DATA, 0, stream, behind));
        }
    }
    stream.write_all(&bytes).await.unwrap();
    stream
}

#[tokio::test]
async fn streams_of_grpc_are_bounded_for_all_connections_though_nothing_is_said_on_them() {
    let test = async {
        let server = start(Options::default()).await;
        let mut all = Vec::new();
        for _ in 0..100 {
            all.push(begins(server.address, 250, &post(STREAM, GRPC), &[]).await);
        }
        futures_util::future::select_all(all.iter_mut().map(|stream| Box::pin(refused(stream)))).await;
    };
    tokio::time::timeout(HANGS, test).await.expect("a stream is refused");
}

#[tokio::test]
async fn what_has_come_of_messages_and_bodies_that_do_not_go_on_is_counted() {
    let options =
        Options { max_body_bytes: 1 << 17, max_answer_bytes: 1 << 17, max_bodies_bytes: 1 << 17, ..Options::default() };
    let part = [&[0, 0, 1, 0, 0][..], &[b'['; 16_000]].concat();
    for head in [post(STREAM, GRPC), post("/v2/models/m/infer", &[])] {
        let server = start(options.clone()).await;
        let mut stream = begins(server.address, 16, &head, &part).await;
        tokio::time::timeout(HANGS, refused(&mut stream)).await.expect("16 take more than there is room for");
    }
}

#[tokio::test]
async fn who_is_refused_by_his_head_or_asks_for_no_right_takes_no_place_from_who_has_one() {
    const TOKEN: &str = "inference-0123456789";
    let folder = Folder::new();
    let file = folder.path().join("tokens");
    std::fs::write(&file, format!("models {TOKEN} inference\n")).unwrap();
    let access = Access::Tokens { file, hosts: Vec::new() };
    let options = Options { access, body_timeout: HANGS * 2, ..Options::default() };
    let test = async {
        let server = start(options).await;
        let mut strangers = Vec::new();
        for (head, is_answered) in
            [(post("/v2/models/m/infer", &[]), true), (post("/grpc.health.v1.Health/Check", GRPC), false)]
        {
            for _ in 0..60 {
                let mut stream = begins(server.address, 250, &head, &[]).await;
                if is_answered {
                    assert!(!statuses(&mut stream, 250).await.contains(&OK));
                }
                strangers.push(stream);
            }
        }
        let bearer = format!("Bearer {TOKEN}");
        let token = [&[0x0f, 8, bearer.len() as u8][..], bearer.as_bytes()].concat();
        let mut stream = begins(server.address, 200, &post("/v2/models/m/infer", &token), &[]).await;
        let health = [&[0x82, 0x86, 0x04, 15][..], b"/v2/health/live", &[0x41, 1, b'a']].concat();
        stream.write_all(&frame(HEADERS, 5, 401, &health)).await.unwrap();
        assert_eq!(
            statuses(&mut stream, 1).await,
            [OK],
            "none of the others is refused, and all wait for their bodies"
        );
        let bodies: Vec<u8> = (0..200).flat_map(|i| frame(DATA, 1, 2 * i + 1, BODY)).collect();
        stream.write_all(&bodies).await.unwrap();
        assert_eq!(statuses(&mut stream, 200).await, [OK; 200]);
        drop(strangers);
    };
    tokio::time::timeout(HANGS, test).await.expect("all are answered");
}

#[tokio::test]
async fn a_client_of_http_2_that_does_not_take_its_answer_is_cut_off() {
    // The metrics take more than a frame, and this client lets a byte through.
    let server = start(Options { write_timeout: Duration::from_millis(200), ..Options::default() }).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])).await.unwrap();
    let metrics = [&[0x82, 0x86, 0x04, 8][..], b"/metrics", &[0x41, 1, b'a']].concat();
    stream.write_all(&frame(HEADERS, 5, 1, &metrics)).await.unwrap();
    let until_reset = async {
        let mut head = [0; 9];
        loop {
            stream.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            stream.read_exact(&mut payload).await.unwrap();
            if head[3] == RST_STREAM {
                return payload;
            }
        }
    };
    let reason = tokio::time::timeout(HANGS, until_reset).await.expect("the stream is reset");
    assert_eq!(reason, [0, 0, 0, 8], "CANCEL");
}
