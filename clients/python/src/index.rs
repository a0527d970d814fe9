//! Builds indexes from Python.

use pyo3::prelude::*;
use stoker_lake::{IndexKind, LakeStore, Metric};
use stoker_types::{ErrorKind, SnapshotRef, TableName};

use crate::exceptions::{Raise, error};
use crate::runtime::wait;

/// The keys of the `IndexRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct IndexRequest {
    table: String,
    column: String,
    kind: String,
    metric: String,
    num_partitions: Option<usize>,
    num_sub_vectors: Option<usize>,
}

/// Builds an index over the newest version of a table; returns the new version.
pub(crate) fn create_index(py: Python<'_>, lake: &LakeStore, request: &IndexRequest) -> PyResult<u64> {
    let name = TableName::try_new(request.table.as_str()).raise(py)?;
    let table = wait(py, lake.table(&name, &SnapshotRef::Latest))?.raise(py)?;
    // Lance's guide recommends one partition for about 4,096 rows.
    let fitting = (table.num_rows() / 4096).clamp(1, 65_536) as usize;
    let num_partitions = request.num_partitions.unwrap_or(fitting);
    let num_sub_vectors = request.num_sub_vectors.unwrap_or(16);
    let unknown = |what: &str, given: &str, known: &str| {
        error(py, ErrorKind::InvalidRequest, &format!("index {what} {given:?} is unknown; it can be {known}"))
    };
    let metric = match request.metric.as_str() {
        "l2" => Metric::L2,
        "cosine" => Metric::Cosine,
        "dot" => Metric::Dot,
        other => return Err(unknown("metric", other, "l2, cosine, dot")),
    };
    let kind = match request.kind.as_str() {
        "ivf_flat" => IndexKind::IvfFlat { num_partitions, metric },
        "ivf_pq" => IndexKind::IvfPq { num_partitions, num_sub_vectors, metric },
        "btree" => IndexKind::BTree,
        "bitmap" => IndexKind::Bitmap,
        "inverted" => IndexKind::Inverted,
        other => return Err(unknown("kind", other, "ivf_flat, ivf_pq, btree, bitmap, inverted")),
    };
    wait(py, table.create_index(&request.column, kind))?.raise(py)
}
