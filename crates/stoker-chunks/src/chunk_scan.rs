//! Gathers rows of dense columns.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use futures::future::try_join_all;
use stoker_lake::DenseColumn;
use tokio::sync::Semaphore;

use crate::coalesce::{Limits, Read, coalesce};
use crate::local::read_local;
use crate::remote::read_remote;
use crate::{BufferPool, Error, IoStats, Result, RetryPolicy, SlotMut, Slots, with_retries};

/// Limits of a chunk scan.
#[derive(Clone, Copy, Debug)]
pub struct ChunkScanOptions {
    /// Threads that read local files at once.
    pub local_threads: usize,
    /// GETs under way at once.
    pub remote_requests_max: usize,
    /// Memory of batches is kept for the next ones while used and kept memory take at most so many bytes together.
    pub pool_bytes: usize,
    /// How transient faults are retried.
    pub retry: RetryPolicy,
}

impl Default for ChunkScanOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            local_threads: threads.clamp(1, 16),
            remote_requests_max: 32,
            pool_bytes: 256 << 20,
            retry: RetryPolicy::default(),
        }
    }
}

/// A system call costs about as much as copying 8 KiB; a GET costs a round trip, in which a connection moves megabytes.
const LOCAL: Limits = Limits { gap_bytes_max: 8 << 10, waste_divisor: 10, read_bytes_max: 8 << 20 };
const REMOTE: Limits = Limits { gap_bytes_max: 128 << 10, waste_divisor: 1, read_bytes_max: 8 << 20 };

/// Bytes that one task reads from local files before it ends; spreads reads over the threads.
const TASK_BYTES: u64 = 4 << 20;

/// Reads rows of dense columns. Cheap to clone; clones share limits, memory and counts.
#[derive(Clone, Debug)]
pub struct ChunkScan {
    pool: BufferPool,
    stats: Arc<IoStats>,
    local: Arc<Semaphore>,
    remote: Arc<Semaphore>,
    retry: RetryPolicy,
}

impl ChunkScan {
    /// A chunk scan with limits and counts of its own.
    pub fn new(options: ChunkScanOptions) -> Self {
        Self {
            pool: BufferPool::new(options.pool_bytes),
            stats: Arc::default(),
            local: Arc::new(Semaphore::new(options.local_threads.max(1))),
            remote: Arc::new(Semaphore::new(options.remote_requests_max.max(1))),
            retry: options.retry,
        }
    }

    /// The pool that batches take their memory from.
    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// The counts of requests and bytes.
    pub fn stats(&self) -> &Arc<IoStats> {
        &self.stats
    }

    /// Fills slots with the rows at these addresses, in whatever order is best to read. Several slots may want the same row.
    ///
    /// Dropping the future stops it after the reads under way.
    ///
    /// # Errors
    /// [`Error::UnknownRow`]; storage errors after the retries of transient faults.
    pub async fn gather(&self, name: &str, column: &Arc<DenseColumn>, rows: Vec<(u64, SlotMut)>) -> Result<()> {
        let Some((address, _)) = rows.first() else { return Ok(()) };
        let first = column.file((address >> 32) as u32);
        let first = first.ok_or_else(|| Error::UnknownRow { address: *address, column: name.to_string() })?;
        if first.reader.local().is_some() {
            let reads = coalesce(name, column, rows, LOCAL)?;
            try_join_all(split(reads).into_iter().map(|reads| self.gather_local(column, reads))).await?;
        } else {
            let reads = coalesce(name, column, rows, REMOTE)?;
            try_join_all(reads.into_iter().map(|read| self.gather_remote(column, read))).await?;
        }
        Ok(())
    }

    /// The rows at these addresses, in this order, as an array of the column's type.
    ///
    /// # Errors
    /// As for [`ChunkScan::gather`].
    pub async fn column(&self, name: &str, column: &Arc<DenseColumn>, addresses: &[u64]) -> Result<ArrayRef> {
        let slots = Slots::new(&self.pool, addresses.len(), column.row_bytes);
        let rows = addresses.iter().enumerate();
        let rows = rows.map(|(row, address)| Ok((*address, slots.claim(row)?))).collect::<Result<Vec<_>>>()?;
        self.gather(name, column, rows).await?;
        to_array(&column.data_type, addresses.len(), slots.freeze()?)
    }

    async fn gather_local(&self, column: &Arc<DenseColumn>, reads: Vec<Read>) -> Result<()> {
        let closed = |_| Error::Internal { reason: "the semaphore for local reads is closed".into() };
        let permit = self.local.clone().acquire_owned().await.map_err(closed)?;
        let (column, stats) = (column.clone(), self.stats.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut scratch = Vec::new();
            for mut read in reads {
                let reader = column.file(read.fragment).map(|file| &file.reader);
                let (Some(reader), Some(file)) = (reader, reader.and_then(|reader| reader.local())) else {
                    return Err(Error::Internal { reason: format!("fragment {} is not local", read.fragment) });
                };
                let range = read.offset..read.offset + read.length;
                let calls = read_local(file, &mut read, &mut scratch);
                let calls = calls.map_err(|source| reader.read_failed(range, source))?;
                stats.add_read(read.length, read.used_bytes());
                (1..calls).for_each(|_| stats.add_read(0, 0));
                read.finish();
            }
            Ok(())
        });
        task.await.map_err(|source| match source.is_cancelled() {
            true => Error::ShuttingDown,
            false => Error::Internal { reason: format!("a reading thread failed: {source}") },
        })?
    }

    async fn gather_remote(&self, column: &Arc<DenseColumn>, read: Read) -> Result<()> {
        let closed = |_| Error::Internal { reason: "the semaphore for remote reads is closed".into() };
        let _permit = self.remote.acquire().await.map_err(closed)?;
        let Some(file) = column.file(read.fragment) else {
            return Err(Error::Internal { reason: format!("fragment {} is unknown", read.fragment) });
        };
        let read = tokio::sync::Mutex::new(read);
        let attempt = || async { read_remote(&file.reader, &mut *read.lock().await).await };
        with_retries(self.retry, Error::kind, |_| self.stats.add_retry(), attempt).await?;
        let read = read.into_inner();
        self.stats.add_read(read.length, read.used_bytes());
        read.finish();
        Ok(())
    }
}

/// Cuts reads into parts of about [`TASK_BYTES`].
fn split(reads: Vec<Read>) -> Vec<Vec<Read>> {
    let mut parts: Vec<Vec<Read>> = Vec::new();
    let mut bytes = TASK_BYTES;
    for read in reads {
        if bytes >= TASK_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += read.length;
        if let Some(part) = parts.last_mut() {
            part.push(read);
        }
    }
    parts
}

/// An array of a FixedSizeList type over its plain bytes.
///
/// # Errors
/// [`Error::Internal`] when the bytes do not have the right length.
pub fn to_array(data_type: &DataType, num_rows: usize, values: Buffer) -> Result<ArrayRef> {
    let fail = |source: arrow_schema::ArrowError| Error::Internal { reason: source.to_string() };
    let mut types = vec![data_type.clone()];
    while let Some(DataType::FixedSizeList(item, _)) = types.last() {
        let item = item.data_type().clone();
        types.push(item);
    }
    let width = types.last().and_then(DataType::primitive_width).unwrap_or(1);
    let mut data: Option<ArrayData> = None;
    for data_type in types.into_iter().rev() {
        let builder = ArrayData::builder(data_type.clone());
        let built = match (&data_type, data.take()) {
            (DataType::FixedSizeList(_, length), Some(child)) => {
                let rows = child.len().checked_div(*length as usize).unwrap_or(num_rows);
                builder.len(rows).add_child_data(child)
            }
            _ => builder.len(values.len() / width).add_buffer(values.clone()),
        };
        data = Some(built.build().map_err(fail)?);
    }
    let array = make_array(data.ok_or_else(|| Error::Internal { reason: "a column without a type".into() })?);
    if array.len() != num_rows {
        return Err(Error::Internal { reason: format!("{} rows were read, {num_rows} were wanted", array.len()) });
    }
    Ok(array)
}
