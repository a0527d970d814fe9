//! Values of NumPy's files.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, DurationSecondType, Float16Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use stoker_columns::{SmallFloat, kind_of};

use super::written::{Packed, fortran_npy, npy, npy_version, wide_zip, zip};
use super::{MemoryFolder, plan, read_all, read_file, rows};
use crate::NumpyFormat;

fn array(file: Vec<u8>) -> RecordBatch {
    rows(&NumpyFormat, MemoryFolder::new([("x.npy", file)]))
}

fn bytes<const N: usize>(numbers: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.into_iter().flatten().collect()
}

fn label(rows: &RecordBatch, column: usize) -> String {
    let schema = rows.schema();
    kind_of(schema.field(column)).label(schema.field(column))
}

#[test]
fn numbers_are_scalars_vectors_and_tensors() {
    let data = bytes((0..6).map(|n| (n as f32 / 4.0).to_le_bytes()));
    let wanted: Vec<f32> = (0..6).map(|n| n as f32 / 4.0).collect();
    for (shape, num_rows, found) in
        [("(6,)", 6, "scalar"), ("(2, 3)", 2, "vector float32[3]"), ("(1, 3, 2)", 1, "tensor float32[3, 2]")]
    {
        let rows = array(npy("'<f4'", shape, &data));
        assert_eq!((rows.num_rows(), label(&rows, 0)), (num_rows, found.to_string()));
        let column = rows.column(0);
        let values = column.as_fixed_size_list_opt().map_or(column, |list| list.values());
        assert_eq!(values.as_primitive::<Float32Type>().values().to_vec(), wanted);
        assert_eq!(rows.schema().field(0).name(), "x");
        assert!(!rows.schema().field(0).is_nullable());
    }
    let rows = array(npy("'|u1'", "(3, 2)", &[1, 2, 3, 4, 5, 6]));
    assert_eq!(label(&rows, 0), "tensor uint8[2]");
}

#[test]
fn all_types_of_numbers_have_their_arrow_type() {
    use DataType::{Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let types = [("b1", DataType::Boolean), ("i1", Int8), ("i2", Int16), ("i4", Int32), ("i8", Int64), ("u1", UInt8)];
    let more = [("u2", UInt16), ("u4", UInt32), ("u8", UInt64), ("f2", Float16), ("f4", Float32), ("f8", Float64)];
    for (name, data_type) in types.into_iter().chain(more) {
        let size: usize = name[1..].parse().unwrap();
        for order in ['<', '>', '|', '='] {
            let rows = array(npy(&format!("'{order}{name}'"), "(2,)", &vec![0; 2 * size]));
            assert_eq!((rows.schema().field(0).data_type(), rows.num_rows()), (&data_type, 2));
        }
    }
}

#[test]
fn big_endian_numbers_are_swapped() {
    let rows = array(npy("'>i2'", "(2, 2)", &[0, 1, 0xff, 0xfe, 1, 0, 0, 0]));
    assert_eq!(rows.column(0).as_fixed_size_list().values().as_primitive::<Int16Type>().values()[..], [1, -2, 256, 0]);
    let rows = array(npy("'>f8'", "(1,)", &1.5f64.to_be_bytes()));
    assert_eq!(rows.column(0).as_primitive::<Float64Type>().values()[..], [1.5]);
    let rows = array(npy("'>f2'", "(1,)", &[0x3c, 0]));
    assert_eq!(rows.column(0).as_primitive::<Float16Type>().value(0).to_f32(), 1.0);
}

#[test]
fn flags_are_booleans_or_bytes() {
    let rows = array(npy("'|b1'", "(3,)", &[0, 1, 7]));
    assert_eq!(rows.column(0).as_boolean().iter().flatten().collect::<Vec<_>>(), [false, true, true]);
    let rows = array(npy("'|b1'", "(2, 2)", &[0, 1, 7, 0]));
    assert_eq!(rows.column(0).as_fixed_size_list().values().as_primitive::<UInt8Type>().values()[..], [0, 1, 1, 0]);
}

#[test]
fn floats_of_ml_dtypes_are_marked() {
    for (descr, size, float) in [("'<V2'", 2, SmallFloat::BFloat16), ("'<f1'", 1, SmallFloat::Float8E5M2)] {
        for shape in ["(3,)", "(1, 3)"] {
            let rows = array(npy(descr, shape, &vec![0; 3 * size]));
            assert_eq!(SmallFloat::of(rows.schema().field(0)), Some(float));
        }
    }
    let rows = array(npy("'<V2'", "(1,)", &[0x80, 0x3f]));
    assert_eq!(SmallFloat::BFloat16.to_f32(rows.column(0).as_primitive::<UInt16Type>().value(0)), 1.0);
}

#[test]
fn texts_lose_their_zeros_and_wrong_ones_are_bad_rows() {
    let code = |c: char| u32::from(c).to_le_bytes();
    let texts = bytes([code('é'), code('\0'), code('a'), code('b'), code('\0'), code('\0')]);
    let rows = array(npy("'<U2'", "(3,)", &texts));
    assert_eq!(rows.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["é", "ab", ""]);
    let swapped = bytes([u32::from('é').to_be_bytes()]);
    assert_eq!(array(npy("'>U1'", "(1,)", &swapped)).column(0).as_string::<i32>().value(0), "é");

    let wrong = bytes([code('a'), 0xd800u32.to_le_bytes(), code('b'), 0x11_0000u32.to_le_bytes()]);
    let (rows, bad) = read_all(&NumpyFormat, MemoryFolder::new([("x.npy", npy("'<U1'", "(4,)", &wrong))])).unwrap();
    assert_eq!(rows.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(bad[0].reason, "column x: the text has the number 0xd800, which is no character");

    let file = npy("'|S3'", "(3,)", b"ab\0\xc3\xa9\0\xff\0\0");
    let (rows, bad) = read_all(&NumpyFormat, MemoryFolder::new([("x.npy", file)])).unwrap();
    assert_eq!(rows.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["ab", "é"]);
    assert_eq!((bad[0].row, &*bad[0].reason), (2, "column x: the text is not UTF-8 from byte 0 on"));
}

#[test]
fn times_are_timestamps_durations_and_dates() {
    let data = bytes([5i64.to_le_bytes(), i64::MIN.to_le_bytes()]);
    let rows = array(npy("'<M8[ns]'", "(2,)", &data));
    let times = rows.column(0).as_primitive::<TimestampNanosecondType>();
    assert_eq!((times.value(0), times.is_null(1)), (5, true));
    let rows = array(npy("'<m8[s]'", "(2,)", &data));
    assert_eq!(rows.column(0).as_primitive::<DurationSecondType>().value(0), 5);
    assert_eq!(
        array(npy("'<M8[us]'", "(2,)", &data)).schema().field(0).data_type(),
        &DataType::Timestamp(TimeUnit::Microsecond, None)
    );
    let data = bytes([(-1i64).to_be_bytes(), i64::MIN.to_be_bytes(), (1i64 << 40).to_be_bytes()]);
    let (rows, bad) = read_all(&NumpyFormat, MemoryFolder::new([("x.npy", npy("'>M8[D]'", "(3,)", &data))])).unwrap();
    let days = rows.column(0).as_primitive::<Date32Type>();
    assert_eq!((days.len(), days.value(0), days.is_null(1)), (2, -1, true));
    assert_eq!(bad[0].reason, format!("column x: the day {} since 1970 does not fit 32 bits", 1i64 << 40));
}

#[test]
fn fields_of_records_are_columns() {
    let descr = "[('a', '|u1'), ('', '|V1'), (('title', 'b'), '>i2', (2,)), ('c', '<i4'), ('d', '|u1', 2)]";
    let data =
        [&[1, 99, 0, 2, 0, 3][..], &7i32.to_le_bytes(), &[8, 9], &[4, 99, 1, 0, 0, 0], &(-7i32).to_le_bytes(), &[5, 6]];
    let rows = array(npy(descr, "(2,)", &data.concat()));
    assert_eq!(rows.column(0).as_primitive::<UInt8Type>().values()[..], [1, 4]);
    assert_eq!(rows.column(1).as_fixed_size_list().values().as_primitive::<Int16Type>().values()[..], [2, 3, 256, 0]);
    assert_eq!(rows.column(2).as_primitive::<Int32Type>().values()[..], [7, -7]);
    assert_eq!(rows.column(3).as_fixed_size_list().values().as_primitive::<UInt8Type>().values()[..], [8, 9, 5, 6]);
    let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
}

#[test]
fn arrays_in_fortrans_order_have_the_rows_of_arrays_in_cs_order() {
    let shape = [4usize, 3, 2, 5];
    let in_c: Vec<i64> = (0..120).collect();
    let mut in_fortran = Vec::new();
    for d in 0..shape[3] {
        for c in 0..shape[2] {
            for b in 0..shape[1] {
                in_fortran.extend((0..shape[0]).map(|a| in_c[((a * shape[1] + b) * shape[2] + c) * shape[3] + d]));
            }
        }
    }
    let data = |numbers: &[i64]| bytes(numbers.iter().map(|number| number.to_le_bytes()));
    let wanted = array(npy("'<i8'", "(4, 3, 2, 5)", &data(&in_c)));
    let file = fortran_npy("'<i8'", "(4, 3, 2, 5)", &data(&in_fortran));
    assert_eq!(array(file.clone()), wanted);
    for member in [Packed::stored("x.npy", file.clone()), Packed::deflated("x.npy", file)] {
        assert_eq!(rows(&NumpyFormat, MemoryFolder::new([("any.npz", zip(&[member], b""))])), wanted);
    }
    // Rows of more elements than a batch may have reads, which are read into memory.
    let numbers: Vec<u8> = (0..3 * 2000).map(|n| (n % 251) as u8).collect();
    let turned: Vec<u8> =
        (0..2000).flat_map(|k| (0..3).map(move |row| (row * 2000 + k) % 251)).map(|n| n as u8).collect();
    let wanted = array(npy("'|u1'", "(3, 2000)", &numbers));
    assert_eq!(array(fortran_npy("'|u1'", "(3, 2000)", &turned)), wanted);
    let member = Packed::stored("x.npy", fortran_npy("'|u1'", "(3, 2000)", &turned));
    assert_eq!(rows(&NumpyFormat, MemoryFolder::new([("any.npz", zip(&[member], b""))])), wanted);
}

#[test]
fn members_are_columns_and_files_come_after_one_another() {
    let x = |first: u8| npy("'|u1'", "(2, 2)", &[first, 2, 3, 4]);
    let y = |first: u8| npy("'|u1'", "(2,)", &[first, 6]);
    let one = zip(&[Packed::stored("x.npy", x(1)), Packed::deflated("y.npy", y(5))], b"a comment PK\x05\x06");
    // The second file has the members in another order, and sizes of 64 bits.
    let wide = Packed { wide: true, ..Packed::stored("x.npy", x(11)) };
    let two = wide_zip(&[Packed { wide: true, ..Packed::deflated("y.npy", y(15)) }, wide]);
    let rows = rows(&NumpyFormat, MemoryFolder::new([("b/one.npz", one), ("b/two.NPZ", two)]));
    assert_eq!(rows.column_by_name("y").unwrap().as_primitive::<UInt8Type>().values()[..], [5, 6, 15, 6]);
    let x = rows.column_by_name("x").unwrap().as_fixed_size_list().values().as_primitive::<UInt8Type>().clone();
    assert_eq!(x.values()[..], [1, 2, 3, 4, 11, 2, 3, 4]);
}

#[test]
fn headers_of_all_versions_are_read() {
    let header = "{'shape': (2L,), 'descr': [('n\\xe4me', '|u1')], 'fortran_order': False}   ";
    for (version, header) in
        [(1, header), (2, header), (3, "{'descr': [('näme', '|u1')], 'fortran_order': False, 'shape': (2,)}")]
    {
        let rows = array(npy_version(version, header, &[1, 2]));
        assert_eq!((rows.schema().field(0).name().as_str(), rows.num_rows()), ("näme", 2));
    }
    let latin = npy_version(1, "{'descr': [('nXme', '|u1')], 'fortran_order': False, 'shape': (1,)}", &[1]);
    let latin = latin.into_iter().map(|byte| if byte == b'X' { 0xe4 } else { byte }).collect();
    assert_eq!(array(latin).schema().field(0).name(), "näme");
}

#[test]
fn empty_arrays_have_columns_and_no_rows() {
    let folder = MemoryFolder::new([("x.npy", npy("'<f4'", "(0, 3)", &[]))]);
    let files = plan(&NumpyFormat, folder).unwrap();
    assert_eq!(files.schema().field(0).name(), "x");
    assert_eq!(read_file(files.read(0).unwrap().as_mut(), 100).unwrap(), (Vec::new(), Vec::new()));
}

#[test]
fn batches_have_about_the_bytes_that_are_asked_for() {
    let folder = MemoryFolder::new([("x.npy", npy("'<i8'", "(100,)", &vec![0; 800]))]);
    let files = plan(&NumpyFormat, folder).unwrap();
    let mut reader = files.read(0).unwrap();
    let first = reader.next(240).unwrap().unwrap();
    assert_eq!((first.batch.num_rows(), first.source_bytes), (30, 240));
    let (rest, _) = read_file(reader.as_mut(), 240).unwrap();
    assert_eq!(rest.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [30, 30, 10]);
}

#[test]
fn files_of_numpy_itself_are_read() {
    let files: [(&str, &[u8]); 2] = [
        ("saved.npz", include_bytes!("fixtures/saved.npz")),
        ("compressed.npz", include_bytes!("fixtures/compressed.npz")),
    ];
    for (name, file) in files {
        let (name, file) = (name.to_string(), file.to_vec());
        let rows = rows(&NumpyFormat, MemoryFolder::new([(name, file)]));
        let list = |name: &str| rows.column_by_name(name).unwrap().as_fixed_size_list().values().clone();
        let small = list("small");
        let small = small.as_primitive::<UInt16Type>().values().iter().map(|bits| SmallFloat::BFloat16.to_f32(*bits));
        assert_eq!(small.collect::<Vec<_>>(), [1.5, -2.0, 0.25, 3.0]);
        assert_eq!(list("image").as_primitive::<Int16Type>().values().to_vec(), (0..12).collect::<Vec<i16>>());
        let turned: Vec<f32> = (0..12u8).map(f32::from).collect();
        assert_eq!(list("turned").as_primitive::<Float32Type>().values().to_vec(), turned);
        let column = |name: &str| rows.column_by_name(name).unwrap().clone();
        assert_eq!(column("flag").as_boolean().iter().flatten().collect::<Vec<_>>(), [true, false]);
        let time = column("time");
        let time = time.as_primitive::<TimestampMillisecondType>();
        assert_eq!((time.value(0), time.is_null(1)), (1_704_164_645_000, true));
        assert_eq!(column("text").as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["ab", "c"]);
        assert_eq!(column("id").as_primitive::<UInt8Type>().values()[..], [1, 2]);
        assert_eq!(column("score").as_primitive::<Float32Type>().values()[..], [1.5, -2.5]);
        assert_eq!(column("名").as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["é", ""]);
    }
}

#[test]
fn local_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.npy"), npy("'<i8'", "(2,)", &bytes([7i64.to_le_bytes(), 8i64.to_le_bytes()])))
        .unwrap();
    let listed = vec![stoker_files::FolderFile { name: "x.npy".into(), bytes: 0 }];
    let rows = rows(&NumpyFormat, Arc::new(stoker_files::LocalFolder::new(folder.path(), listed)));
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values()[..], [7, 8]);
}
