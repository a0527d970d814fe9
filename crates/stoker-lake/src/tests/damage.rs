//! Damaged files are reported as damage, with their names, and never as rows.

use std::fs::OpenOptions;
use std::path::PathBuf;

use arrow_schema::DataType;
use futures::TryStreamExt;
use stoker_types::ErrorKind;

use super::data::{TestLake, TestResult, addresses, append, latest, schema, small, table_name, tensor, test_lake};
use crate::{Error, Lake, ScanRequest, StorageOptions};

/// A table of 20 rows and the path of the data file of column `x`, opened before anything was cached.
async fn table(test: &TestLake) -> Result<(Lake, PathBuf), Box<dyn std::error::Error>> {
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[20_000])]));
    append(&test.lake, &name, &schema, 0..20, small(100, 50_000)).await?;
    let lake = Lake::open(test.lake.uri(), &StorageOptions::default()).await?;
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
    assert_corrupt(&table.describe().await.expect_err("the footer is missing"), &sizes);
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
    // The other columns are still there.
    let request = ScanRequest { columns: vec!["id".into()], batch_size: 100, ..ScanRequest::default() };
    let batches: Vec<_> = table.scan(&request).await?.try_collect().await?;
    assert_eq!(batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), 20);
    Ok(())
}
