//! Opens arrays.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;

use super::layout::NpyLayout;
use super::parts::NpyColumn;
use crate::array_rows::{ArrayBlock, FORTRAN_READS_MAX, FileRows, FortranRows, RowBytes};
use crate::npy_header::{NPY_START_BYTES, NpyHeader};
use crate::{Error, Result};
use stoker_files::{FileBytes, Folder};

/// The most bytes of an array in Fortran's order that is read into memory.
const LOADED_BYTES_MAX: u64 = 64 << 20;

/// Opens the array of a `.npy` file.
pub(super) fn npy_block(folder: &dyn Folder, NpyColumn { column, file: name }: &NpyColumn) -> Result<ArrayBlock> {
    let file = folder.open(name).map_err(|source| Error::read(name, source))?;
    let mut start = [0; NPY_START_BYTES];
    let length = file.size().min(NPY_START_BYTES as u64);
    let start = start.get_mut(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    file.read_at(0, start).map_err(|source| Error::read(name, source))?;
    let malformed = |reason: String| Error::malformed(name, reason);
    let num_bytes = NpyHeader::num_bytes(start).map_err(malformed)?;
    if num_bytes as u64 > file.size() {
        return Err(malformed(format!("the header should have {num_bytes} bytes, and the file has {}", file.size())));
    }
    let mut bytes = vec![0; num_bytes];
    file.read_at(0, &mut bytes).map_err(|source| Error::read(name, source))?;
    let header = NpyHeader::parse(&bytes).map_err(malformed)?;
    let offset = num_bytes as u64;
    let layout = NpyLayout::try_new(name, column, &header, file.size().saturating_sub(offset))?;
    let source: Box<dyn RowBytes> = if layout.is_fortran {
        fortran_of_file(name, &layout, file, offset)?
    } else {
        Box::new(FileRows::new(file, offset))
    };
    Ok(block(layout, source))
}

/// Reads the header of an array from a stream that begins with it.
pub(super) fn header_of(name: &str, stream: &mut impl Read) -> Result<NpyHeader> {
    let mut bytes = vec![0; NPY_START_BYTES];
    stream.read_exact(&mut bytes).map_err(|source| unreadable(name, source))?;
    let malformed = |reason: String| Error::malformed(name, reason);
    let num_bytes = NpyHeader::num_bytes(&bytes).map_err(malformed)?;
    let left = (num_bytes as u64).saturating_sub(bytes.len() as u64);
    stream.take(left).read_to_end(&mut bytes).map_err(|source| unreadable(name, source))?;
    NpyHeader::parse(&bytes).map_err(malformed)
}

/// Returns the rows of an array in Fortran's order at an offset of a file.
pub(super) fn fortran_of_file(
    name: &str,
    layout: &NpyLayout,
    file: Arc<dyn FileBytes>,
    offset: u64,
) -> Result<Box<dyn RowBytes>> {
    let Some(column) = layout.columns.first() else { return Err(too_large(name, layout)) };
    if column.num_elements() <= FORTRAN_READS_MAX {
        return Ok(fortran(layout, file, offset));
    }
    let num_bytes = loaded_bytes(name, layout)?;
    let mut bytes = vec![0; usize::try_from(num_bytes).unwrap_or(usize::MAX)];
    file.read_at(offset, &mut bytes).map_err(|source| Error::read(name, source))?;
    Ok(fortran(layout, Arc::new(Bytes::from(bytes)), 0))
}

/// Returns the rows of an array in Fortran's order that a stream has next. `room` is the number of bytes that may be read
/// into memory; those of the array are taken off.
pub(super) fn fortran_of_stream(
    name: &str,
    layout: &NpyLayout,
    stream: &mut impl Read,
    room: &mut u64,
) -> Result<Box<dyn RowBytes>> {
    let num_bytes = loaded_bytes(name, layout)?;
    *room = room.checked_sub(num_bytes).ok_or_else(|| too_large(name, layout))?;
    let mut bytes = Vec::new();
    stream.take(num_bytes).read_to_end(&mut bytes).map_err(|source| unreadable(name, source))?;
    if bytes.len() as u64 != num_bytes {
        return Err(Error::malformed(name, format!("the array has {} of its {num_bytes} bytes", bytes.len())));
    }
    Ok(fortran(layout, Arc::new(Bytes::from(bytes)), 0))
}

fn fortran(layout: &NpyLayout, file: Arc<dyn FileBytes>, offset: u64) -> Box<dyn RowBytes> {
    let (element_bytes, shape) = match layout.columns.first() {
        Some(column) => (column.layout.element.num_bytes(), column.shape.as_slice()),
        None => (1, &[][..]),
    };
    Box::new(FortranRows::new(file, offset, layout.num_rows, element_bytes, shape))
}

/// Returns the number of bytes of an array, if it may be read into memory.
fn loaded_bytes(name: &str, layout: &NpyLayout) -> Result<u64> {
    let num_bytes = layout.num_rows.saturating_mul(layout.row_bytes as u64);
    if num_bytes > LOADED_BYTES_MAX { Err(too_large(name, layout)) } else { Ok(num_bytes) }
}

fn too_large(name: &str, layout: &NpyLayout) -> Error {
    let reason = format!(
        "the array is in Fortran's order, in which the {} bytes of a row lie apart, and it is too large for memory; save \
         np.ascontiguousarray(x)",
        layout.row_bytes
    );
    Error::malformed(name, reason)
}

/// Returns the block of an array.
pub(super) fn block(layout: NpyLayout, source: Box<dyn RowBytes>) -> ArrayBlock {
    ArrayBlock { num_rows: layout.num_rows, row_bytes: layout.row_bytes, columns: layout.columns, source }
}

pub(super) fn unreadable(name: &str, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Error::malformed(name, source),
        _ => Error::read(name, source),
    }
}
