//! Reads the rows of an arrival into groups of rows that are due at about the same time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use stoker_batch::{BufferPool, Held, Slots, interleave_column};
use stoker_sql::ResolvedRows;
use stoker_types::to_usize;

use crate::found_rows::SourceRows;
use crate::read::{Damage, DenseRequest, Reader, add_runs, note, pick};
use crate::resident::Shared;
use crate::resident::due::DueRows;
use crate::source::ColumnPlan;
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The size of a group at least, in bytes, unless an arrival has less.
const GROUP_BYTES_MIN: u64 = 128 << 10;

/// Rows of one arrival that are due at about the same time.
pub(super) struct DueGroup {
    /// For each dense column, the bytes of its rows.
    pub dense: Vec<Option<Buffer>>,
    /// For each other column, an array.
    pub light: Vec<Option<ArrayRef>>,
    /// The row addresses as `[table][row]`.
    pub addrs: Vec<Vec<u64>>,
    pub bad: BTreeMap<usize, Damage>,
    /// The blocks that the rows belong to.
    pub blocks: Vec<u64>,
    /// The number of rows that were not taken.
    pub left: AtomicUsize,
    _held: Held,
}

#[cfg(test)]
impl DueGroup {
    /// Makes a group without rows that says that it has rows of these blocks.
    pub fn without_rows(blocks: Vec<u64>) -> Self {
        let held = stoker_batch::MemoryBudget::new(1).join(1).try_reserve(1).expect("memory");
        let (dense, light, addrs, bad) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        Self { dense, light, addrs, bad, blocks, left: AtomicUsize::new(0), _held: held }
    }
}

/// The rows of an arrival, with the memory that is reserved for them.
pub(super) struct ReservedRows {
    rows: Vec<GroupRows>,
    /// For each group, its memory and its number of rows; `None` if there is no memory.
    groups: Vec<Option<(Held, u64)>>,
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

impl Shared {
    /// Returns the rows of a group: about as many as rows of an arrival are due in one super-stride, or more if they are
    /// few bytes.
    fn group_rows(&self) -> u64 {
        let rows_of_arrival = self.rows_opened();
        let rows_of_stride = rows_of_arrival.div_ceil(self.line.open_blocks().max(1));
        let rows_min = GROUP_BYTES_MIN.div_ceil(self.kept_row_bytes.max(1));
        rows_of_stride.max(rows_min).min(rows_of_arrival).max(1)
    }

    /// Divides the rows of an arrival into groups, in the order in which they are due. All groups have memory of the same
    /// size, so that later ones reuse the memory of earlier ones; all but the last one are full. Returns the number of
    /// rows of each group.
    fn grouped(&self, number: u64, runs: Vec<DueRows>) -> (Vec<GroupRows>, Vec<u64>) {
        let rows_max = self.group_rows();
        // For each super-stride from this one on, how many rows are due before the next of its rows.
        let mut due_before: Vec<u64> = Vec::new();
        for DueRows { due, ordinals } in &runs {
            let stride = to_usize(due - number);
            if due_before.len() <= stride {
                due_before.resize(stride + 1, 0);
            }
            due_before[stride] += ordinals.end - ordinals.start;
        }
        let mut num_rows = 0;
        for rows in &mut due_before {
            num_rows += std::mem::replace(rows, num_rows);
        }
        let mut grouped = Vec::with_capacity(runs.len());
        for DueRows { due, mut ordinals } in runs {
            let next = &mut due_before[to_usize(due - number)];
            while !ordinals.is_empty() {
                let room = rows_max - *next % rows_max;
                let end = ordinals.end.min(ordinals.start.saturating_add(room));
                grouped.push(GroupRows { group: to_usize(*next / rows_max), ordinals: ordinals.start..end });
                *next += end - ordinals.start;
                ordinals.start = end;
            }
        }
        let sizes = (0..num_rows.div_ceil(rows_max)).map(|group| rows_max.min(num_rows - group * rows_max));
        (grouped, sizes.collect())
    }

    /// Returns the rows of the blocks that a super-stride opens, of all ranks that share the lanes.
    pub(super) fn rows_opened(&self) -> u64 {
        (self.lanes.len() as u64).saturating_mul(self.rows_per_block)
    }

    /// Returns whether there is memory for this many rows more.
    pub(super) fn has_room(&self, rows: u64) -> bool {
        let bytes = rows.saturating_mul(self.kept_row_bytes);
        self.quota.held_bytes().saturating_add(bytes) <= self.quota.bytes()
    }

    /// Reserves memory for the rows of an arrival, as far as there is some.
    pub(super) fn reserve(&self, number: u64, runs: Vec<DueRows>) -> ReservedRows {
        let (mut rows, sizes) = self.grouped(number, runs);
        let group_bytes = self.group_rows().saturating_mul(self.kept_row_bytes);
        let reserve = |num_rows| Some((self.quota.try_reserve_within(group_bytes)?, num_rows));
        let groups: Vec<Option<(Held, u64)>> = sizes.into_iter().map(reserve).collect();
        rows.retain(|run| groups[run.group].is_some());
        ReservedRows { rows, groups }
    }

    /// Reads the rows of an arrival for which there is memory.
    pub(super) async fn read(&self, reserved: ReservedRows) -> Result<()> {
        let ReservedRows { rows: runs, groups } = reserved;
        let draft = |group: Option<(Held, u64)>| group.map(|(held, num_rows)| self.draft(held, num_rows)).transpose();
        let mut drafts = groups.into_iter().map(draft).collect::<Result<Vec<_>>>()?;
        let ordinals: Vec<u64> = runs.iter().flat_map(|run| run.ordinals.clone()).collect();
        if ordinals.is_empty() {
            return Ok(());
        }
        let source = &self.plan.inner.sources[0];
        let found = SourceRows::of(source, self.slice.epoch, ordinals).await?;
        if !self.keeps_dense {
            self.fill_page_cache(&found.rows);
        }
        let addrs = found.addrs();
        let (requests, firsts) = self.requests(&runs, &found.ordinals, &addrs, &mut drafts)?;
        let clock = UnitClock::start(self.scan.clock());
        let (plan, blocks) = (&self.plan.inner, self.blocks.as_ref());
        let reader = Reader { plan, scan: &self.scan, clock: &clock, blocks, is_first: false };
        let light = reader.read_light(source, &found);
        let ((light, mut damaged), gathered) = futures::try_join!(light, reader.gather(0, requests))?;
        note(&mut damaged, gathered);
        let (bad, light) = (found.bad(&damaged), found.arrays(source, light, self.scan.pool())?);
        let group = |draft: Draft| Ok::<_, Error>(Arc::new(draft.group(&light, &addrs, &bad, self.scan.pool())?));
        let groups = drafts.into_iter().map(|draft| draft.map(group).transpose()).collect::<Result<Vec<_>>>()?;
        let mut kept = self.kept.lock();
        let mut add = |group: Option<_>| kept.add(group?, self.rows_per_block);
        let numbers: Vec<Option<u32>> = groups.into_iter().map(&mut add).collect();
        for (GroupRows { group, ordinals }, at) in runs.into_iter().zip(firsts) {
            let Some(number) = numbers[group] else { continue };
            let (block, row) = (ordinals.start / self.rows_per_block, ordinals.start % self.rows_per_block);
            let rows = to_usize(row)..to_usize(row + (ordinals.end - ordinals.start));
            kept.place(block, rows, number, at);
        }
        Ok(())
    }

    /// Asks the system to read the dense columns of these rows, in ascending order, into the page cache.
    fn fill_page_cache(&self, found: &ResolvedRows) {
        for plan in &self.plan.inner.sources[0].columns {
            let ColumnPlan::Dense { sources, .. } = plan else { continue };
            for (table, name, column) in sources {
                self.scan.fill_page_cache(name, column, &found.addrs[*table]);
            }
        }
    }

    /// Takes the memory for a group, which is new if no group of an earlier arrival was released.
    fn draft(&self, held: Held, num_rows: u64) -> Result<Draft> {
        let rows_max = self.group_rows();
        let slots = |column: &ColumnPlan| match column.dense_row_bytes().filter(|_| self.keeps_dense) {
            Some(row_bytes) => {
                Slots::with_capacity(self.scan.pool(), to_usize(num_rows), to_usize(rows_max), row_bytes).map(Some)
            }
            None => Ok(None),
        };
        let slots = self.plan.inner.columns().iter().map(slots).collect::<stoker_batch::Result<_>>()?;
        Ok(Draft { held, rows: Vec::with_capacity(to_usize(num_rows)), blocks: Vec::new(), slots })
    }

    /// Claims the slots of the rows. Returns the reads of dense columns, and for each run the index in its group of the
    /// first row.
    fn requests(
        &self,
        runs: &[GroupRows],
        ordinals: &[u64],
        addrs: &[Vec<u64>],
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
                add_runs(&tables, addrs, Some(ordinals), rows.clone(), slots, &mut requests[sources])?;
            }
        }
        requests.retain(|request| !request.wanted.is_empty());
        Ok((requests, places))
    }
}

impl Draft {
    /// Makes the group, whose slots must be filled. `light`, `addrs` and `bad` are those of the whole arrival. The memory of
    /// lists of numbers comes from `pool`.
    fn group(
        self,
        light: &[Option<ArrayRef>],
        addrs: &[Vec<u64>],
        bad: &BTreeMap<usize, Damage>,
        pool: &BufferPool,
    ) -> Result<DueGroup> {
        let Self { held, rows, blocks, slots } = self;
        let left = AtomicUsize::new(rows.len());
        let addrs = addrs.iter().map(|addrs| pick(addrs, &rows)).collect();
        let is_bad = |(index, row): (usize, &u64)| Some((index, bad.get(&to_usize(*row))?.clone()));
        let bad = match bad.is_empty() {
            true => BTreeMap::new(),
            false => rows.iter().enumerate().filter_map(is_bad).collect(),
        };
        let places: Vec<(usize, usize)> = rows.iter().map(|row| (0, to_usize(*row))).collect();
        let of_group = |array: &Option<ArrayRef>| {
            array.as_ref().map(|array| interleave_column(&[array.as_ref()], &places, Some(pool))).transpose()
        };
        let light = light.iter().map(of_group).collect::<stoker_batch::Result<_>>()?;
        let dense = slots.into_iter().map(|slots| slots.map(Slots::freeze).transpose());
        let dense = dense.collect::<stoker_batch::Result<_>>()?;
        Ok(DueGroup { dense, light, addrs, bad, blocks, left, _held: held })
    }
}
