//! How the columns of a table are stored.

use futures::{StreamExt, TryStreamExt, stream};
use lance_encoding::decoder::PageEncoding;
use lance_encoding::format::metadata::{CompressiveEncoding, compressive_encoding::Compression, page_layout::Layout};
use serde::{Deserialize, Serialize};
use stoker_types::{
    DTYPE_KEY, EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR, TensorType, fixed_row_bytes, is_encoded_image, is_heavy,
};

use crate::dense::{FOOTERS_IN_FLIGHT, dense_page};
use crate::{Result, Table};

/// How one column is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnLayout {
    /// The column's name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: String,
    /// What it holds: `tensor uint8[3, 224, 224]`, `vector float32[768]`, `encoded image`, `text`, `scalar`, ….
    pub kind: String,
    /// Whether it is fetched by chunk scan and never read while filtering.
    pub heavy: bool,
    /// Bytes per row for fixed-width columns, else the average on disk.
    pub bytes_per_row: Option<u64>,
    /// Chunks (Lance pages) over all fragments.
    pub num_chunks: u64,
    /// Bytes of the largest chunk on disk.
    pub chunk_bytes_max: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Whether every chunk is plain row-major bytes, which are read without decoding.
    pub dense: bool,
    /// Why it is not dense.
    pub why_not_dense: Option<String>,
    /// The encodings found, for example `none` or `miniblock: bitpacking`.
    pub compression: String,
}

impl Table {
    /// How each column is stored, from the footers of all data files.
    ///
    /// # Errors
    /// `DataCorrupt` for unreadable footers; storage errors.
    pub async fn describe(&self) -> Result<Vec<ColumnLayout>> {
        let mut columns = Vec::new();
        for field in self.schema().fields() {
            let row_bytes = fixed_row_bytes(field.data_type());
            let mut column = ColumnLayout {
                name: field.name().clone(),
                data_type: field.data_type().to_string(),
                kind: kind(field),
                heavy: is_heavy(field),
                bytes_per_row: row_bytes.map(|bytes| bytes as u64),
                num_chunks: 0,
                chunk_bytes_max: 0,
                bytes: 0,
                dense: true,
                why_not_dense: None,
                compression: String::new(),
            };
            self.add_pages(field.name(), row_bytes.unwrap_or(0) as u64, &mut column).await?;
            let rows = self.num_rows();
            if column.bytes_per_row.is_none() && rows > 0 {
                column.bytes_per_row = Some(column.bytes / rows);
            }
            columns.push(column);
        }
        Ok(columns)
    }

    async fn add_pages(&self, name: &str, row_bytes: u64, column: &mut ColumnLayout) -> Result<()> {
        let mut encodings: Vec<String> = Vec::new();
        let scheduler = self.footer_scheduler();
        let mut files = stream::iter(self.dataset().get_fragments())
            .map(|fragment| {
                let scheduler = scheduler.clone();
                async move { self.column_file(&scheduler, &fragment, name).await }
            })
            .buffered(FOOTERS_IN_FLIGHT);
        while let Some(file) = files.try_next().await? {
            let (metadata, index) = match file {
                Ok((_, metadata, index)) => (metadata, index),
                Err(reason) => {
                    column.dense = false;
                    column.why_not_dense.get_or_insert_with(|| reason.to_string());
                    continue;
                }
            };
            for page in metadata.column_infos[index].page_infos.iter() {
                let bytes = page.buffer_offsets_and_sizes.iter().map(|(_, size)| size).sum::<u64>();
                column.num_chunks += 1;
                column.bytes += bytes;
                column.chunk_bytes_max = column.chunk_bytes_max.max(bytes);
                if let Err(reason) = dense_page(page, row_bytes) {
                    column.dense = false;
                    column.why_not_dense.get_or_insert_with(|| reason.to_string());
                }
                let encoding = encoding_name(&page.encoding);
                if !encodings.contains(&encoding) {
                    encodings.push(encoding);
                }
            }
        }
        column.compression = encodings.join(", ");
        Ok(())
    }
}

fn kind(field: &arrow_schema::Field) -> String {
    if is_encoded_image(field) {
        return "encoded image".into();
    }
    if let Some(tensor) = TensorType::of(field) {
        let element =
            field.metadata().get(DTYPE_KEY).cloned().unwrap_or_else(|| tensor.element.to_string().to_lowercase());
        let is_tensor = field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) == Some(FIXED_SHAPE_TENSOR);
        return format!("{} {element}{:?}", if is_tensor { "tensor" } else { "vector" }, tensor.shape);
    }
    use arrow_schema::DataType;
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary",
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "timestamp",
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "list",
        DataType::Struct(_) => "struct",
        _ => "scalar",
    }
    .into()
}

fn encoding_name(encoding: &PageEncoding) -> String {
    let PageEncoding::Structural(layout) = encoding else { return "other".into() };
    match &layout.layout {
        Some(Layout::FullZipLayout(zip)) => zip.value_compression.as_ref().map_or("none".into(), compression_name),
        Some(Layout::MiniBlockLayout(mini)) => {
            let values = mini.value_compression.as_ref().map_or("none".into(), compression_name);
            if mini.dictionary.is_some() { format!("dictionary of {values}") } else { values }
        }
        Some(Layout::ConstantLayout(_)) => "constant".into(),
        Some(Layout::BlobLayout(_)) => "blob".into(),
        None => "unknown".into(),
    }
}

fn compression_name(encoding: &CompressiveEncoding) -> String {
    match &encoding.compression {
        Some(Compression::Flat(flat)) => if flat.data.is_some() { "general" } else { "none" }.into(),
        Some(Compression::FixedSizeList(list)) => list.values.as_deref().map_or("none".into(), compression_name),
        Some(Compression::Variable(variable)) => variable.values.as_ref().map_or("none", |_| "general").into(),
        Some(Compression::Fsst(_)) => "fsst".into(),
        Some(Compression::Rle(_)) => "run length".into(),
        Some(Compression::InlineBitpacking(_) | Compression::OutOfLineBitpacking(_)) => "bit packing".into(),
        Some(Compression::Constant(_)) => "constant".into(),
        Some(Compression::General(_)) => "general".into(),
        Some(_) => "other".into(),
        None => "none".into(),
    }
}
