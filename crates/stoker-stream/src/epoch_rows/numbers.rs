//! One 32-bit number for each row of a row set, in memory or in a temporary file.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use stoker_types::to_usize;

use crate::{Error, Result};

/// The bytes that are kept in memory. More of them are kept in a temporary file.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// Numbers of rows in the order of their ordinals: 4 bytes for each row.
pub(super) enum RowNumbers {
    Memory(Vec<u32>),
    /// In a file that has no name, as little-endian numbers.
    File(File),
}

impl RowNumbers {
    /// Makes room for so many numbers.
    pub fn for_rows(num_rows: u64) -> Result<Self> {
        Self::within(num_rows, MEMORY_BYTES_MAX)
    }

    fn within(num_rows: u64, memory_bytes_max: u64) -> Result<Self> {
        match num_rows.saturating_mul(4) <= memory_bytes_max {
            true => Ok(Self::Memory(Vec::with_capacity(to_usize(num_rows)))),
            false => tempfile::tempfile().map(Self::File).map_err(|source| Error::RowNumbers { source }),
        }
    }

    /// Adds the numbers of the next rows. Returns their bytes.
    pub fn add(&mut self, numbers: &[u32]) -> Result<Vec<u8>> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        match self {
            Self::Memory(values) => values.extend_from_slice(numbers),
            Self::File(file) => file.write_all(&bytes).map_err(|source| Error::RowNumbers { source })?,
        }
        Ok(bytes)
    }

    /// Returns the numbers of neighbouring rows.
    pub fn get(&self, start: u64, num_rows: usize) -> Result<Vec<u32>> {
        match self {
            Self::Memory(values) => {
                let start = to_usize(start);
                Ok(values.get(start..start + num_rows).unwrap_or_default().to_vec())
            }
            Self::File(file) => {
                let mut bytes = vec![0; num_rows * 4];
                file.read_exact_at(&mut bytes, start * 4).map_err(|source| Error::RowNumbers { source })?;
                Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in a file are those in memory.
    #[test]
    fn numbers_of_many_rows_are_in_a_file() {
        let all: Vec<u32> = (0..5_000).map(|row| row * 77_777).collect();
        for (memory_bytes_max, in_memory) in [(20_000, true), (19_999, false)] {
            let mut numbers = RowNumbers::within(5_000, memory_bytes_max).expect("room");
            numbers.add(&all[..3_000]).expect("added");
            numbers.add(&all[3_000..]).expect("added");
            assert_eq!(matches!(numbers, RowNumbers::Memory(_)), in_memory);
            for range in [0..1_024, 2_900..3_100, 4_096..5_000, 5_000..5_000] {
                assert_eq!(numbers.get(range.start as u64, range.len()).expect("numbers"), all[range]);
            }
        }
    }
}
