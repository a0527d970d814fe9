//! Maps each output column of a scan to its source.

use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Result as DfResult;
use datafusion::error::DataFusionError;
use stoker_columns::{fixed_row_bytes, is_heavy};
use stoker_lake::{ROW_ADDR, ROW_ID};

use crate::search::{DISTANCE, RANK, SCORE};

/// The most bytes of heavy columns in an output batch of several rows.
const HEAVY_BATCH_BYTES: usize = 8 << 20;
/// The assumed bytes per row of a heavy column of variable width.
const VARIABLE_ROW_BYTES: usize = 128 << 10;
/// The most rows of an output batch.
const BATCH_ROWS_MAX: usize = 8192;

/// The source of an output column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputColumn {
    /// A light column of the table.
    Light(String),
    /// A heavy column of the table.
    Heavy(String),
    /// The row address.
    RowAddr,
    /// The row id, by which Lance finds rows.
    RowId,
    /// The distance of a search.
    Distance,
    /// The text score of a search.
    Score,
    /// The rank of a row among those that a search found, from 1.
    Rank,
}

/// The output of a scan: its schema, and the source of each of its columns.
#[derive(Debug)]
pub(crate) struct Layout {
    schema: SchemaRef,
    columns: Vec<OutputColumn>,
}

impl OutputColumn {
    /// The source of a table's column.
    pub(crate) fn of(field: &Field) -> Self {
        match is_heavy(field) {
            true => OutputColumn::Heavy(field.name().clone()),
            false => OutputColumn::Light(field.name().clone()),
        }
    }
}

/// Returns the most rows of a batch whose heavy columns take at most 8 MiB; at least one row.
pub(crate) fn rows_per_batch(schema: &Schema) -> usize {
    let heavy = schema.fields().iter().filter(|field| is_heavy(field));
    let row_bytes: usize = heavy.map(|field| heavy_row_bytes(field.data_type())).sum();
    match row_bytes {
        0 => BATCH_ROWS_MAX,
        row_bytes => (HEAVY_BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS_MAX),
    }
}

fn heavy_row_bytes(data_type: &DataType) -> usize {
    fixed_row_bytes(data_type).unwrap_or(VARIABLE_ROW_BYTES)
}

impl Layout {
    pub(crate) fn new(schema: SchemaRef, columns: Vec<OutputColumn>) -> Self {
        Self { schema, columns }
    }

    /// Returns the layout with this source of a column, which it may have from another source, or lack.
    pub(crate) fn with(mut self, field: FieldRef, source: OutputColumn) -> Self {
        match self.schema.index_of(field.name()) {
            Ok(index) => self.columns[index] = source,
            Err(_) => {
                let fields: Vec<FieldRef> = self.schema.fields().iter().cloned().chain([field]).collect();
                self.schema = Arc::new(Schema::new(fields));
                self.columns.push(source);
            }
        }
        self
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the names of the light columns to scan, each once.
    pub(crate) fn light_columns(&self) -> Vec<String> {
        distinct(self.columns.iter().filter_map(|column| match column {
            OutputColumn::Light(name) => Some(name),
            _ => None,
        }))
    }

    /// Returns the names of the heavy columns to read, each once.
    pub(crate) fn heavy_columns(&self) -> Vec<String> {
        distinct(self.columns.iter().filter_map(|column| match column {
            OutputColumn::Heavy(name) => Some(name),
            _ => None,
        }))
    }

    /// Tells whether the scan must return row addresses: to show them, to read heavy columns, or to count rows when no
    /// other column is scanned.
    pub(crate) fn needs_row_addr(&self) -> bool {
        (self.light_columns().is_empty() && !self.needs_row_id())
            || self.columns.iter().any(|c| matches!(c, OutputColumn::RowAddr | OutputColumn::Heavy(_)))
    }

    /// Tells whether the scan must return row ids.
    pub(crate) fn needs_row_id(&self) -> bool {
        self.columns.contains(&OutputColumn::RowId)
    }

    /// Returns the index of the column of row addresses.
    pub(crate) fn addr_index(&self) -> Option<usize> {
        self.columns.iter().position(|column| *column == OutputColumn::RowAddr)
    }

    /// Returns the index of the column of ranks.
    pub(crate) fn rank_index(&self) -> Option<usize> {
        self.columns.iter().position(|column| *column == OutputColumn::Rank)
    }

    /// Builds the output batch from scanned light columns and heavy columns of the same rows.
    pub(crate) fn assemble(&self, light: &RecordBatch, heavy: &[(String, ArrayRef)]) -> DfResult<RecordBatch> {
        let missing = |name: &str| DataFusionError::Internal(format!("a scan gave no column {name}"));
        let light_column = |name: &str| light.column_by_name(name).cloned().ok_or_else(|| missing(name));
        let heavy_column = |name: &str| {
            let found = heavy.iter().find(|(known, _)| known == name);
            found.map(|(_, column)| column.clone()).ok_or_else(|| missing(name))
        };
        let columns = self.columns.iter().map(|column| match column {
            OutputColumn::Light(name) => light_column(name),
            OutputColumn::Heavy(name) => heavy_column(name),
            OutputColumn::RowAddr => light_column(ROW_ADDR),
            OutputColumn::RowId => light_column(ROW_ID),
            OutputColumn::Distance => light_column(DISTANCE),
            OutputColumn::Score => light_column(SCORE),
            OutputColumn::Rank => light_column(RANK),
        });
        let columns: Vec<ArrayRef> = columns.collect::<DfResult<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(light.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "columns=[{}]", self.light_columns().join(", "))?;
        match self.heavy_columns() {
            heavy if heavy.is_empty() => Ok(()),
            heavy => write!(f, ", heavy=[{}]", heavy.join(", ")),
        }
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name.clone());
        }
    }
    distinct
}
