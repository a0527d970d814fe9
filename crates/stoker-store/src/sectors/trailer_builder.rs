//! Computes the checksums of a data file while it is written.

use stoker_checksum::checksum;
use stoker_types::to_usize;

use super::SECTOR_BYTES;
use super::trailer::{ENTRY_BYTES, FOOTER_BYTES, trailer};

/// Bytes of a sector, as the length of a slice.
const SECTOR_LEN: usize = to_usize(SECTOR_BYTES);

/// Collects what the trailer of a data file needs from the bytes that are written to the file.
#[derive(Debug)]
pub struct TrailerBuilder {
    name: String,
    sums: Vec<u32>,
    /// The bytes of the last sector, which is not full yet.
    partial: Vec<u8>,
    /// The last bytes that were written: at least tables and footer.
    end: Vec<u8>,
    end_bytes: usize,
    num_bytes: u64,
}

impl TrailerBuilder {
    /// For the file `name`, which will have at most `num_columns_max` columns in Lance's sense, one for each nested field,
    /// and at most `num_buffers_max` global buffers.
    pub fn new(name: &str, num_columns_max: usize, num_buffers_max: usize) -> Self {
        let end_bytes = FOOTER_BYTES + ENTRY_BYTES * (num_columns_max + num_buffers_max);
        let (sums, partial, end) = (Vec::new(), Vec::with_capacity(SECTOR_LEN), Vec::new());
        Self { name: name.to_string(), sums, partial, end, end_bytes, num_bytes: 0 }
    }

    /// Adds bytes that were written to the checksums.
    pub fn add(&mut self, bytes: &[u8]) {
        self.num_bytes += bytes.len() as u64;
        let last = &bytes[bytes.len().saturating_sub(self.end_bytes)..];
        self.end.extend_from_slice(last);
        if self.end.len() > 4 * self.end_bytes {
            self.end.drain(..self.end.len() - self.end_bytes);
        }
        let mut rest = bytes;
        if !self.partial.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(SECTOR_LEN - self.partial.len()));
            self.partial.extend_from_slice(head);
            rest = tail;
            if self.partial.len() < SECTOR_LEN {
                return;
            }
            self.sums.push(checksum(&self.partial));
            self.partial.clear();
        }
        let (sectors, partial) = rest.as_chunks::<SECTOR_LEN>();
        self.sums.extend(sectors.iter().map(|sector| checksum(sector)));
        self.partial.extend_from_slice(partial);
    }

    /// Returns the trailer, after all bytes were added.
    ///
    /// # Errors
    /// What is wrong with the file: it does not end like one of Lance.
    pub fn finish(&mut self) -> Result<Vec<u8>, String> {
        if !self.partial.is_empty() {
            self.sums.push(checksum(&self.partial));
        }
        trailer(&self.name, self.num_bytes, &self.sums, &self.end).ok_or_else(|| {
            format!("data file {} does not end with Lance's footer: cannot add its checksums", self.name)
        })
    }
}
