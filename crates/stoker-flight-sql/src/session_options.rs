//! Session options: the catalog and the schema, of which there is one each, and whether `ORDER BY` a distance may be
//! approximate.
//!
//! Drivers ask for them when they connect, and set them to what a user configured. A server keeps no sessions: options
//! that differ from their defaults travel in a cookie, which the server signs and any replica verifies.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use prost::Message;
use stoker_types::{CATALOG, QueryOptions, SCHEMA};

use crate::{Error, Result};

/// The names of the options that have one value, with their values.
const FIXED: [(&str, &str); 2] = [("catalog", CATALOG), ("schema", SCHEMA)];

/// The name of the option that allows an index to answer `ORDER BY` a distance with `LIMIT`: `true` or `false`.
const APPROXIMATE: &str = "approximate_order_by";

/// The name of the cookie.
const COOKIE: &str = "stoker-session";

/// The cookie of a session, which is not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCookie(Vec<u8>);

impl SessionCookie {
    /// Finds the cookie in the values of `cookie` headers.
    pub fn of<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut pairs =
            headers.into_iter().flat_map(|header| header.split(';')).filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name.trim() == COOKIE)?;
        let value = Some(value.trim().trim_matches('"')).filter(|value| !value.is_empty())?;
        // A value that is not base64 was changed, as its signature will tell.
        Some(Self(BASE64_URL_SAFE_NO_PAD.decode(value).unwrap_or_else(|_| value.as_bytes().to_vec())))
    }

    /// The signed bytes.
    pub fn signed(&self) -> &[u8] {
        &self.0
    }

    /// Returns the value of the header `set-cookie` that gives a client these signed bytes. It has no end: a client that
    /// dropped an expired cookie would go on without its options, where the server refuses it.
    pub fn header(signed: &[u8]) -> String {
        format!("{COOKIE}={}; Path=/; HttpOnly", BASE64_URL_SAFE_NO_PAD.encode(signed))
    }

    /// Returns the value of the header `set-cookie` that makes a client forget the cookie.
    pub fn forget() -> String {
        format!("{COOKIE}=; Max-Age=0; Path=/; HttpOnly")
    }
}

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

/// Answers the action `SetSessionOptions`: names the options that cannot be set. Returns the options of the session after
/// it, which had the options `session`.
///
/// # Errors
/// `InvalidRequest` for a body that cannot be read.
pub fn set(request: Bytes, mut session: QueryOptions) -> Result<(Bytes, QueryOptions)> {
    let request = Options::decode(request);
    let request = request.map_err(|source| Error::invalid(format!("cannot read the session options: {source}")))?;
    let mut errors = HashMap::new();
    for (name, OptionValue { value }) in request.options {
        let only = FIXED.iter().find(|(known, _)| *known == name).map(|(_, only)| *only);
        // An option without a value goes back to its default.
        let refused = match (only, value) {
            (Some(_), None) => None,
            (Some(only), Some(Value::Text(text))) if text == only => None,
            (Some(_), Some(_)) => Some(INVALID_VALUE),
            (None, value) if name == APPROXIMATE => match flag(value) {
                Some(is_approximate) => {
                    session = QueryOptions::approximate(is_approximate);
                    None
                }
                None => Some(INVALID_VALUE),
            },
            (None, _) => Some(INVALID_NAME),
        };
        errors.extend(refused.map(|code| (name, SetError { code })));
    }
    Ok((SetResult { errors }.encode_to_vec().into(), session))
}

/// Returns the value of an option that is true or false, of which false is the default.
fn flag(value: Option<Value>) -> Option<bool> {
    match value {
        None => Some(false),
        Some(Value::Bool(flag)) => Some(flag),
        Some(Value::Text(text)) => text.to_ascii_lowercase().parse().ok(),
        Some(_) => None,
    }
}

/// Answers the action `GetSessionOptions` for a session with these options.
pub fn get(session: QueryOptions) -> Bytes {
    let approximate = session.is_approximate().to_string();
    let option =
        |(name, value): (&str, &str)| (name.to_string(), OptionValue { value: Some(Value::Text(value.to_string())) });
    let options = FIXED.into_iter().chain([(APPROXIMATE, approximate.as_str())]).map(option).collect();
    Options { options }.encode_to_vec().into()
}

/// Answers the action `CloseSession`.
pub fn close() -> Bytes {
    CloseResult { status: CLOSED }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> OptionValue {
        OptionValue { value: Some(Value::Text(value.into())) }
    }

    fn request<const N: usize>(options: [(&str, OptionValue); N]) -> Bytes {
        let options = options.map(|(name, value)| (name.to_string(), value));
        Options { options: HashMap::from(options) }.encode_to_vec().into()
    }

    #[test]
    fn options_have_one_value_or_are_named() {
        let number = OptionValue { value: Some(Value::Integer(3)) };
        let options = [
            ("catalog", text("lake")),
            ("schema", text("other")),
            ("speed", number.clone()),
            ("x", text("")),
            (APPROXIMATE, number),
        ];
        let exact = QueryOptions::default();
        let (answer, session) = set(request(options), exact).expect("an answer");
        let answer = SetResult::decode(answer).expect("an answer");
        let error = |name: &str, code| (name.to_string(), SetError { code });
        let expected = [
            error("schema", INVALID_VALUE),
            error("speed", INVALID_NAME),
            error("x", INVALID_NAME),
            error(APPROXIMATE, INVALID_VALUE),
        ];
        assert_eq!((answer.errors, session), (HashMap::from(expected), exact));
        let all = Options::decode(get(session)).expect("options");
        assert_eq!((&all.options["schema"], &all.options[APPROXIMATE]), (&text("public"), &text("false")));
        assert_eq!(CloseResult::decode(close()).expect("a status").status, CLOSED);
        assert!(set(Bytes::from_static(&[0x0a, 9]), exact).is_err());
    }

    #[test]
    fn approximate_results_are_switched_on_and_off() {
        let (yes, no) = (QueryOptions::approximate(true), QueryOptions::approximate(false));
        let bool = |flag| OptionValue { value: Some(Value::Bool(flag)) };
        for (value, before, after) in [
            (text("true"), no, yes),
            (text("TRUE"), no, yes),
            (bool(true), no, yes),
            (text("false"), yes, no),
            (bool(false), yes, no),
            (OptionValue { value: None }, yes, no),
            // What cannot be set changes nothing.
            (text("maybe"), yes, yes),
        ] {
            let (_, session) = set(request([(APPROXIMATE, value.clone())]), before).expect("an answer");
            assert_eq!(session, after, "{value:?}");
        }
        let all = Options::decode(get(yes)).expect("options");
        assert_eq!(all.options[APPROXIMATE], text("true"));
    }

    #[test]
    fn cookies_are_found_among_others() {
        let header = SessionCookie::header(b"\xffsigned");
        let (cookie, attributes) = header.split_once(';').expect("attributes");
        assert_eq!(attributes, " Path=/; HttpOnly");
        let (name, value) = cookie.split_once('=').expect("a value");
        for headers in [
            vec![cookie.to_string()],
            vec![format!("a=b; {cookie}; c=d")],
            vec!["a=b".into(), format!("{name}=\"{value}\"")],
        ] {
            let found = SessionCookie::of(headers.iter().map(String::as_str)).expect("a cookie");
            assert_eq!(found.signed(), b"\xffsigned", "{headers:?}");
        }
        assert_eq!(SessionCookie::of(["a=b; stoker-sessions=c", "stoker-session", "stoker-session=\"\""]), None);
        assert_eq!(SessionCookie::of(["stoker-session=not base64!"]), Some(SessionCookie(b"not base64!".to_vec())));
        assert!(SessionCookie::forget().starts_with("stoker-session=; Max-Age=0;"));
    }
}
