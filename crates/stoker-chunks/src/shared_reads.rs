//! Blocks of rows that several streams of a process want: read once for all of them.
//!
//! ```text
//! streams of ranks that share blocks ──► block: read by the first, copied by each ──► dropped when all its rows were taken
//! ```
//!
//! Nobody waits for the consumer of another stream: a block that does not fit any more, because others lag behind, is given up
//! in the order of age, and whoever still wants rows of it reads those rows for itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stoker_types::Digest;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::shared_scan::BlockBytes;

/// Blocks that were given up are remembered, so many at most: each is read again by its latecomers only as far as they want it.
const GIVEN_UP_MAX: usize = 16 << 10;

/// So long after the last stream, the next one of the same ranks finds their blocks.
const LINGER: Duration = Duration::from_secs(10);

/// Memory for blocks that several streams want. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedReads {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Open streams by what they share, whatever their epochs.
    groups: HashMap<Ranks, Members>,
    blocks: HashMap<BlockKey, HeldBlock>,
    /// Keys of blocks, the oldest first; some were dropped already.
    ages: VecDeque<BlockKey>,
    bytes: u64,
    bytes_max: u64,
    given_up: HashSet<BlockKey>,
    given_up_ages: VecDeque<BlockKey>,
}

/// Streams that share blocks: ranks of one epoch of one stream whose rows lie in the same blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The stream.
    pub stream: Digest,
    /// The epoch.
    pub epoch: u64,
    /// Which of several groups of ranks.
    pub residue: u64,
}

/// Ranks of a stream that share blocks in every epoch.
type Ranks = (Digest, u64);

#[derive(Debug, Default)]
struct Members {
    open: usize,
    /// When there were several last.
    shared: Option<Instant>,
}

impl Members {
    /// Whether there are several, or were a moment ago: ranks go on to the next epoch one after the other.
    fn are_several(&self) -> bool {
        self.open > 1 || self.shared.is_some_and(|shared| shared.elapsed() < LINGER)
    }
}

/// A column of a block that a group reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub group: Group,
    /// The source of the stream, the table of the source, and the column.
    pub source: usize,
    pub table: usize,
    pub column: Arc<str>,
    /// The block's number in its source.
    pub number: u64,
}

#[derive(Debug)]
struct HeldBlock {
    cell: Arc<OnceCell<BlockBytes>>,
    bytes: u64,
    rows_taken: u64,
}

/// A stream's place in its group; it leaves when this is dropped.
#[derive(Debug)]
pub struct Membership {
    reads: SharedReads,
    group: Group,
}

impl SharedReads {
    /// Joins a group.
    pub fn join(&self, group: Group) -> Membership {
        let mut state = self.state.lock();
        state.purge();
        let members = state.groups.entry(group.ranks()).or_default();
        members.open += 1;
        if members.open > 1 {
            members.shared = Some(Instant::now());
        }
        drop(state);
        Membership { reads: self.clone(), group }
    }

    /// Whether several streams share something.
    pub fn are_wanted(&self) -> bool {
        self.state.lock().groups.values().any(Members::are_several)
    }

    /// Sets how many bytes of blocks are kept. Blocks beyond it are given up.
    pub fn resize(&self, bytes_max: u64) {
        let mut state = self.state.lock();
        state.bytes_max = bytes_max;
        state.make_room(0);
    }

    /// Bytes of blocks that are kept.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// The place of a block of about so many bytes, to be filled by the first who comes. `None` for a block that was given up, or
    /// that does not fit at all.
    pub(crate) fn enter(&self, key: &BlockKey, bytes: u64) -> Option<Arc<OnceCell<BlockBytes>>> {
        let mut state = self.state.lock();
        if let Some(block) = state.blocks.get(key) {
            return Some(block.cell.clone());
        }
        if bytes > state.bytes_max || state.given_up.contains(key) {
            return None;
        }
        state.make_room(bytes);
        let cell = Arc::<OnceCell<BlockBytes>>::default();
        state.bytes += bytes;
        state.ages.push_back(key.clone());
        state.blocks.insert(key.clone(), HeldBlock { cell: cell.clone(), bytes, rows_taken: 0 });
        Some(cell)
    }

    /// Notes that rows of a block were taken; after the last one it is dropped.
    pub(crate) fn taken(&self, key: &BlockKey, num_rows: u64) {
        let mut state = self.state.lock();
        let Some(block) = state.blocks.get_mut(key) else { return };
        block.rows_taken += num_rows;
        if block.cell.get().is_some_and(|bytes| block.rows_taken >= bytes.num_rows) {
            state.remove(key);
        }
    }
}

impl State {
    /// Gives up the oldest blocks until so many bytes fit in.
    fn make_room(&mut self, bytes: u64) {
        while self.bytes + bytes > self.bytes_max
            && let Some(oldest) = self.ages.pop_front()
        {
            if self.remove(&oldest) {
                self.give_up(oldest);
            }
        }
        // Of blocks that were dropped in between, only the keys are left.
        if self.ages.len() > 2 * self.blocks.len() + GIVEN_UP_MAX {
            let blocks = &self.blocks;
            self.ages.retain(|key| blocks.contains_key(key));
        }
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

    /// Drops a block; `false` when it was dropped before.
    fn remove(&mut self, key: &BlockKey) -> bool {
        let Some(block) = self.blocks.remove(key) else { return false };
        self.bytes -= block.bytes;
        true
    }

    /// Forgets the ranks that are gone for long, and what only they wanted.
    fn purge(&mut self) {
        let is_gone = |members: &Members| members.open == 0 && !members.are_several();
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
        self.ages.retain(stays);
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
    /// Whether others are in the group, or were a moment ago.
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
        let Some(members) = state.groups.get_mut(&self.group.ranks()) else { return };
        if members.open > 1 {
            members.shared = Some(Instant::now());
        }
        members.open -= 1;
        let is_last = members.open == 0;
        state.purge();
        drop(state);
        // Blocks of ranks that come no more are dropped even if nobody else comes.
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
