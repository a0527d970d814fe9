//! Tests of the formats, on files in memory.

mod media;

use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow_array::RecordBatch;

use stoker_files::MemoryFolder;

use crate::{BadRow, FileFormat, Folder, FormatOptions, Result, RowFiles, RowReader};

/// Plans all files of a folder that a format recognises.
pub(super) fn plan(format: &dyn FileFormat, folder: Arc<dyn Folder>) -> Result<Box<dyn RowFiles>> {
    let files = format.recognise(folder.as_ref()).expect("files of the format");
    format.plan(folder, files, &FormatOptions::default())
}

/// Reads the rest of a file, and checks the sizes of batches. The number of batches is returned, too.
pub(super) fn read_file(reader: &mut dyn RowReader, bytes_max: usize) -> Result<(Vec<RecordBatch>, Vec<BadRow>)> {
    let (mut batches, mut bad) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next(bytes_max)? {
        assert!(batch.batch.num_rows() + batch.bad.len() > 0, "a batch without rows");
        batches.push(batch.batch);
        bad.extend(batch.bad);
    }
    assert!(reader.next(bytes_max)?.is_none(), "a file ends once");
    Ok((batches, bad))
}

/// Reads all rows of a folder in batches of about `bytes_max` bytes.
pub(super) fn read_in(
    format: &dyn FileFormat,
    folder: Arc<dyn Folder>,
    bytes_max: usize,
) -> Result<(RecordBatch, Vec<BadRow>)> {
    let files = plan(format, folder)?;
    let (mut batches, mut bad) = (Vec::new(), Vec::new());
    for file in 0..files.files().len() {
        let (more, more_bad) = read_file(files.read(file)?.as_mut(), bytes_max)?;
        for batch in &more {
            assert_eq!(batch.schema(), files.schema());
        }
        batches.extend(more);
        bad.extend(more_bad);
    }
    Ok((concat_batches(&files.schema(), &batches).expect("batches of one schema"), bad))
}

/// Reads all rows of a folder in small and in large batches, which must be equal.
pub(super) fn read_all(format: &dyn FileFormat, folder: Arc<dyn Folder>) -> Result<(RecordBatch, Vec<BadRow>)> {
    let large = read_in(format, folder.clone(), 1 << 20)?;
    for bytes_max in [1, 50] {
        assert_eq!(read_in(format, folder.clone(), bytes_max)?, large);
    }
    Ok(large)
}

/// Reads all rows of a folder, none of which is bad.
pub(super) fn rows(format: &dyn FileFormat, folder: Arc<dyn Folder>) -> RecordBatch {
    let (rows, bad) = read_all(format, folder).expect("rows");
    assert_eq!(bad, []);
    rows
}

/// Checks that a folder is refused, with all texts in the message.
pub(super) fn refuses(format: &dyn FileFormat, folder: Arc<dyn Folder>, texts: &[&str]) {
    let message = match read_in(format, folder, 1 << 20) {
        Ok((rows, bad)) => panic!("there should be no rows with {texts:?}: {rows:?}, {bad:?}"),
        Err(error) => error.to_string(),
    };
    for text in texts {
        assert!(message.contains(text), "{message} should have {text}");
    }
}
