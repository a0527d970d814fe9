//! Bytes in several places of memory.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Bytes in segments, which are written to a socket together without copying them. A segment is released as soon as all
/// of it was read.
#[derive(Debug, Default)]
pub struct Segments {
    segments: VecDeque<Bytes>,
    remaining: usize,
}

impl Segments {
    /// Adds the segments of `other` at the end.
    pub fn append(&mut self, mut other: Self) {
        self.remaining += other.remaining;
        self.segments.append(&mut other.segments);
    }
}

impl From<Bytes> for Segments {
    fn from(bytes: Bytes) -> Self {
        Self::from_iter([bytes])
    }
}

impl FromIterator<Bytes> for Segments {
    fn from_iter<T: IntoIterator<Item = Bytes>>(segments: T) -> Self {
        let segments: VecDeque<_> = segments.into_iter().filter(|segment| !segment.is_empty()).collect();
        let remaining = segments.iter().map(Bytes::len).sum();
        Self { segments, remaining }
    }
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.segments.front().map(Bytes::as_ref).unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(&self.segments).map(|(slice, segment)| *slice = IoSlice::new(segment));
        filled.count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "cannot advance by {count} of {} bytes", self.remaining);
        self.remaining -= count;
        while let Some(first) = self.segments.front_mut().filter(|_| count > 0) {
            let taken = count.min(first.len());
            first.advance(taken);
            count -= taken;
            if first.is_empty() {
                self.segments.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        /// Whatever is read at once, vectored or not, the bytes are those of the segments in their order.
        #[test]
        fn segments_are_their_bytes(parts in vec(vec(any::<u8>(), 0..8), 0..6), steps in vec(1..12_usize, 60)) {
            let bytes = parts.concat();
            let (first, second) = parts.split_at(parts.len() / 2);
            let segments = |parts: &[Vec<u8>]| parts.iter().map(|part| Bytes::from(part.clone())).collect::<Segments>();
            let mut read = segments(first);
            read.append(segments(second));
            let mut start = 0;
            for step in steps {
                assert_eq!(read.remaining(), bytes.len() - start);
                assert_eq!(read.chunk().is_empty(), start == bytes.len());
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = read.chunks_vectored(&mut slices);
                let seen: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                assert_eq!(seen, bytes[start..start + seen.len()]);
                assert_eq!(seen.is_empty(), start == bytes.len());
                let step = step.min(read.remaining());
                read.advance(step);
                start += step;
            }
        }
    }
}
