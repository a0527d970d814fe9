//! Writes rows as a Parquet file: the other way round, out of tables.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::{Error, Result};

/// The most rows of a row group, which readers read at once.
pub(crate) const ROW_GROUP_ROWS_MAX: usize = 122_880;
/// The most bytes of a row group, as it is stored. The rows of a row group are in memory until it is written.
const ROW_GROUP_BYTES_MAX: usize = 128 << 20;

/// A Parquet file that is being written, compressed with zstd. Tensors keep their extension type, and vectors their type:
/// the file has the Arrow schema in its metadata.
///
/// The bytes go to the writer of each call. Until [`ParquetRows::finish`] has returned, they are no Parquet file.
pub struct ParquetRows {
    writer: ArrowWriter<Vec<u8>>,
}

impl ParquetRows {
    /// Begins a file for rows of this schema.
    ///
    /// # Errors
    /// `InvalidRequest` for a type that Parquet has not.
    pub fn try_new(schema: &SchemaRef) -> Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS_MAX))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES_MAX))
            .build();
        let writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties)).map_err(not_encoded)?;
        Ok(Self { writer })
    }

    /// Adds rows. Row groups that they fill are written to `out`.
    ///
    /// # Errors
    /// `InvalidRequest` for nulls in a column of fixed-size lists, which many readers of Parquet cannot read;
    /// `Unavailable` when `out` cannot be written.
    pub fn write(&mut self, batch: &RecordBatch, out: &mut impl Write) -> Result<()> {
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            if matches!(field.data_type(), DataType::FixedSizeList(..)) && column.null_count() > 0 {
                return Err(Error::NullLists { column: field.name().clone() });
            }
        }
        self.writer.write(batch).map_err(not_encoded)?;
        out.write_all(self.writer.inner()).map_err(not_written)?;
        self.writer.inner_mut().clear();
        Ok(())
    }

    /// Writes the rest of the file to `out`: the last row group and the footer.
    ///
    /// # Errors
    /// `Unavailable` when `out` cannot be written.
    pub fn finish(self, out: &mut impl Write) -> Result<()> {
        let rest = self.writer.into_inner().map_err(not_encoded)?;
        out.write_all(&rest).and_then(|()| out.flush()).map_err(not_written)
    }
}

fn not_encoded(source: ParquetError) -> Error {
    Error::NotParquet { reason: source.to_string() }
}

fn not_written(source: std::io::Error) -> Error {
    Error::NotWritten { source }
}
