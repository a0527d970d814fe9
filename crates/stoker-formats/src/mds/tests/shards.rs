//! Values of shards that are as they should be.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float64Type, Int8Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt64Type};
use arrow_schema::DataType;
use stoker_columns::{TensorType, is_encoded_image, kind_of};

use super::*;
use crate::{FileFormat as _, format_of};

const JPEG: &[u8] = b"\xff\xd8\xff\xe0 jpeg";
const TEXTS: [Column; 2] = [("n", "int", Some(8)), ("t", "str", None)];

fn texts(numbers: std::ops::Range<i64>) -> Vec<Vec<u8>> {
    let text = |number: i64| sample(&TEXTS, &[&number.to_le_bytes(), format!("text {number}").as_bytes()]);
    numbers.map(text).collect()
}

#[test]
fn encodings_become_columns() {
    let columns: [Column; 16] = [
        ("array", "ndarray:int32", None),
        ("bytes", "bytes", None),
        ("decimal", "str_decimal", None),
        ("f16", "float16", Some(2)),
        ("f64", "float64", Some(8)),
        ("i8", "int8", Some(1)),
        ("image", "jpeg:90", None),
        ("int", "int", Some(8)),
        ("json", "json", None),
        ("matrix", "ndarray", None),
        ("png", "png", None),
        ("s_float", "str_float", None),
        ("s_int", "str_int", None),
        ("str", "str", None),
        ("tensor", "ndarray:uint8:2,2", Some(4)),
        ("u64", "uint64", Some(8)),
    ];
    let (first, second) = ([1i32.to_le_bytes(), (-1i32).to_le_bytes()].concat(), 5i32.to_le_bytes());
    let array = |sizes: &[u8], data: &[u8]| [&[(sizes.len() as u8) << 2][..], sizes, data].concat();
    let wide = [&[(2u8 << 2) | 1, 1, 0, 3, 0][..], &[1, 2, 3, 4, 5, 6]].concat();
    let values: [&[u8]; 16] = [
        &array(&[2], &first),
        b"raw",
        b"1.50",
        &[0, 0x3c],
        &0.5f64.to_le_bytes(),
        &[0xff],
        JPEG,
        &(-7i64).to_le_bytes(),
        b"{\"a\": 1}",
        &[&[16][..], &wide].concat(),
        JPEG,
        b"1e-05",
        b"-12",
        "naïve".as_bytes(),
        &[1, 2, 3, 4],
        &u64::MAX.to_le_bytes(),
    ];
    let mut others = values;
    let (one, matrix) = (array(&[1], &second), [&[16][..], &array(&[1, 1], &[9, 0])].concat());
    (others[0], others[9]) = (&one, &matrix);
    let files = dataset(&columns, &[sample(&columns, &values), sample(&columns, &others)]);
    let bytes = files[1].1.len() as u64;
    let rows = read(files).unwrap();
    assert_eq!((&rows.bad, &rows.damage, rows.source_bytes), (&vec![], &None, bytes));
    let (schema, batch) = (rows.batch.schema(), &rows.batch);
    assert!(schema.fields().iter().zip(&columns).all(|(field, column)| field.name() == column.0));
    let lists = batch.column(0).as_list::<i32>();
    assert_eq!(lists.value(0).as_primitive::<Int32Type>().values().to_vec(), [1, -1]);
    assert_eq!(lists.value(1).as_primitive::<Int32Type>().values().to_vec(), [5]);
    assert_eq!(batch.column(1).as_binary::<i64>().value(0), b"raw");
    assert_eq!(batch.column(2).as_string::<i32>().value(0), "1.50");
    assert_eq!(batch.column(3).as_primitive::<Float16Type>().value(0).to_f32(), 1.0);
    assert_eq!(batch.column(4).as_primitive::<Float64Type>().value(0), 0.5);
    assert_eq!(batch.column(5).as_primitive::<Int8Type>().value(0), -1);
    assert!(is_encoded_image(schema.field(6)) && is_encoded_image(schema.field(10)));
    assert_eq!(batch.column(6).as_binary::<i64>().value(1), JPEG);
    assert_eq!(batch.column(7).as_primitive::<Int64Type>().value(0), -7);
    assert_eq!(batch.column(8).as_string::<i32>().value(0), "{\"a\": 1}");
    assert_eq!(kind_of(schema.field(9)).name(), "ragged");
    let matrices = batch.column(9).as_struct();
    let numbers = matrices.column(0).as_list::<i32>().values().as_primitive::<UInt16Type>().values().to_vec();
    assert_eq!(numbers, [0x201, 0x403, 0x605, 9]);
    let shapes = matrices.column(1).as_fixed_size_list().values().as_primitive::<Int32Type>().values().to_vec();
    assert_eq!(shapes, [1, 3, 1, 1]);
    assert_eq!(batch.column(11).as_primitive::<Float64Type>().value(0), 1e-5);
    assert_eq!(batch.column(12).as_primitive::<Int64Type>().value(0), -12);
    assert_eq!(batch.column(13).as_string::<i32>().value(0), "naïve");
    let tensor = TensorType { element: DataType::UInt8, shape: vec![2, 2] };
    assert_eq!(TensorType::of(schema.field(14)), Some(tensor));
    let tensors = batch.column(14).as_fixed_size_list().values().as_primitive::<UInt8Type>().values().to_vec();
    assert_eq!(tensors, [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(batch.column(15).as_primitive::<UInt64Type>().value(0), u64::MAX);
}

#[test]
fn shards_may_be_compressed() {
    let (first, second, third) = (shard(&texts(0..3)), shard(&texts(3..5)), shard(&texts(5..9)));
    let zstd = zstd::stream::encode_all(&second[..], 1).unwrap();
    let gz = gzip(&third);
    let zipped = |name: &str, raw: &[u8], samples: usize, compression: &str, zip: &[u8], ending: &str| {
        let mut entry = entry(&TEXTS, name, raw.len(), samples);
        entry["compression"] = json!(compression);
        entry["zip_data"] = json!({"basename": format!("{name}.{ending}"), "bytes": zip.len(), "hashes": {}});
        entry
    };
    let shards = [
        zipped("shard.00000.mds", &first, 3, "br:11", b"x", "br"),
        zipped("shard.00001.mds", &second, 2, "zstd:7", &zstd, "zstd"),
        zipped("shard.00002.mds", &third, 4, "gz", &gz, "gz"),
    ];
    let refused = read(vec![("index.json".into(), index(&shards)), ("shard.00000.mds".into(), first.clone())]);
    let expected = "index.json: shard 0: the compression br:11 is not read; zstd and gz are";
    assert_eq!(refused.err().as_deref(), Some(expected));
    let mut shards = shards;
    shards[0]["compression"] = json!("zstd");
    let folder = MemoryFolder::new([
        ("index.json", index(&shards)),
        ("shard.00000.mds", first),
        ("shard.00001.mds.zstd", zstd.clone()),
        ("shard.00002.mds.gz", gz),
    ]);
    let files = plan(&Mds, &folder, &FormatOptions::default()).unwrap();
    assert_eq!(files.files(), ["shard.00000.mds", "shard.00001.mds.zstd", "shard.00002.mds.gz"]);
    let rows: Vec<AllRows> =
        [usize::MAX, usize::MAX, 1].iter().enumerate().map(|(file, bytes)| read_all(&*files, file, *bytes)).collect();
    assert!(rows.iter().all(|rows| rows.damage.is_none() && rows.bad.is_empty()));
    assert_eq!(rows[1].source_bytes, zstd.len() as u64);
    let numbers = rows.iter().flat_map(|rows| rows.batch.column(0).as_primitive::<Int64Type>().values().to_vec());
    assert_eq!(numbers.collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    assert_eq!(rows[2].num_batches, 4);
}

#[test]
fn folders_may_have_indexes_of_their_own() {
    let (first, second) = (shard(&texts(0..1)), shard(&texts(1..2)));
    let of = |bytes: &[u8]| index(&[entry(&TEXTS, "s.mds", bytes.len(), 1)]);
    let mut files = vec![
        ("train/index.json", of(&first)),
        ("train/s.mds", first.clone()),
        ("val/index.json", of(&second)),
        ("val/s.mds", second.clone()),
        ("val/deeper/index.json", b"not read".to_vec()),
    ];
    let folder = MemoryFolder::new(files.clone());
    assert_eq!(format_of(&*folder).unwrap().name(), "mds");
    assert_eq!(Mds.recognise(&*folder).unwrap(), ["train/s.mds", "val/s.mds"]);
    let rows = read_all(&*plan(&Mds, &folder, &FormatOptions::default()).unwrap(), 1, 1);
    assert_eq!(rows.batch.column(1).as_string::<i32>().value(0), "text 1");
    let merged = [entry(&TEXTS, "val/s.mds", second.len(), 1), entry(&TEXTS, "train/s.mds", first.len(), 1)];
    files.push(("index.json", index(&merged)));
    assert_eq!(Mds.recognise(&*MemoryFolder::new(files)).unwrap(), ["val/s.mds", "train/s.mds"]);
    assert_eq!(Mds.recognise(&*MemoryFolder::new([("index.json", b"{\"weights\": 1}".to_vec())])), None);
    assert_eq!(Mds.recognise(&*MemoryFolder::new([("a.mds", vec![])])), None);
}

#[test]
fn options_say_what_bytes_are() {
    let columns: [Column; 2] = [("b", "bytes", None), ("t", "str", None)];
    let samples = [sample(&columns, &[JPEG, b"x"]), sample(&columns, &[b"no", b"y"])];
    let folder = MemoryFolder::new(dataset(&columns, &samples));
    let images = |names: &[&str]| FormatOptions {
        images: names.iter().map(ToString::to_string).collect(),
        ..FormatOptions::default()
    };
    let files = plan(&Mds, &folder, &images(&["b"])).unwrap();
    assert!(is_encoded_image(files.schema().field(0)));
    let rows = read_all(&*files, 0, usize::MAX);
    assert_eq!((rows.batch.num_rows(), rows.bad[0].row), (1, 1));
    assert!(rows.bad[0].reason.starts_with("column b: expected a JPEG"), "{}", rows.bad[0].reason);
    let refused = |name: &str| plan(&Mds, &folder, &images(&[name])).unwrap_err().to_string();
    assert_eq!(refused("t"), "option --image: column t has the encoding str, which holds no files");
    assert_eq!(refused("x"), "option --image: there is no column x; the columns are b, t");
}

#[test]
fn a_shard_may_have_no_samples() {
    let columns: [Column; 1] = [("a", "ndarray", None)];
    let rows = read(dataset(&columns, &[])).unwrap();
    assert_eq!((rows.num_batches, rows.damage), (0, None));
}
