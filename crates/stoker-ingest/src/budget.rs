//! Bounds the bytes of decoded rows that wait to be written.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The bytes that the decoders of a run may hold together.
///
/// Rows are written piece by piece. The decoder of the piece that is being written never waits. All other decoders wait
/// until the budget has memory, or until their piece is being written. So rows that were decoded early cannot block
/// those that must be written before them, and the decoders exceed the limit by no more than what one decoder holds.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held_bytes: u64,
    /// The piece whose rows are being written.
    turn: usize,
}

impl Budget {
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Reserves memory for rows of a piece, and waits until there is enough. Returns `None` when nobody needs the rows
    /// any more.
    ///
    /// Blocks the thread. Code that makes `is_unwanted` true must then call [`Budget::wake`].
    pub fn reserve(self: &Arc<Self>, piece: usize, bytes: u64, is_unwanted: impl Fn() -> bool) -> Option<Reservation> {
        let bytes = bytes.min(self.bytes_max);
        let mut state = self.lock();
        while !is_unwanted() {
            if state.turn == piece || state.held_bytes + bytes <= self.bytes_max {
                state.held_bytes += bytes;
                return Some(Reservation { budget: self.clone(), bytes });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Begins to write the rows of a piece.
    pub fn give_turn(&self, piece: usize) {
        self.lock().turn = piece;
        self.changed.notify_all();
    }

    /// Makes all waiting decoders check again whether their rows are needed.
    pub fn wake(&self) {
        // While this thread holds the lock, no decoder is between its check and its wait.
        drop(self.lock());
        self.changed.notify_all();
    }

    #[cfg(test)]
    pub fn held_bytes(&self) -> u64 {
        self.lock().held_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that is reserved in a budget until this value is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reservation {
    /// Changes the reservation to the measured size of the rows. It does not wait, because the rows are already in
    /// memory.
    pub fn settle(&mut self, bytes: u64) {
        {
            let mut state = self.budget.lock();
            state.held_bytes = state.held_bytes - self.bytes + bytes;
        }
        self.bytes = bytes;
        self.budget.changed.notify_all();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.settle(0);
    }
}
