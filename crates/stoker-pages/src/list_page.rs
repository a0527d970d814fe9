//! The description of a page of lists.

use std::ops::Range;

use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::page_layout::Layout;
use lance_encoding::format::metadata::{MiniBlockLayout, RepDefLayer};

use crate::chunk_parts::NUMBER_BUFFERS_MAX;
use crate::error::Result;
use crate::levels::{LevelCodec, ListLevels};
use crate::numbers::NumberCodec;
use crate::{ListChunks, Unsupported};

/// A page of lists of numbers, each of which is one row.
#[derive(Clone, Debug)]
pub struct ListPage {
    pub(crate) num_rows: u64,
    pub(crate) num_items: u64,
    /// Whether chunks may be larger than 32 KiB, which gives wider fields.
    pub(crate) has_large_chunks: bool,
    /// The number of buffers of compressed numbers in each chunk.
    pub(crate) num_buffers: usize,
    pub(crate) levels: ListLevels,
    pub(crate) numbers: NumberCodec,
    sizes: Range<u64>,
    data: Range<u64>,
    row_counts: Range<u64>,
}

impl ListPage {
    /// Checks that this crate decodes a page of a column. `width` are the bytes of each number of its lists.
    ///
    /// # Errors
    /// [`Unsupported`] if Lance's decoder has to read the page.
    pub fn try_new(page: &PageInfo, width: usize) -> std::result::Result<Self, Unsupported> {
        let unsupported = |reason| Err(Unsupported { reason });
        let PageEncoding::Structural(layout) = &page.encoding else {
            return unsupported("a page has an older encoding");
        };
        let Some(Layout::MiniBlockLayout(layout)) = &layout.layout else {
            return unsupported("a page is not divided into small chunks");
        };
        if layout.dictionary.is_some() {
            return unsupported("a page has a dictionary");
        }
        if layout.repetition_index_depth != 1 || layout.num_buffers > NUMBER_BUFFERS_MAX as u64 {
            return unsupported("a page has another index of its rows");
        }
        let [sizes, data, row_counts] = page.buffer_offsets_and_sizes[..] else {
            return unsupported("a page has other buffers");
        };
        let range = |(offset, size): (u64, u64)| Some(offset..offset.checked_add(size)?);
        let (Some(sizes), Some(data), Some(row_counts)) = (range(sizes), range(data), range(row_counts)) else {
            return unsupported("a page has other buffers");
        };
        if data.end - data.start > u64::from(u32::MAX) || page.num_rows > u64::from(u32::MAX) {
            return unsupported("a page is larger than 4 GiB");
        }
        let (levels, numbers) = codecs(layout, width)?;
        Ok(Self {
            num_rows: page.num_rows,
            num_items: layout.num_items,
            has_large_chunks: layout.has_large_chunk,
            num_buffers: usize::try_from(layout.num_buffers).unwrap_or_default(),
            levels,
            numbers,
            sizes,
            data,
            row_counts,
        })
    }

    /// The number of rows.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// The ranges of the file that [`ListPage::chunk_index`] needs.
    pub fn index_ranges(&self) -> [Range<u64>; 2] {
        [self.sizes.clone(), self.row_counts.clone()]
    }

    /// The range of the file that holds the chunks.
    pub fn data_range(&self) -> Range<u64> {
        self.data.clone()
    }

    /// Reads the index of the page's chunks from the bytes of [`ListPage::index_ranges`].
    ///
    /// # Errors
    /// [`BadPage`] if the chunks are not those of the page.
    pub fn chunk_index(&self, sizes: &[u8], row_counts: &[u8]) -> Result<ListChunks> {
        ListChunks::parse(self, sizes, row_counts)
    }
}

/// Returns how the levels and the numbers of a page are compressed.
fn codecs(layout: &MiniBlockLayout, width: usize) -> std::result::Result<(ListLevels, NumberCodec), Unsupported> {
    let unsupported = |reason| Unsupported { reason };
    let (has_nulls, has_empty) = match layout.layers[..] {
        [item, list] if item == RepDefLayer::RepdefAllValidItem as i32 => match RepDefLayer::try_from(list) {
            Ok(RepDefLayer::RepdefAllValidList) => (false, false),
            Ok(RepDefLayer::RepdefNullableList) => (true, false),
            Ok(RepDefLayer::RepdefEmptyableList) => (false, true),
            Ok(RepDefLayer::RepdefNullAndEmptyList) => (true, true),
            _ => return Err(unsupported("a page has no lists")),
        },
        _ => return Err(unsupported("a page has nulls in its lists, or deeper lists")),
    };
    let Some(rep) = &layout.rep_compression else { return Err(unsupported("a page has no levels")) };
    let def = layout.def_compression.as_ref().map(LevelCodec::try_new).transpose()?;
    if def.is_some() != (has_nulls || has_empty) {
        return Err(unsupported("a page has other levels than its lists"));
    }
    let Some(numbers) = &layout.value_compression else { return Err(unsupported("a page has no values")) };
    Ok((ListLevels { rep: LevelCodec::try_new(rep)?, def, has_nulls }, NumberCodec::try_new(numbers, width)?))
}
