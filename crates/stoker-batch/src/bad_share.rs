//! The limit on bad rows, beyond which a stream that substitutes bad rows fails.
//!
//! A few bad rows are accidents of storage. Where most of a window is bad, each bad row would be read, and read again
//! in searches for a good row: the stream would take long to deliver a few rows many times.

use std::collections::{HashMap, HashSet};

use stoker_types::BadShare;

use crate::{Error, Result, Window, WindowRow};

/// The largest number of windows whose bad rows are remembered.
const WINDOWS_MAX: usize = 4096;

/// The bad rows that a consumer met, for each window.
#[derive(Debug)]
pub struct BadRowsMet {
    share: BadShare,
    windows: HashMap<WindowRow, HashSet<u64>>,
}

impl BadRowsMet {
    /// Makes an empty record with a limit.
    pub fn new(share: BadShare) -> Self {
        Self { share, windows: HashMap::new() }
    }

    /// Returns whether a row of a window was met as a bad row.
    pub fn contains(&self, window: &Window, row: WindowRow) -> bool {
        self.windows.get(&window.first()).is_some_and(|met| met.contains(&row.position))
    }

    /// Records a bad row of a window. `named` returns which row it is and what is wrong with it.
    ///
    /// # Errors
    /// [`Error::TooManyBadRows`] if more rows of the window are bad than the limit allows.
    pub fn add(&mut self, window: &Window, row: WindowRow, named: impl FnOnce() -> String) -> Result<()> {
        if self.windows.len() >= WINDOWS_MAX && !self.windows.contains_key(&window.first()) {
            self.windows.clear();
        }
        let met = self.windows.entry(window.first()).or_default();
        met.insert(row.position);
        let (num_bad, num_rows) = (met.len() as u64, window.num_rows());
        let num_max = self.share.rows_of(num_rows);
        match num_bad > num_max {
            true => Err(Error::TooManyBadRows { num_bad, num_rows, num_max, last: named() }),
            false => Ok(()),
        }
    }
}
