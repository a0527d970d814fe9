//! Reads the rows of an arrival into groups of rows that are due at about the same time.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arrow_array::{ArrayRef, UInt64Array};
use arrow_buffer::Buffer;
use arrow_select::take::take;
use stoker_batch::{Held, Slots};
use stoker_sql::ResolvedRows;
use stoker_types::to_usize;

use crate::light::read_light;
use crate::read::{Damage, DenseRequest, Reader, add_runs, bad_places, note, pick};
use crate::resident::due::DueRows;
use crate::resident::{Shared, Stretch};
use crate::source::ColumnPlan;
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The approximate size of a group of rows that are due at the same time at least, in bytes. Smaller groups are joined
/// with those that are due next.
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
    pub(super) async fn read(&self, number: u64, runs: Vec<DueRows>) -> Result<()> {
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
