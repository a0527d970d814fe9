//! Reads one or several epochs of a session, and measures bytes, seconds and processor time.

use std::pin::Pin;
use std::time::{Duration, Instant};

use stoker::Session;
use stoker::session::{Fetched, Left, PassId};
use stoker_types::{StreamState, StreamStats};

use crate::process::process_use;

/// What is done with a batch that was read.
type Taken<'a> = dyn FnMut(&Fetched) -> anyhow::Result<()> + 'a;

/// A session to read, and how much of it.
pub struct Drain<'a> {
    /// The session.
    pub session: &'a Session,
    /// The number of epochs, which are read one after the other.
    pub epochs: u64,
    /// The maximum number of batches of an epoch; `None` for all.
    pub max_batches: Option<u64>,
}

/// The outcome of reading a session.
pub struct Drained {
    /// The state after the last batch.
    pub state: StreamState,
    /// The counters of all epochs.
    pub stats: StreamStats,
    /// The number of rows that stand in for bad rows.
    pub substituted_rows: usize,
    /// The time of all epochs.
    pub elapsed: Duration,
    /// The usage from the end of the first epoch to the end of the last one; `None` for one epoch.
    pub steady: Option<Steady>,
}

/// The usage of some of the epochs.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// The bytes that were delivered.
    pub bytes: u64,
    /// The time that they took.
    pub elapsed: Duration,
    /// Processor time of this process in seconds.
    pub cpu_secs: f64,
}

impl Drain<'_> {
    /// Reads all batches, as fast as they arrive, and calls `taken` with each of them.
    ///
    /// # Errors
    /// Those of the session and of `taken`.
    pub async fn run(self, taken: &mut Taken<'_>) -> anyhow::Result<Drained> {
        let mut state = self.session.state_in_epoch();
        let (mut stats, mut substituted_rows) = (StreamStats::default(), 0);
        let mut first_epoch: Option<Steady> = None;
        let started = Instant::now();
        for epoch in 0..self.epochs {
            self.session.set_opens_ahead(epoch + 1 < self.epochs);
            let pass = self.session.enter()?;
            let left = self.read_epoch(pass, &mut substituted_rows, taken).await?;
            add(&mut stats, &self.session.stats());
            state = self.session.state_in_epoch();
            self.session.leave(pass, left)?;
            first_epoch.get_or_insert_with(|| Steady::since(stats.bytes, started));
        }
        let whole = Steady::since(stats.bytes, started);
        let first_epoch = first_epoch.filter(|_| self.epochs > 1);
        Ok(Drained {
            state,
            stats,
            substituted_rows,
            elapsed: whole.elapsed,
            steady: first_epoch.map(|first| whole.without(first)),
        })
    }

    /// Reads the rest of an epoch, and adds the number of its substituted rows.
    ///
    /// The future of a session contains those of all layers down to Lance. It is boxed, so that only this crate is
    /// compiled with a recursion limit for so deep a type.
    fn read_epoch<'a>(
        &'a self,
        pass: PassId,
        substituted_rows: &'a mut usize,
        taken: &'a mut Taken<'_>,
    ) -> Pin<Box<dyn Future<Output = anyhow::Result<Left>> + 'a>> {
        Box::pin(async move {
            let mut num_taken = 0;
            while self.max_batches.is_none_or(|max| num_taken < max) {
                let Some(fetched) = self.session.next(pass).await? else { return Ok(Left::AtEnd) };
                self.session.advance(fetched.key).await?;
                num_taken += 1;
                *substituted_rows += fetched.batch.substituted.len();
                taken(&fetched)?;
                if fetched.key.is_last {
                    return Ok(Left::AtEnd);
                }
            }
            Ok(Left::Early)
        })
    }
}

impl Steady {
    /// Returns the time and the processor time that `bytes` took, from `started` until now.
    fn since(bytes: u64, started: Instant) -> Self {
        Self { bytes, elapsed: started.elapsed(), cpu_secs: process_use(std::process::id()).cpu_secs }
    }

    /// Subtracts the usage of the first epoch.
    fn without(self, first: Self) -> Self {
        Self {
            bytes: self.bytes - first.bytes,
            elapsed: self.elapsed - first.elapsed,
            cpu_secs: self.cpu_secs - first.cpu_secs,
        }
    }
}

/// Adds the counters of a further epoch; `first_batch_nanos` stays that of the first epoch.
fn add(total: &mut StreamStats, epoch: &StreamStats) {
    total.rows += epoch.rows;
    total.bytes += epoch.bytes;
    total.batches += epoch.batches;
    total.requests += epoch.requests;
    total.bytes_read += epoch.bytes_read;
    total.retries += epoch.retries;
    total.hedges += epoch.hedges;
    total.request_limit = epoch.request_limit;
    total.verified_bytes += epoch.verified_bytes;
    total.cache_hit_bytes += epoch.cache_hit_bytes;
    total.cache_miss_bytes += epoch.cache_miss_bytes;
    total.cache_damaged += epoch.cache_damaged;
    total.wait_nanos += epoch.wait_nanos;
    total.stalls += epoch.stalls;
    total.last_step = epoch.last_step;
    total.first_batch_nanos = total.first_batch_nanos.or(epoch.first_batch_nanos);
}
