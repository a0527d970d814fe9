//! The task that turns positions into reads.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use stoker_chunks::{ChunkScan, SlotMut};
use stoker_order::{StreamOrder, Visit};
use stoker_types::Slice;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::batch_builder::{BatchBuilder, Builders, Delivered, Part};
use crate::plan::StreamPlan;
use crate::read::{Rows, read_rows};
use crate::substitute::substitutes;
use crate::unit::Units;
use crate::{BadRows, Error, ReadOptions, Result};

/// Units that are being read at once.
const UNITS_AT_ONCE: usize = 2;

/// A budget permit stands for so many bytes: semaphores count to 2^32.
const PERMIT_BYTES: u64 = 4 << 10;

/// Plans units, reads them and delivers batches in order.
pub(crate) struct Planner {
    plan: StreamPlan,
    slice: Slice,
    order: StreamOrder,
    bad_rows: BadRows,
    scan: ChunkScan,
    budget: Arc<Semaphore>,
    budget_permits: u32,
    output: mpsc::Sender<Result<Delivered>>,
    builders: Builders,
    /// Permits for batches that are not delivered yet, oldest first: step and permit.
    permits: VecDeque<(u64, OwnedSemaphorePermit)>,
    /// The sum of them.
    permits_held: u32,
    reading: VecDeque<Reading>,
    next_step: u64,
    num_steps: u64,
}

struct Reading {
    task: AbortOnDrop<Result<Vec<Part>>>,
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
        options: &ReadOptions,
        scan: ChunkScan,
        output: mpsc::Sender<Result<Delivered>>,
    ) -> Self {
        let spec = plan.spec();
        let order = plan.inner.orders.epoch(slice.epoch);
        let budget_permits = u32::try_from((options.memory_budget_bytes / PERMIT_BYTES).max(1)).unwrap_or(u32::MAX);
        let num_steps = slice.num_steps(spec.num_rows);
        Self {
            order,
            bad_rows: options.bad_rows,
            scan,
            budget: Arc::new(Semaphore::new(budget_permits as usize)),
            budget_permits,
            output,
            builders: Builders::new(),
            permits: VecDeque::new(),
            permits_held: 0,
            reading: VecDeque::new(),
            next_step: slice.first_step,
            num_steps,
            plan,
            slice,
        }
    }

    /// Reads everything; errors are delivered in place of the batch that they stand in the way of.
    pub async fn run(mut self) {
        if let Err(error) = self.read_all().await {
            // A closed channel means that nobody waits any more.
            self.output.send(Err(error)).await.ok();
        }
    }

    async fn read_all(&mut self) -> Result<()> {
        let row_bytes = self.plan.row_bytes();
        let world = u64::from(self.slice.topology.world_size);
        let budget = u64::from(self.budget_permits) * PERMIT_BYTES;
        let mut units =
            Units::new(&self.slice, self.plan.num_rows(), row_bytes, budget, !self.plan.inner.reads_rows_alone());
        while let Some(unit) = units.next(&self.order, row_bytes, world) {
            while self.reading.len() >= UNITS_AT_ONCE {
                self.deliver_oldest().await?;
            }
            self.start(unit).await?;
        }
        while !self.reading.is_empty() {
            self.deliver_oldest().await?;
        }
        Ok(())
    }

    /// Opens the batches that begin in a unit and starts to read its rows.
    async fn start(&mut self, unit: Range<u64>) -> Result<()> {
        let num_rows = self.plan.num_rows();
        while self.next_step < self.num_steps && self.slice.positions(self.next_step, num_rows).start < unit.end {
            self.reserve(self.next_step).await?;
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
        self.reading.push_back(Reading { task: AbortOnDrop(tokio::spawn(task)), visits, complete_below });
        Ok(())
    }

    /// Waits until the budget has room for a batch. A batch larger than the budget gets all of it; what batches that cannot be
    /// delivered before this one hold is not waited for.
    async fn reserve(&mut self, step: u64) -> Result<()> {
        let rows = self.slice.share(step, self.plan.num_rows()).num_rows;
        let wanted = (rows.saturating_mul(self.plan.row_bytes())).div_ceil(PERMIT_BYTES);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, self.budget_permits);
        loop {
            let left = self.budget_permits - self.permits_held;
            let permits = if self.reading.is_empty() { wanted.min(left) } else { wanted };
            match self.budget.clone().try_acquire_many_owned(permits) {
                Ok(permit) => {
                    self.hold(step, permit);
                    return Ok(());
                }
                // Batches that are being read hold the budget: deliver them first, which frees it once they are taken.
                Err(_) if !self.reading.is_empty() => self.deliver_oldest().await?,
                Err(_) => {
                    let closed = |_| Error::Internal { reason: "the budget is closed".into() };
                    let permit = self.budget.clone().acquire_many_owned(permits).await.map_err(closed)?;
                    self.hold(step, permit);
                    return Ok(());
                }
            }
        }
    }

    fn hold(&mut self, step: u64, permit: OwnedSemaphorePermit) {
        self.permits_held += permit.num_permits() as u32;
        self.permits.push_back((step, permit));
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
        let parts = (&mut reading.task.0).await;
        let parts = parts.map_err(|source| match source.is_cancelled() {
            true => stoker_chunks::Error::ShuttingDown.into(),
            false => Error::Internal { reason: format!("a reading task failed: {source}") },
        })??;
        let Some(first) = self.builders.front().map(|builder| builder.step) else { return Ok(()) };
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
        let schema = self.plan.schema();
        while let Some(builder) = self.builders.pop_front_if(|builder| builder.step < reading.complete_below) {
            let permit = self.permits.pop_front_if(|(step, _)| *step == builder.step).map(|(_, permit)| permit);
            self.permits_held -= permit.as_ref().map_or(0, |permit| permit.num_permits() as u32);
            let (batch, bytes) = builder.finish(&self.plan.inner, &self.slice, &schema)?;
            let gone = |_| Error::Internal { reason: "nobody takes the batches".into() };
            self.output.send(Ok(Delivered { batch, bytes, _permit: permit })).await.map_err(gone)?;
        }
        Ok(())
    }
}

/// Reads the rows of a unit: dense columns into `claims`, the others as parts. `steps` gives the batch of each row.
async fn read_unit(
    plan: StreamPlan,
    scan: ChunkScan,
    visits: Arc<[Visit]>,
    steps: Vec<u64>,
    claims: Vec<Vec<SlotMut>>,
) -> Result<Vec<Part>> {
    Ok(split(read_rows(&plan.inner, &scan, &visits, claims).await?, &steps))
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
