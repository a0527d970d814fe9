//! Indexes of a table.

use std::sync::Arc;

use lance::index::vector::VectorIndexParams;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt, IndexDescription};
use lance_index::IndexType;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::ScalarIndexParams;
use lance_linalg::distance::MetricType;
use lance_table::format::IndexMetadata;
use stoker_text::Analysis;
use stoker_types::IndexInfo;

use crate::caught::caught;
use crate::text::index_params;
use crate::{Error, Metric, Result, Table};

/// A kind of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// Inverted file with uncompressed vectors.
    IvfFlat {
        /// The number of partitions of the vector space.
        num_partitions: usize,
        /// The distance; searches by another distance do not use the index.
        metric: Metric,
    },
    /// Inverted file with product quantisation at 8 bits.
    IvfPq {
        /// The number of partitions of the vector space.
        num_partitions: usize,
        /// The number of sub-vectors; it must divide the dimension.
        num_sub_vectors: usize,
        /// The distance; searches by another distance do not use the index.
        metric: Metric,
    },
    /// Sorted scalar values.
    BTree,
    /// A bitmap for each distinct scalar value.
    Bitmap,
    /// A full-text index of the words of a text column, as they are written, with their positions.
    Inverted,
}

impl Table {
    /// Builds an index over the rows of this snapshot and commits it; returns the new version.
    ///
    /// # Errors
    /// An unknown column, a column of an unfit type, storage errors.
    pub async fn create_index(&self, column: &str, kind: IndexKind) -> Result<u64> {
        self.check_columns([&column.to_string()])?;
        self.lake().inner.check_atomic_create().await?;
        let mut dataset = self.dataset().as_ref().clone();
        let built = match kind {
            IndexKind::IvfFlat { num_partitions, metric } => {
                let params = VectorIndexParams::ivf_flat(num_partitions, metric.into());
                dataset.create_index(&[column], IndexType::Vector, None, &params, true).await
            }
            IndexKind::IvfPq { num_partitions, num_sub_vectors, metric } => {
                let params = VectorIndexParams::ivf_pq(num_partitions, 8, num_sub_vectors, metric.into(), 50);
                dataset.create_index(&[column], IndexType::Vector, None, &params, true).await
            }
            IndexKind::BTree => {
                dataset.create_index(&[column], IndexType::BTree, None, &ScalarIndexParams::default(), true).await
            }
            IndexKind::Bitmap => {
                dataset.create_index(&[column], IndexType::Bitmap, None, &ScalarIndexParams::default(), true).await
            }
            IndexKind::Inverted => {
                let params = index_params(&Analysis::default()).unwrap_or_default();
                dataset.create_index(&[column], IndexType::Inverted, None, &params, true).await
            }
        };
        let attempted = || format!("indexing column {column} of {}", self.snapshot());
        built.map_err(|source| match source {
            // There are too few vectors to train the index.
            lance_core::Error::Unprocessable { message, .. } => Error::InvalidRequest {
                attempted: attempted(),
                reason: format!(
                    "{message}; vectors that are null or contain NaN are not counted; ivf_flat with few partitions \
                     needs the fewest vectors"
                ),
            },
            source => Error::storage(attempted(), source),
        })?;
        Ok(dataset.manifest().version)
    }

    /// Returns the number of partitions of the index that answers searches of a vector column by this distance, or
    /// `None` if there is no such index. Lance keeps the opened index for the search.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn search_partitions(&self, column: &str, metric: Metric) -> Result<Option<usize>> {
        let attempted = || format!("opening the index of column {column} of {}", self.snapshot());
        let Some(field) = self.dataset().schema().field(column) else { return Ok(None) };
        let indexes = self.dataset().load_indices().await;
        let indexes = indexes.map_err(|source| Error::storage(attempted(), source))?;
        // Lance looks for the index in the same way. An index without details was built by an old version of Lance.
        let is_of_vectors = |index: &&IndexMetadata| {
            let details = index.index_details.as_ref();
            index.fields.first() == Some(&field.id)
                && details.is_none_or(|details| details.type_url.ends_with("VectorIndexDetails"))
        };
        let Some(index) = indexes.iter().find(is_of_vectors) else { return Ok(None) };
        let opening = self.dataset().open_vector_index(column, &index.uuid, &NoOpMetricsCollector);
        let index = caught(opening).await.map_err(|source| Error::storage(attempted(), source))?;
        let metric: MetricType = metric.into();
        Ok((index.metric_type() == metric).then(|| index.total_partitions()))
    }

    /// The indexes of this snapshot.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn indexes(&self) -> Result<Vec<IndexInfo>> {
        let indexes = self.dataset().describe_indices(None).await;
        let indexes =
            indexes.map_err(|source| Error::storage(format!("listing indexes of {}", self.snapshot()), source))?;
        let column = |id: &u32| self.dataset().schema().field_by_id(*id as i32).map(|field| field.name.clone());
        let (fragments, num_rows) = (self.fragments(), self.num_rows());
        let info = |index: &Arc<dyn IndexDescription>| {
            let covers = |id: u32| {
                index
                    .segments()
                    .iter()
                    .any(|segment| segment.fragment_bitmap.as_ref().is_some_and(|ids| ids.contains(id)))
            };
            let covered: u64 =
                fragments.iter().filter(|fragment| covers(fragment.id)).map(|found| found.num_rows).sum();
            IndexInfo {
                name: index.name().to_string(),
                columns: index.field_ids().iter().filter_map(column).collect(),
                kind: index.index_type().to_string(),
                num_rows_covered: covered,
                num_rows_not_covered: num_rows - covered,
                bytes: index.total_size_bytes(),
                // Lance has no description of kinds that it does not know.
                parameters: index.details().unwrap_or_default(),
            }
        };
        Ok(indexes.iter().map(info).collect())
    }
}
