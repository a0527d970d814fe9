//! Reads media files as rows.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeBinaryArray, RecordBatch, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, SchemaRef};

use super::FolderMedia;
use super::classes::{ClassFolders, ClassOf};
use super::group::MediaFile;
use crate::{BadRow, Error, Folder, Result, RowBatch, RowReader};

/// The most bytes of a file, which is a value in memory.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// A group of files, and what their rows have.
#[derive(Debug)]
pub(super) struct MediaSource {
    pub folder: Arc<dyn Folder>,
    pub media: FolderMedia,
    pub schema: SchemaRef,
    pub classes: Arc<ClassFolders>,
    pub files: Arc<[MediaFile]>,
}

/// Reads a group of files.
#[derive(Debug)]
pub(super) struct MediaReader {
    source: MediaSource,
    /// The index of the next file in the group.
    next: usize,
}

/// The files of a batch.
#[derive(Default)]
struct MediaValues<'a> {
    bytes: Vec<u8>,
    ends: Vec<i64>,
    names: Vec<&'a str>,
}

impl MediaReader {
    pub fn new(source: MediaSource) -> Self {
        Self { source, next: 0 }
    }
}

impl RowReader for MediaReader {
    fn next(&mut self, bytes_max: usize) -> Result<Option<RowBatch>> {
        let source = &self.source;
        let (mut values, mut bad, mut source_bytes) = (MediaValues::default(), Vec::new(), 0u64);
        let first = self.next;
        while let Some(file) = source.files.get(self.next) {
            let bytes = (values.bytes.len() as u64).saturating_add(file.bytes);
            if self.next > first && bytes > bytes_max as u64 {
                break;
            }
            let row = self.next as u64;
            self.next += 1;
            let before = values.bytes.len();
            match source.add(file, &mut values.bytes) {
                Ok(()) => {
                    values.ends.push(i64::try_from(values.bytes.len()).unwrap_or(i64::MAX));
                    values.names.push(&file.name);
                    source_bytes = source_bytes.saturating_add((values.bytes.len() - before) as u64);
                }
                Err(reason) => {
                    values.bytes.truncate(before);
                    bad.push(BadRow { row, reason: format!("{}: {reason}", file.name) });
                }
            }
        }
        if self.next == first {
            return Ok(None);
        }
        let name = source.files.first().map_or("", |file| file.name.as_str());
        let batch = source.batch(values);
        let batch = batch.map_err(|error| Error::malformed(name, format!("rows could not become a batch: {error}")))?;
        Ok(Some(RowBatch { batch, bad, source_bytes }))
    }
}

impl MediaSource {
    /// Adds the bytes of a file.
    ///
    /// # Errors
    /// Why the file cannot be a row. Some of its bytes may have been added.
    fn add(&self, file: &MediaFile, values: &mut Vec<u8>) -> Result<(), String> {
        let open = self.folder.open(&file.name).map_err(|error| format!("it could not be opened: {error}"))?;
        if open.size() != file.bytes {
            return Err(format!("it has {} bytes, and had {} when the folder was listed", open.size(), file.bytes));
        }
        let length = usize::try_from(file.bytes).ok().filter(|_| file.bytes <= FILE_BYTES_MAX);
        let Some(length) = length else {
            return Err(format!("it has {} bytes; the most are {FILE_BYTES_MAX}", file.bytes));
        };
        values.try_reserve_exact(length).map_err(|error| format!("its {length} bytes do not fit memory: {error}"))?;
        let start = values.len();
        values.resize(start + length, 0);
        let into = values.get_mut(start..).unwrap_or_default();
        open.read_at(0, into).map_err(|error| format!("it could not be read: {error}"))?;
        self.media.check(into)
    }

    fn batch(&self, values: MediaValues<'_>) -> Result<RecordBatch, ArrowError> {
        let MediaValues { bytes, ends, names } = values;
        let sizes = ends.iter().scan(0, |before, end| Some(*end - std::mem::replace(before, *end)));
        let sizes: ArrayRef = Arc::new(sizes.collect::<Int64Array>());
        let classes: Vec<ClassOf<'_>> = names.iter().map(|name| self.classes.class_of(name)).collect();
        let texts = |text: for<'a> fn(&ClassOf<'a>) -> &'a str| -> ArrayRef {
            Arc::new(classes.iter().map(|class| Some(text(class))).collect::<StringArray>())
        };
        let offsets: ScalarBuffer<i64> = std::iter::once(0).chain(ends).collect();
        let mut media = Some((OffsetBuffer::new(offsets), Buffer::from_vec(bytes)));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            columns.push(match (field.name().as_str(), media.take()) {
                (_, Some((offsets, bytes))) => Arc::new(LargeBinaryArray::try_new(offsets, bytes, None)?),
                ("label", None) => Arc::new(classes.iter().map(|class| Some(class.label)).collect::<Int64Array>()),
                ("label_name", None) => texts(|class| class.class),
                ("split", None) => texts(|class| class.split),
                ("size", None) => sizes.clone(),
                (_, None) => Arc::new(names.iter().map(|name| Some(*name)).collect::<StringArray>()),
            });
        }
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}
