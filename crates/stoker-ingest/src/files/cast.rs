//! Columns whose values are converted: `label=int32`, `embedding=float32[768]`, `image=uint8[3,224,224]`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{DataType, Field, TimeUnit};
use serde::{Serialize, Serializer};
use stoker_columns::{Conversion, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, Ingest, Mismatch, TensorSpec, tensor};

use crate::{Error, Result};

/// The option of the command line.
pub(super) const OPTION: &str = "--cast";

/// The names of types without sizes, in lower case.
const NAMES: [(&str, DataType); 22] = [
    ("bool", DataType::Boolean),
    ("boolean", DataType::Boolean),
    ("int8", DataType::Int8),
    ("int16", DataType::Int16),
    ("int32", DataType::Int32),
    ("int64", DataType::Int64),
    ("uint8", DataType::UInt8),
    ("uint16", DataType::UInt16),
    ("uint32", DataType::UInt32),
    ("uint64", DataType::UInt64),
    ("float16", DataType::Float16),
    ("float32", DataType::Float32),
    ("float64", DataType::Float64),
    ("half", DataType::Float16),
    ("float", DataType::Float32),
    ("double", DataType::Float64),
    ("string", DataType::Utf8),
    ("text", DataType::Utf8),
    ("utf8", DataType::Utf8),
    ("binary", DataType::LargeBinary),
    ("date", DataType::Date32),
    ("timestamp", DataType::Timestamp(TimeUnit::Microsecond, None)),
];

/// A column whose values are converted to another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnCast {
    /// The name of the column in the files.
    pub column: String,
    /// The type of its values in the table.
    pub to: CastType,
}

/// A type to which values are converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CastType {
    /// A type of single values.
    Plain(DataType),
    /// A vector, which has one size, or a tensor, which has several.
    Sized(TensorSpec),
}

impl ColumnCast {
    /// Returns the column of the table, and how its values are made. A number that the type cannot represent, and a text
    /// that is no value of the type, are refused; fractions are cut off as SQL's `CAST` does.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a column whose values cannot become values of the type.
    pub(super) fn ingest(&self, field: &Field) -> Result<Ingest> {
        match &self.to {
            CastType::Plain(to) if !can_cast_types(field.data_type(), to) => {
                Err(Error::option(OPTION, format!("{self}: the column is {}", field.data_type())))
            }
            CastType::Plain(to) => {
                let field = Field::new(field.name(), to.clone(), field.is_nullable());
                Ok(Ingest { field, conversion: Arc::new(ArrowCast) })
            }
            CastType::Sized(spec) => {
                let mut ingest = tensor::declared(field.name(), spec);
                if spec.shape.len() == 1 {
                    let mut metadata = ingest.field.metadata().clone();
                    metadata.retain(|key, _| key != EXTENSION_NAME_KEY && key != EXTENSION_METADATA_KEY);
                    ingest.field = ingest.field.with_metadata(metadata);
                }
                Ok(ingest)
            }
        }
    }
}

impl FromStr for ColumnCast {
    type Err = Error;

    /// Parses `COLUMN=TYPE`.
    fn from_str(text: &str) -> Result<Self> {
        let Some((column, to)) = text.rsplit_once('=').filter(|(column, _)| !column.trim().is_empty()) else {
            return Err(Error::option(OPTION, format!("{text:?} should be COLUMN=TYPE, such as label=int32")));
        };
        let to = to.trim();
        let to = match to.ends_with(']') {
            true => TensorSpec::parse(&to.to_lowercase()).map(CastType::Sized),
            false => plain(to).map(CastType::Plain).ok_or_else(|| {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                format!("the type should be one of {}, or have sizes, as float32[768] has", names.join(", "))
            }),
        };
        let to = to.map_err(|reason| Error::option(OPTION, format!("{text}: {reason}")))?;
        Ok(Self { column: column.trim().into(), to })
    }
}

impl fmt::Display for ColumnCast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            CastType::Plain(to) => write!(f, "{}={to}", self.column),
            CastType::Sized(spec) => write!(f, "{}={spec}", self.column),
        }
    }
}

impl Serialize for ColumnCast {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the type of a name: one of [`NAMES`], or Arrow's own.
fn plain(name: &str) -> Option<DataType> {
    let lower = name.to_lowercase();
    let known = NAMES.iter().find(|(known, _)| *known == lower).map(|(_, data_type)| data_type.clone());
    known.or_else(|| name.parse().ok()).filter(|data_type| !data_type.is_null())
}

/// A cast that refuses values which the type cannot represent.
#[derive(Clone, Copy, Debug)]
struct ArrowCast;

impl Conversion for ArrowCast {
    fn accepts(&self, field: &Field, found: &DataType) -> bool {
        can_cast_types(found, field.data_type())
    }

    fn keeps_nulls(&self) -> bool {
        true
    }

    fn convert(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(array, field.data_type(), &options).map_err(|error| Mismatch {
            row: (array.len() == 1).then_some(0),
            expected: field.data_type().to_string(),
            found: format!("{}: {error}", array.data_type()),
        })
    }
}
