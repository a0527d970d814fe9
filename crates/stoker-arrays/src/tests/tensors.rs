//! Files of safetensors.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type, UInt16Type};
use arrow_schema::DataType;
use stoker_columns::{SmallFloat, kind_of};

use super::written::safetensors;
use super::{MemoryFolder, plan, refuses, rows};
use crate::SafetensorsFormat;
use stoker_files::{FileFormat, FolderFile, LocalFolder};

fn refuses_file(header: &str, data: &[u8], texts: &[&str]) {
    refuses(&SafetensorsFormat, MemoryFolder::new([("x.safetensors", safetensors(header, data))]), texts);
}

fn tensor(dtype: &str, shape: &str, start: usize, end: usize) -> String {
    format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
}

#[test]
fn tensors_are_columns() {
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"y":{},"x":{}}}    "#,
        tensor("U8", "[2]", 24, 26),
        tensor("F32", "[2,3]", 0, 24)
    );
    let numbers: Vec<f32> = (0..6u8).map(f32::from).collect();
    let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).chain([7, 8]).collect();
    let one = safetensors(&header, &data);
    let header = format!(r#"{{"x":{},"y":{}}}"#, tensor("F32", "[1,3]", 0, 12), tensor("U8", "[1]", 12, 13));
    let two = safetensors(&header, &[0; 13]);
    let folder = MemoryFolder::new([("a.safetensors", one), ("b.safetensors", two), ("model.json", Vec::new())]);
    assert_eq!(plan(&SafetensorsFormat, folder.clone()).unwrap().files(), ["a.safetensors", "b.safetensors"]);
    let rows = rows(&SafetensorsFormat, folder);
    assert_eq!(rows.column(0).as_primitive::<UInt8Type>().values()[..], [7, 8, 0]);
    let x = rows.column(1).as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec();
    assert_eq!(x, [numbers, vec![0.0; 3]].concat());
    assert_eq!(kind_of(rows.schema().field(1)).label(rows.schema().field(1)), "vector float32[3]");
}

#[test]
fn all_types_have_their_arrow_type() {
    use DataType::{Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let types = [("U8", UInt8, 1), ("I8", Int8, 1), ("U16", UInt16, 2), ("I16", Int16, 2), ("U32", UInt32, 4)];
    let more = [("I32", Int32, 4), ("U64", UInt64, 8), ("I64", Int64, 8), ("F16", Float16, 2), ("F32", Float32, 4)];
    let last = [("F64", Float64, 8), ("BOOL", DataType::Boolean, 1)];
    let read = |dtype: &str, size: usize| {
        let header = format!(r#"{{"x":{}}}"#, tensor(dtype, "[1]", 0, size));
        rows(&SafetensorsFormat, MemoryFolder::new([("x.safetensors", safetensors(&header, &vec![0; size]))]))
    };
    for (dtype, data_type, size) in types.into_iter().chain(more).chain(last) {
        assert_eq!(read(dtype, size).schema().field(0).data_type(), &data_type);
    }
    let small = [("BF16", 2, "bfloat16"), ("F8_E4M3", 1, "float8_e4m3fn"), ("F8_E5M2", 1, "float8_e5m2")];
    for (dtype, size, name) in small.into_iter().chain([("F8_E4M3FNUZ", 1, "float8_e4m3fnuz")]) {
        assert_eq!(SmallFloat::of(read(dtype, size).schema().field(0)).map(SmallFloat::name), Some(name));
    }
}

#[test]
fn a_file_of_safetensors_itself_is_read() {
    let file = include_bytes!("fixtures/saved.safetensors").to_vec();
    let rows = rows(&SafetensorsFormat, MemoryFolder::new([("x.safetensors", file)]));
    let list = |name: &str| rows.column_by_name(name).unwrap().as_fixed_size_list().values().clone();
    assert_eq!(list("x").as_primitive::<Float32Type>().values()[..], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let bits = list("h");
    let h = bits.as_primitive::<UInt16Type>().values().iter().map(|bits| SmallFloat::BFloat16.to_f32(*bits));
    assert_eq!(h.collect::<Vec<_>>(), [1.5, 2.5]);
    let flags = rows.column_by_name("b").unwrap().as_boolean().iter().flatten().collect::<Vec<_>>();
    assert_eq!(flags, [true, false]);
}

#[test]
fn wrong_lengths_and_headers() {
    let file = |bytes: &[u8]| MemoryFolder::new([("x.safetensors", bytes.to_vec())]);
    refuses(&SafetensorsFormat, file(&[1, 2]), &["no safetensors file", "2 bytes"]);
    refuses(&SafetensorsFormat, file(&[255; 100]), &["18446744073709551615 bytes, of 92"]);
    refuses(&SafetensorsFormat, file(&[3, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']), &["3 bytes, of 2"]);
    refuses_file("[]", &[], &["header is wrong", "object of tensors"]);
    refuses_file("{", &[], &["header is wrong"]);
    refuses_file("{} x", &[], &["header is wrong"]);
    refuses_file("{}", &[], &["it has no arrays"]);
    refuses_file(r#"{"__metadata__":{}}"#, &[], &["it has no arrays"]);
    refuses_file(r#"{"x":{"dtype":"U8","shape":[1]}}"#, &[1], &["header is wrong", "data_offsets"]);
    refuses_file(r#"{"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#, &[1], &["header is wrong"]);
    refuses_file(r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0]}}"#, &[1], &["header is wrong"]);
    let x = tensor("U8", "[1]", 0, 1);
    refuses_file(&format!(r#"{{"x":{x},"x":{x}}}"#), &[1], &["two tensors have the name x"]);
    let many = vec!["1"; 65].join(",");
    refuses_file(&format!(r#"{{"x":{}}}"#, tensor("U8", &format!("[{many}]"), 0, 1)), &[1], &["64 dimensions"]);
    let tensors: Vec<String> = (0..4097).map(|index| format!(r#""{index}":{x}"#)).collect();
    refuses_file(&format!("{{{}}}", tensors.join(",")), &[1], &["more than 4096 tensors"]);
}

#[test]
fn tensors_that_lie() {
    let one = |tensor: String, data: &[u8], texts: &[&str]| refuses_file(&format!(r#"{{"x":{tensor}}}"#), data, texts);
    one(tensor("C64", "[1]", 0, 8), &[0; 8], &["tensor x", "C64"]);
    one(tensor("F4", "[2]", 0, 1), &[0], &["tensor x", "F4"]);
    one(tensor("F32", "[2]", 0, 4), &[0; 4], &["tensor x of shape [2] has 8 bytes, and lies at 0..4"]);
    one(tensor("F32", "[1]", 4, 0), &[0; 4], &["lies at 4..0"]);
    one(tensor("U8", "[4294967296,4294967296,4294967296]", 0, 1), &[0], &["more than 2^64"]);
    one(tensor("U8", "[2]", 0, 2), &[0], &["2 bytes, and 1 bytes follow", "cut off"]);
    one(tensor("U8", "[2]", 0, 2), &[0; 3], &["2 bytes, and 3 bytes follow"]);
    one(tensor("U8", "[2]", 1, 3), &[0; 3], &["follow bytes of no tensor", "begin at 0"]);
    one(tensor("U8", "[]", 0, 1), &[0], &["column x", "no dimension", "x[None]"]);
    one(tensor("U8", "[3,0]", 0, 0), &[], &["column x", "no elements"]);
    let two = |x: String, y: String, data: &[u8], texts: &[&str]| {
        refuses_file(&format!(r#"{{"x":{x},"y":{y}}}"#), data, texts);
    };
    two(tensor("U8", "[2]", 0, 2), tensor("U8", "[2]", 1, 3), &[0; 3], &["tensor y at 1..3 overlap"]);
    two(tensor("U8", "[2]", 0, 2), tensor("U8", "[2]", 0, 2), &[0; 2], &["overlap"]);
    two(tensor("U8", "[2]", 0, 2), tensor("U8", "[2]", 3, 5), &[0; 5], &["tensor y at 3..5 follow bytes of no tensor"]);
    two(tensor("U8", "[2]", 0, 2), tensor("U8", "[3]", 2, 5), &[0; 5], &["2 in x; 3 in y", "files of their own"]);
    refuses_file(&format!(r#"{{"":{}}}"#, tensor("U8", "[1]", 0, 1)), &[0], &["name is empty"]);
}

#[test]
fn rows_of_all_tensors_have_a_limit() {
    let file = |sizes: &[usize]| {
        let tensors = sizes.iter().enumerate();
        let tensors =
            tensors.map(|(index, size)| format!(r#""x{index}":{}"#, tensor("U8", &format!("[0,{size}]"), 0, 0)));
        let header = format!("{{{}}}", tensors.collect::<Vec<_>>().join(","));
        MemoryFolder::new([("x.safetensors", safetensors(&header, &[]))])
    };
    assert_eq!(rows(&SafetensorsFormat, file(&[1 << 29, 1 << 29])).num_columns(), 2);
    let said = ["x.safetensors: a row of all 2 arrays has 1073741825 bytes; the most are 1073741824"];
    refuses(&SafetensorsFormat, file(&[1 << 29, (1 << 29) + 1]), &said);
    refuses(&SafetensorsFormat, file(&[1 << 30; 4]), &["a row of all 4 arrays has 4294967296 bytes"]);

    // The row is refused before memory is taken for it: the file has holes.
    let size = 1 << 30;
    let header = format!(
        r#"{{"x":{},"y":{}}}"#,
        tensor("U8", &format!("[1,{size}]"), 0, size),
        tensor("U8", &format!("[1,{size}]"), size, 2 * size)
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    std::fs::write(&path, safetensors(&header, &[])).unwrap();
    let bytes = (8 + header.len() + 2 * size) as u64;
    std::fs::File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
    let listed = FolderFile { name: "x.safetensors".into(), bytes };
    let folder = Arc::new(LocalFolder::new(folder.path(), vec![listed]));
    refuses(&SafetensorsFormat, folder, &["a row of all 2 arrays has 2147483648 bytes"]);
}

#[test]
fn tensors_without_rows_have_columns() {
    let header = format!(r#"{{"x":{},"y":{}}}"#, tensor("F32", "[0,3]", 0, 0), tensor("U8", "[0]", 0, 0));
    let folder = MemoryFolder::new([("x.safetensors", safetensors(&header, &[]))]);
    assert_eq!(rows(&SafetensorsFormat, folder).num_rows(), 0);
    assert_eq!(SafetensorsFormat.recognise(MemoryFolder::new([("x.npy", Vec::new())]).as_ref()), None);
}
