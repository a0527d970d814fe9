//! Tests of ingests into local lakes.

mod appending;
mod compress;
mod files;
mod files_changed;
mod files_columns;
mod files_format;
mod imagefolder;
mod jobs;
mod parquet;
mod parquet_rows;
mod places;
mod recognise;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use futures::TryStreamExt;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use stoker_lake::{LakeStore, ScanRequest, StorageOptions};
use stoker_types::{SnapshotRef, TableName};
use tempfile::TempDir;

use crate::{ImageFolderOptions, IngestReport, NoProgress, Progress, Result, ingest_imagefolder};

/// A lake, and a folder for sources.
struct World {
    root: TempDir,
    lake: LakeStore,
    table: TableName,
}

impl World {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let uri = root.path().join("lake");
        let lake = LakeStore::open(uri.to_str().unwrap(), &StorageOptions::default()).await.unwrap();
        Self { root, lake, table: TableName::try_new("data").unwrap() }
    }

    fn source(&self) -> PathBuf {
        self.root.path().join("source")
    }

    /// Writes a file below the source folder.
    fn put(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let path = self.source().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes three classes with two images each, of 4x6 pixels.
    fn put_images(&self) {
        for (index, name) in ["b/1.png", "b/2.png", "a/1.png", "a/deep/2.png", "c/1.png", "c/2.png"].iter().enumerate()
        {
            self.put(name, &png(4, 6, index as u8));
        }
    }

    async fn ingest(&self, options: &ImageFolderOptions) -> Result<IngestReport> {
        ingest_imagefolder(&self.lake, &self.source(), &self.table, options, &NoProgress).await
    }

    /// Reads all rows of the table.
    async fn rows(&self) -> RecordBatch {
        let table = self.lake.table(&self.table, &SnapshotRef::Latest).await.unwrap();
        let columns = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        let request = ScanRequest { columns, ..ScanRequest::default() };
        let batches: Vec<RecordBatch> = table.scan(&request).await.unwrap().try_collect().await.unwrap();
        concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    async fn exists(&self) -> bool {
        self.lake.table(&self.table, &SnapshotRef::Latest).await.is_ok()
    }
}

fn pixels(height: u32, width: u32, seed: u8) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([x as u8 * 10, y as u8 * 10, seed]))
}

fn encode(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn png(height: u32, width: u32, seed: u8) -> Vec<u8> {
    encode(pixels(height, width, seed), ImageFormat::Png)
}

/// Asks the ingest to stop after this number of questions.
struct StopAfter(AtomicU64);

impl StopAfter {
    fn new(questions: u64) -> Self {
        Self(AtomicU64::new(questions))
    }
}

impl Progress for StopAfter {
    fn total(&self, _files: u64, _bytes: u64) {}

    fn advance(&self, _files: u64, _rows: u64, _bytes: u64) {}

    fn should_stop(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

/// Counts the files below a folder whose path contains a word.
fn files_with(dir: &Path, word: &str) -> usize {
    let entries = walkdir::WalkDir::new(dir).into_iter().filter_map(Result::<_, walkdir::Error>::ok);
    entries.filter(|entry| entry.file_type().is_file() && entry.path().to_string_lossy().contains(word)).count()
}
