//! Where a chunked body ends (RFC 9112, section 7.1), for a reader that stands beside hyper's and must never disagree with it.
//!
//! It follows only what has one reading: sizes of hexadecimal digits, CR LF, no extensions, no trailers. Of anything else it
//! says that it is lost, and the connection ends behind the answer, so that no head is looked for at a wrong place.

/// Most digits of a chunk's size: those of 2^64 - 1.
const MOST_DIGITS: u8 = 16;

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A size of which so many digits have come.
    Size { size: u64, digits: u8 },
    /// The LF behind a size.
    SizeEnd { size: u64 },
    /// A chunk's data, so many bytes to come.
    Data(u64),
    /// The CR behind data.
    DataCr,
    /// The LF behind that.
    DataLf,
    /// The CR behind the last size.
    LastCr,
    /// The LF behind that, which ends the body.
    LastLf,
}

/// A chunked body that is being followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    place: Place,
    /// Bytes of the chunks whose sizes have come.
    announced: u64,
}

/// What became of it in some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// It goes on behind them.
    Within(Chunks),
    /// It ended behind so many of them.
    Ended(usize),
    /// It has no clear end.
    Lost,
    /// It says a size in more digits than any has.
    Endless,
}

const SIZE: Place = Place::Size { size: 0, digits: 0 };

impl Chunks {
    /// A body of which nothing has come.
    pub(super) const BEGIN: Chunks = Chunks { place: SIZE, announced: 0 };

    /// How many bytes of data it has by what has come of it, whether or not they have.
    pub(super) fn announced(self) -> u64 {
        self.announced
    }

    /// Follows the body through `bytes`.
    pub(super) fn follow(self, bytes: &[u8]) -> Followed {
        let Chunks { mut place, mut announced } = self;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            place = match (place, byte) {
                (Place::Size { size, digits }, byte) if byte.is_ascii_hexdigit() && digits < MOST_DIGITS => {
                    let digit = char::from(byte).to_digit(16).unwrap_or_default();
                    Place::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
                }
                (Place::Size { digits: MOST_DIGITS, .. }, byte) if byte.is_ascii_hexdigit() => {
                    return Followed::Endless;
                }
                (Place::Size { size, digits: 1.. }, b'\r') => Place::SizeEnd { size },
                (Place::SizeEnd { size: 0 }, b'\n') => Place::LastCr,
                (Place::SizeEnd { size }, b'\n') => {
                    announced = announced.saturating_add(size);
                    Place::Data(size)
                }
                (Place::Data(left), _) => {
                    let more = usize::try_from(left - 1).unwrap_or(usize::MAX).min(bytes.len() - at);
                    at += more;
                    match left - 1 - more as u64 {
                        0 => Place::DataCr,
                        left => Place::Data(left),
                    }
                }
                (Place::DataCr, b'\r') => Place::DataLf,
                (Place::DataLf, b'\n') => SIZE,
                (Place::LastCr, b'\r') => Place::LastLf,
                (Place::LastLf, b'\n') => return Followed::Ended(at),
                _ => return Followed::Lost,
            };
        }
        Followed::Within(Chunks { place, announced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_behind_its_last_chunk_in_whatever_pieces_it_comes() {
        let body = b"4\r\nWiki\r\n0A\r\n0123456789\r\n0\r\n\r\n";
        let whole = [&body[..], b"POST /"].concat();
        assert_eq!(Chunks::BEGIN.follow(&whole), Followed::Ended(body.len()));
        for cut in 0..body.len() {
            let Followed::Within(chunks) = Chunks::BEGIN.follow(&body[..cut]) else { panic!("not whole at {cut}") };
            assert_eq!(chunks.follow(&whole[cut..]), Followed::Ended(body.len() - cut), "cut at {cut}");
        }
    }

    #[test]
    fn what_others_may_read_otherwise_is_not_followed() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            " 1\r\n",
            "1 \r\n",
            "0x1\r\n",
            "1\n",
            "1\r\r\n",
            "1;a=b\r\n",
            "1\r\naa",
            "1\r\na\n",
            "0\r\nTrailer: a\r\n\r\n",
            "0\r\n\n",
        ] {
            assert_eq!(Chunks::BEGIN.follow(body.as_bytes()), Followed::Lost, "{body:?}");
        }
    }

    #[test]
    fn the_greatest_size_is_a_size_and_what_has_more_digits_is_none() {
        let announced = |body: &[u8]| match Chunks::BEGIN.follow(body) {
            Followed::Within(chunks) => Some(chunks.announced()),
            _ => None,
        };
        assert_eq!(announced(b"ffffffffffffffff\r\nabc"), Some(u64::MAX));
        assert_eq!(announced(b"2\r\nab\r\n0000000000000003\r\n"), Some(5));
        assert_eq!(Chunks::BEGIN.follow(b"00000000000000003\r\n"), Followed::Endless);
    }
}
