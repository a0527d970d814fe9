//! The rows of a file that were skipped.

use std::path::PathBuf;

use crate::Skipped;

/// The most rows of a file that a report lists; further rows are counted.
const LISTED_MAX: usize = 100;

/// What was skipped of a file.
pub(super) struct FileSkips {
    path: PathBuf,
    listed: Vec<Skipped>,
    /// Whether a row of the file was kept.
    has_rows: bool,
    /// Why the file could not be read to its end: the number of rows before, and the reason.
    end: Option<(u64, String)>,
}

impl FileSkips {
    pub fn new(path: PathBuf) -> Self {
        Self { path, listed: Vec::new(), has_rows: false, end: None }
    }

    /// Notes that rows were kept.
    pub fn keep(&mut self, num_rows: usize) {
        self.has_rows |= num_rows > 0;
    }

    /// Notes that a row was skipped.
    pub fn skip(&mut self, row: u64, reason: String) {
        if self.listed.len() < LISTED_MAX {
            self.listed.push(Skipped::row(&self.path, row, reason));
        } else if let Some(last) = self.listed.last_mut() {
            last.num_more += 1;
        }
    }

    /// Notes that no row can be read after the first `num_read` ones.
    pub fn end_early(&mut self, num_read: u64, reason: String) {
        self.end = Some((num_read, reason));
    }

    /// Returns what was skipped. A file of which no row was kept is skipped as a whole, so that the rows can be appended
    /// when the file was repaired.
    pub fn finish(self) -> Vec<Skipped> {
        let Self { path, mut listed, has_rows, end } = self;
        if has_rows {
            let rest = |(row, reason): (u64, String)| {
                Skipped::row(&path, row, format!("{reason}; the rest of the file was left out"))
            };
            listed.extend(end.map(rest));
            return listed;
        }
        let num_rows: u64 = listed.iter().map(Skipped::count).sum();
        match (end, listed.into_iter().next()) {
            (Some((_, reason)), _) => vec![Skipped::file(&path, reason)],
            (None, Some(first)) => {
                let reason = format!("row {}: {}", first.row.unwrap_or_default(), first.reason);
                vec![Skipped { num_more: num_rows - 1, ..Skipped::file(&path, reason) }]
            }
            (None, None) => Vec::new(),
        }
    }
}
