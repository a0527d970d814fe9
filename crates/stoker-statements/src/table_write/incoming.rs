//! The columns of incoming rows, which features of Hugging Face's `datasets` may declare.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use stoker_columns::{Mismatch, WrongValue, kind_of};
use stoker_formats::{HUGGING_FACE_KEY, SourceColumn, feature_columns};
use stoker_types::TableName;

use crate::{Error, Result};

/// The columns of incoming rows, after conversions that the features declare.
pub(super) struct IncomingColumns {
    schema: Arc<Schema>,
    /// The conversions; `None` for rows that stay as they are.
    conversions: Option<Vec<SourceColumn>>,
}

impl IncomingColumns {
    /// Reads the features in the metadata of the schema, if it says that it has some.
    ///
    /// # Errors
    /// Missing features, and features that do not fit their columns.
    pub fn try_new(table: &TableName, columns: &Schema, has_features: bool) -> Result<Self> {
        if !has_features {
            return Ok(Self { schema: Arc::new(columns.clone()), conversions: None });
        }
        let refused = |reason: String| Error::refused(format!("table {table}"), reason);
        let features = columns.metadata().get(HUGGING_FACE_KEY);
        let features = features.ok_or_else(|| refused("the metadata of the schema has no features".into()))?;
        let mut conversions = feature_columns(features, columns).map_err(|wrong| refused(wrong.to_string()))?;
        for SourceColumn { ingest, .. } in &mut conversions {
            // Later batches can have nulls.
            if ingest.conversion.keeps_nulls() {
                ingest.field = ingest.field.clone().with_nullable(true);
            }
        }
        let fields: Vec<Field> = conversions.iter().map(|column| column.ingest.field.clone()).collect();
        Ok(Self { schema: Arc::new(Schema::new(fields)), conversions: Some(conversions) })
    }

    /// The columns after the conversions.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Converts a batch.
    ///
    /// # Errors
    /// The first value of a column that does not fit.
    pub fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch, WrongValue> {
        let Some(conversions) = &self.conversions else { return Ok(batch.clone()) };
        let mut columns = Vec::with_capacity(conversions.len());
        for column in conversions {
            let wrong = |mismatch| WrongValue { column: column.source.clone(), mismatch };
            let missing = || wrong(Mismatch { row: None, expected: "a column".into(), found: "none".into() });
            let values = batch.column_by_name(&column.source).ok_or_else(missing)?;
            columns.push(converted(column, values).map_err(wrong)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|source| {
            let mismatch =
                Mismatch { row: None, expected: "columns of the features".into(), found: source.to_string() };
            WrongValue { column: "*".into(), mismatch }
        })
    }
}

/// Converts the values of a column. Where one does not fit, its row is looked for.
fn converted(column: &SourceColumn, values: &ArrayRef) -> Result<ArrayRef, Mismatch> {
    let field = &column.ingest.field;
    let convert = |values: &ArrayRef| {
        let converted = column.ingest.conversion.convert(field, values)?;
        kind_of(field).check(field, &converted)?;
        let has_null = !field.is_nullable() && converted.null_count() > 0;
        let null = || Mismatch { row: None, expected: "a value".into(), found: "null".into() };
        if has_null { Err(null()) } else { Ok(converted) }
    };
    convert(values).map_err(|wrong| match wrong.row {
        Some(_) => wrong,
        None => {
            let row = (0..values.len()).find(|row| convert(&values.slice(*row, 1)).is_err());
            Mismatch { row, ..wrong }
        }
    })
}
