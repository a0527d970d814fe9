//! When a stream that puts other rows in the place of bad ones gives up.
//!
//! A few bad rows are accidents of storage. Where most of a window is bad, each bad row would be read, and read again, in the search
//! for a good one: the stream would take long to deliver few rows many times.

use std::collections::{HashMap, HashSet};

use crate::windows::{Window, WindowRow};
use crate::{Error, Result};

/// Rows of a window that may be bad, however small the share is that they make.
const ROWS_MIN: u64 = 16;

/// Windows whose bad rows are remembered.
const WINDOWS_MAX: usize = 4096;

/// Shares are counted in millionths.
const WHOLE: u32 = 1_000_000;

/// The share of the rows of a window that may be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadShare(u32);

impl BadShare {
    /// All of them.
    pub const ALL: BadShare = BadShare(WHOLE);

    /// A share from 0 to 1, to a millionth. 16 rows of a window may always be bad.
    ///
    /// # Errors
    /// `InvalidValue` for other numbers.
    pub fn try_new(share: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&share) {
            let reason = format!("it is {share}; it must be from 0 to 1");
            return Err(stoker_types::Error::InvalidValue { what: "max_bad_share", reason }.into());
        }
        Ok(Self((share * f64::from(WHOLE)).round() as u32))
    }

    /// The share, from 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// How many of so many rows may be bad.
    fn rows_of(self, num_rows: u64) -> u64 {
        let rows = u128::from(num_rows) * u128::from(self.0) / u128::from(WHOLE);
        ROWS_MIN.max(u64::try_from(rows).unwrap_or(u64::MAX))
    }
}

impl Default for BadShare {
    /// One in a hundred.
    fn default() -> Self {
        Self(WHOLE / 100)
    }
}

/// The bad rows that a consumer met, by window.
#[derive(Debug)]
pub struct BadRowsMet {
    share: BadShare,
    windows: HashMap<WindowRow, HashSet<u64>>,
}

impl BadRowsMet {
    /// None so far.
    pub fn new(share: BadShare) -> Self {
        Self { share, windows: HashMap::new() }
    }

    /// Whether a row of a window was met.
    pub fn contains(&self, window: &Window, row: WindowRow) -> bool {
        self.windows.get(&window.first()).is_some_and(|met| met.contains(&row.position))
    }

    /// Notes a bad row of a window. `named` tells which row it is and why.
    ///
    /// # Errors
    /// [`Error::TooManyBadRows`] where more rows of the window are bad than may be.
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

#[cfg(test)]
mod tests {
    use super::BadShare;

    #[test]
    fn shares_are_of_windows_and_sixteen_rows_are_always_allowed() {
        let share = |share| BadShare::try_new(share).expect("a share");
        assert_eq!(
            [0, 100, 1_600, 1_700, 100_000].map(|rows| BadShare::default().rows_of(rows)),
            [16, 16, 16, 17, 1_000]
        );
        assert_eq!((share(0.0).rows_of(u64::MAX), share(0.5).rows_of(100)), (16, 50));
        assert_eq!((share(1.0), BadShare::ALL.rows_of(u64::MAX)), (BadShare::ALL, u64::MAX));
        assert_eq!(share(0.25).share(), 0.25);
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(BadShare::try_new(wrong).expect_err("no share").to_string().contains("max_bad_share"));
        }
    }
}
