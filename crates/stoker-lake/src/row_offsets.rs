//! Checks the offsets of variable-width values before Lance relies on them.
//!
//! A page of wide values has two buffers: the values, and the offsets at which each row begins, with the end of the
//! last row. Lance reads whatever lies between two of these offsets, and never ends if the second is smaller
//! (lance-file 14.0.2, `io.rs`, `submit_request`). Therefore the offsets of local files are read once, before the first
//! rows of a file are taken: 1 to 8 bytes per row. On object stores this check would cost one more request per page,
//! and would find nothing that the stores' own checksums do not find, so offsets are not checked there.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use futures::{StreamExt, TryStreamExt, stream};
use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::page_layout::Layout;
use lance_table::format::Fragment;
use stoker_types::to_usize;

use crate::{Error, RangeReader, Result, Table};

/// Lance's names of the types of variable width.
const VARIABLE: [&str; 4] = ["binary", "large_binary", "string", "large_string"];

/// The number of files that are read at the same time.
const FILES_IN_FLIGHT: usize = 4;

/// The maximum width of an offset, in bytes.
const OFFSET_BYTES_MAX: u64 = 8;

impl Table {
    /// Checks the value offsets of these columns in the local files of these fragments, each file once per lake.
    ///
    /// # Errors
    /// `DataCorrupt` naming the file; storage errors.
    pub(crate) async fn check_row_offsets(&self, columns: &HashSet<&str>, fragments: &[&Fragment]) -> Result<()> {
        if !self.is_local() {
            return Ok(());
        }
        let fields = self.dataset().schema().fields.iter().filter(|field| columns.contains(field.name.as_str()));
        let fields = fields.filter(|field| VARIABLE.contains(&field.logical_type.to_string().as_str()));
        let ids: Vec<i32> = fields.map(|field| field.id).collect();
        let mut unchecked = Vec::new();
        for fragment in fragments {
            for id in &ids {
                let Some(file) = fragment.files.iter().find(|file| file.fields.contains(id)) else { continue };
                let key = format!("{}@{id}", self.dataset().data_dir().join(file.path.as_str()));
                if !self.lake().inner.checked.contains(&key) {
                    unchecked.push((to_usize(fragment.id), *id, key));
                }
            }
        }
        if unchecked.is_empty() {
            return Ok(());
        }
        let mut checks = stream::iter(unchecked)
            .map(|(fragment, id, key)| async move {
                self.check_file_offsets(fragment, id).await?;
                Ok::<_, Error>(key)
            })
            .buffer_unordered(FILES_IN_FLIGHT);
        while let Some(key) = checks.try_next().await? {
            self.lake().inner.checked.insert(key);
        }
        Ok(())
    }

    async fn check_file_offsets(&self, fragment: usize, field_id: i32) -> Result<()> {
        let Some(fragment) = self.dataset().get_fragment(fragment) else { return Ok(()) };
        let found = self.field_file(&self.footer_scheduler(), &fragment, field_id).await?;
        // A column that cannot be read as plain bytes, as in an older file format, has offsets of another form, which
        // are not checked.
        let Ok((file, metadata, index)) = found else { return Ok(()) };
        let reader = self.store_reader(&file, metadata.file_size_bytes);
        let attempted = format!("reading where values begin in {}", reader.place());
        let work = move || {
            let reader = reader.open()?;
            let pages = &metadata.column_infos[index].page_infos;
            pages.iter().try_for_each(|page| check_page(&reader, page))
        };
        tokio::task::spawn_blocking(work).await.map_err(|source| Error::storage(attempted, source))?
    }
}

/// Checks the offsets of one page, if it has any.
fn check_page(reader: &RangeReader, page: &PageInfo) -> Result<()> {
    let PageEncoding::Structural(layout) = &page.encoding else { return Ok(()) };
    let (Some(Layout::FullZipLayout(_)), Some(file)) = (&layout.layout, reader.local()) else { return Ok(()) };
    let [(_, values_bytes), (offset, bytes), ..] = *page.buffer_offsets_and_sizes else { return Ok(()) };
    if bytes == 0 {
        // All values are empty.
        return Ok(());
    }
    let attempted = || format!("reading where values begin in {}", reader.place());
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= reader.size());
    let width =
        page.num_rows.checked_add(1).filter(|num| is_inside && bytes.is_multiple_of(*num)).map(|num| bytes / num);
    let Some(width) = width.filter(|width| (1..=OFFSET_BYTES_MAX).contains(width)) else {
        let reason = format!("{bytes} bytes at {offset} are not the offsets of {} rows", page.num_rows);
        return Err(Error::DataCorrupt { attempted: attempted(), reason });
    };
    let stored = bytes_at(file, offset, to_usize(bytes)).map_err(|source| Error::storage(attempted(), source))?;
    match flaw(&stored, to_usize(width), values_bytes) {
        None => Ok(()),
        Some(reason) => Err(Error::DataCorrupt { attempted: attempted(), reason }),
    }
}

fn bytes_at(mut file: &File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Describes what is wrong with offsets of `width` bytes each into values of `values_bytes` bytes.
fn flaw(stored: &[u8], width: usize, values_bytes: u64) -> Option<String> {
    let mut before = 0;
    for (row, bytes) in stored.chunks_exact(width).enumerate() {
        let offset = bytes.iter().rev().fold(0u64, |offset, byte| offset << 8 | u64::from(*byte));
        if offset < before || offset > values_bytes {
            return Some(format!("row {row} of a page begins at {offset}, after {before}, of {values_bytes} bytes"));
        }
        before = offset;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::flaw;

    #[test]
    fn offsets_ascend_within_the_values() {
        let stored = |offsets: &[u16]| offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(flaw(&stored(&[0, 300, 300, 900]), 2, 900), None);
        assert!(flaw(&stored(&[0, 300, 900]), 2, 899).is_some());
        assert!(flaw(&stored(&[0, 300, 299, 900]), 2, 900).is_some_and(|reason| reason.starts_with("row 2")));
        assert_eq!(flaw(&[], 8, 0), None);
    }
}
