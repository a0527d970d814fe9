//! Which files of arrays are columns, and which are rows after one another.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;

use super::written::{npy, zip};
use super::{MemoryFolder, plan, refuses, rows};
use crate::NumpyFormat;
use stoker_files::{FileFormat, Folder as _};

fn folder(names: &[&str]) -> std::sync::Arc<MemoryFolder> {
    MemoryFolder::new(names.iter().zip(0..).map(|(name, index)| (*name, npy("'|u1'", "(2,)", &[index, index + 100]))))
}

fn check(names: &[&str], parts: &[&str], columns: &[(&str, &[u8])]) {
    assert_eq!(plan(&NumpyFormat, folder(names)).unwrap().files(), parts);
    let rows = rows(&NumpyFormat, folder(names));
    let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, columns.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (column, (_, values)) in rows.columns().iter().zip(columns) {
        assert_eq!(column.as_primitive::<UInt8Type>().values()[..], **values);
    }
}

#[test]
fn files_without_numbers_are_columns() {
    check(&["x.npy", "y.npy"], &["x.npy"], &[("x", &[0, 100]), ("y", &[1, 101])]);
    check(&["a/x.npy", "b/y2.NPY"], &["a/x.npy"], &[("x", &[0, 100]), ("y2", &[1, 101])]);
}

#[test]
fn numbers_are_rows_after_one_another() {
    check(&["x_000.npy"], &["x_000.npy"], &[("x", &[0, 100])]);
    check(&["x_10.npy", "x_9.npy"], &["x_9.npy", "x_10.npy"], &[("x", &[1, 101, 0, 100])]);
    check(&["in/0.npy", "in/1.npy"], &["in/0.npy", "in/1.npy"], &[("in", &[0, 100, 1, 101])]);
    check(&["0.npy", "1.npy"], &["0.npy", "1.npy"], &[("array", &[0, 100, 1, 101])]);
    check(
        &["x-00.npy", "x-01.npy", "y-0.npy", "y-1.npy"],
        &["x-00.npy", "x-01.npy"],
        &[("x", &[0, 100, 1, 101]), ("y", &[2, 102, 3, 103])],
    );
}

#[test]
fn names_that_do_not_tell_are_refused() {
    let refused = |names: &[&str], texts: &[&str]| refuses(&NumpyFormat, folder(names), texts);
    refused(&["x.npy", "y_1.npy"], &["x.npy: it has no number, and y_1.npy has one", "rename"]);
    refused(&["a/x.npy", "b/x.npy"], &["b/x.npy, column x", "a/x.npy has this column"]);
    refused(&["a/x_1.npy", "b/x_1.npy"], &["b/x_1.npy, column x"]);
    refused(&["x_1.npy", "x_01.npy"], &["the same number"]);
    refused(&["x_0.npy", "x_1.npy", "y_0.npy"], &["x_1.npy", "columns x and y", "different numbers"]);
    refused(&["x_0.npy", "y_0.npy", "y_1.npy"], &["y_1.npy", "different numbers"]);
    refused(&["x_0.npy", "y_1.npy"], &["different numbers"]);
    let both = MemoryFolder::new([("x.npy", npy("'|u1'", "(1,)", &[0])), ("y.npz", zip(&[], b""))]);
    refuses(&NumpyFormat, both, &["both .npy and .npz"]);
}

#[test]
fn hidden_files_and_other_files_are_left_out() {
    let names = [".x.npy", ".hidden/x.npy", "README.md", "npy", ".npy", "a/x.npy"];
    let folder = MemoryFolder::new(names.map(|name| (name, Vec::new())));
    assert_eq!(NumpyFormat.recognise(folder.as_ref()), Some(vec!["a/x.npy".to_string()]));
    assert_eq!(NumpyFormat.recognise(MemoryFolder::new([("x.txt", Vec::new())]).as_ref()), None);
    assert_eq!(folder.files().len(), 6);
}
