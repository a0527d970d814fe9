//! Rows that stand for those whose images cannot be decoded.
//!
//! ```text
//! ImageBatch with bad rows ──► next rows of their windows, one request for all ──► decode into the places of the bad rows
//!                                  ▲ twice as many each                                │ those that are still bad
//!                                  └───────────────────────────────────────────────────┘
//! ```
//!
//! The row that stands for a bad one is the first row of its window, cyclically from its position on, that has its checksum and whose
//! images decode. That is a function of stored bytes, order and transforms. So every rank, client and resume that needs a decision
//! comes to the same one by itself, and those that do not need it need not know of it. The bad row is the first to be read again:
//! only what is bad twice is bad.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_select::take::take_record_batch;
use parking_lot::Mutex;
use stoker_stream::{BadRowsMet, Beside, ReadOptions, RowsBeside, Substitution, Window, WindowRow, Windows};
use tokio::task::spawn_blocking;

use crate::client::StreamHandle;
use crate::client::image_columns::{ImageBatch, ImageColumns};
use crate::client::interleave::interleave_column;
use crate::{Error, Result};

/// Rows that are asked for in place of one bad row: at first, and at most. Each request asks for twice as many as the one before.
const ROWS_FIRST: usize = 2;
const ROWS_MAX: usize = 32;

/// Rows of one request, for all bad rows of a batch.
const REQUEST_ROWS_MAX: usize = 256;

/// Finds substitutes for the batches of one slice.
pub(crate) struct ImageSubstitutes {
    handle: StreamHandle,
    options: ReadOptions,
    columns: Arc<ImageColumns>,
    /// Of the epoch, once there was a bad row.
    windows: OnceLock<Windows>,
    met: Arc<Mutex<BadRowsMet>>,
}

/// A search for the bad rows of one batch.
struct Search {
    columns: Arc<ImageColumns>,
    images: ImageBatch,
    /// The rows of the batch that are still bad, ascending.
    open: Vec<Open>,
    /// The rows that were found to be bad.
    bad: HashSet<WindowRow>,
    /// Those of all batches.
    met: Arc<Mutex<BadRowsMet>>,
    /// What is wrong with the last of them.
    last_reason: String,
    found: Vec<Found>,
    /// For each answer, those of its rows that are used, without the columns that are decoded.
    answers: Vec<RecordBatch>,
}

/// A bad row of the batch.
struct Open {
    row: usize,
    position: u64,
    window: Window,
    /// The next row of the window to be tried.
    next: u64,
}

/// A row in the place of a bad one.
struct Found {
    row: usize,
    /// Where it lies in the window, from the bad row on: 0 for that row itself.
    offset: u64,
    row_addrs: Vec<u64>,
    /// The answer that it comes from, and its row there.
    place: (usize, usize),
}

impl ImageSubstitutes {
    pub fn new(handle: StreamHandle, options: &ReadOptions, columns: Arc<ImageColumns>) -> Self {
        let met = Arc::new(Mutex::new(BadRowsMet::new(options.max_bad_share)));
        Self { handle, options: *options, columns, windows: OnceLock::new(), met }
    }

    /// Decodes good rows into the places of the bad ones, and names these in the batch. `on_read` is told of every answer.
    ///
    /// # Errors
    /// [`Error::NoSubstitute`] where all rows of a window are bad; `TooManyBadRows`; errors of reading.
    pub async fn replace(&self, images: ImageBatch, mut on_read: impl FnMut(&RowsBeside)) -> Result<ImageBatch> {
        let windows = self.windows.get_or_init(|| Windows::new(self.handle.spec(), self.columns.epoch()));
        let mut search = Search::new(self.columns.clone(), images, windows, self.met.clone());
        let mut rows = ROWS_FIRST;
        while !search.open.is_empty() {
            let (keys, wanted) = search.wanted(rows)?;
            let answer = self.handle.rows_beside(self.columns.epoch(), &wanted, &self.options).await?;
            on_read(&answer);
            search = spawn_blocking(move || search.judge(&keys, answer)).await.map_err(Error::internal)??;
            rows = (rows * 2).min(ROWS_MAX);
        }
        spawn_blocking(move || search.finish()).await.map_err(Error::internal)?
    }
}

impl Search {
    fn new(columns: Arc<ImageColumns>, images: ImageBatch, windows: &Windows, met: Arc<Mutex<BadRowsMet>>) -> Self {
        let open = images.bad.keys().map(|row| {
            let position = columns.position(&images.batch, *row);
            Open { row: *row, position, window: windows.of(position), next: 0 }
        });
        let (open, bad, last_reason) = (open.collect(), HashSet::new(), String::new());
        Self { columns, images, open, bad, met, last_reason, found: Vec::new(), answers: Vec::new() }
    }

    /// The next `rows` rows for each bad one that are not known to be bad, each once: the first of all, the second of all, and so on.
    fn wanted(&self, rows: usize) -> Result<(Vec<WindowRow>, Vec<Beside>)> {
        let mut candidates = Vec::with_capacity(self.open.len());
        for Open { row, window, next, .. } in &self.open {
            let untried = (*next..window.num_rows()).filter(|offset| !self.bad.contains(&window.row(*offset)));
            let untried: Vec<u64> = untried.take(rows).collect();
            if untried.is_empty() {
                return Err(Error::NoSubstitute {
                    place: self.columns.place(&self.images.batch, *row),
                    rows: window.num_rows(),
                    reason: self.last_reason.clone(),
                });
            }
            candidates.push(untried);
        }
        let (mut keys, mut wanted, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for nth in 0..rows {
            for (open, offsets) in self.open.iter().zip(&candidates) {
                let Some(offset) = offsets.get(nth) else { continue };
                let key = open.window.row(*offset);
                if keys.len() < REQUEST_ROWS_MAX && seen.insert(key) {
                    keys.push(key);
                    wanted.push(Beside { position: open.position, offset: *offset });
                }
            }
        }
        Ok((keys, wanted))
    }

    /// Tries the rows of an answer, which are the first of `keys`, in the order of their windows. Blocks the thread.
    fn judge(mut self, keys: &[WindowRow], answer: RowsBeside) -> Result<Self> {
        let places: HashMap<WindowRow, usize> = keys.iter().copied().zip(0..answer.data.num_rows()).collect();
        for (row, reason) in &answer.bad {
            self.bad.insert(keys[*row]);
            self.last_reason.clone_from(reason);
        }
        let first_found = self.found.len();
        loop {
            let tried = self.next_tries(&places)?;
            if tried.is_empty() {
                break;
            }
            self.decode(&tried, &answer)?;
        }
        let used: Vec<u64> = self.found[first_found..].iter().map(|found| found.place.1 as u64).collect();
        for (nth, found) in self.found[first_found..].iter_mut().enumerate() {
            found.place = (self.answers.len(), nth);
        }
        let others = answer.data.project(&self.columns.others()).map_err(Error::internal)?;
        self.answers.push(match others.num_columns() {
            0 => others,
            _ => take_record_batch(&others, &UInt64Array::from(used)).map_err(Error::internal)?,
        });
        Ok(self)
    }

    /// For each bad row, by its place among them, the next row to be tried, if it is in the answer.
    fn next_tries(&mut self, places: &HashMap<WindowRow, usize>) -> Result<Vec<(usize, usize)>> {
        let mut tried = Vec::new();
        for (index, open) in self.open.iter_mut().enumerate() {
            while open.next < open.window.num_rows() && self.bad.contains(&open.window.row(open.next)) {
                let named = || {
                    let place = self.columns.place(&self.images.batch, open.row);
                    match open.next {
                        0 => format!("{place}: {}", self.last_reason),
                        behind => format!("the row {behind} behind {place}: {}", self.last_reason),
                    }
                };
                self.met.lock().add(&open.window, open.window.row(open.next), named)?;
                open.next += 1;
            }
            if open.next < open.window.num_rows()
                && let Some(place) = places.get(&open.window.row(open.next))
            {
                tried.push((index, *place));
            }
        }
        Ok(tried)
    }

    /// Decodes rows of an answer into the places of bad rows.
    fn decode(&mut self, tried: &[(usize, usize)], answer: &RowsBeside) -> Result<()> {
        let indices = UInt64Array::from_iter_values(tried.iter().map(|(_, place)| *place as u64));
        let rows = take_record_batch(&answer.data, &indices).map_err(Error::internal)?;
        let places: Vec<usize> = tried.iter().map(|(index, _)| self.open[*index].row).collect();
        let failed = self.columns.decode_rows(&mut self.images, &rows, &places)?;
        let mut done = HashSet::new();
        for (nth, (index, place)) in tried.iter().enumerate() {
            let Open { row, window, next, .. } = &self.open[*index];
            match failed.get(&nth) {
                Some(bad) => {
                    self.bad.insert(window.row(*next));
                    let (name, reason) = (self.columns.name(bad), &bad.reason);
                    self.last_reason = format!("column {name}: the image cannot be decoded: {reason}");
                }
                None => {
                    let row_addrs = answer.row_addrs.iter().map(|addrs| addrs[*place]).collect();
                    self.found.push(Found { row: *row, offset: *next, row_addrs, place: (0, *place) });
                    done.insert(*row);
                }
            }
        }
        self.open.retain(|open| !done.contains(&open.row));
        Ok(())
    }

    /// The batch, with the other columns, the row addresses and the names of the bad rows. Blocks the thread.
    fn finish(mut self) -> Result<ImageBatch> {
        let (columns, batch) = (&self.columns, &mut self.images.batch);
        let mut named: BTreeMap<usize, Substitution> =
            std::mem::take(&mut batch.substituted).into_iter().map(|found| (found.row, found)).collect();
        for Found { row, offset, row_addrs, .. } in &self.found {
            if *offset == 0 {
                named.remove(row);
            } else if let Some(bad) = self.images.bad.get(row).filter(|_| !named.contains_key(row)) {
                let reason = columns.reason(batch, *row, bad);
                let bad_addrs: Vec<u64> = batch.row_addrs.iter().map(|addrs| addrs[*row]).collect();
                tracing::warn!(reason, "a bad row was substituted");
                named.insert(*row, Substitution { row: *row, row_addrs: bad_addrs, reason });
            }
            batch.row_addrs.iter_mut().zip(row_addrs).for_each(|(addrs, addr)| addrs[*row] = *addr);
        }
        batch.substituted = named.into_values().collect();
        let num_rows = batch.data.num_rows();
        let mut places: Vec<(usize, usize)> = (0..num_rows).map(|row| (0, row)).collect();
        self.found.iter().for_each(|found| places[found.row] = (found.place.0 + 1, found.place.1));
        let mut arrays = batch.data.columns().to_vec();
        for (nth, column) in columns.others().into_iter().enumerate() {
            let answers = self.answers.iter().map(|answer| answer.column(nth).clone());
            let parts: Vec<ArrayRef> = std::iter::once(arrays[column].clone()).chain(answers).collect();
            arrays[column] = interleave_column(&parts, &places)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let data = RecordBatch::try_new_with_options(batch.data.schema(), arrays, &options);
        batch.data = data.map_err(Error::internal)?;
        self.images.bad.clear();
        Ok(self.images)
    }
}
