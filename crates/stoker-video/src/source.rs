//! Where the bytes of compressed frames come from.

/// Bytes of a file, all or some.
pub trait ByteSource {
    /// Returns `length` bytes of the file from `offset`, or `None` if the source does not have them all.
    fn bytes(&self, offset: u64, length: usize) -> Option<&[u8]>;
}

impl ByteSource for [u8] {
    fn bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.get(start..start.checked_add(length)?)
    }
}

/// Parts of a file, such as those that [`crate::Packets::byte_ranges`] lists.
#[derive(Clone, Debug, Default)]
pub struct Pieces<B> {
    /// Offset and bytes, ascending by offset.
    pieces: Vec<(u64, B)>,
}

impl<B: AsRef<[u8]>> Pieces<B> {
    /// Creates a source of parts with their offsets in the file.
    pub fn new(mut pieces: Vec<(u64, B)>) -> Self {
        pieces.sort_by_key(|(offset, _)| *offset);
        Self { pieces }
    }
}

impl<B: AsRef<[u8]>> ByteSource for Pieces<B> {
    fn bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let after = self.pieces.partition_point(|(start, _)| *start <= offset);
        let (start, bytes) = self.pieces.get(after.checked_sub(1)?)?;
        bytes.as_ref().bytes(offset - start, length)
    }
}
