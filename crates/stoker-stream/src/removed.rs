//! Errors that follow from a snapshot that was removed.

use stoker_lake::Lake;
use stoker_types::{ErrorKind, StreamSpec};

use crate::Error;

/// The error of reading a stream, or [`Error::SnapshotRemoved`] where a cleanup removed one of its snapshots: files that are missing
/// look like damage otherwise. For errors that may follow from that, costs a listing of versions for each snapshot.
pub(crate) async fn explained(lake: &Lake, spec: &StreamSpec, error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::DataCorrupt | ErrorKind::NotFound) {
        return error;
    }
    for snapshot in spec.snapshots().chain(spec.tables()) {
        match lake.is_removed(snapshot).await {
            Ok(true) => return Error::SnapshotRemoved { snapshot: snapshot.clone() },
            Ok(false) => {}
            // What is known stays the error.
            Err(listing) => tracing::debug!(%listing, "cannot tell whether a snapshot was removed"),
        }
    }
    error
}
