//! Finds substitutes for bad rows.

use arrow_array::{Array, ArrayRef};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use stoker_batch::{BadRowsMet, Slots, Window, WindowRow};
use stoker_chunks::ChunkScan;
use stoker_order::{StreamOrder, Visit};
use stoker_types::BadShare;

use crate::found_rows::FoundRows;
use crate::part_builder::{PartBuilder, Piece};
use crate::read::{Damage, Reader, Rows, read_rows};
use crate::unit_clock::UnitClock;
use crate::{Error, Result, StreamPlan};

/// The largest number of concurrent searches for substitutes.
const SEARCHES_AT_ONCE: usize = 16;

impl StreamPlan {
    /// Returns the error for a piece with bad rows. It names the first of them.
    pub(crate) fn bad_row(&self, piece: &Piece) -> Error {
        let Some(damage) = piece.bad.values().next() else {
            return Error::Internal { reason: "a piece without bad rows".into() };
        };
        Error::BadRow { table: self.table_name(damage.table), address: damage.address, reason: damage.reason.clone() }
    }

    pub(crate) fn table_name(&self, table: usize) -> String {
        self.tables().nth(table).map_or_else(String::new, |table| table.snapshot().to_string())
    }
}

/// The bad rows that a stream met, shared by concurrent searches.
pub(crate) struct Met(Mutex<BadRowsMet>);

impl Met {
    pub fn new(share: BadShare) -> Self {
        Self(Mutex::new(BadRowsMet::new(share)))
    }

    fn contains(&self, window: &Window, row: WindowRow) -> bool {
        self.0.lock().contains(window, row)
    }

    fn add(&self, plan: &StreamPlan, window: &Window, row: WindowRow, damage: &Damage) -> Result<()> {
        let named = || format!("row {:#x} of {}: {}", damage.address, plan.table_name(damage.table), damage.reason);
        Ok(self.0.lock().add(window, row, named)?)
    }
}

/// Replaces each bad row of a piece by the next good row of the same window, both in the slots of its part and in the
/// piece. `positions` are those of the piece's rows.
///
/// Which rows are good is the same for every reader, so that all ranks and replicas find the same substitutes.
///
/// # Errors
/// [`Error::TooManyBadRows`]; [`Error::NoSubstitute`] if all rows of a window are bad; errors of reading.
pub(crate) async fn substitutes(
    plan: &StreamPlan,
    order: &StreamOrder,
    scan: &ChunkScan,
    positions: &[u64],
    mut piece: Piece,
    builder: &mut PartBuilder,
    met: &Met,
) -> Result<Piece> {
    let bad = std::mem::take(&mut piece.bad);
    let mut visits = Vec::with_capacity(positions.len());
    order.visits(positions.iter().copied(), &mut visits);
    for (place, damage) in &bad {
        let window = Window::of(order, &visits[*place]);
        met.add(plan, &window, window.row(0), damage)?;
    }
    let visits = &visits;
    let search = |(place, damage): (usize, Damage)| async move {
        let row = find(plan, order, scan, (positions[place], &visits[place]), &damage, met).await?;
        Ok::<_, Error>((place, damage, row))
    };
    let found: Vec<(usize, Damage, Row)> =
        stream::iter(bad).map(search).buffered(SEARCHES_AT_ONCE).try_collect().await?;
    for (column, light) in piece.light.iter_mut().enumerate() {
        let Some(array) = light else {
            for (place, _, row) in &found {
                let slot = builder.slots(column).map(|slots| slots.reopen(builder.num_added() + place)).transpose()?;
                if let (Some(mut slot), Some(values)) = (slot, &row.dense[column]) {
                    slot.copy_from_slice(values);
                    slot.fill();
                }
            }
            continue;
        };
        let values: Vec<&dyn Array> = found.iter().filter_map(|(.., row)| row.light[column].as_deref()).collect();
        let values = concat(&values).map_err(Error::arrow)?;
        let mut places: Vec<(usize, usize)> = (0..array.len()).map(|row| (0, row)).collect();
        found.iter().enumerate().for_each(|(index, (place, ..))| places[*place] = (1, index));
        *light = Some(interleave(&[array.as_ref(), values.as_ref()], &places).map_err(Error::arrow)?);
    }
    for (place, damage, row) in found {
        let mut row_addrs: Vec<u64> = piece.addrs.iter().map(|addrs| addrs[place]).collect();
        // Of a pack or bucket, it is the bad row that is named.
        row_addrs[damage.table] = damage.address;
        piece.addrs.iter_mut().zip(&row.addrs).for_each(|(addrs, addr)| addrs[place] = *addr);
        let reason = format!("{}: {}", plan.table_name(damage.table), damage.reason);
        tracing::warn!(address = damage.address, reason, "a bad row was substituted");
        builder.note(builder.num_added() + place, row_addrs, reason);
    }
    Ok(piece)
}

/// A good row.
struct Row {
    /// For each dense column, its bytes.
    dense: Vec<Option<arrow_buffer::Buffer>>,
    /// For each other column, an array of one value.
    light: Vec<Option<ArrayRef>>,
    /// For each table, the address of the row.
    addrs: Vec<u64>,
}

/// Returns the next good row after a bad one in its window, cyclically. `bad` are the position and the visit of the bad row.
async fn find(
    plan: &StreamPlan,
    order: &StreamOrder,
    scan: &ChunkScan,
    (position, bad): (u64, &Visit),
    damage: &Damage,
    met: &Met,
) -> Result<Row> {
    let window = Window::of(order, bad);
    let mut reason = damage.reason.clone();
    for row in (1..window.num_rows()).map(|offset| window.row(offset)) {
        // Whether the frames of a clip are good depends on the position, too, so that the row is read for this one.
        if plan.inner.clips.is_empty() && met.contains(&window, row) {
            continue;
        }
        let visit = order.visit_beside(bad, row.position);
        match read_one(plan, scan, (order.number(), position), &visit).await? {
            Ok(found) => return Ok(found),
            Err(damage) => {
                met.add(plan, &window, row, &damage)?;
                reason = damage.reason;
            }
        }
    }
    Err(Error::NoSubstitute { address: damage.address, rows: window.num_rows(), reason })
}

/// Reads a row for an epoch and a position.
async fn read_one(
    plan: &StreamPlan,
    scan: &ChunkScan,
    (epoch, position): (u64, u64),
    visit: &Visit,
) -> Result<Result<Row, Damage>> {
    let columns = plan.inner.columns();
    let memory = columns
        .iter()
        .map(|column| column.dense_row_bytes().map(|row_bytes| Slots::try_new(scan.pool(), 1, row_bytes)).transpose())
        .collect::<stoker_batch::Result<Vec<_>>>()?;
    let claim = |slots: &Option<std::sync::Arc<Slots>>| slots.iter().map(|slots| slots.claim(0)).collect();
    let claims = memory.iter().map(claim).collect::<stoker_batch::Result<_>>()?;
    let clock = UnitClock::start(scan.clock());
    let reader = Reader { plan: &plan.inner, scan, clock: &clock, blocks: None, is_first: true };
    let found = FoundRows::of(&plan.inner, std::slice::from_ref(visit)).await?.delivered(epoch, [position]);
    let Rows { light, addrs, mut bad } = read_rows(reader, found, claims).await?;
    if let Some(damage) = bad.remove(&0) {
        return Ok(Err(damage));
    }
    let dense = memory.into_iter().map(|slots| slots.map(Slots::freeze).transpose());
    let dense = dense.collect::<stoker_batch::Result<_>>()?;
    Ok(Ok(Row { dense, light, addrs: addrs.iter().map(|addrs| addrs[0]).collect() }))
}
