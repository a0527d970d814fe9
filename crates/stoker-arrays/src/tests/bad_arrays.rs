//! NumPy's files that are wrong.

use super::written::{fortran_npy, npy, npy_version};
use super::{MemoryFolder, refuses};
use crate::NumpyFormat;
use stoker_files::{FileFormat, FormatOptions};

fn refuses_file(file: Vec<u8>, texts: &[&str]) {
    refuses(&NumpyFormat, MemoryFolder::new([("x.npy", file)]), texts);
}

#[test]
fn files_that_are_no_arrays() {
    refuses_file(Vec::new(), &["x.npy", "no NumPy file", "0 bytes"]);
    refuses_file(b"\x89PNG\r\n\x1a\n0000".to_vec(), &["no NumPy file", "PNG"]);
    refuses_file(npy_version(4, "{}", &[]), &["version 4.0", "1 to 3"]);
    refuses_file(npy_version(2, &"x".repeat(1 << 20), &[]), &["header should have", "1048576"]);
    let cut = npy("'<f4'", "(1,)", &[0; 4]).into_iter().take(40).collect();
    refuses_file(cut, &["header should have", "the file has 40"]);
}

#[test]
fn wrong_headers() {
    let header = |text: &str| npy_version(1, text, &[0; 4]);
    refuses_file(header("{'descr': '<f4'"), &["header is wrong", "expected }"]);
    refuses_file(header("('<f4', False, (1,))"), &["no dict"]);
    refuses_file(header("{'descr': '<f4', 'fortran_order': False}"), &["lacks one of"]);
    refuses_file(header("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}"), &["wrong entry", "fortran_order"]);
    refuses_file(header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}"), &["wrong entry \"x\""]);
    refuses_file(header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"), &["descr twice"]);
    refuses_file(header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), &["header is wrong", "-1"]);
    refuses_file(header("{'descr': '<f4', 'fortran_order': False, 'shape': 1}"), &["wrong entry", "shape"]);
    refuses_file(header("{'descr': 4, 'fortran_order': False, 'shape': (1,)}"), &["neither a text nor a list"]);
    refuses_file(npy("'<f4'", "('a',)", &[0; 4]), &["size that is no number"]);
}

#[test]
fn types_that_columns_cannot_have() {
    let refuses_type = |descr: &str, texts: &[&str]| refuses_file(npy(descr, "(1,)", &[0; 8]), texts);
    refuses_type("'|O'", &["pickles", "never loaded"]);
    refuses_type("'<c8'", &["complex", "x.real"]);
    refuses_type("'<f16'", &["astype('float64')"]);
    refuses_type("'|V8'", &["view('uint8')"]);
    refuses_type("'<V1'", &["safetensors"]);
    refuses_type("'<M8'", &["datetime64", "astype"]);
    refuses_type("'<m8[D]'", &["timedelta64", "astype"]);
    refuses_type("'<M8[25s]'", &["datetime64", "astype"]);
    refuses_type("'<i3'", &["\"<i3\" is not known"]);
    refuses_type("'i8'", &["\"i8\" is not known"]);
    refuses_type("'<f99999999999999999999999'", &["is not known"]);
    refuses_type("[('a', [('b', '<i8')])]", &["field a", "record itself"]);
    refuses_type("[('a', '|O')]", &["field a", "pickles"]);
    refuses_type("['a']", &["no tuple"]);
    refuses_type("[]", &["no fields"]);
    refuses_type("[('a', '<i4', (4294967296, 4294967296))]", &["field a", "more than 2^64"]);
    refuses_file(npy("[('a', '<i4'), ('a', '<i4')]", "(1,)", &[0; 8]), &["column a", "two arrays"]);
    refuses_file(npy("[('a', '<i4')]", "(1, 1)", &[0; 4]), &["records in several dimensions"]);
}

#[test]
fn shapes_that_contradict_the_file() {
    refuses_file(npy("'<f4'", "(3,)", &[0; 11]), &["12 bytes", "11 bytes follow", "cut off"]);
    refuses_file(npy("'<f4'", "(3,)", &[0; 13]), &["12 bytes", "13 bytes follow"]);
    let large = "(4294967296, 4294967296, 4294967296)";
    refuses_file(npy("'<f4'", large, &[]), &["more than 2^64"]);
    refuses_file(npy("'<f4'", &format!("({})", "1,".repeat(65)), &[0; 4]), &["65 dimensions"]);
    refuses_file(npy("'<f4'", "(1152921504606846976,)", &[]), &["4611686018427387904 bytes", "0 bytes follow"]);
}

#[test]
fn shapes_without_rows_or_elements() {
    refuses_file(npy("'<f4'", "()", &[0; 4]), &["column x", "no dimension", "x[None]"]);
    refuses_file(npy("'<f4'", "(5, 0)", &[]), &["column x", "no elements"]);
    refuses_file(npy("'<U0'", "(5,)", &[]), &["column x", "no elements"]);
    refuses_file(npy("'<f4'", "(0, 1073741824)", &[]), &["column x", "a row has the shape"]);
    refuses_file(npy("'<f4'", "(0, 4294967296, 4294967296, 4294967296)", &[]), &["x.npy"]);
    refuses_file(npy("'<U1'", "(1, 1)", &[0; 4]), &["column x", "texts and times"]);
}

#[test]
fn arrays_in_fortrans_order_with_too_large_rows() {
    let data = vec![0; (64 << 20) + 2048];
    refuses_file(fortran_npy("'|u1'", "(32769, 2048)", &data), &["Fortran", "np.ascontiguousarray"]);
}

#[test]
fn names_that_columns_cannot_have() {
    let file = npy("'|u1'", "(1,)", &[0]);
    refuses(&NumpyFormat, MemoryFolder::new([("a\u{7}b.npy", file)]), &["control character"]);
    refuses_file(npy("[('a\u{7}', '<i4')]", "(1,)", &[0; 4]), &["control character"]);
}

#[test]
fn arrays_that_do_not_fit_each_other() {
    let files = |other: Vec<u8>| MemoryFolder::new([("x.npy", npy("'|u1'", "(3,)", &[0; 3])), ("y.npy", other)]);
    refuses(&NumpyFormat, files(npy("'|u1'", "(4,)", &[0; 4])), &["3 in x; 4 in y", "files of their own"]);
    let parts = |other: Vec<u8>| MemoryFolder::new([("x_0.npy", npy("'|u1'", "(3,)", &[0; 3])), ("x_1.npy", other)]);
    refuses(&NumpyFormat, parts(npy("'|i1'", "(3,)", &[0; 3])), &["x_1.npy, column x", "Int8", "UInt8 in x_0.npy"]);
    refuses(&NumpyFormat, parts(npy("'|u1'", "(3, 1)", &[0; 3])), &["uint8[1]", "UInt8 in x_0.npy"]);
    let record = npy("[('x', '|u1'), ('y', '|u1')]", "(1,)", &[0; 2]);
    refuses(&NumpyFormat, parts(record.clone()), &["x_1.npy, column y", "x_0.npy does not have"]);
    let files = MemoryFolder::new([("x_0.npy", record), ("x_1.npy", npy("'|u1'", "(1,)", &[0]))]);
    refuses(&NumpyFormat, files, &["x_1.npy, column y", "missing"]);
}

#[test]
fn options_of_media_are_refused() {
    let folder = MemoryFolder::new([("x.npy", npy("'|u1'", "(1,)", &[0]))]);
    let options = FormatOptions { images: vec!["x".into()], ..FormatOptions::default() };
    let error = NumpyFormat.plan(folder, vec!["x.npy".into()], &options).unwrap_err();
    assert!(error.to_string().starts_with("option --image: column x"), "{error}");
    assert!(NumpyFormat.plan(MemoryFolder::new::<String>([]), Vec::new(), &FormatOptions::default()).is_err());
}
