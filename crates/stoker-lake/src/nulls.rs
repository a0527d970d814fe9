//! The rows in which a column is null.

use std::collections::HashSet;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::{RepDefLayer, page_layout::Layout};
use stoker_columns::{is_blob, is_heavy};

use crate::blobs::Descriptors;
use crate::damage::caught;
use crate::dense::{FOOTERS_IN_FLIGHT, FoundFile};
use crate::precheck::Checked;
use crate::scan::ROW_ADDR;
use crate::{Error, Obstacle, Result, ScanRequest, Table};

/// Rows per record batch: each row holds only an address.
const BATCH_ROWS: usize = 1 << 16;

impl Table {
    /// Returns the addresses of the rows in which a column is null.
    ///
    /// A column that is not nullable costs no reads. Otherwise the footers of the data files are read, and the column
    /// itself is scanned only where its footers allow nulls. Some footers do not say whether there are nulls, as in
    /// files before version 2.1. Then a light column is scanned, as are the descriptors of blobs, and any other heavy
    /// column is assumed to have no nulls.
    ///
    /// # Errors `InvalidRequest` for an unknown column; `DataCorrupt` for unreadable footers; storage errors.
    pub async fn null_rows(&self, column: &str) -> Result<Vec<u64>> {
        self.check_columns([&column.to_string()])?;
        if !self.may_have_nulls(column).await? {
            return Ok(Vec::new());
        }
        if self.schema().field_with_name(column).is_ok_and(is_blob) {
            return self.null_blobs(column).await;
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

    /// Returns the addresses of the rows in which a blob column is null, by the descriptors of all rows.
    ///
    /// # Errors
    /// `DataCorrupt` for unreadable descriptors; storage errors.
    async fn null_blobs(&self, column: &str) -> Result<Vec<u64>> {
        let columns = HashSet::from([column]);
        let fragments = self.dataset().fragments().iter().collect();
        self.check_read(&columns, fragments, Checked::Footers).await?;
        let reading = async {
            let mut scanner = self.dataset().scan();
            scanner.project(&[column])?.with_row_address().batch_size(BATCH_ROWS);
            let mut batches = scanner.try_into_stream().boxed().await?;
            let mut found = Vec::new();
            while let Some(batch) = batches.try_next().await? {
                let row_addrs = batch.column_by_name(ROW_ADDR);
                let row_addrs = row_addrs.and_then(|column| column.as_primitive_opt::<UInt64Type>());
                let values = batch.column_by_name(column);
                let (Some(row_addrs), Some(values)) = (row_addrs, values) else { continue };
                let descriptors = Descriptors::of(values);
                let is_null = |row: &usize| match &descriptors {
                    Some(descriptors) => descriptors.is_null(*row),
                    None => values.is_null(*row),
                };
                found.extend((0..batch.num_rows()).filter(is_null).map(|row| row_addrs.value(row)));
            }
            Ok(found)
        };
        match caught(reading).await {
            Ok(found) => Ok(found),
            Err(source) => Err(self.read_error(self.finding_nulls(column), source).await),
        }
    }

    fn null_error(&self, column: &str, source: DataFusionError) -> Error {
        Error::of_scan(self.finding_nulls(column), source)
    }

    fn finding_nulls(&self, column: &str) -> String {
        format!("looking for nulls in column {column} of table {}", self.snapshot())
    }

    /// Returns whether a column can have nulls according to its type and its footers.
    ///
    /// # Errors
    /// `DataCorrupt` for unreadable footers; storage errors.
    pub async fn may_have_nulls(&self, column: &str) -> Result<bool> {
        let schema = self.schema();
        let Ok(field) = schema.field_with_name(column) else { return Ok(false) };
        if !field.is_nullable() {
            return Ok(false);
        }
        let scheduler = self.footer_scheduler();
        let mut fragments = stream::iter(self.dataset().get_fragments())
            .map(|fragment| {
                let scheduler = scheduler.clone();
                async move { self.column_files(&scheduler, &fragment, column).await }
            })
            .buffer_unordered(FOOTERS_IN_FLIGHT);
        while let Some(files) = fragments.try_next().await? {
            let may_have_nulls = |file: &FoundFile| match file {
                Ok((_, metadata, index)) => metadata.column_infos[*index].page_infos.iter().any(page_may_have_nulls),
                Err(Obstacle::NoFile) => true,
                Err(_) => !is_heavy(field) || is_blob(field),
            };
            if files.iter().any(may_have_nulls) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether a page can have rows that are null.
fn page_may_have_nulls(page: &PageInfo) -> bool {
    let PageEncoding::Structural(layout) = &page.encoding else { return true };
    let layers = match &layout.layout {
        Some(Layout::FullZipLayout(zip)) if zip.bits_def == 0 => return false,
        Some(Layout::ConstantLayout(constant)) if constant.inline_value.is_none() => return true,
        Some(Layout::FullZipLayout(zip)) => &zip.layers,
        Some(Layout::ConstantLayout(constant)) => &constant.layers,
        Some(Layout::MiniBlockLayout(mini)) => &mini.layers,
        Some(Layout::BlobLayout(blob)) => &blob.layers,
        None => return true,
    };
    let has_none = |layer: &i32| {
        use RepDefLayer::{RepdefAllValidItem, RepdefAllValidList, RepdefEmptyableList};
        matches!(RepDefLayer::try_from(*layer), Ok(RepdefAllValidItem | RepdefAllValidList | RepdefEmptyableList))
    };
    !layers.iter().all(has_none)
}
