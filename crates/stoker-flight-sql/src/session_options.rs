//! Session options: the catalog and the schema, of which there is one each.
//!
//! Drivers ask for them when they connect, and set them to what a user configured. As no option can have another value,
//! a server keeps no sessions.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use stoker_types::{CATALOG, SCHEMA};

use crate::{Error, Result};

/// The names of the options with their values.
const OPTIONS: [(&str, &str); 2] = [("catalog", CATALOG), ("schema", SCHEMA)];

// The messages of Flight.proto that arrow-flight does not have.

#[derive(Clone, PartialEq, Message)]
struct OptionValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Texts(Texts),
}

#[derive(Clone, PartialEq, Message)]
struct Texts {
    #[prost(string, repeated, tag = "1")]
    values: Vec<String>,
}

/// What `SetSessionOptions` asks for, and what `GetSessionOptions` answers.
#[derive(Clone, PartialEq, Message)]
struct Options {
    #[prost(map = "string, message", tag = "1")]
    options: HashMap<String, OptionValue>,
}

#[derive(Clone, PartialEq, Message)]
struct SetResult {
    #[prost(map = "string, message", tag = "1")]
    errors: HashMap<String, SetError>,
}

#[derive(Clone, PartialEq, Message)]
struct SetError {
    #[prost(int32, tag = "1")]
    code: i32,
}

/// The name of the option is unknown.
const INVALID_NAME: i32 = 1;
/// The option cannot have the value.
const INVALID_VALUE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct CloseResult {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The session is closed.
const CLOSED: i32 = 1;

/// Answers the action `SetSessionOptions`: names the options that cannot be set.
///
/// # Errors
/// `InvalidRequest` for a body that cannot be read.
pub fn set(request: Bytes) -> Result<Bytes> {
    let request = Options::decode(request);
    let request = request.map_err(|source| Error::invalid(format!("cannot read the session options: {source}")))?;
    let error = |(name, value): (String, OptionValue)| {
        let code = match OPTIONS.iter().find(|(known, _)| *known == name) {
            None => INVALID_NAME,
            Some((_, only)) => match value.value {
                // An option without a value goes back to its default.
                None => return None,
                Some(Value::Text(text)) if text == *only => return None,
                Some(_) => INVALID_VALUE,
            },
        };
        Some((name, SetError { code }))
    };
    Ok(SetResult { errors: request.options.into_iter().filter_map(error).collect() }.encode_to_vec().into())
}

/// Answers the action `GetSessionOptions`.
pub fn get() -> Bytes {
    let option =
        |(name, value): (&str, &str)| (name.to_string(), OptionValue { value: Some(Value::Text(value.to_string())) });
    Options { options: OPTIONS.into_iter().map(option).collect() }.encode_to_vec().into()
}

/// Answers the action `CloseSession`.
pub fn close() -> Bytes {
    CloseResult { status: CLOSED }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_one_value() {
        let text = |value: &str| OptionValue { value: Some(Value::Text(value.into())) };
        let number = OptionValue { value: Some(Value::Integer(3)) };
        let options = [("catalog", text("lake")), ("schema", text("other")), ("speed", number), ("x", text(""))];
        let options = options.map(|(name, value)| (name.to_string(), value));
        let request = Options { options: HashMap::from(options) }.encode_to_vec();
        let answer = SetResult::decode(set(request.into()).expect("an answer")).expect("an answer");
        let error = |name: &str, code| (name.to_string(), SetError { code });
        let expected = [error("schema", INVALID_VALUE), error("speed", INVALID_NAME), error("x", INVALID_NAME)];
        assert_eq!(answer.errors, HashMap::from(expected));
        let all = Options::decode(get()).expect("options");
        assert_eq!(all.options["schema"], text("public"));
        assert_eq!(CloseResult::decode(close()).expect("a status").status, CLOSED);
        assert!(set(Bytes::from_static(&[0x0a, 9])).is_err());
    }
}
