//! Values of archives that are as they should be.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt8Type, UInt16Type};
use arrow_schema::DataType;
use stoker_columns::{TensorType, is_encoded_image};

use super::*;
use crate::webdataset::npy_header::tests::{npy_file, npy_text};
use crate::{FORMATS, FileFormat as _, format_named, format_of};

fn keys(rows: &AllRows) -> Vec<&str> {
    rows.batch.column(0).as_string::<i32>().iter().flatten().collect()
}

#[test]
fn fields_become_columns() {
    let bytes = archive(&[
        ("train/000.jpg", JPEG),
        ("train/000.cls", b"7\n"),
        ("train/000.json", b"{\"a\": 1}"),
        ("train/000.seg.PNG", PNG),
        ("train/001.cls", b"-3"),
        ("train/001.txt", "naïve".as_bytes()),
        ("train/001.jpg", PNG),
        ("train/001.pth", b"\x80\x04pickle"),
    ]);
    let rows = read("a.tar", bytes.clone()).unwrap();
    assert_eq!((rows.bad.len(), &rows.damage), (0, &None));
    let schema = rows.batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["__key__", "jpg", "cls", "json", "seg.png", "txt", "pth"]);
    let nullable: Vec<bool> = schema.fields().iter().map(|field| field.is_nullable()).collect();
    assert_eq!(nullable, [false, true, true, true, true, true, true]);
    assert_eq!(keys(&rows), ["train/000", "train/001"]);
    let column = |name: &str| rows.batch.column_by_name(name).unwrap();
    assert!(is_encoded_image(schema.field(1)) && is_encoded_image(schema.field(4)));
    let jpg = column("jpg").as_binary::<i64>();
    assert_eq!((jpg.value(0), jpg.value(1)), (JPEG, PNG));
    assert_eq!(column("cls").as_primitive::<Int64Type>().values().to_vec(), [7, -3]);
    assert_eq!(column("json").as_string::<i32>().iter().collect::<Vec<_>>(), [Some("{\"a\": 1}"), None]);
    assert_eq!(column("seg.png").as_binary::<i64>().iter().collect::<Vec<_>>(), [Some(PNG), None]);
    assert_eq!(column("txt").as_string::<i32>().iter().collect::<Vec<_>>(), [None, Some("naïve")]);
    assert_eq!(column("pth").as_binary::<i64>().value(1), b"\x80\x04pickle");
    assert_eq!(rows.source_bytes, bytes.len() as u64);
}

#[test]
fn compressed_archives_have_the_same_rows() {
    let bytes = archive(&[("a.jpg", JPEG), ("a.txt", b"x"), ("b.jpg", PNG), ("b.txt", b"y")]);
    let plain = read("a.tar", bytes.clone()).unwrap();
    let halves = bytes.split_at(700);
    let files = [
        ("a.tar.gz", gzip(&bytes)),
        ("a.tgz", [gzip(halves.0), gzip(halves.1)].concat()),
        ("a.tar.zst", zstd(&bytes)),
        ("A.TAR.ZST", [zstd(halves.0), zstd(halves.1)].concat()),
    ];
    for (name, compressed) in files {
        let length = compressed.len() as u64;
        let rows = read(name, compressed).unwrap();
        assert_eq!((&rows.batch, &rows.damage, rows.source_bytes), (&plain.batch, &None, length), "{name}");
    }
}

#[test]
fn npy_files_of_one_shape_become_tensors() {
    let first: Vec<u8> = [1f32, 2., 3., 4., 5., 6.].iter().flat_map(|number| number.to_le_bytes()).collect();
    let swapped: Vec<u8> = [1f32, 4., 2., 5., 3., 6.].iter().flat_map(|number| number.to_be_bytes()).collect();
    let fortran = npy_text(">f4", "(2, 3)").replace("False", "True");
    let bytes = archive(&[
        ("0.x.npy", &npy_file(&npy_text("<f4", "(2, 3)"), &first)),
        ("0.mask.npy", &npy_file(&npy_text("|b1", "(2,)"), &[0, 1])),
        ("0.n.npy", &npy_file(&npy_text("<u2", "()"), &[1, 2])),
        ("0.other.npy", &npy_file(&npy_text("<u2", "(1,)"), &[1, 2])),
        ("1.x.npy", &npy_file(&fortran, &swapped)),
        ("1.mask.npy", &npy_file(&npy_text("|b1", "(2,)"), &[1, 1])),
        ("1.other.npy", &npy_file(&npy_text("<u2", "(2,)"), &[1, 2, 3, 4])),
    ]);
    let rows = read("a.tar", bytes).unwrap();
    assert_eq!((rows.bad, rows.damage), (vec![], None));
    let schema = rows.batch.schema();
    let tensor = TensorType { element: DataType::Float32, shape: vec![2, 3] };
    assert_eq!(TensorType::of(schema.field(1)), Some(tensor));
    assert!(!schema.field(1).is_nullable());
    let values = rows.batch.column(1).as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec();
    assert_eq!(values, [1., 2., 3., 4., 5., 6., 1., 2., 3., 4., 5., 6.]);
    let mask = rows.batch.column(2).as_fixed_size_list().values().as_primitive::<UInt8Type>().values().to_vec();
    assert_eq!(mask, [0, 1, 1, 1]);
    let numbers = rows.batch.column(3).as_primitive::<UInt16Type>().iter().collect::<Vec<_>>();
    assert_eq!(numbers, [Some(0x201), None]);
    assert_eq!(schema.field(4).data_type(), &DataType::LargeBinary, "shapes differ");
}

#[test]
fn npy_files_that_some_samples_lack_are_bytes() {
    let file = npy_file(&npy_text("<u2", "(1,)"), &[1, 2]);
    let rows = read("a.tar", archive(&[("0.x.npy", &file), ("0.cls", b"1"), ("1.cls", b"2")])).unwrap();
    assert_eq!(rows.batch.column(1).as_binary::<i64>().iter().collect::<Vec<_>>(), [Some(&file[..]), None]);
}

#[test]
fn options_say_what_files_are() {
    let folder = MemoryFolder::new([("a.tar", archive(&[("0.bin", JPEG), ("0.raw", b"sound"), ("1.bin", b"no")]))]);
    let named = |images: &[&str], audio: &[&str]| FormatOptions {
        images: images.iter().map(ToString::to_string).collect(),
        audio: audio.iter().map(ToString::to_string).collect(),
        ..FormatOptions::default()
    };
    let files = plan(&WebDataset, &folder, &named(&["bin"], &["raw"])).unwrap();
    assert!(is_encoded_image(files.schema().field(1)));
    let rows = read_all(&*files, 0, usize::MAX);
    assert_eq!((keys(&rows), rows.bad.len()), (vec!["0"], 1));
    let refused = |options: FormatOptions, expected: &str| {
        assert_eq!(plan(&WebDataset, &folder, &options).unwrap_err().to_string(), expected);
    };
    refused(named(&["jpg"], &[]), "option --image: there is no column jpg in a.tar; its columns are bin, raw");
    refused(named(&["bin"], &["bin"]), "option --audio: column bin is in --image too");
}

#[test]
fn long_names_are_read() {
    let folder = "f/".repeat(90);
    let long = format!("{folder}{}.jpg", "n".repeat(200));
    let gnu = archive(&[(&long, JPEG), ("z.jpg", PNG)]);
    let rows = read("a.tar", gnu).unwrap();
    assert_eq!(keys(&rows), [long.strip_suffix(".jpg").unwrap(), "z"]);
    let text = format!("path={long}\n");
    let record = format!("{} {text}", text.len() + 4);
    assert_eq!(record.len(), text.len() + 4);
    let record = format!("13 comment=x\n{record}");
    let mut pax = block(b"global", EntryType::XGlobalHeader, 13, b"13 comment=x\n");
    pax.extend(block(b"x", EntryType::XHeader, record.len() as u64, record.as_bytes()));
    pax.extend(block(b"short", EntryType::Regular, JPEG.len() as u64, JPEG));
    pax.extend(archive(&[("z.jpg", PNG)]));
    assert_eq!(read("a.tar", pax).unwrap().batch, rows.batch);
    let mut sized = block(b"x", EntryType::XHeader, 10, b"10 size=9\n");
    sized.extend(block(b"a.jpg", EntryType::Regular, 0, JPEG));
    sized.extend(archive(&[]));
    assert_eq!(read("a.tar", sized).unwrap().batch.column(1).as_binary::<i64>().value(0), JPEG);
    let mut ustar = Header::new_ustar();
    ustar.set_path(format!("{}/a.jpg", "g".repeat(120))).unwrap();
    ustar.set_size(JPEG.len() as u64);
    ustar.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&ustar, JPEG).unwrap();
    let rows = read("a.tar", builder.into_inner().unwrap()).unwrap();
    assert_eq!(keys(&rows), [format!("{}/a", "g".repeat(120))]);
}

#[test]
fn what_is_no_part_of_samples_is_skipped() {
    let mut builder = Builder::new(Vec::new());
    let mut append = |name: &str, kind: EntryType, bytes: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_entry_type(kind);
        builder.append_data(&mut header, name, bytes).unwrap();
    };
    append("__meta__/about.txt", EntryType::Regular, b"x");
    append("__info__", EntryType::Regular, b"x");
    append("d/", EntryType::Directory, b"");
    append("d/._0.jpg", EntryType::Regular, b"of macOS");
    append("d/0.jpg", EntryType::Regular, JPEG);
    append("d/.hidden", EntryType::Regular, b"x");
    append("d/0.cls", EntryType::Continuous, b"1");
    let rows = read("a.tar", builder.into_inner().unwrap()).unwrap();
    assert_eq!((keys(&rows), rows.batch.num_columns(), rows.bad.len()), (vec!["d/0"], 3, 0));
}

#[test]
fn archives_are_recognised_by_name() {
    let folder = MemoryFolder::new(["b.tar", "a/x.TGZ", "c.tar.zst", ".d.tar", "e.txt"].map(|name| (name, vec![])));
    assert_eq!(WebDataset.recognise(&*folder).unwrap(), ["a/x.TGZ", "b.tar", "c.tar.zst"]);
    assert_eq!(WebDataset.recognise(&*MemoryFolder::new([("a.txt", vec![])])), None);
    assert_eq!(format_of(&*folder).unwrap().name(), "webdataset");
    assert_eq!(format_named("webdataset").unwrap().name(), "webdataset");
    assert_eq!(
        FORMATS.len(),
        FORMATS.iter().map(|format| format.name()).collect::<std::collections::HashSet<_>>().len()
    );
}

#[test]
fn batches_are_of_about_the_wanted_size() {
    let names: Vec<String> = (0..100).map(|number| format!("{number:03}.bin")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &[7; 1000][..])).collect();
    let folder = MemoryFolder::new([("a.tar", archive(&members)), ("b.tar", archive(&members[..50]))]);
    let files = plan(&WebDataset, &folder, &FormatOptions::default()).unwrap();
    assert_eq!(files.files(), ["a.tar", "b.tar"]);
    let small = read_all(&*files, 0, 10_000);
    assert_eq!((small.batch.num_rows(), small.num_batches), (100, 10));
    assert_eq!(small.batch, read_all(&*files, 0, usize::MAX).batch);
    assert_eq!(read_all(&*files, 0, 0).num_batches, 100);
    assert_eq!(read_all(&*files, 1, usize::MAX).batch.num_rows(), 50);
    assert!(files.read(2).is_err());
}

#[test]
fn the_first_file_with_samples_tells_the_columns() {
    let folder = MemoryFolder::new([("a.tar", archive(&[])), ("b.tar", archive(&[("0.cls", b"1")]))]);
    let files = plan(&WebDataset, &folder, &FormatOptions::default()).unwrap();
    assert_eq!(files.schema().field(1).name(), "cls");
    assert_eq!((read_all(&*files, 0, 1).num_batches, read_all(&*files, 1, 1).num_batches), (0, 1));
}
