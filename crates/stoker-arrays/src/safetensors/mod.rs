//! Files of tensors: `.safetensors`.
//!
//! Each tensor is a column. The first dimension of a tensor is the rows, and the rest of it the shape of each row; all
//! tensors must have the same number of rows. The rows of several files come after one another, by the names of the files.
//! The texts in `__metadata__` do not become columns.

mod header;

use std::sync::Arc;

use self::header::{HEADER_BYTES_MAX, StoredTensor, tensors};
use crate::array_rows::{
    ArrayBlock, ArrayColumn, ArrayFiles, ArrayParts, ArrayReader, ElementLayout, ElementOrder, FileRows,
};
use crate::{Error, Result};
use stoker_files::file_names::{ending, is_hidden};
use stoker_files::refuse_media;
use stoker_files::{FileBytes, FileFormat, Folder, FormatOptions, RowFiles};

/// The format of `.safetensors` files.
#[derive(Clone, Copy, Debug)]
pub struct SafetensorsFormat;

impl FileFormat for SafetensorsFormat {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        let is_tensors = |name: &&str| !is_hidden(name) && ending(name).is_some_and(|ending| ending == "safetensors");
        let names = folder.files().iter().map(|file| file.name.as_str()).filter(is_tensors);
        let names: Vec<String> = names.map(str::to_string).collect();
        (!names.is_empty()).then_some(names)
    }

    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        refuse_media(options)?;
        Ok(Box::new(ArrayFiles::try_new(TensorParts { folder, names: files })?))
    }
}

/// Files whose rows come after one another.
#[derive(Debug)]
struct TensorParts {
    folder: Arc<dyn Folder>,
    names: Vec<String>,
}

impl ArrayParts for TensorParts {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, part: usize) -> Result<ArrayReader> {
        let Some(name) = self.names.get(part) else {
            return Err(Error::malformed("the folder", format!("it has no part {part} of .safetensors files")));
        };
        let file = self.folder.open(name).map_err(|source| Error::read(name, source))?;
        let (offset, tensors) = read_header(name, file.as_ref())?;
        let blocks: Result<Vec<_>> = tensors.iter().map(|tensor| block(name, &file, offset, tensor)).collect();
        ArrayReader::try_new(name, blocks?)
    }
}

/// Returns the offset at which the bytes of tensors begin, and the tensors.
fn read_header(name: &str, file: &dyn FileBytes) -> Result<(u64, Vec<StoredTensor>)> {
    let malformed = |reason: String| Error::malformed(name, reason);
    if file.size() < 8 {
        return Err(malformed(format!("it is no safetensors file: it has {} bytes only", file.size())));
    }
    let mut length = [0; 8];
    file.read_at(0, &mut length).map_err(|source| Error::read(name, source))?;
    let (length, left) = (u64::from_le_bytes(length), file.size() - 8);
    if length > left.min(HEADER_BYTES_MAX) {
        let reason = format!(
            "it is no safetensors file, or it is cut off: its header should have {length} bytes, of {left} in the file; the most \
             are {HEADER_BYTES_MAX}"
        );
        return Err(malformed(reason));
    }
    let mut header = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_at(8, &mut header).map_err(|source| Error::read(name, source))?;
    Ok((8 + length, tensors(&header, left - length).map_err(malformed)?))
}

fn block(name: &str, file: &Arc<dyn FileBytes>, offset: u64, tensor: &StoredTensor) -> Result<ArrayBlock> {
    let Some((num_rows, shape)) = tensor.shape.split_first() else {
        let reason = "the tensor has no dimension, and so no rows; save x[None], whose first dimension is the rows";
        return Err(Error::Column { file: name.into(), column: tensor.name.clone(), reason: reason.into() });
    };
    let layout = ElementLayout { element: tensor.element.clone(), order: ElementOrder::Little };
    let column = ArrayColumn::try_new(name, &tensor.name, layout, shape, 0)?;
    let source = FileRows::new(file.clone(), offset.saturating_add(tensor.start));
    Ok(ArrayBlock { num_rows: *num_rows, row_bytes: column.num_bytes, columns: vec![column], source: Box::new(source) })
}
