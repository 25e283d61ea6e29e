//! Frames: how the bytes on a worker's socket are cut into messages. Pure.

use super::WorkerError;

/// Bytes of a frame's head.
pub(super) const HEAD: usize = 24;
/// Most bytes of JSON: names and shapes of tensors, or words. More is a mistake.
pub(super) const MOST_META: usize = 16 * 1024 * 1024;
/// Most bytes of tensors.
pub(super) const MOST_DATA: u64 = 4 * 1024 * 1024 * 1024;
/// Bytes that are set aside for a frame on the strength of its announced length alone.
const TRUSTED: usize = 32 * 1024 * 1024;

/// What we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    Setup = 1,
    Run = 2,
    Prepare = 3,
    Finish = 4,
    Cancel = 5,
    Ping = 6,
    Drain = 7,
    Segment = 8,
    Forget = 9,
}

/// What a worker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Word {
    Ready = 65,
    Done = 66,
    Failed = 67,
    Pong = 68,
    /// A later version's; ignored.
    Unknown = 0,
}

impl Word {
    fn of(kind: u8) -> Word {
        let all = [Word::Ready, Word::Done, Word::Failed, Word::Pong];
        all.into_iter().find(|&word| word as u8 == kind).unwrap_or(Word::Unknown)
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// As it came.
    pub(super) kind: u8,
    /// The call that it belongs to; 0 for none.
    pub(super) id: u64,
    /// Bytes of JSON that follow.
    pub(super) meta: usize,
    /// Bytes of tensors behind those.
    pub(super) data: usize,
}

impl Head {
    /// Reads a head, whose lengths are within bounds.
    pub(super) fn read(bytes: &[u8; HEAD]) -> Result<Head, WorkerError> {
        let [kind, _, _, _, bytes @ ..] = bytes;
        let (meta, bytes) = bytes.split_first_chunk().expect("20 bytes are left");
        let (data, id) = bytes.split_first_chunk().expect("16 bytes are left");
        let (meta, data) = (u32::from_le_bytes(*meta) as usize, u64::from_le_bytes(*data));
        let id = u64::from_le_bytes(id.try_into().expect("8 bytes are left"));
        let bound = |what, length, most| WorkerError::Length { what, length, most };
        if meta > MOST_META {
            return Err(bound("JSON", meta as u64, MOST_META as u64));
        }
        if data > MOST_DATA {
            return Err(bound("data", data, MOST_DATA));
        }
        let data = usize::try_from(data).map_err(|_| bound("data", data, usize::MAX as u64))?;
        Ok(Head { kind: *kind, id, meta, data })
    }

    /// What it means where a worker sent it.
    pub(super) fn word(&self) -> Word {
        Word::of(self.kind)
    }

    /// Bytes that follow it.
    pub(super) fn rest(&self) -> usize {
        self.meta + self.data
    }

    /// Where they are to be read into. It grows as they come: whoever announces much and sends little takes little memory.
    pub(super) fn buffer(&self) -> Vec<u8> {
        Vec::with_capacity(self.rest().min(TRUSTED))
    }
}

/// A whole frame with `meta`, and `data` bytes that `write` puts behind it.
pub(super) fn written(
    kind: u8,
    id: u64,
    meta: &[u8],
    data: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<Vec<u8>, WorkerError> {
    if meta.len() > MOST_META {
        return Err(WorkerError::Length { what: "JSON", length: meta.len() as u64, most: MOST_META as u64 });
    }
    if data as u64 > MOST_DATA {
        return Err(WorkerError::Length { what: "data", length: data as u64, most: MOST_DATA });
    }
    let mut frame = Vec::with_capacity(HEAD + meta.len() + data);
    frame.extend_from_slice(&[kind, 0, 0, 0]);
    frame.extend_from_slice(&(meta.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(data as u64).to_le_bytes());
    frame.extend_from_slice(&id.to_le_bytes());
    frame.extend_from_slice(meta);
    write(&mut frame);
    debug_assert_eq!(frame.len(), HEAD + meta.len() + data);
    Ok(frame)
}

/// A frame of a head alone.
pub(super) fn bare(kind: u8, id: u64) -> Vec<u8> {
    written(kind, id, &[], 0, |_| {}).expect("it has no lengths to be out of bounds")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_24_bytes_are_a_head_within_bounds_or_an_error_in_words(bytes in prop::array::uniform24(any::<u8>())) {
            match Head::read(&bytes) {
                Ok(head) => prop_assert!(head.meta <= MOST_META && head.data as u64 <= MOST_DATA),
                Err(why) => prop_assert!(why.to_string().contains("more than"), "{why}"),
            }
        }

        #[test]
        fn what_is_written_is_read_again(id: u64, meta in prop::collection::vec(any::<u8>(), 0..50), data in prop::collection::vec(any::<u8>(), 0..50)) {
            let frame = written(Word::Done as u8, id, &meta, data.len(), |to| to.extend_from_slice(&data)).unwrap();
            let (head, rest) = frame.split_first_chunk().unwrap();
            let head = Head::read(head).unwrap();
            prop_assert_eq!(head, Head { kind: Word::Done as u8, id, meta: meta.len(), data: data.len() });
            prop_assert_eq!(rest, [meta, data].concat());
        }
    }
}
