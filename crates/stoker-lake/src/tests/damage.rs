//! Tests that damaged files are reported as damage, with their names, and never delivered as rows.

use std::fs::OpenOptions;
use std::path::PathBuf;

use arrow_schema::DataType;
use datafusion::error::DataFusionError;
use datafusion::prelude::{col, lit};
use futures::TryStreamExt;
use stoker_types::ErrorKind;

use super::data::{TestLake, TestResult, addresses, append, latest, schema, small, table_name, tensor, test_lake};
use crate::{Error, LakeStore, ScanRequest, StorageOptions, Table};

/// A table of 20 rows, in a lake that has cached nothing of it, and the path of the data file of column `x`.
async fn table(test: &TestLake) -> Result<(LakeStore, PathBuf), Box<dyn std::error::Error>> {
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[20_000])]));
    append(&test.lake, &name, &schema, 0..20, small(100, 50_000)).await?;
    let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
    let table = latest(&test.lake, &name).await?;
    let id = table.dataset().schema().field("x").ok_or("the column exists")?.id;
    let fragment = &table.dataset().fragments()[0];
    let file = fragment.files.iter().find(|file| file.fields.contains(&id)).ok_or("the column has a file")?;
    Ok((lake, test.folder.path().join("t.lance/data").join(&file.path)))
}

fn assert_corrupt(error: &Error, message: &str) {
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[tokio::test]
async fn a_truncated_file_is_found_before_it_is_read() -> TestResult {
    let test = test_lake().await;
    let (lake, path) = table(&test).await?;
    let size = std::fs::metadata(&path)?.len();
    OpenOptions::new().write(true).open(&path)?.set_len(size / 2)?;
    let table = latest(&lake, &table_name("t")).await?;
    let sizes = format!("the manifest says {size} bytes, the file has {}", size / 2);
    let error = table.dense_column("x").await.expect_err("half of the file is missing");
    assert_corrupt(&error, &sizes);
    assert!(error.to_string().contains(path.file_name().and_then(|name| name.to_str()).ok_or("the file has a name")?));
    let error = table.take(&["x".to_string()], &addresses(&table)).await.expect_err("half of the file is missing");
    assert_corrupt(&error, "reading 20 rows of t@1 (x)");
    assert_corrupt(&table.survey("x").await.expect_err("the footer is missing"), &sizes);
    Ok(())
}

#[tokio::test]
async fn a_file_truncated_after_opening_is_found() -> TestResult {
    let test = test_lake().await;
    let (lake, path) = table(&test).await?;
    let table = latest(&lake, &table_name("t")).await?;
    let probe = table.dense_column("x").await?;
    let crate::DenseProbe::Dense(dense) = probe else { return Err("the column is dense".into()) };
    OpenOptions::new().write(true).open(&path)?.set_len(1000)?;
    let file = dense.file(0).ok_or("there is a fragment")?;
    let (offset, _) = file.locate(10).ok_or("row 10 has a place")?;
    let error = file.reader.read(offset..offset + 20_000).await.expect_err("the bytes are missing");
    assert_corrupt(&error, "the file has 1000");
    let error = file.reader.read(0..file.reader.size() + 1).await.expect_err("nobody may read past the end");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt);
    Ok(())
}

#[tokio::test]
async fn a_missing_file_is_damage_not_a_wrong_name() -> TestResult {
    let test = test_lake().await;
    let (lake, path) = table(&test).await?;
    std::fs::remove_file(&path)?;
    let table = latest(&lake, &table_name("t")).await?;
    let error = table.dense_column("x").await.expect_err("the file is missing");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    let error = table.take(&["x".to_string()], &[0]).await.expect_err("the file is missing");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    let error = scan(&table, "x").await.expect_err("the file is missing");
    assert!(error.to_string().contains(path.file_name().and_then(|name| name.to_str()).ok_or("a name")?), "{error}");
    assert_corrupt(&error, "is missing");
    // The other columns can still be read.
    assert_eq!(scan(&table, "id").await?, 20);
    Ok(())
}

#[tokio::test]
async fn a_damaged_footer_is_found_before_lance_trusts_it() -> TestResult {
    let test = test_lake().await;
    let (lake, path) = table(&test).await?;
    let mut bytes = std::fs::read(&path)?;
    // With this flipped bit, the footer announces more than 2^28 buffers, for which Lance would allocate memory.
    let place = bytes.len() - 40 + 27;
    bytes[place] ^= 0x10;
    std::fs::write(&path, bytes)?;
    let table = latest(&lake, &table_name("t")).await?;
    let file = path.file_name().and_then(|name| name.to_str()).ok_or("a name")?;
    let found = [
        table.dense_column("x").await.map(|_| ()),
        table.take(&["x".to_string()], &[0]).await.map(|_| ()),
        scan(&table, "x").await.map(|_| ()),
        table.survey("x").await.map(|_| ()),
    ];
    for error in found {
        let error = error.expect_err("a damaged footer");
        assert_corrupt(&error, "buffers at");
        assert!(error.to_string().contains(file), "{error}");
    }
    assert_eq!(scan(&table, "id").await?, 20);
    Ok(())
}

#[tokio::test]
async fn files_that_changed_places_are_noticed() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[2_000])]));
    append(&test.lake, &name, &schema, 0..20, small(10, 50_000)).await?;
    let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
    let table = latest(&lake, &name).await?;
    let id = table.dataset().schema().field("x").ok_or("the column exists")?.id;
    let mut paths = Vec::new();
    for fragment in table.dataset().fragments().iter() {
        let file = fragment.files.iter().find(|file| file.fields.contains(&id)).ok_or("the column has a file")?;
        paths.push(test.folder.path().join("t.lance/data").join(&file.path));
    }
    let [one, other] = paths.as_slice() else { return Err("there are two fragments".into()) };
    let stored = std::fs::read(one)?;
    std::fs::copy(other, one)?;
    std::fs::write(other, stored)?;
    let found = [table.dense_column("x").await.map(|_| ()), table.checksums("x").await.map(|_| ())];
    for error in found {
        assert_corrupt(&error.expect_err("each file knows its name"), "the file was written under another name");
    }
    Ok(())
}

/// The number of rows in a scan of one column, or the lake's error inside DataFusion's.
async fn scan(table: &Table, column: &str) -> crate::Result<usize> {
    let request = ScanRequest { columns: vec![column.into()], batch_size: 100, ..ScanRequest::default() };
    let batches: Result<Vec<_>, _> = table.scan(&request).await?.try_collect().await;
    match batches {
        Ok(batches) => Ok(batches.iter().map(arrow_array::RecordBatch::num_rows).sum()),
        Err(DataFusionError::External(error)) => Err(*error.downcast::<Error>().expect("an error of the lake")),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_small_file_that_is_cut_is_damage_and_named() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&test.lake, &name, &schema, 0..50, small(100, 1000)).await?;
    let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
    let table = latest(&lake, &name).await?;
    let file = &table.dataset().fragments()[0].files[0].path;
    let path = test.folder.path().join("t.lance/data").join(file);
    let size = std::fs::metadata(&path)?.len();
    OpenOptions::new().write(true).open(&path)?.set_len(size / 2)?;
    let message = format!("data file t.lance/data/{file}: the manifest says {size} bytes, the file has {}", size / 2);
    assert_corrupt(&scan(&table, "id").await.expect_err("a cut file"), &message);
    assert_corrupt(&table.take(&["id".to_string()], &[0]).await.expect_err("a cut file"), &message);
    Ok(())
}

#[tokio::test]
async fn a_filter_that_fails_on_a_row_is_an_invalid_request() -> TestResult {
    let lake = super::data::memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..50, small(100, 1000)).await?;
    let quotient = lit(10i64) / (col("id") - lit(5i64));
    let request =
        ScanRequest { columns: vec!["id".into()], filter: Some(quotient.gt(lit(1i64))), ..ScanRequest::default() };
    let found: Result<Vec<_>, _> = latest(&lake, &name).await?.scan(&request).await?.try_collect().await;
    let Err(DataFusionError::External(error)) = found else { panic!("row 5 divides by zero") };
    let error = error.downcast::<Error>().expect("an error of the lake");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(
        error.to_string(),
        "scanning table t@1: the filter cannot be evaluated: Arrow error: Divide by zero error"
    );
    Ok(())
}
