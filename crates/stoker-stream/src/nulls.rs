//! Finds the columns of a stream that contain nulls.

use std::collections::HashSet;

use arrow_array::Array;

use crate::read::supplier;
use crate::source::{ColumnPlan, SourcePlan};
use crate::{Result, StreamPlan};

/// The number of rows whose addresses are resolved at a time.
const ROWS_AT_ONCE: u64 = 1 << 16;

impl StreamPlan {
    /// Returns those of `columns` that are null in at least one row of the stream, in the order of the batches'
    /// columns.
    ///
    /// A column that is read as plain bytes has no nulls, and neither has a column whose table declares it as non-null.
    /// Each of the other columns is scanned once, a heavy one only if footers of its files report nulls.
    ///
    /// # Errors
    /// Errors of reading the tables and the row sets.
    pub async fn nulls(&self, columns: &[String]) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (index, field) in self.schema().fields().iter().enumerate() {
            if !columns.contains(field.name()) {
                continue;
            }
            for source in self.inner.sources.iter() {
                if source.has_nulls(index).await? {
                    found.push(field.name().clone());
                    break;
                }
            }
        }
        Ok(found)
    }
}

impl SourcePlan {
    /// Returns whether the column with this index is null in at least one row.
    async fn has_nulls(&self, column: usize) -> Result<bool> {
        match &self.columns[column] {
            ColumnPlan::Dense { .. } | ColumnPlan::Packed => Ok(false),
            ColumnPlan::RowSet { index } => self.any_rows(|rows| Ok(rows.columns[*index].null_count() > 0)).await,
            ColumnPlan::Table { sources } => {
                let mut null_rows = Vec::with_capacity(sources.len());
                for (table, name) in sources {
                    let addrs = self.row_set.sources()[*table].null_rows(name).await?;
                    null_rows.push(addrs.into_iter().collect::<HashSet<u64>>());
                }
                // After an outer join, a row may have no row in the table that would supply the column.
                let is_optional = self.query.columns()[column].optional;
                if !is_optional && null_rows.iter().all(HashSet::is_empty) {
                    return Ok(false);
                }
                let is_null = |addrs: &[Vec<u64>], row| {
                    let supplier = supplier(sources.iter().map(|(table, _)| *table), addrs, row);
                    supplier.is_none_or(|place| null_rows[place].contains(&addrs[sources[place].0][row]))
                };
                self.any_rows(|rows| {
                    let num_rows = rows.addrs.first().map_or(0, Vec::len);
                    Ok((0..num_rows).any(|row| is_null(&rows.addrs, row)))
                })
                .await
            }
        }
    }

    /// Returns whether `holds` is true for at least one batch of the rows, which are resolved batch by batch.
    async fn any_rows(&self, holds: impl Fn(&stoker_sql::ResolvedRows) -> Result<bool>) -> Result<bool> {
        let num_rows = self.row_set.num_rows();
        let mut start = 0;
        while start < num_rows {
            let end = num_rows.min(start + ROWS_AT_ONCE);
            let ordinals: Vec<u64> = (start..end).collect();
            if holds(&self.row_set.resolve(&ordinals).await?)? {
                return Ok(true);
            }
            start = end;
        }
        Ok(false)
    }
}
