//! How columns of other systems become columns of tables.

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Fields, Schema};

use crate::metadata::kept_metadata;
use crate::{MARKED, Mismatch, TYPES, kind_of};

/// The conversion of the values of a column.
pub trait Conversion: fmt::Debug + Send + Sync {
    /// Whether values of a type can be converted to `field`. A conversion may still refuse single values.
    fn accepts(&self, field: &Field, found: &DataType) -> bool;

    /// Describes the types that can be converted to `field`, for messages.
    fn expected(&self, field: &Field) -> String {
        field.data_type().to_string()
    }

    /// Whether a null stays a null. Otherwise it is refused.
    fn keeps_nulls(&self) -> bool;

    /// Converts values to the type of `field`.
    ///
    /// # Errors
    /// The first value that does not fit.
    fn convert(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch>;
}

/// A column of a table, and the conversion of another system's column to it.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// The column of the table.
    pub field: Field,
    /// The conversion of its values.
    pub conversion: Arc<dyn Conversion>,
}

impl Ingest {
    pub(crate) fn new(field: Field, conversion: impl Conversion + 'static) -> Self {
        Self { field, conversion: Arc::new(conversion) }
    }
}

/// A cast to the type of the table's column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cast;

impl Conversion for Cast {
    fn accepts(&self, field: &Field, found: &DataType) -> bool {
        alike(field.data_type(), &plain(found))
    }

    fn keeps_nulls(&self) -> bool {
        true
    }

    fn convert(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        to_type(array, field.data_type())
    }
}

/// Decides how a column of another system is ingested about which nothing is declared. `recognised` allows that a kind
/// recognises its columns by the declarations of that system.
pub fn ingest(schema: &Schema, field: &Field, recognised: bool) -> Ingest {
    let mut kinds = MARKED.into_iter().chain(TYPES);
    if recognised && let Some(ingest) = kinds.find_map(|kind| kind.recognise(schema, field)) {
        return ingest;
    }
    let plain = Field::new(field.name(), plain(field.data_type()), field.is_nullable());
    let plain = plain.with_metadata(kept_metadata(field));
    kind_of(&plain).ingest(plain)
}

/// Returns the values in another type.
pub(crate) fn to_type(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, Mismatch> {
    if array.data_type() == data_type {
        return Ok(array.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, data_type, &options)
        .map_err(|error| Mismatch::new(None, data_type.to_string(), format!("{}: {error}", array.data_type())))
}

/// Returns the values in their plain type.
pub(crate) fn to_plain(array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
    to_type(array, &plain(array.data_type()))
}

/// Returns the type without dictionaries, run-end encodings and views, and with LargeBinary for binary.
pub(crate) fn plain(data_type: &DataType) -> DataType {
    let item = |field: &Arc<Field>| Arc::new(Field::new(field.name(), plain(field.data_type()), field.is_nullable()));
    match data_type {
        DataType::Dictionary(_, value) => plain(value),
        DataType::RunEndEncoded(_, value) => plain(value.data_type()),
        DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::BinaryView => DataType::LargeBinary,
        DataType::List(field) | DataType::ListView(field) => DataType::List(item(field)),
        DataType::LargeList(field) | DataType::LargeListView(field) => DataType::LargeList(item(field)),
        DataType::FixedSizeList(field, length) => DataType::FixedSizeList(item(field), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect::<Fields>()),
        other => other.clone(),
    }
}

/// Whether a cast between the types changes no value: they differ only in offset width or nullability.
fn alike(a: &DataType, b: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, LargeUtf8, List, Struct, Utf8};
    match (a, b) {
        (Utf8 | LargeUtf8, Utf8 | LargeUtf8) => true,
        (List(a) | LargeList(a), List(b) | LargeList(b)) => alike(a.data_type(), b.data_type()),
        (FixedSizeList(a, m), FixedSizeList(b, n)) => m == n && alike(a.data_type(), b.data_type()),
        (Struct(a), Struct(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| a.name() == b.name() && alike(a.data_type(), b.data_type()))
        }
        _ => a == b,
    }
}
