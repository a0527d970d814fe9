//! Substitutes for rows that cannot be decoded.
//!
//! ```text
//! DecodedBatch with bad rows ──► next rows of their windows, one request for all ──► decode in place of the bad rows
//!                                  ▲ twice as many each                                │ those that are still bad
//!                                  └───────────────────────────────────────────────────┘
//! ```
//!
//! The substitute of a bad row is the first row of the bad row's window, in cyclic order from the bad row's position,
//! whose checksum is correct and whose values decode. This is a function of the stored bytes, the order and the
//! transforms. So every rank, client and resumed stream that needs a substitute chooses the same row without
//! communication. The search begins with the bad row itself, which is read again: only a row that is bad twice is bad.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_select::take::take_record_batch;
use parking_lot::Mutex;
use stoker_batch::{BadRowsMet, RowsBeside, Substitution, Window, WindowRow, Windows, interleave_column};
use stoker_types::ReadOptions;
use stoker_types::calls::Beside;
use tokio::task::spawn_blocking;

use super::columns::{DecodedBatch, DecodedColumns};
use crate::{Error, Result, StreamHandle};

/// The number of candidates that are requested for one bad row, at first and at most. Each request doubles it.
const ROWS_FIRST: usize = 2;
const ROWS_MAX: usize = 32;

/// The most rows of one request, for all bad rows of a batch together.
const REQUEST_ROWS_MAX: usize = 256;

/// Finds substitutes for the bad rows of one slice.
pub(crate) struct RowSubstitutes {
    handle: StreamHandle,
    options: ReadOptions,
    columns: Arc<DecodedColumns>,
    /// The windows of the epoch; set at the first bad row.
    windows: OnceLock<Windows>,
    met: Arc<Mutex<BadRowsMet>>,
}

/// The search for the substitutes of one batch.
struct Search {
    columns: Arc<DecodedColumns>,
    decoded: DecodedBatch,
    /// The rows of the batch that are still bad, ascending.
    open: Vec<Open>,
    /// The candidates that are known to be bad.
    bad: HashSet<WindowRow>,
    /// The bad rows of all batches so far.
    met: Arc<Mutex<BadRowsMet>>,
    /// The reason why the last of the bad candidates is bad.
    last_reason: String,
    found: Vec<Found>,
    /// For each answer, its rows that are used as substitutes, without the decoded columns.
    answers: Vec<RecordBatch>,
}

/// A bad row of the batch.
struct Open {
    row: usize,
    position: u64,
    window: Window,
    /// The next candidate, as an offset in the window from the bad row.
    next: u64,
}

/// The substitute of a bad row.
struct Found {
    row: usize,
    /// The offset of the substitute in the window, from the bad row; 0 for the bad row itself.
    offset: u64,
    row_addrs: Vec<u64>,
    /// The index of the answer that contains the substitute, and its row there.
    place: (usize, usize),
}

impl RowSubstitutes {
    pub fn new(handle: StreamHandle, options: &ReadOptions, columns: Arc<DecodedColumns>) -> Self {
        let met = Arc::new(Mutex::new(BadRowsMet::new(options.max_bad_share)));
        Self { handle, options: *options, columns, windows: OnceLock::new(), met }
    }

    /// Decodes substitutes into the tensors of the bad rows, and records the bad rows in the batch. Calls `on_read`
    /// with every answer.
    ///
    /// # Errors
    /// [`Error::NoSubstitute`] when all rows of a window are bad; `TooManyBadRows`; errors of reading.
    pub async fn replace(&self, decoded: DecodedBatch, mut on_read: impl FnMut(&RowsBeside)) -> Result<DecodedBatch> {
        let windows = self.windows.get_or_init(|| Windows::new(self.handle.spec(), self.columns.epoch()));
        let mut search = Search::new(self.columns.clone(), decoded, windows, self.met.clone());
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
    fn new(
        columns: Arc<DecodedColumns>,
        decoded: DecodedBatch,
        windows: &Windows,
        met: Arc<Mutex<BadRowsMet>>,
    ) -> Self {
        let open = decoded.bad.keys().map(|row| {
            let position = columns.position(&decoded.batch, *row);
            Open { row: *row, position, window: windows.of(position), next: 0 }
        });
        let (open, bad, last_reason) = (open.collect(), HashSet::new(), String::new());
        Self { columns, decoded, open, bad, met, last_reason, found: Vec::new(), answers: Vec::new() }
    }

    /// Returns up to `rows` candidates for each bad row, without known bad rows and without duplicates: the first
    /// candidate of every bad row, then the second of every bad row, and so on.
    fn wanted(&self, rows: usize) -> Result<(Vec<WindowRow>, Vec<Beside>)> {
        let mut candidates = Vec::with_capacity(self.open.len());
        for Open { row, window, next, .. } in &self.open {
            let untried = (*next..window.num_rows()).filter(|offset| !self.bad.contains(&window.row(*offset)));
            let untried: Vec<u64> = untried.take(rows).collect();
            if untried.is_empty() {
                return Err(Error::NoSubstitute {
                    place: self.columns.place(&self.decoded.batch, *row),
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

    /// Returns, for each bad row (by its index in `open`), its next candidate, if the answer contains it. Counts the
    /// candidates before it that are bad.
    fn next_tries(&mut self, places: &HashMap<WindowRow, usize>) -> Result<Vec<(usize, usize)>> {
        let mut tried = Vec::new();
        for (index, open) in self.open.iter_mut().enumerate() {
            while open.next < open.window.num_rows() && self.bad.contains(&open.window.row(open.next)) {
                let named = || {
                    let place = self.columns.place(&self.decoded.batch, open.row);
                    match open.next {
                        0 => format!("{place}: {}", self.last_reason),
                        behind => format!("the row {behind} rows after {place}: {}", self.last_reason),
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

    /// Decodes rows of an answer into the tensors of bad rows.
    fn decode(&mut self, tried: &[(usize, usize)], answer: &RowsBeside) -> Result<()> {
        let indices = UInt64Array::from_iter_values(tried.iter().map(|(_, place)| *place as u64));
        let rows = take_record_batch(&answer.data, &indices).map_err(Error::internal)?;
        let places: Vec<usize> = tried.iter().map(|(index, _)| self.open[*index].row).collect();
        let failed = self.columns.decode_rows(&mut self.decoded, &rows, &places)?;
        let mut done = HashSet::new();
        for (nth, (index, place)) in tried.iter().enumerate() {
            let Open { row, window, next, .. } = &self.open[*index];
            match failed.get(&nth) {
                Some(bad) => {
                    self.bad.insert(window.row(*next));
                    self.last_reason = self.columns.reason_alone(bad);
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

    /// Completes the batch: takes over the other columns and the row addresses of the substitutes, and names the bad
    /// rows. Blocks the thread.
    fn finish(mut self) -> Result<DecodedBatch> {
        let (columns, batch) = (&self.columns, &mut self.decoded.batch);
        let mut named: BTreeMap<usize, Substitution> =
            std::mem::take(&mut batch.substituted).into_iter().map(|found| (found.row, found)).collect();
        for Found { row, offset, row_addrs, .. } in &self.found {
            if *offset == 0 {
                named.remove(row);
            } else if let Some(bad) = self.decoded.bad.get(row).filter(|_| !named.contains_key(row)) {
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
            let answers = self.answers.iter().map(|answer| answer.column(nth).as_ref());
            let parts: Vec<&dyn Array> = std::iter::once(arrays[column].as_ref()).chain(answers).collect();
            arrays[column] = interleave_column(&parts, &places, None)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let data = RecordBatch::try_new_with_options(batch.data.schema(), arrays, &options);
        batch.data = data.map_err(Error::internal)?;
        self.decoded.bad.clear();
        Ok(self.decoded)
    }
}
