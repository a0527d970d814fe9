//! Rows by address.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use arrow_select::take::take_record_batch;
use lance::dataset::TakeBuilder;
use lance_datafusion::projection::ProjectionPlan;

use crate::{Error, Result, Table};

impl Table {
    /// The rows at these addresses, in this order; duplicates are allowed.
    ///
    /// Output: one column for each name in `columns`, one row for each address.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an address without a row; `DataCorrupt` naming the table when a file cannot be decoded.
    pub async fn take(&self, columns: &[String], row_addrs: &[u64]) -> Result<RecordBatch> {
        self.check_columns(columns)?;
        let attempted = || format!("reading {} rows of {} ({})", row_addrs.len(), self.snapshot(), columns.join(", "));
        let projected = self.dataset().schema().project(columns).map_err(|e| Error::storage(attempted(), e))?;
        if row_addrs.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::new(arrow_schema::Schema::from(&projected))));
        }
        let mut sorted = row_addrs.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let plan = ProjectionPlan::from_schema(self.dataset().clone(), &projected)
            .map_err(|source| Error::storage(attempted(), source))?;
        let take = TakeBuilder::try_new_from_addresses(self.dataset().clone(), sorted.clone(), Arc::new(plan));
        let taken = async { take?.execute().await }.await.map_err(|source| decode_error(attempted(), source))?;
        if taken.num_rows() != sorted.len() {
            let what = format!("{} of {} rows of {}", sorted.len() - taken.num_rows(), sorted.len(), self.snapshot());
            return Err(Error::NotFound { what, hint: "; they were deleted or the addresses are wrong".into() });
        }
        if sorted == row_addrs {
            return Ok(taken);
        }
        let places = row_addrs.iter().map(|addr| sorted.binary_search(addr).unwrap_or_default() as u64);
        let places = UInt64Array::from_iter_values(places);
        take_record_batch(&taken, &places).map_err(|source| Error::storage(attempted(), source))
    }
}

/// Lance reports damaged pages as invalid input or as an I/O error about ranges: with valid arguments the data is at fault.
pub(crate) fn decode_error(attempted: String, source: lance_core::Error) -> Error {
    match Error::storage(attempted, source) {
        Error::Storage { attempted, kind, source }
            if matches!(kind, stoker_types::ErrorKind::InvalidRequest | stoker_types::ErrorKind::Internal) =>
        {
            Error::DataCorrupt { attempted, reason: source.to_string().lines().next().unwrap_or_default().into() }
        }
        error => error,
    }
}
