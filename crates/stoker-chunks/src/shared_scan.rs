//! Gathers rows of blocks that other streams of the process want as well.

use std::slice;
use std::sync::Arc;

use arrow_buffer::Buffer;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use stoker_lake::DenseColumn;

use crate::chunk_scan::REMOTE;
use crate::coalesce::{Piece, Read};
use crate::shared_reads::{BlockKey, Membership};
use crate::verify::expect;
use crate::{BadRow, ChunkScan, Error, Result, SlotMut, Slots};

/// Blocks that a stream reads, or waits for, at the same time.
const BLOCKS_AT_ONCE: usize = 64;

/// Rows of at most so many bytes are copied and checked at once; more by a thread that may take long.
const COPY_BYTES_MAX: usize = 64 << 10;

/// A column of a table whose blocks several streams read.
#[derive(Clone, Copy, Debug)]
pub struct SharedColumn<'a> {
    /// The streams.
    pub group: &'a Membership,
    /// The source of the stream, and the table of the source.
    pub source: usize,
    /// Which table of the source.
    pub table: usize,
    /// The column's name.
    pub name: &'a str,
    /// Where it lies.
    pub column: &'a Arc<DenseColumn>,
}

/// The rows of a block that one stream wants.
#[derive(Debug)]
pub struct SharedBlock {
    /// Which block of the source.
    pub number: u64,
    /// The rows of the block, wanted or not.
    pub num_rows: u64,
    /// The wanted rows: address and slot.
    pub wanted: Vec<(u64, SlotMut)>,
}

/// The bytes of a block's rows.
#[derive(Debug)]
pub(crate) struct BlockBytes {
    pub num_rows: u64,
    ranges: Vec<(BlockRange, Buffer)>,
}

/// A range of one file that holds rows of a block.
#[derive(Debug)]
struct BlockRange {
    fragment: u32,
    offset: u64,
    length: u64,
    num_rows: u64,
}

impl ChunkScan {
    /// As [`ChunkScan::gather`], for rows in object stores of whose blocks other streams of the process want other rows: each
    /// block is read once for all of them. What does not fit into their memory is read row by row. `addresses` gives the ascending
    /// addresses of all rows of a block that the table supplies; it is asked by the stream that reads the block.
    ///
    /// # Errors
    /// As for [`ChunkScan::gather`], and those of `addresses`.
    pub async fn gather_shared<E: From<Error>, F: Future<Output = Result<Vec<u64>, E>>>(
        &self,
        shared: SharedColumn<'_>,
        blocks: Vec<SharedBlock>,
        addresses: impl Fn(u64) -> F,
    ) -> Result<Vec<BadRow>, E> {
        let taken = stream::iter(blocks).map(|block| self.take_from(shared, block, &addresses));
        let bad: Vec<Vec<BadRow>> = taken.buffer_unordered(BLOCKS_AT_ONCE).try_collect().await?;
        Ok(bad.into_iter().flatten().collect())
    }

    /// Takes rows out of a block that is in memory, or reads it for all.
    async fn take_from<E: From<Error>, F: Future<Output = Result<Vec<u64>, E>>>(
        &self,
        shared: SharedColumn<'_>,
        block: SharedBlock,
        addresses: impl Fn(u64) -> F,
    ) -> Result<Vec<BadRow>, E> {
        let SharedColumn { group, source, table, name, column } = shared;
        let SharedBlock { number, num_rows, mut wanted } = block;
        let key = BlockKey { group: group.group().clone(), source, table, column: name.into(), number };
        let Some(cell) = group.reads().enter(&key, num_rows.saturating_mul(column.row_bytes as u64)) else {
            return Ok(self.gather(name, column, wanted).await?);
        };
        let read = async || {
            let addresses = addresses(number).await?;
            Ok::<_, E>(self.read_block(name, column, &addresses).await?)
        };
        let bytes = cell.get_or_try_init(read).await?;
        wanted.sort_unstable_by_key(|(address, _)| *address);
        let mut wanted = wanted.into_iter().peekable();
        let (mut num_taken, mut suspects) = (0, Vec::new());
        for (range, bytes) in &bytes.ranges {
            let mut pieces: Vec<Piece> = Vec::new();
            while let Some((address, _)) = wanted.peek()
                && let Some(at) = range.place(column, *address)
                && let Some((address, slot)) = wanted.next()
            {
                match pieces.last_mut().filter(|last| last.address == address) {
                    Some(last) => last.copies.push(slot),
                    None => pieces.push(Piece::new(address, at, slot)),
                }
            }
            if pieces.is_empty() {
                continue;
            }
            num_taken += pieces.len() as u64;
            let BlockRange { fragment, offset, length, .. } = *range;
            suspects.extend(self.copy_rows(column, Read { fragment, offset, length, pieces }, bytes.clone()).await?);
        }
        if let Some((address, _)) = wanted.next() {
            let reason = format!("row address {address:#x} of column {name} is not in its block {number}");
            return Err(Error::Internal { reason }.into());
        }
        group.reads().taken(&key, num_taken);
        Ok(self.read_again(name, column, suspects).await?)
    }

    /// The bytes of rows at ascending addresses.
    async fn read_block(&self, name: &str, column: &DenseColumn, addresses: &[u64]) -> Result<BlockBytes> {
        let ranges = ranges(name, column, addresses)?;
        let reads = ranges.into_iter().map(|range| async {
            let bytes = self.read_range(column, &range).await?;
            Ok::<_, Error>((range, bytes))
        });
        Ok(BlockBytes { num_rows: addresses.len() as u64, ranges: try_join_all(reads).await? })
    }

    /// The bytes of a range, in memory of the pool.
    async fn read_range(&self, column: &DenseColumn, range: &BlockRange) -> Result<Buffer> {
        let too_long = |_| Error::Internal { reason: format!("a range of {} bytes is too long", range.length) };
        let memory = Slots::new(self.pool(), 1, usize::try_from(range.length).map_err(too_long)?);
        let pieces = vec![Piece::new(u64::from(range.fragment) << 32, 0, memory.claim(0)?)];
        let mut read = Read { fragment: range.fragment, offset: range.offset, length: range.length, pieces };
        self.read_remote(column, &mut read, false).await?;
        read.finish();
        memory.freeze()
    }

    /// Copies the rows of a read from the bytes of its range, and checks them. Returns those that do not have their checksums.
    async fn copy_rows(&self, column: &DenseColumn, mut read: Read, bytes: Buffer) -> Result<Vec<Read>> {
        let addresses: Vec<u64> = read.pieces.iter().map(|piece| piece.address).collect();
        let checksums = self.checksums(column, &addresses).await?;
        expect(slice::from_mut(&mut read), checksums);
        let is_short = addresses.len() * column.row_bytes <= COPY_BYTES_MAX;
        let stats = self.stats().clone();
        let work = move || {
            for piece in &mut read.pieces {
                let start = piece.at as usize;
                let row = bytes.get(start..start + piece.slot.len());
                let row = row.ok_or_else(|| Error::Internal { reason: "a row lies outside its range".into() })?;
                piece.slot.copy_from_slice(row);
            }
            let suspects = read.take_suspects(&stats);
            read.finish();
            Ok(suspects)
        };
        if is_short { work() } else { self.on_local_thread(work).await }
    }
}

impl BlockRange {
    /// Where the row at an address begins in the range; `None` when it is not in it.
    fn place(&self, column: &DenseColumn, address: u64) -> Option<u64> {
        let (offset, _) = column.file(self.fragment)?.locate(address & 0xFFFF_FFFF)?;
        let at = offset.checked_sub(self.offset)?;
        (self.fragment == (address >> 32) as u32 && at < self.length).then_some(at)
    }
}

/// The ranges in which the rows at ascending addresses lie.
fn ranges(name: &str, column: &DenseColumn, addresses: &[u64]) -> Result<Vec<BlockRange>> {
    let row_bytes = column.row_bytes as u64;
    let mut ranges: Vec<BlockRange> = Vec::new();
    for address in addresses {
        let fragment = (address >> 32) as u32;
        let located = column.file(fragment).and_then(|file| file.locate(address & 0xFFFF_FFFF));
        let unknown = || Error::UnknownRow { address: *address, column: name.to_string() };
        let (offset, _) = located.ok_or_else(unknown)?;
        if let Some(range) = ranges.last_mut().filter(|range| range.fragment == fragment)
            && let Some(gap) = offset.checked_sub(range.offset + range.length)
            && let Some(length) = REMOTE.joined(range.length, range.num_rows, gap, row_bytes)
        {
            range.length = length;
            range.num_rows += 1;
            continue;
        }
        ranges.push(BlockRange { fragment, offset, length: row_bytes, num_rows: 1 });
    }
    Ok(ranges)
}
