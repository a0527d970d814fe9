//! Explains errors that follow from a removed snapshot.

use stoker_lake::LakeStore;
use stoker_types::{ErrorKind, StreamSpec};

use crate::Error;

/// Returns [`Error::SnapshotRemoved`] if a cleanup removed a snapshot of the stream, otherwise the given error of
/// reading the stream. Without this, missing files would look like damage. If the error may follow from a removed
/// snapshot, this costs a listing of versions for each snapshot.
pub(crate) async fn explained(lake: &LakeStore, spec: &StreamSpec, error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::DataCorrupt | ErrorKind::NotFound) {
        return error;
    }
    for snapshot in spec.snapshots().chain(spec.tables()) {
        match lake.is_removed(snapshot).await {
            Ok(true) => return Error::SnapshotRemoved { snapshot: snapshot.clone() },
            Ok(false) => {}
            // If the listing fails, the original error is returned.
            Err(listing) => tracing::debug!(%listing, "cannot tell whether a snapshot was removed"),
        }
    }
    error
}
