//! Tensors: numbers of one shape in all rows, such as decoded images. The extension type
//! `arrow.fixed_shape_tensor` declares them.

mod bfloat16;
mod elements;
mod fitting;
mod flatten;
mod ingest;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, DataType, Field};

pub use bfloat16::{BFLOAT16, is_bfloat16};
pub(crate) use elements::{FromLists, dense_field, fit_elements};
pub use fitting::{fitting, fitting_schema};
pub use ingest::{Element, TensorSpec, WRONG_SIZES, declared};

use self::elements::{as_dense, canonical};
use crate::metadata::has_tensor_name;
use crate::{
    ColumnKind, DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR, Ingest, NumpyShape,
};

/// The kind of tensors.
pub struct Tensor;

impl ColumnKind for Tensor {
    fn name(&self) -> &'static str {
        "tensor"
    }

    fn holds(&self, field: &Field) -> bool {
        has_tensor_name(field) && TensorType::of(field).is_some()
    }

    fn label(&self, field: &Field) -> String {
        format!("tensor {}", shape_label(field).unwrap_or_default())
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        numpy_shape(field)
    }

    fn canonical(&self, field: &Field) -> Field {
        canonical(field)
    }

    fn fit(&self, field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        fit_elements(field, column)
    }

    fn ingest(&self, field: Field) -> Ingest {
        as_dense(field)
    }
}

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
        let shape = if has_tensor_name(field) { declared_shape(field)? } else { vec![length] };
        Some(TensorType { element, shape })
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

/// Returns the shape that the extension type of a field declares. `None` for other fields, and for a shape that
/// contradicts the storage.
pub(crate) fn declared_shape(field: &Field) -> Option<Vec<usize>> {
    let DataType::FixedSizeList(_, length) = field.data_type() else { return None };
    if !has_tensor_name(field) {
        return None;
    }
    let json: serde_json::Value = serde_json::from_str(field.metadata().get(EXTENSION_METADATA_KEY)?).ok()?;
    let shape: Option<Vec<usize>> =
        json.get("shape")?.as_array()?.iter().map(|size| usize::try_from(size.as_u64()?).ok()).collect();
    let shape = shape?;
    let product = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
    (Some(product) == usize::try_from(*length).ok()).then_some(shape)
}

/// Returns the element type and the shape of a tensor or vector, such as `uint8[3, 224, 224]`; `None` for other columns.
pub fn shape_label(field: &Field) -> Option<String> {
    let tensor = TensorType::of(field)?;
    let named = field.metadata().get(DTYPE_KEY).cloned();
    let element = named.unwrap_or_else(|| tensor.element.to_string().to_lowercase());
    Some(format!("{element}{:?}", tensor.shape))
}

/// The shape of the NumPy array of a column of tensors or vectors.
pub(crate) fn numpy_shape(field: &Field) -> NumpyShape {
    match TensorType::of(field) {
        Some(TensorType { element, shape }) => NumpyShape::elements(field, &element, shape),
        None => NumpyShape::objects(field),
    }
}
