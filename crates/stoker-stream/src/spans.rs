//! Spans: light columns of large rows, read for many units at once.
//!
//! Where rows are large and are stored in local files, a unit has a few megabytes, which is some tens of rows. Reading
//! the labels of so few rows takes about as long as reading the labels of thousands, and a fifth of the time of reading
//! the rows themselves.

use std::collections::VecDeque;

use stoker_chunks::ChunkScan;
use stoker_order::StreamOrder;
use stoker_types::to_usize;

use crate::abort_on_drop::AbortOnDrop;
use crate::found_rows::FoundRows;
use crate::read::{Reader, Rows, read_light_rows};
use crate::source::ColumnPlan;
use crate::unit_clock::UnitClock;
use crate::{Result, StreamPlan};

/// The largest number of rows in a span.
const ROWS_MAX: u64 = 4_096;

/// The approximate size of the light columns of a span at most, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The smallest number of units in a span. A unit that lies in two spans reads its light columns itself.
const UNITS_MIN: u64 = 4;

/// The largest number of spans that are kept: the one from which units take their rows, and the next one.
const SPANS_MAX: usize = 2;

/// Prefetches light columns and addresses for units. Only dense columns are left for the units to read.
pub(crate) struct Spans {
    plan: StreamPlan,
    scan: ChunkScan,
    order: StreamOrder,
    /// The number of rows in a span, or zero if units read all of their columns themselves.
    rows_max: usize,
    spans: VecDeque<Span>,
}

struct Span {
    /// The positions of the span's rows. They ascend, unless the span begins with padding.
    positions: Vec<u64>,
    state: State,
}

enum State {
    Reading(AbortOnDrop<Result<Rows>>),
    There(Rows),
}

impl Spans {
    /// Makes the spans of a stream whose units have `unit_rows` rows of a rank.
    pub fn new(plan: StreamPlan, scan: ChunkScan, order: StreamOrder, unit_rows: u64) -> Self {
        let rows_max = Some(rows_max(&plan)).filter(|rows| *rows >= UNITS_MIN.saturating_mul(unit_rows));
        Self::of_rows(plan, scan, order, to_usize(rows_max.unwrap_or(0)))
    }

    /// Makes spans of `rows_max` rows.
    pub fn of_rows(plan: StreamPlan, scan: ChunkScan, order: StreamOrder, rows_max: usize) -> Self {
        Self { plan, scan, order, rows_max, spans: VecDeque::new() }
    }

    /// Returns whether units take their light columns from spans.
    pub fn are_used(&self) -> bool {
        self.rows_max > 0
    }

    /// Returns everything but the dense columns of the rows at `positions`. `upcoming` are the positions that units
    /// will request, beginning with these.
    ///
    /// Returns `None` if the unit must read the light columns itself: if its positions are not consecutive in one span,
    /// or if that span is still being read or could not be read.
    pub async fn rows(&mut self, positions: &[u64], upcoming: impl Iterator<Item = u64> + Clone) -> Option<Rows> {
        let (first, last) = (*positions.first()?, *positions.last()?);
        while self.spans.front().is_some_and(|span| span.last() < last) {
            self.spans.pop_front();
        }
        let mut next = self.spans.back().map_or(first, |span| span.last().saturating_add(1));
        while self.spans.len() < SPANS_MAX {
            let positions: Vec<u64> =
                upcoming.clone().skip_while(|position| *position < next).take(self.rows_max).collect();
            let Some(last) = positions.last() else { break };
            next = last.saturating_add(1);
            self.spans.push_back(self.begin(positions));
        }
        let span = self.spans.front_mut()?;
        let start = span.positions.binary_search(&first).ok()?;
        if span.positions.get(start..start + positions.len()) != Some(positions) {
            return None;
        }
        if let State::Reading(task) = &mut span.state {
            // Rows whose tensors could be read now must not wait for the light columns of rows far behind them.
            if !task.0.is_finished() {
                return None;
            }
            match (&mut task.0).await {
                Ok(Ok(rows)) => span.state = State::There(rows),
                // The unit with the faulty rows reads them itself and reports the error for its own rows.
                _ => {
                    self.spans.pop_front();
                    return None;
                }
            }
        }
        match &span.state {
            State::There(rows) => Some(rows.slice(start..start + positions.len())),
            State::Reading(_) => None,
        }
    }

    /// Returns whether no span is being read.
    #[cfg(test)]
    pub fn are_read(&self) -> bool {
        self.spans.iter().all(|span| match &span.state {
            State::Reading(task) => task.0.is_finished(),
            State::There(_) => true,
        })
    }

    fn begin(&self, positions: Vec<u64>) -> Span {
        let (plan, scan, order, wanted) = (self.plan.clone(), self.scan.clone(), self.order.clone(), positions.clone());
        let read = async move {
            let clock = UnitClock::start(scan.clock());
            let reader = Reader { plan: &plan.inner, scan: &scan, clock: &clock, blocks: None, is_first: false };
            read_light_rows(reader, FoundRows::at(&plan.inner, &order, wanted.into_iter()).await?).await
        };
        Span { positions, state: State::Reading(AbortOnDrop(tokio::spawn(read))) }
    }
}

impl Span {
    fn last(&self) -> u64 {
        self.positions.last().copied().unwrap_or_default()
    }
}

/// Returns the number of rows in a span of a stream. It is zero if rows are not read one by one, or have no light
/// columns in tables, or clips.
fn rows_max(plan: &StreamPlan) -> u64 {
    let [source] = &plan.inner.sources[..] else { return 0 };
    let is_read = source.columns.iter().any(|column| matches!(column, ColumnPlan::Table { .. }));
    if !is_read || !plan.inner.reads_rows_alone() || !plan.inner.clips.is_empty() {
        return 0;
    }
    let dense: usize = source.columns.iter().filter_map(ColumnPlan::dense_row_bytes).sum();
    let light = source.row_bytes.saturating_sub(dense as u64).max(1);
    (BYTES_MAX / light).min(ROWS_MAX)
}
