//! What an ingest tells while it runs.

/// Follows an ingest, and may stop it.
pub trait Progress: Send + Sync {
    /// What there is to do: source files and their bytes. Called once, before the first row.
    fn total(&self, files: u64, bytes: u64);

    /// What was done since the last call: source files, rows, source bytes. Skipped files count; units that an earlier
    /// run finished count too, at once.
    fn advance(&self, files: u64, rows: u64, bytes: u64);

    /// Whether to stop. Asked between groups of rows; the ingest then ends with [`crate::Error::Stopped`] and a later
    /// run of the same job goes on from the last finished unit.
    fn should_stop(&self) -> bool {
        false
    }
}

/// Tells nobody and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn total(&self, _files: u64, _bytes: u64) {}

    fn advance(&self, _files: u64, _rows: u64, _bytes: u64) {}
}
