//! CSV and TSV: types, bad rows, headers and media.

mod fuzz;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::DelimitedText;
use crate::read_files::{MemoryFolder, ReadFiles, read, read_default};
use crate::{FileFormat as _, FormatOptions};

fn read_csv(text: impl Into<Vec<u8>>) -> ReadFiles {
    read_default(&DelimitedText, &MemoryFolder::new([("a.csv", text.into())])).unwrap()
}

fn error(files: &[(&'static str, &str)]) -> String {
    read_default(&DelimitedText, &MemoryFolder::new(files.iter().copied())).unwrap_err().to_string()
}

#[test]
fn values_have_the_types_of_the_sample() {
    let text = "flag,whole,float,date,time,utc,text,code\r\n\
        true,-1,1.5,2024-02-29,2024-02-29T10:11:12.5,2024-02-29T10:11:12+01:00,a,007\r\n\
        FALSE,9007199254740993,1,1969-12-31,1970-01-01 00:00:00,1970-01-01T00:00:00Z,\"b, \"\"c\"\"\r\nd\",1\r\n\
        ,,,,,,,\r\n";
    let read = read_csv(text);
    assert_eq!(read.reasons(), Vec::<String>::new());
    let times = vec![Some(1_709_201_472_500_000), Some(0), None];
    let utc = vec![Some(1_709_197_872_000_000), Some(0), None];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
        Arc::new(Int64Array::from(vec![Some(-1), Some(9_007_199_254_740_993), None])),
        Arc::new(Float64Array::from(vec![Some(1.5), Some(1.0), None])),
        Arc::new(Date32Array::from(vec![Some(19_782), Some(-1), None])),
        Arc::new(TimestampMicrosecondArray::from(times)),
        Arc::new(TimestampMicrosecondArray::from(utc).with_timezone("UTC")),
        Arc::new(StringArray::from(vec![Some("a"), Some("b, \"c\"\r\nd"), None])),
        Arc::new(StringArray::from(vec![Some("007"), Some("1"), None])),
    ];
    assert_eq!(read.rows.columns(), columns);
    assert_eq!(read.source_bytes, text.len() as u64);
}

#[test]
fn types_hold_all_values_without_a_change() {
    let check = |values: &[&str], expected: DataType| {
        let read = read_csv(format!("a,b\n{}\n", values.map_lines()));
        assert_eq!(read.rows.schema_ref().field(0).data_type(), &expected, "{values:?}");
        assert_eq!(read.reasons(), Vec::<String>::new());
    };
    check(&["1", "-9223372036854775808"], DataType::Int64);
    check(&["1", "9223372036854775808"], DataType::Utf8);
    check(&["1.5", "9007199254740993"], DataType::Utf8);
    check(&["1.5", "1e5", "-0", "nan", "inf"], DataType::Float64);
    check(&["1e999"], DataType::Utf8);
    check(&["+1"], DataType::Utf8);
    check(&["0", "-1"], DataType::Int64);
    check(&["01"], DataType::Utf8);
    check(&["true", "1"], DataType::Utf8);
    check(&["2024-02-30"], DataType::Utf8);
    check(&["2024-02-29", "2024-02-29T00:00:00"], DataType::Utf8);
    check(&["2024-02-29T00:00:00", "2024-02-29T00:00:00Z"], DataType::Utf8);
    check(&["2024-02-29T00:00:00.123456"], DataType::Timestamp(TimeUnit::Microsecond, None));
    check(&["2024-02-29T00:00:00.1234567"], DataType::Utf8);
    check(&["9999-12-31T00:00:00"], DataType::Utf8);
    check(&["", ""], DataType::Utf8);
}

trait MapLines {
    fn map_lines(&self) -> String;
}

impl MapLines for &[&str] {
    fn map_lines(&self) -> String {
        self.iter().map(|value| format!("{value},x")).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn quotes_tell_empty_text_from_null() {
    let read = read_csv("a,b\n\"\",1\n,\"\"\nx,\"2\"\n");
    assert_eq!(read.rows.column(0).as_ref(), &StringArray::from(vec![Some(""), None, Some("x")]));
    assert_eq!(read.rows.column(1).as_ref(), &Int64Array::from(vec![Some(1), None, Some(2)]));
}

#[test]
fn tabs_and_unusual_line_ends_are_read() {
    let folder = MemoryFolder::new([("a.tsv", "\u{feff}a\tb\r1\tx,\"y\r\n\n2\t\"\tz\"\"\"\n")]);
    let read = read_default(&DelimitedText, &folder).unwrap();
    let columns: [ArrayRef; 2] =
        [Arc::new(Int64Array::from(vec![1, 2])), Arc::new(StringArray::from(vec!["x,\"y", "\tz\""]))];
    assert_eq!(read.rows.columns(), columns);
}

#[test]
fn records_that_do_not_fit_are_bad_rows() {
    let text: &[u8] = b"a,b\n1,x\n2\n3,y,z\nfour,y\n5,\xff\n\"6\n\",y\n7,z\n";
    let options = FormatOptions { sampled_rows: 1, ..FormatOptions::default() };
    let read = read(&DelimitedText, &MemoryFolder::new([("a.csv", text)]), &options).unwrap();
    let reasons = [
        "1: line 3: 1 fields; the header has 2",
        "2: line 4: 3 fields; the header has 2",
        "3: line 5: field 1: expected int64, found \"four\"",
        "4: line 6: field 2 is not UTF-8",
        "5: line 7: field 1: expected int64, found \"6\\n\"",
    ];
    assert_eq!(read.reasons(), reasons);
    assert_eq!(read.rows.column(0).as_ref(), &Int64Array::from(vec![1, 7]));
}

#[test]
fn a_quote_without_an_end_is_a_bad_row() {
    let read = read_csv("a,b\n1,x\n2,\"y\n3,z\n");
    assert_eq!(
        read.reasons(),
        ["1: line 3: the quote in line 3 has no end, so that the rest of the file is one value"]
    );
    assert_eq!(read.rows.num_rows(), 1);
}

#[test]
fn long_records_are_bad_rows() {
    let long = "x".repeat(crate::text_rows::ROW_TEXT_BYTES_MAX);
    let read = read_csv(format!("a,b\n1,{long}\n2,y\n"));
    let limit = crate::text_rows::ROW_TEXT_BYTES_MAX;
    let reason = format!("0: line 2: the record has {} bytes; the limit is {limit}", limit + 3);
    assert_eq!(read.reasons(), [reason]);
    assert_eq!(read.rows.num_rows(), 1);
}

#[test]
fn headers_are_needed_and_equal() {
    assert_eq!(error(&[("a.csv", "")]), "a.csv: the file is empty; a header should name the columns");
    assert_eq!(error(&[("a.csv", "a,b\n")]), "a.csv: the file has a header, and no rows with as many fields");
    assert_eq!(error(&[("a.csv", "a,a\n1,2\n")]), "a.csv, column a: the header has this column twice");
    assert_eq!(error(&[("a.csv", "a,\n1,2\n")]), "a.csv: column 2 has no name in the header");
    let missing = "b.csv, column a: the header does not have this column of the first file";
    assert_eq!(error(&[("a.csv", "a,b\n1,2\n"), ("b.csv", "b,c\n1,2\n")]), missing);
    let other = "b.csv, column c: the header of the first file does not have this column";
    assert_eq!(error(&[("a.csv", "a,b\n1,2\n"), ("b.csv", "a,b,c\n1,2,3\n")]), other);
    let ordered = MemoryFolder::new([("a.csv", "a,b\n1,x\n"), ("b.csv", "b,a\ny,2\n"), ("c.csv", "a,b\n")]);
    let read = read_default(&DelimitedText, &ordered).unwrap();
    assert_eq!(read.rows.column(0).as_ref(), &Int64Array::from(vec![1, 2]));
}

#[test]
fn other_files_are_no_csv() {
    let parquet = MemoryFolder::new([("a.parquet", "a,b\n1,2\n")]);
    assert_eq!(DelimitedText.recognise(&parquet), None);
    let lies = error(&[("a.csv", "PAR1\u{15}\u{4}")]);
    assert_eq!(lies, "a.csv: the file is no text; it begins with \"PAR1\\x15\\x04\"");
    let wide: Vec<String> = (0..10_002).map(|column| format!("c{column}")).collect();
    let header = error(&[("a.csv", &format!("{}\n", wide.join(",")))]);
    assert_eq!(header, "a.csv: line 1, the header: 10002 fields; the header has 10000");
}

#[test]
fn paths_become_bytes() {
    let files: [(&'static str, Vec<u8>); 3] = [
        ("rows.csv.zst", zstd::encode_all(b"image,n\na/b.png,1\n../x.png,2\n,3\n".as_slice(), 1).unwrap()),
        ("a/b.png", b"\x89PNG\r\n\x1a\n".into()),
        ("x.png", b"\x89PNG\r\n\x1a\n".into()),
    ];
    let options = FormatOptions { images: vec!["image".into()], ..FormatOptions::default() };
    let read = read(&DelimitedText, &MemoryFolder::new(files), &options).unwrap();
    let images: Vec<Option<&[u8]>> = read.rows.column(0).as_binary::<i64>().iter().collect();
    assert_eq!(images, [Some(b"\x89PNG\r\n\x1a\n".as_slice()), None]);
    assert_eq!(read.reasons(), ["1: column image: \"../x.png\" has .., and could leave the folder"]);
}
