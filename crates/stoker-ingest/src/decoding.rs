//! The decoders of a unit, in the order in which their rows are written.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::budget::Budget;
use crate::place::SourcePlace;

/// The most decoders of a run that work at the same time.
const DECODERS_MAX: usize = 8;
/// The most bytes of decoded rows that all decoders of a run hold together.
pub(crate) const DECODED_BYTES_MAX: u64 = 512 << 20;

/// Returns the number of decoders that work at the same time. Those of files that are far away mostly wait.
pub(crate) fn num_decoders(place: &SourcePlace) -> usize {
    match place.is_local() {
        true => std::thread::available_parallelism().map_or(2, usize::from).min(DECODERS_MAX),
        false => DECODERS_MAX,
    }
}

/// The pieces that are being decoded, in order, with the messages of their decoders.
pub(crate) struct DecoderQueue<'a, M> {
    pub queue: VecDeque<(usize, mpsc::Receiver<M>)>,
    pub budget: &'a Budget,
}

impl<M> Drop for DecoderQueue<'_, M> {
    /// Ends the decoders, including those that wait for memory.
    fn drop(&mut self) {
        self.queue.clear();
        self.budget.wake();
    }
}
