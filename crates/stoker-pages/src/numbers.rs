//! Decompresses the numbers of chunks.
//!
//! What the usual tables have, plain and bit-packed numbers, is decompressed here, into memory that is used again or
//! straight to where the numbers belong. Lance's functions do the rest, each time in new memory.

use std::ops::Range;
use std::sync::Arc;

use lance_encoding::buffer::LanceBuffer;
use lance_encoding::compression::{DecompressionStrategy, DefaultDecompressionStrategy, MiniBlockDecompressor};
use lance_encoding::data::DataBlock;
use lance_encoding::format::metadata::CompressiveEncoding;
use lance_encoding::format::metadata::compressive_encoding::Compression;

use crate::chunk_parts::{ChunkBytes, lance_buffer};
use crate::error::Result;
use crate::packed::{PACKED, unpack};
use crate::streaming::copy_streaming;
use crate::{BadPage, Unsupported};

/// How the numbers of a page are compressed.
#[derive(Clone, Debug)]
pub(crate) struct NumberCodec {
    /// The bytes of a number.
    pub width: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// They are not.
    Plain,
    /// Each chunk has at most 1,024 numbers of as many bits as its largest one needs.
    Bitpacked,
    /// In another way.
    Other(Arc<dyn MiniBlockDecompressor>),
}

/// Memory for the numbers of a chunk, which is used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Bit-packed numbers. Words of eight bytes have the alignment of all numbers.
    words: Vec<u64>,
    /// What Lance decompressed.
    block: Option<LanceBuffer>,
}

/// The compressed numbers of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compressed<'a> {
    pub chunk: ChunkBytes<'a>,
    /// Where its buffers lie.
    pub buffers: &'a [Range<usize>],
    pub num_items: usize,
}

impl<'a> Compressed<'a> {
    fn only(self) -> Result<&'a [u8]> {
        match self.buffers {
            [one] => Ok(self.chunk.part(one.clone())),
            several => Err(BadPage::new(format!("a chunk has {} buffers of numbers", several.len()))),
        }
    }
}

impl NumberCodec {
    /// `width` are the bytes of a number.
    pub fn try_new(encoding: &CompressiveEncoding, width: usize) -> std::result::Result<Self, Unsupported> {
        let bits = width as u64 * 8;
        let kind = match &encoding.compression {
            Some(Compression::Flat(flat)) if flat.bits_per_value == bits && flat.data.is_none() => Kind::Plain,
            Some(Compression::InlineBitpacking(packed))
                if packed.uncompressed_bits_per_value == bits && packed.values.is_none() =>
            {
                Kind::Bitpacked
            }
            _ => {
                let strategy = DefaultDecompressionStrategy::default();
                let made = strategy.create_miniblock_decompressor(encoding, &strategy);
                let made = made.map_err(|_| Unsupported { reason: "a page has numbers of an unknown encoding" })?;
                Kind::Other(made.into())
            }
        };
        Ok(Self { width, kind })
    }

    /// Returns the numbers of a chunk, and maybe more bytes after them.
    pub fn decompress<'a>(&self, numbers: Compressed<'a>, scratch: &'a mut Scratch) -> Result<&'a [u8]> {
        let found = match &self.kind {
            Kind::Plain => numbers.only()?,
            Kind::Bitpacked => {
                scratch.words.resize(PACKED * self.width / size_of::<u64>(), 0);
                let target = bytemuck::cast_slice_mut(&mut scratch.words);
                self.unpack(numbers, target)?;
                &*target
            }
            Kind::Other(codec) => scratch.block.insert(self.decompress_by_lance(codec.as_ref(), numbers)?),
        };
        if numbers.num_items.checked_mul(self.width).is_none_or(|bytes| found.len() < bytes) {
            let (items, length) = (numbers.num_items, found.len());
            return Err(BadPage::new(format!("{items} numbers of a chunk have {length} bytes")));
        }
        Ok(found)
    }

    /// Decompresses the numbers of a chunk to where they belong. Returns `false` if they have to be copied there.
    pub fn decompress_to(&self, numbers: Compressed<'_>, target: &mut [u8], scratch: &mut Scratch) -> Result<bool> {
        let is_direct =
            matches!(self.kind, Kind::Bitpacked) && numbers.num_items == PACKED && target.len() == PACKED * self.width;
        if is_direct {
            copy_streaming(self.decompress(numbers, scratch)?, target);
        }
        Ok(is_direct)
    }

    /// Unpacks bit-packed numbers. `target` has room for 1,024.
    fn unpack(&self, numbers: Compressed<'_>, target: &mut [u8]) -> Result<()> {
        let num_items = numbers.num_items;
        if num_items > PACKED {
            return Err(BadPage::new(format!("{num_items} numbers of a chunk are packed as {PACKED}")));
        }
        if num_items == 0 {
            return Ok(());
        }
        unpack(numbers.only()?, self.width, target)
    }

    fn decompress_by_lance(&self, codec: &dyn MiniBlockDecompressor, numbers: Compressed<'_>) -> Result<LanceBuffer> {
        let buffers = numbers.buffers.iter().map(|range| lance_buffer(numbers.chunk.shared(range.clone())));
        let block = codec.decompress(buffers.collect(), numbers.num_items as u64).map_err(BadPage::new)?;
        match block {
            DataBlock::FixedWidth(block) if block.bits_per_value == self.width as u64 * 8 => Ok(block.data),
            other => Err(BadPage::new(format!("a chunk of {} bytes per number holds {}", self.width, other.name()))),
        }
    }
}
