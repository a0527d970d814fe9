//! The type of tensors of which each has its own shape.

use arrow_schema::{DataType, Field};

use crate::metadata::has_variable_tensor_name;
use crate::numpy::element_name;
use crate::tensor::{Dimensions, parameters};

/// What is the same for all tensors of a column of which each has its own shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableShape {
    /// The type of an element.
    pub element: DataType,
    /// The names and the order of the dimensions.
    pub dimensions: Dimensions,
    /// The sizes that all tensors have in common, in the stored order.
    pub sizes: Vec<Option<usize>>,
}

impl VariableShape {
    /// Returns the type of a field, as its extension type declares it. `None` for other fields, for elements that are no
    /// numbers and no booleans, for tensors without dimensions, and for parameters that contradict the storage.
    pub fn of(field: &Field) -> Option<Self> {
        if !has_variable_tensor_name(field) {
            return None;
        }
        let DataType::Struct(members) = field.data_type() else { return None };
        let [data, shape] = &members[..] else { return None };
        if (data.name().as_str(), shape.name().as_str()) != ("data", "shape") {
            return None;
        }
        let (DataType::List(item) | DataType::LargeList(item)) = data.data_type() else { return None };
        element_name(item.data_type())?;
        let DataType::FixedSizeList(size, num_dims) = shape.data_type() else { return None };
        let num_dims = usize::try_from(*num_dims).ok().filter(|number| *number > 0)?;
        if *size.data_type() != DataType::Int32 {
            return None;
        }
        // The parameters are optional, and so is the text.
        let parameters = parameters(field).unwrap_or_default();
        let sizes = match parameters.get("uniform_shape") {
            None | Some(serde_json::Value::Null) => vec![None; num_dims],
            Some(sizes) => sizes.as_array()?.iter().map(size_of).collect::<Option<Vec<_>>>()?,
        };
        let dimensions = Dimensions::parse(&parameters, num_dims)?;
        (sizes.len() == num_dims).then(|| Self { element: item.data_type().clone(), dimensions, sizes })
    }

    /// Returns the sizes of a tensor as text, with `*` for those that differ: `[H=*, W=*, C=3]`.
    pub(super) fn sizes_label(&self) -> String {
        let text = |size: &Option<usize>| size.map_or_else(|| "*".to_string(), |size| size.to_string());
        let sizes: Vec<String> = self.dimensions.ordered(&self.sizes).iter().map(text).collect();
        self.dimensions.label(&sizes)
    }
}

/// Returns a size, which null leaves open.
fn size_of(size: &serde_json::Value) -> Option<Option<usize>> {
    match size {
        serde_json::Value::Null => Some(None),
        size => usize::try_from(size.as_u64()?).ok().map(Some),
    }
}
