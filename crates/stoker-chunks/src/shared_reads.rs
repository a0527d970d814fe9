//! Ranges that several streams of a process want: read once for all of them.
//!
//! ```text
//! streams of ranks that share blocks ──► range: read by the first, copied by each ──► dropped when all its rows were taken
//! ```
//!
//! Nobody waits for the consumer of another stream: a range that does not fit any more, because others lag behind, is given up
//! in the order of age, and whoever still wants rows of it reads those rows for itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arrow_buffer::Buffer;
use parking_lot::Mutex;
use stoker_types::Digest;
use tokio::sync::OnceCell;

/// Ranges that were given up are remembered, so many at most: each is read again by its latecomers only as far as they want it.
const GIVEN_UP_MAX: usize = 16 << 10;

/// Memory for ranges that several streams want. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedReads {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Open streams by what they share.
    groups: HashMap<Group, usize>,
    ranges: HashMap<RangeKey, SharedRange>,
    /// Keys of ranges, the oldest first; some were dropped already.
    ages: VecDeque<RangeKey>,
    bytes: u64,
    bytes_max: u64,
    given_up: HashSet<RangeKey>,
    given_up_ages: VecDeque<RangeKey>,
}

/// Streams that share ranges: ranks of one epoch of one stream whose rows lie in the same blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The stream.
    pub stream: Digest,
    /// The epoch.
    pub epoch: u64,
    /// Which of several groups of ranks.
    pub residue: u64,
}

/// A range of a file that a group reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RangeKey {
    pub group: Group,
    pub place: Arc<str>,
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug)]
struct SharedRange {
    cell: Arc<OnceCell<Buffer>>,
    bytes: u64,
    /// Rows that nobody has taken yet.
    rows_left: u64,
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
        *self.state.lock().groups.entry(group.clone()).or_default() += 1;
        Membership { reads: self.clone(), group }
    }

    /// Whether several streams share something.
    pub fn are_wanted(&self) -> bool {
        self.state.lock().groups.values().any(|members| *members > 1)
    }

    /// Sets how many bytes of ranges are kept. Ranges beyond it are given up.
    pub fn resize(&self, bytes_max: u64) {
        let mut state = self.state.lock();
        state.bytes_max = bytes_max;
        state.make_room(0);
    }

    /// Bytes of ranges that are kept.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// The memory of a range of `num_rows` rows, to be filled by the first who comes. `None` for a range that was given up, or that
    /// does not fit at all.
    pub(crate) fn enter(&self, key: &RangeKey, num_rows: u64) -> Option<Arc<OnceCell<Buffer>>> {
        let mut state = self.state.lock();
        if let Some(range) = state.ranges.get(key) {
            return Some(range.cell.clone());
        }
        if key.length > state.bytes_max || state.given_up.contains(key) {
            return None;
        }
        state.make_room(key.length);
        let cell = Arc::<OnceCell<Buffer>>::default();
        let range = SharedRange { cell: cell.clone(), bytes: key.length, rows_left: num_rows };
        state.bytes += key.length;
        state.ages.push_back(key.clone());
        state.ranges.insert(key.clone(), range);
        Some(cell)
    }

    /// Notes that rows of a range were taken; after the last one it is dropped.
    pub(crate) fn taken(&self, key: &RangeKey, num_rows: u64) {
        let mut state = self.state.lock();
        let Some(range) = state.ranges.get_mut(key) else { return };
        range.rows_left = range.rows_left.saturating_sub(num_rows);
        if range.rows_left == 0 {
            state.remove(key);
        }
    }
}

impl State {
    /// Gives up the oldest ranges until so many bytes fit in.
    fn make_room(&mut self, bytes: u64) {
        while self.bytes + bytes > self.bytes_max
            && let Some(oldest) = self.ages.pop_front()
        {
            if self.remove(&oldest) {
                self.give_up(oldest);
            }
        }
        // Of ranges that were dropped in between, only the keys are left.
        if self.ages.len() > 2 * self.ranges.len() + GIVEN_UP_MAX {
            let ranges = &self.ranges;
            self.ages.retain(|key| ranges.contains_key(key));
        }
    }

    fn give_up(&mut self, key: RangeKey) {
        if self.given_up.insert(key.clone()) {
            self.given_up_ages.push_back(key);
        }
        if self.given_up_ages.len() > GIVEN_UP_MAX
            && let Some(oldest) = self.given_up_ages.pop_front()
        {
            self.given_up.remove(&oldest);
        }
    }

    /// Drops a range; `false` when it was dropped before.
    fn remove(&mut self, key: &RangeKey) -> bool {
        let Some(range) = self.ranges.remove(key) else { return false };
        self.bytes -= range.bytes;
        true
    }

    /// Drops what only a group that is gone wanted.
    fn forget(&mut self, group: &Group) {
        let bytes = &mut self.bytes;
        self.ranges.retain(|key, range| {
            let stays = key.group != *group;
            *bytes -= if stays { 0 } else { range.bytes };
            stays
        });
        self.ages.retain(|key| key.group != *group);
        self.given_up.retain(|key| key.group != *group);
        self.given_up_ages.retain(|key| key.group != *group);
    }
}

impl Membership {
    /// Whether others are in the group now.
    pub fn is_shared(&self) -> bool {
        self.reads.state.lock().groups.get(&self.group).is_some_and(|members| *members > 1)
    }

    pub(crate) fn reads(&self) -> &SharedReads {
        &self.reads
    }

    /// The key of a range for this group.
    pub(crate) fn key(&self, place: &str, offset: u64, length: u64) -> RangeKey {
        RangeKey { group: self.group.clone(), place: place.into(), offset, length }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.reads.state.lock();
        let Some(members) = state.groups.get_mut(&self.group) else { return };
        *members -= 1;
        if *members == 0 {
            state.groups.remove(&self.group);
            state.forget(&self.group);
        }
    }
}
