//! Reads text columns.

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{Array as _, ArrayRef, LargeStringArray, RecordBatch, StringArray, StringViewArray};
use arrow_schema::DataType;
use lance::dataset::{ProjectionRequest, TakeBuilder};
use stoker_text::{Document, Matcher};

use crate::damage::caught;
use crate::{Error, ROW_ADDR, Result, Table};

/// The texts of a column.
pub(super) enum Texts {
    Short(StringArray),
    Long(LargeStringArray),
    View(StringViewArray),
}

/// Texts of rows.
pub(super) struct RowTexts {
    pub(super) row_addrs: Vec<u64>,
    /// The size of the texts in memory.
    pub(super) bytes: usize,
    /// For each column.
    pub(super) columns: Vec<Texts>,
}

impl Texts {
    /// Makes the texts of a column; `None` for a column of another type.
    pub(super) fn new(column: &ArrayRef) -> Option<Self> {
        match column.data_type() {
            DataType::Utf8 => Some(Self::Short(column.as_string::<i32>().clone())),
            DataType::LargeUtf8 => Some(Self::Long(column.as_string::<i64>().clone())),
            DataType::Utf8View => Some(Self::View(column.as_string_view().clone())),
            _ => None,
        }
    }

    /// Reads the text of a row. A null is a text without words.
    pub(super) fn read(&self, row: usize, matcher: &mut Matcher) -> Document {
        let text = match self {
            Self::Short(texts) => texts.is_valid(row).then(|| texts.value(row)),
            Self::Long(texts) => texts.is_valid(row).then(|| texts.value(row)),
            Self::View(texts) => texts.is_valid(row).then(|| texts.value(row)),
        };
        text.map_or_else(Document::default, |text| matcher.read(text))
    }
}

impl Table {
    /// Checks that all of these are columns of text.
    pub(super) fn check_texts(&self, columns: &[String]) -> Result<()> {
        self.check_columns(columns)?;
        for column in columns {
            let field = self.schema().field_with_name(column).map(|field| field.data_type().clone());
            if let Ok(data_type) = field
                && !matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
            {
                return Err(Error::InvalidRequest {
                    attempted: self.searching(),
                    reason: format!("column {column} is {data_type}, not text"),
                });
            }
        }
        Ok(())
    }

    /// Returns the columns of a batch as texts.
    pub(super) fn texts(&self, batch: &RecordBatch, columns: &[String]) -> Result<Vec<Texts>> {
        let texts = |column: &String| {
            batch.column_by_name(column).and_then(Texts::new).ok_or_else(|| Error::InvalidRequest {
                attempted: self.searching(),
                reason: format!("column {column} was not read as text"),
            })
        };
        columns.iter().map(texts).collect()
    }

    /// Reads the texts of the rows with these ids, in any order.
    pub(super) async fn texts_of(&self, columns: &[String], row_ids: &[u64]) -> Result<RowTexts> {
        if !self.dataset().manifest().uses_stable_row_ids() {
            // The ids are addresses.
            let batch = self.take(columns, row_ids).await?;
            let bytes = batch.get_array_memory_size();
            return Ok(RowTexts { row_addrs: row_ids.to_vec(), bytes, columns: self.texts(&batch, columns)? });
        }
        let request = ProjectionRequest::from_columns(columns, self.dataset().schema());
        let fail = |source| Error::storage(self.searching(), source);
        let taking = TakeBuilder::try_new_from_ids(self.dataset().clone(), row_ids.to_vec(), request).map_err(fail)?;
        let batch = caught(taking.with_row_address(true).execute()).await;
        let batch = match batch {
            Ok(batch) => batch,
            Err(source) => return Err(self.read_error(self.searching(), source).await),
        };
        let addrs = batch.column_by_name(ROW_ADDR).and_then(|addrs| addrs.as_primitive_opt::<UInt64Type>());
        let Some(addrs) = addrs else {
            let reason = format!("the rows were read without {ROW_ADDR}");
            return Err(Error::InvalidRequest { attempted: self.searching(), reason });
        };
        let bytes = batch.get_array_memory_size();
        Ok(RowTexts { row_addrs: addrs.values().to_vec(), bytes, columns: self.texts(&batch, columns)? })
    }
}
