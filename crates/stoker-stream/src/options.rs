//! Options of streams, with bytes where people think in bytes.

use stoker_types::{ORDER_VERSION, OrderOptions, ShuffleMode};

/// What determines the order of a stream, besides its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The seed; 0 by default.
    pub seed: u64,
    /// The way of shuffling; blocks by default.
    pub shuffle: ShuffleMode,
    /// Bytes of the windows of all lanes together, whatever the number of ranks; 512 MiB by default.
    pub shuffle_window_bytes: u64,
    /// Bytes of a block of neighbouring rows; 512 KiB by default.
    pub block_bytes: u64,
    /// Lanes; 48 by default. Each byte is read once per epoch and cluster when the number of ranks divides it.
    pub num_lanes: u32,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            shuffle: ShuffleMode::Block,
            shuffle_window_bytes: 512 << 20,
            block_bytes: 512 << 10,
            num_lanes: 48,
        }
    }
}

/// Blocks that the windows of all lanes should hold together; more do not mix noticeably better.
const BLOCKS_PER_WINDOW: u64 = 1_024;

impl StreamOptions {
    /// Converts bytes to rows, once: the result is frozen in the stream's specification.
    ///
    /// Row sets smaller than the windows get smaller blocks, so that they mix as well.
    pub fn order(&self, num_rows: u64, row_bytes: u64) -> OrderOptions {
        let row_bytes = row_bytes.max(1);
        let window = (self.shuffle_window_bytes / row_bytes / u64::from(self.num_lanes.max(1))).max(1);
        let reach = num_rows.min(window.saturating_mul(u64::from(self.num_lanes))).div_ceil(BLOCKS_PER_WINDOW);
        OrderOptions {
            version: ORDER_VERSION,
            mode: self.shuffle,
            num_lanes: self.num_lanes,
            rows_per_block: (self.block_bytes / row_bytes).min(reach).max(1),
            rows_per_window: window,
        }
    }
}

/// How a stream is read; no result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Bytes of batches that are being filled or wait to be taken; 1 GiB by default.
    pub memory_budget_bytes: u64,
    /// Threads that read local files; the number of cores by default, at most 16.
    pub io_threads: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self { memory_budget_bytes: 1 << 30, io_threads: threads.clamp(1, 16) }
    }
}
