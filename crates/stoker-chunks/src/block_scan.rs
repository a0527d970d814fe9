//! Gathers rows of blocks that are read as a whole: for other streams of the process, or for a cache.

use std::slice;
use std::sync::Arc;

use arrow_buffer::Buffer;
use futures::future::{try_join, try_join_all, try_join3};
use stoker_batch::SlotMut;
use stoker_lake::DenseColumn;
use stoker_types::to_usize;

use crate::block_range::{BlockRange, BlockRequest, file, key, runs, wanted_ranges};
use crate::coalesce::Read;
use crate::runs::RowRun;
use crate::shared_reads::Membership;
use crate::verify::{addresses, expect};
use crate::{BadRow, ChunkCache, ChunkScan, Error, Result};

/// A column of a table that is read in blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockColumn<'a> {
    /// The index of the source in the stream.
    pub source: usize,
    /// The index of the table in the source.
    pub table: usize,
    /// The index of the column in the stream.
    pub output: usize,
    /// The column's name.
    pub name: &'a str,
    /// The page table of the column.
    pub column: &'a Arc<DenseColumn>,
}

/// Neighbouring rows that streams read as a whole, with those of them that one stream wants.
#[derive(Debug)]
pub struct Block {
    /// The block's number in its source.
    pub number: u64,
    /// The number of rows in the block, wanted or not.
    pub num_rows: u64,
    /// The wanted rows, in runs as for [`ChunkScan::gather`]: the address of the first row, and slots for rows at
    /// consecutive addresses.
    pub wanted: Vec<(u64, SlotMut)>,
}

/// Rows of at most this many bytes are copied and verified by the calling task; more rows by a thread for long work.
const COPIED_AT_ONCE_MAX: usize = 256 << 10;

/// How blocks of object stores are read.
#[derive(Clone, Debug)]
pub enum BlockReads {
    /// Reads each block once for all streams of a group, and for the cache if there is one. Rows of blocks that do not
    /// fit the group's memory are read alone.
    ForGroup(Arc<Membership>),
    /// Reads blocks for the cache, as far as it has space. Other rows are read alone.
    ForCache,
    /// Reads no blocks: rows whose blocks are in the cache come from there, others are read alone, because rows arrive
    /// soonest so.
    IfCached,
}

/// The sources of the rows of blocks.
#[derive(Debug, Default)]
struct Sorted {
    /// Ranges that are read from the cache.
    kept: Vec<BlockRequest>,
    /// Ranges that are read from the store as a whole, for the cache.
    absent: Vec<BlockRequest>,
    /// Rows that are read from the store alone.
    alone: Vec<RowRun>,
}

impl ChunkScan {
    /// Fills slots as [`ChunkScan::gather`] does, with rows in object stores that lie in blocks. `addresses` returns
    /// the addresses of all rows of a block that the table supplies, ascending, with as many duplicates as the block
    /// has.
    ///
    /// # Errors
    /// As for [`ChunkScan::gather`], and those of `addresses`.
    pub async fn gather_blocks<E: From<Error>, F: Future<Output = Result<Vec<u64>, E>>>(
        &self,
        reads: &BlockReads,
        column: BlockColumn<'_>,
        blocks: Vec<Block>,
        addresses: impl Fn(u64) -> F,
    ) -> Result<Vec<BadRow>, E> {
        let room = match reads {
            BlockReads::ForGroup(group) => return self.gather_shared(group, column, blocks, addresses).await,
            BlockReads::ForCache => self.cache().map_or(0, ChunkCache::room),
            BlockReads::IfCached => 0,
        };
        self.gather_for_cache(column, blocks, addresses, room).await
    }

    /// Gathers rows of blocks. Ranges in the cache are read from there, and up to `room` bytes of other ranges are read
    /// as a whole for the cache; all other rows are read alone.
    pub(crate) async fn gather_for_cache<E: From<Error>, F: Future<Output = Result<Vec<u64>, E>>>(
        &self,
        column: BlockColumn<'_>,
        blocks: Vec<Block>,
        addresses: impl Fn(u64) -> F,
        room: u64,
    ) -> Result<Vec<BadRow>, E> {
        let (mut whole, mut alone) = (Vec::new(), Vec::new());
        for block in blocks {
            let addresses = addresses(block.number).await?;
            alone.extend(wanted_ranges(column, addresses, block.wanted, &mut whole)?);
        }
        let BlockColumn { name, column, .. } = column;
        let gathered = self.gather_cached(name, column, whole, room);
        let (mut bad, more) = try_join(gathered, self.gather(name, column, alone)).await?;
        bad.extend(more);
        Ok(bad)
    }

    /// Gathers rows of ranges, as [`ChunkScan::gather_for_cache`] does.
    async fn gather_cached(
        &self,
        name: &str,
        column: &Arc<DenseColumn>,
        ranges: Vec<BlockRequest>,
        room: u64,
    ) -> Result<Vec<BadRow>> {
        let sorted = self.sort_out(column, ranges, room).await?;
        let kept = sorted.kept.into_iter().map(|(range, rows)| self.take_kept(name, column, range, rows));
        let absent = runs(sorted.absent).into_iter().map(|run| self.keep(name, column, run));
        let alone = self.gather(name, column, sorted.alone);
        let (kept, absent, alone) = try_join3(try_join_all(kept), try_join_all(absent), alone).await?;
        Ok(kept.into_iter().chain(absent).flatten().chain(alone).collect())
    }

    /// Sorts ranges by where their rows are read: in the cache, from the store for the cache (up to `room` bytes), or
    /// alone.
    async fn sort_out(&self, column: &Arc<DenseColumn>, ranges: Vec<BlockRequest>, mut room: u64) -> Result<Sorted> {
        let mut sorted = Sorted::default();
        let Some(cache) = self.cache().cloned() else {
            sorted.alone.extend(ranges.into_iter().flat_map(|(_, rows)| rows));
            return Ok(sorted);
        };
        let keys = ranges.iter().map(|(range, _)| range.key(column)).collect::<Result<Vec<_>>>()?;
        let look = {
            let cache = cache.clone();
            move || Ok(keys.iter().map(|key| cache.has(key)).collect())
        };
        let are_kept: Vec<bool> = self.on_local_thread(look).await?;
        for ((range, rows), is_kept) in ranges.into_iter().zip(are_kept) {
            if is_kept {
                sorted.kept.push((range, rows));
                continue;
            }
            self.stats().add_cache_miss(range.length);
            if let Some(left) = room.checked_sub(range.length) {
                room = left;
                sorted.absent.push((range, rows));
            } else {
                sorted.alone.extend(rows);
            }
        }
        if !sorted.alone.is_empty() {
            cache.refused();
        }
        Ok(sorted)
    }

    /// Copies rows out of a range that is in the cache. Reads the rows alone if the range was removed meanwhile.
    async fn take_kept(
        &self,
        name: &str,
        column: &Arc<DenseColumn>,
        range: BlockRange,
        rows: Vec<RowRun>,
    ) -> Result<Vec<BadRow>> {
        let Some(cache) = self.cache() else { return self.gather(name, column, rows).await };
        let _memory = cache.enter(range.length).await?;
        match self.kept_range(range.key(column)?, range.num_bytes()?).await? {
            Some(bytes) => self.copy_rows(name, column, range.read(name, column, rows)?, bytes).await,
            None => self.gather(name, column, rows).await,
        }
    }

    /// Reads neighbouring ranges with one GET, hands them to the cache and copies rows out of them.
    async fn keep(&self, name: &str, column: &Arc<DenseColumn>, run: Vec<BlockRequest>) -> Result<Vec<BadRow>> {
        let (Some(cache), Some((first, _)), Some((last, _))) = (self.cache(), run.first(), run.last()) else {
            return Ok(Vec::new());
        };
        let (fragment, start, end) = (first.fragment, first.offset, last.offset + last.length);
        let _memory = cache.enter(end - start).await?;
        let bytes = self.read_store(&file(column, fragment)?.reader, start..end).await?;
        let (mut chunks, mut copies) = (Vec::with_capacity(run.len()), Vec::with_capacity(run.len()));
        for (range, rows) in run {
            let bytes = bytes.slice_with_length(to_usize(range.offset - start), range.num_bytes()?);
            chunks.push((range.key(column)?, bytes.clone()));
            copies.push(self.copy_rows(name, column, range.read(name, column, rows)?, bytes));
        }
        drop(bytes);
        cache.put(chunks, end - start);
        Ok(try_join_all(copies).await?.into_iter().flatten().collect())
    }

    /// Returns the bytes of a range for a group: from the cache, or from the store, in which case the cache gets them
    /// too.
    pub(crate) async fn read_shared(&self, column: &Arc<DenseColumn>, range: &BlockRange) -> Result<Buffer> {
        self.read_kept(&file(column, range.fragment)?.reader, range.offset..range.offset + range.length).await
    }

    /// Copies the rows of a read from the bytes of its range, and verifies them.
    pub(crate) async fn copy_rows(
        &self,
        name: &str,
        column: &Arc<DenseColumn>,
        mut read: Read,
        bytes: Buffer,
    ) -> Result<Vec<BadRow>> {
        let addresses = addresses(slice::from_ref(&read));
        let checksums = self.checksums(column, &addresses).await?;
        expect(slice::from_mut(&mut read), checksums)?;
        let (fragment, offset, length) = (read.fragment, read.offset, read.length);
        let is_short = addresses.len() * column.row_bytes <= COPIED_AT_ONCE_MAX;
        let stats = self.stats().clone();
        let work = move || {
            for piece in &mut read.pieces {
                let start = to_usize(piece.at);
                let rows = bytes.get(start..).and_then(|bytes| bytes.get(..piece.slot.len()));
                let rows = rows.ok_or_else(|| Error::Internal { reason: "a row lies outside its range".into() })?;
                piece.slot.copy_from_slice(rows);
            }
            drop(bytes);
            let suspects = read.take_suspects(&stats)?;
            read.finish();
            Ok(suspects)
        };
        let suspects = if is_short { work()? } else { self.on_local_thread(work).await? };
        let num_suspects = suspects.len();
        let bad = self.read_again(name, column, suspects).await?;
        if bad.len() < num_suspects {
            // The bytes were damaged on their way from the store, and the cache may have got them.
            self.forget_range(key(column, fragment, offset, length)?).await?;
        }
        Ok(bad)
    }
}
