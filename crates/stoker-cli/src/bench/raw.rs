//! The ceiling: page-cache reads of the same bytes into rotating buffers of batch size.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use crate::bench::data::ROW_BYTES;
use crate::bench::report::Measurement;
use crate::process::process_use;

/// Buffers that take turns, as batches do in a stream.
const BUFFERS: usize = 4;

/// Reads all files with as many threads as a stream uses.
pub fn read_all(files: &[PathBuf], batch_size: u64) -> anyhow::Result<Measurement> {
    let buffer_bytes = usize::try_from(batch_size * ROW_BYTES)?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(16);
    let mut buffers = vec![vec![1u8; buffer_bytes]; BUFFERS];
    let before = process_use(std::process::id());
    let started = Instant::now();
    let mut bytes = 0;
    let mut turn = 0;
    for path in files {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut at = 0;
        while at < size {
            let length = (size - at).min(buffer_bytes as u64) as usize;
            read_parallel(&file, &mut buffers[turn % BUFFERS][..length], at, threads)?;
            turn += 1;
            at += length as u64;
            bytes += length as u64;
        }
    }
    let secs = started.elapsed().as_secs_f64();
    let cpu_secs = process_use(std::process::id()).cpu_secs - before.cpu_secs;
    Ok(Measurement {
        bytes,
        rows: bytes / ROW_BYTES,
        secs,
        first_batch_secs: None,
        cpu_secs,
        server_cpu_secs: None,
        peak_bytes: 0,
    })
}

fn read_parallel(file: &File, buffer: &mut [u8], offset: u64, threads: usize) -> anyhow::Result<()> {
    let part = buffer.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let read =
            |(index, part_buffer): (usize, &mut [u8])| file.read_exact_at(part_buffer, offset + (index * part) as u64);
        let tasks: Vec<_> = buffer.chunks_mut(part).enumerate().map(|chunk| scope.spawn(move || read(chunk))).collect();
        for task in tasks {
            task.join().map_err(|_| anyhow::anyhow!("a reading thread panicked"))??;
        }
        Ok(())
    })
}
