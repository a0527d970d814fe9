//! Reads row groups unit by unit.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use stoker_lake::TableWriter;
use tokio::sync::mpsc;

use super::column::Columns;
use super::decode::{Decoder, Message, Shared};
use super::footer::LastFooter;
use super::piece::{Piece, file_pieces};
use super::source::{ParquetFile, Sources};
use crate::budget::Budget;
use crate::decoding::{DECODED_BYTES_MAX, DecoderQueue, num_decoders};
use crate::job::{Job, Size, Source, Units, Written};
use crate::source_file::SourceFile;
use crate::{Error, OnError, Result, Skipped};

/// The most record batches of a row group that wait for the writer.
const BATCHES_AHEAD: usize = 2;
/// The most row groups of which the first rows are read.
const FIRST_PIECES_MAX: usize = 1 << 10;

/// The files, and the conversions of their columns.
pub(super) struct ParquetSource {
    pub sources: Sources,
    pub columns: Columns,
    pub unit_bytes: u64,
}

impl ParquetSource {
    /// Returns the first rows of some columns, of about `bytes_max` bytes. Row groups that cannot be read are passed over: the
    /// ingest says what is wrong with them.
    pub async fn first_rows(&self, names: &[String], bytes_max: usize) -> Result<RecordBatch> {
        let units = ParquetUnits::new(self.sources.files.clone(), self.columns.only(names), self.unit_bytes);
        let (mut found, mut bytes) = (Vec::new(), 0);
        'all: for piece in 0..units.shared.pieces.len().min(FIRST_PIECES_MAX) {
            units.shared.budget.give_turn(piece);
            let mut batches = units.decode(piece);
            while let Some(Message::Rows(batch, _held)) = batches.recv().await {
                bytes += batch.get_array_memory_size();
                found.push(batch);
                if bytes >= bytes_max {
                    break 'all;
                }
            }
        }
        let joined = concat_batches(&units.shared.schema, &found);
        joined.map_err(|source| Error::internal("joining the first rows", source))
    }
}

impl Source for ParquetSource {
    type Units = ParquetUnits;

    fn files(&self) -> Vec<SourceFile> {
        let file = |file: &ParquetFile| SourceFile {
            name: file.name.clone(),
            path: file.path.clone(),
            absolute: file.absolute.to_string_lossy().into_owned(),
            stamp: file.stamp.clone(),
            place: file.place.clone(),
            parts: file.row_groups.len().max(1),
        };
        self.sources.files.iter().map(file).collect()
    }

    fn units(&self, files: &[usize]) -> ParquetUnits {
        let files = files.iter().map(|index| self.sources.files[*index].clone()).collect();
        ParquetUnits::new(files, self.columns.clone(), self.unit_bytes)
    }
}

/// The row groups of some files, divided into units.
pub(super) struct ParquetUnits {
    shared: Arc<Shared>,
    footer: LastFooter,
    units: Vec<Range<usize>>,
}

impl ParquetUnits {
    /// Divides the row groups into units of about `unit_bytes` each.
    fn new(files: Vec<ParquetFile>, columns: Columns, unit_bytes: u64) -> Self {
        let mut pieces = Vec::new();
        for (index, file) in files.iter().enumerate() {
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
        let (schema, budget) = (columns.schema(), Budget::new(DECODED_BYTES_MAX));
        let shared = Arc::new(Shared { files, pieces, columns, schema, budget });
        Self { shared, footer: LastFooter::default(), units }
    }

    /// Writes the given pieces of a unit. Returns the number of rows, or `None` when the job must stop.
    ///
    /// Decodes several pieces at the same time, and writes their rows in order. `told` is the first piece whose
    /// progress was not reported by an earlier attempt.
    async fn attempt(
        &self,
        job: &Job<'_>,
        pieces: &[usize],
        told: &mut usize,
        writer: &mut TableWriter,
    ) -> Result<Option<u64>, Failed> {
        let decoders = self.shared.files.first().map_or(1, |file| num_decoders(&file.place));
        let mut waiting = pieces.iter().copied();
        let mut decoding = DecoderQueue { queue: VecDeque::with_capacity(decoders), budget: &self.shared.budget };
        decoding.queue.extend(waiting.by_ref().take(decoders).map(|piece| (piece, self.decode(piece))));
        let mut rows = 0;
        while let Some((piece, mut batches)) = decoding.queue.pop_front() {
            self.shared.budget.give_turn(piece);
            let mut piece_rows = 0;
            loop {
                if job.progress.should_stop() {
                    return Ok(None);
                }
                match batches.recv().await {
                    Some(Message::Rows(batch, _held)) => {
                        writer.write(&batch).await.map_err(Error::from)?;
                        piece_rows += batch.num_rows() as u64;
                    }
                    Some(Message::End) => break,
                    Some(Message::Failed(error)) => return Err(Failed { piece: Some(piece), error }),
                    None => return Err(Error::internal("reading Parquet files", "a decoder stopped early").into()),
                }
            }
            decoding.queue.extend(waiting.next().map(|piece| (piece, self.decode(piece))));
            rows += piece_rows;
            if piece >= *told {
                self.tell(job, piece, piece_rows);
                *told = piece + 1;
            }
        }
        Ok(Some(rows))
    }

    /// Starts a thread that decodes a piece. The thread ends when the receiver is dropped.
    fn decode(&self, piece: usize) -> mpsc::Receiver<Message> {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let footer = self.footer.of(self.shared.pieces[piece].file);
        let decoder = Decoder { shared: self.shared.clone(), piece, footer, sender };
        tokio::task::spawn_blocking(move || decoder.run());
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

    fn files(&self, unit: usize) -> Range<usize> {
        let pieces = &self.shared.pieces;
        let ends = |pieces: &[Piece]| pieces.iter().filter(|piece| piece.last_of_file).count();
        let Range { start, end } = self.units[unit].clone();
        ends(&pieces[..start])..ends(&pieces[..end])
    }

    /// A row group that cannot be read is skipped as a whole: the unit is then written again without it.
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
                    job.progress.skipped(1);
                    left_out.insert(piece, Skipped::file(&path, reason));
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
