//! Changed files give rows or errors.

use arrow::ipc::CompressionType;
use stoker_fuzz::Target;

use super::super::ArrowIpc;
use super::{batch, written};
use crate::FormatOptions;
use crate::read_files::{MemoryFolder, plan};

/// Buffers that are compressed well, and schemas with many fields.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// The batches that are read of a file, which can have many rows of no bytes.
const NUM_BATCHES_MAX: usize = 20;

fn run(name: &str, is_file: bool) {
    let seeds = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    let seeds = seeds.map(|compression| written(&[batch(), batch().slice(1, 2)], compression, is_file));
    Target::new(name).seeds(seeds).memory_bytes_max(MEMORY_BYTES_MAX).run(|input| {
        let folder = MemoryFolder::new([("a.arrow", input)]);
        let Ok(files) = plan(&ArrowIpc, &folder, &FormatOptions::default()) else { return false };
        let Ok(mut reader) = files.read(0) else { return false };
        for _ in 0..NUM_BATCHES_MAX {
            match reader.next(1 << 16) {
                Ok(Some(read)) => {
                    for (column, field) in read.batch.columns().iter().zip(read.batch.schema_ref().fields()) {
                        column.to_data().validate_full().unwrap_or_else(|error| panic!("{field}: {error}"));
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return false;
                }
            }
        }
        true
    });
}

#[test]
fn files() {
    run("arrow_files", true);
}

#[test]
fn streams() {
    run("arrow_streams", false);
}
