//! Takes a chunk apart: where its rows begin, and which bytes hold its numbers.

use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use bytes::Bytes;
use lance_encoding::buffer::LanceBuffer;
use lance_encoding::compression::BlockDecompressor;
use lance_encoding::data::DataBlock;

use crate::error::Result;
use crate::{BadPage, ListPage, little_endian};

/// The alignment of the parts of a chunk.
const ALIGNMENT: usize = 8;

/// The most levels of a chunk. An early version of Lance wrote more than the field for their number can say.
const LEVELS_MAX: u64 = 1 << 20;

/// How the levels of a page are compressed, and what they mean.
///
/// A chunk has a level for each number, and one for each row without numbers. A repetition level is 1 where a row begins.
/// A definition level is 0 for a number, and otherwise says why the row has none.
#[derive(Clone, Debug)]
pub(crate) struct ListLevels {
    pub rep: Arc<dyn BlockDecompressor>,
    pub def: Option<Arc<dyn BlockDecompressor>>,
    /// Whether rows may be null. Their level is 1, and that of empty rows is the next one.
    pub has_nulls: bool,
}

/// A chunk whose levels are decompressed.
pub(crate) struct ChunkLevels {
    pub rep: ScalarBuffer<u16>,
    pub def: Option<ScalarBuffer<u16>>,
    /// The compressed numbers.
    pub values: Vec<LanceBuffer>,
}

impl ChunkLevels {
    /// Decompresses the levels of a chunk.
    pub fn try_new(page: &ListPage, chunk: &Bytes) -> Result<Self> {
        let mut parts = Parts { chunk, at: 0 };
        let num_levels = parts.number(2)?;
        let rep_bytes = parts.number(2)?;
        let def_bytes = page.levels.def.as_ref().map(|_| parts.number(2)).transpose()?;
        let width = if page.has_large_chunks { 4 } else { 2 };
        let value_bytes: Vec<u64> = (0..page.num_value_buffers).map(|_| parts.number(width)).collect::<Result<_>>()?;
        parts.align();
        let rep = parts.part(rep_bytes)?;
        let def = def_bytes.map(|bytes| parts.part(bytes)).transpose()?;
        let values = value_bytes.into_iter().map(|bytes| parts.part(bytes)).collect::<Result<_>>()?;
        let levels = &page.levels;
        let mut counts = Vec::new();
        for (decompressor, buffer) in [(Some(&levels.rep), Some(&rep)), (levels.def.as_ref(), def.as_ref())] {
            if let (Some(decompressor), Some(buffer)) = (decompressor, buffer) {
                counts.extend(decompressor.infer_num_values(buffer).map_err(BadPage::new)?);
            }
        }
        let num_levels = checked_count(num_levels, &counts)?;
        let rep = decompressed(levels.rep.as_ref(), rep, num_levels)?;
        let def = match (&levels.def, def) {
            (Some(decompressor), Some(def)) => Some(decompressed(decompressor.as_ref(), def, num_levels)?),
            _ => None,
        };
        Ok(Self { rep, def, values })
    }
}

/// Returns the number of levels of a chunk. The field for it has 16 bits; `counts` are the numbers that the levels
/// themselves tell.
fn checked_count(declared: u64, counts: &[u64]) -> Result<u64> {
    let Some(first) = counts.first() else { return Ok(declared) };
    let wraps = *first > declared && first % (1 << 16) == declared && *first <= LEVELS_MAX;
    if counts.iter().any(|count| count != first) || !(*first == declared || wraps) {
        return Err(BadPage::new(format!("a chunk has {declared} levels, and its parts have {counts:?}")));
    }
    Ok(*first)
}

fn decompressed(decompressor: &dyn BlockDecompressor, levels: LanceBuffer, count: u64) -> Result<ScalarBuffer<u16>> {
    let block = decompressor.decompress(Some(levels), count).map_err(BadPage::new)?;
    match block {
        DataBlock::FixedWidth(block) if block.bits_per_value == 16 && block.data.len() as u64 == count * 2 => {
            Ok(block.data.borrow_to_typed_slice::<u16>())
        }
        other => Err(BadPage::new(format!("{count} levels of a chunk are {}", other.name()))),
    }
}

/// The parts of a chunk that were not read yet.
struct Parts<'a> {
    chunk: &'a Bytes,
    at: usize,
}

impl Parts<'_> {
    fn number(&mut self, width: usize) -> Result<u64> {
        let bytes = self.chunk.get(self.at..self.at + width).ok_or_else(|| self.short())?;
        self.at += width;
        Ok(little_endian(bytes))
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(ALIGNMENT);
    }

    fn part(&mut self, bytes: u64) -> Result<LanceBuffer> {
        let end = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes));
        let end = end.filter(|end| *end <= self.chunk.len()).ok_or_else(|| self.short())?;
        let part = LanceBuffer::from_bytes(self.chunk.slice(self.at..end), ALIGNMENT as u64);
        self.at = end;
        self.align();
        Ok(part)
    }

    fn short(&self) -> BadPage {
        BadPage::new(format!("a chunk of {} bytes has parts beyond its end", self.chunk.len()))
    }
}
