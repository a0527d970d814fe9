//! Takes resident rows when they are due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::Array;
use stoker_batch::{BufferPool, SlotMut, interleave_column};
use stoker_types::{Stalls, to_usize};
use tokio::task::yield_now;

use crate::found_rows::FoundRows;
use crate::read::{Damage, Reader, Rows, pick, read_dense, read_rows};
use crate::resident::groups::DueGroup;
use crate::resident::kept::KeptRow;
use crate::resident::{Arrival, Shared};
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The number of bytes that a task copies before other tasks get a turn.
const COPIED_AT_ONCE: usize = 1 << 20;

/// Where the rows of a unit are.
#[derive(Default)]
struct Located {
    /// The groups that have some of the rows, with their numbers.
    groups: Vec<(u32, Arc<DueGroup>)>,
    /// For each row, the index of its group and its index in the group. The group of a row that is not in memory is the
    /// one after the last.
    rows: Vec<(usize, usize)>,
    /// The indexes of the rows that are not in memory.
    absent: Vec<usize>,
}

/// The rows of a unit.
pub(crate) struct TakenRows {
    pub rows: Rows,
    pub spans: Stalls,
    /// Whether storage was waited for.
    pub waited: bool,
}

impl Shared {
    /// Takes the rows at some positions, once these arrivals are read: dense columns into `claims`, which has for each
    /// dense column the slots of all rows in order.
    pub async fn take(
        self: Arc<Self>,
        arrivals: Vec<Arc<Arrival>>,
        positions: Arc<[u64]>,
        claims: Vec<Vec<SlotMut>>,
    ) -> Result<TakenRows> {
        let clock = UnitClock::start(self.scan.clock());
        let mut waited = false;
        for arrival in arrivals {
            waited |= !arrival.is_done();
            clock.read(arrival.wait()).await?;
        }
        let mut ordinals = Vec::with_capacity(positions.len());
        self.epoch_order.ordinals(positions.iter().copied(), &mut ordinals);
        let places = self.find(&ordinals);
        let mut present = Vec::with_capacity(claims.len());
        let mut absent_claims = Vec::with_capacity(claims.len());
        for slots in claims {
            let (mine, others) = divided(slots, &places.absent)?;
            present.push(mine);
            absent_claims.push(others);
        }
        let blocks = self.blocks.as_ref();
        let reader = Reader { plan: &self.plan.inner, scan: &self.scan, clock: &clock, blocks, is_first: false };
        let absent = match places.absent.is_empty() {
            true => None,
            false => {
                let absent = places.absent.iter().map(|row| positions[*row]);
                let found = FoundRows::at(&self.plan.inner, &self.order, absent).await?;
                Some(read_rows(reader, found, absent_claims).await?)
            }
        };
        let (columns, tables) = (self.plan.inner.columns().len(), self.plan.inner.num_tables());
        let mut rows = places.rows(columns, tables, absent, self.scan.pool())?;
        if self.keeps_dense {
            for (column, slots) in present.into_iter().enumerate() {
                places.copy(column, slots).await?;
            }
        } else {
            places.read_dense(reader, present, &mut rows).await?;
        }
        self.release(&places);
        Ok(TakenRows { rows, spans: clock.spans(), waited })
    }

    /// Finds the rows with these ordinals.
    fn find(&self, ordinals: &[u64]) -> Located {
        let mut places = Located { rows: Vec::with_capacity(ordinals.len()), ..Located::default() };
        let kept = self.kept.lock();
        let (first_group, num_groups) = kept.numbers();
        // For each group, its index among those of this unit.
        let mut known: Vec<u32> = vec![u32::MAX; num_groups];
        for (row, ordinal) in ordinals.iter().enumerate() {
            let block = ordinal / self.rows_per_block;
            match kept.find(block, to_usize(ordinal - block * self.rows_per_block)) {
                Some((KeptRow { group: number, row }, group)) => {
                    let index = &mut known[(number - first_group) as usize];
                    if *index == u32::MAX {
                        *index = u32::try_from(places.groups.len()).unwrap_or(u32::MAX);
                        places.groups.push((number, group.clone()));
                    }
                    places.rows.push((*index as usize, row as usize));
                }
                None => {
                    places.rows.push((usize::MAX, places.absent.len()));
                    places.absent.push(row);
                }
            }
        }
        let after = places.groups.len();
        places.absent.iter().for_each(|row| places.rows[*row].0 = after);
        places
    }

    /// Releases the groups whose rows were all taken.
    fn release(&self, places: &Located) {
        let mut taken = vec![0; places.groups.len()];
        for (group, _) in &places.rows {
            if let Some(count) = taken.get_mut(*group) {
                *count += 1;
            }
        }
        for ((number, group), count) in places.groups.iter().zip(taken) {
            // Padding takes rows twice.
            let left =
                group.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| Some(left.saturating_sub(count)));
            if !left.is_ok_and(|left| left > count) {
                self.kept.lock().remove(*number);
            }
        }
    }
}

impl Located {
    /// Copies the rows of a dense column that are in memory into their slots, which are in the order of the rows.
    async fn copy(&self, column: usize, slots: Vec<SlotMut>) -> Result<()> {
        let missing = || Error::Internal { reason: "a unit has more slots than resident rows".into() };
        let sources: Vec<&[u8]> =
            self.groups.iter().map(|(_, group)| group.dense[column].as_deref().unwrap_or_default()).collect();
        let mut rows = self.rows.iter().filter(|(group, _)| *group < sources.len());
        let mut copied = 0;
        for mut slot in slots {
            let row_bytes = slot.row_bytes();
            for target in slot.chunks_exact_mut(row_bytes.max(1)) {
                let (group, row) = rows.next().ok_or_else(missing)?;
                let row = sources[*group].get(row * row_bytes..(row + 1) * row_bytes);
                target.copy_from_slice(row.ok_or_else(missing)?);
                copied += row_bytes;
                if copied >= COPIED_AT_ONCE {
                    copied = 0;
                    yield_now().await;
                }
            }
            slot.fill();
        }
        Ok(())
    }

    /// Reads the dense columns of the rows that have all else in memory into their slots. `rows` are all rows of the unit.
    async fn read_dense(&self, reader: Reader<'_>, slots: Vec<Vec<SlotMut>>, rows: &mut Rows) -> Result<()> {
        let mut absent = self.absent.iter().peekable();
        let present: Vec<u64> =
            (0..self.rows.len()).filter(|row| absent.next_if_eq(&row).is_none()).map(|row| row as u64).collect();
        let addrs = rows.addrs.iter().map(|addrs| pick(addrs, &present)).collect();
        let read = Rows { light: Vec::new(), addrs, bad: BTreeMap::new() };
        for (row, damage) in read_dense(reader, read, slots).await?.bad {
            rows.bad.entry(to_usize(present[row])).or_insert(damage);
        }
        Ok(())
    }

    /// Returns the rows without their dense columns. `absent` are those of the rows that are not in memory. The memory of
    /// lists of numbers comes from `pool`.
    fn rows(&self, num_columns: usize, num_tables: usize, absent: Option<Rows>, pool: &BufferPool) -> Result<Rows> {
        let mut light = Vec::with_capacity(num_columns);
        for column in 0..num_columns {
            let arrays = self.groups.iter().filter_map(|(_, group)| group.light[column].as_deref());
            let arrays = arrays.chain(absent.as_ref().and_then(|rows| rows.light[column].as_deref()));
            let arrays: Vec<&dyn Array> = arrays.collect();
            light.push(match arrays.is_empty() {
                true => None,
                false => Some(interleave_column(&arrays, &self.rows, Some(pool))?),
            });
        }
        let of_table = |table: usize| {
            let groups = self.groups.iter().map(|(_, group)| group.addrs[table].as_slice());
            let addrs: Vec<&[u64]> = groups.chain(absent.as_ref().map(|rows| rows.addrs[table].as_slice())).collect();
            self.rows.iter().map(|(group, row)| addrs[*group][*row]).collect()
        };
        let addrs = (0..num_tables).map(of_table).collect();
        let bad: Vec<&BTreeMap<usize, Damage>> =
            self.groups.iter().map(|(_, group)| &group.bad).chain(absent.as_ref().map(|rows| &rows.bad)).collect();
        let is_bad = |(index, (group, row)): (usize, &(usize, usize))| Some((index, bad[*group].get(row)?.clone()));
        let bad = match bad.iter().all(|bad| bad.is_empty()) {
            true => BTreeMap::new(),
            false => self.rows.iter().enumerate().filter_map(is_bad).collect(),
        };
        Ok(Rows { light, addrs, bad })
    }
}

/// Divides the slots of rows in order into those of the rows with other indexes than `absent`, and those of `absent`,
/// row by row. `absent` ascends.
fn divided(slots: Vec<SlotMut>, absent: &[usize]) -> Result<(Vec<SlotMut>, Vec<SlotMut>)> {
    if absent.is_empty() {
        return Ok((slots, Vec::new()));
    }
    let (mut present, mut others) = (Vec::new(), Vec::with_capacity(absent.len()));
    let mut absent = absent.iter().copied().peekable();
    let mut first = 0;
    for slot in slots {
        let mut rest = Some(slot);
        while let Some(mut slot) = rest.take() {
            let num_rows = slot.num_rows();
            let before = absent.peek().map_or(num_rows, |next| next - first).min(num_rows);
            let (count, is_absent) = if before == 0 { (1, true) } else { (before, false) };
            if count < num_rows {
                rest = Some(slot.split_off(count)?);
            }
            first += count;
            match is_absent {
                true => {
                    absent.next();
                    others.push(slot);
                }
                false => present.push(slot),
            }
        }
    }
    Ok((present, others))
}
