//! Decodes one piece.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ColumnChunkMetaData;
use stoker_types::to_usize;
use tokio::sync::mpsc;

use super::batch_size::{BatchSize, Change, plain_bytes};
use super::column::Columns;
use super::convert::convert;
use super::footer::Footer;
use super::piece::Piece;
use super::source::{ParquetFile, num_rows};
use crate::budget::{Budget, Reservation};
use crate::job::catch_panic;
use crate::place::OpenFile;
use crate::stamp::StampError;
use crate::{Error, Result};

/// The data that all decoders of a run share.
pub(super) struct Shared {
    pub files: Vec<ParquetFile>,
    pub pieces: Vec<Piece>,
    pub columns: Columns,
    pub schema: SchemaRef,
    pub budget: Arc<Budget>,
}

/// A message from a decoder to the writer.
pub(super) enum Message {
    /// The next rows, and the memory that they reserve in the budget.
    Rows(RecordBatch, Reservation),
    /// All rows of the piece were sent.
    End,
    Failed(Error),
}

/// Decodes the rows of one piece.
pub(super) struct Decoder {
    pub shared: Arc<Shared>,
    pub piece: usize,
    /// The footer of the piece's file.
    pub footer: Arc<Footer>,
    pub sender: mpsc::Sender<Message>,
}

impl Decoder {
    /// Sends the rows in order, then the outcome. Stops when the receiver is dropped. Blocks the thread.
    pub fn run(self) {
        let last = match self.read() {
            Ok(()) => Message::End,
            Err(error) => Message::Failed(error),
        };
        // If the receiver was dropped, nobody needs the outcome.
        let _ = self.sender.blocking_send(last);
    }

    fn read(&self) -> Result<()> {
        let listed = self.file();
        let file = listed.place.open(&listed.path, &listed.stamp).map_err(|error| self.unusable(error))?;
        let outcome = catch_panic(|| self.read_rows(&file), |reason| self.unreadable(reason));
        // If the file was changed meanwhile, the rows or the damage that were read do not belong to the listed file.
        file.check().map_err(|error| self.unusable(error))?;
        outcome
    }

    fn read_rows(&self, file: &OpenFile) -> Result<()> {
        let piece = self.piece();
        let Some(row_group) = piece.row_group else { return Ok(()) };
        let source = self.row_group(file, row_group)?;
        let mut size = BatchSize::new(piece.rows, source.plain_bytes());
        let mut sent = 0u64;
        'open: loop {
            let mut reader = source.open(size.rows()).map_err(|reason| self.unreadable(reason))?;
            let mut read = 0u64;
            loop {
                let Some(mut reservation) = self.reserve(size.bytes(piece.rows.saturating_sub(read))) else {
                    return Ok(());
                };
                let batch = reader.next().transpose().map_err(|error| self.unreadable(error.to_string()))?;
                let Some(batch) = batch else { break 'open };
                let start = read;
                read += batch.num_rows() as u64;
                if read <= sent {
                    continue; // The reader before this one sent these rows.
                }
                let rows = self.convert(&batch, piece.first_row + start)?;
                let bytes = batch_bytes(&batch, &rows);
                drop(batch);
                reservation.settle(bytes);
                let change = size.learn(rows.num_rows(), bytes);
                if change == Change::Grown {
                    continue 'open; // This happens only before any row is sent.
                }
                let known = to_usize(sent.saturating_sub(start));
                let rows = rows.slice(known, rows.num_rows() - known);
                sent = read;
                if self.sender.blocking_send(Message::Rows(rows, reservation)).is_err() {
                    return Ok(());
                }
                if change == Change::Shrunk && sent < piece.rows {
                    continue 'open;
                }
            }
        }
        match sent == piece.rows {
            true => Ok(()),
            false => Err(self.unreadable(format!("{sent} rows were read instead of {}", piece.rows))),
        }
    }

    /// Returns the row group of the piece, with the columns to read.
    fn row_group<'a>(&'a self, file: &'a OpenFile, row_group: usize) -> Result<RowGroupSource<'a>> {
        let footer = self.footer.get(file).map_err(|reason| self.unreadable(reason))?;
        let rows = footer.metadata().row_groups().get(row_group).map(num_rows);
        if rows != Some(self.piece().rows) {
            let change = format!("the number of rows in row group {row_group} is not the listed one any more");
            return Err(self.unusable(StampError::Changed(change)));
        }
        let wanted = |name: &str| self.shared.schema.field_with_name(name).is_ok();
        let fields = footer.schema().fields().iter().enumerate();
        let roots = fields.filter(|(_, field)| wanted(field.name())).map(|(index, _)| index);
        let columns = ProjectionMask::roots(footer.parquet_schema(), roots);
        Ok(RowGroupSource { file, footer, row_group, columns })
    }

    /// Waits until the budget has memory for `bytes` bytes. Returns `None` when the receiver was dropped.
    fn reserve(&self, bytes: u64) -> Option<Reservation> {
        self.shared.budget.reserve(self.piece, bytes, || self.sender.is_closed())
    }

    fn convert(&self, batch: &RecordBatch, first_row: u64) -> Result<RecordBatch> {
        convert(&self.shared.columns, &self.shared.schema, batch, &self.file().path, first_row)
    }

    fn piece(&self) -> &Piece {
        &self.shared.pieces[self.piece]
    }

    fn file(&self) -> &ParquetFile {
        &self.shared.files[self.piece().file]
    }

    fn unusable(&self, error: StampError) -> Error {
        match error {
            StampError::Changed(change) => Error::Changed { path: self.file().path.clone(), change },
            StampError::Io(error) => self.unreadable(error.to_string()),
            StampError::Unreachable(reason) => Error::Unreachable { path: self.file().path.clone(), reason },
        }
    }

    fn unreadable(&self, reason: String) -> Error {
        let (path, piece) = (self.file().path.clone(), self.piece());
        let Some(row_group) = piece.row_group else { return Error::Unreadable { path, reason } };
        let (first, end) = (piece.first_row, piece.first_row + piece.rows);
        Error::Unreadable { path, reason: format!("row group {row_group} (rows {first} to {end}): {reason}") }
    }
}

/// Some columns of one row group.
struct RowGroupSource<'a> {
    file: &'a OpenFile,
    footer: &'a ArrowReaderMetadata,
    row_group: usize,
    columns: ProjectionMask,
}

impl RowGroupSource<'_> {
    /// Returns the size of the values in bytes, as far as the footer tells.
    fn plain_bytes(&self) -> u64 {
        plain_bytes(self.footer.metadata().row_group(self.row_group), &self.columns)
    }

    /// Returns where the values of the columns are in the file.
    fn ranges(&self) -> Vec<Range<u64>> {
        let columns = self.footer.metadata().row_group(self.row_group).columns().iter().enumerate();
        let wanted = columns.filter(|(leaf, _)| self.columns.leaf_included(*leaf));
        // A damaged footer may have negative numbers; the reader says so.
        let range = |column: &ColumnChunkMetaData| {
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let (start, length) = (u64::try_from(start).ok()?, u64::try_from(column.compressed_size()).ok()?);
            Some(start..start.checked_add(length)?)
        };
        wanted.filter_map(|(_, column)| range(column)).collect()
    }

    /// Reads the row group from its first row, in record batches of `rows` rows. A reader could begin at a later row,
    /// but readers that skip rows returned wrong lists across page borders (arrow-rs#9370), and rows are rarely read
    /// twice.
    fn open(&self, rows: usize) -> Result<ParquetRecordBatchReader, String> {
        let file = self.file.try_clone().map_err(|error| error.to_string())?;
        file.will_read(&self.ranges());
        ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.footer.clone())
            .with_row_groups(vec![self.row_group])
            .with_projection(self.columns.clone())
            .with_batch_size(rows)
            .build()
            .map_err(|error| error.to_string())
    }
}

/// Returns the larger size of the rows in bytes: as they were read or as they are written. Columns that share their
/// values with other record batches count only as they are written.
fn batch_bytes(read: &RecordBatch, rows: &RecordBatch) -> u64 {
    let own = read.columns().iter().filter(|array| !shares_values(array.data_type()));
    let read_bytes: usize = own.map(|array| array.get_array_memory_size()).sum();
    read_bytes.max(rows.get_array_memory_size()) as u64
}

fn shares_values(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) | DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => shares_values(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| shares_values(field.data_type())),
        _ => false,
    }
}
