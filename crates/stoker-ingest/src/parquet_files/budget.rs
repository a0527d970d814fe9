//! Bounds the bytes of decoded rows that wait to be written.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The bytes that the decoders of a run may hold together.
///
/// Rows are written piece by piece. The decoder of the piece whose turn it is never waits; the others wait until there is room
/// or until it is their turn. So rows that were decoded early cannot hold up those that must be written before them, and the
/// limit is passed by no more than what one decoder holds.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held_bytes: u64,
    /// The piece whose rows are written now.
    turn: usize,
}

impl Budget {
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for room for rows of a piece; `None` when nobody wants these any more.
    ///
    /// Blocks. Who makes `is_unwanted` true calls [`Budget::wake`] then.
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

    /// Lets all that wait look again whether somebody wants their rows.
    pub fn wake(&self) {
        // Nobody is between looking and waiting while the lock is held.
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

/// A part of a budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reservation {
    /// Holds as many bytes as the rows were found to take, without waiting: they are there.
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
