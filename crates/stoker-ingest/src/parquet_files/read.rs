//! Reads row groups unit by unit.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use stoker_lake::TableWriter;
use tokio::sync::mpsc;

use super::column::Columns;
use super::convert::convert;
use super::source::{ParquetFile, Sources};
use crate::job::{Job, Size, Units, Written};
use crate::{Error, OnError, Result, Skipped};

/// Bytes per record batch, before and after conversion about the same.
const BATCH_BYTES: u64 = 16 << 20;
/// Rows per record batch at most.
const BATCH_ROWS_MAX: u64 = 8192;
/// Record batches that wait for the writer.
const BATCHES_AHEAD: usize = 2;

/// A row group; a file without rows is one piece without a row group.
#[derive(Clone, Debug)]
struct Piece {
    file: usize,
    row_group: Option<usize>,
    /// The row in the file of its first row.
    first_row: u64,
    rows: u64,
    /// Bytes in the file; the last piece of a file has the footer too.
    bytes: u64,
    batch_rows: usize,
    last_of_file: bool,
}

/// The row groups of all files, in units.
pub(super) struct ParquetUnits {
    shared: Arc<Shared>,
    units: Vec<Range<usize>>,
}

struct Shared {
    files: Vec<ParquetFile>,
    pieces: Vec<Piece>,
    columns: Columns,
    schema: SchemaRef,
}

impl ParquetUnits {
    /// Cuts the row groups into units of about `unit_bytes` each.
    pub fn new(sources: Sources, columns: Columns, unit_bytes: u64) -> Self {
        let mut pieces = Vec::new();
        for (index, file) in sources.files.iter().enumerate() {
            pieces.extend(file_pieces(index, file));
        }
        let (mut units, mut start, mut sum) = (Vec::new(), 0, 0);
        for (index, piece) in pieces.iter().enumerate() {
            sum += piece.bytes;
            if sum >= unit_bytes || index + 1 == pieces.len() {
                units.push(start..index + 1);
                (start, sum) = (index + 1, 0);
            }
        }
        let schema = columns.schema();
        Self { shared: Arc::new(Shared { files: sources.files, pieces, columns, schema }), units }
    }

    /// Writes the pieces of a unit but for those to leave out. `None` when asked to stop.
    async fn attempt(
        &self,
        job: &Job<'_>,
        pieces: &[usize],
        told: &mut usize,
        writer: &mut TableWriter,
    ) -> Result<Option<u64>, Failed> {
        let (sender, mut receiver) = mpsc::channel(BATCHES_AHEAD);
        let reader = {
            let (shared, pieces) = (self.shared.clone(), pieces.to_vec());
            tokio::task::spawn_blocking(move || read_pieces(&shared, &pieces, &sender))
        };
        let (mut rows, mut piece_rows) = (0, 0);
        while let Some(message) = receiver.recv().await {
            if job.progress.should_stop() {
                return Ok(None);
            }
            match message {
                Message::Rows(batch) => {
                    writer.write(&batch).await.map_err(Error::from)?;
                    rows += batch.num_rows() as u64;
                    piece_rows += batch.num_rows() as u64;
                }
                Message::End(piece) => {
                    if piece >= *told {
                        self.tell(job, piece, piece_rows);
                        *told = piece + 1;
                    }
                    piece_rows = 0;
                }
                Message::Failed(failed) => return Err(failed),
            }
        }
        reader.await.map_err(|source| Error::internal("reading Parquet files", source))?;
        Ok(Some(rows))
    }

    fn tell(&self, job: &Job<'_>, piece: usize, rows: u64) {
        let piece = &self.shared.pieces[piece];
        job.progress.advance(u64::from(piece.last_of_file), rows, piece.bytes);
    }
}

impl Units for ParquetUnits {
    fn sizes(&self) -> Vec<Size> {
        let size = |unit: &Range<usize>| {
            let pieces = &self.shared.pieces[unit.clone()];
            let files = pieces.iter().filter(|piece| piece.last_of_file).count() as u64;
            Size { files, bytes: pieces.iter().map(|piece| piece.bytes).sum() }
        };
        self.units.iter().map(size).collect()
    }

    /// A row group that cannot be read is left out as a whole: the unit is then written again without it.
    async fn write(&self, job: &Job<'_>, unit: usize) -> Result<Option<Written>> {
        let unit = self.units[unit].clone();
        let (mut left_out, mut told): (BTreeMap<usize, Skipped>, usize) = (BTreeMap::new(), unit.start);
        loop {
            let pieces: Vec<usize> = unit.clone().filter(|piece| !left_out.contains_key(piece)).collect();
            let mut writer = job.writer().await?;
            match self.attempt(job, &pieces, &mut told, &mut writer).await {
                Ok(Some(rows)) => {
                    let skipped = left_out.into_values().collect();
                    return Ok(Some(Written { fragments: writer.finish().await?, rows, skipped }));
                }
                Ok(None) => {
                    writer.abort().await;
                    return Ok(None);
                }
                Err(Failed { piece: Some(piece), error: Error::Unreadable { path, reason } })
                    if job.on_error == OnError::Skip =>
                {
                    writer.abort().await;
                    left_out.insert(piece, Skipped { path, reason });
                    if piece >= told {
                        self.tell(job, piece, 0);
                        told = piece + 1;
                    }
                }
                Err(failed) => {
                    writer.abort().await;
                    return Err(failed.error);
                }
            }
        }
    }
}

/// An error, and the piece that it concerns.
struct Failed {
    piece: Option<usize>,
    error: Error,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { piece: None, error }
    }
}

enum Message {
    Rows(RecordBatch),
    /// All rows of a piece were sent.
    End(usize),
    Failed(Failed),
}

fn file_pieces(index: usize, file: &ParquetFile) -> Vec<Piece> {
    let groups = file.metadata.metadata().row_groups();
    let mut pieces = Vec::with_capacity(groups.len().max(1));
    let (mut first_row, mut rest) = (0, file.bytes);
    for (row_group, group) in groups.iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let bytes = u64::try_from(group.compressed_size()).unwrap_or(0).min(rest);
        let row_bytes = (u64::try_from(group.total_byte_size()).unwrap_or(0) / rows.max(1)).max(1);
        let batch_rows = (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS_MAX) as usize;
        let row_group = Some(row_group);
        pieces.push(Piece { file: index, row_group, first_row, rows, bytes, batch_rows, last_of_file: false });
        first_row += rows;
        rest -= bytes;
    }
    match pieces.last_mut() {
        Some(last) => {
            last.bytes += rest;
            last.last_of_file = true;
        }
        None => pieces.push(Piece {
            file: index,
            row_group: None,
            first_row: 0,
            rows: 0,
            bytes: rest,
            batch_rows: 1,
            last_of_file: true,
        }),
    }
    pieces
}

/// Sends the rows of all pieces until one fails or nobody listens.
fn read_pieces(shared: &Shared, pieces: &[usize], sender: &mpsc::Sender<Message>) {
    for &index in pieces {
        let sent = match read_piece(shared, &shared.pieces[index], sender) {
            Ok(true) => sender.blocking_send(Message::End(index)).is_ok(),
            Ok(false) => false,
            Err(error) => {
                // When nobody listens any more, the error is of no interest either.
                let _ = sender.blocking_send(Message::Failed(Failed { piece: Some(index), error }));
                false
            }
        };
        if !sent {
            return;
        }
    }
}

/// Sends the rows of one piece; `false` when nobody listens.
fn read_piece(shared: &Shared, piece: &Piece, sender: &mpsc::Sender<Message>) -> Result<bool> {
    let Some(row_group) = piece.row_group else { return Ok(true) };
    let file = &shared.files[piece.file];
    let unreadable = |reason: String| {
        let rows = piece.first_row..piece.first_row + piece.rows;
        let reason = format!("row group {row_group} (rows {} to {}): {reason}", rows.start, rows.end);
        Error::Unreadable { path: file.path.clone(), reason }
    };
    let open = File::open(&file.path).map_err(|error| unreadable(error.to_string()))?;
    let wanted = |name: &str| shared.schema.field_with_name(name).is_ok();
    let fields = file.metadata.schema().fields().iter().enumerate();
    let roots = fields.filter(|(_, field)| wanted(field.name())).map(|(index, _)| index);
    let mask = ProjectionMask::roots(file.metadata.parquet_schema(), roots);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(open, file.metadata.clone())
        .with_row_groups(vec![row_group])
        .with_projection(mask)
        .with_batch_size(piece.batch_rows)
        .build()
        .map_err(|error| unreadable(error.to_string()))?;
    let mut first_row = piece.first_row;
    for batch in reader {
        let batch = batch.map_err(|error| unreadable(error.to_string()))?;
        let rows = convert(&shared.columns, &shared.schema, &batch, &file.path, first_row)?;
        first_row += batch.num_rows() as u64;
        if sender.blocking_send(Message::Rows(rows)).is_err() {
            return Ok(false);
        }
    }
    if first_row != piece.first_row + piece.rows {
        return Err(unreadable(format!("{} rows were read", first_row - piece.first_row)));
    }
    Ok(true)
}
