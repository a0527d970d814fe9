//! A planned stream.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use stoker_lake::{DenseColumn, DenseProbe, Table};
use stoker_sql::{ColumnSource, Engine, RowSet, SampleQuery};
use stoker_types::{Digest, ErrorKind, ParamValue, SPEC_VERSION, Slice, StreamSpec, fixed_row_bytes};

use crate::{BatchStream, Error, ReadOptions, Result, StreamOptions};

/// Local rows of this size are read one by one at the price of a block: a system call costs what copying 8 KiB does.
const ALONE_BYTES: usize = 64 << 10;

/// Bytes per row assumed for a variable-width column without any stored data.
const VARIABLE_ROW_BYTES: u64 = 64;

/// A planned stream: pinned query, row set and order options. Cheap to clone; opens any slice of any epoch.
#[derive(Clone)]
pub struct StreamPlan {
    pub(crate) inner: Arc<PlanInner>,
}

pub(crate) struct PlanInner {
    pub spec: StreamSpec,
    pub stream_id: Digest,
    pub query: SampleQuery,
    pub row_set: Arc<RowSet>,
    pub columns: Vec<ColumnPlan>,
    pub spec_stored: bool,
    /// Bytes per row of all columns, estimated for variable width.
    pub row_bytes: u64,
}

/// How one output column is read.
#[derive(Clone, Debug)]
pub(crate) enum ColumnPlan {
    /// By chunk scan; for each source that can supply it, the source's index, the column's name and its page table.
    Dense { sources: Vec<(usize, String, Arc<DenseColumn>)>, row_bytes: usize },
    /// Through Lance's decoder, from the first source that supplies the row.
    Table { sources: Vec<(usize, String)> },
    /// From the row set.
    RowSet { index: usize },
}

impl StreamPlan {
    /// Plans a stream: pins the query, makes its row set, freezes the order and stores the specification in the lake.
    ///
    /// # Errors
    /// A query that is not a sample query, invalid options, errors of reading the tables.
    pub async fn create(engine: &Engine, sql: &str, params: &[ParamValue], options: &StreamOptions) -> Result<Self> {
        let query = engine.sample(sql, params).await?;
        let row_set = engine.row_set(&query).await?;
        let (columns, row_bytes) = plan_columns(&query, &row_set).await?;
        let order = options.order(row_set.num_rows(), row_bytes);
        order.validate()?;
        let snapshots = query.snapshots().to_vec();
        let spec = StreamSpec {
            version: SPEC_VERSION,
            sql: sql.to_string(),
            params: params.to_vec(),
            snapshots,
            row_set: row_set.digest(),
            num_rows: row_set.num_rows(),
            seed: options.seed,
            order,
        };
        let spec_stored = store_spec(engine, &spec).await?;
        Ok(Self::new(spec, query, row_set, columns, row_bytes, spec_stored))
    }

    /// Opens a planned stream again, on this or another machine.
    ///
    /// # Errors
    /// [`Error::RowSetMismatch`] when the row set does not have the digest of the specification; errors of reading it.
    pub async fn load(engine: &Engine, spec: &StreamSpec) -> Result<Self> {
        let query = engine.sample_at(&spec.sql, &spec.params, &spec.snapshots).await?;
        let row_set = engine.load_row_set(&query, spec.row_set).await?;
        if row_set.num_rows() != spec.num_rows {
            return Err(Error::RowSetMismatch {
                stream_id: spec.stream_id().to_string(),
                reason: format!("{} rows were planned, {} were found", spec.num_rows, row_set.num_rows()),
            });
        }
        let (columns, row_bytes) = plan_columns(&query, &row_set).await?;
        let spec_stored = store_spec(engine, spec).await?;
        Ok(Self::new(spec.clone(), query, row_set, columns, row_bytes, spec_stored))
    }

    /// Opens a stream whose specification is in the lake.
    ///
    /// # Errors
    /// [`Error::UnknownStream`]; as for [`StreamPlan::load`].
    pub async fn load_by_id(engine: &Engine, stream_id: Digest) -> Result<Self> {
        let unknown =
            || Error::UnknownStream { stream_id: stream_id.to_string(), lake: engine.lake().uri().to_string() };
        let json = engine.lake().objects().get(&spec_path(stream_id)).await?.ok_or_else(unknown)?;
        let spec = StreamSpec::from_json(&json)?;
        if spec.stream_id() != stream_id {
            return Err(Error::RowSetMismatch {
                stream_id: stream_id.to_string(),
                reason: "its stored specification was changed".into(),
            });
        }
        Self::load(engine, &spec).await
    }

    fn new(
        spec: StreamSpec,
        query: SampleQuery,
        row_set: Arc<RowSet>,
        columns: Vec<ColumnPlan>,
        row_bytes: u64,
        spec_stored: bool,
    ) -> Self {
        let stream_id = spec.stream_id();
        Self { inner: Arc::new(PlanInner { spec, stream_id, query, row_set, columns, spec_stored, row_bytes }) }
    }

    /// The specification.
    pub fn spec(&self) -> &StreamSpec {
        &self.inner.spec
    }

    /// The digest of the specification.
    pub fn stream_id(&self) -> Digest {
        self.inner.stream_id
    }

    /// The columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.inner.query.schema()
    }

    /// Rows per epoch.
    pub fn num_rows(&self) -> u64 {
        self.inner.spec.num_rows
    }

    /// Whether the lake keeps the specification; otherwise states must carry it.
    pub fn spec_stored(&self) -> bool {
        self.inner.spec_stored
    }

    /// Bytes per row of all columns, estimated for columns of variable width.
    pub fn row_bytes(&self) -> u64 {
        self.inner.row_bytes
    }

    /// Whether rows are so large, and their files so near, that reading them one by one costs no more than block by block.
    pub(crate) fn reads_rows_alone(&self) -> bool {
        let tables = self.inner.row_set.sources();
        let is_local = |(source, _, dense): &(usize, String, Arc<DenseColumn>)| {
            let fragment = tables[*source].fragments().first().map(|fragment| fragment.id);
            let file = fragment.and_then(|id| dense.file(id));
            file.is_some_and(|file| file.reader.local().is_some())
        };
        self.inner.columns.iter().all(|column| match column {
            ColumnPlan::Dense { sources, row_bytes } => *row_bytes >= ALONE_BYTES && sources.iter().all(is_local),
            ColumnPlan::Table { .. } | ColumnPlan::RowSet { .. } => true,
        }) && self.inner.columns.iter().any(|column| matches!(column, ColumnPlan::Dense { .. }))
    }

    /// Opens a rank's share of an epoch. Reading begins at once, on the current Tokio runtime; dropping the stream stops it.
    ///
    /// # Errors
    /// An invalid slice.
    pub fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<BatchStream> {
        slice.validate()?;
        Ok(BatchStream::start(self.clone(), *slice, *options))
    }
}

/// Where a specification lies, relative to the lake's objects.
fn spec_path(stream_id: Digest) -> String {
    format!("specs/{stream_id}")
}

/// Stores the specification; `false` when the lake cannot be written.
async fn store_spec(engine: &Engine, spec: &StreamSpec) -> Result<bool> {
    let path = spec_path(spec.stream_id());
    match engine.lake().objects().put_if_absent(&path, spec.to_json().into()).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unauthenticated) => {
            tracing::warn!(%error, "the lake cannot be written: states of this stream carry their specification");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Decides for each column how it is read, and estimates the bytes of a row.
async fn plan_columns(query: &SampleQuery, row_set: &RowSet) -> Result<(Vec<ColumnPlan>, u64)> {
    let mut plans = Vec::new();
    let mut row_bytes = 0u64;
    for column in query.columns() {
        let plan = match &column.source {
            ColumnSource::RowSet(index) => ColumnPlan::RowSet { index: *index },
            ColumnSource::Table(sources) => match dense_sources(row_set.sources(), sources).await? {
                Some(dense) => {
                    let row_bytes = dense.first().map_or(0, |(_, _, dense)| dense.row_bytes);
                    ColumnPlan::Dense { sources: dense, row_bytes }
                }
                None => ColumnPlan::Table { sources: sources.clone() },
            },
        };
        row_bytes += match fixed_row_bytes(column.field.data_type()) {
            Some(bytes) => bytes as u64,
            None => variable_bytes(row_set.sources(), &column.source).await?,
        };
        plans.push(plan);
    }
    Ok((plans, row_bytes.max(1)))
}

/// The page tables of a column, when all its sources have one and agree on the width.
async fn dense_sources(
    tables: &[Table],
    sources: &[(usize, String)],
) -> Result<Option<Vec<(usize, String, Arc<DenseColumn>)>>> {
    let mut dense: Vec<(usize, String, Arc<DenseColumn>)> = Vec::new();
    for (source, name) in sources {
        match tables[*source].dense_column(name).await? {
            DenseProbe::Dense(column) => {
                if dense.first().is_some_and(|(_, _, first)| first.row_bytes != column.row_bytes) {
                    return Ok(None);
                }
                dense.push((*source, name.clone(), column));
            }
            DenseProbe::NotDense { reason } => {
                tracing::debug!(column = name, reason, "read through the decoder");
                return Ok(None);
            }
        }
    }
    Ok(Some(dense))
}

async fn variable_bytes(tables: &[Table], source: &ColumnSource) -> Result<u64> {
    let ColumnSource::Table(sources) = source else { return Ok(VARIABLE_ROW_BYTES) };
    let Some((source, name)) = sources.first() else { return Ok(VARIABLE_ROW_BYTES) };
    let layouts = tables[*source].describe().await?;
    let layout = layouts.into_iter().find(|layout| layout.name == *name);
    Ok(layout.and_then(|layout| layout.bytes_per_row).unwrap_or(VARIABLE_ROW_BYTES).max(1))
}
