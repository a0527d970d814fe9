//! Reads a column of numbers of all rows of a row set, in the order of the rows.

use arrow_array::ArrayRef;
use arrow_schema::{DataType, FieldRef};
use futures::{Stream, StreamExt, stream};
use stoker_chunks::ChunkScan;
use stoker_sql::{NO_ROW, ResolvedRows};
use stoker_types::{ReadOptions, to_usize};

use crate::light::{Bad, read_tables};
use crate::options::chunk_scan;
use crate::source::{ColumnPlan, SourcePlan};
use crate::unit_clock::UnitClock;
use crate::{Error, Resources, Result};

/// The number of reads at the same time.
const READS_AT_ONCE: usize = 4;

/// A column of a query, of which an option tells the name.
#[derive(Clone, Copy)]
pub(super) struct EpochColumn<'a> {
    source: &'a SourcePlan,
    /// What the column is for, such as `weight`.
    option: &'static str,
    name: &'a str,
    index: usize,
}

/// The values of some neighbouring rows.
pub(super) struct ColumnRows<'a> {
    column: EpochColumn<'a>,
    rows: ResolvedRows,
    pub values: ArrayRef,
}

impl<'a> EpochColumn<'a> {
    /// Finds a column.
    ///
    /// # Errors
    /// [`Error::EpochColumn`] if the query does not have it.
    pub fn find(source: &'a SourcePlan, option: &'static str, name: &'a str) -> Result<Self> {
        let fields = source.query.columns().iter().map(|known| &known.field);
        Ok(Self { source, option, name, index: index_of(fields, option, name)? })
    }

    /// Returns the number of rows of the row set.
    pub fn num_rows(self) -> u64 {
        self.source.row_set.num_rows()
    }

    /// Returns the bytes per row of all columns together, at least 1.
    pub fn row_bytes(self) -> u64 {
        self.source.row_bytes
    }

    pub fn data_type(self) -> &'a DataType {
        self.source.query.columns()[self.index].field.data_type()
    }

    /// Returns an error that names the column.
    pub fn error(self, reason: String) -> Error {
        Error::EpochColumn { option: self.option, column: self.name.into(), reason }
    }

    /// Reads the values of all rows, `rows_at_once` at a time.
    pub fn read(self, rows_at_once: u64) -> impl Stream<Item = Result<ColumnRows<'a>>> {
        let num_rows = self.source.row_set.num_rows();
        let scan = chunk_scan(&ReadOptions::default(), &Resources::default());
        let reads = (0..num_rows).step_by(to_usize(rows_at_once)).map(move |start| {
            let (ordinals, scan) = ((start..num_rows.min(start + rows_at_once)).collect::<Vec<u64>>(), scan.clone());
            async move {
                let rows = self.source.row_set.resolve(&ordinals).await?;
                let values = self.values(&scan, &rows).await?;
                Ok(ColumnRows { column: self, rows, values })
            }
        });
        stream::iter(reads).buffered(READS_AT_ONCE)
    }

    async fn values(self, scan: &ChunkScan, rows: &ResolvedRows) -> Result<ArrayRef> {
        let Self { source, index, .. } = self;
        if let ColumnPlan::RowSet { index } = &source.columns[index] {
            return Ok(rows.columns[*index].clone());
        }
        let (clock, mut bad) = (UnitClock::start(scan.clock()), Bad::new());
        let read = read_tables(source, scan, &clock, &[index], &rows.addrs, &mut bad).await?;
        if let Some(((table, address), reason)) = bad.into_iter().min() {
            let table = source.row_set.sources()[table].snapshot().to_string();
            return Err(Error::BadRow { table, address, reason });
        }
        read.into_iter().next().ok_or_else(|| self.error("it is a column of tensors; name a column of numbers".into()))
    }
}

impl ColumnRows<'_> {
    /// Returns the error for a row whose value cannot be used.
    pub fn error(&self, row: usize, value: &str, wanted: &str) -> Error {
        let tables = self.column.source.row_set.sources();
        let named = named_row(self.rows.addrs.iter().map(|addrs| addrs[row]), tables);
        self.column.error(format!("{named} has {value}; {wanted}"))
    }
}

/// Returns the index of a column of which an option tells the name.
///
/// # Errors
/// [`Error::EpochColumn`] if the query does not have it.
pub(super) fn index_of<'f>(
    fields: impl Iterator<Item = &'f FieldRef> + Clone,
    option: &'static str,
    name: &str,
) -> Result<usize> {
    fields.clone().position(|known| known.name() == name).ok_or_else(|| {
        let names: Vec<&str> = fields.map(|known| known.name().as_str()).collect();
        let reason = format!("the query has no such column; it has {}", names.join(", "));
        Error::EpochColumn { option, column: name.into(), reason }
    })
}

/// Returns the address and the table of a row as text.
pub(super) fn named_row(addrs: impl Iterator<Item = u64>, tables: &[stoker_lake::Table]) -> String {
    let mut supplied = addrs.zip(tables).filter(|(address, _)| *address != NO_ROW);
    let named = |(address, table): (u64, &stoker_lake::Table)| format!("row {address:#x} of {}", table.snapshot());
    supplied.next().map_or_else(|| "a row".into(), named)
}
