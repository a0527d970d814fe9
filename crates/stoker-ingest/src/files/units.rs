//! Writes runs of files unit by unit.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use stoker_lake::TableWriter;
use tokio::sync::mpsc;

use super::decode::{FileDecoder, FileMessage, FileRows};
use super::plan::FilePlan;
use crate::budget::Budget;
use crate::decoding::{DECODED_BYTES_MAX, DecoderQueue, num_decoders};
use crate::job::{Job, Size, Source, Units, Written};
use crate::source_file::SourceFile;
use crate::{Error, Result, Skipped};

/// The most messages of a decoder that wait for the writer.
const MESSAGES_AHEAD: usize = 2;
/// The bytes of small files that one decoder reads.
const PIECE_BYTES: u64 = 16 << 20;
/// The most files that one decoder reads.
const PIECE_FILES_MAX: usize = 4096;

/// The files of a plan.
pub(super) struct FilesSource {
    pub plan: Arc<FilePlan>,
    pub unit_bytes: u64,
}

impl Source for FilesSource {
    type Units = FileUnits;

    fn files(&self) -> Vec<SourceFile> {
        self.plan.files()
    }

    fn units(&self, files: &[usize]) -> FileUnits {
        let bytes: Vec<u64> = files.iter().map(|file| self.plan.file_bytes(*file)).collect();
        let units = runs(0..files.len(), self.unit_bytes, usize::MAX, &bytes);
        let budget = Budget::new(DECODED_BYTES_MAX);
        FileUnits { plan: self.plan.clone(), files: files.to_vec(), bytes, units, budget }
    }
}

/// Some files of a plan, divided into units.
pub(super) struct FileUnits {
    plan: Arc<FilePlan>,
    /// The files, as indices of the plan's files that have rows.
    files: Vec<usize>,
    bytes: Vec<u64>,
    units: Vec<Range<usize>>,
    budget: Arc<Budget>,
}

impl Units for FileUnits {
    fn sizes(&self) -> Vec<Size> {
        let size =
            |unit: &Range<usize>| Size { files: unit.len() as u64, bytes: self.bytes[unit.clone()].iter().sum() };
        self.units.iter().map(size).collect()
    }

    fn files(&self, unit: usize) -> Range<usize> {
        self.units[unit].clone()
    }

    async fn write(&self, job: &Job<'_>, unit: usize) -> Result<Option<Written>> {
        let mut writer = job.writer().await?;
        match self.write_files(job, self.units[unit].clone(), &mut writer).await {
            Ok(Some((rows, skipped))) => Ok(Some(Written { fragments: writer.finish().await?, rows, skipped })),
            stopped_or_failed => {
                writer.abort().await;
                stopped_or_failed.map(|_| None)
            }
        }
    }
}

impl FileUnits {
    /// Decodes several pieces of a unit at the same time, and writes their rows in order. Returns `None` when the job
    /// must stop.
    async fn write_files(
        &self,
        job: &Job<'_>,
        unit: Range<usize>,
        writer: &mut TableWriter,
    ) -> Result<Option<(u64, Vec<Skipped>)>> {
        let mut pieces = runs(unit, PIECE_BYTES, PIECE_FILES_MAX, &self.bytes).into_iter();
        let mut decoding = DecoderQueue { queue: VecDeque::new(), budget: &self.budget };
        decoding
            .queue
            .extend(pieces.by_ref().take(num_decoders(self.plan.folder.place())).map(|piece| self.decode(job, piece)));
        let (mut num_rows, mut all_skipped) = (0, Vec::new());
        while let Some((piece, mut messages)) = decoding.queue.pop_front() {
            self.budget.give_turn(piece);
            loop {
                if job.progress.should_stop() {
                    return Ok(None);
                }
                let (rows, _held) = match messages.recv().await {
                    Some(FileMessage::Rows(rows, held)) => (rows, held),
                    Some(FileMessage::End) => break,
                    Some(FileMessage::Failed(error)) => return Err(error),
                    None => return Err(Error::internal("reading files", "a decoder stopped early")),
                };
                let FileRows { batch, files, bytes, skipped } = rows;
                let batch_rows = batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
                if let Some(batch) = batch {
                    writer.write(&batch).await?;
                }
                job.progress.advance(files, batch_rows, bytes);
                if !skipped.is_empty() {
                    job.progress.skipped(skipped.iter().map(Skipped::count).sum());
                }
                num_rows += batch_rows;
                all_skipped.extend(skipped);
            }
            decoding.queue.extend(pieces.next().map(|piece| self.decode(job, piece)));
        }
        Ok(Some((num_rows, all_skipped)))
    }

    /// Starts a thread that decodes a piece. The thread ends when the receiver is dropped.
    fn decode(&self, job: &Job<'_>, piece: Range<usize>) -> (usize, mpsc::Receiver<FileMessage>) {
        let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
        let decoder = FileDecoder {
            plan: self.plan.clone(),
            files: self.files[piece.clone()].to_vec(),
            piece: piece.start,
            on_error: job.on_error,
            budget: self.budget.clone(),
            sender,
        };
        tokio::task::spawn_blocking(move || decoder.run());
        (piece.start, receiver)
    }
}

/// Divides files into runs of about `bytes_max` bytes and at most `files_max` files. A file of at least `bytes_max` bytes
/// is a run of its own.
fn runs(all: Range<usize>, bytes_max: u64, files_max: usize, bytes: &[u64]) -> Vec<Range<usize>> {
    let (mut runs, mut start, mut sum) = (Vec::new(), all.start, 0u64);
    for index in all.clone() {
        if index > start && (sum.saturating_add(bytes[index]) > bytes_max || index - start >= files_max) {
            runs.push(start..index);
            (start, sum) = (index, 0);
        }
        sum = sum.saturating_add(bytes[index]);
    }
    if start < all.end {
        runs.push(start..all.end);
    }
    runs
}
