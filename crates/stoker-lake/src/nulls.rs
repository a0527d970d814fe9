//! The rows in which a column is null.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use futures::{StreamExt, TryStreamExt, stream};
use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::{RepDefLayer, page_layout::Layout};
use stoker_columns::is_heavy;

use crate::dense::{FOOTERS_IN_FLIGHT, FoundFile};
use crate::obstacle::Obstacle;
use crate::scan::ROW_ADDR;
use crate::{Error, Result, ScanRequest, Table};

/// Rows per record batch: each row holds only an address.
const BATCH_ROWS: usize = 1 << 16;

impl Table {
    /// Returns the addresses of the rows in which a column is null.
    ///
    /// A column that is not nullable costs no reads. Otherwise the footers of the data files are read, and the column
    /// itself is scanned only where its footers allow nulls. Some footers do not say whether there are nulls, as in
    /// files before version 2.1. Then a light column is scanned, and a heavy column is assumed to have no nulls.
    ///
    /// # Errors `InvalidRequest` for an unknown column; `DataCorrupt` for unreadable footers; storage errors.
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
        Error::of_scan(format!("looking for nulls in column {column} of table {}", self.snapshot()), source)
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
                Err(_) => !is_heavy(field),
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
