//! Flipped bytes of light columns.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use datafusion::error::DataFusionError;
use futures::TryStreamExt;
use stoker_batch::BufferPool;
use stoker_store::sectors::is_checked_name;
use stoker_types::ErrorKind;

use super::data::{TestResult, addresses, append, latest, memory_lake, schema, small, table_name, test_lake};
use crate::{Error, LakeStore, ScanRequest, StorageOptions, Table};

/// The rows of the light columns: the batches of a scan, then the batch of a take.
async fn read(folder: &Path) -> Result<Vec<RecordBatch>, Error> {
    let uri = folder.to_str().unwrap_or_default();
    let table = latest(&LakeStore::open(uri, &StorageOptions::default()).await?, &table_name("t")).await?;
    let columns = vec!["id".to_string(), "name".to_string()];
    let mut batches = scan(&table, &columns).await?;
    batches.push(table.take(&columns, &addresses(&table)).await?);
    Ok(batches)
}

async fn scan(table: &Table, columns: &[String]) -> Result<Vec<RecordBatch>, Error> {
    let request = ScanRequest { columns: columns.to_vec(), ..ScanRequest::default() };
    let batches: Result<Vec<RecordBatch>, DataFusionError> = table.scan(&request).await?.try_collect().await;
    batches.map_err(|source| match source {
        DataFusionError::External(source) => match source.downcast::<Error>() {
            Ok(error) => *error,
            Err(source) => Error::storage("scanning", source),
        },
        source => Error::storage("scanning", source),
    })
}

/// The paths of the files of light columns.
fn light_files(folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let files = std::fs::read_dir(folder.join("t.lance/data"))?.map(|entry| entry.map(|entry| entry.path()));
    let files: Vec<PathBuf> = files.collect::<Result<_, _>>()?;
    let is_checked = |path: &PathBuf| path.to_str().is_some_and(is_checked_name);
    Ok(files.into_iter().filter(is_checked).collect())
}

#[tokio::test]
async fn flipped_bytes_of_light_columns_are_damage() -> TestResult {
    let test = test_lake().await;
    append(&test.lake, &table_name("t"), &schema(&[]), 0..300, small(1_000, 5_000)).await?;
    let (intact, files) = (read(test.folder.path()).await?, light_files(test.folder.path())?);
    let [file] = files.as_slice() else { return Err("one fragment has one file of light columns".into()) };
    let (name, stored) = (file.file_name().and_then(|name| name.to_str()).ok_or("a name")?, std::fs::read(file)?);
    let mut num_errors = 0;
    for at in (0..stored.len()).step_by(37) {
        let mut damaged = stored.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(file, &damaged)?;
        match read(test.folder.path()).await {
            Ok(found) => assert_eq!(found, intact, "byte {at}"),
            Err(error) => {
                num_errors += 1;
                assert_eq!(error.kind(), ErrorKind::DataCorrupt, "byte {at}: {error}");
                assert!(error.to_string().contains(name) && error.to_string().contains("t@1"), "byte {at}: {error}");
            }
        }
    }
    assert!(num_errors * 37 > stored.len() * 9 / 10, "{num_errors} of {} bytes", stored.len() / 37);
    Ok(())
}

#[tokio::test]
async fn swapped_files_of_light_columns_are_damage() -> TestResult {
    let test = test_lake().await;
    append(&test.lake, &table_name("t"), &schema(&[]), 0..40, small(20, 5_000)).await?;
    let files = light_files(test.folder.path())?;
    let [one, other] = files.as_slice() else { return Err("two fragments have two files".into()) };
    let (first, second) = (std::fs::read(one)?, std::fs::read(other)?);
    std::fs::write(one, second)?;
    std::fs::write(other, first)?;
    let error = read(test.folder.path()).await.expect_err("rows would be those of the other fragment");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    assert!(error.to_string().contains("the file was written under another name"), "{error}");
    Ok(())
}

#[tokio::test]
async fn rows_beside_damaged_sectors_are_told_apart() -> TestResult {
    let test = test_lake().await;
    append(&test.lake, &table_name("t"), &schema(&[]), 0..30_000, small(100_000, 5_000)).await?;
    let files = light_files(test.folder.path())?;
    let mut stored = std::fs::read(&files[0])?;
    // This byte is among the values of the text column, which are the last ones of the file.
    let at = stored.len() * 6 / 10;
    stored[at] ^= 0x20;
    std::fs::write(&files[0], &stored)?;
    let uri = test.folder.path().to_str().unwrap_or_default();
    let table = latest(&LakeStore::open(uri, &StorageOptions::default()).await?, &table_name("t")).await?;
    let (columns, addrs) = (vec!["name".to_string()], addresses(&table));
    let found = match table.take_sound(&columns, &addrs, &BufferPool::new(0)).await {
        Ok(found) => found,
        Err(Error::DamagedRows { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    assert!(!found.damaged.is_empty());
    for addr in [0, addrs[addrs.len() - 1]] {
        assert!(!found.damaged.contains_key(&addr), "row {addr}");
    }
    Ok(())
}

#[tokio::test]
async fn lakes_in_memory_are_checked_too() -> TestResult {
    let lake = memory_lake().await;
    append(&lake, &table_name("t"), &schema(&[]), 0..100, small(1_000, 5_000)).await?;
    let table = latest(&lake, &table_name("t")).await?;
    let file = table.dataset().fragments()[0].files[0].clone();
    assert!(is_checked_name(&file.path), "{}", file.path);
    let path = table.dataset().data_dir().join(file.path.as_str());
    let store = &lake.inner.store;
    let stored = store.read_one_all(&path).await?;
    assert_eq!(file.file_size_bytes.get().map(|size| size.get()), Some(stored.len() as u64));
    let mut damaged = stored.to_vec();
    damaged[20] ^= 4;
    store.put(&path, &damaged).await?;
    let error = scan(&table, &["id".to_string()]).await.expect_err("a byte is another one");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    Ok(())
}
