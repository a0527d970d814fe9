//! Decides how each column is converted.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use stoker_types::{
    DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR, KIND_ENCODED_IMAGE, KIND_KEY,
    TensorType, is_heavy,
};

use super::hugging_face::is_hugging_face_image;
use super::source::ParquetFile;
use crate::{Element, Error, ParquetOptions, Result, TensorSpec};

/// The conversion of a column's values.
#[derive(Clone, Debug)]
pub(super) enum Conversion {
    /// A cast to the plain type.
    Plain,
    /// Binary values or structs become the bytes of image files.
    Image,
    /// A declared tensor.
    Tensor(TensorSpec),
    /// A FixedSizeList of this length without nulls, for a declared vector or a column that already is a tensor.
    Dense(usize),
}

/// A column of the table.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub field: Field,
    pub conversion: Conversion,
}

/// The columns of the table, in order.
#[derive(Clone, Debug)]
pub(super) struct Columns(pub Vec<Column>);

impl Columns {
    /// Plans the columns: those of the first file that the options select, checked against all other files.
    pub fn plan(files: &[ParquetFile], options: &ParquetOptions) -> Result<Self> {
        let Some(first) = files.first() else { return Ok(Self(Vec::new())) };
        let schema = &first.schema;
        check_names(schema, options)?;
        let wanted = |field: &&Arc<Field>| {
            (options.columns.is_empty() || options.columns.contains(field.name()))
                && !options.drop.contains(field.name())
        };
        let columns: Result<Vec<Column>> =
            schema.fields().iter().filter(wanted).map(|field| column(first, field, options)).collect();
        let mut columns = columns?;
        if columns.is_empty() {
            return Err(Error::option("--columns", "no column is left"));
        }
        for file in files {
            for column in &mut columns {
                check_file(file, column)?;
            }
        }
        Ok(Self(columns))
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.0.iter().map(|column| column.field.clone()).collect::<Vec<_>>()))
    }
}

/// Checks that every name in the options is a column, and that at most one declaration concerns each column.
fn check_names(schema: &Schema, options: &ParquetOptions) -> Result<()> {
    let tensors = options.tensors.iter().map(|spec| ("--tensor", &spec.column));
    let vectors = options.vectors.iter().map(|spec| ("--vector", &spec.column));
    let images = options.images.iter().map(|column| ("--image", column));
    let as_is = options.as_is.iter().map(|column| ("--as-is", column));
    let declared: Vec<_> = tensors.chain(vectors).chain(images).chain(as_is).collect();
    let columns = options.columns.iter().map(|column| ("--columns", column));
    let drop = options.drop.iter().map(|column| ("--drop", column));
    for (option, column) in declared.iter().copied().chain(columns).chain(drop) {
        if schema.field_with_name(column).is_err() {
            let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::option(option, format!("there is no column {column}; columns: {}", names.join(", "))));
        }
    }
    let mut seen = HashSet::new();
    match declared.iter().find(|(_, column)| !seen.insert(*column)) {
        Some((option, column)) => Err(Error::option(option, format!("column {column} is declared twice"))),
        None => Ok(()),
    }
}

fn column(file: &ParquetFile, field: &Field, options: &ParquetOptions) -> Result<Column> {
    let name = field.name();
    if let Some(spec) = options.tensors.iter().find(|spec| spec.column == *name) {
        let mut field = TensorType { element: spec.element.storage(), shape: spec.shape.clone() }.to_field(name);
        if spec.element == Element::BFloat16 {
            let mut metadata = field.metadata().clone();
            metadata.insert(DTYPE_KEY.into(), "bfloat16".into());
            field = field.with_metadata(metadata);
        }
        return Ok(Column { field, conversion: Conversion::Tensor(spec.clone()) });
    }
    let metadata = kept_metadata(field);
    if let Some(spec) = options.vectors.iter().find(|spec| spec.column == *name) {
        let element = match plain(field.data_type()) {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
                if item.data_type().primitive_width().is_some() =>
            {
                item.data_type().clone()
            }
            other => return Err(mismatch(file, name, format!("a list of {} numbers", spec.length), other.to_string())),
        };
        let mut metadata = metadata;
        metadata.retain(|(key, _)| key != EXTENSION_NAME_KEY && key != EXTENSION_METADATA_KEY);
        let field = dense_field(name, element, spec.length).with_metadata(metadata.into_iter().collect());
        return Ok(Column { field, conversion: Conversion::Dense(spec.length) });
    }
    let is_kept = options.as_is.contains(name);
    if options.images.contains(name) || !is_kept && is_hugging_face_image(&file.schema, field) {
        let metadata = [(KIND_KEY.to_string(), KIND_ENCODED_IMAGE.to_string())];
        let field = Field::new(name, DataType::LargeBinary, field.is_nullable()).with_metadata(metadata.into());
        return Ok(Column { field, conversion: Conversion::Image });
    }
    let plain =
        Field::new(name, plain(field.data_type()), field.is_nullable()).with_metadata(metadata.into_iter().collect());
    let is_tensor = plain.metadata().contains_key(EXTENSION_NAME_KEY);
    if let (Some(tensor), true) = (TensorType::of(&plain), is_tensor || is_heavy(&plain)) {
        let length = tensor.shape.iter().product();
        let field = dense_field(name, tensor.element, length).with_metadata(plain.metadata().clone());
        return Ok(Column { field, conversion: Conversion::Dense(length) });
    }
    Ok(Column { field: plain, conversion: Conversion::Plain })
}

fn dense_field(name: &str, element: DataType, length: usize) -> Field {
    let item = Arc::new(Field::new("item", element, false));
    Field::new(name, DataType::FixedSizeList(item, i32::try_from(length).unwrap_or(i32::MAX)), false)
}

/// Returns the metadata that has a meaning for Stoker, without encodings and field numbers of other systems.
fn kept_metadata(field: &Field) -> Vec<(String, String)> {
    let is_tensor = field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) == Some(FIXED_SHAPE_TENSOR);
    let kept = |key: &str| {
        key.starts_with("stoker.") || is_tensor && (key == EXTENSION_NAME_KEY || key == EXTENSION_METADATA_KEY)
    };
    field.metadata().iter().filter(|(key, _)| kept(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Checks that a file has the column with its type. Makes the column nullable if it is nullable in this file.
fn check_file(file: &ParquetFile, column: &mut Column) -> Result<()> {
    let name = column.field.name().clone();
    let Ok(found) = file.schema.field_with_name(&name) else {
        return Err(mismatch(file, &name, "the columns of the first file".into(), "no such column".into()));
    };
    let fits = match &column.conversion {
        Conversion::Tensor(_) => true, // `flatten` checks each value later.
        Conversion::Image => is_image(found.data_type()),
        Conversion::Dense(_) => match (column.field.data_type(), plain(found.data_type())) {
            (
                DataType::FixedSizeList(expected, _),
                DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
            ) => item.data_type() == expected.data_type(),
            _ => false,
        },
        Conversion::Plain => alike(column.field.data_type(), &plain(found.data_type())),
    };
    if !fits {
        let expected = match column.conversion {
            Conversion::Image => "binary, or a struct with the field bytes".to_string(),
            _ => column.field.data_type().to_string(),
        };
        return Err(mismatch(file, &name, expected, found.data_type().to_string()));
    }
    if matches!(column.conversion, Conversion::Plain | Conversion::Image) && found.is_nullable() {
        column.field = column.field.clone().with_nullable(true);
    }
    Ok(())
}

fn mismatch(file: &ParquetFile, column: &str, expected: String, found: String) -> Error {
    Error::Mismatch { path: file.path.clone(), row: None, column: column.into(), expected, found }
}

fn is_image(data_type: &DataType) -> bool {
    match plain(data_type) {
        DataType::LargeBinary | DataType::FixedSizeBinary(_) => true,
        DataType::Struct(fields) => {
            fields.iter().any(|field| field.name() == "bytes" && plain(field.data_type()) == DataType::LargeBinary)
        }
        _ => false,
    }
}

/// Returns the type without dictionaries, run-end encodings and views, and with LargeBinary for binary.
pub(super) fn plain(data_type: &DataType) -> DataType {
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
