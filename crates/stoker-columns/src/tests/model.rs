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
        return format!("{} {element}{:?}", if is_tensor { "tensor" } else { "vector" }, numpy(field).shape);
    }
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary",
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "timestamp",
        DataType::List(_) | DataType::LargeList(_) => match ragged(field.data_type()) {
            Some((levels, inner, element)) => {
                let sizes = std::iter::repeat_n("*".to_string(), levels).chain(inner.iter().map(usize::to_string));
                let named = field.metadata().get(DTYPE_KEY).cloned();
                let element = named.unwrap_or_else(|| element.to_string().to_lowercase());
                return format!("ragged {element}[{}]", sizes.collect::<Vec<_>>().join(", "));
            }
            None => "list",
        },
        DataType::FixedSizeList(..) => match numpy(field) {
            NumpyShape { dtype: Some(dtype), shape, .. } => return format!("list {dtype}{shape:?}"),
            _ => "list",
        },
        DataType::Struct(_) => "struct",
        _ => "scalar",
    }
    .into()
}

/// The nested fixed-size lists of a type: their lengths, and the type of their elements.
fn fixed(data_type: &DataType) -> (Vec<usize>, &DataType) {
    match data_type {
        DataType::FixedSizeList(item, length) => {
            let (inner, element) = fixed(item.data_type());
            ([vec![*length as usize], inner].concat(), element)
        }
        element => (Vec::new(), element),
    }
}

/// The levels of lists of any length, the lengths of the fixed-size lists in them, and the type of their elements.
fn ragged(data_type: &DataType) -> Option<(usize, Vec<usize>, &DataType)> {
    let (DataType::List(item) | DataType::LargeList(item)) = data_type else { return None };
    if let Some((levels, inner, element)) = ragged(item.data_type()) {
        return Some((levels + 1, inner, element));
    }
    let (inner, element) = fixed(item.data_type());
    is_element(element).then_some((1, inner, element))
}

fn is_element(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating() || *data_type == DataType::Boolean
}

fn dtype(data_type: &DataType) -> String {
    data_type.to_string().to_lowercase().replace("boolean", "bool")
}

pub(super) fn is_heavy(field: &Field) -> bool {
    if is_blob(field) {
        return true;
    }
    match field.metadata().get(HEAVY_KEY).map(String::as_str) {
        Some("true") => return true,
        Some("false") => return false,
        _ => {}
    }
    let is_file = |data_type: &DataType| match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| field.name() == "bytes" && is_binary(field.data_type())),
        other => is_binary(other),
    };
    match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) if is_file(item.data_type()) => true,
        other => is_file(other) || fixed_row_bytes(other).is_some_and(|bytes| bytes > 1024),
    }
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
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
    let named = field.metadata().get(DTYPE_KEY).map(String::as_str);
    let (_, _, stored) = ragged(field.data_type()).unwrap_or_else(|| (0, Vec::new(), fixed(field.data_type()).1));
    let small_float = match (named, stored) {
        (Some("bfloat16"), DataType::UInt16) => Some(SmallFloat::BFloat16),
        (Some("float8_e5m2"), DataType::UInt8) => Some(SmallFloat::Float8E5M2),
        _ => None,
    };
    let of_rows = |dtype: Option<String>, shape: Vec<usize>, nulls, rows| NumpyShape {
        dtype,
        shape,
        nulls,
        small_float,
        rows,
        names: None,
    };
    let shape = |dtype, shape, nulls| of_rows(dtype, shape, nulls, Rows::Fixed { axes: None });
    if let Some((levels, inner, element)) = ragged(field.data_type()) {
        return of_rows(Some(dtype(element)), inner, Nulls::Zero, Rows::Lists { levels });
    }
    match field.data_type() {
        DataType::FixedSizeList(item, length) => {
            let (inner, element) = fixed(item.data_type());
            let metadata = |key: &str| field.metadata().get(key).map(String::as_str);
            let is_tensor = metadata(EXTENSION_NAME_KEY) == Some(FIXED_SHAPE_TENSOR);
            let parameters = metadata(EXTENSION_METADATA_KEY).filter(|_| is_tensor).unwrap_or_default();
            let (declared, axes) = match (parameters, length) {
                (r#"{"shape":[2,3]}"#, 6) => (vec![2, 3], None),
                (r#"{"shape":[]}"#, 1) => (vec![], None),
                (r#"{"shape":[2,3],"permutation":[1,0]}"#, 6) => (vec![3, 2], Some(vec![1, 0])),
                _ => (vec![*length as usize], None),
            };
            if !is_element(element) {
                return shape(None, declared, Nulls::Object);
            }
            let axes = axes.map(|axes| axes.into_iter().chain(2..2 + inner.len()).collect());
            let rows = Rows::Fixed { axes };
            of_rows(Some(dtype(element)), [declared, inner].concat(), Nulls::Zero, rows)
        }
        DataType::Boolean => shape(Some("bool".into()), vec![], Nulls::Zero),
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => {
            shape(Some("datetime64[ms]".into()), vec![], Nulls::NaT)
        }
        DataType::Date32 => shape(Some("datetime64[D]".into()), vec![], Nulls::NaT),
        DataType::Duration(TimeUnit::Nanosecond) => shape(Some("timedelta64[ns]".into()), vec![], Nulls::NaT),
        number if is_element(number) => {
            let nulls = if number.is_floating() { Nulls::NaN } else { Nulls::Zero };
            shape(Some(dtype(number)), vec![], nulls)
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
        (DTYPE_KEY, "float8_e5m2"),
        (DTYPE_KEY, "other"),
        (EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR),
        (EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR),
        (EXTENSION_NAME_KEY, "lance.blob.v2"),
        (EXTENSION_NAME_KEY, "other"),
        (EXTENSION_METADATA_KEY, r#"{"shape":[2,3]}"#),
        (EXTENSION_METADATA_KEY, r#"{"shape":[2,3],"permutation":[1,0]}"#),
        (EXTENSION_METADATA_KEY, r#"{"shape":[2,3],"permutation":[1,2]}"#),
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
