//! Rows of a delay line that are in memory before they are due.
//!
//! ```text
//! super-stride begins ──► arrival: blocks of all lanes are read ──► groups of rows that are due at the same time
//! unit ──positions──► ordinals ──groups──► rows, copied into the slots of their parts
//! ```
//!
//! A block is read once, as a whole, when the super-stride begins that opens it. Its rows are due in that super-stride
//! and in the following ones. The rows of an arrival that are due at the same time share memory, which is released when
//! the last of these rows is taken. If there is no memory for a group, its rows are read one by one when they are due.
//!
//! Large dense rows of local files stay in the page cache: when a super-stride begins, the system is asked to read its
//! blocks, and rows are copied from there to their batch when they are due, which saves a copy and the memory. For small
//! rows, a system call for each of them takes longer than another copy, so their blocks are read like those of an object
//! store.

mod due;
mod groups;
mod kept;
mod memory;
mod taken;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use stoker_batch::Quota;
use stoker_chunks::{BlockReads, ChunkScan, LocalReads};
use stoker_order::{BlockPiece, DelayLine, EpochOrder, StreamOrder};
use stoker_types::Slice;
use tokio::sync::watch;

use crate::abort_on_drop::AbortOnDrop;
use crate::blocks::lanes_in_common;
use crate::resident::kept::KeptRows;
use crate::resident::memory::AHEAD_BYTES;
pub(crate) use crate::resident::memory::{ResidentMemory, ResidentStreams};
pub(crate) use crate::resident::taken::TakenRows;
use crate::source::SourcePlan;
use crate::{Error, Result, StreamPlan};

/// The bytes that a row takes at least: its address, and where it is.
const MIN_ROW_BYTES: u64 = 16;

/// The bytes of a row's dense columns from which on local files keep them in the page cache.
const PAGED_BYTES_MIN: u64 = 32 << 10;

/// The rows of a slice that are in memory, or are being read, before they are due.
pub(crate) struct ResidentRows {
    shared: Arc<Shared>,
    memory: Arc<ResidentMemory>,
    /// The arrivals that are being read, or that no unit has waited for, oldest first.
    arrivals: VecDeque<Arc<Arrival>>,
    /// The pieces of blocks that were opened before the slice begins, by the super-stride in which they are read.
    pending: BTreeMap<u64, Vec<BlockPiece>>,
    /// The super-stride of the next arrival.
    next: u64,
    /// The number of super-strides that the slice reaches.
    end: u64,
    /// The number of bytes that all streams of the process together read ahead.
    ahead_bytes: u64,
    /// The number of rows that the next arrival has, about: those of the last one, without rows of older blocks.
    next_rows: u64,
}

/// What all tasks of a stream share.
pub(crate) struct Shared {
    plan: StreamPlan,
    scan: ChunkScan,
    order: StreamOrder,
    epoch_order: EpochOrder,
    line: DelayLine,
    rows_per_block: u64,
    slice: Slice,
    /// The positions whose rows are kept.
    positions: Range<u64>,
    /// The lanes with rows of this rank.
    lanes: Vec<u64>,
    /// Whether all rows of these lanes are this rank's.
    owns_lanes: bool,
    blocks: Option<BlockReads>,
    /// Whether dense columns are in memory of the stream. Otherwise they are in the page cache, from which rows are read
    /// when they are due.
    keeps_dense: bool,
    /// The bytes of the stream's memory for each row.
    kept_row_bytes: u64,
    quota: Quota,
    kept: Mutex<KeptRows>,
}

/// The blocks that are read when a super-stride begins.
pub(crate) struct Arrival {
    number: u64,
    num_bytes: u64,
    is_read: watch::Receiver<bool>,
    failed: Arc<Mutex<Option<Error>>>,
    _task: AbortOnDrop<()>,
}

impl ResidentRows {
    /// Keeps the rows of a slice whose positions are in `positions`. Returns `None` if the order is no delay line.
    pub fn new(
        (plan, scan, order): (&StreamPlan, &ChunkScan, &StreamOrder),
        slice: Slice,
        positions: Range<u64>,
        blocks: Option<BlockReads>,
        memory: &Arc<ResidentMemory>,
    ) -> Option<Self> {
        let (epoch_order, line) = order.delay_line()?;
        let [source] = plan.inner.spec.sources.as_slice() else { return None };
        let num_lanes = u64::from(source.order.num_lanes);
        let (num_groups, residue) = lanes_in_common(&slice, num_lanes);
        let first = line.super_stride(positions.start).number;
        let end = if positions.is_empty() { first } else { line.super_stride(positions.end - 1).number + 1 };
        let keeps_dense = blocks.is_some()
            || scan.local_reads() == LocalReads::Direct
            || plan.inner.dense_row_bytes() < PAGED_BYTES_MIN
            || !plan.inner.sources.iter().all(SourcePlan::dense_is_local);
        let kept_row_bytes = match keeps_dense {
            true => plan.row_bytes(),
            false => plan.row_bytes().saturating_sub(plan.inner.dense_row_bytes()).max(MIN_ROW_BYTES),
        };
        let shared = Shared {
            plan: plan.clone(),
            scan: scan.clone(),
            order: order.clone(),
            epoch_order: epoch_order.clone(),
            line: line.clone(),
            rows_per_block: source.order.rows_per_block,
            slice,
            positions,
            lanes: (0..num_lanes).filter(|lane| lane % num_groups == residue).collect(),
            owns_lanes: num_groups == u64::from(slice.topology.world_size),
            blocks,
            keeps_dense,
            kept_row_bytes,
            quota: memory.quota(),
            kept: Mutex::default(),
        };
        let pending = shared.pending(first);
        let shared = Arc::new(shared);
        Some(Self {
            shared,
            memory: memory.clone(),
            arrivals: VecDeque::new(),
            pending,
            next: first,
            end,
            ahead_bytes: AHEAD_BYTES,
            next_rows: 0,
        })
    }

    /// Starts to read what the unit with these positions needs, and what is read ahead. Returns the arrivals that the
    /// unit must wait for.
    pub fn begin(&mut self, unit: &Range<u64>) -> (Arc<Shared>, Vec<Arc<Arrival>>) {
        let number = |position| self.shared.line.super_stride(position).number;
        let (first, last) = (number(unit.start), number(unit.end.saturating_sub(1).max(unit.start)));
        while self.next <= last && self.next < self.end {
            self.read_next();
        }
        self.arrivals.retain(|arrival| arrival.number >= first || !arrival.is_done());
        let needed = self.arrivals.iter().take_while(|arrival| arrival.number <= last).cloned().collect();
        let mut ahead: u64 =
            self.arrivals.iter().filter(|arrival| arrival.number > last).map(|arrival| arrival.num_bytes).sum();
        // The first arrival beyond the limit is not read, and none for which there is no memory yet.
        let (row_bytes, ahead_max) = (self.shared.plan.row_bytes(), self.memory.share_of(self.ahead_bytes));
        while (ahead == 0 || ahead.saturating_add(self.next_rows.saturating_mul(row_bytes)) <= ahead_max)
            && self.shared.has_room(self.next_rows)
            && self.next < self.end
        {
            ahead += self.read_next().max(1);
        }
        if self.next == self.end {
            self.shared.quota.retire();
        }
        (self.shared.clone(), needed)
    }

    /// Sets how many bytes are read ahead of the super-strides that are delivered.
    pub fn read_ahead(&mut self, bytes: u64) {
        self.ahead_bytes = bytes;
    }

    /// Reserves memory for the next arrival, as far as there is some, and starts to read it. Returns its size in bytes.
    fn read_next(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        let pending = self.pending.remove(&number).unwrap_or_default();
        let runs = self.shared.runs(number, pending);
        let num_rows: u64 = runs.iter().map(|run| run.ordinals.end - run.ordinals.start).sum();
        let num_bytes = num_rows.saturating_mul(self.shared.plan.row_bytes());
        self.next_rows = num_rows.min(self.shared.rows_opened());
        let reserved = self.shared.reserve(number, runs);
        let (sender, is_read) = watch::channel(false);
        let failed: Arc<Mutex<Option<Error>>> = Arc::default();
        let (shared, outcome) = (self.shared.clone(), failed.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = shared.read(reserved).await {
                *outcome.lock() = Some(error);
            }
            sender.send_replace(true);
        });
        self.arrivals.push_back(Arc::new(Arrival { number, num_bytes, is_read, failed, _task: AbortOnDrop(task) }));
        num_bytes
    }
}

impl Arrival {
    fn is_done(&self) -> bool {
        *self.is_read.borrow()
    }

    /// Waits until the blocks are read.
    ///
    /// # Errors
    /// The error of reading them, once.
    async fn wait(&self) -> Result<()> {
        let stopped = || Error::Internal { reason: "a task that reads blocks stopped early".into() };
        self.is_read.clone().wait_for(|is_read| *is_read).await.map_err(|_| stopped())?;
        match self.failed.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
