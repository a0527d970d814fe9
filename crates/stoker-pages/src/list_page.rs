//! The description of a page of lists.

use std::ops::Range;
use std::sync::Arc;

use lance_encoding::buffer::LanceBuffer;
use lance_encoding::compression::{
    BlockDecompressor, DecompressionStrategy, DefaultDecompressionStrategy, MiniBlockDecompressor,
};
use lance_encoding::data::DataBlock;
use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::page_layout::Layout;
use lance_encoding::format::metadata::{MiniBlockLayout, RepDefLayer};

use crate::chunk_levels::ListLevels;
use crate::error::Result;
use crate::{BadPage, ListChunks, Unsupported};

/// A page of lists of numbers, each of which is one row.
#[derive(Clone, Debug)]
pub struct ListPage {
    pub(crate) num_rows: u64,
    pub(crate) num_items: u64,
    /// Whether chunks may be larger than 32 KiB, which gives wider fields.
    pub(crate) has_large_chunks: bool,
    pub(crate) num_value_buffers: usize,
    /// The bytes of a number.
    pub(crate) width: usize,
    pub(crate) levels: ListLevels,
    values: Arc<dyn MiniBlockDecompressor>,
    sizes: Range<u64>,
    data: Range<u64>,
    row_counts: Range<u64>,
}

/// The most buffers of values in a chunk. Pages with more are left to Lance.
const VALUE_BUFFERS_MAX: u64 = 8;

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
        if layout.repetition_index_depth != 1 || layout.num_buffers > VALUE_BUFFERS_MAX {
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
        let (levels, values) = decompressors(layout)?;
        Ok(Self {
            num_rows: page.num_rows,
            num_items: layout.num_items,
            has_large_chunks: layout.has_large_chunk,
            num_value_buffers: usize::try_from(layout.num_buffers).unwrap_or_default(),
            width,
            levels,
            values,
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

    /// Decompresses the numbers of a chunk.
    pub(crate) fn decompress(&self, buffers: Vec<LanceBuffer>, num_items: u64) -> Result<LanceBuffer> {
        let block = self.values.decompress(buffers, num_items).map_err(BadPage::new)?;
        let DataBlock::FixedWidth(block) = block else {
            return Err(BadPage::new(format!("a chunk of numbers holds {}", block.name())));
        };
        let bytes = num_items.checked_mul(self.width as u64);
        if block.bits_per_value != self.width as u64 * 8 || bytes.is_none_or(|bytes| (block.data.len() as u64) < bytes)
        {
            let (bits, length) = (block.bits_per_value, block.data.len());
            return Err(BadPage::new(format!("{num_items} numbers of a chunk have {length} bytes, {bits} bits each")));
        }
        Ok(block.data)
    }
}

type Decompressors = (ListLevels, Arc<dyn MiniBlockDecompressor>);

/// Returns how the levels and the numbers of a page are decompressed.
fn decompressors(layout: &MiniBlockLayout) -> std::result::Result<Decompressors, Unsupported> {
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
    let strategy = DefaultDecompressionStrategy::default();
    let block = |encoding| -> std::result::Result<Arc<dyn BlockDecompressor>, Unsupported> {
        let made = strategy.create_block_decompressor(encoding);
        made.map(Arc::from).map_err(|_| unsupported("a page has levels of an unknown encoding"))
    };
    let Some(rep) = &layout.rep_compression else { return Err(unsupported("a page has no levels")) };
    let def = layout.def_compression.as_ref().map(block).transpose()?;
    if def.is_some() != (has_nulls || has_empty) {
        return Err(unsupported("a page has other levels than its lists"));
    }
    let Some(values) = &layout.value_compression else { return Err(unsupported("a page has no values")) };
    let values = strategy.create_miniblock_decompressor(values, &strategy);
    let values = values.map_err(|_| unsupported("a page has numbers of an unknown encoding"))?;
    Ok((ListLevels { rep: block(rep)?, def, has_nulls }, values.into()))
}
