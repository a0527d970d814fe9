//! Gathers rows of dense columns.

use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use futures::future::try_join;
use stoker_batch::{BufferPool, SlotMut, Slots};
use stoker_clock::Clock;
use stoker_lake::{DenseColumn, RangeReader};
use tokio::task::{JoinError, JoinSet};

use crate::coalesce::{Limits, Read, coalesce, merged};
use crate::local_threads::LocalThreads;
use crate::remote::Remote;
use crate::stats::Asked;
use crate::verify::{addresses, expect};
use crate::{
    BadRow, ChunkCache, Error, IoStats, LocalReads, RequestLimit, Result, RetryPolicy, to_array, with_retries,
};

/// Options of a chunk scan.
#[derive(Clone, Copy, Debug)]
pub struct ChunkScanOptions {
    /// The number of threads that may read local files, or copy and verify rows of blocks, without waiting. Half as
    /// many more threads run in place of those that wait for the disk. Rows of local files that are in the page cache
    /// are read by the tasks that want them.
    pub local_threads: usize,
    /// How local files are read; by default through the page cache.
    pub local_reads: LocalReads,
    /// The maximum number of GETs in flight, within the [`RequestLimit`]; 512 by default, the highest value of that
    /// limit.
    pub remote_requests_max: usize,
    /// The size of the memory pool in bytes. Memory of batches is kept for later batches while used and kept memory
    /// together take at most this many bytes, and up to a sixteenth of it however much is used.
    pub pool_bytes: usize,
    /// How transient faults of object stores are retried.
    pub retry: RetryPolicy,
    /// Whether a GET that takes much longer than others gets a second one; true by default. At most a tenth of the GETs
    /// do.
    pub hedge: bool,
    /// Whether rows are compared with the checksums in their files; true by default.
    pub verify: bool,
}

impl Default for ChunkScanOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            local_threads: threads.clamp(1, 16),
            local_reads: LocalReads::Buffered,
            remote_requests_max: 512,
            pool_bytes: 256 << 20,
            retry: RetryPolicy::default(),
            hedge: true,
            verify: true,
        }
    }
}

/// Limits for object stores: a GET costs a round trip, in which a connection transfers megabytes.
pub(crate) const REMOTE: Limits =
    Limits { gap_bytes_max: 128 << 10, free_gap_bytes: 0, waste_divisor: 1, read_bytes_max: 8 << 20 };

/// Reads rows of dense columns. Cheap to clone; clones share limits, memory and counters.
#[derive(Clone, Debug)]
pub struct ChunkScan {
    pool: BufferPool,
    stats: Arc<IoStats>,
    local: LocalThreads,
    local_reads: LocalReads,
    remote: Arc<Remote>,
    cache: Option<ChunkCache>,
    retry: RetryPolicy,
    clock: Clock,
    verify: bool,
}

impl ChunkScan {
    /// Makes a chunk scan with limits and counters of its own.
    pub fn new(options: ChunkScanOptions) -> Self {
        Self::sharing(options, BufferPool::new(options.pool_bytes), &RequestLimit::default())
    }

    /// Makes a chunk scan with counters of its own, which takes memory from `pool`, and permits and the clock from
    /// `requests`.
    pub fn sharing(options: ChunkScanOptions, pool: BufferPool, requests: &RequestLimit) -> Self {
        let stats = Arc::<IoStats>::default();
        Self {
            pool,
            // While one thread waits for a page or hands over what it read, another thread reads in its place.
            local: LocalThreads::new(options.local_threads + options.local_threads.div_ceil(2)),
            local_reads: options.local_reads,
            remote: Arc::new(Remote::new(&options, requests, stats.clone())),
            stats,
            cache: None,
            retry: options.retry,
            clock: requests.clock().clone(),
            verify: options.verify,
        }
    }

    /// Returns the same scan with a cache for the blocks that it reads from object stores.
    #[must_use]
    pub fn with_cache(self, cache: Option<ChunkCache>) -> Self {
        Self { cache, ..self }
    }

    /// Returns whether the scan has a cache.
    pub fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    pub(crate) fn cache(&self) -> Option<&ChunkCache> {
        self.cache.as_ref()
    }

    /// The pool from which batches take their memory.
    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// How local files are read.
    pub fn local_reads(&self) -> LocalReads {
        self.local_reads
    }

    /// How transient faults are retried.
    pub fn retry(&self) -> RetryPolicy {
        self.retry
    }

    /// The clock by which the scan retries.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time from the begin of a GET to its first byte, if the stores were idle. `None` before the first GETs are
    /// complete, and where only local files are read.
    pub fn latency(&self) -> Option<Duration> {
        self.remote.latency()
    }

    /// The counters of requests and bytes.
    pub fn stats(&self) -> &Arc<IoStats> {
        &self.stats
    }

    /// Returns whether rows are compared with their checksums.
    pub fn verifies(&self) -> bool {
        self.verify
    }

    /// Fills slots with the rows at these addresses, in the order that is best to read. Each entry of `rows` is a run: the
    /// address of its first row, and claimed slots of *n* rows, which want the rows at *n* consecutive addresses of one
    /// fragment. Runs may overlap, so that several slots want the same row. Long runs cost less time than their rows one
    /// by one.
    ///
    /// Returns the damaged rows one by one, by address, with their slots; all other slots are filled. A row that does not match
    /// its checksum is read a second time first, past caches. Rows without a checksum are not checked.
    ///
    /// Dropping the future stops it after the reads in flight.
    ///
    /// # Errors
    /// [`Error::UnknownRow`]; [`Error::Internal`] for a run that crosses the end of a fragment's addresses, and for slots
    /// that do not have the size of the column's rows; storage errors after the retries of transient faults.
    pub async fn gather(
        &self,
        name: &str,
        column: &Arc<DenseColumn>,
        rows: Vec<(u64, SlotMut)>,
    ) -> Result<Vec<BadRow>> {
        let Some((address, _)) = rows.first() else { return Ok(Vec::new()) };
        let first = column.file((address >> 32) as u32);
        let first = first.ok_or_else(|| Error::UnknownRow { address: *address, column: name.to_string() })?;
        if first.reader.local().is_some() {
            return self.gather_local(name, column, rows).await;
        }
        let mut reads = coalesce(name, column, rows, REMOTE)?;
        if reads.len() == 1
            && let Some(read) = reads.pop()
        {
            return self.gather_remote(name, column, read).await;
        }
        // Each read is a task of its own, so that several threads receive bodies.
        let mut tasks = JoinSet::new();
        for read in reads {
            let (scan, name, column) = (self.clone(), name.to_string(), column.clone());
            tasks.spawn(async move { scan.gather_remote(&name, &column, read).await });
        }
        all_bad(tasks).await
    }

    /// Reads the rows at these addresses, in this order, into an array of the column's type.
    ///
    /// # Errors
    /// As for [`ChunkScan::gather`]; [`Error::BadRow`] if a row is damaged.
    pub async fn column(&self, name: &str, column: &Arc<DenseColumn>, addresses: &[u64]) -> Result<ArrayRef> {
        let slots = Slots::try_new(&self.pool, addresses.len(), column.row_bytes)?;
        let (mut rows, mut row) = (Vec::new(), 0);
        // The rows at consecutive addresses are one run.
        for run in addresses.chunk_by(|one, next| one.checked_add(1) == Some(*next) && one >> 32 == next >> 32) {
            let Some(first) = run.first() else { continue };
            rows.push((*first, slots.claim_rows(row..row + run.len())?));
            row += run.len();
        }
        if let Some(bad) = self.gather(name, column, rows).await?.into_iter().next() {
            return Err(bad.into_error(name));
        }
        to_array(&column.data_type, addresses.len(), slots.freeze()?)
    }

    async fn gather_remote(&self, name: &str, column: &Arc<DenseColumn>, mut read: Read) -> Result<Vec<BadRow>> {
        let addresses = addresses(slice::from_ref(&read));
        let checksums = self.checksums(column, &addresses);
        let hashes = self.verify && column.checksums.is_some();
        let (_, checksums) = try_join(self.read_remote(column, &mut read, hashes), checksums).await?;
        expect(slice::from_mut(&mut read), checksums)?;
        if !read.is_checked() {
            read.finish();
            return Ok(Vec::new());
        }
        // The checksums of the rows were computed when their bytes arrived.
        let suspects = read.take_suspects(&self.stats)?;
        read.finish();
        self.read_again(name, column, suspects).await
    }

    /// Reads a range of a file in an object store; `hashes` as for [`Remote::read`].
    pub(crate) async fn read_remote(&self, column: &DenseColumn, read: &mut Read, hashes: bool) -> Result<()> {
        let Some(file) = column.file(read.fragment) else {
            return Err(Error::Internal { reason: format!("fragment {} is unknown", read.fragment) });
        };
        self.remote.read(&file.reader, read, hashes).await?;
        self.stats.add_read(Asked { requests: 1, bytes: read.length }, read.used_bytes());
        Ok(())
    }

    /// Reads a range of a file in an object store, which is not empty, into memory of the pool.
    pub(crate) async fn read_store(&self, reader: &RangeReader, range: Range<u64>) -> Result<Buffer> {
        let bytes = range.end.saturating_sub(range.start);
        let read = self.remote.read_range(reader, range, &self.pool).await?;
        self.stats.add_read(Asked { requests: 1, bytes }, bytes);
        Ok(read)
    }

    /// Returns the checksums of the rows at these addresses; an empty vector if rows are not verified.
    pub(crate) async fn checksums(&self, column: &DenseColumn, addresses: &[u64]) -> Result<Vec<Option<u32>>> {
        let Some(checksums) = column.checksums.as_ref().filter(|_| self.verify) else { return Ok(Vec::new()) };
        let load = || checksums.load(addresses);
        with_retries(self.retry, &self.clock, |_| self.stats.add_retry(), load).await
    }

    /// Reads rows that do not match their checksums a second time, past caches. Each of `suspects` has one row. Returns
    /// those that do not match again.
    pub(crate) async fn read_again(
        &self,
        name: &str,
        column: &Arc<DenseColumn>,
        suspects: Vec<Read>,
    ) -> Result<Vec<BadRow>> {
        let mut bad = Vec::new();
        for mut read in merged(suspects, REMOTE) {
            let (Some(file), Some(checksums)) = (column.file(read.fragment), &column.checksums) else {
                return Err(Error::Internal { reason: format!("fragment {} has no checksums", read.fragment) });
            };
            // The checksums in memory may be wrong too, so they are read again as well.
            let addresses = addresses(slice::from_ref(&read));
            let reload = || checksums.reload(&addresses);
            let expected = with_retries(self.retry, &self.clock, |_| self.stats.add_retry(), reload).await?;
            expect(slice::from_mut(&mut read), expected)?;
            match file.reader.local() {
                Some(_) => read = self.read_past_cache(&file.reader, read).await?,
                None => self.read_remote(column, &mut read, true).await?,
            }
            let failed = read.take_suspects(&self.stats)?;
            (failed.len()..addresses.len()).for_each(|_| self.stats.add_retry());
            read.finish();
            for read in failed {
                let expected = read.first_checksum().unwrap_or_default();
                for piece in read.pieces {
                    self.stats.add_bad_row();
                    bad.push(BadRow::new(piece, expected, name, file.reader.place()));
                }
            }
        }
        Ok(bad)
    }

    /// The threads for local reads.
    #[cfg(test)]
    pub(crate) fn local_threads(&self) -> &LocalThreads {
        &self.local
    }

    /// Runs work that blocks or takes long on a thread for local reads.
    pub(crate) async fn on_local_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.local.run(work).await
    }
}

/// Waits for tasks that gather rows. Returns the damaged rows in the order of their addresses. Dropping the future
/// stops all tasks.
///
/// # Errors The error of the first task that fails.
pub(crate) async fn all_bad(mut tasks: JoinSet<Result<Vec<BadRow>>>) -> Result<Vec<BadRow>> {
    let mut bad = Vec::new();
    while let Some(done) = tasks.join_next().await {
        bad.extend(done.map_err(task_failed)??);
    }
    bad.sort_by_key(|row: &BadRow| row.address);
    Ok(bad)
}

fn task_failed(source: JoinError) -> Error {
    match source.is_cancelled() {
        true => Error::ShuttingDown,
        false => Error::Internal { reason: format!("a reading task failed: {source}") },
    }
}
