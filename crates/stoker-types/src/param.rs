//! Query parameters.

use serde::{Deserialize, Serialize};

/// The value of a positional SQL parameter (`$1`, `$2`, …), as JSON.
///
/// ```
/// use stoker_types::ParamValue;
/// let params: Vec<ParamValue> = serde_json::from_str(r#"["train", 3, 0.5, [1.0, 2.0], null]"#)?;
/// assert_eq!(params[1], ParamValue::Int(3));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// SQL `NULL`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A double.
    Float(f64),
    /// A string.
    Text(String),
    /// A vector, for distance and search functions.
    Vector(Vec<f64>),
}
