//! Decompresses levels to runs of equal levels.

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use bytes::Bytes;
use lance_encoding::compression::{BlockDecompressor, DecompressionStrategy, DefaultDecompressionStrategy};
use lance_encoding::data::DataBlock;
use lance_encoding::format::metadata::CompressiveEncoding;
use lance_encoding::format::metadata::compressive_encoding::Compression;

use crate::chunk_parts::{ChunkBytes, ChunkParts, lance_buffer};
use crate::error::Result;
use crate::{BadPage, Unsupported, little_endian};

/// The most levels of a chunk. An early version of Lance wrote more than the field for their number can say.
const LEVELS_MAX: u64 = 1 << 20;

/// The number of levels that are compared together.
const LEVELS_AT_ONCE: usize = 32;

/// Successive equal levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelRun {
    pub level: u16,
    pub length: usize,
}

/// How levels are compressed.
#[derive(Clone, Debug)]
pub(crate) enum LevelCodec {
    /// As runs: levels of 16 bits, and then the lengths of their runs, of 8 bits.
    Runs,
    /// In another way.
    Other(Arc<dyn BlockDecompressor>),
}

/// How the levels of a page are compressed, and what they mean.
///
/// A chunk has a level for each number, and one for each row without numbers. A repetition level is 1 where a row begins.
/// A definition level is 0 for a number, and otherwise says why the row has none.
#[derive(Clone, Debug)]
pub(crate) struct ListLevels {
    pub rep: LevelCodec,
    pub def: Option<LevelCodec>,
    /// Whether rows may be null. Their level is 1, and that of empty rows is the next one.
    pub has_nulls: bool,
}

/// The levels of a chunk.
#[derive(Debug, Default)]
pub(crate) struct ChunkLevels {
    pub rep: Vec<LevelRun>,
    /// As many levels as `rep` has; none if all levels are numbers.
    pub def: Vec<LevelRun>,
}

impl ListLevels {
    /// Reads the levels of a chunk, which has these parts, to `levels`.
    pub fn read(&self, chunk: ChunkBytes<'_>, parts: &ChunkParts, levels: &mut ChunkLevels) -> Result<()> {
        let def = self.def.as_ref().zip(parts.def.as_ref());
        let of_rep = self.rep.count(chunk, &parts.rep)?;
        let of_def = def.map(|(codec, part)| codec.count(chunk, part)).transpose()?.flatten();
        let count = checked_count(parts.num_levels, [of_rep, of_def])?;
        self.rep.read(chunk, &parts.rep, count, &mut levels.rep)?;
        levels.def.clear();
        def.map_or(Ok(()), |(codec, part)| codec.read(chunk, part, count, &mut levels.def))
    }
}

impl LevelCodec {
    pub fn try_new(encoding: &CompressiveEncoding) -> std::result::Result<Self, Unsupported> {
        if let Some(Compression::Rle(runs)) = &encoding.compression
            && is_plain(runs.values.as_deref(), 16)
            && is_plain(runs.run_lengths.as_deref(), 8)
        {
            return Ok(Self::Runs);
        }
        let made = DefaultDecompressionStrategy::default().create_block_decompressor(encoding);
        made.map(|made| Self::Other(Arc::from(made)))
            .map_err(|_| Unsupported { reason: "a page has levels of an unknown encoding" })
    }

    /// Returns the number of levels, if the compressed levels tell it.
    fn count(&self, chunk: ChunkBytes<'_>, part: &Range<usize>) -> Result<Option<u64>> {
        match self {
            Self::Runs => {
                let (_, lengths) = runs(chunk.part(part.clone()))?;
                Ok(Some(lengths.iter().map(|length| u64::from(*length)).sum()))
            }
            Self::Other(codec) => {
                codec.infer_num_values(&lance_buffer(chunk.shared(part.clone()))).map_err(BadPage::new)
            }
        }
    }

    /// Replaces `found` by the runs of `count` levels. Neighbouring runs may have the same level.
    fn read(&self, chunk: ChunkBytes<'_>, part: &Range<usize>, count: u64, found: &mut Vec<LevelRun>) -> Result<()> {
        found.clear();
        match self {
            Self::Runs => {
                let (levels, lengths) = runs(chunk.part(part.clone()))?;
                if lengths.iter().map(|length| u64::from(*length)).sum::<u64>() != count {
                    return Err(BadPage::new(format!("the runs of {count} levels have other lengths")));
                }
                let runs = levels.iter().zip(lengths);
                found.extend(runs.map(|(level, length)| LevelRun {
                    level: u16::from_le_bytes(*level),
                    length: usize::from(*length),
                }));
            }
            Self::Other(codec) => {
                add_runs(&decompressed(codec.as_ref(), chunk.shared(part.clone()), count)?, found);
            }
        }
        Ok(())
    }
}

/// Whether the encoding is that of numbers that are not compressed.
fn is_plain(encoding: Option<&CompressiveEncoding>, bits: u64) -> bool {
    let compression = encoding.and_then(|encoding| encoding.compression.as_ref());
    matches!(compression, Some(Compression::Flat(flat)) if flat.bits_per_value == bits && flat.data.is_none())
}

/// Returns the levels and the lengths of compressed runs.
fn runs(bytes: &[u8]) -> Result<(&[[u8; 2]], &[u8])> {
    let short = || BadPage::new(format!("the runs of a chunk's levels have {} bytes", bytes.len()));
    let (size, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let size = usize::try_from(little_endian(size)).map_err(|_| short())?;
    let (levels, lengths) = rest.split_at_checked(size).ok_or_else(short)?;
    let (levels, odd) = levels.as_chunks::<2>();
    if !odd.is_empty() || levels.len() != lengths.len() {
        let (levels, lengths) = (levels.len(), lengths.len());
        return Err(BadPage::new(format!("a chunk has {levels} runs of levels, and {lengths} lengths")));
    }
    Ok((levels, lengths))
}

/// Returns the number of levels of a chunk. The field for it has 16 bits; `counts` are the numbers that the levels
/// themselves tell.
fn checked_count(declared: u64, counts: [Option<u64>; 2]) -> Result<u64> {
    let mut known = counts.iter().flatten();
    let Some(first) = known.next() else { return Ok(declared) };
    let wraps = *first > declared && first % (1 << 16) == declared && *first <= LEVELS_MAX;
    if known.any(|count| count != first) || !(*first == declared || wraps) {
        return Err(BadPage::new(format!("a chunk has {declared} levels, and its parts have {counts:?}")));
    }
    Ok(*first)
}

fn decompressed(decompressor: &dyn BlockDecompressor, levels: Bytes, count: u64) -> Result<ScalarBuffer<u16>> {
    let block = decompressor.decompress(Some(lance_buffer(levels)), count).map_err(BadPage::new)?;
    match block {
        DataBlock::FixedWidth(block) if block.bits_per_value == 16 && block.data.len() as u64 == count * 2 => {
            Ok(block.data.borrow_to_typed_slice::<u16>())
        }
        other => Err(BadPage::new(format!("{count} levels of a chunk are {}", other.name()))),
    }
}

/// Adds the runs of levels. Most levels are those of numbers within a row, and are zero: they are compared together.
fn add_runs(levels: &[u16], found: &mut Vec<LevelRun>) {
    let mut add = |level: u16, length: usize| match found.last_mut() {
        Some(last) if last.level == level => last.length += length,
        _ => found.push(LevelRun { level, length }),
    };
    for some in levels.chunks(LEVELS_AT_ONCE) {
        if some.iter().fold(0, |all, level| all | level) == 0 {
            add(0, some.len());
        } else {
            some.iter().for_each(|level| add(*level, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_taken_for_runs() {
        let levels: Vec<u16> = (0..300).map(|index| u16::from(index % 70 == 3) + u16::from(index > 290)).collect();
        let mut found = Vec::new();
        add_runs(&levels, &mut found);
        let again: Vec<u16> = found.iter().flat_map(|run| std::iter::repeat_n(run.level, run.length)).collect();
        assert_eq!(again, levels);
        assert!(found.windows(2).all(|pair| pair[0].level != pair[1].level), "{found:?}");
    }

    #[test]
    fn runs_that_do_not_fit_are_refused() {
        let bytes = |size: u64, rest: &[u8]| Bytes::from([&size.to_le_bytes(), rest].concat());
        let mut found = Vec::new();
        let mut read = |bytes: &Bytes, count: u64| {
            let chunk = ChunkBytes::new(bytes, 0..bytes.len()).unwrap();
            LevelCodec::Runs.read(chunk, &(0..bytes.len()), count, &mut found).map(|()| found.clone())
        };
        let found = read(&bytes(4, &[1, 0, 0, 0, 1, 9]), 10).unwrap();
        assert_eq!(found, [LevelRun { level: 1, length: 1 }, LevelRun { level: 0, length: 9 }]);
        for (bytes, count) in [
            (bytes(4, &[1, 0, 0, 0, 1, 9]), 11),
            (bytes(4, &[1, 0, 0, 0, 1]), 1),
            (bytes(3, &[1, 0, 0, 1]), 1),
            (bytes(u64::MAX, &[1, 0, 1]), 1),
            (Bytes::from_static(&[0; 7]), 1),
        ] {
            read(&bytes, count).unwrap_err();
        }
    }
}
