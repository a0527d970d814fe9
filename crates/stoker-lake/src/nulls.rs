//! The rows in which a column is null.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use futures::TryStreamExt;
use stoker_types::is_heavy;

use crate::obstacle::Obstacle;
use crate::scan::ROW_ADDR;
use crate::{Error, Result, ScanRequest, Table};

/// Rows per record batch: they hold an address only.
const BATCH_ROWS: usize = 1 << 16;

impl Table {
    /// The addresses of the rows in which a column is null.
    ///
    /// Nothing is read of a column that is not nullable. Of a heavy one, only footers are read unless they tell of nulls. Otherwise
    /// the column is scanned.
    ///
    /// # Errors
    /// `InvalidRequest` for an unknown column; `DataCorrupt` for unreadable footers; storage errors.
    pub async fn null_rows(&self, column: &str) -> Result<Vec<u64>> {
        self.check_columns([&column.to_string()])?;
        if !self.may_have_nulls(column).await? {
            return Ok(Vec::new());
        }
        let filter = Expr::Column(Column::new_unqualified(column)).is_null();
        let request =
            ScanRequest { filter: Some(filter), with_row_addr: true, batch_size: BATCH_ROWS, ..ScanRequest::default() };
        let mut batches = self.scan(&request).await?;
        let mut addrs = Vec::new();
        while let Some(batch) = batches.try_next().await.map_err(|source| self.null_error(column, source))? {
            let found = batch.column_by_name(ROW_ADDR).and_then(|column| column.as_primitive_opt::<UInt64Type>());
            addrs.extend(found.into_iter().flat_map(|found| found.values().iter().copied()));
        }
        Ok(addrs)
    }

    fn null_error(&self, column: &str, source: DataFusionError) -> Error {
        let attempted = || format!("looking for nulls in column {column} of table {}", self.snapshot());
        match source {
            DataFusionError::External(source) => match source.downcast::<Error>() {
                Ok(error) => *error,
                Err(source) => Error::storage(attempted(), source),
            },
            source => Error::storage(attempted(), source),
        }
    }

    /// Whether a column can have nulls, as far as its type and its footers tell.
    async fn may_have_nulls(&self, column: &str) -> Result<bool> {
        let schema = self.schema();
        let Ok(field) = schema.field_with_name(column) else { return Ok(false) };
        if !field.is_nullable() || !is_heavy(field) {
            return Ok(field.is_nullable());
        }
        let tells = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Nulls | Obstacle::OnlyNulls | Obstacle::NoFile);
        Ok(self.survey(field).await?.obstacles.iter().any(|(obstacle, _)| tells(obstacle)))
    }
}
