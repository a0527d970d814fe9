//! Schemas of messages.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::ipc::{self, Type};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, Fields, Schema, TimeUnit};

/// The columns of a file.
#[derive(Debug)]
pub(super) struct IpcSchema {
    /// The columns as Arrow has them, with dictionaries.
    pub schema: Arc<Schema>,
    pub fields: Vec<IpcField>,
}

/// A column, or a column in it.
#[derive(Clone, Debug)]
pub(super) struct IpcField {
    pub field: Field,
    /// The dictionary of the column.
    pub dictionary: Option<i64>,
    /// The type of values; for columns with dictionaries, that of the dictionary.
    pub values: DataType,
    pub children: Vec<IpcField>,
}

impl IpcSchema {
    /// # Errors
    /// The reason, for types that tables cannot have.
    pub fn read(schema: ipc::Schema) -> Result<Self, String> {
        if schema.endianness() != ipc::Endianness::Little {
            return Err("the file is big-endian".into());
        }
        let fields: Result<Vec<IpcField>, String> = schema.fields().into_iter().flatten().map(field).collect();
        let fields = fields?;
        let metadata = pairs(schema.custom_metadata().into_iter().flatten());
        let plain: Vec<Field> = fields.iter().map(|field| field.field.clone()).collect();
        Ok(Self { schema: Arc::new(Schema::new_with_metadata(plain, metadata)), fields })
    }
}

fn pairs<'a>(pairs: impl Iterator<Item = ipc::KeyValue<'a>>) -> HashMap<String, String> {
    pairs.filter_map(|pair| Some((pair.key()?.to_string(), pair.value()?.to_string()))).collect()
}

fn field(field: ipc::Field) -> Result<IpcField, String> {
    let name = field.name().unwrap_or_default();
    let children: Result<Vec<IpcField>, String> = field.children().into_iter().flatten().map(self::field).collect();
    let children = children.map_err(|reason| format!("in {name}, {reason}"))?;
    let refused = |reason: &str| format!("column {name}: {reason}");
    let values = data_type(field, &children).map_err(|reason| refused(&reason))?;
    let (dictionary, data_type) = match field.dictionary() {
        Some(dictionary) => {
            let key =
                dictionary.indexType().map_or(Some(DataType::Int32), |key| integer(key.bitWidth(), key.is_signed()));
            let key = key.ok_or_else(|| refused("the keys of the dictionary are no integers"))?;
            (Some(dictionary.id()), DataType::Dictionary(key.into(), values.clone().into()))
        }
        None => (None, values.clone()),
    };
    let metadata = pairs(field.custom_metadata().into_iter().flatten());
    // What a file declares not to be null is not believed.
    let plain = Field::new(name, data_type, true).with_metadata(metadata);
    Ok(IpcField { field: plain, dictionary, values, children })
}

fn integer(bits: i32, is_signed: bool) -> Option<DataType> {
    Some(match (bits, is_signed) {
        (8, true) => DataType::Int8,
        (8, false) => DataType::UInt8,
        (16, true) => DataType::Int16,
        (16, false) => DataType::UInt16,
        (32, true) => DataType::Int32,
        (32, false) => DataType::UInt32,
        (64, true) => DataType::Int64,
        (64, false) => DataType::UInt64,
        _ => return None,
    })
}

/// The most bytes of a value, and items of a list, of fixed size.
const FIXED_SIZE_MAX: i32 = 1 << 30;

fn data_type(field: ipc::Field, children: &[IpcField]) -> Result<DataType, String> {
    let item = || match children {
        [item] => Some(Arc::new(item.field.clone())),
        _ => None,
    };
    let found = match field.type_type() {
        Type::Null => Some(DataType::Null),
        Type::Bool => Some(DataType::Boolean),
        Type::Int => field.type_as_int().and_then(|int| integer(int.bitWidth(), int.is_signed())),
        Type::FloatingPoint => field.type_as_floating_point().and_then(|float| match float.precision() {
            ipc::Precision::HALF => Some(DataType::Float16),
            ipc::Precision::SINGLE => Some(DataType::Float32),
            ipc::Precision::DOUBLE => Some(DataType::Float64),
            _ => None,
        }),
        Type::Utf8 => Some(DataType::Utf8),
        Type::LargeUtf8 => Some(DataType::LargeUtf8),
        Type::Utf8View => Some(DataType::Utf8View),
        Type::Binary => Some(DataType::Binary),
        Type::LargeBinary => Some(DataType::LargeBinary),
        Type::BinaryView => Some(DataType::BinaryView),
        Type::FixedSizeBinary => {
            let width = field.type_as_fixed_size_binary().map(|binary| binary.byteWidth());
            width.filter(|width| (1..=FIXED_SIZE_MAX).contains(width)).map(DataType::FixedSizeBinary)
        }
        Type::List => item().map(DataType::List),
        Type::LargeList => item().map(DataType::LargeList),
        Type::FixedSizeList => {
            let size = field.type_as_fixed_size_list().map(|list| list.listSize());
            let size = size.filter(|size| (1..=FIXED_SIZE_MAX).contains(size));
            item().zip(size).map(|(item, size)| DataType::FixedSizeList(item, size))
        }
        Type::Struct_ => {
            let fields: Fields = children.iter().map(|child| child.field.clone()).collect();
            Some(DataType::Struct(fields))
        }
        Type::Decimal => decimal(field),
        _ => temporal(field),
    };
    let named = field.type_type().variant_name().unwrap_or("unknown");
    found.ok_or_else(|| format!("values of the type {named} with these parameters cannot be read"))
}

fn decimal(field: ipc::Field) -> Option<DataType> {
    let decimal = field.type_as_decimal()?;
    let precision = u8::try_from(decimal.precision()).ok().filter(|precision| *precision > 0)?;
    let scale = i8::try_from(decimal.scale()).ok().filter(|scale| i32::from(*scale) <= i32::from(precision))?;
    match decimal.bitWidth() {
        128 if precision <= DECIMAL128_MAX_PRECISION => Some(DataType::Decimal128(precision, scale)),
        256 if precision <= DECIMAL256_MAX_PRECISION => Some(DataType::Decimal256(precision, scale)),
        _ => None,
    }
}

fn unit(unit: ipc::TimeUnit) -> Option<TimeUnit> {
    Some(match unit {
        ipc::TimeUnit::SECOND => TimeUnit::Second,
        ipc::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
        ipc::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
        ipc::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
        _ => return None,
    })
}

fn temporal(field: ipc::Field) -> Option<DataType> {
    match field.type_type() {
        Type::Date => match field.type_as_date()?.unit() {
            ipc::DateUnit::DAY => Some(DataType::Date32),
            ipc::DateUnit::MILLISECOND => Some(DataType::Date64),
            _ => None,
        },
        Type::Time => {
            let time = field.type_as_time()?;
            match (time.bitWidth(), unit(time.unit())?) {
                (32, unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => Some(DataType::Time32(unit)),
                (64, unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond)) => Some(DataType::Time64(unit)),
                _ => None,
            }
        }
        Type::Timestamp => {
            let timestamp = field.type_as_timestamp()?;
            Some(DataType::Timestamp(unit(timestamp.unit())?, timestamp.timezone().map(Into::into)))
        }
        Type::Duration => Some(DataType::Duration(unit(field.type_as_duration()?.unit())?)),
        _ => None,
    }
}
