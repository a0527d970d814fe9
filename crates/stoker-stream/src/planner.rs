//! The task that turns positions into reads.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use stoker_chunks::{ChunkScan, SlotMut};
use stoker_order::{StreamOrder, Visit};
use stoker_types::Slice;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::batch_builder::{BatchBuilder, Builders, Delivered, Part};
use crate::budget::{Held, Quota};
use crate::plan::StreamPlan;
use crate::read::{Rows, read_rows};
use crate::substitute::substitutes;
use crate::unit::Units;
use crate::unit_clock::UnitClock;
use crate::{BadRows, Error, Result, Stalls};

/// Units that are being read at once.
const UNITS_AT_ONCE: usize = 2;

/// Plans units, reads them and delivers batches in order.
pub(crate) struct Planner {
    plan: StreamPlan,
    slice: Slice,
    order: StreamOrder,
    bad_rows: BadRows,
    scan: ChunkScan,
    quota: Quota,
    output: mpsc::Sender<Result<Delivered>>,
    builders: Builders,
    /// The room of batches that are not delivered yet, oldest first, by step.
    held: VecDeque<(u64, Held)>,
    reading: VecDeque<Reading>,
    next_step: u64,
    num_steps: u64,
}

struct Reading {
    task: AbortOnDrop<Result<(Vec<Part>, Stalls)>>,
    /// What was read, in order; needed to find substitutes.
    visits: Arc<[Visit]>,
    /// Steps below this one are complete once the task is done.
    complete_below: u64,
}

/// One row that a unit reads: which batch, and which row of it.
struct Entry {
    step: u64,
    row: u64,
    position: u64,
}

impl Planner {
    pub fn new(
        plan: StreamPlan,
        slice: Slice,
        bad_rows: BadRows,
        scan: ChunkScan,
        quota: Quota,
        output: mpsc::Sender<Result<Delivered>>,
    ) -> Self {
        let order = plan.inner.orders.epoch(slice.epoch);
        let num_steps = slice.num_steps(plan.num_rows());
        Self {
            order,
            bad_rows,
            scan,
            quota,
            output,
            builders: Builders::new(),
            held: VecDeque::new(),
            reading: VecDeque::new(),
            next_step: slice.first_step,
            num_steps,
            plan,
            slice,
        }
    }

    /// Reads everything; errors are delivered in place of the batch that they stand in the way of.
    pub async fn run(mut self) {
        let done = self.read_all().await;
        self.quota.retire();
        if let Err(error) = done {
            // A closed channel means that nobody waits any more.
            self.output.send(Err(error)).await.ok();
        }
    }

    async fn read_all(&mut self) -> Result<()> {
        let by_window = !self.plan.inner.reads_rows_alone();
        let mut units = Units::new(&self.slice, self.plan.num_rows(), self.plan.row_bytes(), by_window);
        while let Some(unit) = units.next(&self.order, self.quota.bytes()) {
            while self.reading.len() >= UNITS_AT_ONCE {
                self.deliver_oldest().await?;
            }
            let end = self.start(unit).await?;
            units.continue_at(end);
        }
        while !self.reading.is_empty() {
            self.deliver_oldest().await?;
        }
        Ok(())
    }

    /// Opens the batches that begin in a unit and starts to read its rows. Returns where the unit ends: earlier, where there is
    /// no room for its last batches.
    async fn start(&mut self, mut unit: Range<u64>) -> Result<u64> {
        let num_rows = self.plan.num_rows();
        while self.next_step < self.num_steps {
            let begin = self.slice.positions(self.next_step, num_rows).start;
            if begin >= unit.end {
                break;
            }
            if !self.reserve(self.next_step).await? {
                // Batches that are not complete hold the room, so their rows lie before this batch.
                if begin <= unit.start {
                    return Err(Error::Internal { reason: format!("no room for step {}", self.next_step) });
                }
                unit.end = begin;
                break;
            }
            let builder = BatchBuilder::new(&self.plan.inner, &self.slice, self.next_step, self.scan.pool());
            self.builders.push_back(builder);
            self.next_step += 1;
        }
        let entries = self.entries(&unit);
        let mut visits = Vec::with_capacity(entries.len());
        self.order.visits(entries.iter().map(|entry| entry.position), &mut visits);
        let visits: Arc<[Visit]> = visits.into();
        let claims = self.claim(&entries)?;
        let steps = entries.iter().map(|entry| entry.step).collect();
        let task = read_unit(self.plan.clone(), self.scan.clone(), visits.clone(), steps, claims);
        let complete_below =
            self.builders.iter().map(|b| b.step).find(|step| self.slice.positions(*step, num_rows).end > unit.end);
        let complete_below = complete_below.unwrap_or(self.next_step);
        let task = AbortOnDrop(tokio::spawn(task));
        self.reading.push_back(Reading { task, visits, complete_below });
        Ok(unit.end)
    }

    /// Waits until the budget has room for a batch; `false` when only batches that cannot be delivered before this one hold the
    /// stream's quota, as nothing but reading on frees that.
    async fn reserve(&mut self, step: u64) -> Result<bool> {
        let rows = self.slice.share(step, self.plan.num_rows()).num_rows;
        let wanted = rows.saturating_mul(self.plan.row_bytes());
        let held = loop {
            let held = self.quota.try_reserve(wanted);
            if held.is_some() || self.reading.is_empty() {
                break held;
            }
            // Batches that are being read hold the room: deliver them first, which frees it once they are taken.
            self.deliver_oldest().await?;
        };
        let held = match held {
            Some(held) => Some(held),
            None => {
                let kept: u64 = self.held.iter().map(|(_, held)| held.bytes()).sum();
                self.quota.reserve_beside(wanted, kept).await
            }
        };
        let is_there = held.is_some();
        self.held.extend(held.map(|held| (step, held)));
        Ok(is_there)
    }

    /// The rows of open batches whose positions lie in a unit, in order of batches.
    fn entries(&mut self, unit: &Range<u64>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for builder in &mut self.builders {
            // Padding repeats earlier positions of its batch; it is read with the last unit of the batch.
            while builder.next_row < builder.share.num_rows {
                let row = builder.next_row;
                let position = builder.share.position(row);
                if position >= unit.end {
                    break;
                }
                entries.push(Entry { step: builder.step, row, position });
                builder.next_row += 1;
            }
        }
        entries
    }

    /// For each column, the slots of the entries, in order; none for columns that are not dense.
    fn claim(&self, entries: &[Entry]) -> Result<Vec<Vec<SlotMut>>> {
        let Some(first) = self.builders.front().map(|builder| builder.step) else { return Ok(Vec::new()) };
        let num_columns = self.plan.inner.columns().len();
        let mut claims = Vec::with_capacity(num_columns);
        for column in 0..num_columns {
            let mut slots = Vec::new();
            for entry in entries {
                let builder = &self.builders[(entry.step - first) as usize];
                if let Some(memory) = builder.slots(column) {
                    slots.push(memory.claim(entry.row as usize)?);
                }
            }
            claims.push(slots);
        }
        Ok(claims)
    }

    /// Waits for the oldest unit and delivers the batches that it completes.
    async fn deliver_oldest(&mut self) -> Result<()> {
        let Some(mut reading) = self.reading.pop_front() else { return Ok(()) };
        let read = (&mut reading.task.0).await;
        let (parts, mut spans) = read.map_err(|source| match source.is_cancelled() {
            true => stoker_chunks::Error::ShuttingDown.into(),
            false => Error::Internal { reason: format!("a reading task failed: {source}") },
        })??;
        let Some(first) = self.builders.front().map(|builder| builder.step) else { return Ok(()) };
        let begun = Instant::now();
        for mut part in parts {
            let builder = &mut self.builders[(part.step - first) as usize];
            if !part.bad.is_empty() {
                let visits = &reading.visits[part.range.clone()];
                part = match self.bad_rows {
                    BadRows::Error => return Err(self.plan.bad_row(&part)),
                    BadRows::Substitute => {
                        substitutes(&self.plan, &self.order, &self.scan, visits, part, builder).await?
                    }
                };
            }
            builder.add(part);
        }
        spans.decode += begun.elapsed();
        let schema = self.plan.schema();
        while let Some(builder) = self.builders.pop_front_if(|builder| builder.step < reading.complete_below) {
            let held = self.held.pop_front_if(|(step, _)| *step == builder.step).map(|(_, held)| held);
            let begun = Instant::now();
            let (batch, bytes) = builder.finish(&self.plan.inner, &self.slice, &schema)?;
            spans.decode += begun.elapsed();
            let gone = |_| Error::Internal { reason: "nobody takes the batches".into() };
            self.output.send(Ok(Delivered { batch, bytes, spans, _held: held })).await.map_err(gone)?;
        }
        Ok(())
    }
}

/// Reads the rows of a unit: dense columns into `claims`, the others as parts. `steps` gives the batch of each row. Tells what the
/// time went to as well.
async fn read_unit(
    plan: StreamPlan,
    scan: ChunkScan,
    visits: Arc<[Visit]>,
    steps: Vec<u64>,
    claims: Vec<Vec<SlotMut>>,
) -> Result<(Vec<Part>, Stalls)> {
    let clock = UnitClock::start();
    let parts = split(read_rows(&plan.inner, &scan, &clock, &visits, claims).await?, &steps);
    Ok((parts, clock.spans()))
}

/// Cuts the rows of a unit at the borders of batches.
fn split(rows: Rows, steps: &[u64]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut start = 0;
    for run in steps.chunk_by(|one, next| one == next) {
        let range = start..start + run.len();
        parts.push(Part {
            step: run[0],
            light: rows.light.iter().map(|array| Some(array.as_ref()?.slice(start, run.len()))).collect(),
            addrs: rows.addrs.iter().map(|addrs| addrs[range.clone()].to_vec()).collect(),
            bad: rows.bad.range(range.clone()).map(|(place, damage)| (place - start, damage.clone())).collect(),
            range,
        });
        start += run.len();
    }
    parts
}

/// A task that ends when nobody waits for it.
pub(crate) struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
