//! Shared memory for large tensors: sealed memory of a fixed size that both ends have, used again and again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::{pread, pwrite};
use uncork_model::tensor::Data;

/// Tensors that are smaller together go in the frame: to make them known elsewhere takes longer.
pub(super) const LEAST: usize = 64 * 1024;
/// Tensors begin at multiples of this, as vector instructions like it.
const ALIGNMENT: usize = 64;
/// The least size of a segment.
const LEAST_SEGMENT: usize = 1024 * 1024;

/// A piece of memory that a worker has mapped too.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u32,
    pub(super) bytes: usize,
    memory: OwnedFd,
}

/// The segments of one worker.
#[derive(Debug, Default)]
pub(super) struct Segments(Mutex<Pool>);

#[derive(Debug, Default)]
struct Pool {
    last: u32,
    idle: Vec<Segment>,
    /// Those that calls use now, and most that ever were used at once: as many may lie idle.
    used: usize,
    most_used: usize,
    /// Bytes that the largest outputs of a batch took.
    outputs: Lately,
    /// Bytes that the largest segment had to have.
    wanted: Lately,
}

/// The largest of some numbers in this term and in the one before: what was large once is forgotten.
#[derive(Debug, Default)]
struct Lately {
    this: usize,
    before: usize,
}

impl Lately {
    fn saw(&mut self, number: usize) {
        self.this = self.this.max(number);
    }

    fn most(&self) -> usize {
        self.this.max(self.before)
    }

    fn next_term(&mut self) {
        self.before = std::mem::take(&mut self.this);
    }
}

impl Segments {
    fn pool(&self) -> std::sync::MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A segment of so many bytes at least, and whether the worker has yet to be told of it.
    pub(super) fn take(&self, bytes: usize) -> io::Result<(Segment, bool)> {
        let mut pool = self.pool();
        pool.used += 1;
        pool.most_used = pool.most_used.max(pool.used);
        pool.wanted.saw(bytes);
        let fits = pool.idle.iter().enumerate().filter(|(_, segment)| segment.bytes >= bytes);
        if let Some(at) = fits.min_by_key(|(_, segment)| segment.bytes).map(|(at, _)| at) {
            return Ok((pool.idle.swap_remove(at), false));
        }
        pool.last += 1;
        let id = pool.last;
        drop(pool);
        let made = Segment::new(id, size(bytes));
        made.map(|segment| (segment, true)).inspect_err(|_| self.pool().used -= 1)
    }

    /// Nobody uses it any more. Where more lie idle than were ever used at once, the smallest goes, of which the worker is to be told: it
    /// has it mapped.
    #[must_use]
    pub(super) fn give_back(&self, segment: Segment) -> Option<Segment> {
        let mut pool = self.pool();
        pool.used -= 1;
        pool.idle.push(segment);
        let smallest = pool.idle.iter().enumerate().min_by_key(|(_, segment)| segment.bytes).map(|(at, _)| at)?;
        (pool.idle.len() > pool.most_used).then(|| pool.idle.swap_remove(smallest))
    }

    /// The worker never heard of it.
    pub(super) fn lose(&self, segment: Segment) {
        drop(segment);
        self.pool().used -= 1;
    }

    /// Bytes that the outputs of the next batch may take; `None` where they go in the frame.
    pub(super) fn outputs(&self) -> Option<usize> {
        Some(self.pool().outputs.most()).filter(|&bytes| bytes >= LEAST)
    }

    /// Outputs took so many bytes.
    pub(super) fn seen(&self, outputs: usize) {
        self.pool().outputs.saw(outputs);
    }

    /// A term is over. Idle segments go that are larger than any that was wanted in the last two: each call of them all would not fill
    /// one, and their memory is nobody else's. The worker is to be told of them.
    #[must_use]
    pub(super) fn next_term(&self) -> Vec<Segment> {
        let mut pool = self.pool();
        let most = size(pool.wanted.most());
        pool.outputs.next_term();
        pool.wanted.next_term();
        pool.idle.extract_if(.., |segment| segment.bytes > most).collect()
    }
}

/// The size of a segment that is to hold so many bytes.
fn size(bytes: usize) -> usize {
    bytes.max(LEAST_SEGMENT).next_power_of_two()
}

#[cfg(target_os = "linux")]
fn sealed(bytes: usize) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    let memory = memfd_create("uncork", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, bytes as u64)?;
    // Its size is what both ends were told, for ever: nobody's view of it can be cut off.
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Links have no segments there.
#[cfg(not(target_os = "linux"))]
fn sealed(_: usize) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Segment {
    fn new(id: u32, bytes: usize) -> io::Result<Segment> {
        Ok(Segment { id, bytes, memory: sealed(bytes)? })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Writes elements of a fixed width from `offset` on.
    pub(super) fn write(&self, data: &Data, offset: usize) -> io::Result<()> {
        match bytes(data) {
            Some(bytes) => self.write_bytes(bytes, offset),
            None => {
                let mut written = Vec::with_capacity(uncork_model::raw::len(data));
                uncork_model::raw::write(data, &mut written);
                self.write_bytes(&written, offset)
            }
        }
    }

    fn write_bytes(&self, mut bytes: &[u8], mut offset: usize) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = pwrite(&self.memory, bytes, offset as u64)?;
            (bytes, offset) = (&bytes[count..], offset + count);
        }
        Ok(())
    }

    /// The bytes from `offset` on.
    pub(super) fn read(&self, offset: usize, bytes: usize) -> io::Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        self.read_into(&mut read, offset)?;
        Ok(read)
    }

    /// So many numbers from `offset` on, copied once.
    pub(super) fn read_floats(&self, offset: usize, count: usize) -> io::Result<Data> {
        let mut floats = vec![0f32; count];
        self.read_into(bytemuck::cast_slice_mut(&mut floats), offset)?;
        Ok(Data::Fp32(floats))
    }

    fn read_into(&self, mut to: &mut [u8], mut offset: usize) -> io::Result<()> {
        while !to.is_empty() {
            let count = pread(&self.memory, &mut *to, offset as u64)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (to, offset) = (&mut to[count..], offset + count);
        }
        Ok(())
    }
}

/// Elements as they lie in memory, where that is as they are sent.
fn bytes(data: &Data) -> Option<&[u8]> {
    if cfg!(target_endian = "big") {
        return None;
    }
    Some(match data {
        Data::Uint8(v) => v,
        Data::Int8(v) => bytemuck::cast_slice(v),
        Data::Uint16(v) => bytemuck::cast_slice(v),
        Data::Int16(v) => bytemuck::cast_slice(v),
        Data::Uint32(v) => bytemuck::cast_slice(v),
        Data::Int32(v) => bytemuck::cast_slice(v),
        Data::Uint64(v) => bytemuck::cast_slice(v),
        Data::Int64(v) => bytemuck::cast_slice(v),
        Data::Fp32(v) => bytemuck::cast_slice(v),
        Data::Fp64(v) => bytemuck::cast_slice(v),
        _ => return None,
    })
}

/// Where tensors of these lengths lie behind each other, and the bytes that they take together.
pub(super) fn layout(lengths: impl Iterator<Item = usize>) -> (Vec<usize>, usize) {
    let mut end = 0usize;
    let places = lengths.map(|length| {
        let place = end.next_multiple_of(ALIGNMENT);
        end = place + length;
        place
    });
    (places.collect(), end)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn batches_that_grow_leave_no_more_segments_behind_than_were_used_at_once() {
        let segments = Segments::default();
        let (mut known, mut made) = (std::collections::BTreeSet::new(), 0);
        // Warm-up by doubling, and then sizes that come and go: inputs, and answers of four times as much.
        for rows in [1, 2, 4, 8, 16, 32].into_iter().chain((0..200).map(|i| 1 + i * 7 % 32)) {
            let both = [rows << 20, rows << 22].map(|bytes| segments.take(bytes).unwrap());
            for (segment, is_new) in both {
                made += u32::from(is_new);
                known.insert(segment.id);
                segments.give_back(segment).map(|gone| known.remove(&gone.id));
            }
            assert!(known.len() <= 2, "{known:?}");
        }
        assert!(made < 20, "{made}");
    }

    #[test]
    fn a_batch_that_was_larger_than_all_others_holds_its_memory_for_two_terms() {
        let segments = Segments::default();
        let batch = |inputs: usize, outputs: usize| {
            let answer = segments.outputs();
            let both = [Some(inputs), answer].into_iter().flatten();
            let both: Vec<_> = both.map(|bytes| segments.take(bytes).unwrap().0).collect();
            assert!(both.into_iter().filter_map(|segment| segments.give_back(segment)).next().is_none());
            segments.seen(outputs);
            answer
        };
        let (large, small) = (200 << 20, 3 << 20);
        batch(small, large);
        assert_eq!(batch(small, small), Some(large));
        assert!(segments.next_term().is_empty());
        // What is remembered of the outputs goes in the next term, and the segment when none like it was wanted for two.
        for (answer, gone) in [(large, 0), (small, 0), (small, 1), (small, 0)] {
            assert_eq!(batch(small, small), Some(answer));
            assert_eq!(segments.next_term().len(), gone);
        }
        // Where nothing is asked, all but the least go.
        let left: Vec<_> = (0..3).flat_map(|_| segments.next_term()).collect();
        assert_eq!(left.iter().map(|segment| segment.bytes).collect::<Vec<_>>(), [4 << 20; 2]);
        assert_eq!(segments.outputs(), None);
    }
}
