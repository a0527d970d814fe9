//! ZIP files of arrays.

use std::sync::Arc;

use super::layout::NpyLayout;
use super::open::{block, fortran_of_file, fortran_of_stream, header_of};
use crate::array_rows::{ArrayBlock, FORTRAN_READS_MAX, RowBytes};
use crate::zip_directory::{ZipMember, ZipMethod, zip_members};
use crate::zip_reader::ZipReader;
use crate::{Error, Result};
use stoker_files::{FileBytes, Folder};

/// The bytes that all members of a file read ahead, and the most and the fewest that one member reads.
const AHEAD_BYTES: usize = 32 << 20;
const STEP_BYTES_MAX: usize = 1 << 20;
const STEP_BYTES_MIN: usize = 8 << 10;

/// The most bytes of a file's arrays in Fortran's order that are read into memory.
const LOADED_BYTES_MAX: u64 = 256 << 20;

/// Opens the arrays of a `.npz` file. Members are read beside each other, each from its beginning to its end.
pub(super) fn npz_blocks(folder: &dyn Folder, name: &str) -> Result<Vec<ArrayBlock>> {
    let file = folder.open(name).map_err(|source| Error::read(name, source))?;
    let members = zip_members(file.as_ref()).map_err(|reason| Error::malformed(name, reason))?;
    let step = (AHEAD_BYTES / members.len().max(1)).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
    let mut room = LOADED_BYTES_MAX;
    members.iter().map(|member| member_block(name, &file, member, step, &mut room)).collect()
}

fn member_block(
    name: &str,
    file: &Arc<dyn FileBytes>,
    member: &ZipMember,
    step: usize,
    room: &mut u64,
) -> Result<ArrayBlock> {
    let shown = format!("{name}: {}", member.name.escape_debug());
    let Some(column) = member.name.strip_suffix(".npy") else {
        return Err(Error::malformed(&shown, "the member is no .npy file; members of .npz files are arrays"));
    };
    let malformed = |reason| Error::malformed(&shown, reason);
    let mut reader = ZipReader::open(file, member, step).map_err(malformed)?;
    let header = header_of(&shown, &mut reader)?;
    let offset = header.data_offset as u64;
    let layout = NpyLayout::try_new(&shown, column, &header, member.num_bytes.saturating_sub(offset))?;
    let reads_strips = layout.columns.first().is_some_and(|column| column.num_elements() <= FORTRAN_READS_MAX);
    let source: Box<dyn RowBytes> = match member.method {
        _ if !layout.is_fortran => Box::new(reader),
        // The checksum is that of the whole member, which is not read in its order.
        ZipMethod::Stored if reads_strips => {
            let start = member.data_offset(file.as_ref()).map_err(malformed)?;
            fortran_of_file(&shown, &layout, file.clone(), start.saturating_add(offset))?
        }
        ZipMethod::Stored | ZipMethod::Deflated => fortran_of_stream(&shown, &layout, &mut reader, room)?,
    };
    Ok(block(layout, source))
}
