//! Reads one or several epochs of a session, and reports the rates.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::{Value, json};
use stoker_flight::Session;
use stoker_flight::session::{Left, PassId};
use stoker_types::{StreamState, StreamStats};

use crate::batch_log::BatchLog;
use crate::process::process_use;
use crate::stream::stalls;

/// A session to read, and how much of it.
pub struct Drain<'a> {
    pub session: &'a Session,
    /// The number of epochs, which are read one after the other.
    pub epochs: u64,
    /// The maximum number of batches of an epoch; `None` for all.
    pub max_batches: Option<u64>,
    pub log: Option<BatchLog>,
    pub bar: ProgressBar,
}

/// The outcome of reading a session.
pub struct Drained {
    /// The state after the last batch.
    pub state: StreamState,
    stats: StreamStats,
    substituted_rows: usize,
    elapsed: Duration,
    /// The usage from the end of the first epoch to the end of the last one; `None` for one epoch.
    steady: Option<Steady>,
}

/// The usage of some of the epochs.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    pub bytes: u64,
    pub elapsed: Duration,
    /// Processor time of this process in seconds.
    pub cpu_secs: f64,
}

impl Drain<'_> {
    /// Reads all batches, as fast as they arrive.
    pub async fn run(mut self) -> anyhow::Result<Drained> {
        let mut state = self.session.state_in_epoch();
        let (mut stats, mut substituted_rows) = (StreamStats::default(), 0);
        let mut first_epoch: Option<Steady> = None;
        let started = Instant::now();
        for epoch in 0..self.epochs {
            self.session.set_opens_ahead(epoch + 1 < self.epochs);
            let pass = self.session.enter()?;
            let left = self.read_epoch(pass, &mut substituted_rows).await?;
            add(&mut stats, &self.session.stats());
            state = self.session.state_in_epoch();
            self.session.leave(pass, left)?;
            first_epoch.get_or_insert_with(|| Steady::since(stats.bytes, started));
        }
        let whole = Steady::since(stats.bytes, started);
        self.bar.finish_and_clear();
        self.log.take().map(BatchLog::finish).transpose()?;
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
    async fn read_epoch(&mut self, pass: PassId, substituted_rows: &mut usize) -> anyhow::Result<Left> {
        let mut num_taken = 0;
        while self.max_batches.is_none_or(|max| num_taken < max) {
            let Some(fetched) = self.session.next(pass).await? else { return Ok(Left::AtEnd) };
            self.session.advance(fetched.key).await?;
            num_taken += 1;
            *substituted_rows += fetched.batch.substituted.len();
            if let Some(log) = &mut self.log {
                log.add(&fetched.batch)?;
            }
            if !self.bar.is_hidden() {
                self.bar.set_message(format!("waiting: {}", stalls::line(&self.session.stats().stalls)));
            }
            self.bar.inc(1);
            if fetched.key.is_last {
                return Ok(Left::AtEnd);
            }
        }
        Ok(Left::Early)
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

impl Drained {
    /// Returns the counters of all epochs.
    #[cfg(feature = "bench")]
    pub fn stats(&self) -> &StreamStats {
        &self.stats
    }

    /// Returns the bytes and the time of all epochs.
    #[cfg(feature = "bench")]
    pub fn whole(&self) -> (u64, Duration) {
        (self.stats.bytes, self.elapsed)
    }

    /// Returns the usage from the end of the first epoch to the end of the last one; `None` for one epoch.
    #[cfg(feature = "bench")]
    pub fn steady(&self) -> Option<Steady> {
        self.steady
    }

    /// Breaks down the time of the steps, for people.
    pub fn stalls(&self) -> String {
        stalls::line(&self.stats.stalls)
    }

    /// Returns the report of `epochs` epochs that have `steps` batches together; planning the stream took `planned`.
    pub fn report(&self, session: &Session, epochs: u64, steps: u64, planned: Duration) -> Value {
        let usage = process_use(std::process::id());
        let (stats, secs) = (&self.stats, self.elapsed.as_secs_f64().max(1e-9));
        let mut report = json!({
            "stream_id": session.stream_id().to_string(),
            "rows_in_epoch": session.spec().num_rows,
            "steps": steps,
            "rows": stats.rows,
            "bytes": stats.bytes,
            "plan_secs": rounded(planned.as_secs_f64()),
            "first_batch_secs": stats.first_batch_nanos.map(|nanos| rounded(nanos as f64 / 1e9)),
            "secs": rounded(secs),
            "samples_per_sec": rounded(stats.rows as f64 / secs),
            "megabytes_per_sec": rounded(stats.bytes as f64 / 1e6 / secs),
            "wait_share": rounded(stats.wait_nanos as f64 / 1e9 / secs),
            "stalls": stalls::object(&stats.stalls),
            "requests": stats.requests,
            "bytes_read": stats.bytes_read,
            "cache_hit_bytes": stats.cache_hit_bytes,
            "cache_miss_bytes": stats.cache_miss_bytes,
            "cache_damaged": stats.cache_damaged,
            "retries": stats.retries,
            "request_limit": stats.request_limit,
            "cpu_secs": rounded(usage.cpu_secs),
            "peak_memory_bytes": usage.peak_bytes,
            "substituted_rows": self.substituted_rows,
        });
        if let Some(Steady { bytes, elapsed, cpu_secs }) = self.steady {
            report["epochs"] = epochs.into();
            report["steady_bytes"] = bytes.into();
            // The seconds are not rounded: for a small table, rounding would distort the rate.
            report["steady_secs"] = elapsed.as_secs_f64().into();
            report["steady_cpu_secs"] = cpu_secs.into();
        }
        report
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
