//! Reads row groups unit by unit.

use std::collections::{BTreeMap, VecDeque};
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
use super::source::{ParquetFile, Sources, footer};
use crate::job::{Job, Size, Units, Written, catch_panic};
use crate::{Error, OnError, Result, Skipped};

/// Bytes per record batch, before and after conversion about the same.
const BATCH_BYTES: u64 = 16 << 20;
/// Rows per record batch at most.
const BATCH_ROWS_MAX: u64 = 8192;
/// Record batches of a row group that wait for the writer.
const BATCHES_AHEAD: usize = 2;
/// Row groups that are decoded at the same time, at most.
const DECODERS_MAX: usize = 8;

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

impl Shared {
    fn unreadable(&self, piece: &Piece, reason: String) -> Error {
        let path = self.files[piece.file].path.clone();
        let Some(row_group) = piece.row_group else { return Error::Unreadable { path, reason } };
        let (first, end) = (piece.first_row, piece.first_row + piece.rows);
        Error::Unreadable { path, reason: format!("row group {row_group} (rows {first} to {end}): {reason}") }
    }
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
    ///
    /// Several pieces are decoded at the same time; their rows are written in order.
    async fn attempt(
        &self,
        job: &Job<'_>,
        pieces: &[usize],
        told: &mut usize,
        writer: &mut TableWriter,
    ) -> Result<Option<u64>, Failed> {
        let decoders = std::thread::available_parallelism().map_or(2, usize::from).min(DECODERS_MAX);
        let mut waiting = pieces.iter().copied();
        let mut decoding: VecDeque<(usize, mpsc::Receiver<Message>)> =
            waiting.by_ref().take(decoders).map(|piece| (piece, self.decode(piece))).collect();
        let mut rows = 0;
        while let Some((piece, mut batches)) = decoding.pop_front() {
            let mut piece_rows = 0;
            loop {
                if job.progress.should_stop() {
                    return Ok(None);
                }
                match batches.recv().await {
                    Some(Message::Rows(batch)) => {
                        writer.write(&batch).await.map_err(Error::from)?;
                        piece_rows += batch.num_rows() as u64;
                    }
                    Some(Message::End) => break,
                    Some(Message::Failed(error)) => return Err(Failed { piece: Some(piece), error }),
                    None => return Err(Error::internal("reading Parquet files", "a decoder stopped early").into()),
                }
            }
            decoding.extend(waiting.next().map(|piece| (piece, self.decode(piece))));
            rows += piece_rows;
            if piece >= *told {
                self.tell(job, piece, piece_rows);
                *told = piece + 1;
            }
        }
        Ok(Some(rows))
    }

    /// Begins to decode a piece; it ends when nobody listens.
    fn decode(&self, piece: usize) -> mpsc::Receiver<Message> {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            let piece = &shared.pieces[piece];
            let unreadable = |reason| shared.unreadable(piece, reason);
            let last = match catch_panic(|| read_piece(&shared, piece, &sender), unreadable) {
                Ok(()) => Message::End,
                Err(error) => Message::Failed(error),
            };
            // When nobody listens any more, the outcome is of no interest either.
            let _ = sender.blocking_send(last);
        });
        receiver
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
                    left_out.insert(piece, Skipped { path: path.display().to_string(), reason });
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
    /// All rows of the piece were sent.
    End,
    Failed(Error),
}

fn file_pieces(index: usize, file: &ParquetFile) -> Vec<Piece> {
    let groups = &file.row_groups;
    let mut pieces = Vec::with_capacity(groups.len().max(1));
    let (mut first_row, mut rest) = (0, file.bytes);
    for (row_group, group) in groups.iter().enumerate() {
        let rows = group.rows;
        let bytes = group.bytes.min(rest);
        let row_bytes = (group.plain_bytes / rows.max(1)).max(1);
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

/// Sends the rows of one piece, until nobody listens.
fn read_piece(shared: &Shared, piece: &Piece, sender: &mpsc::Sender<Message>) -> Result<()> {
    let Some(row_group) = piece.row_group else { return Ok(()) };
    let path = &shared.files[piece.file].path;
    let unreadable = |reason: String| shared.unreadable(piece, reason);
    let footer = footer(path).map_err(unreadable)?;
    if footer.metadata().row_groups().get(row_group).map(|group| group.num_rows() as u64) != Some(piece.rows) {
        return Err(unreadable("the file changed since it was listed".into()));
    }
    let open = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let wanted = |name: &str| shared.schema.field_with_name(name).is_ok();
    let fields = footer.schema().fields().iter().enumerate();
    let roots = fields.filter(|(_, field)| wanted(field.name())).map(|(index, _)| index);
    let mask = ProjectionMask::roots(footer.parquet_schema(), roots);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(open, footer.clone())
        .with_row_groups(vec![row_group])
        .with_projection(mask)
        .with_batch_size(piece.batch_rows)
        .build()
        .map_err(|error| unreadable(error.to_string()))?;
    let mut first_row = piece.first_row;
    for batch in reader {
        let batch = batch.map_err(|error| unreadable(error.to_string()))?;
        let rows = convert(&shared.columns, &shared.schema, &batch, path, first_row)?;
        first_row += batch.num_rows() as u64;
        if sender.blocking_send(Message::Rows(rows)).is_err() {
            return Ok(());
        }
    }
    if first_row != piece.first_row + piece.rows {
        return Err(unreadable(format!("{} rows were read", first_row - piece.first_row)));
    }
    Ok(())
}
