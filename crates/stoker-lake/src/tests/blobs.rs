//! Tests of blob columns, which Lance writes and Stoker reads.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, Int64Array, LargeBinaryArray, RecordBatch, RecordBatchIterator, StringArray, StructArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::blob::{BlobArrayBuilder, blob_field};
use lance::dataset::WriteParams;
use lance_file::version::LanceFileVersion;
use stoker_types::ErrorKind;

use super::data::{TestLake, TestResult, addresses, latest, table_name, test_lake};
use crate::{CommitMode, Error, ScanRequest, Table, WriteOptions};

/// The lengths of the values: small and large ones, which Lance stores in different files, nulls and an empty one.
const LENGTHS: [Option<usize>; 9] =
    [Some(10), None, Some(0), Some(300_000), Some(5_000_000), Some(70_000), None, Some(1), Some(90_000)];

const VERSIONS: [LanceFileVersion; 3] = [LanceFileVersion::V2_0, LanceFileVersion::V2_1, LanceFileVersion::V2_2];

fn value(row: usize) -> Option<Vec<u8>> {
    LENGTHS[row].map(|length| (0..length).map(|byte| (byte * 7 + row * 31 + (byte >> 8)) as u8).collect())
}

/// A table with the columns `id` and `x`, in fragments of four rows.
async fn table(test: &TestLake, version: LanceFileVersion) -> Result<Table, Box<dyn StdError>> {
    let values = (0..LENGTHS.len()).map(value);
    let (field, column): (Field, ArrayRef) = if version == LanceFileVersion::V2_2 {
        let mut blobs = BlobArrayBuilder::new(LENGTHS.len());
        for value in values {
            match value {
                None => blobs.push_null()?,
                Some(bytes) => blobs.push_bytes(bytes)?,
            }
        }
        (blob_field("x", true), blobs.finish()?)
    } else {
        let marked = [("lance-encoding:blob".to_string(), "true".to_string())].into();
        let field = Field::new("x", DataType::LargeBinary, true).with_metadata(marked);
        (field, Arc::new(LargeBinaryArray::from_iter(values)))
    };
    let ids = Int64Array::from_iter_values(0..LENGTHS.len() as i64);
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), column])?;
    let batches = RecordBatchIterator::new([Ok(batch)], schema);
    let params = WriteParams { data_storage_version: Some(version), max_rows_per_file: 4, ..WriteParams::default() };
    let folder = test.folder.path().join("t.lance");
    Dataset::write(batches, folder.to_str().ok_or("the path is UTF-8")?, Some(params)).await?;
    Ok(latest(&test.lake, &table_name("t")).await?)
}

fn bytes_of(batch: &RecordBatch) -> Vec<Option<Vec<u8>>> {
    let column = batch.column_by_name("x").expect("the column was asked for");
    column.as_binary::<i64>().iter().map(|value| value.map(<[u8]>::to_vec)).collect()
}

#[tokio::test]
async fn values_of_all_versions_are_read() -> TestResult {
    for version in VERSIONS {
        let test = test_lake().await;
        let table = table(&test, version).await?;
        let addrs = addresses(&table);
        let columns = ["x".to_string(), "id".to_string()];
        let field = table.schema().field_with_name("x")?.clone();
        assert_eq!((field.data_type(), stoker_columns::is_blob(&field)), (&DataType::LargeBinary, true));
        for order in [(0..9).collect::<Vec<usize>>(), vec![8, 3, 3, 0, 1, 4], vec![6], vec![]] {
            let wanted: Vec<u64> = order.iter().map(|row| addrs[*row]).collect();
            let taken = table.take(&columns, &wanted).await?;
            assert_eq!(bytes_of(&taken), order.iter().map(|row| value(*row)).collect::<Vec<_>>(), "{version:?}");
            assert_eq!(taken.schema().field(0), &field);
        }
        assert_eq!(table.null_rows("x").await?, [addrs[1], addrs[6]], "{version:?}");
        let mean = LENGTHS.iter().map(|length| length.unwrap_or(0)).sum::<usize>().div_ceil(LENGTHS.len()) as u64;
        assert_eq!(table.bytes_per_row("x").await?, Some(mean));
    }
    Ok(())
}

#[tokio::test]
async fn deleted_rows_have_no_blobs() -> TestResult {
    for version in VERSIONS {
        let test = test_lake().await;
        let mut dataset: Dataset = table(&test, version).await?.dataset().as_ref().clone();
        dataset.delete("id in (0, 4, 6)").await?;
        let table = latest(&test.lake, &table_name("t")).await?;
        let addrs = addresses(&table);
        let kept = [1, 2, 3, 5, 7, 8];
        let taken = table.take(&["x".into()], &kept.map(|row| addrs[row])).await?;
        assert_eq!(bytes_of(&taken), kept.map(value));
        assert_eq!(table.take(&["x".into()], &addrs).await.expect_err("deleted").kind(), ErrorKind::NotFound);
        assert_eq!(table.null_rows("x").await?, [addrs[1]]);
    }
    Ok(())
}

#[tokio::test]
async fn scans_and_writes_of_blobs_are_refused() -> TestResult {
    for version in VERSIONS {
        let test = test_lake().await;
        let table = table(&test, version).await?;
        let request = ScanRequest { columns: vec!["x".into()], ..ScanRequest::default() };
        let error = table.scan_plan(&request).await.expect_err("a scan has no values");
        assert!(error.to_string().contains("column x of table t@1: it has blobs of Lance"), "{error}");
        let name = table_name("t");
        let refused = test.lake.writer(&name, &table.schema(), true, WriteOptions::default()).await;
        let Err(error) = refused else { return Err("rows with blobs cannot be appended".into()) };
        assert!(matches!(error, Error::InvalidData { .. }), "{error}");
        let error = test.lake.commit(&name, &table.schema(), CommitMode::Append, Vec::new(), None).await;
        assert!(matches!(error, Err(Error::InvalidData { .. })), "{error:?}");
        // The values can be written to another table, as plain ones.
        let rows = table.take(&["id".into(), "x".into()], &addresses(&table)).await?;
        let copy = table_name("copy");
        let mut writer = test.lake.writer(&copy, &rows.schema(), false, WriteOptions::default()).await?;
        writer.write(&rows).await?;
        let (schema, drafts) = (writer.schema(), writer.finish().await?);
        test.lake.commit(&copy, &schema, CommitMode::Create, drafts, None).await?;
        let copied = latest(&test.lake, &copy).await?;
        assert!(!stoker_columns::is_blob(copied.schema().field_with_name("x")?));
        assert_eq!(bytes_of(&copied.take(&["x".into()], &addresses(&copied)).await?), bytes_of(&rows));
    }
    Ok(())
}

/// A batch with one descriptor: its kind, position, size, id and URI.
fn descriptor(kind: u8, position: u64, size: u64, id: u32, uri: &str) -> Result<RecordBatch, Box<dyn StdError>> {
    let columns: Vec<(Arc<Field>, ArrayRef)> = vec![
        (Arc::new(Field::new("kind", DataType::UInt8, false)), Arc::new(UInt8Array::from(vec![kind]))),
        (Arc::new(Field::new("position", DataType::UInt64, false)), Arc::new(UInt64Array::from(vec![position]))),
        (Arc::new(Field::new("size", DataType::UInt64, false)), Arc::new(UInt64Array::from(vec![size]))),
        (Arc::new(Field::new("blob_id", DataType::UInt32, false)), Arc::new(UInt32Array::from(vec![id]))),
        (Arc::new(Field::new("blob_uri", DataType::Utf8, false)), Arc::new(StringArray::from(vec![uri]))),
    ];
    let column: ArrayRef = Arc::new(StructArray::from(columns));
    Ok(RecordBatch::try_from_iter([("x", column)])?)
}

#[tokio::test]
async fn descriptors_are_not_trusted() -> TestResult {
    let test = test_lake().await;
    let table = table(&test, LanceFileVersion::V2_2).await?;
    let root = test.lake.uri().to_string();
    std::fs::write(test.folder.path().join("object"), b"hello world")?;
    let (row, large) = ([3], 1u64 << 40);
    let read = async |kind, position, size, id, uri: &str| {
        let batch = descriptor(kind, position, size, id, uri).map_err(|error| error.to_string())?;
        table.with_blobs(batch, &row).await.map(|batch| bytes_of(&batch)).map_err(|error| {
            assert!(error.to_string().contains("column x of row 3 (fragment 0, offset 3) of t@1"), "{error}");
            let is_damage = matches!(error, Error::DamagedRows { .. });
            assert!(is_damage || matches!(error, Error::InvalidRequest { .. }), "{error}");
            format!("{is_damage} {error}")
        })
    };
    // Kind 0 is in the data file, 1 and 2 are in files beside it, 3 is a URI, 4 and 5 are paths in a table.
    assert_eq!(read(3, 6, 5, 0, &format!("{root}/object")).await?, [Some(b"world".to_vec())]);
    assert_eq!(read(3, 0, 0, 0, &format!("file://{root}/object")).await?, [Some(b"hello world".to_vec())]);
    assert_eq!(read(0, 0, 0, 0, "").await?, [Some(Vec::new())]);
    assert_eq!(read(1, 0, 300_000, 1, "").await?, [value(3)]);
    let damaged = [
        (0, 0, large, 0, ""),
        (0, u64::MAX, 2, 0, ""),
        (1, 299_999, 2, 1, ""),
        (1, large, 2, 1, ""),
        (1, 0, large, 1, ""),
        (1, 0, 1, 77, ""),
        (2, 0, 299_999, 1, ""),
        (2, 0, large, 1, ""),
        (4, 0, 1, 0, "../copy.lance/object"),
        (4, 0, 1, 0, "missing"),
        (9, 0, 1, 0, ""),
    ];
    for (kind, position, size, id, uri) in damaged {
        let error = read(kind, position, size, id, uri).await.expect_err("there are no such bytes");
        assert!(error.starts_with("true"), "{kind} {position} {size}: {error}");
    }
    let outside = ["/etc/passwd", "file:///etc/passwd", "s3://bucket/key", "relative", ""].map(String::from);
    let hidden = ["_stoker/a", "../a", "t.lance/../../a", "a/./b", "%2e%2e/a", "", "/a", "a//b"];
    for uri in outside.into_iter().chain(hidden.map(|path| format!("{root}/{path}"))) {
        let error = read(3, 0, 1, 0, &uri).await.expect_err("the object is not read");
        assert!(error.starts_with("false") && error.contains("from inside the lake"), "{uri}: {error}");
    }
    // A base that the manifest does not have.
    assert!(read(3, 0, 1, 5, "object").await.expect_err("no base").contains("there is no base 5"));
    assert!(read(5, 0, 1, 5, "object").await.expect_err("no base").contains("outside the folder"));
    Ok(())
}
