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

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_buffer::Buffer;
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use parking_lot::Mutex;
use stoker_batch::{Held, MemoryBudget, Quota, SlotMut, Slots};
use stoker_chunks::{BlockReads, ChunkScan};
use stoker_order::{BlockPiece, DelayLine, EpochOrder, StreamOrder, SuperStride};
use stoker_sql::ResolvedRows;
use stoker_types::{Slice, Stalls, to_usize};
use tokio::sync::watch;
use tokio::task::yield_now;

use crate::depth::Depth;
use crate::found_rows::FoundRows;
use crate::light::read_light;
use crate::planner::AbortOnDrop;
use crate::read::{Damage, DenseRequest, Reader, Rows, add_runs, bad_places, note, pick, read_rows};
use crate::source::ColumnPlan;
use crate::unit_clock::UnitClock;
use crate::{Error, Result, StreamPlan};

/// The approximate size of a group of rows that are due at the same time at least, in bytes. Smaller groups are joined
/// with those that are due next.
const GROUP_BYTES_MIN: u64 = 128 << 10;

/// The bytes of blocks that are read before they are opened: what hides the latency of most object stores.
const AHEAD_BYTES_MIN: u64 = 48 << 20;

/// The same number at most, where the latency is greater.
const AHEAD_BYTES_MAX: u64 = 256 << 20;

/// The number of bytes that a task copies before other tasks get a turn.
const COPIED_AT_ONCE: usize = 1 << 20;

/// The rows of a slice that are in memory, or are being read, before they are due.
pub(crate) struct ResidentRows {
    shared: Arc<Shared>,
    /// The arrivals that are being read, or that no unit has waited for, oldest first.
    arrivals: VecDeque<Arc<Arrival>>,
    /// The pieces of blocks that were opened before the slice begins, by the super-stride in which they are read.
    pending: BTreeMap<u64, Vec<BlockPiece>>,
    /// The super-stride of the next arrival.
    next: u64,
    /// The number of super-strides that the slice reaches.
    end: u64,
    /// The number of bytes that are read ahead.
    ahead_bytes: u64,
}

/// The memory of a stream for resident rows. The stream is another member of the budget with it, so that resident rows
/// never keep a batch from being read.
#[derive(Debug)]
pub(crate) struct ResidentMemory {
    budget: MemoryBudget,
    cap_bytes: AtomicU64,
    quota: OnceLock<Quota>,
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
    quota: Quota,
    /// By block, the rows that are in memory, in ascending order.
    kept: Mutex<HashMap<u64, Vec<Stretch>>>,
}

/// The blocks that are read when a super-stride begins.
pub(crate) struct Arrival {
    number: u64,
    num_bytes: u64,
    is_read: watch::Receiver<bool>,
    failed: Arc<Mutex<Option<Error>>>,
    _task: AbortOnDrop<()>,
}

/// Rows of one arrival that are due at about the same time.
struct DueGroup {
    /// For each dense column, the bytes of its rows.
    dense: Vec<Option<Buffer>>,
    /// For each other column, an array.
    light: Vec<Option<ArrayRef>>,
    /// The row addresses as `[table][row]`.
    addrs: Vec<Vec<u64>>,
    bad: BTreeMap<usize, Damage>,
    /// The blocks that the rows belong to.
    blocks: Vec<u64>,
    /// The number of rows that were not taken.
    left: AtomicUsize,
    _held: Held,
}

/// Neighbouring rows of a block that are neighbours in a group.
struct Stretch {
    ordinals: Range<u64>,
    group: Arc<DueGroup>,
    /// The index in the group of the first row.
    at: usize,
}

/// Neighbouring rows of a block that are to be read and are due in the same super-stride.
struct DueRows {
    due: u64,
    ordinals: Range<u64>,
}

/// Neighbouring rows of a block that are to be read into the same group.
struct GroupRows {
    /// The index of the group in the arrival.
    group: usize,
    ordinals: Range<u64>,
}

/// The memory for a group, and which rows of the arrival are in it.
struct Draft {
    held: Held,
    /// For each row of the group, its index in the arrival.
    rows: Vec<u64>,
    blocks: Vec<u64>,
    slots: Vec<Option<Arc<Slots>>>,
}

/// Where the rows of a unit are.
#[derive(Default)]
struct Located {
    groups: Vec<Arc<DueGroup>>,
    /// For each row, the index of its group and its index in the group. The group of a row that is not in memory is the
    /// one after the last.
    rows: Vec<(usize, usize)>,
    /// The indexes of the rows that are not in memory.
    absent: Vec<usize>,
}

/// The rows of a unit.
pub(crate) struct TakenRows {
    pub rows: Rows,
    pub spans: Stalls,
    /// Whether storage was waited for.
    pub is_late: bool,
}

impl ResidentMemory {
    /// Returns the memory of a stream that may hold `bytes`, and the part of these bytes that is left for batches.
    pub fn divided(budget: &MemoryBudget, bytes: u64) -> (Self, u64) {
        let cap_bytes = AtomicU64::new(resident_bytes(bytes));
        (Self { budget: budget.clone(), cap_bytes, quota: OnceLock::new() }, bytes - resident_bytes(bytes))
    }

    /// Sets the bytes that the stream may hold, before its first resident row is read. Returns the part of these bytes
    /// that is left for batches.
    pub fn begin(&self, bytes: u64) -> u64 {
        self.cap_bytes.store(resident_bytes(bytes), Ordering::Relaxed);
        bytes - resident_bytes(bytes)
    }

    /// Returns how far the stream reads ahead of the super-strides that are delivered.
    pub fn depth(&self) -> Depth {
        Depth::new(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX.min(self.cap_bytes.load(Ordering::Relaxed) / 2))
    }

    /// Returns the bytes that resident rows hold now.
    pub fn held_bytes(&self) -> u64 {
        self.quota.get().map_or(0, Quota::held_bytes)
    }

    /// Joins the budget, unless that was done before.
    fn quota(&self) -> Quota {
        self.quota.get_or_init(|| self.budget.join(self.cap_bytes.load(Ordering::Relaxed))).clone()
    }
}

/// Returns the part of a stream's memory budget that is for resident rows.
fn resident_bytes(bytes: u64) -> u64 {
    bytes / 4 * 3
}

impl ResidentRows {
    /// Keeps the rows of a slice whose positions are in `positions`. Returns `None` if the order is no delay line.
    pub fn new(
        (plan, scan, order): (&StreamPlan, &ChunkScan, &StreamOrder),
        slice: Slice,
        positions: Range<u64>,
        blocks: Option<BlockReads>,
        memory: &ResidentMemory,
    ) -> Option<Self> {
        let (epoch_order, line) = order.delay_line()?;
        let [source] = plan.inner.spec.sources.as_slice() else { return None };
        let num_lanes = u64::from(source.order.num_lanes);
        let world_size = u64::from(slice.topology.world_size);
        let num_groups = greatest_common_divisor(world_size, num_lanes);
        let residue = slice.origin.wrapping_add(u64::from(slice.topology.rank)) % num_groups;
        let first = line.super_stride(positions.start).number;
        let end = if positions.is_empty() { first } else { line.super_stride(positions.end - 1).number + 1 };
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
            owns_lanes: num_groups == world_size,
            blocks,
            quota: memory.quota(),
            kept: Mutex::default(),
        };
        let pending = shared.pending(first);
        let shared = Arc::new(shared);
        Some(Self { shared, arrivals: VecDeque::new(), pending, next: first, end, ahead_bytes: AHEAD_BYTES_MIN })
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
        while ahead < self.ahead_bytes && self.next < self.end {
            ahead += self.read_next();
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

    /// Starts to read the next arrival. Returns its size in bytes.
    fn read_next(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        let pending = self.pending.remove(&number).unwrap_or_default();
        let runs = self.shared.runs(number, pending);
        let num_rows: u64 = runs.iter().map(|run| run.ordinals.end - run.ordinals.start).sum();
        let num_bytes = num_rows.saturating_mul(self.shared.plan.row_bytes());
        let (sender, is_read) = watch::channel(false);
        let failed: Arc<Mutex<Option<Error>>> = Arc::default();
        let (shared, outcome) = (self.shared.clone(), failed.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = shared.read(number, runs).await {
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

impl Shared {
    /// Returns the pieces that were opened before a super-stride, by the super-stride in which each is read.
    fn pending(&self, number: u64) -> BTreeMap<u64, Vec<BlockPiece>> {
        let mut pending: BTreeMap<u64, Vec<BlockPiece>> = BTreeMap::new();
        for lane in &self.lanes {
            for piece in self.line.pending(SuperStride { lane: *lane, number }) {
                let dues = self.line.deliveries(piece.block).filter(|(stride, ordinals)| {
                    stride.number >= number && !overlap(ordinals, &piece.ordinals).is_empty()
                });
                if let Some(due) = dues.map(|(stride, _)| stride.number).min() {
                    pending.entry(due).or_default().push(piece);
                }
            }
        }
        pending
    }

    /// Returns what is read when a super-stride begins, by ascending ordinals.
    fn runs(&self, number: u64, pending: Vec<BlockPiece>) -> Vec<DueRows> {
        let opened = self.lanes.iter().flat_map(|lane| self.line.arrivals(SuperStride { lane: *lane, number }));
        let mut runs = Vec::new();
        for piece in pending.into_iter().chain(opened) {
            for (stride, ordinals) in self.line.deliveries(piece.block) {
                let ordinals = overlap(&ordinals, &piece.ordinals);
                if stride.number < number || ordinals.is_empty() {
                    continue;
                }
                self.add_needed(stride.number, ordinals, &mut runs);
            }
        }
        runs.sort_unstable_by_key(|run| run.ordinals.start);
        runs
    }

    /// Adds those rows of a delivery that this rank wants.
    fn add_needed(&self, due: u64, ordinals: Range<u64>, runs: &mut Vec<DueRows>) {
        let delivered = self.line.positions(due);
        if self.owns_lanes && self.positions.start <= delivered.start && delivered.end <= self.positions.end {
            runs.push(DueRows { due, ordinals });
            return;
        }
        for ordinal in ordinals {
            if !self.is_needed(self.epoch_order.position(ordinal)) {
                continue;
            }
            match runs.last_mut().filter(|run| run.due == due && run.ordinals.end == ordinal) {
                Some(run) => run.ordinals.end += 1,
                None => runs.push(DueRows { due, ordinals: ordinal..ordinal + 1 }),
            }
        }
    }

    fn is_needed(&self, position: u64) -> bool {
        let (rank, world_size) = (self.slice.topology.rank, self.slice.topology.world_size);
        self.positions.contains(&position) && (position - self.slice.origin) % u64::from(world_size) == u64::from(rank)
    }

    /// Returns the rows of a group at most, and the number of super-strides in which they are due at most.
    fn group_size(&self) -> (u64, u64) {
        let rows =
            (self.lanes.len() as u64).saturating_mul(self.rows_per_block.div_ceil(self.line.open_blocks().max(1)));
        let bytes = rows.saturating_mul(self.plan.row_bytes());
        let strides = GROUP_BYTES_MIN.div_ceil(bytes.max(1)).max(1);
        let rows_of_arrival = (self.lanes.len() as u64).saturating_mul(self.rows_per_block);
        (rows.saturating_mul(strides).min(rows_of_arrival).max(1), strides)
    }

    /// Divides the rows of an arrival into groups. All groups have memory of the same size, so that later ones reuse the
    /// memory of earlier ones. Returns the number of rows of each group.
    fn grouped(&self, number: u64, runs: Vec<DueRows>) -> (Vec<GroupRows>, Vec<u64>) {
        let (rows_max, strides) = self.group_size();
        let (mut grouped, mut sizes) = (Vec::with_capacity(runs.len()), Vec::new());
        let mut open: HashMap<u64, usize> = HashMap::new();
        for DueRows { due, mut ordinals } in runs {
            let group = open.entry((due - number) / strides).or_insert(usize::MAX);
            while !ordinals.is_empty() {
                if sizes.get(*group).is_none_or(|rows| *rows >= rows_max) {
                    *group = sizes.len();
                    sizes.push(0);
                }
                let end = ordinals.end.min(ordinals.start + (rows_max - sizes[*group]));
                sizes[*group] += end - ordinals.start;
                grouped.push(GroupRows { group: *group, ordinals: ordinals.start..end });
                ordinals.start = end;
            }
        }
        (grouped, sizes)
    }

    /// Reads the rows of an arrival, as far as there is memory for them.
    async fn read(&self, number: u64, runs: Vec<DueRows>) -> Result<()> {
        let (mut runs, sizes) = self.grouped(number, runs);
        let mut drafts = sizes.into_iter().map(|num_rows| self.draft(num_rows)).collect::<Result<Vec<_>>>()?;
        runs.retain(|run| drafts[run.group].is_some());
        let ordinals: Vec<u64> = runs.iter().flat_map(|run| run.ordinals.clone()).collect();
        if ordinals.is_empty() {
            return Ok(());
        }
        let source = &self.plan.inner.sources[0];
        let found = source.row_set.resolve(&ordinals).await?;
        let (requests, firsts) = self.requests(&runs, &ordinals, &found, &mut drafts)?;
        let clock = UnitClock::start(self.scan.clock());
        let reader = Reader { plan: &self.plan.inner, scan: &self.scan, clock: &clock, blocks: self.blocks.as_ref() };
        let light = read_light(source, &self.scan, &clock, &found);
        let ((light, mut damaged), gathered) = futures::try_join!(light, reader.gather(0, requests))?;
        note(&mut damaged, gathered);
        let bad = bad_places(&found.addrs, &damaged);
        let group = |draft: Draft| Ok::<_, Error>(Arc::new(draft.group(&light, &found, &bad)?));
        let groups = drafts.into_iter().map(|draft| draft.map(group).transpose()).collect::<Result<Vec<_>>>()?;
        let mut kept = self.kept.lock();
        for (GroupRows { group, ordinals }, at) in runs.into_iter().zip(firsts) {
            let Some(group) = &groups[group] else { continue };
            let stretches = kept.entry(ordinals.start / self.rows_per_block).or_default();
            let place = stretches.partition_point(|stretch| stretch.ordinals.start < ordinals.start);
            stretches.insert(place, Stretch { ordinals, group: group.clone(), at });
        }
        Ok(())
    }

    /// Reserves memory for a group. Returns `None` if there is none.
    fn draft(&self, num_rows: u64) -> Result<Option<Draft>> {
        let (rows_max, _) = self.group_size();
        let Some(held) = self.quota.try_reserve_within(rows_max.saturating_mul(self.plan.row_bytes())) else {
            return Ok(None);
        };
        let slots = |column: &ColumnPlan| match column.dense_row_bytes() {
            Some(row_bytes) => {
                Slots::with_capacity(self.scan.pool(), to_usize(num_rows), to_usize(rows_max), row_bytes).map(Some)
            }
            None => Ok(None),
        };
        let slots = self.plan.inner.columns().iter().map(slots).collect::<stoker_batch::Result<_>>()?;
        Ok(Some(Draft { held, rows: Vec::with_capacity(to_usize(num_rows)), blocks: Vec::new(), slots }))
    }

    /// Claims the slots of the rows. Returns the reads of dense columns, and for each run the index in its group of the
    /// first row.
    fn requests(
        &self,
        runs: &[GroupRows],
        ordinals: &[u64],
        found: &ResolvedRows,
        drafts: &mut [Option<Draft>],
    ) -> Result<(Vec<DenseRequest>, Vec<usize>)> {
        let columns = &self.plan.inner.sources[0].columns;
        let mut requests: Vec<DenseRequest> = Vec::new();
        let mut firsts: Vec<usize> = Vec::with_capacity(columns.len());
        for (column, plan) in columns.iter().enumerate() {
            firsts.push(requests.len());
            if let ColumnPlan::Dense { sources, .. } = plan {
                requests.extend((0..sources.len()).map(|supplier| DenseRequest::new(column, supplier)));
            }
        }
        let mut places = Vec::with_capacity(runs.len());
        let mut first = 0;
        for run in runs {
            let rows = first..first + to_usize(run.ordinals.end - run.ordinals.start);
            first = rows.end;
            let Some(draft) = &mut drafts[run.group] else { continue };
            let at = draft.rows.len();
            draft.rows.extend(rows.clone().map(|row| row as u64));
            let block = run.ordinals.start / self.rows_per_block;
            if draft.blocks.last() != Some(&block) {
                draft.blocks.push(block);
            }
            places.push(at);
            for (plan, (slots, first)) in columns.iter().zip(draft.slots.iter().zip(&firsts)) {
                let (ColumnPlan::Dense { sources, .. }, Some(slots)) = (plan, slots) else { continue };
                let tables: Vec<usize> = sources.iter().map(|(table, ..)| *table).collect();
                let (slots, sources) = (slots.claim_rows(at..at + rows.len())?, *first..first + sources.len());
                add_runs(&tables, &found.addrs, Some(ordinals), rows.clone(), slots, &mut requests[sources])?;
            }
        }
        requests.retain(|request| !request.wanted.is_empty());
        Ok((requests, places))
    }

    /// Takes the rows at some positions, once these arrivals are read: dense columns into `claims`, which has for each
    /// dense column the slots of all rows in order.
    pub async fn take(
        self: Arc<Self>,
        arrivals: Vec<Arc<Arrival>>,
        positions: Arc<[u64]>,
        claims: Vec<Vec<SlotMut>>,
    ) -> Result<TakenRows> {
        let clock = UnitClock::start(self.scan.clock());
        let mut is_late = false;
        for arrival in arrivals {
            is_late |= !arrival.is_done();
            clock.read(arrival.wait()).await?;
        }
        let mut ordinals = Vec::with_capacity(positions.len());
        self.epoch_order.ordinals(positions.iter().copied(), &mut ordinals);
        let places = self.find(&ordinals);
        let mut present = Vec::with_capacity(claims.len());
        let mut absent_claims = Vec::with_capacity(claims.len());
        for slots in claims {
            let (mine, others) = divided(slots, &places.absent)?;
            present.push(mine);
            absent_claims.push(others);
        }
        let absent = match places.absent.is_empty() {
            true => None,
            false => {
                let blocks = self.blocks.as_ref();
                let reader = Reader { plan: &self.plan.inner, scan: &self.scan, clock: &clock, blocks };
                let absent = places.absent.iter().map(|row| positions[*row]);
                let found = FoundRows::at(&self.plan.inner, &self.order, absent).await?;
                Some(read_rows(reader, found, absent_claims).await?)
            }
        };
        for (column, slots) in present.into_iter().enumerate() {
            places.copy(column, slots).await?;
        }
        let rows = places.rows(self.plan.inner.columns().len(), self.plan.inner.num_tables(), absent)?;
        self.release(&places);
        Ok(TakenRows { rows, spans: clock.spans(), is_late })
    }

    /// Finds the rows with these ordinals.
    fn find(&self, ordinals: &[u64]) -> Located {
        let mut places = Located { rows: Vec::with_capacity(ordinals.len()), ..Located::default() };
        let mut known: HashMap<*const DueGroup, usize> = HashMap::new();
        let kept = self.kept.lock();
        for (row, ordinal) in ordinals.iter().enumerate() {
            let stretches = kept.get(&(ordinal / self.rows_per_block)).map_or(&[][..], Vec::as_slice);
            let after = stretches.partition_point(|stretch| stretch.ordinals.start <= *ordinal);
            let stretch = after.checked_sub(1).map(|index| &stretches[index]);
            match stretch.filter(|stretch| stretch.ordinals.contains(ordinal)) {
                Some(Stretch { ordinals, group, at }) => {
                    let index = *known.entry(Arc::as_ptr(group)).or_insert_with(|| {
                        places.groups.push(group.clone());
                        places.groups.len() - 1
                    });
                    places.rows.push((index, at + to_usize(ordinal - ordinals.start)));
                }
                None => {
                    places.rows.push((usize::MAX, places.absent.len()));
                    places.absent.push(row);
                }
            }
        }
        let after = places.groups.len();
        places.absent.iter().for_each(|row| places.rows[*row].0 = after);
        places
    }

    /// Releases the groups whose rows were all taken.
    fn release(&self, places: &Located) {
        let mut taken = vec![0; places.groups.len()];
        for (group, _) in &places.rows {
            if let Some(count) = taken.get_mut(*group) {
                *count += 1;
            }
        }
        for (group, count) in places.groups.iter().zip(taken) {
            // Padding takes rows twice.
            let left =
                group.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| Some(left.saturating_sub(count)));
            if left.is_ok_and(|left| left > count) {
                continue;
            }
            let mut kept = self.kept.lock();
            for block in &group.blocks {
                if let Some(stretches) = kept.get_mut(block) {
                    stretches.retain(|stretch| !Arc::ptr_eq(&stretch.group, group));
                    if stretches.is_empty() {
                        kept.remove(block);
                    }
                }
            }
        }
    }
}

impl Draft {
    /// Makes the group, whose slots must be filled. `light`, `found` and `bad` are those of the whole arrival.
    fn group(
        self,
        light: &[Option<ArrayRef>],
        found: &ResolvedRows,
        bad: &BTreeMap<usize, Damage>,
    ) -> Result<DueGroup> {
        let Self { held, rows, blocks, slots } = self;
        let left = AtomicUsize::new(rows.len());
        let addrs = found.addrs.iter().map(|addrs| pick(addrs, &rows)).collect();
        let is_bad = |(index, row): (usize, &u64)| Some((index, bad.get(&to_usize(*row))?.clone()));
        let bad = match bad.is_empty() {
            true => BTreeMap::new(),
            false => rows.iter().enumerate().filter_map(is_bad).collect(),
        };
        let rows = UInt64Array::from(rows);
        let of_group = |array: &Option<ArrayRef>| {
            array.as_ref().map(|array| take(array, &rows, None).map_err(Error::arrow)).transpose()
        };
        let light = light.iter().map(of_group).collect::<Result<_>>()?;
        let dense = slots.into_iter().map(|slots| slots.map(Slots::freeze).transpose());
        let dense = dense.collect::<stoker_batch::Result<_>>()?;
        Ok(DueGroup { dense, light, addrs, bad, blocks, left, _held: held })
    }
}

impl Located {
    /// Copies the rows of a dense column that are in memory into their slots, which are in the order of the rows.
    async fn copy(&self, column: usize, slots: Vec<SlotMut>) -> Result<()> {
        let missing = || Error::Internal { reason: "rows of a unit have too few slots, or too many".into() };
        let sources: Vec<&[u8]> =
            self.groups.iter().map(|group| group.dense[column].as_deref().unwrap_or_default()).collect();
        let mut rows = self.rows.iter().filter(|(group, _)| *group < sources.len());
        let mut copied = 0;
        for mut slot in slots {
            let row_bytes = slot.row_bytes();
            for target in slot.chunks_exact_mut(row_bytes.max(1)) {
                let (group, row) = rows.next().ok_or_else(missing)?;
                let row = sources[*group].get(row * row_bytes..(row + 1) * row_bytes);
                target.copy_from_slice(row.ok_or_else(missing)?);
                copied += row_bytes;
                if copied >= COPIED_AT_ONCE {
                    copied = 0;
                    yield_now().await;
                }
            }
            slot.fill();
        }
        Ok(())
    }

    /// Returns the rows without their dense columns. `absent` are those of the rows that are not in memory.
    fn rows(&self, num_columns: usize, num_tables: usize, absent: Option<Rows>) -> Result<Rows> {
        let mut light = Vec::with_capacity(num_columns);
        for column in 0..num_columns {
            let arrays = self.groups.iter().filter_map(|group| group.light[column].as_deref());
            let arrays = arrays.chain(absent.as_ref().and_then(|rows| rows.light[column].as_deref()));
            let arrays: Vec<&dyn Array> = arrays.collect();
            light.push(match arrays.is_empty() {
                true => None,
                false => Some(interleave(&arrays, &self.rows).map_err(Error::arrow)?),
            });
        }
        let of_table = |table: usize| {
            let groups = self.groups.iter().map(|group| group.addrs[table].as_slice());
            let addrs: Vec<&[u64]> = groups.chain(absent.as_ref().map(|rows| rows.addrs[table].as_slice())).collect();
            self.rows.iter().map(|(group, row)| addrs[*group][*row]).collect()
        };
        let addrs = (0..num_tables).map(of_table).collect();
        let bad: Vec<&BTreeMap<usize, Damage>> =
            self.groups.iter().map(|group| &group.bad).chain(absent.as_ref().map(|rows| &rows.bad)).collect();
        let is_bad = |(index, (group, row)): (usize, &(usize, usize))| Some((index, bad[*group].get(row)?.clone()));
        let bad = match bad.iter().all(|bad| bad.is_empty()) {
            true => BTreeMap::new(),
            false => self.rows.iter().enumerate().filter_map(is_bad).collect(),
        };
        Ok(Rows { light, addrs, bad })
    }
}

/// Divides the slots of rows in order into those of the rows with other indexes than `absent`, and those of `absent`,
/// row by row. `absent` ascends.
fn divided(slots: Vec<SlotMut>, absent: &[usize]) -> Result<(Vec<SlotMut>, Vec<SlotMut>)> {
    if absent.is_empty() {
        return Ok((slots, Vec::new()));
    }
    let (mut present, mut others) = (Vec::new(), Vec::with_capacity(absent.len()));
    let mut absent = absent.iter().copied().peekable();
    let mut first = 0;
    for slot in slots {
        let mut rest = Some(slot);
        while let Some(mut slot) = rest.take() {
            let num_rows = slot.num_rows();
            let before = absent.peek().map_or(num_rows, |next| next - first).min(num_rows);
            let (count, is_absent) = if before == 0 { (1, true) } else { (before, false) };
            if count < num_rows {
                rest = Some(slot.split_off(count)?);
            }
            first += count;
            match is_absent {
                true => {
                    absent.next();
                    others.push(slot);
                }
                false => present.push(slot),
            }
        }
    }
    Ok((present, others))
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
