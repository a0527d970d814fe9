//! Fits rows that are written to the schema of a table.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use stoker_codec::SMALL_ROW_BYTES_MAX;

use crate::lossy::without_codec;
use crate::widen::{is_of_bits, widened, widens};
use crate::{
    CompressedTensor, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, LossyColumn, Mismatch, chosen_codec, kind_of,
};

/// A value that is not of its column's kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongValue {
    /// The column.
    pub column: String,
    /// What is wrong with the value, and in which row.
    pub mismatch: Mismatch,
}

/// Returns the schema with which incoming columns are written.
///
/// Tensors get their canonical form: non-null rows of non-null elements, which are stored as plain bytes. Columns with a
/// codec ([`CODEC_KEY`](crate::CODEC_KEY)) become what [`chosen_codec`] makes of them. A column that an existing table has
/// with the same type, or with one to which its values are widened without loss, takes over the table's field, and so do
/// tensors that the table compresses or holds with an error. So a nullable column without nulls fits a non-null column of
/// the table.
///
/// # Errors
/// A codec that does not fit its column.
pub fn target_schema(incoming: &Schema, existing: Option<&Schema>) -> Result<SchemaRef, ArrowError> {
    let field = |field: &FieldRef| {
        let chosen = chosen_codec(field).map_err(ArrowError::InvalidArgumentError)?;
        let canonical = match &chosen {
            Some(_) => without_codec(field),
            None => field.as_ref().clone(),
        };
        let canonical = kind_of(&canonical).canonical(&canonical);
        Ok::<FieldRef, ArrowError>(match existing.and_then(|schema| schema.field_with_name(field.name()).ok()) {
            Some(theirs) if agrees(theirs, &canonical) => Arc::new(theirs.clone()),
            _ => Arc::new(chosen.unwrap_or(canonical)),
        })
    };
    Ok(Arc::new(Schema::new(incoming.fields().iter().map(field).collect::<Result<Vec<_>, ArrowError>>()?)))
}

/// Whether columns of a new table may get dictionaries of [`with_dictionaries`].
pub fn may_have_dictionaries(target: &Schema) -> bool {
    target.fields().iter().any(|field| {
        let tensor = CompressedTensor::try_of(field).ok().flatten();
        tensor.is_some_and(|tensor| tensor.dictionary.is_none() && tensor.row().num_bytes() <= SMALL_ROW_BYTES_MAX)
    })
}

/// Returns the schema of a new table whose columns of small compressed tensors have dictionaries, which are made of the
/// first rows. Columns for which that is of no use stay as they are, as do those whose rows do not fit, which the writer
/// refuses.
pub fn with_dictionaries(target: &Schema, first: &RecordBatch) -> SchemaRef {
    let with_dictionary = |field: &FieldRef, column: &ArrayRef| {
        let tensor = CompressedTensor::try_of(field).ok()??;
        let tensor = tensor.with_dictionary(column).ok()?;
        let made = tensor.dictionary.is_some().then(|| tensor.to_field(field.name()))?;
        let mut metadata = field.metadata().clone();
        metadata.extend(made.metadata().clone());
        Some(Arc::new(field.as_ref().clone().with_metadata(metadata)))
    };
    let columns = target.fields().iter().zip(first.columns());
    let fields: Vec<FieldRef> =
        columns.map(|(field, column)| with_dictionary(field, column).unwrap_or_else(|| field.clone())).collect();
    Arc::new(Schema::new_with_metadata(fields, target.metadata().clone()))
}

/// Returns the batch with the types of `target`. Tensors that the target compresses are compressed, and values of other
/// types are widened; other values are not copied. The writer, not this function, refuses nulls in the rows.
///
/// # Errors
/// The first row with nulls inside tensors and vectors, or with a number that the target does not hold exactly.
pub fn fit(batch: &RecordBatch, target: &Schema) -> Result<RecordBatch, WrongValue> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in target.fields().iter().zip(batch.columns()) {
        let fitted =
            fit_column(field, column).map_err(|mismatch| WrongValue { column: field.name().clone(), mismatch })?;
        let field = field.as_ref().clone().with_nullable(true);
        // The writer makes lossy values of others, because it measures the error.
        fields.push(Arc::new(match LossyColumn::of(&field) {
            Some(_) => field.with_data_type(fitted.data_type().clone()),
            None => field,
        }));
        columns.push(fitted);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).map_err(|source| {
        let mismatch = Mismatch::new(None, "columns of the table", source.to_string());
        WrongValue { column: "*".into(), mismatch }
    })
}

fn fit_column(field: &Field, column: &ArrayRef) -> Result<ArrayRef, Mismatch> {
    if let (Ok(Some(tensor)), DataType::FixedSizeList(..)) = (CompressedTensor::try_of(field), column.data_type()) {
        return tensor.compress(column);
    }
    let may_widen = LossyColumn::of(field).is_none() && !is_of_bits(field);
    let column = match may_widen && widens(field.data_type(), column.data_type()) {
        true => &widened(field.data_type(), column)?,
        false => column,
    };
    let kind = kind_of(field);
    kind.fit(field, column).map_err(|error| {
        let row = (0..column.len()).find(|row| kind.fit(field, &column.slice(*row, 1)).is_err());
        let found = match error {
            ArrowError::InvalidArgumentError(text) => text,
            other => other.to_string(),
        };
        Mismatch::new(row, "values without nulls inside", found)
    })
}

/// Returns the first value of a batch that is not of its column's kind.
pub fn wrong_value(batch: &RecordBatch, target: &Schema) -> Option<WrongValue> {
    let mut columns = target.fields().iter().zip(batch.columns());
    columns.find_map(|(field, column)| {
        let mismatch = kind_of(field).check(field, column).err()?;
        Some(WrongValue { column: field.name().clone(), mismatch })
    })
}

/// Whether a table's field has the type of the incoming field and, if the incoming field names an extension type, the
/// same one; or compresses the rows of the incoming field, or holds them with an error.
fn agrees(theirs: &Field, incoming: &Field) -> bool {
    if LossyColumn::of(theirs).is_some_and(|lossy| lossy.takes(theirs, incoming)) {
        return true;
    }
    if let Ok(Some(tensor)) = CompressedTensor::try_of(theirs)
        && tensor.has_rows_of(incoming)
    {
        return true;
    }
    let same = |key: &str| incoming.metadata().get(key).is_none_or(|value| theirs.metadata().get(key) == Some(value));
    let may_widen = !is_of_bits(theirs) && !is_of_bits(incoming);
    (same_type(theirs.data_type(), incoming.data_type())
        || may_widen && widens(theirs.data_type(), incoming.data_type()))
        && same(EXTENSION_NAME_KEY)
        && same(EXTENSION_METADATA_KEY)
}

/// Whether two types are equal, apart from the names and the nullability of the items of fixed-size lists, which tables
/// do not keep.
fn same_type(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::FixedSizeList(left, left_length), DataType::FixedSizeList(right, right_length)) => {
            left_length == right_length && same_type(left.data_type(), right.data_type())
        }
        (left, right) => left.equals_datatype(right),
    }
}
