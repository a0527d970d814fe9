//! Descriptions of damage in a data file that has checksums.

use std::error::Error as StdError;
use std::ops::Range;

use crate::Error;
use crate::error::first_line;

/// The store name in errors about damaged files.
const STORE: &str = "stoker";

/// A part of the message about a damaged sector. The message is recognized by it where Lance passes on only the text of
/// an error.
const WRONG: &str = "do not match their checksum, in two reads";

/// Damage of a data file that a second read, past caches, confirmed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// Some bytes do not match their checksum. Rows elsewhere in the file may be intact.
    #[error("bytes {}..{} of data file {file} {WRONG}", bytes.start, bytes.end)]
    Sector { file: String, bytes: Range<u64> },
    /// No part of the file can be trusted.
    #[error("{file}: {reason}")]
    File { file: String, reason: String },
}

impl Damage {
    /// Converts the damage to the error of a store request.
    pub fn into_store_error(self) -> object_store::Error {
        object_store::Error::Generic { store: STORE, source: Box::new(self) }
    }

    /// Returns the error of a read that failed because of a damaged file; `None` if it failed for another reason.
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
            // The box is opened here, so that the search does not depend on how `object_store::Error` implements
            // `source`.
            // opened here.
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
