//! Reads the samples of a shard.
//!
//! Layout, with numbers of 32 bits: the number of samples, where each sample begins, where the last one ends, text about
//! the columns, the samples. Source: `streaming.base.format.mds.writer` of the library `mosaicml-streaming`.

use std::io::{self, Read as _};

use super::index::MdsShard;
use crate::decompress::Decompressed;
use crate::{Error, Folder, Result};

/// The most bytes of the table of the places of samples.
const TABLE_BYTES_MAX: u64 = 256 << 20;
/// The most bytes of a sample, as many as a value of a table may have.
const SAMPLE_BYTES_MAX: u64 = i32::MAX as u64;
/// The bytes of a sample for which memory is taken before they are there.
const EXPECTED_BYTES_MAX: u64 = 1 << 20;
/// The memory that is kept from one sample to the next.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// The samples of a shard, in order. One sample is in memory.
#[derive(Debug)]
pub(super) struct ShardReader {
    source: Decompressed,
    raw_bytes: u64,
    /// Where the samples begin, and where the last one ends, as they are stored.
    table: Vec<u8>,
    /// The number of the next sample.
    next: usize,
    sample: Vec<u8>,
}

impl ShardReader {
    /// Opens a shard, and checks where its samples lie.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a shard that contradicts its index or itself; [`Error::Read`].
    pub fn open(folder: &dyn Folder, shard: &MdsShard) -> Result<Self> {
        let bytes = folder.open(&shard.file).map_err(|source| Error::read(&shard.file, source))?;
        let (found, expected) = (bytes.size(), shard.file_bytes);
        let source = Decompressed::new(&shard.file, bytes, shard.compression)?;
        let mut reader = Self { source, raw_bytes: shard.raw_bytes, table: Vec::new(), next: 0, sample: Vec::new() };
        if found != expected {
            return Err(reader.malformed(format!("it has {found} bytes, and the index says {expected}")));
        }
        reader.read_table(shard.num_samples)?;
        Ok(reader)
    }

    /// Returns the number of bytes of the file, as it is stored, that were read.
    pub fn position(&self) -> u64 {
        self.source.position()
    }

    /// Returns the next sample; `None` at the end. A sample that is too large is an error with its size, and skipped.
    ///
    /// # Errors
    /// [`Error`] for damage after which no further sample can be read.
    pub fn next(&mut self) -> Result<Option<Result<&[u8], u64>>> {
        let (Some(start), Some(end)) = (self.place(self.next), self.place(self.next + 1)) else {
            return self.end().map(|()| None);
        };
        let (number, bytes) = (self.next, u64::from(end.saturating_sub(start)));
        self.next += 1;
        if bytes > SAMPLE_BYTES_MAX {
            self.skip(bytes, number)?;
            return Ok(Some(Err(bytes)));
        }
        let mut sample = std::mem::take(&mut self.sample);
        sample.clear();
        sample.shrink_to(KEPT_BYTES_MAX);
        self.fill(&mut sample, bytes, &format!("sample {number}"))?;
        self.sample = sample;
        Ok(Some(Ok(&self.sample)))
    }

    /// Reads the table of the places of samples, and what lies between it and the first sample.
    fn read_table(&mut self, num_samples: u64) -> Result<()> {
        let mut number = Vec::new();
        self.fill(&mut number, 4, "the number of samples")?;
        let found = number.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if u64::from(found) != num_samples {
            return Err(self.malformed(format!("it has {found} samples, and the index says {num_samples}")));
        }
        let table_bytes = (u64::from(found) + 1) * 4;
        let data_start = 4 + table_bytes;
        if data_start > self.raw_bytes || table_bytes > TABLE_BYTES_MAX {
            let reason = format!("{found} samples do not fit {} bytes, or are too many for one shard", self.raw_bytes);
            return Err(self.malformed(reason));
        }
        let mut table = Vec::new();
        self.fill(&mut table, table_bytes, "the places of samples")?;
        self.table = table;
        let mut before = data_start;
        for number in 0..self.table.len() / 4 {
            let place = u64::from(self.place(number).unwrap_or(0));
            if place < before || place > self.raw_bytes {
                let reason =
                    format!("sample {number} begins at byte {place}, which is not from {before} to {}", self.raw_bytes);
                return Err(self.malformed(reason));
            }
            before = place;
        }
        if before != self.raw_bytes {
            let reason = format!("the last sample ends at byte {before}, and the shard at {}", self.raw_bytes);
            return Err(self.malformed(reason));
        }
        let first = u64::from(self.place(0).unwrap_or(0));
        self.skip(first.saturating_sub(data_start), 0)
    }

    /// Returns where a sample begins; of the number after the last one, where that ends.
    fn place(&self, sample: usize) -> Option<u32> {
        let start = sample.checked_mul(4)?;
        self.table.get(start..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Adds `bytes` bytes to `into`. `what` is for messages.
    fn fill(&mut self, into: &mut Vec<u8>, bytes: u64, what: &str) -> Result<()> {
        let expected = self.source.left().map_or(bytes.min(EXPECTED_BYTES_MAX), |left| bytes.min(left));
        into.reserve(usize::try_from(expected).unwrap_or(0));
        let read = self.source.by_ref().take(bytes).read_to_end(into);
        match read {
            Ok(read) if read as u64 == bytes => Ok(()),
            Ok(_) => Err(self.malformed(format!("it ends in {what}"))),
            Err(error) => Err(self.source.error(error)),
        }
    }

    fn skip(&mut self, bytes: u64, sample: usize) -> Result<()> {
        match io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink()) {
            Ok(skipped) if skipped == bytes => Ok(()),
            Ok(_) => Err(self.malformed(format!("it ends in or before sample {sample}"))),
            Err(error) => Err(self.source.error(error)),
        }
    }

    /// Checks that the shard has no more bytes than the index says.
    fn end(&mut self) -> Result<()> {
        match io::copy(&mut self.source.by_ref().take(1), &mut io::sink()) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.malformed(format!("it expands to more than the {} bytes of the index", self.raw_bytes))),
            Err(error) => Err(self.source.error(error)),
        }
    }

    fn malformed(&self, reason: impl ToString) -> Error {
        Error::malformed(self.source.name(), reason)
    }
}
