//! Decodes the rows of a few files.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use stoker_formats::{BadRow, RowBatch};
use tokio::sync::mpsc;

use super::convert::convert;
use super::plan::FilePlan;
use super::skips::FileSkips;
use crate::budget::{Budget, Reservation};
use crate::job::catch_panic;
use crate::{Error, OnError, Result, Skipped};

/// The bytes of rows that are asked of a format at once, and the bytes of rows that are written at once.
const BATCH_BYTES: usize = 16 << 20;

/// A message from a decoder to the writer.
pub(super) enum FileMessage {
    /// The next rows, and the memory that they reserve in the budget.
    Rows(FileRows, Vec<Reservation>),
    /// All rows of the files were sent.
    End,
    Failed(Error),
}

/// Rows, and what was done to read them.
#[derive(Default)]
pub(super) struct FileRows {
    pub batch: Option<RecordBatch>,
    /// The number of files that end with these rows.
    pub files: u64,
    /// The bytes of files that were read.
    pub bytes: u64,
    pub skipped: Vec<Skipped>,
}

/// Decodes the rows of consecutive files.
pub(super) struct FileDecoder {
    pub plan: Arc<FilePlan>,
    /// The files, as indices of the plan's files that have rows.
    pub files: Vec<usize>,
    /// The number of this decoder in the budget.
    pub piece: usize,
    pub on_error: OnError,
    pub budget: Arc<Budget>,
    pub sender: mpsc::Sender<FileMessage>,
}

/// Rows that wait until there are enough of them for a message.
#[derive(Default)]
struct GatheredRows {
    batches: Vec<RecordBatch>,
    batch_bytes: usize,
    held: Vec<Reservation>,
    done: FileRows,
}

impl FileDecoder {
    /// Sends the rows in order, then the outcome. Stops when the receiver is dropped. Blocks the thread.
    pub fn run(self) {
        let last = match self.read() {
            Ok(ControlFlow::Continue(())) => FileMessage::End,
            Ok(ControlFlow::Break(())) => return,
            Err(error) => FileMessage::Failed(error),
        };
        // If the receiver was dropped, nobody needs the outcome.
        let _ = self.sender.blocking_send(last);
    }

    /// Reads and sends the rows of all files. Breaks off when nobody needs them.
    fn read(&self) -> Result<ControlFlow<()>> {
        let mut gathered = GatheredRows::default();
        let _ahead = self.plan.fetch_ahead(&self.files);
        for file in &self.files {
            let mut reading = FileReading::new(self, *file);
            let outcome = reading.read(&mut gathered);
            // The rows or the damage that were read do not belong to the listed files if one changed or was not read.
            if let Some(fault) = self.plan.folder.fault() {
                return Err(fault);
            }
            match outcome {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
                Err(Error::Unreadable { path: _, reason }) if self.on_error == OnError::Skip => {
                    reading.skips.end_early(reading.num_read, reason);
                }
                Err(error) => return Err(error),
            }
            reading.finish(&mut gathered.done);
        }
        self.send(&mut gathered)
    }

    /// Sends the rows that were gathered.
    fn send(&self, gathered: &mut GatheredRows) -> Result<ControlFlow<()>> {
        let GatheredRows { mut batches, held, mut done, .. } = std::mem::take(gathered);
        done.batch = match batches.len() {
            0 | 1 => batches.pop(),
            _ => {
                let whole = concat_batches(&self.plan.schema, &batches);
                Some(whole.map_err(|source| Error::internal("gathering rows of files", source))?)
            }
        };
        match self.sender.blocking_send(FileMessage::Rows(done, held)) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(_) => Ok(ControlFlow::Break(())),
        }
    }
}

/// A file that is being read.
struct FileReading<'a> {
    decoder: &'a FileDecoder,
    file: usize,
    path: PathBuf,
    /// The number of rows of the file that were read, with those that were skipped.
    num_read: u64,
    /// The bytes of the file that were counted.
    counted_bytes: u64,
    skips: FileSkips,
}

impl<'a> FileReading<'a> {
    fn new(decoder: &'a FileDecoder, file: usize) -> Self {
        let path = decoder.plan.path(file);
        let skips = FileSkips::new(path.clone());
        Self { decoder, file, path, num_read: 0, counted_bytes: 0, skips }
    }

    /// Reads and converts the rows of the file. Breaks off when nobody needs them.
    fn read(&mut self, gathered: &mut GatheredRows) -> Result<ControlFlow<()>> {
        let decoder = self.decoder;
        let FileDecoder { plan, budget, sender, piece, .. } = decoder;
        let mut reader = self.guarded(|| plan.rows.read(self.file))?;
        loop {
            let held = budget.reserve(*piece, BATCH_BYTES as u64, || sender.is_closed());
            let Some(mut held) = held else { return Ok(ControlFlow::Break(())) };
            let Some(rows) = self.guarded(|| reader.next(BATCH_BYTES))? else { return Ok(ControlFlow::Continue(())) };
            let num_bytes = self.take(rows, gathered)?;
            held.settle(num_bytes as u64);
            gathered.held.push(held);
            gathered.batch_bytes += num_bytes;
            if gathered.batch_bytes >= BATCH_BYTES && decoder.send(gathered)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Converts rows and adds them to those that were gathered. Returns their bytes in memory.
    fn take(&mut self, rows: RowBatch, gathered: &mut GatheredRows) -> Result<usize> {
        let RowBatch { batch, mut bad, source_bytes } = rows;
        let plan = &self.decoder.plan;
        if let Some(fault) = plan.folder.fault() {
            return Err(fault);
        }
        let converted = convert(&plan.columns, &plan.schema, &batch).map_err(|wrong| wrong.of(&self.path))?;
        let num_bad = bad.len() as u64;
        bad.extend(numbered(self.num_read, &bad, converted.bad));
        bad.sort_by_key(|bad| bad.row);
        for BadRow { row, reason } in bad {
            match self.decoder.on_error {
                OnError::Fail => return Err(Error::Row { path: self.path.clone(), row, reason }),
                OnError::Skip => self.skips.skip(row, reason),
            }
        }
        self.num_read += batch.num_rows() as u64 + num_bad;
        self.skips.keep(converted.batch.num_rows());
        let file_bytes = plan.file_bytes(self.file);
        let counted = match plan.folder.knows_sizes() {
            true => source_bytes.min(file_bytes.saturating_sub(self.counted_bytes)),
            false => source_bytes,
        };
        self.counted_bytes += counted;
        gathered.done.bytes += counted;
        let num_bytes = converted.batch.get_array_memory_size().max(batch.get_array_memory_size());
        if converted.batch.num_rows() > 0 {
            gathered.batches.push(converted.batch);
        }
        Ok(num_bytes)
    }

    /// Adds what is to be told of the file when it was read.
    fn finish(self, done: &mut FileRows) {
        done.files += 1;
        done.bytes += self.decoder.plan.file_bytes(self.file).saturating_sub(self.counted_bytes);
        done.skipped.extend(self.skips.finish());
    }

    /// Calls a format, which may panic.
    fn guarded<T>(&self, call: impl FnOnce() -> stoker_formats::Result<T>) -> Result<T> {
        let plan = &self.decoder.plan;
        catch_panic(
            || call().map_err(|error| plan.error(error)),
            |reason| Error::Unreadable { path: self.path.clone(), reason },
        )
    }
}

/// Returns bad rows of a batch with their numbers in the file. The batch has the rows from `start` on, without those of
/// `before`, which the format did not make rows.
pub(super) fn numbered(start: u64, before: &[BadRow], bad: Vec<(usize, String)>) -> Vec<BadRow> {
    let before: HashSet<u64> = before.iter().map(|bad| bad.row).collect();
    let (mut next, mut row_of_next) = (start, 0);
    let number = |(row, reason): (usize, String)| {
        loop {
            while before.contains(&next) {
                next += 1;
            }
            if row_of_next == row {
                return BadRow { row: next, reason };
            }
            (next, row_of_next) = (next + 1, row_of_next + 1);
        }
    };
    bad.into_iter().map(number).collect()
}
