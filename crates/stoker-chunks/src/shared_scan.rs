//! Gathers rows of blocks of which other streams of the process want rows too.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_buffer::Buffer;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use stoker_lake::DenseColumn;

use crate::block_range::{BlockRange, ranges};
use crate::block_scan::{Block, BlockColumn};
use crate::runs::take_until;
use crate::shared_reads::{BlockKey, Membership};
use crate::{BadRow, ChunkScan, Error, Result};

/// The maximum size of the blocks that a stream reads or waits for at the same time, in bytes, and their maximum
/// number. It is always at least one block.
const BYTES_AT_ONCE: u64 = 64 << 20;
const BLOCKS_AT_ONCE: usize = 64;

/// The bytes of a block's rows.
#[derive(Debug)]
pub(crate) struct BlockBytes {
    /// The number of rows in the block, duplicates included.
    pub num_rows: u64,
    ranges: Vec<(BlockRange, Buffer)>,
}

impl ChunkScan {
    /// Gathers rows as [`ChunkScan::gather_blocks`] does, for a group: the first stream that wants rows of a block
    /// looks up its addresses and reads it for all streams of the group. Rows of blocks that do not fit the group's
    /// memory are read alone.
    pub(crate) async fn gather_shared<E: From<Error>, F: Future<Output = Result<Vec<u64>, E>>>(
        &self,
        group: &Membership,
        column: BlockColumn<'_>,
        blocks: Vec<Block>,
        addresses: impl Fn(u64) -> F,
    ) -> Result<Vec<BadRow>, E> {
        let block_bytes = blocks.iter().map(|block| num_bytes(block, column)).max().unwrap_or(0).max(1);
        // A stream uses at most half of the memory, because others read as well.
        let bytes_at_once = BYTES_AT_ONCE.min(group.reads().bytes_max() / 2);
        let at_once = usize::try_from(bytes_at_once / block_bytes).unwrap_or(BLOCKS_AT_ONCE).clamp(1, BLOCKS_AT_ONCE);
        let taken = stream::iter(blocks).map(|block| self.take_shared(group, column, block, &addresses));
        let bad: Vec<Vec<BadRow>> = taken.buffer_unordered(at_once).try_collect().await?;
        Ok(bad.into_iter().flatten().collect())
    }

    /// Copies rows out of a block that is in memory, or reads the block for all streams first.
    async fn take_shared<E: From<Error>, F: Future<Output = Result<Vec<u64>, E>>>(
        &self,
        group: &Membership,
        column: BlockColumn<'_>,
        block: Block,
        addresses: impl Fn(u64) -> F,
    ) -> Result<Vec<BadRow>, E> {
        let BlockColumn { source, table, output, name, column: dense } = column;
        let bytes = num_bytes(&block, column);
        let Block { number, num_rows, .. } = block;
        let key = BlockKey { group: group.group().clone(), source, table, output, number, num_rows };
        let Some(cell) = group.reads().enter(&key, bytes) else {
            return self.take_alone(column, block, addresses).await;
        };
        let mut failed = None;
        let read = async || {
            let read = async {
                let addresses = addresses(number).await?;
                Ok::<_, E>(self.read_block(name, dense, addresses).await?)
            };
            match read.await {
                Ok(bytes) => {
                    group.reads().filled(&key, bytes.ranges.iter().map(|(range, _)| range.length).sum());
                    Some(bytes)
                }
                Err(error) => {
                    group.reads().failed(&key);
                    failed = Some(error);
                    None
                }
            }
        };
        let Some(bytes) = cell.get_or_init(read).await else {
            // Streams that waited for a failed read do not wait for each other's attempts.
            return match failed {
                Some(error) => Err(error),
                None => self.take_alone(column, block, addresses).await,
            };
        };
        let mut wanted = block.wanted;
        let num_wanted = wanted.iter().map(|(_, slot)| slot.num_rows() as u64).sum();
        wanted.sort_unstable_by_key(|(address, _)| *address);
        let mut wanted = VecDeque::from(wanted);
        let mut bad = Vec::new();
        for (range, bytes) in &bytes.ranges {
            let mut rows = Vec::new();
            take_until(&mut wanted, range.last, &mut rows)?;
            if rows.is_empty() {
                continue;
            }
            bad.extend(self.copy_rows(name, dense, range.read(name, dense, rows)?, bytes.clone()).await?);
        }
        if let Some((address, _)) = wanted.front() {
            let reason = format!("row address {address:#x} of column {name} is not in its block {number}");
            return Err(Error::Internal { reason }.into());
        }
        group.reads().taken(&key, num_wanted);
        Ok(bad)
    }

    /// Gathers rows of a block that is not read for all: from the cache if the block is there, or alone.
    async fn take_alone<E: From<Error>, F: Future<Output = Result<Vec<u64>, E>>>(
        &self,
        column: BlockColumn<'_>,
        block: Block,
        addresses: impl Fn(u64) -> F,
    ) -> Result<Vec<BadRow>, E> {
        if self.cache().is_none() {
            return Ok(self.gather(column.name, column.column, block.wanted).await?);
        }
        self.gather_for_cache(column, vec![block], addresses, 0).await
    }

    /// Reads the rows at ascending addresses.
    async fn read_block(&self, name: &str, column: &Arc<DenseColumn>, addresses: Vec<u64>) -> Result<BlockBytes> {
        let num_rows = addresses.len() as u64;
        let reads = ranges(name, column, addresses)?.into_iter().map(|range| async {
            let bytes = self.read_shared(column, &range).await?;
            Ok::<_, Error>((range, bytes))
        });
        Ok(BlockBytes { num_rows, ranges: try_join_all(reads).await? })
    }
}

/// Returns the size of a block's rows, without the bytes between them.
fn num_bytes(block: &Block, column: BlockColumn<'_>) -> u64 {
    block.num_rows.saturating_mul(column.column.row_bytes as u64)
}
