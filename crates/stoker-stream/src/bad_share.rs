//! The limit on bad rows, beyond which a stream that substitutes bad rows fails.
//!
//! A few bad rows are accidents of storage. Where most of a window is bad, each bad row would be read, and read again
//! in searches for a good row: the stream would take long to deliver a few rows many times.

use std::collections::{HashMap, HashSet};

use crate::windows::{Window, WindowRow};
use crate::{Error, Result};

/// The number of rows of a window that may always be bad, however large their share is.
const ROWS_MIN: u64 = 16;

/// The largest number of windows whose bad rows are remembered.
const WINDOWS_MAX: usize = 4096;

/// The unit of shares: they are counted in millionths.
const WHOLE: u32 = 1_000_000;

/// The largest share of the rows of a window that may be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadShare(u32);

impl BadShare {
    /// All rows of a window may be bad.
    pub const ALL: BadShare = BadShare(WHOLE);

    /// Makes a share from a number from 0 to 1, rounded to a millionth. 16 rows of a window may be bad whatever the
    /// share is.
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

    /// Returns the share, from 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Returns how many of `num_rows` rows may be bad.
    fn rows_of(self, num_rows: u64) -> u64 {
        let rows = u128::from(num_rows) * u128::from(self.0) / u128::from(WHOLE);
        ROWS_MIN.max(u64::try_from(rows).unwrap_or(u64::MAX))
    }
}

impl Default for BadShare {
    /// Returns one in a hundred.
    fn default() -> Self {
        Self(WHOLE / 100)
    }
}

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
