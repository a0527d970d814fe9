//! The windows in which rows may replace each other.

use std::ops::Range;

use stoker_order::{StreamOrder, StreamOrders, Visit};
use stoker_types::StreamSpec;

/// The windows of one epoch of a stream. They are pure functions of the stream's specification.
pub struct Windows {
    order: StreamOrder,
}

/// The rows that may replace a bad row: the rows of its window in its source, beginning with the bad row itself,
/// cyclically.
#[derive(Clone, Debug)]
pub struct Window {
    visit: Visit,
    positions: Range<u64>,
}

/// A row, named by its position in the order of one source of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowRow {
    /// The source's index in the stream.
    pub source: usize,
    /// The source's own epoch.
    pub epoch: u64,
    /// The position in that epoch of the source.
    pub position: u64,
}

impl Windows {
    /// Makes the windows of an epoch.
    pub fn new(spec: &StreamSpec, epoch: u64) -> Self {
        Self { order: StreamOrders::new(spec).epoch(epoch) }
    }

    /// Returns the window of the row at a position of the stream. The position must be below the stream's number of
    /// rows.
    pub fn of(&self, position: u64) -> Window {
        Window::of(&self.order, &self.order.visit(position))
    }
}

impl Window {
    /// Returns the window of a visit in the order that it belongs to.
    pub fn of(order: &StreamOrder, visit: &Visit) -> Self {
        Self { visit: *visit, positions: order.window_of(visit) }
    }

    /// Returns the number of rows in the window.
    pub fn num_rows(&self) -> u64 {
        self.positions.end - self.positions.start
    }

    /// Returns the first row, which identifies the window.
    pub(crate) fn first(&self) -> WindowRow {
        let Visit { source, epoch, .. } = self.visit;
        WindowRow { source, epoch, position: self.positions.start }
    }

    /// Returns the row that comes `offset` rows after the bad row, cyclically. For offset 0 it is the bad row itself.
    pub fn row(&self, offset: u64) -> WindowRow {
        let Visit { source, epoch, position, .. } = self.visit;
        let Range { start, .. } = self.positions;
        let position = start + (position - start).saturating_add(offset) % self.num_rows().max(1);
        WindowRow { source, epoch, position }
    }
}
