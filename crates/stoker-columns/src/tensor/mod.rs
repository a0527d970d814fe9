//! Tensors: numbers of one shape in all rows, such as decoded images. The extension type
//! `arrow.fixed_shape_tensor` declares them.

mod dimensions;
mod elements;
mod fitting;
mod flatten;
mod ingest;
mod small_float;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, DataType, Field};

pub use dimensions::Dimensions;
pub(crate) use dimensions::parameters;
pub(crate) use elements::{FromLists, dense_field, fit_elements};
pub use fitting::{fitting, fitting_schema};
pub use ingest::{Element, TensorSpec, WRONG_SIZES, declared};
pub use small_float::{BFLOAT16, SmallFloat, is_bfloat16};

use self::elements::{as_dense, canonical};
use crate::metadata::has_tensor_name;
use crate::{
    ColumnKind, DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR, Ingest, NumpyShape, Rows,
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

/// Returns the shape that the extension type of a field declares, as it is stored. `None` for other fields, and for
/// parameters that contradict the storage or themselves.
pub(crate) fn declared_shape(field: &Field) -> Option<Vec<usize>> {
    declared_dimensions(field).map(|(shape, _)| shape)
}

/// Returns the stored shape and the dimensions that the extension type of a field declares.
fn declared_dimensions(field: &Field) -> Option<(Vec<usize>, Dimensions)> {
    let DataType::FixedSizeList(_, length) = field.data_type() else { return None };
    if !has_tensor_name(field) {
        return None;
    }
    let parameters = parameters(field)?;
    let shape: Option<Vec<usize>> =
        parameters.get("shape")?.as_array()?.iter().map(|size| usize::try_from(size.as_u64()?).ok()).collect();
    let shape = shape?;
    let product = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
    let dimensions = Dimensions::parse(&parameters, shape.len())?;
    (Some(product) == usize::try_from(*length).ok()).then_some((shape, dimensions))
}

/// Returns the shape of a tensor or vector, in the order of its dimensions; `None` for other columns.
pub fn logical_shape(field: &Field) -> Option<Vec<usize>> {
    let tensor = TensorType::of(field)?;
    let dimensions = declared_dimensions(field).map(|(_, dimensions)| dimensions).unwrap_or_default();
    Some(dimensions.ordered(&tensor.shape))
}

/// Returns the element type and the shape of a tensor or vector, such as `uint8[3, 224, 224]`; `None` for other columns.
/// The dimensions are those of the tensor, which may have another order than the stored ones, with their names.
pub fn shape_label(field: &Field) -> Option<String> {
    let tensor = TensorType::of(field)?;
    let named = field.metadata().get(DTYPE_KEY).cloned();
    let element = named.unwrap_or_else(|| tensor.element.to_string().to_lowercase());
    let dimensions = declared_dimensions(field).map(|(_, dimensions)| dimensions).unwrap_or_default();
    let sizes: Vec<String> = dimensions.ordered(&tensor.shape).iter().map(usize::to_string).collect();
    Some(format!("{element}{}", dimensions.label(&sizes)))
}

/// The shape of the NumPy array of a column of lists of a fixed size, in each other or not. Elements that are no numbers
/// and no booleans are Python objects.
pub(crate) fn numpy_shape(field: &Field) -> NumpyShape {
    let DataType::FixedSizeList(item, length) = field.data_type() else { return NumpyShape::objects(field) };
    let length = usize::try_from(*length).unwrap_or(0);
    let (stored, dimensions) = declared_dimensions(field).unwrap_or_else(|| (vec![length], Dimensions::default()));
    let shape = dimensions.ordered(&stored);
    let mut inner = Vec::new();
    let mut element = item.data_type();
    while let DataType::FixedSizeList(item, length) = element {
        inner.push(usize::try_from(*length).unwrap_or(0));
        element = item.data_type();
    }
    match NumpyShape::elements(field, element, [&shape[..], &inner].concat()) {
        // The inner lists are Python objects too.
        NumpyShape { dtype: None, .. } => NumpyShape { shape, ..NumpyShape::objects(field) },
        numpy => {
            let axes = dimensions.axes.map(|axes| {
                let inner = axes.len()..axes.len() + inner.len();
                axes.into_iter().chain(inner).collect()
            });
            let names = dimensions.names.filter(|_| inner.is_empty());
            NumpyShape { rows: Rows::Fixed { axes }, names, ..numpy }
        }
    }
}
