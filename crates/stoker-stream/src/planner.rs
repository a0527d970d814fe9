//! The task that plans the units of a stream, reads them and delivers the parts. What it reads next, and when, follows
//! from the stream's [`Phase`].
//!
//! ```text
//! phase ──ahead──► unit ──memory──► open parts ──reading──► rows in their slots, pieces ──delivery──► parts
//! ```

mod ahead;
mod delivery;
mod memory;
mod reading;

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use stoker_batch::{Held, Quota, SlotMut};
use stoker_chunks::{BlockReads, ChunkScan, Membership};
use stoker_order::StreamOrder;
use stoker_types::{ReadOptions, Slice, to_usize};
use tokio::sync::mpsc;

use crate::abort_on_drop::AbortOnDrop;
use crate::depth::Depth;
use crate::found_rows::FoundRows;
use crate::part_builder::{Builders, Delivered, PartBuilder};
use crate::part_plan::{PartSize, Parts};
use crate::phase::{FirstUnit, Phase};
use crate::plan::StreamPlan;
use crate::planner::reading::{ReadUnit, Reading, UnitRows, read_unit};
use crate::read::{Rows, split};
use crate::resident::{ResidentMemory, ResidentRows, TakenRows};
use crate::source::ColumnPlan;
use crate::spans::Spans;
use crate::substitute::Met;
use crate::unit::{UnitSize, Units, rows_of_local_unit};
use crate::{Error, Result};

/// Plans units, reads them and delivers the parts of batches in order.
pub(crate) struct Planner {
    plan: StreamPlan,
    slice: Slice,
    order: StreamOrder,
    options: ReadOptions,
    scan: ChunkScan,
    /// The stream's membership in a group of ranks that want rows of the same blocks, if there may be such ranks.
    shared: Option<Arc<Membership>>,
    quota: Quota,
    output: mpsc::Sender<Result<Delivered>>,
    part_size: PartSize,
    /// The parts that are not open yet.
    parts: Peekable<Parts>,
    num_opened: u64,
    builders: Builders,
    spans: Spans,
    /// The rows of the next unit, if they are being resolved before the unit is started.
    looked_up: Option<LookUp>,
    /// The reserved memory of parts that are not delivered yet, with the numbers of the parts, oldest first.
    held: VecDeque<(u64, Held)>,
    reading: VecDeque<Reading>,
    /// How far the stream reads ahead, unless its units are windows.
    depth: Option<Depth>,
    /// Whether the memory of a batch was waited for in vain the last time.
    keeps_batches: bool,
    /// The memory for resident rows, if the stream has such rows.
    resident_memory: Option<Arc<ResidentMemory>>,
    /// The resident rows, once the first unit of them begins.
    resident: Option<ResidentRows>,
    /// The bad rows that were met and replaced.
    met: Met,
}

/// The rows at some positions, which another task resolves.
struct LookUp {
    positions: Vec<u64>,
    task: AbortOnDrop<Result<FoundRows>>,
}

/// How the rows of a unit are read.
enum UnitReads {
    /// With the rest of their blocks.
    Blocks(BlockReads),
    /// Alone; everything but their dense columns is taken from a span where possible.
    Spans,
    /// Alone.
    Rows,
    /// They are resident when they are due.
    Resident,
}

/// A row that a unit reads: the number of its part, its index in the part, and its position.
struct Entry {
    part: u64,
    row: u64,
    position: u64,
}

/// A stream's share of the resources that the streams of a process share.
pub(crate) struct Share {
    /// The memory for the stream's batches.
    pub quota: Quota,
    /// The memory for resident rows, if the stream has such rows.
    pub resident: Option<Arc<ResidentMemory>>,
    /// The stream's membership in a group of ranks that want rows of the same blocks, if there may be such ranks.
    pub blocks: Option<Membership>,
}

impl Planner {
    pub fn new(
        plan: StreamPlan,
        slice: Slice,
        options: ReadOptions,
        part_size: PartSize,
        scan: ChunkScan,
        share: Share,
        output: mpsc::Sender<Result<Delivered>>,
    ) -> Self {
        let order = plan.inner.orders.epoch(slice.epoch);
        let parts = Parts::new(slice, plan.num_rows(), part_size.rows_max(plan.row_bytes()));
        Self {
            met: Met::new(options.max_bad_share),
            options,
            quota: share.quota,
            resident_memory: share.resident,
            resident: None,
            shared: share.blocks.map(Arc::new),
            output,
            part_size,
            parts: parts.peekable(),
            num_opened: 0,
            builders: Builders::new(),
            spans: Spans::new(plan.clone(), scan.clone(), order.clone(), rows_of_local_unit(&plan, options.io_threads)),
            order,
            scan,
            looked_up: None,
            held: VecDeque::new(),
            reading: VecDeque::new(),
            depth: None,
            keeps_batches: false,
            plan,
            slice,
        }
    }

    /// Reads all rows of the slice. An error is delivered in place of the part that it prevents.
    pub async fn run(mut self) {
        let done = self.read_all().await;
        self.quota.retire();
        if let Err(error) = done {
            let error = self.plan.explained(error).await;
            // If the channel is closed, the consumer has dropped the stream.
            self.output.send(Err(error)).await.ok();
        }
    }

    async fn read_all(&mut self) -> Result<()> {
        let is_shared = self.shared.as_ref().is_some_and(|group| group.is_shared());
        let ranks_here = if is_shared { u64::from(self.slice.topology.world_size) } else { 1 };
        let mut size = UnitSize::new(&self.plan, &self.slice, self.part_size, self.options.io_threads, ranks_here);
        if self.resident_memory.is_some() {
            size = size.resident();
        }
        let by_window = size.is_by_window(&self.order);
        let first_unit = size.first_unit(&self.order);
        let least_at_once = size.at_once(&self.order);
        let first_depth = match &self.resident_memory {
            Some(memory) => Some(memory.depth()),
            None => size.depth(&self.order, self.options.memory_budget_bytes),
        };
        let depths = &self.plan.inner.depths;
        self.depth = first_depth.map(|first| depths.begin(self.slice.topology, first));
        self.follow_depth();
        // Resolved rows are held outside the budget. They are not resolved in advance if columns come from the row set,
        // whose values may be of any size.
        let is_kept = |column: &ColumnPlan| matches!(column, ColumnPlan::RowSet { .. });
        let looks_up = by_window && !self.options.first_batch_only && !self.plan.inner.columns().iter().any(is_kept);
        let mut units = Units::new(&self.slice, self.plan.num_rows(), size);
        let mut phase = self.opened(&units, first_unit, by_window).read_up_to(units.position());
        loop {
            phase = self.ready(phase, &units, looks_up).await?;
            // If memory was short, parts that have only padding may be left when all positions have been read.
            let rest = || self.parts.peek().map(|part| part.positions.clone());
            let unit = units.next(&self.order, self.quota.bytes(), phase.unit_end_max());
            let Some(unit) = unit.or_else(rest) else { break };
            while self.reading.len() >= self.units_at_once(least_at_once) {
                self.deliver_oldest().await?;
            }
            let reads = self.unit_reads(phase, &unit);
            if looks_up {
                self.look_up(&unit);
            }
            let end = self.start(unit, reads, phase.first().is_some()).await?;
            units.continue_at(end);
            if self.quota.has_begun() {
                phase = phase.begun();
            }
            if let Phase::First(first) = phase
                && first.end <= end
            {
                // The consumer waits for the first batch. Other reads begin when its first unit is there, so that they
                // do not compete with it before most of it is there.
                self.deliver_oldest().await?;
            }
            phase = phase.read_up_to(end);
        }
        // All units that are still being read have reserved their memory.
        self.quota.retire();
        self.deliver_all().await
    }

    /// Returns how many units are read at once.
    fn units_at_once(&self, least: usize) -> usize {
        match &self.depth {
            Some(depth) if self.resident_memory.is_none() => depth.units_at_once(least),
            _ => least,
        }
    }

    /// Returns how the rows of a unit are read in a phase.
    fn unit_reads(&self, phase: Phase, unit: &Range<u64>) -> UnitReads {
        let first = phase.first();
        let is_small = first.is_some_and(|first| first.unit == FirstUnit::Rows)
            && unit.end - unit.start <= self.slice.global_batch();
        // A stream that has not begun may be dropped. Then the rows of shared blocks that it has taken up would be
        // lost.
        let may_take_up = self.shared.is_none() || self.quota.has_begun();
        match self.block_reads(is_small) {
            _ if self.resident_memory.is_some() && !is_small && may_take_up => UnitReads::Resident,
            Some(blocks) => UnitReads::Blocks(blocks),
            // The first batch does not use spans, because their reads include rows after the batch.
            None if first.is_none() && self.spans.are_used() => UnitReads::Spans,
            None => UnitReads::Rows,
        }
    }

    /// Returns how the blocks of the next unit are read, or `None` if they are not read as a whole.
    fn block_reads(&self, is_small: bool) -> Option<BlockReads> {
        // The rows of a small first batch are read faster alone than with their blocks.
        let in_haste = is_small && self.slice.first_step == 0 && !self.options.ahead;
        match &self.shared {
            Some(group) if !in_haste && group.is_shared() => Some(BlockReads::ForGroup(group.clone())),
            _ if !self.scan.has_cache() => None,
            _ if is_small => Some(BlockReads::IfCached),
            _ => Some(BlockReads::ForCache),
        }
    }

    /// Opens the parts that begin in a unit and starts to read its rows. `is_first` says whether these are rows of the
    /// first batch. Returns the position at which the unit ends, which is an earlier one if there is no memory for its
    /// last parts.
    async fn start(&mut self, mut unit: Range<u64>, reads: UnitReads, is_first: bool) -> Result<u64> {
        let opened_before = self.num_opened;
        let mut num_rows = 0;
        while let Some(part) = self.parts.peek().filter(|part| part.begins_in(&unit)).cloned() {
            if part.is_put_off(num_rows) {
                unit.end = part.positions.start;
                break;
            }
            num_rows += part.num_rows();
            if self.resident_memory.is_some() && !self.opens_beside(&part) {
                if part.positions.start > unit.start || self.num_opened > opened_before {
                    unit.end = part.positions.start;
                    break;
                }
                self.deliver_all().await?;
            }
            if !self.reserve(&part).await? {
                // Incomplete parts hold the memory, so their rows are at positions before this part.
                let begin = part.positions.start;
                if begin <= unit.start && self.num_opened == opened_before {
                    let reason = format!("no memory was reserved for rows {:?} of step {}", part.rows, part.step);
                    return Err(Error::Internal { reason });
                }
                unit.end = begin;
                break;
            }
            self.until_dropped(&part).await;
            self.builders.push_back(PartBuilder::try_new(&self.plan.inner, part, self.scan.pool())?);
            self.parts.next();
            self.num_opened += 1;
        }
        let entries = self.entries(&unit);
        let positions: Arc<[u64]> = entries.iter().map(|entry| entry.position).collect();
        let parts: Vec<u64> = entries.iter().map(|entry| entry.part).collect();
        let complete_below = self.builders.iter().find(|builder| builder.part.positions.end > unit.end);
        let complete_below = complete_below.map_or(self.num_opened, |builder| builder.part.number);
        let claims = self.claim(&entries)?;
        let (blocks, known) = match reads {
            UnitReads::Blocks(blocks) => (Some(blocks), None),
            UnitReads::Spans => (None, self.known(&positions).await),
            UnitReads::Rows => (None, None),
            UnitReads::Resident => {
                let (shared, arrivals) = self.resident_rows(&unit)?.begin(&unit);
                let taken = positions.clone();
                let task = async move {
                    let TakenRows { rows, spans, waited } = shared.take(arrivals, taken, claims).await?;
                    Ok(ReadUnit { pieces: split(rows, &parts), spans, waited: Some(waited) })
                };
                self.reading.push_back(Reading { task: AbortOnDrop(tokio::spawn(task)), positions, complete_below });
                return Ok(unit.end);
            }
        };
        let looked_up = self.looked_up.take().filter(|found| found.positions == positions[..]);
        let rows = match (known, looked_up) {
            (Some(rows), _) => UnitRows::AllButDense(rows),
            (None, Some(found)) => UnitRows::LookedUp(found.task),
            (None, None) => UnitRows::Positions(self.order.clone(), positions.clone()),
        };
        let task = read_unit(self.plan.clone(), self.scan.clone(), blocks, rows, parts, claims, is_first);
        let task = AbortOnDrop(tokio::spawn(task));
        self.reading.push_back(Reading { task, positions, complete_below });
        Ok(unit.end)
    }

    /// Returns the rows of open parts whose positions are in a unit, in the order of the parts.
    fn entries(&mut self, unit: &Range<u64>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for builder in &mut self.builders {
            let (part, first) = (&builder.part, builder.num_taken_up);
            let positions = part.positions_before(first, unit.end).zip(first..);
            entries.extend(positions.map(|(position, row)| Entry { part: part.number, row, position }));
            builder.num_taken_up =
                entries.last().filter(|last| last.part == part.number).map_or(first, |last| last.row + 1);
        }
        entries
    }

    /// Starts to resolve the rows of a unit, unless that is being done already. The task runs while another unit is
    /// read or while the stream waits for memory.
    fn look_up(&mut self, unit: &Range<u64>) {
        let mut positions: Vec<u64> = Vec::new();
        for PartBuilder { part, num_taken_up, .. } in &self.builders {
            positions.extend(part.positions_before(*num_taken_up, unit.end));
        }
        let mut num_rows = 0;
        for part in self.parts.clone().take_while(|part| part.begins_in(unit)) {
            if part.is_put_off(num_rows) {
                break;
            }
            num_rows += part.num_rows();
            positions.extend(part.positions_before(0, unit.end));
        }
        if self.looked_up.as_ref().is_some_and(|found| found.positions == positions) {
            return;
        }
        let (plan, order, wanted) = (self.plan.clone(), self.order.clone(), positions.clone());
        let find = async move { FoundRows::at(&plan.inner, &order, wanted.into_iter()).await };
        self.looked_up = Some(LookUp { positions, task: AbortOnDrop(tokio::spawn(find)) });
    }

    /// Returns everything but the dense columns of these rows, if a span has it.
    async fn known(&mut self, positions: &[u64]) -> Option<Rows> {
        let open = self.builders.iter().flat_map(|builder| builder.part.positions_from(builder.num_taken_up));
        let more = self.parts.clone().flat_map(|part| part.positions_from(0).collect::<Vec<_>>());
        self.spans.rows(positions, positions.iter().copied().chain(open).chain(more)).await
    }

    /// Returns, for each column, the slots of the entries in order. Rows that are neighbours in a part have one claim.
    /// Columns that are not dense have none.
    fn claim(&self, entries: &[Entry]) -> Result<Vec<Vec<SlotMut>>> {
        let Some(first) = self.builders.front().map(|builder| builder.part.number) else { return Ok(Vec::new()) };
        let is_run = |one: &Entry, next: &Entry| one.part == next.part && one.row + 1 == next.row;
        let mut claims: Vec<Vec<SlotMut>> = self.plan.inner.columns().iter().map(|_| Vec::new()).collect();
        for run in entries.chunk_by(is_run) {
            let builder = &self.builders[to_usize(run[0].part - first)];
            let rows = to_usize(run[0].row)..to_usize(run[0].row) + run.len();
            for (column, claims) in claims.iter_mut().enumerate() {
                if let Some(memory) = builder.slots(column) {
                    claims.push(memory.claim_rows(rows.clone())?);
                }
            }
        }
        Ok(claims)
    }

    /// Returns the resident rows. The first unit of them decides where they begin.
    fn resident_rows(&mut self, unit: &Range<u64>) -> Result<&mut ResidentRows> {
        let missing = || Error::Internal { reason: "a stream without memory for resident rows has some".into() };
        if self.resident.is_none() {
            let num_rows = self.plan.num_rows();
            let num_steps = self.slice.num_steps(num_rows);
            let end = num_steps.checked_sub(1).map_or(unit.end, |last| self.slice.position_after(last, num_rows));
            let memory = self.resident_memory.as_ref().ok_or_else(missing)?;
            let source = (&self.plan, &self.scan, &self.order);
            self.resident = ResidentRows::new(source, self.slice, unit.start..end, self.block_reads(false), memory);
        }
        self.resident.as_mut().ok_or_else(missing)
    }
}
