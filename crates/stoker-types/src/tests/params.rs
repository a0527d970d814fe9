//! Tests of the JSON forms of parameters.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Date32Array, Decimal128Array, StringArray, TimestampMicrosecondArray};

use crate::{ArrowParam, ParamValue};

fn json(param: &ParamValue) -> String {
    serde_json::to_string(param).expect("JSON")
}

fn read(json: &str) -> Result<ParamValue, String> {
    serde_json::from_str(json).map_err(|source| source.to_string())
}

#[test]
fn what_json_holds_keeps_its_form() {
    for (param, form) in [
        (ParamValue::Null, "null"),
        (ParamValue::Bool(true), "true"),
        (ParamValue::Int(i64::MIN), "-9223372036854775808"),
        (ParamValue::Float(3.0), "3.0"),
        (ParamValue::Float(9.3e18), "9.3e+18"),
        (ParamValue::Float(-0.0), "-0.0"),
        (ParamValue::Text("NaN".into()), "\"NaN\""),
        (ParamValue::Vector(vec![1.0, 0.1]), "[1.0,0.1]"),
        (ParamValue::Vector(Vec::new()), "[]"),
    ] {
        assert_eq!(json(&param), form);
        assert_eq!(read(form).as_ref(), Ok(&param), "{form}");
    }
    assert_eq!(read("[1, 2.5]"), Ok(ParamValue::Vector(vec![1.0, 2.5])));
}

#[test]
fn fractions_are_read_exactly() {
    // A reader that rounds twice gets a neighbour of these numbers.
    for text in ["92232036854294950000.0", "-9.337203685418447e18", "0.43933650851249695", "1.7976931348623157e308"] {
        let value: f64 = text.parse().expect("a number");
        assert_eq!(read(text), Ok(ParamValue::Float(value)), "{text}");
    }
    let vector = ParamValue::Vector((1u32..1_000).map(|number| 1.0 / f64::from(number)).collect());
    assert_eq!(read(&json(&vector)), Ok(vector));
}

#[test]
fn numbers_that_are_not_finite_have_a_form_of_their_own() {
    for (value, form) in [
        (f64::NAN, r#"{"float":"NaN"}"#),
        (f64::INFINITY, r#"{"float":"inf"}"#),
        (f64::NEG_INFINITY, r#"{"float":"-inf"}"#),
    ] {
        assert_eq!(json(&ParamValue::Float(value)), form);
        assert_eq!(read(form), Ok(ParamValue::Float(value)));
        let vector = ParamValue::Vector(vec![1.0, value]);
        assert_eq!(read(&json(&vector)), Ok(vector));
    }
}

#[test]
fn arrow_values_round_trip_and_keep_their_bytes() {
    let decimals = Decimal128Array::from(vec![150]).with_precision_and_scale(3, 2).expect("a decimal");
    let values: Vec<ArrayRef> = vec![
        Arc::new(Date32Array::from(vec![20_000])),
        Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")),
        Arc::new(decimals),
        Arc::new(BinaryArray::from(vec![b"\0\xff".as_slice()])),
        Arc::new(Date32Array::from(vec![None])),
    ];
    for value in values {
        let param = ParamValue::Arrow(ArrowParam::try_new(value.clone()).expect("a parameter"));
        let form = json(&param);
        assert!(form.starts_with(r#"{"arrow":""#), "{form}");
        let again = read(&form).expect("a parameter");
        assert_eq!(again, param);
        assert_eq!(json(&again), form);
        assert!(matches!(&again, ParamValue::Arrow(again) if *again.value() == value), "{again:?}");
    }
}

#[test]
fn json_lists_and_large_integers_are_arrow_values() {
    for (form, shown) in
        [(r#"["a",null]"#, "List"), ("[true]", "List"), ("[1,null]", "List"), ("18446744073709551615", "UInt64")]
    {
        let Ok(ParamValue::Arrow(param)) = read(form) else { panic!("{form} is an Arrow value") };
        assert!(param.value().data_type().to_string().starts_with(shown), "{form}: {param:?}");
    }
}

#[test]
fn what_is_no_parameter_is_refused_with_a_reason() {
    let two = ArrowParam::try_new(Arc::new(StringArray::from(vec!["a", "b"]))).expect_err("two values");
    assert!(two.to_string().contains("2 values"), "{two}");
    let valid = json(&ParamValue::Arrow(ArrowParam::try_new(Arc::new(Date32Array::from(vec![1]))).expect("one value")));
    let cut = format!("{}\"}}", &valid[..valid.len() / 2 / 4 * 4 + 2]);
    for (form, part) in [
        (r#"{"a": 1}"#, "a parameter is null"),
        (r#"{"float": "nan"}"#, "a parameter is null"),
        (r#"[1, "a"]"#, "mixes types"),
        (r#"{"arrow": "?"}"#, "not base64"),
        (r#"{"arrow": "AAAAAAAAAAA="}"#, "not an Arrow IPC stream"),
        (r#"{"arrow": ""}"#, "cannot be read"),
        (cut.as_str(), "a"),
    ] {
        let reason = read(form).expect_err(form);
        assert!(reason.contains(part), "{form}: {reason}");
    }
}

#[test]
fn damaged_arrow_values_never_panic() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let param = ArrowParam::try_new(Arc::new(StringArray::from(vec!["a text"]))).expect("one value");
    let bytes = STANDARD.decode(param.to_base64()).expect("base64");
    // The last eight bytes are a message of their own, the end of the stream, which may be missing.
    for at in 0..bytes.len() - 8 {
        for changed in [0x00, 0x7f, 0xff, bytes[at] ^ 1] {
            let mut damaged = bytes.clone();
            damaged[at] = changed;
            let form = format!("{{\"arrow\": \"{}\"}}", STANDARD.encode(&damaged));
            drop(read(&form));
        }
        let form = format!("{{\"arrow\": \"{}\"}}", STANDARD.encode(&bytes[..at]));
        assert!(read(&form).is_err(), "the first {at} bytes");
    }
}
