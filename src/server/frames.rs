//! How many frames of HTTP/2 a client may send that carry nothing of a request.
//!
//! `PING`, `SETTINGS`, `WINDOW_UPDATE`, `PRIORITY`, empty `DATA` and frames of unknown kinds cost the server as much as some requests do, and
//! nobody else counts them (RFC 9113, section 10.5). A client may send as many as its requests and their answers call for, and some more.
//!
//! And which of them h2 is not to see: a client that has not heard yet that the connection ends opens further streams, of which all is to be
//! ignored (section 6.8). h2 takes a `WINDOW_UPDATE` of one for a mistake and breaks the connection off, with whatever is under way on it.

use std::time::Duration;

use tokio::time::Instant;

/// Bytes of a frame's head (RFC 9113, section 4.1).
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
/// A kind that means nothing, and that everybody ignores (section 5.5).
const NOTHING: u8 = 0xf9;
/// What says in a `PING` that it is an answer.
const ACK: u8 = 1;
/// What h2's `PING` carries whose answer tells it that its first `GOAWAY` was heard. Streams that begin behind that answer are ignored.
const GOODBYE: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

/// Idle frames that a client may send at once, and how many more each second: far more than keeps a connection alive.
const MOST: f64 = 4096.0;
const A_SECOND: f64 = 128.0;
/// How many more a frame of a request allows, and how many bytes of answers allow one more: clients make room in their windows in turn.
const FOR_A_FRAME: f64 = 16.0;
const BYTES_FOR_ONE: f64 = 512.0;
/// Settings that say something count as so many.
const FOR_SETTINGS: f64 = 16.0;

/// Follows the frames of one connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// What has come of the head of the next frame.
    head: [u8; HEAD],
    come: usize,
    /// Bytes to come before that head.
    skipped: usize,
    /// Idle frames that may still come, as of then.
    left: f64,
    since: Instant,
    /// The newest stream of the client.
    newest: u32,
    /// The last one that is answered, where the client has heard that the connection ends.
    last: Option<u32>,
}

impl Frames {
    /// Those of a connection that begins now, with `preface` bytes that are no frames.
    pub(super) fn new(now: Instant, preface: usize) -> Frames {
        Frames { head: [0; HEAD], come: 0, skipped: preface, left: MOST, since: now, newest: 0, last: None }
    }

    /// Follows `bytes`, read at `now`, to the end of the frame that begins the last of so many requests, and says how many bytes that was; `None` if
    /// the client has sent too many idle frames. Makes nothing of frames that h2 is not to see, where their heads were not cut.
    pub(super) fn follow(&mut self, now: Instant, all: &mut [u8], heads: &mut usize) -> Option<usize> {
        let length = all.len();
        let mut bytes = all;
        self.allow(A_SECOND * now.saturating_duration_since(self.since).min(Duration::from_secs(3600)).as_secs_f64());
        self.since = now;
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            (self.skipped, bytes) = (self.skipped - skipped, &mut bytes[skipped..]);
            let taken = (HEAD - self.come).min(bytes.len());
            self.head[self.come..][..taken].copy_from_slice(&bytes[..taken]);
            if *heads == 0 && self.skipped == 0 && self.come == 0 {
                break;
            }
            let head;
            (self.come, (head, bytes)) = (self.come + taken, bytes.split_at_mut(taken));
            if self.come < HEAD {
                break;
            }
            let [first, second, third, kind, flags, stream @ ..] = self.head;
            let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
            (self.come, self.skipped) = (0, u32::from_be_bytes([0, first, second, third]) as usize);
            match kind {
                PING if flags & ACK != 0 && bytes.starts_with(&GOODBYE) => self.last = Some(self.newest),
                WINDOW_UPDATE if self.last.is_some_and(|last| stream > last) && taken == HEAD => head[3] = NOTHING,
                _ => {}
            }
            match kind {
                HEADERS => {
                    self.newest = self.newest.max(stream);
                    *heads = heads.saturating_sub(1);
                    self.allow(FOR_A_FRAME);
                }
                DATA if self.skipped > 0 => self.allow(FOR_A_FRAME),
                // Each stream that is open may get another window by it.
                SETTINGS if self.skipped > 0 => self.left -= FOR_SETTINGS,
                _ => self.left -= 1.0,
            }
        }
        (self.left >= 0.0).then_some(length - bytes.len())
    }

    /// Learns that so many bytes were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.allow(bytes as f64 / BYTES_FOR_ONE);
    }

    fn allow(&mut self, more: f64) {
        self.left = (self.left + more).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], &vec![b'a'; payload]].concat()
    }

    /// Whether that was not too much.
    fn follow(frames: &mut Frames, now: Instant, bytes: &[u8]) -> bool {
        frames.follow(now, &mut bytes.to_vec(), &mut usize::MAX.clone()).is_some()
    }

    /// How many of these frames, 24 bytes before them, are let through that come at once.
    fn let_through(frames: impl Iterator<Item = Vec<u8>>) -> usize {
        let now = Instant::now();
        let mut followed = Frames::new(now, 24);
        assert!(follow(&mut followed, now, &[0; 24]));
        frames.take_while(|frame| follow(&mut followed, now, frame)).count()
    }

    #[test]
    fn idle_frames_are_bounded_of_whatever_kind() {
        for kind in (0..=255).filter(|kind| *kind != HEADERS) {
            let payload = if kind == DATA { 0 } else { 6 };
            let counts = if kind == SETTINGS { FOR_SETTINGS } else { 1.0 };
            let most = (MOST / counts) as usize;
            assert_eq!(let_through((0..10_000).map(|_| frame(kind, payload))), most, "{kind}");
        }
    }

    #[test]
    fn those_of_requests_are_not_and_allow_some_others() {
        let request = (0..10_000).map(|i| if i % 10 == 0 { frame(HEADERS, 40) } else { frame(PING, 8) });
        assert_eq!(let_through(request), 10_000);
        let stream = (0..10_000).map(|i| if i % 10 == 0 { frame(DATA, 40) } else { frame(PING, 8) });
        assert_eq!(let_through(stream), 10_000);
        assert!(let_through((0..10_000).map(|i| if i % 50 == 0 { frame(DATA, 1) } else { frame(PING, 8) })) < 10_000);
    }

    #[test]
    fn windows_of_streams_that_nobody_answers_are_nothing() {
        let stream = |kind, flags, id: u8, payload: &[u8]| {
            [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, id][..], payload].concat()
        };
        let (now, window) = (Instant::now(), |id| stream(WINDOW_UPDATE, 0, id, &[0, 0, 0, 9]));
        let before = [stream(HEADERS, 5, 3, b"a"), window(3), window(0), stream(PING, ACK, 0, &[1; 8]), window(5)];
        let behind = [stream(PING, ACK, 0, &GOODBYE), stream(HEADERS, 5, 5, b"a"), window(5), window(3), window(0)];
        let mut sent = [before.concat(), behind.concat()].concat();
        let mut nothing = sent.clone();
        let at = before.concat().len() + behind[0].len() + behind[1].len();
        nothing[at + 3] = NOTHING;
        assert_eq!(Frames::new(now, 0).follow(now, &mut sent, &mut 9), Some(nothing.len()));
        assert_eq!(sent, nothing);
    }

    #[test]
    fn time_and_answers_allow_more() {
        let begin = Instant::now();
        let mut frames = Frames::new(begin, 0);
        let pings = frame(PING, 8).repeat(MOST as usize);
        assert!(follow(&mut frames, begin, &pings) && !follow(&mut frames, begin, &frame(PING, 8)));
        let later = begin + Duration::from_secs(1);
        assert!(follow(&mut frames, later, &frame(PING, 8).repeat(100)));
        frames.wrote(512 * 1000);
        assert!(follow(&mut frames, later, &frame(PING, 8).repeat(1000)));
        assert!(!follow(&mut frames, later, &frame(PING, 8).repeat(100)));
    }

    #[test]
    fn frames_may_come_in_any_pieces() {
        let now = Instant::now();
        let bytes: Vec<u8> = (0..64).flat_map(|i| frame(if i % 3 == 0 { DATA } else { PING }, i)).collect();
        let left = |piece: usize| {
            let mut frames = Frames { left: MOST / 2.0, ..Frames::new(now, 0) };
            assert!(bytes.chunks(piece).all(|piece| follow(&mut frames, now, piece)));
            (frames.left, frames.come, frames.skipped)
        };
        let whole = left(bytes.len());
        assert!((1..40).all(|piece| left(piece) == whole), "{whole:?}");
    }

    #[test]
    fn so_many_heads_are_followed_and_no_frame_behind_them() {
        let (now, bytes) =
            (Instant::now(), [frame(PING, 8), frame(HEADERS, 40), frame(9, 5), frame(HEADERS, 40)].concat());
        for piece in 1..bytes.len() {
            let (mut frames, mut heads, mut followed) = (Frames::new(now, 0), 1, 0);
            for bytes in bytes.chunks(piece) {
                followed += frames.follow(now, &mut bytes.to_vec(), &mut heads).unwrap();
                if heads == 0 && followed % piece != 0 {
                    break;
                }
            }
            assert_eq!((followed, heads), (17 + 49, 0), "in pieces of {piece}");
        }
        let all = Frames::new(now, 0).follow(now, &mut bytes.clone(), &mut 2);
        assert_eq!(all, Some(bytes.len()));
    }
}
