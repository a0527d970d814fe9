//! Quarantine: bad rows that later versions of a table exclude.
//!
//! An excluded row is a deleted row whose deletion says that it was quarantined, and why.

use std::collections::HashMap;

use stoker_lake::{ChangeNote, DeletedRows, Error, LakeStore, Result};
use stoker_types::TableName;

/// The transaction property with the number of rows that a version newly excludes.
const ROWS_PROPERTY: &str = "stoker.quarantine_rows";

/// The transaction property with the reason for which a version excludes rows.
const REASON_PROPERTY: &str = "stoker.quarantine_reason";

/// The maximum length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// The result of a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The version that excludes the rows: a new one, or the newest one if that excluded all of them already.
    pub version: u64,
    /// The number of rows that this call excluded.
    pub num_excluded: u64,
    /// The number of rows that were excluded before this call.
    pub num_excluded_before: u64,
}

/// Excludes rows from the next version of a table and from those after it. Earlier versions, and streams that are
/// pinned to them, keep the rows.
///
/// Addresses may be taken from any version after which the rows' fragments were not rewritten; duplicates count once.
/// Rows that the newest version excludes already are left as they are, so a call may be repeated; a call that excludes
/// no further row makes no new version. The reason is kept in the transaction, as the property
/// `stoker.quarantine_reason`.
///
/// # Errors
/// [`Error::NotFound`] for a table or row that does not exist, and for a row that was rewritten since; `InvalidRequest`
/// for a reason of more than 1,024 bytes; storage errors. The table stays as it was.
pub async fn quarantine(
    lake: &LakeStore,
    name: &TableName,
    row_addrs: &[u64],
    reason: Option<&str>,
) -> Result<Quarantined> {
    let attempted = format!("excluding {} rows of table {name}", row_addrs.len());
    let reason_bytes = reason.map_or(0, str::len);
    if reason_bytes > REASON_BYTES_MAX {
        let reason = format!("the reason has {reason_bytes} bytes; give at most {REASON_BYTES_MAX}");
        return Err(Error::InvalidRequest { attempted, reason });
    }
    let note = |num_rows| deletion_note(num_rows, reason);
    let DeletedRows { version, num_deleted, num_deleted_before } =
        lake.delete_rows(name, row_addrs, &attempted, &note).await?;
    Ok(Quarantined { version, num_excluded: num_deleted, num_excluded_before: num_deleted_before })
}

/// Returns what the transaction says of a version that newly excludes this number of rows.
fn deletion_note(num_rows: u64, reason: Option<&str>) -> ChangeNote {
    let mut properties = HashMap::from([(ROWS_PROPERTY.to_string(), num_rows.to_string())]);
    if let Some(reason) = reason {
        properties.insert(REASON_PROPERTY.to_string(), reason.to_string());
    }
    ChangeNote { predicate: format!("quarantined rows: {num_rows}"), properties }
}
