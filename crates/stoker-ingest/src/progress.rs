//! Progress reports of an ingest.

/// Receives the progress of an ingest, and may stop it.
pub trait Progress: Send + Sync {
    /// Reports the number of source files and their bytes, before the first row. It is called again when the ingest
    /// starts over because another ingest committed to the table.
    fn total(&self, files: u64, bytes: u64);

    /// Reports what was done since the last call: source files, rows, source bytes. Skipped files count. Units that an
    /// earlier run finished also count; each is reported by one call.
    fn advance(&self, files: u64, rows: u64, bytes: u64);

    /// Reports how many files, parts of files or rows were skipped since the last call. The default ignores it.
    fn skipped(&self, _num_skipped: u64) {}

    /// Whether to stop. It is called before each unit and between groups of rows. The ingest then ends with
    /// [`crate::Error::Stopped`], and a later run of the same job continues after the last finished unit.
    fn should_stop(&self) -> bool {
        false
    }
}

/// Ignores all reports and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn total(&self, _files: u64, _bytes: u64) {}

    fn advance(&self, _files: u64, _rows: u64, _bytes: u64) {}
}
