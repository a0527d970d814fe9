//! The values of query parameters.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::ArrowParam;

/// The value of a positional SQL parameter (`$1`, `$2`, …).
///
/// Parameters are sent and stored in specifications as JSON. A value that JSON can express is written as itself. A
/// number that is not finite is written as `{"float": "NaN"}`, `{"float": "inf"}` or `{"float": "-inf"}`, and a value
/// of any other type as `{"arrow": …}` ([`ArrowParam`]).
///
/// ```
/// use stoker_types::ParamValue;
/// let params: Vec<ParamValue> = serde_json::from_str(r#"["train", 3, 0.5, [1.0, 2.0], null]"#)?;
/// assert_eq!(params[1], ParamValue::Int(3));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum ParamValue {
    /// SQL `NULL`.
    Null,
    /// A boolean value.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// A 64-bit floating-point number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list of numbers: a vector for distance and search functions, or any other list without nulls.
    Vector(Vec<f64>),
    /// A value of any other type.
    Arrow(ArrowParam),
}

impl PartialEq for ParamValue {
    /// Compares two values. NaN equals NaN, because the same parameters must make the same stream.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(mine), Self::Bool(theirs)) => mine == theirs,
            (Self::Int(mine), Self::Int(theirs)) => mine == theirs,
            (Self::Float(mine), Self::Float(theirs)) => same(*mine, *theirs),
            (Self::Text(mine), Self::Text(theirs)) => mine == theirs,
            (Self::Vector(mine), Self::Vector(theirs)) => {
                mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(mine, theirs)| same(*mine, *theirs))
            }
            (Self::Arrow(mine), Self::Arrow(theirs)) => mine == theirs,
            _ => false,
        }
    }
}

fn same(mine: f64, theirs: f64) -> bool {
    mine == theirs || (mine.is_nan() && theirs.is_nan())
}

impl Serialize for ParamValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Float(value) => Number(*value).serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Vector(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                values.iter().try_for_each(|value| list.serialize_element(&Number(*value)))?;
                list.end()
            }
            Self::Arrow(value) => BTreeMap::from([("arrow", value.to_base64())]).serialize(serializer),
        }
    }
}

/// A number that may be NaN or infinite.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = match self.0 {
            finite if finite.is_finite() => return serializer.serialize_f64(finite),
            nan if nan.is_nan() => "NaN",
            negative if negative < 0.0 => "-inf",
            _ => "inf",
        };
        BTreeMap::from([("float", name)]).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ParamValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        param(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Returns the parameter that a JSON value represents. The error is the reason why it is not a parameter.
fn param(value: Value) -> Result<ParamValue, String> {
    Ok(match value {
        Value::Null => ParamValue::Null,
        Value::Bool(value) => ParamValue::Bool(value),
        Value::String(text) => ParamValue::Text(text),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => ParamValue::Int(value),
            (None, Some(value), _) => ParamValue::Arrow(ArrowParam::from_u64(value)?),
            (None, None, value) => ParamValue::Float(value.ok_or_else(|| format!("{number} is not a double"))?),
        },
        Value::Array(items) => match items.iter().map(number).collect::<Option<Vec<f64>>>() {
            Some(values) => ParamValue::Vector(values),
            None => ParamValue::Arrow(ArrowParam::from_json_list(&items)?),
        },
        Value::Object(_) => match (number(&value), value.get("arrow").and_then(Value::as_str)) {
            (Some(value), _) => ParamValue::Float(value),
            (None, Some(text)) => ParamValue::Arrow(ArrowParam::from_base64(text)?),
            (None, None) => {
                return Err("a parameter is null, a boolean, a number, a text, a list of these, \
                            {\"float\": \"NaN\"} or {\"arrow\": an Arrow IPC stream in base64}"
                    .to_string());
            }
        },
    })
}

/// Returns the number that a JSON value represents as itself, or as the object for a number that is not finite.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Object(form) if form.len() == 1 => match form.get("float")?.as_str()? {
            "NaN" => Some(f64::NAN),
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}
