//! The task that turns positions into reads.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use futures::future::try_join_all;
use stoker_chunks::{ChunkScan, SlotMut};
use stoker_order::EpochOrder;
use stoker_sql::NO_ROW;
use stoker_types::Slice;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::batch_builder::{BatchBuilder, Builders, Delivered, Part};
use crate::plan::{ColumnPlan, StreamPlan};
use crate::unit::Units;
use crate::{Error, ReadOptions, Result};

/// Units that are being read at once.
const UNITS_AT_ONCE: usize = 2;

/// A budget permit stands for so many bytes: semaphores count to 2^32.
const PERMIT_BYTES: u64 = 4 << 10;

/// Plans units, reads them and delivers batches in order.
pub(crate) struct Planner {
    plan: StreamPlan,
    slice: Slice,
    order: EpochOrder,
    scan: ChunkScan,
    budget: Arc<Semaphore>,
    budget_permits: u32,
    output: mpsc::Sender<Result<Delivered>>,
    builders: Builders,
    /// Permits for batches that are not delivered yet, oldest first: step and permit.
    permits: VecDeque<(u64, OwnedSemaphorePermit)>,
    reading: VecDeque<Reading>,
    next_step: u64,
    num_steps: u64,
}

struct Reading {
    task: AbortOnDrop<Result<Vec<Part>>>,
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
        let order = EpochOrder::new(spec.num_rows, &spec.order, spec.seed, slice.epoch);
        let budget_permits = u32::try_from((options.memory_budget_bytes / PERMIT_BYTES).max(1)).unwrap_or(u32::MAX);
        let num_steps = slice.num_steps(spec.num_rows);
        Self {
            order,
            scan,
            budget: Arc::new(Semaphore::new(budget_permits as usize)),
            budget_permits,
            output,
            builders: Builders::new(),
            permits: VecDeque::new(),
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
        let mut units = Units::new(&self.slice, self.plan.num_rows(), row_bytes, budget, !self.plan.reads_rows_alone());
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
        let mut ordinals = Vec::with_capacity(entries.len());
        self.order.ordinals(entries.iter().map(|entry| entry.position), &mut ordinals);
        let claims = self.claim(&entries)?;
        let steps = entries.iter().map(|entry| entry.step).collect();
        let task = read_unit(self.plan.clone(), self.scan.clone(), ordinals, steps, claims);
        let complete_below =
            self.builders.iter().map(|b| b.step).find(|step| self.slice.positions(*step, num_rows).end > unit.end);
        let complete_below = complete_below.unwrap_or(self.next_step);
        self.reading.push_back(Reading { task: AbortOnDrop(tokio::spawn(task)), complete_below });
        Ok(())
    }

    /// Waits until the budget has room for a batch. A batch larger than the budget gets all of it; what batches that cannot be
    /// delivered before this one hold is not waited for.
    async fn reserve(&mut self, step: u64) -> Result<()> {
        let rows = self.slice.share(step, self.plan.num_rows()).num_rows;
        let wanted = (rows.saturating_mul(self.plan.row_bytes())).div_ceil(PERMIT_BYTES);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, self.budget_permits);
        loop {
            let held = self.permits.iter().map(|(_, permit)| permit.num_permits() as u32).sum::<u32>();
            let permits = if self.reading.is_empty() { wanted.min(self.budget_permits - held) } else { wanted };
            match self.budget.clone().try_acquire_many_owned(permits) {
                Ok(permit) => {
                    self.permits.push_back((step, permit));
                    return Ok(());
                }
                // Batches that are being read hold the budget: deliver them first, which frees it once they are taken.
                Err(_) if !self.reading.is_empty() => self.deliver_oldest().await?,
                Err(_) => {
                    let closed = |_| Error::Internal { reason: "the budget is closed".into() };
                    let permit = self.budget.clone().acquire_many_owned(permits).await.map_err(closed)?;
                    self.permits.push_back((step, permit));
                    return Ok(());
                }
            }
        }
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

    /// For each dense column, the slots of the entries, in order.
    fn claim(&self, entries: &[Entry]) -> Result<Vec<Vec<SlotMut>>> {
        let Some(first) = self.builders.front().map(|builder| builder.step) else { return Ok(Vec::new()) };
        let mut claims = Vec::with_capacity(self.plan.inner.columns.len());
        for column in 0..self.plan.inner.columns.len() {
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
        for part in parts {
            let index = (part.step - first) as usize;
            self.builders[index].add(part);
        }
        let schema = self.plan.schema();
        while let Some(builder) = self.builders.pop_front_if(|builder| builder.step < reading.complete_below) {
            let permit = self.permits.pop_front_if(|(step, _)| *step == builder.step).map(|(_, permit)| permit);
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
    ordinals: Vec<u64>,
    steps: Vec<u64>,
    claims: Vec<Vec<SlotMut>>,
) -> Result<Vec<Part>> {
    let plan = &plan.inner;
    let mut unique = ordinals.clone();
    unique.sort_unstable();
    unique.dedup();
    let resolved = plan.row_set.resolve(&unique).await?;
    let rows: Vec<u64> =
        ordinals.iter().map(|ordinal| unique.binary_search(ordinal).unwrap_or_default() as u64).collect();
    let mut gathers = Vec::new();
    for (column, slots) in plan.columns.iter().zip(claims) {
        let ColumnPlan::Dense { sources, .. } = column else { continue };
        let mut wanted: Vec<Vec<(u64, SlotMut)>> = sources.iter().map(|_| Vec::new()).collect();
        for (row, slot) in rows.iter().zip(slots) {
            let addr = |(source, ..): &(usize, String, _)| resolved.addrs[*source][*row as usize];
            let Some(supplier) = sources.iter().position(|source| addr(source) != NO_ROW) else {
                return Err(Error::Internal { reason: "a row without a source".into() });
            };
            wanted[supplier].push((addr(&sources[supplier]), slot));
        }
        for ((_, name, dense), wanted) in sources.iter().zip(wanted) {
            gathers.push(scan.gather(name, dense, wanted));
        }
    }
    let light = crate::light::read_light(plan, &resolved, &rows);
    let (light, _) = futures::try_join!(light, async { Ok(try_join_all(gathers).await?) })?;
    Ok(split(&light, &steps, &rows, &resolved.addrs))
}

/// Cuts the light columns and addresses of a unit at the borders of batches.
fn split(light: &[Option<ArrayRef>], steps: &[u64], rows: &[u64], addrs: &[Vec<u64>]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < steps.len() {
        let length = steps[start..].iter().take_while(|step| **step == steps[start]).count();
        let slice = |array: &Option<ArrayRef>| array.as_ref().map(|array| array.slice(start, length));
        let pick = |addrs: &Vec<u64>| rows[start..start + length].iter().map(|row| addrs[*row as usize]).collect();
        parts.push(Part {
            step: steps[start],
            light: light.iter().map(slice).collect(),
            addrs: addrs.iter().map(pick).collect(),
        });
        start += length;
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
