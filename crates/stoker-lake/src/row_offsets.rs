//! Where values of variable width lie in their files: checks of the offsets before Lance relies on them, and the places of
//! values that are plain bytes, of which parts are read without Lance.
//!
//! A page of wide values has two buffers: the values, and the offsets at which each row begins, with the end of the
//! last row. Lance reads whatever lies between two of these offsets, and never ends if the second is smaller
//! (lance-file 14.0.2, `io.rs`, `submit_request`). Therefore the offsets of local files are read once, before the first
//! rows of a file are taken: 1 to 8 bytes per row. On object stores this check would cost one more request per page,
//! and would find nothing that the stores' own checksums do not find, so offsets are not checked there.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use futures::{StreamExt, TryStreamExt, stream};
use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::{
    CompressiveEncoding, compressive_encoding::Compression, full_zip_layout::Details, page_layout::Layout,
};
use lance_table::format::Fragment;
use stoker_pages::little_endian;
use stoker_types::to_usize;

use crate::{Error, Obstacle, RangeReader, Result, Table};

/// Lance's names of the types of variable width.
const VARIABLE: [&str; 4] = ["binary", "large_binary", "string", "large_string"];

/// The number of files that are read at the same time.
const FILES_IN_FLIGHT: usize = 4;

/// The maximum width of an offset, in bytes.
const OFFSET_BYTES_MAX: u64 = 8;

/// The bytes before the only value of a page of large binary values: the number of its two buffers, their lengths, and the
/// two offsets of 64 bits (lance-arrow 14.0.2, `scalar.rs`, `encode_scalar_value_buffer`).
const CONSTANT_HEAD_BYTES: u64 = 4 + 2 * 4 + 2 * 8;

/// The part of a column of large binary values in one fragment, whose values are stored as plain bytes, row after row.
#[derive(Debug)]
pub struct ValueFile {
    /// The reader of the data file.
    pub reader: RangeReader,
    /// The pages, ascending.
    pub pages: Box<[ValuePage]>,
}

/// A page of values: for each row a length and the bytes, and apart from them where each row begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuePage {
    /// The rows, counted from the start of the fragment.
    pub rows: Range<u64>,
    /// The range of the file with the values.
    values: Range<u64>,
    /// The offset in the file at which it says where the rows begin, and the bytes of each of these numbers. Both are zero
    /// in a page whose rows have one value, or are null.
    begins: u64,
    width: u64,
    /// The bytes before a value: a mark of rows that are not null, in pages with nulls, and the length.
    head: u64,
}

impl ValueFile {
    /// Returns the number of the page with a row.
    pub fn page_of(&self, row: u64) -> Option<usize> {
        let number = self.pages.partition_point(|page| page.rows.end <= row);
        self.pages.get(number).filter(|page| page.rows.contains(&row)).map(|_| number)
    }
}

impl ValuePage {
    /// Returns whether all rows of the page have one value, or are null, so that [`ValuePage::value`] needs no bytes.
    pub fn is_constant(&self) -> bool {
        self.width == 0
    }

    /// Returns the range of the file that says where some rows of the page begin and end.
    pub fn begins_of(&self, rows: Range<u64>) -> Range<u64> {
        let at = |row: u64| self.begins + row.saturating_sub(self.rows.start) * self.width;
        at(rows.start)..at(rows.end) + self.width
    }

    /// Returns the range of the file with the value of the row with number `row` among those whose
    /// [`ValuePage::begins_of`] are `stored`. `None` for a null, and for numbers that are damaged.
    pub fn value(&self, stored: &[u8], row: u64) -> Option<Range<u64>> {
        if self.is_constant() {
            return (!self.values.is_empty()).then(|| self.values.clone());
        }
        let width = to_usize(self.width);
        let at = to_usize(row).checked_mul(width)?;
        let begin = little_endian(stored.get(at..)?.get(..width)?);
        let end = little_endian(stored.get(at + width..)?.get(..width)?);
        let (start, end) = (begin.checked_add(self.head)?, self.values.start.checked_add(end)?);
        let start = self.values.start.checked_add(start)?;
        (start <= end && end <= self.values.end).then_some(start..end)
    }
}

impl Table {
    /// Finds out where the values of a column of variable width lie in a fragment. Reads the footer of its data file.
    /// `Ok(Err(…))` says why parts of the values cannot be read.
    ///
    /// # Errors
    /// An unknown column or fragment; `DataCorrupt` for a file whose pages cannot lie where its page table says; storage
    /// errors.
    pub async fn value_file(&self, column: &str, fragment: u32) -> Result<Result<ValueFile, Obstacle>> {
        self.check_columns([&column.to_string()])?;
        let Some(found) = self.dataset().get_fragment(fragment as usize) else {
            let what = format!("fragment {fragment} of {}", self.snapshot());
            return Err(Error::NotFound { what, hint: String::new() });
        };
        let (file, metadata, index) = match self.column_file(&self.footer_scheduler(), &found, column).await? {
            Ok(found) => found,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        self.check_pages(&found, &file, &metadata, index, column)?;
        let pages = &metadata.column_infos[index].page_infos;
        let reader = self.store_reader(&file, metadata.file_size_bytes);
        let mut values = Vec::with_capacity(pages.len());
        let mut row = 0;
        for page in pages.iter() {
            match value_page(page, row) {
                Ok(page) => {
                    row = page.rows.end;
                    values.push(page);
                }
                Err(obstacle) => return Ok(Err(obstacle)),
            }
        }
        Ok(Ok(ValueFile { reader: reader.open()?, pages: values.into() }))
    }

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

/// Returns where the values of a page lie whose first row has the number `first_row`, or why they are no plain bytes.
fn value_page(page: &PageInfo, first_row: u64) -> Result<ValuePage, Obstacle> {
    let PageEncoding::Structural(layout) = &page.encoding else { return Err(Obstacle::OtherEncoding) };
    let zip = match &layout.layout {
        Some(Layout::FullZipLayout(zip)) => zip,
        Some(Layout::ConstantLayout(constant)) if constant.inline_value.is_none() => {
            return constant_page(page, first_row);
        }
        _ => return Err(Obstacle::NotRowByRow),
    };
    if zip.bits_rep != 0 || zip.bits_def > 8 {
        return Err(Obstacle::Nulls);
    }
    let Some(Details::BitsPerOffset(bits @ (32 | 64))) = zip.details else { return Err(Obstacle::OtherEncoding) };
    if !is_plain(zip.value_compression.as_ref()) {
        return Err(Obstacle::Compressed);
    }
    let [(start, length), (begins, bytes), ..] = *page.buffer_offsets_and_sizes else { return Err(Obstacle::NoBuffer) };
    let width = page.num_rows.checked_add(1).filter(|num| bytes.is_multiple_of(*num)).map(|num| bytes / num);
    let width = width.filter(|width| (1..=OFFSET_BYTES_MAX).contains(width)).ok_or(Obstacle::PageSize)?;
    let end = first_row.checked_add(page.num_rows).ok_or(Obstacle::RowsWithoutPages)?;
    let values = start..start.checked_add(length).ok_or(Obstacle::PageSize)?;
    let head = u64::from(bits / 8) + u64::from(zip.bits_def > 0);
    Ok(ValuePage { rows: first_row..end, values, begins, width, head })
}

/// Returns where the value lies that all rows of a page have: a page of one row has no list of its rows. Pages of nulls have
/// no value.
fn constant_page(page: &PageInfo, first_row: u64) -> Result<ValuePage, Obstacle> {
    let end = first_row.checked_add(page.num_rows).ok_or(Obstacle::RowsWithoutPages)?;
    let values = match *page.buffer_offsets_and_sizes {
        [(start, length)] => {
            let end = start.checked_add(length).ok_or(Obstacle::PageSize)?;
            let start = start.checked_add(CONSTANT_HEAD_BYTES).filter(|start| *start <= end);
            start.ok_or(Obstacle::PageSize)?..end
        }
        _ => 0..0,
    };
    Ok(ValuePage { rows: first_row..end, values, begins: 0, width: 0, head: 0 })
}

/// Returns whether values of variable width are stored as they are.
fn is_plain(encoding: Option<&CompressiveEncoding>) -> bool {
    let Some(Compression::Variable(variable)) = encoding.and_then(|encoding| encoding.compression.as_ref()) else {
        return false;
    };
    let offsets = variable.offsets.as_deref().and_then(|offsets| offsets.compression.as_ref());
    variable.values.is_none() && matches!(offsets, Some(Compression::Flat(flat)) if flat.data.is_none())
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
        let offset = little_endian(bytes);
        if offset < before || offset > values_bytes {
            return Some(format!("row {row} of a page begins at {offset}, after {before}, of {values_bytes} bytes"));
        }
        before = offset;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{ValuePage, flaw};

    #[test]
    fn offsets_ascend_within_the_values() {
        let stored = |offsets: &[u16]| offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(flaw(&stored(&[0, 300, 300, 900]), 2, 900), None);
        assert!(flaw(&stored(&[0, 300, 900]), 2, 899).is_some());
        assert!(flaw(&stored(&[0, 300, 299, 900]), 2, 900).is_some_and(|reason| reason.starts_with("row 2")));
        assert_eq!(flaw(&[], 8, 0), None);
    }

    #[test]
    fn values_lie_between_the_offsets_of_their_rows() {
        let page = ValuePage { rows: 10..13, values: 1_000..1_900, begins: 5_000, width: 2, head: 8 };
        let stored: Vec<u8> = [0u16, 300, 300, 901].iter().flat_map(|offset| offset.to_le_bytes()).collect();
        assert_eq!((page.begins_of(10..13), page.begins_of(11..12)), (5_000..5_008, 5_002..5_006));
        assert_eq!(page.value(&stored, 0), Some(1_008..1_300));
        assert_eq!(page.value(&stored, 1), None, "a row without the bytes of its length");
        assert_eq!(page.value(&stored, 2), None, "a row that ends after the values");
        assert_eq!(page.value(&stored[4..], 0), None);
        assert_eq!(page.value(&stored, 3), None);
        assert_eq!(page.value(&stored, u64::MAX), None);
        let one = ValuePage { rows: 10..11, values: 1_028..1_900, begins: 0, width: 0, head: 0 };
        assert_eq!((one.is_constant(), one.value(&[], 0)), (true, Some(1_028..1_900)));
        let nulls = ValuePage { rows: 10..13, values: 0..0, ..one };
        assert_eq!((nulls.begins_of(10..13), nulls.value(&[], 1)), (0..0, None));
    }
}
