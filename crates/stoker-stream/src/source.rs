//! How the columns of one query are read.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use futures::future::{join_all, try_join};
use stoker_batch::bucket_schema;
use stoker_columns::{EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, fixed_row_bytes, is_heavy};
use stoker_lake::{DenseColumn, DenseProbe, Table};
use stoker_sql::{ColumnSource, RowSet, SampleQuery};

use crate::epoch_rows::{EpochRows, PackedColumns, packed_fields};
use crate::light_blocks::LightBlocks;
use crate::{Error, Result};

/// Local rows of at least this many bytes are read one by one for the price of whole blocks: a system call costs as
/// much as copying 8 KiB.
const ALONE_BYTES: usize = 64 << 10;

/// The assumed bytes per row of a variable-width column that has no stored data.
const VARIABLE_ROW_BYTES: u64 = 64;

/// The number of fragments up to which the footers of light columns are read when a stream is planned.
const LIGHT_FOOTERS_MAX: usize = 16;

/// One query of a stream: its row set, and how its columns are read.
pub(crate) struct SourcePlan {
    pub query: SampleQuery,
    pub row_set: Arc<RowSet>,
    pub columns: Vec<ColumnPlan>,
    /// The bytes per row of all columns together. They are estimated for columns of variable width.
    pub row_bytes: u64,
    /// The same for each column.
    pub column_bytes: Vec<u64>,
    /// The light columns that are read in blocks.
    pub light: LightBlocks,
    /// What the ordinals of an epoch's order name.
    pub epoch: EpochRows,
}

/// How one output column is read.
#[derive(Clone, Debug)]
pub(crate) enum ColumnPlan {
    /// By chunk scan. For each table that can supply the column, it has the table's index, the column's name and its
    /// page table.
    Dense { sources: Vec<(usize, String, Arc<DenseColumn>)>, row_bytes: usize },
    /// Through Lance's decoder, from the first table that supplies the row. The value is NULL if no table does.
    Table { sources: Vec<(usize, String)> },
    /// From the row set.
    RowSet { index: usize },
    /// Made from the documents of a pack, or from the rows of a bucket.
    Packed,
}

impl SourcePlan {
    /// Decides how the columns of a query are read, and waits for its row set. The footers of data files, which most
    /// decisions need, are read meanwhile.
    pub async fn with_row_set<F>(query: SampleQuery, row_set: F) -> Result<Self>
    where
        F: Future<Output = Result<Arc<RowSet>>>,
    {
        let footers = async {
            read_footers(&query).await;
            Ok(())
        };
        let (row_set, ()) = try_join(row_set, footers).await?;
        Self::try_new(query, row_set).await
    }

    /// Decides how each column is read, and estimates the bytes of a row.
    async fn try_new(query: SampleQuery, row_set: Arc<RowSet>) -> Result<Self> {
        let mut columns = Vec::new();
        let mut column_bytes = Vec::new();
        for column in query.columns() {
            let plan = match &column.source {
                ColumnSource::RowSet(index) => ColumnPlan::RowSet { index: *index },
                // A light column of an outer join may be NULL, which buffer slots for tensors cannot express.
                ColumnSource::Table(sources) if column.optional && !is_heavy(&column.field) => {
                    ColumnPlan::Table { sources: sources.clone() }
                }
                ColumnSource::Table(sources) => match dense_sources(row_set.sources(), sources).await? {
                    Some(dense) => {
                        let row_bytes = dense.first().map_or(0, |(_, _, dense)| dense.row_bytes);
                        ColumnPlan::Dense { sources: dense, row_bytes }
                    }
                    None => ColumnPlan::Table { sources: sources.clone() },
                },
            };
            column_bytes.push(match fixed_row_bytes(column.field.data_type()) {
                Some(bytes) => bytes as u64,
                None => variable_bytes(row_set.sources(), &column.source).await?,
            });
            columns.push(plan);
        }
        Ok(Self {
            query,
            row_set,
            columns,
            row_bytes: column_bytes.iter().sum::<u64>().max(1),
            column_bytes,
            light: LightBlocks::default(),
            epoch: EpochRows::Each,
        })
    }

    /// Returns the number of rows in an epoch.
    pub fn epoch_rows(&self) -> u64 {
        self.epoch.num_rows(self)
    }

    /// Sets what the ordinals of an epoch's order name. Documents of packs and rows of buckets are read through Lance's
    /// decoder.
    pub fn set_epoch(&mut self, epoch: EpochRows) {
        if let EpochRows::Bucketed(buckets) = &epoch {
            self.row_bytes = buckets.bucket_bytes(self.row_bytes);
            self.columns = self.columns.iter().map(ColumnPlan::decoded).collect();
            self.columns.push(ColumnPlan::Packed);
        }
        if let EpochRows::Packed(packs) = &epoch {
            self.row_bytes = packs.pack_bytes(self.row_bytes);
            self.columns = self.columns.iter().map(ColumnPlan::decoded).collect();
            self.columns.extend(std::iter::repeat_n(ColumnPlan::Packed, PackedColumns::num_extra()));
        }
        self.epoch = epoch;
    }

    /// Returns whether rows are so large, and their files local, that reading rows one by one costs no more than
    /// reading whole blocks.
    pub fn reads_rows_alone(&self) -> bool {
        self.dense_is_local()
            && self.columns.iter().filter_map(ColumnPlan::dense_row_bytes).all(|bytes| bytes >= ALONE_BYTES)
            && self.columns.iter().any(|column| matches!(column, ColumnPlan::Dense { .. }))
    }

    /// Returns whether all columns that are read by chunk scan are in local files.
    pub fn dense_is_local(&self) -> bool {
        let tables = self.row_set.sources();
        let is_local = |(source, _, dense): &(usize, String, Arc<DenseColumn>)| {
            let fragment = tables[*source].fragments().first().map(|fragment| fragment.id);
            let file = fragment.and_then(|id| dense.file(id));
            file.is_some_and(|file| file.reader.local().is_some())
        };
        self.columns.iter().all(|column| match column {
            ColumnPlan::Dense { sources, .. } => sources.iter().all(is_local),
            ColumnPlan::Table { .. } | ColumnPlan::RowSet { .. } | ColumnPlan::Packed => true,
        })
    }
}

impl ColumnPlan {
    /// Returns the bytes per row of a column that is read by chunk scan.
    pub fn dense_row_bytes(&self) -> Option<usize> {
        match self {
            ColumnPlan::Dense { row_bytes, .. } => Some(*row_bytes),
            ColumnPlan::Table { .. } | ColumnPlan::RowSet { .. } | ColumnPlan::Packed => None,
        }
    }

    /// Returns a plan that reads the same column through Lance's decoder.
    fn decoded(&self) -> Self {
        match self {
            ColumnPlan::Dense { sources, .. } => {
                ColumnPlan::Table { sources: sources.iter().map(|(source, name, _)| (*source, name.clone())).collect() }
            }
            other => other.clone(),
        }
    }
}

/// Makes the columns of all sources consistent. A column is then read by chunk scan in all sources or in none. Returns
/// the schema of the batches.
///
/// # Errors
/// [`Error::Columns`] if a source has other columns than the first one.
pub(crate) fn unify(sources: &mut [SourcePlan]) -> Result<SchemaRef> {
    let first = sources.first().map_or_else(|| Arc::new(Schema::empty()), |source| source.query.schema());
    let mut fields: Vec<Field> = first.fields().iter().map(|field| field.as_ref().clone()).collect();
    for (index, source) in sources.iter().enumerate().skip(1) {
        let schema = source.query.schema();
        if schema.fields().len() != fields.len() {
            let reason = format!("{} columns, not {}", schema.fields().len(), fields.len());
            return Err(Error::Columns { query: index, reason });
        }
        for (mine, theirs) in fields.iter_mut().zip(schema.fields()) {
            if shown(mine) != shown(theirs) {
                let reason = format!("{} where the first query has {}", shown(theirs), shown(mine));
                return Err(Error::Columns { query: index, reason });
            }
            mine.set_nullable(mine.is_nullable() || theirs.is_nullable());
        }
    }
    for column in 0..fields.len() {
        let widths: Vec<_> = sources.iter().map(|source| source.columns[column].dense_row_bytes()).collect();
        if widths.windows(2).any(|pair| pair[0] != pair[1]) {
            sources.iter_mut().for_each(|source| source.columns[column] = source.columns[column].decoded());
        }
    }
    let schema = Schema::new(fields);
    if sources.iter().any(|source| source.epoch.bucket().is_some()) {
        return Ok(unify_buckets(sources, &schema));
    }
    Ok(Arc::new(match sources.first().and_then(|source| source.epoch.pack()) {
        None => schema,
        Some(pack) => Schema::new(packed_fields(schema.fields(), &pack.options)?),
    }))
}

/// Makes the columns of the buckets of all sources consistent, whose rows have the columns `rows`. Returns the schema of
/// the buckets.
fn unify_buckets(sources: &mut [SourcePlan], rows: &Schema) -> SchemaRef {
    let num_tables = sources.iter().map(|source| source.row_set.sources().len()).sum();
    let schema = Arc::new(bucket_schema(rows, num_tables));
    let mut first = 0;
    for source in sources {
        let tables = first..first + source.row_set.sources().len();
        first = tables.end;
        source.epoch.set_columns(&schema, tables, num_tables);
    }
    schema
}

/// Returns what must be the same in all sources as text: the name, the type and, for tensors, the shape.
fn shown(field: &Field) -> String {
    let metadata = |key| field.metadata().get(key).map_or("", String::as_str);
    let tensor = format!("{} {}", metadata(EXTENSION_NAME_KEY), metadata(EXTENSION_METADATA_KEY));
    format!("{}: {} {tensor}", field.name(), field.data_type()).trim_end().to_string()
}

/// Reads the footers of the columns of a query, which the lake keeps. An error comes again when they are needed.
///
/// Those of light columns tell whether there are nulls, and are needed for the first rows. They are read here if that
/// takes about a round trip: a stream that is not asked for nulls needs them file by file.
async fn read_footers(query: &SampleQuery) {
    let mut reads = Vec::new();
    for column in query.columns() {
        let ColumnSource::Table(sources) = &column.source else { continue };
        let is_narrow = fixed_row_bytes(column.field.data_type()).is_some();
        for (table, name) in sources {
            let table = &query.tables()[*table];
            reads.push(async move {
                let is_dense = matches!(table.dense_column(name).await, Ok(DenseProbe::Dense(_)));
                if !is_dense && is_narrow && table.fragments().len() <= LIGHT_FOOTERS_MAX {
                    table.may_have_nulls(name).await.ok();
                }
            });
        }
    }
    join_all(reads).await;
}

/// Returns the page tables of a column if it has one in each of its tables, all with the same width.
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
    Ok(tables[*source].bytes_per_row(name).await?.unwrap_or(VARIABLE_ROW_BYTES).max(1))
}
