//! How the fields of an Arrow schema describe tensors, vectors and encoded images.

use arrow_schema::{DataType, Field};

/// Arrow's field metadata key for the name of an extension type.
pub const EXTENSION_NAME_KEY: &str = "ARROW:extension:name";
/// Arrow's field metadata key for the parameters of an extension type.
pub const EXTENSION_METADATA_KEY: &str = "ARROW:extension:metadata";
/// The canonical extension type of tensors that have the same shape in all rows. Their storage is `FixedSizeList<T,
/// product of shape>`.
pub const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";
/// Field metadata key for Stoker's column kinds.
pub const KIND_KEY: &str = "stoker.kind";
/// Value of [`KIND_KEY`] for LargeBinary columns with JPEG, PNG or WebP files.
pub const KIND_ENCODED_IMAGE: &str = "encoded_image";
/// Field metadata key that overrides the rule for heavy columns: `true` or `false`.
pub const HEAVY_KEY: &str = "stoker.heavy";
/// Field metadata key for element types that Arrow lacks: `bfloat16` on UInt16 storage.
pub const DTYPE_KEY: &str = "stoker.dtype";
/// Columns with more bytes per row than this are heavy.
pub const HEAVY_ROW_BYTES: usize = 1024;

/// The shape and element type of a fixed-shape tensor column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The element type as it is stored.
    pub element: DataType,
    /// The size of each dimension.
    pub shape: Vec<usize>,
}

impl TensorType {
    /// Returns the tensor type of a field, as its extension type declares it. A plain FixedSizeList of numbers without
    /// an extension type is a vector.
    ///
    /// Returns `None` for other fields, and for metadata that contradicts the storage.
    pub fn of(field: &Field) -> Option<TensorType> {
        let DataType::FixedSizeList(item, length) = field.data_type() else { return None };
        let length = usize::try_from(*length).ok()?;
        let element = item.data_type().clone();
        element.primitive_width()?;
        if field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) != Some(FIXED_SHAPE_TENSOR) {
            return Some(TensorType { element, shape: vec![length] });
        }
        let json: serde_json::Value = serde_json::from_str(field.metadata().get(EXTENSION_METADATA_KEY)?).ok()?;
        let shape: Option<Vec<usize>> =
            json.get("shape")?.as_array()?.iter().map(|size| usize::try_from(size.as_u64()?).ok()).collect();
        let shape = shape?;
        let product = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        (product == length).then_some(TensorType { element, shape })
    }

    /// Returns a non-null field of this type with the given name.
    pub fn to_field(&self, name: &str) -> Field {
        let length = i32::try_from(self.shape.iter().product::<usize>()).unwrap_or(i32::MAX);
        let item = Field::new("item", self.element.clone(), true);
        let metadata = serde_json::json!({ "shape": self.shape }).to_string();
        Field::new(name, DataType::FixedSizeList(item.into(), length), false).with_metadata(
            [
                (EXTENSION_NAME_KEY.to_string(), FIXED_SHAPE_TENSOR.to_string()),
                (EXTENSION_METADATA_KEY.to_string(), metadata),
            ]
            .into(),
        )
    }
}

/// Returns the bytes per row of a fixed-width type, or `None` for a type of variable width. A boolean, which Arrow
/// stores as one bit, counts as one byte.
pub fn fixed_row_bytes(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeList(item, length) => {
            fixed_row_bytes(item.data_type())?.checked_mul(usize::try_from(*length).ok()?)
        }
        DataType::FixedSizeBinary(length) => usize::try_from(*length).ok(),
        DataType::Boolean => Some(1),
        DataType::Struct(fields) => {
            fields.iter().map(|field| fixed_row_bytes(field.data_type())).sum::<Option<usize>>()
        }
        other => other.primitive_width(),
    }
}

/// Returns whether the column holds JPEG, PNG or WebP files.
pub fn is_encoded_image(field: &Field) -> bool {
    field.metadata().get(KIND_KEY).map(String::as_str) == Some(KIND_ENCODED_IMAGE)
}

/// Returns whether a column is heavy: streams fetch its values by chunk scans, and filtering does not read it unless a
/// predicate names it.
///
/// [`HEAVY_KEY`] decides where it is present. Otherwise a fixed-width column is heavy if it has more than
/// [`HEAVY_ROW_BYTES`] per row, and a binary column is always heavy. Texts and lists of variable length are light.
pub fn is_heavy(field: &Field) -> bool {
    match field.metadata().get(HEAVY_KEY).map(String::as_str) {
        Some("true") => return true,
        Some("false") => return false,
        _ => {}
    }
    match field.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        other => fixed_row_bytes(other).is_some_and(|bytes| bytes > HEAVY_ROW_BYTES),
    }
}
