//! JSON Lines: types, bad rows, media and compression.

mod fuzz;
mod media;

use std::io::Write as _;
use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, StringArray, StructArray, UInt64Array};
use arrow_schema::{DataType, Field};

use super::JsonLines;
use crate::read_files::{MemoryFolder, plan, read, read_default, read_files};
use crate::{Error, FileFormat as _, FormatOptions};

/// Reads one file.
fn read_text(text: impl Into<Vec<u8>>) -> crate::read_files::ReadFiles {
    read_default(&JsonLines, &MemoryFolder::new([("a.jsonl", text.into())])).unwrap()
}

fn refused(text: impl Into<Vec<u8>>) -> Error {
    read_default(&JsonLines, &MemoryFolder::new([("a.jsonl", text.into())])).unwrap_err()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn values_have_the_types_of_the_sample() {
    let text = concat!(
        "{\"whole\": 1, \"large\": 18446744073709551615, \"float\": 1, \"flag\": true, \"text\": \"a\\u00e4\\n\"}\n",
        "\n",
        "{\"text\": null, \"float\": -0.5, \"large\": 0, \"none\": null}\r\n",
        "{\"flag\": false, \"whole\": -9223372036854775808, \"float\": 9007199254740992}"
    );
    let read = read_text(text);
    assert_eq!(read.reasons(), Vec::<String>::new());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MIN)])),
        Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None])),
        Arc::new(Float64Array::from(vec![1.0, -0.5, 9_007_199_254_740_992.0])),
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        Arc::new(StringArray::from(vec![Some("aä\n"), None, None])),
        Arc::new(StringArray::from(vec![None::<&str>, None, None])),
    ];
    assert_eq!(read.rows.columns(), columns);
    let names: Vec<&str> = read.rows.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["whole", "large", "float", "flag", "text", "none"]);
    assert_eq!(read.source_bytes, text.len() as u64);
}

#[test]
fn objects_and_lists_are_kept() {
    let text =
        "{\"a\": {\"x\": 1}, \"b\": [1, 2]}\n{\"a\": {\"y\": \"z\"}, \"b\": []}\n{\"a\": null, \"b\": [null]}\n{}\n";
    let read = read_text(text);
    assert_eq!(read.reasons(), Vec::<String>::new());
    let x: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None, None]));
    let y: ArrayRef = Arc::new(StringArray::from(vec![None, Some("z"), None, None]));
    let fields = vec![Field::new("x", DataType::Int64, true), Field::new("y", DataType::Utf8, true)];
    let nulls = Some(vec![true, true, false, false].into());
    let a: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![x, y], nulls));
    let lists = [Some(vec![Some(1), Some(2)]), Some(vec![]), Some(vec![None]), None];
    let b: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    assert_eq!(read.rows.columns(), [a, b]);
}

#[test]
fn lines_that_do_not_fit_are_bad_rows() {
    let lines: [&[u8]; 16] = [
        b"{\"a\": 1, \"b\": {\"c\": [1.5]}}",
        b"{\"a\": \"x\"}",
        b"{\"b\": {\"c\": [\"x\"]}}",
        b"{\"b\": {\"d\": 1}}",
        b"{\"z\": 1}",
        b"{\"a\": 1.5}",
        b"{\"a\": 1, \"a\": 2}",
        b"[1]",
        b"null",
        b"nonsense",
        b"{\"a\": 9223372036854775808}",
        b"{\"b\": {\"c\": [9007199254740993]}}",
        b"{\"a\": 1} {\"a\": 2}",
        b"{\"a\": 1, \"b\": {\"c\": [\xff]}}",
        b"{\"a\": 2}",
        b"{\"a\": 1, \"b\": {\"c",
    ];
    let reasons = [
        "1: line 2: field a: expected int64, found text",
        "2: line 3: field b.c: expected float64, found text",
        "3: line 4: field b.d: the rows from which types were found do not have this field; raise the number of sampled \
         rows, or rename the field",
        "4: line 5: field z: the rows from which types were found do not have this field; raise the number of sampled \
         rows, or rename the field",
        "5: line 6: field a: expected int64, found the number 1.5",
        "6: line 7: field a: the object has this field twice",
        "7: line 8: no JSON object",
        "8: line 9: no JSON object",
        "9: line 10: no JSON object",
        "10: line 11: field a: expected int64, found the number 9223372036854775808",
        "11: line 12: field b.c: 9007199254740993 is not exact as float64",
        "12: line 13: no JSON object: trailing characters, at byte 10",
        "13: line 14: no JSON object: expected value, at byte 22",
        "15: line 16: the object is cut off after 17 bytes",
    ];
    // The sample ends after the first row, so that all others are later rows.
    let options = FormatOptions { sampled_rows: 1, ..FormatOptions::default() };
    let folder = MemoryFolder::new([("a.jsonl", lines.join(&b'\n'))]);
    let read = read(&JsonLines, &folder, &options).unwrap();
    assert_eq!(read.reasons(), reasons);
    assert_eq!(read.rows.column(0).as_ref(), &Int64Array::from(vec![1, 2]));
}

#[test]
fn text_that_is_not_utf8_is_a_bad_row() {
    let read = read_text(b"{\"a\": \"x\"}\n{\"a\": \"\xff\"}\n{\"a\": \"y\"}\n".to_vec());
    assert_eq!(read.reasons(), ["1: line 2: no JSON object: invalid unicode code point, at byte 8"]);
    assert_eq!(read.rows.column(0).as_ref(), &StringArray::from(vec!["x", "y"]));
}

#[test]
fn deep_and_long_lines_are_bad_rows() {
    let deep = format!("{{\"a\": {}1{}}}", "[".repeat(200), "]".repeat(200));
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(crate::text_rows::ROW_TEXT_BYTES_MAX));
    let read = read_text(format!("{{\"a\": 1}}\n{deep}\n{long}\n{{\"a\": 2}}\n"));
    let limit = format!("2: line 3: the line is longer than {} bytes", crate::text_rows::ROW_TEXT_BYTES_MAX);
    assert_eq!(read.reasons(), ["1: line 2: field a: expected int64, found a list", &limit]);
    assert_eq!(read.rows.column(0).as_ref(), &Int64Array::from(vec![1, 2]));
}

#[test]
fn small_objects_in_a_list_take_limited_memory() {
    let fields: Vec<String> = (0..1000).map(|field| format!("\"f{field}\": 1")).collect();
    let many = "{},".repeat(20_000);
    let text = format!("{{\"a\": [{{{}}}]}}\n{{\"a\": [{many}{{}}]}}\n", fields.join(","));
    let read = read_text(text);
    assert_eq!(read.reasons(), ["1: line 2: field a: more than 8388608 values are missing in objects of the row"]);
}

#[test]
fn files_without_rows_are_refused() {
    let error = |text: &str| refused(text.to_string()).to_string();
    assert_eq!(error(""), "a.jsonl: the file has no rows");
    assert_eq!(error("\n\n"), "a.jsonl: the file has no rows");
    let reason = "none of the first 10000 lines is an object with fields; line 1: the object is cut off after 8 bytes";
    assert_eq!(error("{\"a\": 1,"), format!("a.jsonl: {reason}"));
    assert!(error("PAR1\0\0").contains("the file is no text"), "{}", error("PAR1\0\0"));
    let wide: Vec<String> = (0..10_001).map(|field| format!("\"f{field}\": 1")).collect();
    let error = error(&format!("{{{}}}\n", wide.join(",")));
    assert!(error.contains("the object has more than 10000 fields"), "{error}");
}

#[test]
fn later_files_have_the_columns_of_the_first() {
    let folder =
        MemoryFolder::new([("a.jsonl", ""), ("b.jsonl", "{\"a\": 1}\n"), ("c.ndjson", "{\"a\": 2}\n{\"b\": 1}\n")]);
    let read = read_default(&JsonLines, &folder).unwrap();
    assert_eq!(read.rows.column(0).as_ref(), &Int64Array::from(vec![1, 2]));
    assert_eq!(read.bad.len(), 1);
}

#[test]
fn compressed_files_are_read() {
    let text = "{\"a\": 1}\n".repeat(5000);
    let plain = read_text(text.clone());
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    for (name, bytes) in [("a.jsonl.gz", gzip(text.as_bytes())), ("a.ndjson.zst", zstd)] {
        let folder = MemoryFolder::new([(name, bytes.clone())]);
        let read = read_default(&JsonLines, &folder).unwrap();
        assert_eq!(read.rows.column(0), plain.rows.column(0));
        assert_eq!(read.source_bytes, bytes.len() as u64);
        let cut = MemoryFolder::new([(name, bytes[..bytes.len() - 9].to_vec())]);
        let error = read_default(&JsonLines, &cut).unwrap_err().to_string();
        assert!(error.contains("data is damaged or cut off"), "{error}");
        let other = MemoryFolder::new([(name, text.clone())]);
        let error = read_default(&JsonLines, &other).unwrap_err().to_string();
        assert!(error.contains("data is damaged or cut off"), "{error}");
    }
}

#[test]
fn batches_are_limited() {
    let text = "{\"a\": \"0123456789\"}\n".repeat(1000);
    let files = plan(&JsonLines, &MemoryFolder::new([("a.jsonl", text)]), &FormatOptions::default()).unwrap();
    let read = read_files(files.as_ref(), 2000).unwrap();
    assert!((8..=20).contains(&read.num_batches), "{}", read.num_batches);
}

#[test]
fn json_files_are_recognised_by_their_lines() {
    let recognised = |text: &str| JsonLines.recognise(&MemoryFolder::new([("a.json", text)]));
    assert_eq!(recognised("{\"a\": 1}\n\n{\"a\": 2}\n{"), Some(vec!["a.json".to_string()]));
    for other in ["", "{\n  \"a\": 1\n}\n", "{\"a\": 1}\n", "[{\"a\": 1},\n{\"a\": 2}]\n", "1\n2\n"] {
        assert_eq!(recognised(other), None, "{other}");
    }
    let two = "{\"a\": 1}\n{\"a\": 2}\n";
    let mixed = MemoryFolder::new([("a.json", two), ("b.jsonl", two), ("c.csv", "a\n1\n"), (".hidden.jsonl", two)]);
    assert_eq!(JsonLines.recognise(&mixed), Some(vec!["b.jsonl".to_string()]));
    assert_eq!(crate::format_of(&mixed).map(|format| format.name()), Some("jsonl"));
}
