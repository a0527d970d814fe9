//! Indexes of a table: how they are built, dropped and brought up to date, and what is known of them.
//!
//! Each of these is one commit by Lance, which rebases it onto concurrent appends and deletions. An index that is being built
//! is no part of the table before its commit, so a build that is cancelled or killed leaves the table as it was.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use lance::index::vector::{VectorIndexParams, has_vectors_to_train};
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt, IndexDescription};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::optimize::OptimizeOptions;
use lance_index::progress::IndexBuildProgress;
use lance_index::scalar::ScalarIndexParams;
use lance_index::vector::VectorIndex;
use lance_index::vector::hnsw::builder::HnswBuildParams;
use lance_index::vector::ivf::IvfBuildParams;
use lance_index::vector::sq::builder::SQBuildParams;
use lance_index::{IndexParams, IndexType};
use lance_linalg::distance::MetricType;
use lance_table::format::IndexMetadata;
use lance_table::system_index::is_system_index;
use lance_table::transaction::Operation;
use stoker_store::first_line;
use stoker_text::Analysis;
use stoker_types::{ErrorKind, IndexInfo, ProgressSink, SnapshotRef, StatementProgress, TableName};
use tokio::sync::watch;
use uuid::Uuid;

use crate::commit::{is_conflict, lost, transaction};
use crate::damage::caught;
use crate::probes::SearchedIndex;
use crate::text::index_params;
use crate::{Error, LakeStore, Metric, Result, Table};

/// The maximum number of attempts to build an index. An attempt is repeated when another commit changed the same index, or
/// moved the rows that were indexed.
const BUILDS_MAX: u32 = 5;

/// The maximum number of attempts to drop an index.
const DROPS_MAX: u32 = 50;

/// The number of vectors that product quantisation at 8 bits learns from at least.
const PQ_VECTORS_MIN: usize = 256;

/// The iterations in which product quantisation learns.
const PQ_ITERATIONS: usize = 50;

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
    /// Inverted file with a graph of neighbours in each partition, over vectors with 8 bits for each element.
    IvfHnswSq {
        /// The number of partitions of the vector space.
        num_partitions: usize,
        /// The neighbours of a vector in the graph.
        num_edges: usize,
        /// The candidates that are compared for a vector while the graph is built.
        ef_construction: usize,
        /// The distance; searches by another distance do not use the index.
        metric: Metric,
    },
    /// Sorted scalar values.
    BTree,
    /// A bitmap for each distinct scalar value.
    Bitmap,
    /// A bitmap for each distinct element of the lists of a column.
    LabelList,
    /// The sequences of three letters of a text column, for predicates such as `contains`.
    NGram,
    /// A full-text index of the words of a text column, as they are written, with their positions.
    Inverted,
    /// A full-text index of the words of another analysis: by their stems, or without frequent words.
    InvertedWords(Analysis),
}

/// What to do with an index that has the name of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// The new index is refused.
    Fail,
    /// The old index stays.
    Keep,
    /// The new index takes the place of the old one, in one commit.
    Replace,
}

/// An index that is to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    /// The name. If `None`: `<column>_idx`, or `<column>_idx_2`, … if an index of another kind or column has it.
    pub name: Option<String>,
    /// The column.
    pub column: String,
    /// The kind.
    pub kind: IndexKind,
    /// What to do with an index of this name.
    pub if_exists: IfExists,
}

/// An index that was built, or that was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltIndex {
    /// The name.
    pub name: String,
    /// The version of the table with the index.
    pub version: u64,
    /// Whether the index was built by this call.
    pub is_new: bool,
}

/// Indexes that were brought up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizedIndexes {
    /// The version of the table: a new one, or the newest one if the indexes covered all rows.
    pub version: u64,
    /// The names of the indexes that were changed.
    pub names: Vec<String>,
    /// The largest number of rows that one of them did not cover.
    pub num_rows: u64,
}

impl IndexKind {
    /// Whether the index is for searches of vectors.
    pub fn is_of_vectors(self) -> bool {
        matches!(self, Self::IvfFlat { .. } | Self::IvfPq { .. } | Self::IvfHnswSq { .. })
    }

    fn index_type(self) -> IndexType {
        match self {
            Self::IvfFlat { .. } | Self::IvfPq { .. } | Self::IvfHnswSq { .. } => IndexType::Vector,
            Self::BTree => IndexType::BTree,
            Self::Bitmap => IndexType::Bitmap,
            Self::LabelList => IndexType::LabelList,
            Self::NGram => IndexType::NGram,
            Self::Inverted | Self::InvertedWords(_) => IndexType::Inverted,
        }
    }

    /// The parameters with which Lance builds the index.
    fn params(self) -> Box<dyn IndexParams> {
        match self {
            Self::IvfFlat { num_partitions, metric } => {
                Box::new(VectorIndexParams::ivf_flat(num_partitions, metric.into()))
            }
            Self::IvfPq { num_partitions, num_sub_vectors, metric } => {
                Box::new(VectorIndexParams::ivf_pq(num_partitions, 8, num_sub_vectors, metric.into(), PQ_ITERATIONS))
            }
            Self::IvfHnswSq { num_partitions, num_edges, ef_construction, metric } => {
                let graph = HnswBuildParams::default().num_edges(num_edges).ef_construction(ef_construction);
                Box::new(VectorIndexParams::with_ivf_hnsw_sq_params(
                    metric.into(),
                    IvfBuildParams::new(num_partitions),
                    graph,
                    SQBuildParams::default(),
                ))
            }
            Self::BTree | Self::Bitmap | Self::LabelList | Self::NGram => Box::new(ScalarIndexParams::default()),
            Self::Inverted => Box::new(index_params(&Analysis::default()).unwrap_or_default()),
            Self::InvertedWords(analysis) => Box::new(index_params(&analysis).unwrap_or_default()),
        }
    }

    /// Whether an index is of the same family: one that the same statements would use.
    fn is_family_of(self, index: &IndexMetadata) -> bool {
        match (&index.index_details, self.index_type()) {
            // An index without details was built by an old version of Lance.
            (None, _) => true,
            (Some(_), IndexType::Vector) => is_of_vectors(index),
            (Some(details), other) => other.matches_details(details),
        }
    }
}

impl LakeStore {
    /// Builds an index over the newest version of a table and commits it.
    ///
    /// If another commit changes an index of the same name meanwhile, or moves the rows, the index is built again, a
    /// limited number of times.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown table; [`Error::IndexExists`]; [`Error::InvalidRequest`] for an unknown column, a
    /// column of an unfit type, a column that others drop meanwhile, and too few vectors to learn from;
    /// [`Error::UnsafeStore`]; storage errors, of kind `Unavailable` if other commits came in between too often, or if the
    /// outcome of the commit is unknown.
    pub async fn create_index(
        &self,
        table: &TableName,
        new: &NewIndex,
        progress: &ProgressSink<'_>,
    ) -> Result<BuiltIndex> {
        self.inner.check_atomic_create().await?;
        let mut attempts_left = BUILDS_MAX;
        loop {
            attempts_left -= 1;
            let newest = self.table(table, &SnapshotRef::Latest).await?;
            newest.check_columns([&new.column])?;
            let (name, exists) = newest.name_of_new(new).await?;
            match new.if_exists {
                IfExists::Keep if exists => {
                    return Ok(BuiltIndex { name, version: newest.version(), is_new: false });
                }
                IfExists::Fail if exists => {
                    return Err(Error::IndexExists { table: table.to_string(), index: name });
                }
                IfExists::Keep | IfExists::Fail | IfExists::Replace => {}
            }
            let attempted = || format!("indexing column {} of {}", new.column, newest.snapshot());
            newest.check_trainable(new, attempted).await?;
            match newest.build(new, &name, progress).await {
                Ok((version, uuid)) => match self.keeps_index(table, version, uuid).await? {
                    true => {
                        let names = [name];
                        self.check_columns_of(&newest, &names, attempted).await?;
                        let [name] = names;
                        return Ok(BuiltIndex { name, version, is_new: true });
                    }
                    false if attempts_left > 0 => {}
                    false => return Err(lost(table, version)),
                },
                Err(source) if is_conflict(&source) && attempts_left > 0 => {
                    progress(StatementProgress::phase("starting again, because another commit came in between"));
                }
                Err(source) => return Err(index_error(attempted(), table, source)),
            }
        }
    }

    /// Removes an index from the next version of a table. Older versions keep it. Returns the version without the index,
    /// and whether this call removed it.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown table, and for an unknown index unless `if_exists` is set;
    /// [`Error::UnsafeStore`]; storage errors.
    pub async fn drop_index(&self, table: &TableName, index: &str, if_exists: bool) -> Result<(u64, bool)> {
        self.inner.check_atomic_create().await?;
        let attempted = || format!("dropping index {index} of table {table}");
        let (mut attempts_left, mut is_dropped) = (DROPS_MAX, false);
        loop {
            attempts_left -= 1;
            let newest = self.table(table, &SnapshotRef::Latest).await?;
            let all = newest.own_indexes().await?;
            if !all.iter().any(|found| found.name == index) {
                return match if_exists || is_dropped {
                    true => Ok((newest.version(), is_dropped)),
                    false => Err(newest.no_index(index, &all)),
                };
            }
            if attempts_left == 0 {
                return Err(lost(table, newest.version()));
            }
            let mut dataset = newest.dataset().as_ref().clone();
            match caught(dataset.drop_index(index)).await {
                // The next round looks whether the newest version lacks the index.
                Ok(()) => is_dropped = true,
                Err(source) if is_conflict(&source) => {}
                Err(source) => return Err(index_error(attempted(), table, source)),
            }
        }
    }

    /// Adds the rows that an index of a table does not cover to the index, or does so for all indexes of the table. The
    /// centroids and the code book of an index of vectors stay as they are.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown table or index; [`Error::InvalidRequest`] for a column that others drop
    /// meanwhile; [`Error::UnsafeStore`]; storage errors.
    pub async fn optimize_indexes(
        &self,
        table: &TableName,
        index: Option<&str>,
        progress: &ProgressSink<'_>,
    ) -> Result<OptimizedIndexes> {
        self.inner.check_atomic_create().await?;
        let attempted = || match index {
            Some(index) => format!("optimising index {index} of table {table}"),
            None => format!("optimising the indexes of table {table}"),
        };
        let mut attempts_left = BUILDS_MAX;
        loop {
            attempts_left -= 1;
            let newest = self.table(table, &SnapshotRef::Latest).await?;
            let all = newest.described().await?;
            if let Some(index) = index
                && !all.iter().any(|found| found.name == index)
            {
                return Err(newest.no_index(index, &newest.own_indexes().await?));
            }
            let is_due =
                |found: &&IndexInfo| index.is_none_or(|index| found.name == index) && found.num_rows_not_covered > 0;
            let due: Vec<&IndexInfo> = all.iter().filter(is_due).collect();
            let names: Vec<String> = due.iter().map(|found| found.name.clone()).collect();
            let num_rows = due.iter().map(|found| found.num_rows_not_covered).max().unwrap_or(0);
            if names.is_empty() {
                return Ok(OptimizedIndexes { version: newest.version(), names, num_rows });
            }
            let mut dataset = newest.dataset().as_ref().clone();
            let (report, reports) = Report::channel();
            let options = OptimizeOptions::merge(1).index_names(names.clone()).progress(report);
            match reported(progress, reports, caught(dataset.optimize_indices(&options))).await {
                Ok(()) => {
                    self.check_columns_of(&newest, &names, attempted).await?;
                    return Ok(OptimizedIndexes { version: dataset.manifest().version, names, num_rows });
                }
                Err(source) if is_conflict(&source) && attempts_left > 0 => {}
                Err(source) => return Err(index_error(attempted(), table, source)),
            }
        }
    }

    /// Checks that the columns of indexes that were just committed exist, and drops indexes without one. Lance commits an
    /// index although another commit dropped its column meanwhile, and filters of the table would fail by it.
    /// `before` is the version that was indexed.
    async fn check_columns_of(&self, before: &Table, names: &[String], attempted: impl Fn() -> String) -> Result<()> {
        let newest = self.table(before.name(), &SnapshotRef::Latest).await?;
        let without_column = newest.without_column(&newest.own_indexes().await?, names);
        let mut reasons = Vec::new();
        for (name, id) in without_column {
            self.drop_index(before.name(), &name, true).await?;
            let column = before.dataset().schema().field_by_id(id).map_or("", |field| field.name.as_str());
            reasons.push(format!("column {column} was dropped meanwhile, and with it index {name}"));
        }
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(Error::InvalidRequest { attempted: attempted(), reason: reasons.join("; ") }),
        }
    }

    /// Returns whether the table's history contains the commit of an index. A commit that stalled while a cleanup ran can be
    /// lost although the store accepted it.
    async fn keeps_index(&self, table: &TableName, version: u64, uuid: Uuid) -> Result<bool> {
        let newest = self.table(table, &SnapshotRef::Latest).await?;
        if newest.version() <= version {
            return Ok(newest.version() == version);
        }
        if newest.own_indexes().await?.iter().any(|index| index.uuid == uuid) {
            return Ok(true);
        }
        // One of the later commits may have removed or replaced the index.
        for later in (version + 1..=newest.version()).rev() {
            match transaction(&newest, later).await?.map(|transaction| transaction.operation) {
                Some(Operation::CreateIndex { removed_indices, .. }) => {
                    if removed_indices.iter().any(|index| index.uuid == uuid) {
                        return Ok(true);
                    }
                }
                // These commits keep all indexes.
                Some(Operation::Append { .. } | Operation::Delete { .. } | Operation::UpdateConfig { .. }) => {}
                _ => return Ok(true),
            }
        }
        Ok(false)
    }
}

impl Table {
    /// Builds an index over the newest version of this table and commits it; returns the new version. An index of the same
    /// column and kind is replaced.
    ///
    /// # Errors
    /// As for [`LakeStore::create_index`].
    pub async fn create_index(&self, column: &str, kind: IndexKind) -> Result<u64> {
        let new = NewIndex { name: None, column: column.to_string(), kind, if_exists: IfExists::Replace };
        Ok(self.lake().create_index(self.name(), &new, &|_| {}).await?.version)
    }

    /// Returns the indexes of this version that users made.
    pub(crate) async fn own_indexes(&self) -> Result<Vec<IndexMetadata>> {
        let indexes = caught(self.dataset().load_indices()).await;
        let indexes = indexes.map_err(|source| Error::storage(self.listing(), source))?;
        Ok(indexes.iter().filter(|index| !is_system_index(index)).cloned().collect())
    }

    /// Returns the segments of the index of this name.
    pub(crate) async fn segments(&self, index: &str) -> Result<Vec<IndexMetadata>> {
        let mut segments = self.own_indexes().await?;
        segments.retain(|segment| segment.name == index);
        Ok(segments)
    }

    /// Returns which of the indexes of these names have a column that this version does not have, with its id.
    fn without_column(&self, indexes: &[IndexMetadata], names: &[String]) -> BTreeMap<String, i32> {
        let schema = self.dataset().schema();
        let missing = |index: &IndexMetadata| index.fields.iter().copied().find(|id| schema.field_by_id(*id).is_none());
        let named = indexes.iter().filter(|index| names.contains(&index.name));
        named.filter_map(|index| Some((index.name.clone(), missing(index)?))).collect()
    }

    /// Returns the name of a new index, and whether an index has it.
    async fn name_of_new(&self, new: &NewIndex) -> Result<(String, bool)> {
        let all = self.own_indexes().await?;
        let of_name = |name: &str| all.iter().find(|index| index.name == name);
        let field = self.dataset().schema().field(&new.column).map(|field| field.id);
        let is_of_column = |index: &IndexMetadata| index.fields.first().copied() == field;
        if let Some(name) = &new.name {
            return match of_name(name) {
                Some(index) if new.if_exists == IfExists::Replace && !is_of_column(index) => {
                    Err(Error::InvalidRequest {
                        attempted: format!("replacing index {name} of {}", self.snapshot()),
                        reason: "it is an index of another column: drop it first, or choose another name".into(),
                    })
                }
                found => Ok((name.clone(), found.is_some())),
            };
        }
        let base = format!("{}_idx", new.column);
        let (mut name, mut number) = (base.clone(), 2);
        loop {
            match of_name(&name) {
                None => return Ok((name, false)),
                Some(index) if is_of_column(index) && new.kind.is_family_of(index) => return Ok((name, true)),
                Some(_) => (name, number) = (format!("{base}_{number}"), number + 1),
            }
        }
    }

    /// Checks that there are enough vectors to learn from. Lance would make an index that covers no rows.
    async fn check_trainable(&self, new: &NewIndex, attempted: impl Fn() -> String) -> Result<()> {
        let IndexKind::IvfPq { .. } = new.kind else { return Ok(()) };
        // An index of an empty table learns when rows are added to it.
        if self.num_rows() == 0 {
            return Ok(());
        }
        let enough = caught(has_vectors_to_train(self.dataset(), &new.column, PQ_VECTORS_MIN)).await;
        match enough.map_err(|source| Error::storage(attempted(), source))? {
            true => Ok(()),
            false => Err(Error::InvalidRequest {
                attempted: attempted(),
                reason: format!(
                    "ivf_pq learns from {PQ_VECTORS_MIN} vectors or more, and the column has fewer; vectors that are null \
                     are not counted; ivf_flat with few partitions needs the fewest vectors"
                ),
            }),
        }
    }

    /// Builds an index and commits it. Returns the version and the id of the index.
    async fn build(
        &self,
        new: &NewIndex,
        name: &str,
        progress: &ProgressSink<'_>,
    ) -> Result<(u64, Uuid), lance_core::Error> {
        let (mut dataset, params) = (self.dataset().as_ref().clone(), new.kind.params());
        let (report, reports) = Report::channel();
        let columns = [new.column.as_str()];
        let building = dataset
            .create_index_builder(&columns, new.kind.index_type(), params.as_ref())
            .name(name.to_string())
            .replace(new.if_exists == IfExists::Replace)
            .progress(report)
            .into_future();
        let uuid = reported(progress, reports, caught(building)).await?.uuid;
        Ok((dataset.manifest().version, uuid))
    }

    fn no_index(&self, index: &str, all: &[IndexMetadata]) -> Error {
        let mut names: Vec<&str> = all.iter().map(|index| index.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let hint = match names.is_empty() {
            true => "; the table has no indexes".to_string(),
            false => format!("; indexes: {}", names.join(", ")),
        };
        Error::NotFound { what: format!("index {index} of table {}", self.name()), hint }
    }

    fn listing(&self) -> String {
        format!("listing indexes of {}", self.snapshot())
    }

    /// Returns the index that answers searches of a vector column by this distance, or `None` if there is none. Lance keeps
    /// the opened index for the search.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn searched_index(&self, column: &str, metric: Metric) -> Result<Option<SearchedIndex>> {
        let Some((index, num_partitions)) = self.searched(column, metric).await? else { return Ok(None) };
        Ok(Some(SearchedIndex::new(num_partitions, self.known_measured(index.uuid).await)))
    }

    /// Returns the name of the index that answers searches of a vector column by this distance, or `None` if there is no
    /// such index. Lance keeps the opened index for the search.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn search_index(&self, column: &str, metric: Metric) -> Result<Option<String>> {
        Ok(self.searched(column, metric).await?.map(|(index, _)| index.name))
    }

    /// Returns the index that answers searches of a vector column by this distance, and its number of partitions.
    async fn searched(&self, column: &str, metric: Metric) -> Result<Option<(IndexMetadata, usize)>> {
        let Some(index) = self.vector_index(column).await? else { return Ok(None) };
        let opened = self.opened_vectors(column, &index).await?;
        let metric: MetricType = metric.into();
        Ok((opened.metric_type() == metric).then_some((index, opened.total_partitions())))
    }

    /// Returns the first index of vectors of a column. Lance looks for the index in the same way.
    pub(crate) async fn vector_index(&self, column: &str) -> Result<Option<IndexMetadata>> {
        let Some(field) = self.dataset().schema().field(column) else { return Ok(None) };
        let indexes = self.dataset().load_indices().await;
        let indexes = indexes.map_err(|source| Error::storage(self.opening(column), source))?;
        let found = indexes.iter().find(|index| index.fields.first() == Some(&field.id) && is_of_vectors(index));
        Ok(found.cloned())
    }

    /// Opens an index of vectors.
    pub(crate) async fn opened_vectors(&self, column: &str, index: &IndexMetadata) -> Result<Arc<dyn VectorIndex>> {
        let opening = self.dataset().open_vector_index(column, &index.uuid, &NoOpMetricsCollector);
        caught(opening).await.map_err(|source| Error::storage(self.opening(column), source))
    }

    fn opening(&self, column: &str) -> String {
        format!("opening the index of column {column} of {}", self.snapshot())
    }

    /// The indexes of this snapshot. Takes a request for each index of vectors.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn indexes(&self) -> Result<Vec<IndexInfo>> {
        let (mut described, all) = (self.described().await?, self.own_indexes().await?);
        for info in &mut described {
            let newest = all.iter().filter(|index| index.name == info.name).max_by_key(|index| index.dataset_version);
            if let Some(index) = newest
                && is_of_vectors(index)
            {
                info.recall = self.measured(index.uuid).await?.map(|measured| measured.recall);
            }
        }
        Ok(described)
    }

    /// The indexes of this snapshot, as the manifest describes them.
    async fn described(&self) -> Result<Vec<IndexInfo>> {
        let indexes = self.dataset().describe_indices(None).await;
        let indexes = indexes.map_err(|source| Error::storage(self.listing(), source))?;
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
                parameters: index.details().map(|details| with_sorted_keys(&details)).unwrap_or_default(),
                recall: None,
            }
        };
        Ok(indexes.iter().map(info).collect())
    }
}

/// Whether an index is one of vectors. An index without details was built by an old version of Lance.
pub(crate) fn is_of_vectors(index: &IndexMetadata) -> bool {
    index.index_details.as_ref().is_none_or(|details| details.type_url.ends_with("VectorIndexDetails"))
}

/// Returns JSON text with the keys of its objects in order. Lance writes them in an order that differs from call to call.
fn with_sorted_keys(json: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(json) else { return json.to_string() };
    value.sort_all_objects();
    value.to_string()
}

/// Translates an error of building or changing indexes.
fn index_error(attempted: String, table: &TableName, source: lance_core::Error) -> Error {
    if source.is_commit_status_unknown() {
        let reason = format!(
            "the outcome is unknown: {}; look with SHOW INDEXES FROM \"{table}\" before you repeat it",
            first_line(&source)
        );
        return Error::Storage { attempted, kind: ErrorKind::Unavailable, source: reason.into() };
    }
    match source {
        // There are too few vectors to train the index.
        lance_core::Error::Unprocessable { message, .. } => Error::InvalidRequest {
            attempted,
            reason: format!(
                "{message}; vectors that are null or contain NaN are not counted; ivf_flat with few partitions needs the \
                 fewest vectors"
            ),
        },
        source => Error::storage(attempted, source),
    }
}

/// Takes Lance's reports of a build.
#[derive(Debug)]
struct Report(watch::Sender<StatementProgress>);

impl Report {
    fn channel() -> (Arc<dyn IndexBuildProgress>, watch::Receiver<StatementProgress>) {
        let (sender, receiver) = watch::channel(StatementProgress::default());
        (Arc::new(Self(sender)), receiver)
    }
}

#[async_trait]
impl IndexBuildProgress for Report {
    async fn stage_start(&self, stage: &str, total: Option<u64>, unit: &str) -> lance_core::Result<()> {
        self.0.send_replace(StatementProgress { phase: phase(stage), done: 0, total, unit: unit.to_string() });
        Ok(())
    }

    async fn stage_progress(&self, _: &str, completed: u64) -> lance_core::Result<()> {
        self.0.send_modify(|progress| progress.done = completed);
        Ok(())
    }

    async fn stage_complete(&self, _: &str) -> lance_core::Result<()> {
        self.0.send_modify(|progress| progress.done = progress.total.unwrap_or(progress.done));
        Ok(())
    }
}

/// Returns what a stage of Lance does, in words.
fn phase(stage: &str) -> String {
    match stage {
        "train_ivf" => "learning the partitions".to_string(),
        "train_quantizer" => "learning the compression".to_string(),
        "shuffle" => "assigning vectors to partitions".to_string(),
        "merge_partitions" => "writing the partitions".to_string(),
        "load_data" => "reading the column".to_string(),
        "tokenize_docs" => "reading the words".to_string(),
        other => other.replace('_', " "),
    }
}

/// Waits for work, and passes its latest report on whenever there is a new one.
async fn reported<T>(
    progress: &ProgressSink<'_>,
    mut reports: watch::Receiver<StatementProgress>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Ok(()) = reports.changed() => {
                let latest = reports.borrow_and_update().clone();
                progress(latest);
            }
        }
    }
}
