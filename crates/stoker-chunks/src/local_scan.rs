//! Gathers rows of local files.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use futures::future::try_join_all;
use stoker_batch::{BufferPool, Pooled};
use stoker_lake::{DenseColumn, RangeReader};
use stoker_types::to_usize;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinSet;

use crate::aligned_reader::{AlignedReader, BUFFER_BYTES, is_refusal};
use crate::chunk_scan::all_bad;
use crate::coalesce::{Limits, Read, coalesce};
use crate::local::{ALL, NEAR, Progress, ReadFrom, Unreadable, forget, read_local, read_past_cache, will_need};
use crate::locator::Locator;
use crate::runs::{RowRun, disjoint, take_rows};
use crate::stats::Asked;
use crate::verify::{addresses, expect};
use crate::{BadRow, ChunkScan, Error, IoStats, Result};

/// How local files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalReads {
    /// Through the page cache: bytes that any program read recently come from memory.
    #[default]
    Buffered,
    /// From the disk, past the page cache (`O_DIRECT`), whose content for other programs stays: for tables that do not
    /// fit into memory. Each reading thread takes a buffer of 1 MiB. Where the operating system or the file system does
    /// not support such reads, files are read through the page cache, and the range is dropped from it afterwards.
    Direct,
}

/// Limits of direct reads. A disk answers after about 100 µs, in which it can send some 64 KiB to each of several
/// threads: an estimate, not measured. A gap of up to 4 KiB contains at most one whole block of the disk.
const DIRECT: Limits =
    Limits { gap_bytes_max: 64 << 10, free_gap_bytes: 4 << 10, waste_divisor: 1, read_bytes_max: 8 << 20 };

/// The number of bytes that one task reads, so that several threads share the reads.
const TASK_BYTES: u64 = 4 << 20;

impl LocalReads {
    fn limits(self) -> Limits {
        match self {
            // What is kept for a read costs more than a small row, so all rows of a file are one read.
            LocalReads::Buffered => ALL,
            LocalReads::Direct => DIRECT,
        }
    }

    /// The number of bytes whose transfer takes as long as the start of a read.
    fn read_bytes_min(self) -> u64 {
        match self {
            LocalReads::Buffered => 0,
            LocalReads::Direct => DIRECT.gap_bytes_max,
        }
    }
}

/// The largest gap between rows of local files that are wanted soon, in bytes, across which the system reads on.
const SOON_GAP_BYTES: u64 = 64 << 10;

impl ChunkScan {
    /// Asks the operating system to read rows of local files into the page cache, and does not wait for them. What is
    /// wrong with a row is reported when it is read. The addresses should ascend.
    pub fn fill_page_cache(&self, name: &str, column: &DenseColumn, addresses: &[u64]) {
        let ask = |fragment: u32, range: Range<u64>| {
            let file = column.file(fragment).and_then(|file| file.reader.local());
            file.into_iter().for_each(|file| will_need(file, range.clone()));
        };
        let mut locator = Locator::new(name, column);
        let mut soon: Option<(u32, Range<u64>)> = None;
        for address in addresses {
            let Ok((offset, _)) = locator.locate(*address) else { continue };
            let (fragment, end) = ((*address >> 32) as u32, offset.saturating_add(column.row_bytes as u64));
            match &mut soon {
                Some((last, range))
                    if *last == fragment
                        && (range.start..=range.end.saturating_add(SOON_GAP_BYTES)).contains(&offset) =>
                {
                    range.end = range.end.max(end);
                }
                _ => {
                    let done = soon.replace((fragment, offset..end));
                    done.into_iter().for_each(|(fragment, range)| ask(fragment, range));
                }
            }
        }
        soon.into_iter().for_each(|(fragment, range)| ask(fragment, range));
    }

    /// Gathers rows of local files, as [`ChunkScan::gather`] does.
    pub(crate) async fn gather_local(
        &self,
        name: &str,
        column: &Arc<DenseColumn>,
        runs: Vec<RowRun>,
    ) -> Result<Vec<BadRow>> {
        let num_rows = runs.iter().map(|(_, slot)| slot.num_rows()).sum::<usize>();
        let bytes = (num_rows as u64).saturating_mul(column.row_bytes as u64);
        // The rows are divided into groups of about the same number of rows.
        let num_groups = (bytes.saturating_add(TASK_BYTES / 2) / TASK_BYTES).max(1);
        let group_rows = num_rows.div_ceil(to_usize(num_groups));
        if num_groups == 1 {
            return self.gather_group(name, column, runs).await;
        }
        let mut runs = VecDeque::from(disjoint(column, runs)?);
        // Several threads process the groups, each while the state of its rows is in a processor's cache.
        let mut tasks = JoinSet::new();
        while !runs.is_empty() {
            let group = take_rows(&mut runs, group_rows)?;
            let (scan, name, column) = (self.clone(), name.to_string(), column.clone());
            tasks.spawn(async move { scan.gather_group(&name, &column, group).await });
        }
        all_bad(tasks).await
    }

    async fn gather_group(&self, name: &str, column: &Arc<DenseColumn>, runs: Vec<RowRun>) -> Result<Vec<BadRow>> {
        let mut reads = coalesce(name, column, runs, self.local_reads().limits())?;
        let checksums = self.checksums(column, &addresses(&reads)).await?;
        expect(&mut reads, checksums)?;
        if self.reads_in_task(column) {
            let mut part = PartReads::new(self, column, reads);
            let suspects = match part.read(ReadFrom::Memory)? {
                true => part.suspects,
                false => self.on_local_thread(move || part.read_all()).await?,
            };
            return self.read_again(name, column, suspects).await;
        }
        let parts = split(reads, self.local_reads().read_bytes_min());
        let bad = parts.into_iter().map(async |reads| {
            let part = PartReads::new(self, column, reads);
            let suspects = self.on_local_thread(move || part.read_all()).await?;
            self.read_again(name, column, suspects).await
        });
        Ok(try_join_all(bad).await?.into_iter().flatten().collect())
    }

    /// Returns whether the calling task reads rows itself as far as they are in the page cache. That takes less time
    /// than waking another thread, and other worker threads meanwhile run the remaining tasks.
    fn reads_in_task(&self, column: &DenseColumn) -> bool {
        let is_short = self.local_reads() == LocalReads::Buffered && column.row_bytes as u64 <= TASK_BYTES;
        is_short
            && Handle::try_current().is_ok_and(|runtime| {
                runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
            })
    }

    /// Reads a range from the disk, however other ranges are read.
    pub(crate) async fn read_past_cache(&self, reader: &RangeReader, mut read: Read) -> Result<Read> {
        let (reader, stats) = (reader.clone(), self.stats().clone());
        let work = move || {
            let reader = reader.open()?;
            let file = reader.local().ok_or_else(|| not_local(&read))?;
            let failed = |Unreadable { range, source }| reader.read_failed(range, source);
            let Progress { calls: requests, bytes, .. } = read_past_cache(file, &mut read).map_err(failed)?;
            stats.add_read(Asked { requests, bytes }, 0);
            Ok(read)
        };
        self.on_local_thread(work).await
    }
}

/// A list of ranges that are read one after the other.
struct PartReads {
    column: Arc<DenseColumn>,
    stats: Arc<IoStats>,
    memory: Scratch,
    reads: VecDeque<Read>,
    /// The progress in the first of the remaining ranges.
    progress: Progress,
    /// Rows that do not match their checksums.
    suspects: Vec<Read>,
}

impl PartReads {
    fn new(scan: &ChunkScan, column: &Arc<DenseColumn>, reads: Vec<Read>) -> Self {
        let direct_pool = (scan.local_reads() == LocalReads::Direct).then(|| scan.pool().clone());
        Self {
            column: column.clone(),
            stats: scan.stats().clone(),
            memory: Scratch { gaps: Vec::new(), direct_pool, buffer: None },
            reads: reads.into(),
            progress: Progress::default(),
            suspects: Vec::new(),
        }
    }

    /// Reads the remaining rows. Returns whether all rows are read now.
    fn read(&mut self, from: ReadFrom) -> Result<bool> {
        while let Some(read) = self.reads.front_mut() {
            let Some(file) = self.column.file(read.fragment) else { return Err(not_local(read)) };
            let Some(asked) = self.memory.read(&file.reader, read, from, &mut self.progress)? else { return Ok(false) };
            self.progress = Progress::default();
            self.stats.add_read(asked, read.used_bytes());
            self.suspects.extend(read.take_suspects(&self.stats)?);
            self.reads.pop_front().into_iter().for_each(Read::finish);
        }
        Ok(true)
    }

    /// Reads all remaining rows. Returns the rows that do not match their checksums.
    fn read_all(mut self) -> Result<Vec<Read>> {
        self.read(ReadFrom::Anywhere)?;
        Ok(self.suspects)
    }
}

/// Buffers for reads.
struct Scratch {
    /// Memory for unwanted bytes.
    gaps: Vec<u8>,
    /// The pool from which the buffer of direct reads comes; `None` if reads are not direct.
    direct_pool: Option<BufferPool>,
    /// That buffer. It is taken by the first read, so that parts that wait for a thread have none.
    buffer: Option<Pooled>,
}

impl Scratch {
    /// Reads a range into the slots of its rows, and verifies rows that have a checksum. `None` if the remaining rows
    /// would have to be waited for.
    fn read(
        &mut self,
        reader: &RangeReader,
        read: &mut Read,
        from: ReadFrom,
        progress: &mut Progress,
    ) -> Result<Option<Asked>> {
        let file = reader.local().ok_or_else(|| not_local(read))?;
        let range = read.offset..read.offset + read.length;
        if let Some(pool) = &self.direct_pool {
            let buffer = match &mut self.buffer {
                Some(buffer) => buffer,
                none => none.insert(pool.take(BUFFER_BYTES)?),
            };
            let failed = |source| reader.read_failed(range.clone(), source);
            if let Some(asked) = read_direct(reader, read, buffer.as_mut()).map_err(failed)? {
                return Ok(Some(asked));
            }
        }
        let failed = |Unreadable { range, source }| reader.read_failed(range, source);
        // The rows of direct reads are near enough for the disk.
        let call = if self.direct_pool.is_some() { ALL } else { NEAR };
        read_local(file, read, &mut self.gaps, (call, from), progress).map_err(failed)?;
        if self.direct_pool.is_some() {
            forget(file, range);
        }
        let is_read = progress.next.piece == read.pieces.len();
        Ok(is_read.then_some(Asked { requests: progress.calls, bytes: progress.bytes }))
    }
}

/// Reads a range past the page cache; `None` if the file does not support that.
fn read_direct(reader: &RangeReader, read: &mut Read, memory: &mut [u8]) -> io::Result<Option<Asked>> {
    let Some(file) = reader.uncached() else { return Ok(None) };
    match AlignedReader::new(file.file(), file.alignment(), memory).read(read) {
        Err(error) if is_refusal(&error) => {
            file.refuse(&error);
            Ok(None)
        }
        done => done.map(Some),
    }
}

fn not_local(read: &Read) -> Error {
    Error::Internal { reason: format!("fragment {} is not local", read.fragment) }
}

/// Divides reads into parts of about [`TASK_BYTES`]; each read counts as at least `read_bytes_min` bytes.
fn split(reads: Vec<Read>, read_bytes_min: u64) -> Vec<Vec<Read>> {
    let mut parts: Vec<Vec<Read>> = Vec::new();
    let mut bytes = TASK_BYTES;
    for read in reads {
        if bytes >= TASK_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += read.length.max(read_bytes_min);
        if let Some(part) = parts.last_mut() {
            part.push(read);
        }
    }
    parts
}
