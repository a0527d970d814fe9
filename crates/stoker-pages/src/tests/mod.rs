//! Tests of pages that Lance's encoders write, and of what is written.

mod checksum_entry;
mod fuzz;
mod lists;
mod pages;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema as ArrowSchema};
use bytes::Bytes;
use futures::executor::block_on;
use lance_core::datatypes::Schema;
use lance_encoding::compression_config::CompressionParams;
use lance_encoding::encoder::{EncodingOptions, FieldEncodingStrategy, encode_batch};
use lance_file::versions::{v2_1, v2_2};

use crate::{ChunksRead, ListChunks, ListPage, PageRows, Unsupported};

/// The pages of a column, and the bytes in which they lie.
pub(crate) struct Encoded {
    pub pages: Vec<Arc<ListPage>>,
    pub bytes: Bytes,
}

/// The encoders of the file versions 2.1 and 2.2. The first one writes small chunks, with narrower fields.
pub(crate) fn strategies() -> [Arc<dyn FieldEncodingStrategy>; 2] {
    [v2_1::encoding_strategy(CompressionParams::default()), v2_2::encoding_strategy(CompressionParams::default())]
}

/// Encodes an array as a column, whose field has these metadata. Lance makes several pages of very many empty rows.
pub(crate) fn encoded(
    array: &ArrayRef,
    strategy: &dyn FieldEncodingStrategy,
    metadata: &[(&str, &str)],
    width: usize,
) -> Result<Encoded, Unsupported> {
    let metadata = metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let field = Field::new("x", array.data_type().clone(), true).with_metadata(metadata);
    let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(vec![field])), vec![array.clone()]).unwrap();
    let schema = Arc::new(Schema::try_from(batch.schema().as_ref()).unwrap());
    let options = EncodingOptions { cache_bytes_per_column: 1 << 30, ..EncodingOptions::default() };
    let encoded = block_on(encode_batch(&batch, schema, strategy, &options)).unwrap();
    let pages = encoded.page_table[0].page_infos.iter().map(|page| ListPage::try_new(page, width).map(Arc::new));
    Ok(Encoded { pages: pages.collect::<Result<_, _>>()?, bytes: encoded.data })
}

/// Returns the chunks of some rows. Neighbours are together, but for each fifth chunk.
pub(crate) fn chunks_read(chunks: &ListChunks, rows: &[u64]) -> Vec<Range<usize>> {
    let mut read: Vec<Range<usize>> = Vec::new();
    for chunk in rows.iter().flat_map(|row| chunks.chunks_of(*row)) {
        match read.last_mut() {
            Some(last) if chunk < last.end => {}
            Some(last) if chunk == last.end && chunk % 5 != 0 => last.end = chunk + 1,
            _ => read.push(chunk..chunk + 1),
        }
    }
    read
}

impl Encoded {
    fn part(&self, range: Range<u64>) -> Bytes {
        self.bytes.slice(range.start as usize..range.end as usize)
    }

    /// Reads the chunks that hold some rows, which ascend.
    pub fn read(&self, rows: &[u64]) -> Result<Vec<PageRows>, crate::BadPage> {
        let mut first = 0;
        let mut read = Vec::new();
        for page in &self.pages {
            let end = first + page.num_rows();
            let of_page: Vec<u64> =
                rows.iter().filter(|row| (first..end).contains(row)).map(|row| row - first).collect();
            read.push(self.read_page(page, of_page)?);
            first = end;
        }
        Ok(read)
    }

    fn read_page(&self, page: &Arc<ListPage>, rows: Vec<u64>) -> Result<PageRows, crate::BadPage> {
        let [sizes, row_counts] = page.index_ranges();
        let chunks = Arc::new(page.chunk_index(&self.part(sizes), &self.part(row_counts))?);
        let read = chunks_read(&chunks, &rows).into_iter();
        let read = read.map(|numbers| ChunksRead { bytes: self.part(chunks.byte_range(numbers.clone())), numbers });
        let read = read.collect();
        Ok(PageRows { page: page.clone(), chunks, rows, read })
    }
}
