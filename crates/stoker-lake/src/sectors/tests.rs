//! Files with checksums: their format, flipped bytes, and the way in which local files are read.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use datafusion::error::DataFusionError;
use futures::{FutureExt, TryStreamExt};
use stoker_checksum::checksum;
use stoker_types::ErrorKind;

use super::local::{self, OpenFiles, READ_NOW_MAX, ReadFrom};
use super::store::Fetched;
use super::trailer::{SEGMENT_SECTORS, Trailer, Unread, trailer};
use super::{SECTOR_BYTES, is_checked_name};
use crate::tests::data::{TestResult, addresses, append, latest, memory_lake, schema, small, table_name, test_lake};
use crate::{Error, Lake, ScanRequest, StorageOptions, Table};

/// A file of `num_bytes` that ends with the tables and the footer of a Lance file with two columns and one buffer.
fn lance_file(num_bytes: usize) -> Vec<u8> {
    let mut file: Vec<u8> = (0..num_bytes - 88).map(|index| (index * 7919 % 251) as u8).collect();
    let columns_at = file.len() as u64;
    file.extend([7; 48]);
    for number in [100, columns_at, columns_at + 32] {
        file.extend(number.to_le_bytes());
    }
    for number in [1u32, 2] {
        file.extend(number.to_le_bytes());
    }
    file.extend([2, 0, 2, 0]);
    file.extend(b"LANC");
    file
}

/// The same file with its trailer.
fn checked_file(num_bytes: usize) -> Option<Vec<u8>> {
    let mut file = lance_file(num_bytes);
    let sums: Vec<u32> = file.chunks(SECTOR_BYTES as usize).map(checksum).collect();
    let trailer = trailer("a-checked.lance", num_bytes as u64, &sums, &file[num_bytes - 88..])?;
    file.extend(trailer);
    Some(file)
}

fn parse(file: &[u8], end_bytes: usize) -> Result<Trailer, Unread> {
    let end = Bytes::copy_from_slice(&file[file.len().saturating_sub(end_bytes)..]);
    Trailer::parse("a-checked.lance", file.len() as u64, &end)
}

#[test]
fn a_trailer_tells_where_the_checksums_are() -> TestResult {
    for num_bytes in [100, 4_095, 4_096, 4_097, 1 << 20, 65 << 20] {
        let file = checked_file(num_bytes).ok_or("it ends like a file of Lance")?;
        let found = parse(&file, file.len()).map_err(|unread| format!("{unread:?}"))?;
        assert_eq!((found.covered, found.file_bytes()), (num_bytes as u64, file.len() as u64));
        let num_segments = (num_bytes as u64).div_ceil(SECTOR_BYTES).div_ceil(SEGMENT_SECTORS);
        for index in 0..num_segments {
            let bytes = found.segment(index);
            assert!(found.is_segment(index, &file[bytes.start as usize..bytes.end as usize]));
        }
        assert!(found.has_end(0, &file) && found.has_end(num_bytes as u64 / 2, &file[num_bytes / 2..num_bytes]));
        let mut other = file.clone();
        *other.last_mut().ok_or("it has bytes")? ^= 1;
        assert!(!found.has_end(0, &other));
        // If it is given too few bytes, the parser returns where the needed bytes begin.
        let mut end_bytes = 100;
        while let Err(unread) = parse(&file, end_bytes) {
            let Unread::BeginsAt(at) = unread else { return Err(format!("{end_bytes} bytes: {unread:?}").into()) };
            assert!(file.len() - at as usize > end_bytes, "it asks for more");
            end_bytes = file.len() - at as usize;
        }
    }
    assert!(trailer("a", 50, &[1], &[0; 50]).is_none(), "no file of Lance");
    Ok(())
}

#[test]
fn a_flipped_bit_of_a_trailer_is_noticed() -> TestResult {
    let file = checked_file(10_000).ok_or("it ends like a file of Lance")?;
    let sums_end = 10_000 + 3 * 4;
    for at in sums_end..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let found = parse(&damaged, damaged.len());
            assert!(matches!(found, Err(Unread::Damaged(_))), "bit {bit} of byte {at}: {found:?}");
        }
    }
    let renamed = Trailer::parse("b-checked.lance", file.len() as u64, &file.into());
    assert_eq!(renamed.err(), Some(Unread::Damaged("the file was written under another name: a-checked.lance".into())));
    Ok(())
}

/// Occupies the only thread for blocking work until the returned sender is dropped.
fn busy_thread() -> std::sync::mpsc::Sender<()> {
    let (busy, done) = std::sync::mpsc::channel();
    drop(tokio::task::spawn_blocking(move || done.recv()));
    busy
}

#[test]
fn what_the_system_has_in_memory_is_read_without_another_thread() -> TestResult {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.lance");
        let written: Vec<u8> = (0..3 * READ_NOW_MAX).map(|index| (index * 7919 % 251) as u8).collect();
        std::fs::write(&path, &written)?;
        let (files, location) = (Arc::<OpenFiles>::default(), object_store::path::Path::from_absolute_path(&path)?);
        let read_part = |range: Range<u64>| local::read(&files, &location, Some(range), ReadFrom::Anywhere);
        let is_right =
            |fetched: &Fetched, range: Range<u64>| fetched.bytes == written[range.start as usize..range.end as usize];
        // A read that opens a file takes another thread, and so does a long read.
        let busy = busy_thread();
        assert!(read_part(5..9).now_or_never().is_none());
        drop(busy);
        assert!(is_right(&read_part(5..9).await?, 5..9));
        let busy = busy_thread();
        for range in [5..9, 0..READ_NOW_MAX, 3 * READ_NOW_MAX - 7..3 * READ_NOW_MAX, 8..8] {
            let fetched = read_part(range.clone()).now_or_never().ok_or("it was read a moment ago")??;
            assert!(is_right(&fetched, range.clone()) && fetched.start == range.start, "{range:?}");
        }
        let long = 1..READ_NOW_MAX + 2;
        assert!(read_part(long.clone()).now_or_never().is_none());
        drop(busy);
        assert!(is_right(&read_part(long.clone()).await?, long));
        // Beyond the end of a file there are no bytes, and a removed file cannot be read any more.
        let end = written.len() as u64;
        let (across, beyond) = (read_part(end - 2..end + 2).await?, read_part(end + 1..end + 2).await?);
        assert!(is_right(&across, end - 2..end) && beyond.bytes.is_empty());
        std::fs::remove_file(&path)?;
        let gone = read_part(5..9).await.err().ok_or("there is no such file")?;
        assert!(matches!(gone, object_store::Error::NotFound { .. }), "{gone}");
        Ok(())
    })
}

/// The rows of the light columns: the batches of a scan, then the batch of a take.
async fn read(folder: &Path) -> Result<Vec<RecordBatch>, Error> {
    let uri = folder.to_str().unwrap_or_default();
    let table = latest(&Lake::open(uri, &StorageOptions::default()).await?, &table_name("t")).await?;
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
    let table = latest(&Lake::open(uri, &StorageOptions::default()).await?, &table_name("t")).await?;
    let (columns, addrs) = (vec!["name".to_string()], addresses(&table));
    let found = match table.take_sound(&columns, &addrs).await {
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
