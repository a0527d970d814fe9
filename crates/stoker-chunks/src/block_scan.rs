//! Gathers rows of blocks that other streams of the process want as well.

use std::slice;
use std::sync::Arc;

use arrow_buffer::Buffer;
use futures::future::{try_join, try_join_all};
use stoker_lake::DenseColumn;

use crate::chunk_scan::REMOTE;
use crate::coalesce::{Piece, Read};
use crate::shared_reads::{Membership, RangeKey};
use crate::verify::expect;
use crate::{BadRow, ChunkScan, Error, Result, SlotMut, Slots};

/// Neighbouring rows that streams read as a whole, and those of them that one stream wants.
#[derive(Debug, Default)]
pub struct SharedBlock {
    /// The addresses of all rows, ascending; the same for all streams.
    pub addresses: Vec<u64>,
    /// The wanted rows: address and slot.
    pub rows: Vec<(u64, SlotMut)>,
}

/// A range of one file that holds rows of a block.
#[derive(Debug)]
struct BlockRange {
    fragment: u32,
    offset: u64,
    length: u64,
    /// The address of its last row.
    last: u64,
    num_rows: u64,
}

impl ChunkScan {
    /// As [`ChunkScan::gather`], for rows in object stores of whose blocks other streams of the process want other rows: each
    /// block is read once for all of them. What does not fit into their memory is read row by row.
    ///
    /// # Errors
    /// As for [`ChunkScan::gather`].
    pub async fn gather_shared(
        &self,
        shared: &Membership,
        name: &str,
        column: &Arc<DenseColumn>,
        blocks: Vec<SharedBlock>,
    ) -> Result<Vec<BadRow>> {
        let mut alone = Vec::new();
        let mut reads = Vec::new();
        for SharedBlock { addresses, mut rows } in blocks {
            rows.sort_unstable_by_key(|(address, _)| *address);
            let mut rows = rows.into_iter().peekable();
            for range in ranges(name, column, &addresses)? {
                let mut wanted = Vec::new();
                while let Some(row) = rows.next_if(|(address, _)| *address <= range.last) {
                    wanted.push(row);
                }
                if !wanted.is_empty() {
                    reads.push((range, wanted));
                }
            }
            alone.extend(rows);
        }
        let reads = reads.into_iter().map(|(range, wanted)| self.take_from(shared, name, column, range, wanted));
        let alone = self.gather(name, column, alone);
        let (shared, alone) = try_join(try_join_all(reads), alone).await?;
        Ok(shared.into_iter().flatten().chain(alone).collect())
    }

    /// Takes rows out of a range that is in memory, or reads it for all.
    async fn take_from(
        &self,
        shared: &Membership,
        name: &str,
        column: &Arc<DenseColumn>,
        range: BlockRange,
        wanted: Vec<(u64, SlotMut)>,
    ) -> Result<Vec<BadRow>> {
        let Some(file) = column.file(range.fragment) else {
            return Err(Error::Internal { reason: format!("fragment {} is unknown", range.fragment) });
        };
        let key = shared.key(file.reader.place(), range.offset, range.length);
        let Some(cell) = shared.reads().enter(&key, range.num_rows) else {
            return self.gather(name, column, wanted).await;
        };
        let bytes = cell.get_or_try_init(|| self.read_range(column, &range)).await?.clone();
        let mut pieces: Vec<Piece> = Vec::with_capacity(wanted.len());
        for (address, slot) in wanted {
            match pieces.last_mut().filter(|last| last.address == address) {
                Some(last) => last.copies.push(slot),
                None => pieces.push(Piece::new(address, locate(name, column, address)? - range.offset, slot)),
            }
        }
        let read = Read { fragment: range.fragment, offset: range.offset, length: range.length, pieces };
        self.copy_rows(shared, name, column, &key, read, bytes).await
    }

    /// The bytes of a range, in memory of the pool.
    async fn read_range(&self, column: &DenseColumn, range: &BlockRange) -> Result<Buffer> {
        let length =
            usize::try_from(range.length).map_err(|_| Error::Internal { reason: "a range is too long".into() })?;
        let memory = Slots::new(self.pool(), 1, length);
        let pieces = vec![Piece::new(range.last, 0, memory.claim(0)?)];
        let mut read = Read { fragment: range.fragment, offset: range.offset, length: range.length, pieces };
        self.read_remote(column, &mut read, false).await?;
        read.finish();
        memory.freeze()
    }

    /// Copies the rows of a read from the bytes of its range, and checks them.
    async fn copy_rows(
        &self,
        shared: &Membership,
        name: &str,
        column: &Arc<DenseColumn>,
        key: &RangeKey,
        mut read: Read,
        bytes: Buffer,
    ) -> Result<Vec<BadRow>> {
        let addresses: Vec<u64> = read.pieces.iter().map(|piece| piece.address).collect();
        let checksums = self.checksums(column, &addresses).await?;
        expect(slice::from_mut(&mut read), checksums);
        let stats = self.stats().clone();
        let work = move || {
            for piece in &mut read.pieces {
                let start = piece.at as usize;
                let row = bytes.get(start..start + piece.slot.len());
                let row = row.ok_or_else(|| Error::Internal { reason: "a row lies outside its range".into() })?;
                piece.slot.copy_from_slice(row);
            }
            drop(bytes);
            let suspects = read.take_suspects(&stats);
            read.finish();
            Ok(suspects)
        };
        let suspects = self.on_local_thread(work).await?;
        shared.reads().taken(key, addresses.len() as u64);
        self.read_again(name, column, suspects).await
    }
}

/// The ranges in which the rows at ascending addresses lie.
fn ranges(name: &str, column: &DenseColumn, addresses: &[u64]) -> Result<Vec<BlockRange>> {
    let row_bytes = column.row_bytes as u64;
    let mut ranges: Vec<BlockRange> = Vec::new();
    for address in addresses {
        let fragment = (address >> 32) as u32;
        let offset = locate(name, column, *address)?;
        if let Some(range) = ranges.last_mut().filter(|range| range.fragment == fragment)
            && let Some(gap) = offset.checked_sub(range.offset + range.length)
            && let Some(length) = REMOTE.joined(range.length, range.num_rows, gap, row_bytes)
        {
            (range.length, range.last) = (length, *address);
            range.num_rows += 1;
            continue;
        }
        ranges.push(BlockRange { fragment, offset, length: row_bytes, last: *address, num_rows: 1 });
    }
    Ok(ranges)
}

/// Where the row at an address begins in its file.
fn locate(name: &str, column: &DenseColumn, address: u64) -> Result<u64> {
    let located = column.file((address >> 32) as u32).and_then(|file| file.locate(address & 0xFFFF_FFFF));
    let unknown = || Error::UnknownRow { address, column: name.to_string() };
    located.map(|(offset, _)| offset).ok_or_else(unknown)
}
