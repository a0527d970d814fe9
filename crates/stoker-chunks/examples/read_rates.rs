//! Measures the rate of reading a file from the page cache, in ways that a chunk scan might use. The figures are in
//! `docs/figures.md`, "Reads of one file, with and without checksums".
//!
//! ```text
//! cargo run --release -p stoker-chunks --example read_rates -- FILE
//! ```
//!
//! Two threads alternate in reading 4 MiB of the file, into 384 MiB of memory that is reused. Prints GB/s: the median,
//! the least and the most of 5 passes, after one pass to warm up.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::cell::RefCell;
use std::fs::File;
use std::hint::black_box;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use stoker_checksum::checksum;
use stoker_types::to_usize;

const THREADS: usize = 2;
const PIECE_BYTES: usize = 4 << 20;
const MEMORY_BYTES: usize = 384 << 20;
const BUFFER_BYTES: usize = 256 << 10;
const PASSES: usize = 5;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| Error::other("give a file of some hundred MB"))?;
    let file = File::open(path)?;
    let pieces = to_usize(file.metadata()?.len()) / PIECE_BYTES;
    let mut memory: Vec<Vec<u8>> = (0..THREADS).map(|_| vec![1; MEMORY_BYTES / THREADS]).collect();
    report("read", pieces, &mut memory, |offset, target| file.read_exact_at(target, offset))?;
    report("read, then checksum", pieces, &mut memory, |offset, target| {
        file.read_exact_at(target, offset)?;
        black_box(checksum(target));
        Ok(())
    })?;
    report("read 256 KiB, checksum, copy", pieces, &mut memory, |offset, target| through_buffer(&file, offset, target))
}

/// Reads parts that stay in a core's cache until they are verified and copied to `target`.
fn through_buffer(file: &File, offset: u64, target: &mut [u8]) -> Result<()> {
    thread_local!(static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![1; BUFFER_BYTES]));
    BUFFER.with_borrow_mut(|buffer| {
        for (index, part) in target.chunks_mut(BUFFER_BYTES).enumerate() {
            let buffer = &mut buffer[..part.len()];
            file.read_exact_at(buffer, offset + (index * BUFFER_BYTES) as u64)?;
            black_box(checksum(buffer));
            part.copy_from_slice(buffer);
        }
        Ok(())
    })
}

/// Reads the whole file several times and prints the rates.
fn report(
    name: &str,
    pieces: usize,
    memory: &mut [Vec<u8>],
    work: impl Fn(u64, &mut [u8]) -> Result<()> + Sync,
) -> Result<()> {
    let mut rates = Vec::new();
    for pass in 0..=PASSES {
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        let drain = |memory: &mut Vec<u8>| -> Result<()> {
            for target in memory.chunks_exact_mut(PIECE_BYTES).map(RefCell::new).collect::<Vec<_>>().iter().cycle() {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces {
                    break;
                }
                work((piece * PIECE_BYTES) as u64, &mut target.borrow_mut())?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = memory.iter_mut().map(|memory| scope.spawn(|| drain(memory))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Error::other("a thread panicked"))?)
        })?;
        if pass > 0 {
            rates.push((pieces * PIECE_BYTES) as f64 / 1e9 / started.elapsed().as_secs_f64());
        }
    }
    rates.sort_by(f64::total_cmp);
    println!("{name:<30} {:.1} ({:.1}–{:.1}) GB/s", rates[PASSES / 2], rates[0], rates[PASSES - 1]);
    Ok(())
}
