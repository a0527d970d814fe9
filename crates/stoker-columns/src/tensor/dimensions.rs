//! The dimensions of tensors, as the parameters of their extension types declare them.
//!
//! <https://arrow.apache.org/docs/format/CanonicalExtensions.html> defines the parameters `shape`, `permutation`,
//! `dim_names` and `uniform_shape`.

use arrow_schema::Field;
use serde_json::Value;

use crate::EXTENSION_METADATA_KEY;

/// The names and the order of the dimensions of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dimensions {
    /// For each dimension of the tensor, the number of the stored dimension that it is; `None` if both have one order.
    pub axes: Option<Vec<usize>>,
    /// The names of the dimensions of the tensor, in its order.
    pub names: Option<Vec<String>>,
}

impl Dimensions {
    /// Returns what the parameters of an extension type say about `num_dims` dimensions; `None` for parameters that
    /// contradict themselves.
    pub(crate) fn parse(parameters: &Value, num_dims: usize) -> Option<Self> {
        let axes = match parameters.get("permutation") {
            None | Some(Value::Null) => None,
            Some(axes) => Some(permutation(axes, num_dims)?),
        };
        let names = match parameters.get("dim_names") {
            None | Some(Value::Null) => None,
            Some(names) => {
                let names: Option<Vec<String>> =
                    names.as_array()?.iter().map(|name| name.as_str().map(str::to_string)).collect();
                Some(names.filter(|names| names.len() == num_dims)?)
            }
        };
        let mut dimensions = Self { axes, names: None };
        dimensions.names = names.map(|names| dimensions.ordered(&names));
        dimensions.axes = dimensions.axes.filter(|axes| !axes.is_sorted());
        Some(dimensions)
    }

    /// Returns the values of the stored dimensions in the order of the tensor's dimensions.
    pub fn ordered<T: Clone>(&self, stored: &[T]) -> Vec<T> {
        match &self.axes {
            Some(axes) => axes.iter().filter_map(|axis| stored.get(*axis).cloned()).collect(),
            None => stored.to_vec(),
        }
    }

    /// Returns sizes as text, with the names of the dimensions: `[3, 224]` or `[C=3, W=224]`.
    pub(crate) fn label(&self, sizes: &[String]) -> String {
        let named = |(at, size): (usize, &String)| match self.names.as_ref().and_then(|names| names.get(at)) {
            Some(name) => format!("{name}={size}"),
            None => size.clone(),
        };
        format!("[{}]", sizes.iter().enumerate().map(named).collect::<Vec<_>>().join(", "))
    }
}

/// Returns the parameters of the extension type of a field.
pub(crate) fn parameters(field: &Field) -> Option<Value> {
    serde_json::from_str(field.metadata().get(EXTENSION_METADATA_KEY)?).ok()
}

/// Returns a permutation of the numbers below `length`; `None` for other values.
fn permutation(axes: &Value, length: usize) -> Option<Vec<usize>> {
    let axes: Option<Vec<usize>> =
        axes.as_array()?.iter().map(|axis| axis.as_u64().and_then(|axis| usize::try_from(axis).ok())).collect();
    let axes = axes?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    sorted.iter().copied().eq(0..length).then_some(axes)
}
