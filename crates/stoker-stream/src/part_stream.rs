//! The consumer's end of a stream.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use stoker_batch::{Part, Quota, StallMeter};
use stoker_chunks::{IoStats, RequestLimit};
use stoker_clock::Clock;
use stoker_types::{Moment, ReadOptions, Slice, StreamStats, to_nanos, to_usize};
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::abort_on_drop::AbortOnDrop;
use crate::blocks::{are_kept, group};
use crate::light_blocks::LightInUse;
use crate::open_streams::OpenEntry;
use crate::options::chunk_scan;
use crate::part_builder::Delivered;
use crate::part_plan::PartSize;
use crate::planner::{Planner, Share};
use crate::resident::ResidentMemory;
use crate::{Error, Resources, Result, StreamPlan};

/// The largest number of finished parts that wait for the consumer. The memory budget limits their bytes.
const QUEUE_PARTS: usize = 64;

/// The same number for parts that are to stay in a processor's cache until the consumer takes them. Two parts are
/// enough to take one while the next one is finished.
const QUEUE_PARTS_CACHED: usize = 2;

/// The bytes of finished parts that wait for the consumer where rows are resident when they are due, or one part. One
/// part is ready while another one is copied.
const QUEUE_BYTES_RESIDENT: u64 = 16 << 20;

/// The parts of a rank's batches, in order. It prefetches within its quota of a memory budget. Dropping it cancels all
/// of its reads.
pub struct PartStream {
    input: mpsc::Receiver<Result<Delivered>>,
    io: Arc<IoStats>,
    requests: RequestLimit,
    /// The statistics that are counted at the consumer's end.
    counted: StreamStats,
    stalls: StallMeter,
    clock: Clock,
    opened: Moment,
    num_steps: u64,
    /// The number of batches that were not delivered completely. It is set to zero after an error.
    missing: u64,
    schema: SchemaRef,
    quota: Quota,
    resident: Option<Arc<ResidentMemory>>,
    open: OpenEntry,
    _light: LightInUse,
    _planner: AbortOnDrop<()>,
    _holding: AbortOnDrop<()>,
}

impl PartStream {
    pub(crate) fn start(
        plan: StreamPlan,
        slice: Slice,
        options: &ReadOptions,
        resources: &Resources,
        part_size: PartSize,
    ) -> Self {
        let cache = resources.cache().filter(|_| are_kept(&plan)).cloned();
        let scan = chunk_scan(options, resources).with_cache(cache);
        let blocks = group(&plan, &slice).map(|(group, ranks)| resources.share(group, slice.topology.rank, ranks));
        let (mut options, budget) = (*options, resources.memory());
        let resident = plan.inner.has_resident_rows(&options).then(|| {
            let (memory, left) = ResidentMemory::divided(budget, resources.resident(), options.memory_budget_bytes);
            options.memory_budget_bytes = left;
            Arc::new(memory)
        });
        let quota = budget.join_with(&options);
        let queue = match part_size {
            _ if part_size.stays_cached(&plan.inner) => QUEUE_PARTS_CACHED,
            _ if resident.is_some() => {
                let rows = slice.rows_per_batch().min(part_size.rows_max(plan.row_bytes()));
                to_usize(QUEUE_BYTES_RESIDENT / rows.saturating_mul(plan.row_bytes()).max(1)).clamp(1, QUEUE_PARTS)
            }
            _ => QUEUE_PARTS,
        };
        let (output, input) = mpsc::channel(queue);
        let io = scan.stats().clone();
        let num_steps = slice.num_steps(plan.num_rows());
        let missing = num_steps.saturating_sub(slice.first_step);
        let schema = plan.schema();
        let share = Share { quota: quota.clone(), resident: resident.clone(), blocks };
        let open = resources.opened(plan.inner.stream_id, slice, quota.clone(), resident.clone());
        let light = LightInUse::begin(plan.inner.sources.clone());
        let holding = AbortOnDrop(tokio::spawn(plan.clone().keep_held(resources.clock().clone())));
        let span = tracing::info_span!(
            "read",
            stream_id = %plan.inner.stream_id,
            epoch = slice.epoch,
            rank = slice.topology.rank,
            world_size = slice.topology.world_size,
        );
        let reading = async move {
            let first = slice.positions(slice.first_step, plan.num_rows()).start;
            match plan.reaching(slice.epoch, first).await {
                Ok(plan) => {
                    let plan = plan.estimated(&scan).await;
                    Planner::new(plan, slice, options, part_size, scan, share, output).run().await;
                }
                Err(error) => {
                    share.quota.retire();
                    // If the channel is closed, the consumer has dropped the stream.
                    output.send(Err(error)).await.ok();
                }
            }
        };
        let planner = AbortOnDrop(tokio::spawn(reading.instrument(span)));
        Self {
            input,
            io,
            requests: resources.requests().clone(),
            counted: StreamStats::default(),
            stalls: StallMeter::default(),
            clock: resources.clock().clone(),
            opened: resources.clock().now(),
            num_steps,
            missing,
            schema,
            quota,
            resident,
            open,
            _light: light,
            _planner: planner,
            _holding: holding,
        }
    }

    /// Returns the next part, or `None` after the last part of the last batch.
    ///
    /// Cancelling the future loses nothing.
    ///
    /// # Errors
    /// The error that prevented the next part. The stream ends with it.
    pub async fn next(&mut self) -> Result<Option<Part>> {
        if self.missing == 0 {
            return Ok(None);
        }
        self.stalls.asked(self.clock.now());
        let stopped = || Error::Internal { reason: "the task that reads ahead stopped early".into() };
        let delivered = self.input.recv().await.unwrap_or_else(|| Err(stopped()));
        let Delivered { part, bytes, spans, _held } = delivered.inspect_err(|_| self.missing = 0)?;
        let now = self.clock.now();
        let waited = self.stalls.taken_part(now, &spans);
        self.counted.wait_nanos += to_nanos(waited);
        self.counted.rows += part.data.num_rows() as u64;
        self.counted.bytes += bytes;
        self.open.count(part.data.num_rows() as u64, bytes);
        if part.is_last() {
            self.missing -= 1;
            self.stalls.end_step();
            let since_opened = now - self.opened;
            self.counted.first_batch_nanos.get_or_insert(to_nanos(since_opened).max(1));
            self.counted.batches += 1;
        }
        Ok(Some(part))
    }

    /// Returns the number of steps from the slice's origin to the end of the epoch. It is the same on all ranks.
    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// Returns the columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Waits until the last rows are being read. Then another stream may be opened beside this one.
    pub fn until_read(&self) -> impl Future<Output = ()> + Send + use<> {
        self.quota.until_retired()
    }

    /// Returns whether the last rows are being read or have been read.
    pub fn is_read(&self) -> bool {
        self.quota.is_retired()
    }

    /// Waits until a prefetching stream reports that it reads nothing, not even its first batch, before it is told to
    /// begin.
    pub fn until_held_back(&self) -> impl Future<Output = ()> + Send + use<> {
        self.quota.until_held_back()
    }

    /// Tells a prefetching stream to begin, with another memory budget. The time to the first batch is counted from now
    /// on.
    pub fn begin(&mut self, memory_budget_bytes: u64) {
        let resident = self.resident.as_ref();
        self.quota.begin(resident.map_or(memory_budget_bytes, |resident| resident.begin(memory_budget_bytes)));
        self.opened = self.clock.now();
    }

    /// Returns the statistics of the stream. Rows and bytes are counted with each part, batches and steps with their
    /// last part.
    pub fn stats(&self) -> StreamStats {
        let mut stats = StreamStats {
            request_limit: self.requests.num_requests() as u64,
            stalls: self.stalls.sum(),
            last_step: self.stalls.last_step(),
            ..self.counted
        };
        stats.add_io(&self.io.totals());
        stats
    }
}
