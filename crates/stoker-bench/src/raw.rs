//! Measures the ceilings in process: copying memory, and reading the same bytes from the page cache.
//!
//! Each thread takes the next piece and copies it into one of its buffers, which it uses in rotation, as a stream does
//! with its batches. All buffers were written before, and the first pass warms up the caches, so that only the copies
//! are measured.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Result;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use stoker_measure::process_use;
use stoker_types::to_usize;

use crate::data::DataSet;
use crate::report::Measurement;

/// The number of buffers of all threads together; each thread has at least two.
const BUFFERS: usize = 4;

/// The maximum number of bytes of the source of copies, which is more than any processor cache holds.
const SOURCE_BYTES_MAX: u64 = 512 << 20;

/// Returns the number of threads with which a stream reads local files.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).min(16)
}

/// The options for passes over the pieces of the data.
pub struct Passes {
    pub threads: usize,
    /// The maximum number of bytes of a piece, which are those of a batch.
    pub buffer_bytes: u64,
    /// The number of passes over the data; if there are several, the first is not measured.
    pub epochs: u64,
}

impl Passes {
    /// Copies as many bytes as the data has.
    pub fn memcpy(&self, data: &DataSet) -> anyhow::Result<Measurement> {
        let total = data.num_rows * data.kind.row_bytes();
        let piece = self.buffer_bytes.min(total);
        let source = vec![1u8; usize::try_from(total.min(SOURCE_BYTES_MAX).max(piece))?];
        let sources: Vec<&[u8]> = source.chunks_exact(usize::try_from(piece)?).collect();
        let work = |index: usize, buffer: &mut [u8]| {
            let source = sources[index % sources.len()];
            buffer[..source.len()].copy_from_slice(source);
            Ok(source.len() as u64)
        };
        self.run(data, usize::try_from(total.div_ceil(piece))?, work)
    }

    /// Reads the data's files.
    pub fn page_cache(&self, data: &DataSet) -> anyhow::Result<Measurement> {
        let ranges = data.ranges(self.buffer_bytes)?;
        let names: HashSet<&str> = ranges.iter().map(|range| range.file.as_str()).collect();
        let opened = names.into_iter().map(|name| Ok((name, File::open(data.path(name))?)));
        let files: HashMap<&str, File> = opened.collect::<Result<_>>()?;
        let work = |index: usize, buffer: &mut [u8]| {
            let range = &ranges[index];
            files[range.file.as_str()].read_exact_at(&mut buffer[..to_usize(range.length)], range.offset)?;
            Ok(range.length)
        };
        self.run(data, ranges.len(), work)
    }

    /// Processes all pieces in each pass.
    fn run(
        &self,
        data: &DataSet,
        pieces: usize,
        work: impl Fn(usize, &mut [u8]) -> Result<u64> + Sync,
    ) -> anyhow::Result<Measurement> {
        let buffer_bytes = usize::try_from(self.buffer_bytes)?;
        let own = (BUFFERS / self.threads).max(2);
        let mut buffers: Vec<Vec<Vec<u8>>> = (0..self.threads).map(|_| vec![vec![1u8; buffer_bytes]; own]).collect();
        let measured = match self.epochs {
            0 | 1 => pieces,
            epochs => {
                pass(&mut buffers, 0..pieces, &work)?;
                pieces * usize::try_from(epochs - 1)?
            }
        };
        let before = process_use(std::process::id()).cpu_secs;
        let started = Instant::now();
        let bytes = pass(&mut buffers, 0..measured, &|index, buffer: &mut [u8]| work(index % pieces, buffer))?;
        let steady_secs = started.elapsed().as_secs_f64();
        let cpu_secs = process_use(std::process::id()).cpu_secs - before;
        let rows = bytes / data.kind.row_bytes();
        let cpu_secs = Some(cpu_secs);
        Ok(Measurement { bytes, rows, steady_bytes: bytes, steady_secs, cpu_secs, ..Measurement::default() })
    }
}

/// Processes a range of pieces, with a thread for each set of buffers. Returns the number of bytes.
pub fn pass(
    buffers: &mut [Vec<Vec<u8>>],
    pieces: Range<usize>,
    work: &(impl Fn(usize, &mut [u8]) -> Result<u64> + Sync),
) -> anyhow::Result<u64> {
    let next = AtomicUsize::new(pieces.start);
    let drain = |own: &mut Vec<Vec<u8>>| -> Result<u64> {
        let mut bytes = 0;
        for turn in 0.. {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces.end {
                break;
            }
            let buffer = turn % own.len();
            bytes += work(piece, &mut own[buffer])?;
        }
        Ok(bytes)
    };
    std::thread::scope(|scope| {
        let tasks: Vec<_> = buffers.iter_mut().map(|own| scope.spawn(move || drain(own))).collect();
        let mut bytes = 0;
        for task in tasks {
            bytes += task.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(bytes)
    })
}
