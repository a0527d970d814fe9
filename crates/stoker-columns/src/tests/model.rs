//! What holds for a field, as one rule for each question over all types and metadata; and random fields.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use proptest::prelude::*;
use proptest::sample::select;

use crate::*;

pub(super) fn label(field: &Field) -> String {
    if is_encoded_image(field) {
        return "encoded image".into();
    }
    if is_blob(field) {
        return "blob".into();
    }
    if let Some(tensor) = TensorType::of(field) {
        let element =
            field.metadata().get(DTYPE_KEY).cloned().unwrap_or_else(|| tensor.element.to_string().to_lowercase());
        let is_tensor = field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) == Some(FIXED_SHAPE_TENSOR);
        return format!("{} {element}{:?}", if is_tensor { "tensor" } else { "vector" }, tensor.shape);
    }
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary",
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "timestamp",
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "list",
        DataType::Struct(_) => "struct",
        _ => "scalar",
    }
    .into()
}

pub(super) fn is_heavy(field: &Field) -> bool {
    match field.metadata().get(HEAVY_KEY).map(String::as_str) {
        Some("true") => return true,
        Some("false") => return false,
        _ => {}
    }
    match field.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        other => fixed_row_bytes(other).is_some_and(|bytes| bytes > 1024),
    }
}

pub(super) fn dense_row_bytes(field: &Field) -> Option<usize> {
    let DataType::FixedSizeList(item, _) = field.data_type() else { return None };
    fixed_row_bytes(field.data_type()).filter(|_| item.data_type().is_primitive())
}

pub(super) fn canonical(field: &Field) -> Field {
    let Some(tensor) = TensorType::of(field) else { return field.clone() };
    let DataType::FixedSizeList(_, length) = field.data_type() else { return field.clone() };
    let item = Field::new("item", tensor.element, false);
    let is_tensor = field.metadata().contains_key(EXTENSION_NAME_KEY) || is_heavy(field);
    let nullable = field.is_nullable() && !is_tensor;
    Field::new(field.name(), DataType::FixedSizeList(Arc::new(item), *length), nullable)
        .with_metadata(field.metadata().clone())
}

pub(super) fn numpy(field: &Field) -> NumpyShape {
    let bfloat16 = field.metadata().get(DTYPE_KEY).map(String::as_str) == Some("bfloat16");
    let shape = |dtype: Option<&str>, shape: Vec<usize>, nulls| NumpyShape {
        dtype: dtype.map(str::to_string),
        shape,
        nulls,
        bfloat16,
    };
    let is_number = |data_type: &DataType| data_type.is_integer() || data_type.is_floating();
    let name = |data_type: &DataType| data_type.to_string().to_lowercase();
    match field.data_type() {
        DataType::FixedSizeList(item, length) => {
            let element = item.data_type();
            let dtype = is_number(element).then(|| name(element));
            let metadata = |key: &str| field.metadata().get(key).map(String::as_str);
            let declared = match (metadata(EXTENSION_NAME_KEY), metadata(EXTENSION_METADATA_KEY), length) {
                (Some(FIXED_SHAPE_TENSOR), Some(r#"{"shape":[2,3]}"#), 6) => vec![2, 3],
                (Some(FIXED_SHAPE_TENSOR), Some(r#"{"shape":[]}"#), 1) => vec![],
                _ => vec![*length as usize],
            };
            shape(dtype.as_deref(), declared, Nulls::Refused)
        }
        DataType::Boolean => shape(Some("bool"), vec![], Nulls::Refused),
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => {
            shape(Some("datetime64[ms]"), vec![], Nulls::NaT)
        }
        DataType::Date32 => shape(Some("datetime64[D]"), vec![], Nulls::NaT),
        DataType::Duration(TimeUnit::Nanosecond) => shape(Some("timedelta64[ns]"), vec![], Nulls::NaT),
        number if is_number(number) => {
            let nulls = if number.is_floating() { Nulls::NaN } else { Nulls::Refused };
            shape(Some(&name(number)), vec![], nulls)
        }
        _ => shape(None, vec![], Nulls::Object),
    }
}

/// Types without children.
fn flat_types() -> impl Strategy<Value = DataType> {
    use DataType::*;
    select(vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        Date32,
        Date64,
        Time32(TimeUnit::Second),
        Time64(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Millisecond, None),
        Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
        Duration(TimeUnit::Nanosecond),
        Decimal128(10, 2),
        FixedSizeBinary(16),
        FixedSizeBinary(2000),
        Dictionary(Box::new(Int32), Box::new(Utf8)),
    ])
}

fn types() -> impl Strategy<Value = DataType> {
    flat_types().prop_recursive(2, 8, 3, |inner| {
        let item = (inner.clone(), any::<bool>()).prop_map(|(inner, null)| Arc::new(Field::new("item", inner, null)));
        prop_oneof![
            item.clone().prop_map(DataType::List),
            item.clone().prop_map(DataType::LargeList),
            item.clone().prop_map(DataType::ListView),
            (item.clone(), select(vec![0, 1, 6, 300])).prop_map(|(item, length)| DataType::FixedSizeList(item, length)),
            (item.clone(), item).prop_map(|(a, b)| {
                let members = [("bytes", a), ("path", b)];
                let members = members.map(|(name, item)| item.as_ref().clone().with_name(name));
                DataType::Struct(Fields::from(members.to_vec()))
            }),
        ]
    })
}

/// Fields of any type, with metadata that fits the type or does not.
pub(super) fn fields() -> impl Strategy<Value = Field> {
    let pairs = select(vec![
        (KIND_KEY, KIND_ENCODED_IMAGE),
        (KIND_KEY, "other"),
        (HEAVY_KEY, "true"),
        (HEAVY_KEY, "false"),
        (HEAVY_KEY, "maybe"),
        (DTYPE_KEY, tensor::BFLOAT16),
        (DTYPE_KEY, "other"),
        (EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR),
        (EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR),
        (EXTENSION_NAME_KEY, "lance.blob.v2"),
        (EXTENSION_NAME_KEY, "other"),
        (EXTENSION_METADATA_KEY, r#"{"shape":[2,3]}"#),
        (EXTENSION_METADATA_KEY, r#"{"shape":[]}"#),
        (EXTENSION_METADATA_KEY, r#"{"shape":[7]}"#),
        (EXTENSION_METADATA_KEY, "no JSON"),
        ("lance-encoding:blob", "true"),
        ("PARQUET:field_id", "7"),
    ]);
    (types(), any::<bool>(), prop::collection::vec(pairs, 0..4)).prop_map(|(data_type, nullable, pairs)| {
        let metadata = pairs.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Field::new("x", data_type, nullable).with_metadata(metadata)
    })
}
