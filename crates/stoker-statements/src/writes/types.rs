//! The types of columns in `CREATE TABLE` and `ALTER TABLE`: SQL's names, the names that `DESCRIBE` shows, and shapes
//! of tensors.

use std::sync::Arc;

use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, TimeUnit};
use stoker_columns::kind_of;
use stoker_columns::tensor::{TensorSpec, declared};

use crate::{Error, Result};

/// SQL's names of types without arguments, in upper case. Floating-point types, integers, texts and times are those of
/// `CAST`.
const NAMES: [(&str, DataType); 45] = [
    ("BOOLEAN", DataType::Boolean),
    ("BOOL", DataType::Boolean),
    ("TINYINT", DataType::Int8),
    ("SMALLINT", DataType::Int16),
    ("INT2", DataType::Int16),
    ("INT", DataType::Int32),
    ("INTEGER", DataType::Int32),
    ("INT4", DataType::Int32),
    ("BIGINT", DataType::Int64),
    ("INT8", DataType::Int64),
    ("INT16", DataType::Int16),
    ("INT32", DataType::Int32),
    ("INT64", DataType::Int64),
    ("UINT8", DataType::UInt8),
    ("UINT16", DataType::UInt16),
    ("UINT32", DataType::UInt32),
    ("UINT64", DataType::UInt64),
    ("TINYINT UNSIGNED", DataType::UInt8),
    ("SMALLINT UNSIGNED", DataType::UInt16),
    ("INT UNSIGNED", DataType::UInt32),
    ("INTEGER UNSIGNED", DataType::UInt32),
    ("BIGINT UNSIGNED", DataType::UInt64),
    ("FLOAT16", DataType::Float16),
    ("HALF", DataType::Float16),
    ("FLOAT", DataType::Float32),
    ("REAL", DataType::Float32),
    ("FLOAT4", DataType::Float32),
    ("FLOAT32", DataType::Float32),
    ("DOUBLE", DataType::Float64),
    ("DOUBLE PRECISION", DataType::Float64),
    ("FLOAT8", DataType::Float64),
    ("FLOAT64", DataType::Float64),
    ("TEXT", DataType::Utf8),
    ("VARCHAR", DataType::Utf8),
    ("CHAR", DataType::Utf8),
    ("STRING", DataType::Utf8),
    ("BINARY", DataType::Binary),
    ("VARBINARY", DataType::Binary),
    ("BYTEA", DataType::Binary),
    ("BLOB", DataType::LargeBinary),
    ("DATE", DataType::Date32),
    ("TIME", DataType::Time64(TimeUnit::Nanosecond)),
    ("TIMESTAMP", DataType::Timestamp(TimeUnit::Nanosecond, None)),
    ("TIMESTAMP WITHOUT TIME ZONE", DataType::Timestamp(TimeUnit::Nanosecond, None)),
    ("DATETIME", DataType::Timestamp(TimeUnit::Nanosecond, None)),
];

/// Names of timestamps in UTC.
const WITH_TIME_ZONE: [&str; 2] = ["TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"];

/// The time zone of timestamps with a time zone.
const UTC: &str = "UTC";

/// The digits of a decimal number without arguments, and those after its point.
const DECIMAL: (u8, i8) = (38, 10);

/// Returns the column with a type as it was written.
///
/// # Errors
/// `InvalidRequest` that names the column and the types there are.
pub(crate) fn column(name: &str, data_type: &str, nullable: bool) -> Result<Field> {
    // A list of sizes makes a tensor. One size alone makes a vector.
    if data_type.ends_with(']') && data_type.contains(',') && !data_type.contains('(') {
        let spec = TensorSpec::parse(&data_type.to_lowercase())
            .map_err(|reason| Error::refused(format!("column {name} {data_type}"), reason))?;
        return Ok(declared(name, &spec).field);
    }
    let parsed = data_type.parse::<DataType>().ok().or_else(|| named(data_type));
    match parsed {
        Some(DataType::Null) | None => Err(Error::refused(
            format!("column {name}: there is no type {data_type}"),
            "write BOOLEAN, SMALLINT, INT, BIGINT, REAL, DOUBLE, DECIMAL(digits, digits), TEXT, BINARY, DATE, TIME, \
             TIMESTAMP, TIMESTAMPTZ, FLOAT[128] for a vector, UINT8[3,224,224] for a tensor, INT[] for a list, or a \
             type as DESCRIBE shows it",
        )),
        Some(data_type) => {
            let field = Field::new(name, data_type, nullable);
            Ok(kind_of(&field).canonical(&field))
        }
    }
}

/// Returns the type of a name of SQL.
fn named(data_type: &str) -> Option<DataType> {
    let text = data_type.trim();
    if let Some((item, length)) = text.strip_suffix(']').and_then(|text| text.rsplit_once('[')) {
        let item = Field::new_list_field(named(item)?, true);
        return match length.trim() {
            "" => Some(DataType::List(Arc::new(item))),
            length => Some(DataType::FixedSizeList(Arc::new(item), length.parse().ok().filter(|length| *length > 0)?)),
        };
    }
    if let Some(item) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let is_array = item.0.trim().eq_ignore_ascii_case("ARRAY");
        return is_array.then(|| Some(DataType::new_list(named(item.1)?, true)))?;
    }
    if let Some((name, arguments)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let arguments: Option<Vec<u8>> = arguments.split(',').map(|number| number.trim().parse().ok()).collect();
        return with_arguments(&upper(name), &arguments?);
    }
    let name = upper(text);
    if WITH_TIME_ZONE.contains(&name.as_str()) {
        return Some(DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())));
    }
    if matches!(name.as_str(), "DECIMAL" | "NUMERIC") {
        return decimal(DECIMAL.0, DECIMAL.1);
    }
    NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, data_type)| data_type)
}

fn with_arguments(name: &str, arguments: &[u8]) -> Option<DataType> {
    match (name, arguments) {
        ("DECIMAL" | "NUMERIC", [digits]) => decimal(*digits, 0),
        ("DECIMAL" | "NUMERIC", [digits, scale]) => decimal(*digits, i8::try_from(*scale).ok()?),
        ("TIMESTAMP" | "TIMESTAMPTZ", [digits]) => {
            let unit = match digits {
                0 => TimeUnit::Second,
                3 => TimeUnit::Millisecond,
                6 => TimeUnit::Microsecond,
                9 => TimeUnit::Nanosecond,
                _ => return None,
            };
            let zone = (name == "TIMESTAMPTZ").then(|| UTC.into());
            Some(DataType::Timestamp(unit, zone))
        }
        _ => None,
    }
}

fn decimal(digits: u8, scale: i8) -> Option<DataType> {
    let has_scale = i16::from(scale) <= i16::from(digits);
    match digits {
        1..=DECIMAL128_MAX_PRECISION if has_scale => Some(DataType::Decimal128(digits, scale)),
        ..=DECIMAL256_MAX_PRECISION if digits > 0 && has_scale => Some(DataType::Decimal256(digits, scale)),
        _ => None,
    }
}

/// The words of a name in upper case, with one space between them.
fn upper(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ").to_uppercase()
}

#[cfg(test)]
mod tests {
    use stoker_columns::tensor::TensorType;

    use super::*;

    #[test]
    fn types_of_sql_and_of_describe_are_known() {
        let list = |data_type| DataType::new_list(data_type, true);
        let time = |unit| DataType::Timestamp(unit, None);
        for (text, expected) in [
            ("int", DataType::Int32),
            ("BIGINT", DataType::Int64),
            ("Int8", DataType::Int8),
            ("int8", DataType::Int64),
            ("double  precision", DataType::Float64),
            ("DECIMAL(10, 2)", DataType::Decimal128(10, 2)),
            ("numeric(5)", DataType::Decimal128(5, 0)),
            ("TIMESTAMP", time(TimeUnit::Nanosecond)),
            ("timestamp(3)", time(TimeUnit::Millisecond)),
            ("TIMESTAMP WITH TIME ZONE", DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))),
            ("TEXT[]", list(DataType::Utf8)),
            ("ARRAY<INT>", list(DataType::Int32)),
            ("ARRAY<ARRAY<INT>>", list(list(DataType::Int32))),
            ("bytea", DataType::Binary),
        ] {
            assert_eq!(column("a", text, true).expect(text).data_type(), &expected, "{text}");
        }
        for shown in [
            DataType::Utf8,
            DataType::LargeBinary,
            DataType::Decimal128(10, 2),
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            list(DataType::Float32),
        ] {
            assert_eq!(column("a", &shown.to_string(), true).expect("a type").data_type(), &shown, "{shown}");
        }
        assert!(!column("a", "INT", false).expect("a type").is_nullable());
        for wrong in
            ["INTT", "VARCHAR(10)", "DECIMAL(0)", "DECIMAL(2, 3)", "FLOAT[0]", "FLOAT[x]", "TIMESTAMP(4)", "Null", ""]
        {
            let error = column("a", wrong, true).expect_err(wrong).to_string();
            assert!(error.contains("column a") && error.contains("FLOAT[128]"), "{error}");
        }
    }

    #[test]
    fn shapes_make_vectors_and_tensors() {
        let vector = column("v", "FLOAT[4]", true).expect("a vector");
        assert_eq!(TensorType::of(&vector), Some(TensorType { element: DataType::Float32, shape: vec![4] }));
        assert!(vector.metadata().is_empty() && vector.is_nullable());
        let tensor = column("t", "UINT8[3, 8, 8]", true).expect("a tensor");
        assert_eq!(TensorType::of(&tensor), Some(TensorType { element: DataType::UInt8, shape: vec![3, 8, 8] }));
        assert!(!tensor.is_nullable());
        assert!(!column("v", "FLOAT[1000]", true).expect("a heavy vector").is_nullable());
        column("t", "bfloat16[3,8]", true).expect("a tensor");
        assert!(column("t", "TEXT[3,8]", true).is_err());
    }
}
