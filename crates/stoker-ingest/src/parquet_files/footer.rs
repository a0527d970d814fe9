//! Parses the footer of a file once for all of its decoders.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::reader::ChunkReader;

use crate::job::catch_panic;

/// The footer of a file. The first decoder that needs it parses it.
#[derive(Debug, Default)]
pub(super) struct Footer(OnceLock<Result<ArrowReaderMetadata, String>>);

impl Footer {
    /// Returns the footer, and reads it from `file` if it was not parsed before.
    pub fn get(&self, file: &impl ChunkReader) -> Result<&ArrowReaderMetadata, String> {
        self.0.get_or_init(|| read_footer(file)).as_ref().map_err(String::clone)
    }
}

/// The footer of the file that was requested last. Decoders begin in the order of the files, so all decoders of one
/// file share its footer. At most one footer more than there are decoders is in memory.
#[derive(Debug, Default)]
pub(super) struct LastFooter(Mutex<Option<(usize, Arc<Footer>)>>);

impl LastFooter {
    /// Returns the footer of the file with this index.
    pub fn of(&self, file: usize) -> Arc<Footer> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((index, footer)) = last.as_ref()
            && *index == file
        {
            return footer.clone();
        }
        let footer = Arc::new(Footer::default());
        *last = Some((file, footer.clone()));
        footer
    }
}

/// Reads the footer of a file.
pub(super) fn read_footer(file: &impl ChunkReader) -> Result<ArrowReaderMetadata, String> {
    let read = || ArrowReaderMetadata::load(file, ArrowReaderOptions::new()).map_err(|error| error.to_string());
    catch_panic(read, |reason| reason)
}
