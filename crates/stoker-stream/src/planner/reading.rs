//! Units that are being read, each by a task of its own.

use std::sync::Arc;

use stoker_batch::SlotMut;
use stoker_chunks::{BlockReads, ChunkScan};
use stoker_order::StreamOrder;
use stoker_types::Stalls;

use crate::Result;
use crate::abort_on_drop::AbortOnDrop;
use crate::found_rows::FoundRows;
use crate::part_builder::Piece;
use crate::plan::StreamPlan;
use crate::read::{Reader, Rows, read_dense, read_rows, split};
use crate::unit_clock::UnitClock;

/// A unit that is being read.
pub(super) struct Reading {
    pub task: AbortOnDrop<Result<ReadUnit>>,
    /// The positions of the rows in the order in which they are read. They are needed to find substitutes.
    pub positions: Arc<[u64]>,
    /// The parts with numbers below this one are complete when the task is done.
    pub complete_below: u64,
}

/// A unit that was read.
pub(super) struct ReadUnit {
    pub pieces: Vec<Piece>,
    /// Where the time went.
    pub spans: Stalls,
    /// Whether the unit waited for blocks that were to be resident. `None` if it read its rows itself.
    pub waited: Option<bool>,
}

/// The rows of a unit, as far as they are known before the unit is read.
pub(super) enum UnitRows {
    /// The rows with everything but their dense columns.
    AllButDense(Rows),
    /// The rows, being resolved by another task.
    LookedUp(AbortOnDrop<Result<FoundRows>>),
    /// The positions of the rows in the order.
    Positions(StreamOrder, Arc<[u64]>),
}

/// Reads the rows of a unit: dense columns into `claims`, and the others as pieces unless they are known already.
/// `parts` has the part number of each row.
pub(super) async fn read_unit(
    plan: StreamPlan,
    scan: ChunkScan,
    blocks: Option<BlockReads>,
    rows: UnitRows,
    parts: Vec<u64>,
    claims: Vec<Vec<SlotMut>>,
    is_first: bool,
) -> Result<ReadUnit> {
    let clock = UnitClock::start(scan.clock());
    let reader = Reader { plan: &plan.inner, scan: &scan, clock: &clock, blocks: blocks.as_ref(), is_first };
    let found = match rows {
        UnitRows::AllButDense(rows) => {
            let rows = read_dense(reader, rows, claims).await?;
            return Ok(ReadUnit { pieces: split(rows, &parts), spans: clock.spans(), waited: None });
        }
        UnitRows::LookedUp(mut task) => clock.read(task.done()).await?,
        UnitRows::Positions(order, positions) => {
            clock.read(FoundRows::at(&plan.inner, &order, positions.iter().copied())).await?
        }
    };
    let rows = read_rows(reader, found, claims).await?;
    Ok(ReadUnit { pieces: split(rows, &parts), spans: clock.spans(), waited: None })
}
