//! Blocks of rows that several streams of a process want, and that are read once for all of them.
//!
//! ```text
//! streams of ranks that share blocks ──► block: read by the first, ──► dropped when all its rows were taken,
//!                                        copied by each                or evicted to free memory
//! ```
//!
//! No stream waits for the consumer of another. Blocks that do not fit any more, because some streams lag behind, are
//! evicted, the oldest first. A stream that still wants rows of an evicted block reads those rows alone.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use stoker_batch::SharedMemory;
use stoker_types::Digest;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::deadline::{Deadline, Until};
use crate::members::{LINGER, Members};
use crate::shared_scan::BlockBytes;

/// The maximum number of evicted blocks that are remembered. Late streams do not read such a block as a whole, only the
/// rows that they want.
const GIVEN_UP_MAX: usize = 16 << 10;

/// Memory for blocks that several streams want. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedReads {
    state: Arc<Mutex<State>>,
    /// Until when streams share blocks. It is read for each part of a batch.
    wanted: Arc<Deadline>,
    /// The number of open streams that may share blocks.
    num_here: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    /// The open streams, by the blocks that they share, in any epochs.
    groups: HashMap<Ranks, Members>,
    /// The number of open streams in each epoch.
    epochs: HashMap<Group, usize>,
    blocks: HashMap<BlockKey, HeldBlock>,
    /// Blocks with their serial numbers, the oldest first. Some of them were dropped already.
    ages: VecDeque<(BlockKey, u64)>,
    next_serial: u64,
    bytes: u64,
    bytes_max: u64,
    given_up: HashSet<BlockKey>,
    given_up_ages: VecDeque<BlockKey>,
}

/// A group of streams that share blocks: ranks of one epoch of one stream whose rows are in the same blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The stream.
    pub stream: Digest,
    /// The epoch.
    pub epoch: u64,
    /// The number of the group among those of the epoch.
    pub residue: u64,
}

/// The ranks of a stream that share blocks in every epoch.
type Ranks = (Digest, u64);

/// A column of a block that a group reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub group: Group,
    /// The index of the source in the stream, of the table in the source, and of the column in the stream.
    pub source: usize,
    pub table: usize,
    pub output: usize,
    /// The block's number in its source, and its number of rows.
    pub number: u64,
    pub num_rows: u64,
}

#[derive(Debug)]
struct HeldBlock {
    cell: Cell,
    serial: u64,
    bytes: u64,
    rows_taken: u64,
}

/// The cell of a block; it contains `None` if the block could not be read. Each user of the block holds a clone.
pub(crate) type Cell = Arc<OnceCell<Option<BlockBytes>>>;

/// The membership of a stream in a group; dropping it leaves the group.
#[derive(Debug)]
pub struct Membership {
    reads: SharedReads,
    group: Group,
    rank: u32,
}

impl SharedReads {
    /// Joins a group as one of `num_ranks` ranks that want rows of the same blocks, in this process or elsewhere.
    pub fn join(&self, group: Group, rank: u32, num_ranks: u64) -> Membership {
        let mut state = self.state.lock();
        state.purge();
        state.groups.entry(group.ranks()).or_default().enter(rank, num_ranks);
        state.enter_epoch(&group);
        self.wanted.set(state.wanted_until());
        self.num_here.fetch_add(1, Ordering::Release);
        drop(state);
        Membership { reads: self.clone(), group, rank }
    }

    /// The maximum size of all blocks in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.state.lock().bytes_max
    }

    /// The current size of all blocks in bytes.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Returns the cell of a block of about `bytes` bytes, which its first user fills. `None` for a block that was
    /// evicted, or that does not fit now.
    pub(crate) fn enter(&self, key: &BlockKey, bytes: u64) -> Option<Cell> {
        let mut state = self.state.lock();
        if let Some(block) = state.blocks.get(key) {
            return Some(block.cell.clone());
        }
        // No block is evicted for one that is larger than all memory.
        if state.given_up.contains(key) || bytes > state.bytes_max || !state.make_room(bytes) {
            return None;
        }
        let (cell, serial) = (Cell::default(), state.next_serial);
        state.next_serial += 1;
        state.bytes += bytes;
        state.ages.push_back((key.clone(), serial));
        state.blocks.insert(key.clone(), HeldBlock { cell: cell.clone(), serial, bytes, rows_taken: 0 });
        Some(cell)
    }

    /// Records the exact size of a block.
    pub(crate) fn filled(&self, key: &BlockKey, bytes: u64) {
        let mut state = self.state.lock();
        let Some(block) = state.blocks.get_mut(key) else { return };
        let before = std::mem::replace(&mut block.bytes, bytes);
        state.bytes = state.bytes - before + bytes;
        state.make_room(0);
    }

    /// Records that a block could not be read.
    pub(crate) fn failed(&self, key: &BlockKey) {
        let mut state = self.state.lock();
        state.remove(key);
        state.give_up(key.clone());
    }

    /// Records that rows of a block were taken. The block is dropped after its last row.
    pub(crate) fn taken(&self, key: &BlockKey, num_rows: u64) {
        let mut state = self.state.lock();
        let Some(block) = state.blocks.get_mut(key) else { return };
        block.rows_taken += num_rows;
        let num_rows = block.cell.get().and_then(Option::as_ref).map(|bytes| bytes.num_rows);
        if num_rows.is_some_and(|num_rows| block.rows_taken >= num_rows) {
            state.remove(key);
        }
    }
}

impl SharedMemory for SharedReads {
    fn are_wanted(&self) -> bool {
        self.wanted.is_ahead()
    }

    fn are_here(&self) -> bool {
        self.num_here.load(Ordering::Acquire) > 0
    }

    /// Evicts blocks beyond `bytes_max`.
    fn resize(&self, bytes_max: u64) {
        let mut state = self.state.lock();
        state.bytes_max = bytes_max;
        state.make_room(0);
    }
}

impl State {
    /// Adds a stream of an epoch. If it is the only one there, it may belong to another pass over the epoch, such as a
    /// restarted job. Then blocks that were evicted before may be read again.
    fn enter_epoch(&mut self, group: &Group) {
        let open = self.epochs.entry(group.clone()).or_default();
        *open += 1;
        if *open == 1 {
            self.given_up.retain(|key| key.group != *group);
            self.given_up_ages.retain(|key| key.group != *group);
        }
    }

    fn leave_epoch(&mut self, group: &Group) {
        if let Some(open) = self.epochs.get_mut(group) {
            *open -= 1;
            if *open == 0 {
                self.epochs.remove(group);
            }
        }
    }

    /// Returns until when any group shares blocks if no stream begins or ends.
    fn wanted_until(&self) -> Option<Until> {
        self.groups.values().filter_map(Members::several_until).max()
    }

    /// Evicts the oldest blocks that are not in use until `bytes` more bytes fit; returns `false` if they do not fit.
    fn make_room(&mut self, bytes: u64) -> bool {
        let mut used = Vec::new();
        while self.bytes.saturating_add(bytes) > self.bytes_max
            && let Some((key, serial)) = self.ages.pop_front()
        {
            match self.blocks.get(&key).filter(|block| block.serial == serial) {
                Some(block) if Arc::strong_count(&block.cell) > 1 => used.push((key, serial)),
                Some(_) => {
                    self.remove(&key);
                    self.give_up(key);
                }
                // The block was dropped before.
                None => {}
            }
        }
        used.into_iter().rev().for_each(|block| self.ages.push_front(block));
        // Blocks that were dropped otherwise have left their keys in `ages`.
        if self.ages.len() > 2 * self.blocks.len() + GIVEN_UP_MAX {
            let blocks = &self.blocks;
            self.ages.retain(|(key, serial)| blocks.get(key).is_some_and(|block| block.serial == *serial));
        }
        self.bytes.saturating_add(bytes) <= self.bytes_max
    }

    fn give_up(&mut self, key: BlockKey) {
        if self.given_up.insert(key.clone()) {
            self.given_up_ages.push_back(key);
        }
        if self.given_up_ages.len() > GIVEN_UP_MAX
            && let Some(oldest) = self.given_up_ages.pop_front()
        {
            self.given_up.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &BlockKey) {
        if let Some(block) = self.blocks.remove(key) {
            self.bytes -= block.bytes;
        }
    }

    /// Removes the groups whose streams ended more than 10 s ago, and their blocks.
    fn purge(&mut self) {
        let is_gone = |members: &Members| members.are_none() && !members.are_several();
        let gone: HashSet<Ranks> =
            self.groups.extract_if(|_, members| is_gone(members)).map(|(ranks, _)| ranks).collect();
        if gone.is_empty() {
            return;
        }
        let stays = |key: &BlockKey| !gone.contains(&key.group.ranks());
        let bytes = &mut self.bytes;
        self.blocks.retain(|key, block| {
            *bytes -= if stays(key) { 0 } else { block.bytes };
            stays(key)
        });
        self.ages.retain(|(key, _)| stays(key));
        self.given_up.retain(stays);
        self.given_up_ages.retain(stays);
    }
}

impl Group {
    fn ranks(&self) -> Ranks {
        (self.stream, self.residue)
    }
}

impl Membership {
    /// Returns whether enough ranks of the group are in this process, or were within the last 10 s, that blocks should
    /// be read as a whole.
    pub fn is_shared(&self) -> bool {
        self.reads.state.lock().groups.get(&self.group.ranks()).is_some_and(Members::are_several)
    }

    pub(crate) fn reads(&self) -> &SharedReads {
        &self.reads
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.reads.state.lock();
        self.reads.num_here.fetch_sub(1, Ordering::Release);
        state.leave_epoch(&self.group);
        let Some(members) = state.groups.get_mut(&self.group.ranks()) else { return };
        members.leave(self.rank);
        let is_last = members.are_none();
        self.reads.wanted.set(state.wanted_until());
        state.purge();
        drop(state);
        // The blocks of the group are dropped after 10 s, even if no other stream joins or leaves.
        if let (true, Ok(runtime)) = (is_last, Handle::try_current()) {
            let reads = Arc::downgrade(&self.reads.state);
            runtime.spawn(async move {
                tokio::time::sleep(LINGER).await;
                if let Some(state) = reads.upgrade() {
                    state.lock().purge();
                }
            });
        }
    }
}
