//! The name of one request in answers, log lines and spans: the caller's own, or one made here.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Longest id that is taken from a caller: more than any known form needs, and little in a log line.
const LONGEST: usize = 128;

/// Where the ids made by this process begin. One draw for the whole process: no request pays for chance.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

static MADE: AtomicU64 = AtomicU64::new(0);

/// What `x-request-id` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The header, in requests and in answers.
    pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    /// The caller's id where it is sane, and else a new one.
    pub fn of(headers: &HeaderMap) -> RequestId {
        RequestId::given(headers.get(RequestId::HEADER).map(HeaderValue::as_bytes))
    }

    /// The caller's id where it said one that is sane, and else a new one.
    pub fn given(id: Option<&[u8]>) -> RequestId {
        let sane = id.filter(|id| is_sane(id)).and_then(|id| HeaderValue::from_bytes(id).ok());
        sane.map_or_else(RequestId::made, RequestId)
    }

    /// An id that no other request of this process has, of 16 hexadecimal digits.
    pub fn made() -> RequestId {
        let id = mixed(SEED.wrapping_add(MADE.fetch_add(1, Ordering::Relaxed)));
        let digits: [u8; 16] = std::array::from_fn(|i| b"0123456789abcdef"[(id >> (60 - 4 * i)) as usize & 15]);
        RequestId(HeaderValue::from_bytes(&digits).expect("hexadecimal digits are a header's value"))
    }

    /// As a header's value.
    pub fn value(&self) -> HeaderValue {
        self.0.clone()
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("only visible ASCII is taken")
    }
}

/// Whether an id is short, and has only characters that need no quoting in logs, JSON, URLs and shells: those of UUIDs,
/// base64 and paths of ids.
fn is_sane(id: &[u8]) -> bool {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(b);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(is_plain)
}

/// The finaliser of SplitMix64: a bijection, so that counting gives numbers that look alike nowhere and never repeat.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &str) -> RequestId {
        let mut headers = HeaderMap::new();
        headers.insert(RequestId::HEADER, HeaderValue::from_bytes(given.as_bytes()).expect("a header's value"));
        RequestId::of(&headers)
    }

    #[test]
    fn a_sane_id_of_the_caller_is_kept() {
        for id in ["7", "0af76519-16cd-43dd-8448-eb211c80319c", "Root=1-67891233-abc/d+e.f_g:h@i", &"x".repeat(128)] {
            assert_eq!(of(id).as_str(), id);
        }
    }

    #[test]
    fn anything_else_is_replaced() {
        for id in ["", "a b", "a\"b", "a\tb", "<script>", "ä", "a,b", "${x}", &"x".repeat(129)] {
            let made = of(id);
            assert!(made.as_str().len() == 16 && made.as_str() != id, "{id:?} became {made:?}");
        }
    }

    #[test]
    fn made_ids_differ() {
        let ids: std::collections::HashSet<String> = (0..10_000).map(|_| RequestId::made().as_str().into()).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
