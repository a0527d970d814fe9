//! The windows in which rows stand for each other.

use std::ops::Range;

use stoker_order::{StreamOrder, StreamOrders, Visit};
use stoker_types::StreamSpec;

/// The windows of one epoch of a stream: pure functions of its specification.
pub struct Windows {
    order: StreamOrder,
}

/// The rows of which one stands for a bad row: those of its window of its source, beginning with the bad row itself, cyclically.
#[derive(Clone, Debug)]
pub struct Window {
    visit: Visit,
    positions: Range<u64>,
}

/// A row by its place in the order of one source of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowRow {
    /// Which source of the stream.
    pub source: usize,
    /// The source's own epoch.
    pub epoch: u64,
    /// The position in that epoch of the source.
    pub position: u64,
}

impl Windows {
    /// The windows of an epoch.
    pub fn new(spec: &StreamSpec, epoch: u64) -> Self {
        Self { order: StreamOrders::new(spec).epoch(epoch) }
    }

    /// The window of the row at a position of the stream, which must be one of its rows.
    pub fn of(&self, position: u64) -> Window {
        Window::of(&self.order, &self.order.visit(position))
    }
}

impl Window {
    pub(crate) fn of(order: &StreamOrder, visit: &Visit) -> Self {
        Self { visit: *visit, positions: order.window_of(visit) }
    }

    /// Rows in the window.
    pub fn num_rows(&self) -> u64 {
        self.positions.end - self.positions.start
    }

    /// The first row, which names the window.
    pub(crate) fn first(&self) -> WindowRow {
        let Visit { source, epoch, .. } = self.visit;
        WindowRow { source, epoch, position: self.positions.start }
    }

    /// The row that comes `offset` rows after the bad one, cyclically; the bad row itself for 0.
    pub fn row(&self, offset: u64) -> WindowRow {
        let Visit { source, epoch, position, .. } = self.visit;
        let Range { start, .. } = self.positions;
        let position = start + (position - start).saturating_add(offset) % self.num_rows().max(1);
        WindowRow { source, epoch, position }
    }
}
