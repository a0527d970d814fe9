//! Indexes and shards that lie.

use super::*;

const COLUMNS: [Column; 2] = [("a", "ndarray:int32", None), ("n", "int32", Some(4))];

fn samples() -> Vec<Vec<u8>> {
    let array = |length: u8| [&[1 << 2, length][..], &vec![1; usize::from(length) * 4]].concat();
    (1..4).map(|length| sample(&COLUMNS, &[&array(length), &[length, 0, 0, 0]])).collect()
}

/// Checks the error of a dataset with a changed index entry.
fn index_refused(change: impl Fn(&mut Value), part: &str) {
    let bytes = shard(&samples());
    let mut shards = entry(&COLUMNS, "shard.00000.mds", bytes.len(), 3);
    change(&mut shards);
    refused(vec![("index.json".into(), index(&[shards])), ("shard.00000.mds".into(), bytes)], "index.json", part);
}

/// Checks the error of a dataset with a changed shard, whose index has its length.
fn shard_refused(change: impl Fn(&mut Vec<u8>), part: &str) {
    let mut bytes = shard(&samples());
    change(&mut bytes);
    let index = index(&[entry(&COLUMNS, "shard.00000.mds", bytes.len(), 3)]);
    refused(vec![("index.json".into(), index), ("shard.00000.mds".into(), bytes)], "shard.00000.mds", part);
}

fn refused(files: Vec<(String, Vec<u8>)>, file: &str, part: &str) {
    let reason = match read(files) {
        Err(reason) => reason,
        Ok(rows) => rows.damage.unwrap_or_else(|| panic!("{part}")),
    };
    assert!(reason.starts_with(file) && reason.contains(part), "{reason} does not contain {part}");
}

#[test]
fn indexes_that_lie_are_errors() {
    let set =
        |path: &'static str, value: Value| move |entry: &mut Value| *entry.pointer_mut(path).unwrap() = value.clone();
    index_refused(set("/version", json!(1)), "shard 0: format mds of version 1 is not read");
    index_refused(set("/format", json!("csv")), "format csv of version 2 is not read");
    index_refused(set("/samples", json!(-3)), "it is no index of shards");
    index_refused(set("/column_names", json!(["a"])), "it has 1 names, 2 encodings and 2 sizes of columns");
    index_refused(set("/column_names", json!(["a", "a"])), "it has the column a twice");
    index_refused(
        set("/column_encodings/1", json!("int64")),
        "column n: int64 has 8 bytes, and the index says 4 bytes",
    );
    index_refused(set("/column_sizes/0", json!(8)), "has values of different sizes, and the index says 8 bytes");
    index_refused(set("/column_encodings/0", json!("pkl")), "column a: pkl holds pickles, which are never read");
    index_refused(set("/column_encodings/0", json!("pil")), "pil holds raw pixels");
    index_refused(set("/column_encodings/0", json!("list[jpeg]")), "the encoding list[jpeg] is unknown");
    index_refused(set("/column_encodings/0", json!("ndarray:int32:0,3")), "is no type of arrays");
    index_refused(set("/column_encodings/0", json!("ndarray:int32:99999,99999,99999")), "is no type of arrays");
    index_refused(set("/raw_data/basename", json!("other.mds")), "the file other.mds is missing");
    index_refused(set("/raw_data/basename", json!("../shard.00000.mds")), "is not below the folder");
    index_refused(set("/raw_data/basename", json!("/shard.00000.mds")), "is not below the folder");
    index_refused(set("/raw_data/bytes", json!(99)), "bytes, and the index says 99");
    for bytes in [&b"{"[..], b"[]", b"{\"version\": 2}", b"\xff", &b"[".repeat(100_000)] {
        let files = vec![("index.json".into(), bytes.to_vec()), ("a.mds".into(), vec![])];
        refused(files, "index.json", "it is no index of shards");
    }
    let newer = json!({"version": 3, "shards": []}).to_string().into_bytes();
    refused(vec![("index.json".into(), newer), ("a.mds".into(), vec![])], "index.json", "version 3 is not read");
}

#[test]
fn shards_of_one_dataset_have_the_same_columns() {
    let bytes = shard(&samples());
    let [first, mut second] = ["a.mds", "b.mds"].map(|name| entry(&COLUMNS, name, bytes.len(), 3));
    let twice = index(&[first.clone(), first.clone()]);
    second["column_names"] = json!(["a", "m"]);
    let files = |index: Vec<u8>| {
        vec![("index.json".into(), index), ("a.mds".into(), bytes.clone()), ("b.mds".into(), bytes.clone())]
    };
    refused(files(twice), "index.json", "shard 1: the file a.mds is in the index twice");
    refused(files(index(&[first, second])), "index.json", "the columns of b.mds differ from those of a.mds");
}

#[test]
fn shards_that_lie_are_errors() {
    let put =
        |at: usize, number: u32| move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    shard_refused(put(0, 4), "it has 4 samples, and the index says 3");
    shard_refused(put(4, 3), "sample 0 begins at byte 3, which is not from 20 to");
    shard_refused(put(8, 21), "sample 1 begins at byte 21, which is not from");
    shard_refused(put(12, u32::MAX), "sample 2 begins at byte 4294967295, which is not from");
    shard_refused(put(16, 60), "sample 3 begins at byte 60");
    shard_refused(|bytes| bytes.push(0), "the last sample ends at byte");
    shard_refused(|bytes| bytes.truncate(3), "it ends in the number of samples");
    shard_refused(|bytes| bytes.truncate(10), "3 samples do not fit 10 bytes");
    let many = entry(&COLUMNS, "shard.00000.mds", 8, 4_294_967_295);
    let files = vec![("index.json".into(), index(&[many])), ("shard.00000.mds".into(), vec![255; 8])];
    refused(files, "shard.00000.mds", "4294967295 samples do not fit 8 bytes");
}

#[test]
fn compressed_shards_that_lie_are_errors() {
    let check = |raw_bytes: usize, bytes: &[u8], part: &str| {
        for (compression, zip) in [("gz", gzip(bytes)), ("zstd", zstd::stream::encode_all(bytes, 1).unwrap())] {
            let mut entry = entry(&COLUMNS, "a.mds", raw_bytes, 3);
            entry["compression"] = json!(compression);
            entry["zip_data"] = json!({"basename": "a.mds.z", "bytes": zip.len()});
            refused(vec![("index.json".into(), index(&[entry])), ("a.mds.z".into(), zip)], "a.mds.z", part);
        }
    };
    let bytes = shard(&samples());
    let longer = [&bytes[..], &[0; 1000]].concat();
    check(bytes.len(), &longer, "it expands to more than the");
    check(bytes.len(), &bytes[..bytes.len() - 1], "it ends in sample 2");
    check(bytes.len() + 1, &bytes, "the last sample ends at byte");
    check(bytes.len(), &bytes[..9], "it ends in the places of samples");
}

#[test]
fn samples_that_lie_are_bad_rows() {
    let check = |change: &dyn Fn(&mut Vec<u8>), part: &str| {
        let mut samples = samples();
        change(&mut samples[1]);
        let rows = read(dataset(&COLUMNS, &samples)).unwrap();
        assert_eq!((rows.batch.num_rows(), rows.bad.len(), rows.damage), (2, 1, None), "{part}");
        let reason = &rows.bad[0].reason;
        assert_eq!(rows.bad[0].row, 1);
        assert!(reason.starts_with("sample 1: ") && reason.contains(part), "{reason} does not contain {part}");
    };
    check(&|sample| sample.truncate(2), "it has 2 bytes only");
    check(&|sample| sample[0] = 200, "column a has 200 bytes, and the sample has 14 more");
    check(&|sample| sample[0] = 13, "column n has 4 bytes, and the sample has 1 more");
    check(&|sample| sample[0] = 2, "8 bytes follow its last column");
    check(&|sample| sample.push(0), "1 bytes follow its last column");
    check(&|sample| sample[4] = 0, "column a: the array has no dimensions");
    check(&|sample| sample[4] = 2 << 2, "column a: an array of shape [2, 1] has 7 bytes of elements");
    check(&|sample| sample[5] = 3, "an array of shape [3] has 8 bytes of elements");
    check(&|sample| sample[4] = 63 << 2 | 3, "the array is cut off");
}

#[test]
fn arrays_keep_the_type_of_the_first_sample() {
    let columns: [Column; 1] = [("a", "ndarray", None)];
    let arrays: [&[u8]; 5] = [&[8, 4, 2, 1, 2], &[9, 4, 1, 1], &[8, 8, 1, 1, 1], &[7, 4, 1, 1], &[8, 4, 1, 9]];
    let samples: Vec<Vec<u8>> = arrays.iter().map(|array| sample(&columns, &[array])).collect();
    let rows = read(dataset(&columns, &samples)).unwrap();
    let reasons: Vec<&str> = rows.bad.iter().map(|bad| bad.reason.as_str()).collect();
    let first = "and the first sample has uint8 with 1 dimension";
    assert_eq!(
        reasons,
        [
            format!("sample 1: column a: it is int8 with 1 dimension, {first}"),
            format!("sample 2: column a: it is uint8 with 2 dimensions, {first}"),
            "sample 3: column a: the type 7 of arrays is unknown".to_string(),
        ]
    );
    let refused = read(dataset(&columns, &samples[3..])).err().unwrap();
    assert_eq!(refused, "shard.00000.mds, column a: sample 0: the type 7 of arrays is unknown");
}
