//! Light columns of large rows, read for many units at once.
//!
//! Where rows are large and lie in local files, a unit is a few megabytes: some tens of rows. To read the labels of so few rows takes
//! about as long as to read those of thousands, and a fifth of the time of the rows themselves.

use std::collections::VecDeque;

use stoker_chunks::ChunkScan;
use stoker_order::StreamOrder;

use crate::found_rows::FoundRows;
use crate::planner::AbortOnDrop;
use crate::read::{Reader, Rows, read_light_rows};
use crate::source::ColumnPlan;
use crate::unit_clock::UnitClock;
use crate::{Result, StreamPlan};

/// Rows of a span at most.
const ROWS_MAX: u64 = 4_096;

/// Bytes of the light columns of a span, about, at most.
const BYTES_MAX: u64 = 1 << 20;

/// Units of a span at least: one that lies in two spans reads its light columns itself.
const UNITS_MIN: u64 = 4;

/// Spans that are kept: one that units are cut from, and the next one.
const SPANS_MAX: usize = 2;

/// What is read ahead of units: all of their rows but the dense columns.
pub(crate) struct Spans {
    plan: StreamPlan,
    scan: ChunkScan,
    order: StreamOrder,
    /// Rows of a span; zero where units read all of their columns themselves.
    rows_max: usize,
    spans: VecDeque<Span>,
}

struct Span {
    /// Ascending, unless it begins with padding.
    positions: Vec<u64>,
    state: State,
}

enum State {
    Reading(AbortOnDrop<Result<Rows>>),
    There(Rows),
}

impl Spans {
    /// No spans yet. Units have so many rows of a rank.
    pub fn new(plan: StreamPlan, scan: ChunkScan, order: StreamOrder, unit_rows: u64) -> Self {
        let rows_max = Some(rows_max(&plan)).filter(|rows| *rows >= UNITS_MIN.saturating_mul(unit_rows));
        Self::of_rows(plan, scan, order, rows_max.unwrap_or(0) as usize)
    }

    /// Spans of so many rows.
    pub fn of_rows(plan: StreamPlan, scan: ChunkScan, order: StreamOrder, rows_max: usize) -> Self {
        Self { plan, scan, order, rows_max, spans: VecDeque::new() }
    }

    /// Whether units take their light columns from here.
    pub fn are_used(&self) -> bool {
        self.rows_max > 0
    }

    /// What there is to know of rows beside their dense columns; `None` where a unit reads it itself: because its rows do not follow
    /// each other in one span, or because that is not there yet, or could not be read. `upcoming` are the positions that units will ask
    /// for, these ones first.
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
            // Rows that are there do not wait for labels of rows far behind them.
            if !task.0.is_finished() {
                return None;
            }
            match (&mut task.0).await {
                Ok(Ok(rows)) => span.state = State::There(rows),
                // The unit whose rows are at fault finds that itself, in its place.
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

    /// Whether nothing is being read.
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
            let clock = UnitClock::start();
            let reader = Reader { plan: &plan.inner, scan: &scan, clock: &clock, blocks: None };
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

/// Rows of a span of a stream; zero where rows are not read one by one, or have nothing beside their dense columns.
fn rows_max(plan: &StreamPlan) -> u64 {
    let [source] = &plan.inner.sources[..] else { return 0 };
    let is_read = source.columns.iter().any(|column| matches!(column, ColumnPlan::Table { .. }));
    if !is_read || !plan.inner.reads_rows_alone() {
        return 0;
    }
    let dense: usize = source.columns.iter().filter_map(ColumnPlan::dense_row_bytes).sum();
    let light = source.row_bytes.saturating_sub(dense as u64).max(1);
    (BYTES_MAX / light).min(ROWS_MAX)
}
