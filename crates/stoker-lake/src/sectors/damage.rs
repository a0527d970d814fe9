//! What is wrong with a data file that has checksums.

use std::error::Error as StdError;
use std::ops::Range;

use crate::Error;
use crate::error::first_line;

/// What errors about damaged files name as their store.
const STORE: &str = "stoker";

/// A part of the message about a damaged sector, by which it is known where Lance passed on its text alone.
const WRONG: &str = "do not have their checksum, in two reads";

/// What is wrong with a data file, after a second read past caches.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// Bytes do not have their checksum. Rows elsewhere in the file may be good.
    #[error("bytes {}..{} of data file {file} {WRONG}", bytes.start, bytes.end)]
    Sector { file: String, bytes: Range<u64> },
    /// Nothing of the file can be trusted.
    #[error("{file}: {reason}")]
    File { file: String, reason: String },
}

impl Damage {
    /// The error of a request.
    pub fn into_store_error(self) -> object_store::Error {
        object_store::Error::Generic { store: STORE, source: Box::new(self) }
    }

    /// The error of a read that failed on a damaged file; `None` when it failed on something else.
    pub fn error(attempted: &str, source: &(dyn StdError + 'static)) -> Option<Error> {
        let mut current = Some(source);
        while let Some(error) = current {
            if let Some(damage) = error.downcast_ref::<Damage>() {
                let (attempted, reason) = (attempted.to_string(), damage.to_string());
                return Some(match damage {
                    Damage::Sector { .. } => Error::DamagedRows { attempted, reason },
                    Damage::File { .. } => Error::DataCorrupt { attempted, reason },
                });
            }
            // The error of a store hides that of its cause where it holds one in a box.
            current = match error.downcast_ref::<object_store::Error>() {
                Some(object_store::Error::Generic { source, .. }) => Some(source.as_ref()),
                _ => error.source(),
            };
        }
        let text = source.to_string();
        let (attempted, reason) = (attempted.to_string(), first_line(&text));
        text.contains(WRONG).then_some(Error::DamagedRows { attempted, reason })
    }
}
