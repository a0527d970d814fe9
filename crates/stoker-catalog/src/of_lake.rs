//! The relations about the whole lake: those of `information_schema`, and `functions()`.
//!
//! Their columns are those of the SQL standard, as far as they mean something here.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use stoker_types::{CATALOG, SCHEMA, TableName};

use crate::INFORMATION_SCHEMA;
use crate::functions::Function;

/// A relation about the whole lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LakeView {
    /// `information_schema.schemata`.
    Schemata,
    /// `information_schema.tables`.
    Tables,
    /// `information_schema.columns`.
    Columns,
    /// `information_schema.views`.
    Views,
    /// `functions()`.
    Functions,
}

/// The relations of `information_schema`.
const OF_INFORMATION_SCHEMA: [LakeView; 4] = [LakeView::Schemata, LakeView::Tables, LakeView::Columns, LakeView::Views];

impl LakeView {
    /// Returns the relation of `information_schema` that has this name.
    pub fn of_information_schema(name: &str) -> Option<Self> {
        OF_INFORMATION_SCHEMA.into_iter().find(|view| view.name() == name)
    }

    /// The names of the relations of `information_schema`.
    pub fn names() -> String {
        OF_INFORMATION_SCHEMA.map(Self::name).join(", ")
    }

    /// The name of the relation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Schemata => "schemata",
            Self::Tables => "tables",
            Self::Columns => "columns",
            Self::Views => "views",
            Self::Functions => "functions",
        }
    }

    pub(crate) fn schema(self) -> SchemaRef {
        let fields = match self {
            Self::Schemata => texts(&["catalog_name", "schema_name"], &["schema_owner"]),
            Self::Tables => texts(&["table_catalog", "table_schema", "table_name", "table_type"], &[]),
            Self::Views => texts(&["table_catalog", "table_schema", "table_name"], &["view_definition"]),
            Self::Functions => texts(&["function_name", "function_type"], &["syntax", "description"]),
            Self::Columns => {
                let mut fields = texts(&["table_catalog", "table_schema", "table_name", "column_name"], &[]);
                fields.push(Field::new("ordinal_position", DataType::Int32, false));
                fields.extend(texts(&[], &["column_default"]));
                fields.extend(texts(&["is_nullable", "data_type"], &[]));
                fields.extend(NUMBERS.map(|name| Field::new(name, DataType::Int32, true)));
                fields.extend(texts(&[], &["interval_type"]));
                fields
            }
        };
        Arc::new(Schema::new(fields))
    }
}

/// The columns of `information_schema.columns` that tell lengths and precisions.
const NUMBERS: [&str; 6] = [
    "character_maximum_length",
    "character_octet_length",
    "numeric_precision",
    "numeric_precision_radix",
    "numeric_scale",
    "datetime_precision",
];

/// Makes columns of text: those that are never NULL, then those that may be.
fn texts(always: &[&str], sometimes: &[&str]) -> Vec<Field> {
    let field = |nullable| move |name: &&str| Field::new(*name, DataType::Utf8, nullable);
    always.iter().map(field(false)).chain(sometimes.iter().map(field(true))).collect()
}

fn repeated(value: &str, count: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, count)))
}

pub(crate) fn text(values: impl IntoIterator<Item: AsRef<str>>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

pub(crate) fn schemata() -> Result<RecordBatch, ArrowError> {
    let names = [SCHEMA, INFORMATION_SCHEMA];
    let owners = new_null_array(&DataType::Utf8, names.len());
    RecordBatch::try_new(LakeView::Schemata.schema(), vec![repeated(CATALOG, names.len()), text(names), owners])
}

/// Makes the rows of `information_schema.tables`: the tables of the lake, its views, then the relations about it.
pub(crate) fn tables(names: &[TableName], views: &[TableName]) -> Result<RecordBatch, ArrowError> {
    let own = OF_INFORMATION_SCHEMA.map(LakeView::name);
    let of_each = |of_table: &'static str, of_view: &'static str, of_own: &'static str| {
        let of_lake = names.iter().map(|_| of_table).chain(views.iter().map(|_| of_view));
        text(of_lake.chain(own.iter().map(|_| of_own)))
    };
    let columns = vec![
        repeated(CATALOG, names.len() + views.len() + own.len()),
        of_each(SCHEMA, SCHEMA, INFORMATION_SCHEMA),
        text(names.iter().chain(views).map(TableName::as_str).chain(own)),
        of_each("BASE TABLE", "VIEW", "VIEW"),
    ];
    RecordBatch::try_new(LakeView::Tables.schema(), columns)
}

/// Makes the rows of `information_schema.views`, from the names and the queries of views.
pub(crate) fn views(views: &[(TableName, String)]) -> Result<RecordBatch, ArrowError> {
    let columns = vec![
        repeated(CATALOG, views.len()),
        repeated(SCHEMA, views.len()),
        text(views.iter().map(|(name, _)| name.as_str())),
        text(views.iter().map(|(_, query)| query)),
    ];
    RecordBatch::try_new(LakeView::Views.schema(), columns)
}

/// Makes the rows of `information_schema.columns` about one table.
pub(crate) fn columns(schema: &str, table: &str, fields: &[FieldRef]) -> Result<RecordBatch, ArrowError> {
    let count = fields.len();
    let numbers = |number: fn(&DataType) -> Option<i32>| -> ArrayRef {
        Arc::new(fields.iter().map(|field| number(field.data_type())).collect::<Int32Array>())
    };
    let positions = Int32Array::from_iter_values((1..).take(count));
    let columns = vec![
        repeated(CATALOG, count),
        repeated(schema, count),
        repeated(table, count),
        text(fields.iter().map(|field| field.name())),
        Arc::new(positions),
        new_null_array(&DataType::Utf8, count),
        text(fields.iter().map(|field| yes_or_no(field.is_nullable()))),
        text(fields.iter().map(|field| field.data_type().to_string())),
        new_null_array(&DataType::Int32, count),
        numbers(|data_type| matches!(data_type, DataType::Utf8 | DataType::Binary).then_some(i32::MAX)),
        numbers(|data_type| precision(data_type).map(|(digits, _)| digits)),
        numbers(|data_type| precision(data_type).map(|(_, radix)| radix)),
        numbers(|data_type| match data_type {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(i32::from(*scale)),
            _ => None,
        }),
        new_null_array(&DataType::Int32, count),
        new_null_array(&DataType::Utf8, count),
    ];
    RecordBatch::try_new(LakeView::Columns.schema(), columns)
}

/// Makes the rows of `information_schema.columns` about the relations of `information_schema`.
pub(crate) fn own_columns() -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
    OF_INFORMATION_SCHEMA.into_iter().map(|view| columns(INFORMATION_SCHEMA, view.name(), view.schema().fields()))
}

/// Makes rows of `functions()`.
pub(crate) fn functions(found: &[Function]) -> Result<RecordBatch, ArrowError> {
    let columns: Vec<ArrayRef> = vec![
        text(found.iter().map(|function| &function.name)),
        text(found.iter().map(|function| function.function_type)),
        Arc::new(found.iter().map(|function| function.syntax.as_deref()).collect::<StringArray>()),
        Arc::new(found.iter().map(|function| function.description.as_deref()).collect::<StringArray>()),
    ];
    RecordBatch::try_new(LakeView::Functions.schema(), columns)
}

/// Whether a column may be NULL, in the words of the SQL standard.
pub(crate) fn yes_or_no(nullable: bool) -> &'static str {
    if nullable { "YES" } else { "NO" }
}

/// The digits of a number and their base.
fn precision(data_type: &DataType) -> Option<(i32, i32)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (8, 2),
        DataType::Int16 | DataType::UInt16 => (16, 2),
        DataType::Int32 | DataType::UInt32 => (32, 2),
        DataType::Int64 | DataType::UInt64 => (64, 2),
        DataType::Float16 => (11, 2),
        DataType::Float32 => (24, 2),
        DataType::Float64 => (53, 2),
        DataType::Decimal128(digits, _) | DataType::Decimal256(digits, _) => (i32::from(*digits), 10),
        _ => return None,
    })
}
