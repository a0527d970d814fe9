//! Rows of different lengths: lists of numbers, such as tokens, also lists in lists, and tensors of which each has its
//! own shape (`arrow.variable_shape_tensor`).

mod pad;
mod values;
mod variable_shape;

use arrow_schema::{DataType, Field};

pub use pad::{PADDED_BYTES_MAX, Padded, Padding};
pub use values::{RaggedValues, ragged_values};
pub use variable_shape::VariableShape;

use crate::numpy::element_name;
use crate::{ColumnKind, DTYPE_KEY, EXTENSION_METADATA_KEY, NumpyShape, Rows, SmallFloat};

/// The kind of rows of different lengths.
pub struct Ragged;

impl ColumnKind for Ragged {
    fn name(&self) -> &'static str {
        "ragged"
    }

    fn holds(&self, field: &Field) -> bool {
        VariableShape::of(field).is_some() || Lists::of(field).is_some()
    }

    fn label(&self, field: &Field) -> String {
        let named = |element: &DataType| {
            let named = field.metadata().get(DTYPE_KEY).cloned();
            named.unwrap_or_else(|| element.to_string().to_lowercase())
        };
        if let Some(shapes) = VariableShape::of(field) {
            return format!("ragged {}{}", named(&shapes.element), shapes.sizes_label());
        }
        let Some(lists) = Lists::of(field) else { return "ragged".into() };
        let sizes = lists.shape.iter().map(usize::to_string);
        let sizes: Vec<String> = (0..lists.levels).map(|_| "*".to_string()).chain(sizes).collect();
        format!("ragged {}[{}]", named(&lists.element), sizes.join(", "))
    }

    /// Parameters are optional, but pyarrow refuses tensors without them.
    fn canonical(&self, field: &Field) -> Field {
        let mut metadata = field.metadata().clone();
        if VariableShape::of(field).is_some() && metadata.get(EXTENSION_METADATA_KEY).is_none_or(String::is_empty) {
            metadata.insert(EXTENSION_METADATA_KEY.into(), "{}".into());
        }
        field.clone().with_metadata(metadata)
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        if let Some(VariableShape { element, dimensions, sizes }) = VariableShape::of(field) {
            let sizes = dimensions.ordered(&sizes);
            let rows = Rows::Shaped { axes: dimensions.axes, sizes };
            let small_float = SmallFloat::stored_as(field, &element);
            let elements = NumpyShape::elements(field, &element, Vec::new());
            return NumpyShape { rows, small_float, names: dimensions.names, ..elements };
        }
        match Lists::of(field) {
            Some(Lists { element, levels, shape }) => {
                NumpyShape { rows: Rows::Lists { levels }, ..NumpyShape::elements(field, &element, shape) }
            }
            None => NumpyShape::objects(field),
        }
    }
}

/// Lists of any length of numbers or booleans.
struct Lists {
    /// The type of an element.
    element: DataType,
    /// How many lists of any length are nested in each other.
    levels: usize,
    /// The shape of an element of the innermost list; empty for numbers.
    shape: Vec<usize>,
}

impl Lists {
    fn of(field: &Field) -> Option<Self> {
        let (mut inner, mut levels) = (field.data_type(), 0);
        while let DataType::List(item) | DataType::LargeList(item) = inner {
            (inner, levels) = (item.data_type(), levels + 1);
        }
        let mut shape = Vec::new();
        while let DataType::FixedSizeList(item, length) = inner {
            shape.push(usize::try_from(*length).ok()?);
            inner = item.data_type();
        }
        element_name(inner)?;
        (levels > 0).then(|| Self { element: inner.clone(), levels, shape })
    }
}
