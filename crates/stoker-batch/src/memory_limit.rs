//! Checks whether this machine can hold the batches of a slice.

use std::path::Path;
use std::sync::OnceLock;

use stoker_types::Slice;

use crate::{Error, Result};

/// Bytes that are held for each row of a batch beside its values: its addresses and the states of its slots.
const ROW_EXTRA_BYTES: u64 = 32;

/// Bytes that are held for each row of padding while it is read. All padding of a batch is read at once.
const PADDING_EXTRA_BYTES: u64 = 256;

/// Checks that this machine could hold the largest batch of a slice, before memory is allocated for it. The stream has
/// `num_rows` rows per epoch, and a row takes `row_bytes`, which is an estimate for columns of variable width. The
/// check makes no request.
///
/// # Errors
/// [`Error::BatchTooLarge`] for a batch that takes more than the memory that this process may use. If the system does
/// not tell how much that is, no batch is refused.
pub fn check_batches(slice: &Slice, num_rows: u64, row_bytes: u64) -> Result<()> {
    static MEMORY: OnceLock<Option<u64>> = OnceLock::new();
    match MEMORY.get_or_init(machine_memory) {
        Some(memory_bytes) => check_within(*memory_bytes, slice, num_rows, row_bytes),
        None => Ok(()),
    }
}

/// Like [`check_batches`], for a machine with `memory_bytes` of memory.
pub(crate) fn check_within(memory_bytes: u64, slice: &Slice, num_rows: u64, row_bytes: u64) -> Result<()> {
    let num_steps = slice.num_steps(num_rows);
    if slice.first_step >= num_steps {
        return Ok(());
    }
    // All batches but the last are full. The last batch has all the padding.
    let (first, last) = (slice.share(slice.first_step, num_rows), slice.share(num_steps - 1, num_rows));
    let rows = first.num_rows.max(last.num_rows);
    let padding = last.num_rows - last.num_valid;
    let values = rows.saturating_mul(row_bytes.saturating_add(ROW_EXTRA_BYTES));
    let bytes = values.saturating_add(padding.saturating_mul(PADDING_EXTRA_BYTES));
    match bytes > memory_bytes {
        true => Err(Error::BatchTooLarge { rows, bytes, memory_bytes }),
        false => Ok(()),
    }
}

/// Returns the number of bytes that this process may use: the memory of the machine, or the limit of its control group
/// if that is lower.
fn machine_memory() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total_bytes(&text));
    let group = read(Path::new("/proc/self/cgroup")).and_then(|text| group_path(&text).map(str::to_string));
    // In a container, the group may have a path that exists on the host only.
    let limits = ["", group.as_deref().unwrap_or_default()].map(|group| format!("/sys/fs/cgroup{group}/memory.max"));
    let limits = limits.iter().filter_map(|path| read(Path::new(path))?.trim().parse().ok());
    limits.chain(machine).min()
}

/// Returns the machine's total memory in bytes, from the text of `/proc/meminfo`.
fn total_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the path of the process's control group (version 2), from the text of `/proc/self/cgroup`.
fn group_path(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use stoker_types::{BatchSize, Batching, ErrorKind, LastBatch, Topology};

    use super::*;

    fn slice(size: BatchSize, last: LastBatch) -> Slice {
        Slice::new(Topology { rank: 0, world_size: 2 }, Batching { size, last }, 0)
    }

    #[test]
    fn batches_that_no_memory_holds_are_refused() {
        let check = |size, last, num_rows, row_bytes| {
            check_within(8 << 30, &slice(size, last), num_rows, row_bytes).map_err(|error| error.kind())
        };
        let (per_rank, global) = (BatchSize::PerRank(100_000_000), BatchSize::Global(200_000_000));
        let too_large = Err(ErrorKind::ResourceExhausted);
        // With padding, batches are full for any number of rows.
        assert_eq!(check(per_rank, LastBatch::Pad, 10, 3_000), too_large);
        assert_eq!(check(global, LastBatch::Pad, 10, 3_000), too_large);
        assert_eq!(check(per_rank, LastBatch::Pad, 10, 8), too_large, "what is kept for the rows counts, too");
        // Without padding, the number of rows limits the batches.
        for last in [LastBatch::Uneven, LastBatch::Drop] {
            assert_eq!(check(per_rank, last, 10, 3_000), Ok(()));
            assert_eq!(check(global, last, 1 << 40, 3_000), too_large);
        }
        assert_eq!(check(BatchSize::PerRank(1 << 20), LastBatch::Pad, 1 << 40, 4_096), Ok(()));
        assert_eq!(check(BatchSize::PerRank(1 << 31), LastBatch::Pad, u64::MAX, u64::MAX), too_large);
    }

    #[test]
    fn what_the_system_tells_is_understood() {
        assert_eq!(total_bytes("MemTotal:       24605600 kB\nMemFree: 1 kB\n"), Some(24_605_600 << 10));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(group_path("1:cpu:/x\n0::/user.slice/a\n"), Some("/user.slice/a"));
        assert_eq!(group_path("0::/\n"), Some(""));
        assert_eq!(group_path("3:memory:/x\n"), None);
    }
}
