//! Builds indexes.

use stoker::{Error, Result};
use stoker_lake::{IndexKind, LakeStore, Metric};
use stoker_python::IndexRequest;
use stoker_types::{SnapshotRef, TableName};

/// Builds an index over the newest version of a table; returns the new version.
pub(crate) async fn create_index(lake: &LakeStore, request: &IndexRequest) -> Result<u64> {
    let name = TableName::try_new(request.table.as_str())?;
    let table = lake.table(&name, &SnapshotRef::Latest).await?;
    // Lance's guide recommends one partition for about 4,096 rows.
    let fitting = (table.num_rows() / 4096).clamp(1, 65_536) as usize;
    let num_partitions = request.num_partitions.unwrap_or(fitting);
    let num_sub_vectors = request.num_sub_vectors.unwrap_or(16);
    let unknown = |what: &str, given: &str, known: &str| {
        Error::invalid(format!("index {what} {given:?} is unknown; it can be {known}"))
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
    Ok(table.create_index(&request.column, kind).await?)
}
