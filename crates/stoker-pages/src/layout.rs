//! A check that the parts of a data file can lie at the offsets that its page tables say.
//!
//! Lance has no checksums, so a damaged offset would return wrong bytes without an error. But the layout that Lance's
//! writers use leaves no room for a wrong offset:
//!
//! ```text
//! page buffer | < 64 bytes of padding | page buffer | … | global buffer | … | column metadata | footer
//! ```
//!
//! Buffers do not overlap, pages begin at multiples of 64 bytes, and only padding lies between neighbours. So one
//! buffer with a wrong offset leaves a gap or overlaps another buffer. Source: lance-file 14.0.2,
//! `versions/v2_0/writer.rs`, `do_write_buffer`. Blobs lie between pages, and only the contents of other pages name
//! their offsets; so files with blobs may have gaps.

use lance_core::datatypes::Field;
use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::page_layout::Layout;
use lance_file::reader::CachedFileMetadata;

/// The alignment of page buffers in bytes.
const ALIGNMENT: u64 = 64;

/// What may lie between the listed parts of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gaps {
    /// Padding only.
    Padding,
    /// Anything, such as blobs or parts that only other versions of Lance write.
    Any,
}

/// The offset of a part of a file, and its size in bytes.
type Part = (u64, u64);

/// Describes what is wrong with the offsets of the parts of a file. `None` when nothing is.
pub fn misplaced(metadata: &CachedFileMetadata) -> Option<String> {
    // Lance computes `num_data_bytes` as the offset of the column metadata minus `num_global_buffer_bytes`, which may
    // wrap around. The sum of both is that offset again.
    let end = metadata.num_data_bytes.wrapping_add(metadata.num_global_buffer_bytes);
    let pages = || metadata.column_infos.iter().flat_map(|column| column.page_infos.iter());
    let parts = pages().flat_map(|page| page.buffer_offsets_and_sizes.iter().copied());
    let globals = metadata.file_buffers.iter().map(|buffer| (buffer.position, buffer.size));
    // Only older versions of Lance write column-level buffers that are not empty.
    let mut columns = metadata.column_infos.iter().flat_map(|column| column.buffer_offsets_and_sizes.iter());
    let has_others = columns.any(|(_, size)| *size > 0) || pages().any(is_blob_page);
    let has_others = has_others || metadata.file_schema.fields.iter().any(has_blobs);
    let gaps = if has_others { Gaps::Any } else { Gaps::Padding };
    flaw(parts.collect(), globals.collect(), end, gaps)
}

/// The check for given parts, which must end before the column metadata at `end`.
fn flaw(pages: Vec<Part>, globals: Vec<Part>, end: u64, gaps: Gaps) -> Option<String> {
    let is_packed = gaps == Gaps::Padding;
    if let Some((offset, _)) =
        pages.iter().find(|(offset, size)| is_packed && *size > 0 && !offset.is_multiple_of(ALIGNMENT))
    {
        return Some(format!("a page begins at byte {offset}, which is no multiple of {ALIGNMENT}"));
    }
    let mut parts: Vec<Part> = pages.into_iter().chain(globals).filter(|(_, size)| *size > 0).collect();
    parts.sort_unstable();
    let mut before = 0;
    for (offset, size) in parts {
        let part_end = offset.checked_add(size).filter(|part_end| *part_end <= end);
        let Some(part_end) = part_end else {
            return Some(format!("{size} bytes at {offset} do not end before the metadata at {end}"));
        };
        if offset < before {
            return Some(format!("{size} bytes at {offset} overlap those that end at {before}"));
        }
        if is_packed && offset - before >= ALIGNMENT {
            return Some(format!("bytes {before}..{offset} belong to no page or buffer"));
        }
        before = part_end;
    }
    (is_packed && end - before >= ALIGNMENT).then(|| format!("bytes {before}..{end} belong to no page or buffer"))
}

/// Whether the pages together have `num_rows` rows.
pub fn have_rows(pages: &[PageInfo], num_rows: u64) -> bool {
    let sum = pages.iter().try_fold(0u64, |sum, page| sum.checked_add(page.num_rows));
    sum == Some(num_rows)
}

/// Whether the values of a page lie outside of it, or the page has no structural encoding.
fn is_blob_page(page: &PageInfo) -> bool {
    match &page.encoding {
        PageEncoding::Structural(layout) => matches!(layout.layout, Some(Layout::BlobLayout(_))),
        _ => true,
    }
}

/// Whether values of a field, or of one of its children, may lie outside of pages.
fn has_blobs(field: &Field) -> bool {
    let is_blob = |text: &str| text.to_ascii_lowercase().contains("blob");
    is_blob(&field.logical_type.to_string())
        || field.metadata.iter().any(|(key, value)| is_blob(key) || is_blob(value))
        || field.children.iter().any(has_blobs)
}

#[cfg(test)]
mod tests {
    use super::{Gaps, flaw};

    #[test]
    fn a_buffer_that_moved_is_found() {
        let pages = vec![(0, 3_001), (3_008, 0), (3_008, 500), (3_520, 64)];
        let globals = vec![(3_584, 100), (3_712, 24)];
        let check = |pages: &[(u64, u64)], gaps| flaw(pages.to_vec(), globals.clone(), 3_776, gaps);
        assert_eq!(check(&pages, Gaps::Padding), None);
        for bit in 0..64 {
            for page in [0, 2, 3] {
                let mut moved = pages.clone();
                moved[page].0 ^= 1 << bit;
                assert!(check(&moved, Gaps::Padding).is_some(), "bit {bit} of page {page}");
            }
        }
        let without = [pages[0], pages[3]];
        assert_eq!(check(&without, Gaps::Any), None, "a blob lies in between");
        assert!(check(&without, Gaps::Padding).is_some_and(|reason| reason.contains("3001..3520")));
        assert!(check(&[(0, 3_001), (2_944, 64)], Gaps::Any).is_some_and(|reason| reason.contains("overlap")));
        assert!(check(&[(u64::MAX - 63, 64)], Gaps::Any).is_some_and(|reason| reason.contains("metadata")));
        assert!(flaw(Vec::new(), Vec::new(), 64, Gaps::Padding).is_some());
        assert_eq!(flaw(Vec::new(), Vec::new(), 0, Gaps::Padding), None);
    }
}
