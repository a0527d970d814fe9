//! Reads a media file as a row.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeBinaryArray, RecordBatch, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{ArrowError, SchemaRef};

use super::FolderMedia;
use super::classes::ClassFolders;
use crate::{Error, Folder, Result, RowBatch, RowReader};

/// The most bytes of a file, which is a value in memory.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// A folder of files, and what their rows have.
#[derive(Debug)]
pub(super) struct MediaSource {
    pub folder: Arc<dyn Folder>,
    pub media: FolderMedia,
    pub schema: SchemaRef,
    pub classes: ClassFolders,
}

/// Reads a file, which is one row.
#[derive(Debug)]
pub(super) struct MediaReader {
    source: Arc<MediaSource>,
    /// The file; `None` after it was read.
    name: Option<String>,
}

impl MediaReader {
    pub fn new(source: Arc<MediaSource>, name: &str) -> Self {
        Self { source, name: Some(name.to_string()) }
    }
}

impl RowReader for MediaReader {
    fn next(&mut self, _bytes_max: usize) -> Result<Option<RowBatch>> {
        let Some(name) = self.name.take() else { return Ok(None) };
        let bytes = self.source.read(&name)?;
        let source_bytes = bytes.len() as u64;
        let batch = self.source.row(&name, bytes);
        let batch = batch.map_err(|error| Error::malformed(&name, format!("it could not become a row: {error}")))?;
        Ok(Some(RowBatch { batch, bad: Vec::new(), source_bytes }))
    }
}

impl MediaSource {
    /// Reads and checks a file.
    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let malformed = |reason: String| Error::malformed(name, reason);
        let listed = self.folder.file(name).ok_or_else(|| Error::read(name, std::io::ErrorKind::NotFound.into()))?;
        let open = self.folder.open(name).map_err(|source| Error::read(name, source))?;
        if open.size() != listed.bytes {
            let (now, then) = (open.size(), listed.bytes);
            return Err(malformed(format!("it has {now} bytes, and had {then} when the folder was listed")));
        }
        let length = usize::try_from(listed.bytes).ok().filter(|_| listed.bytes <= FILE_BYTES_MAX);
        let Some(length) = length else {
            return Err(malformed(format!("it has {} bytes; the most are {FILE_BYTES_MAX}", listed.bytes)));
        };
        let mut bytes = Vec::new();
        let full = |error| malformed(format!("its {length} bytes do not fit memory: {error}"));
        bytes.try_reserve_exact(length).map_err(full)?;
        bytes.resize(length, 0);
        open.read_at(0, &mut bytes).map_err(|source| Error::read(name, source))?;
        self.media.check(&bytes).map_err(malformed)?;
        Ok(bytes)
    }

    /// Makes the row of a file.
    fn row(&self, name: &str, bytes: Vec<u8>) -> Result<RecordBatch, ArrowError> {
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let class = self.classes.class_of(name);
        let number = |value: i64| -> ArrayRef { Arc::new(Int64Array::from_value(value, 1)) };
        let text = |value: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values([value])) };
        let media = LargeBinaryArray::try_new(OffsetBuffer::new(vec![0, size].into()), Buffer::from_vec(bytes), None)?;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(media)];
        // The first field is that of the media.
        columns.extend(self.schema.fields().iter().skip(1).map(|field| match field.name().as_str() {
            "label" => number(class.label),
            "label_name" => text(class.class),
            "split" => text(class.split),
            "size" => number(size),
            _ => text(name),
        }));
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}
