//! Reads the rows of some visits.

use std::collections::{BTreeMap, HashMap};

use arrow_array::{Array, ArrayRef};
use arrow_select::interleave::interleave;
use futures::future::try_join_all;
use stoker_chunks::{BadRow, BlockColumn, BlockReads, ChunkScan, SlotMut};
use stoker_order::Visit;
use stoker_sql::{NO_ROW, ResolvedRows};

use crate::blocks::{Blocks, rows_per_block};
use crate::light::read_light;
use crate::plan::PlanInner;
use crate::source::{ColumnPlan, SourcePlan};
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The rows of some visits, in their order, besides what went into slots.
pub(crate) struct Rows {
    /// One array for each column that is not dense; `None` for dense ones.
    pub light: Vec<Option<ArrayRef>>,
    /// Row addresses, `[table][row]`, over the tables of all sources; [`NO_ROW`] where a table does not supply a row.
    pub addrs: Vec<Vec<u64>>,
    /// The rows that are bad, by their place among the visits; their slots are filled with anything.
    pub bad: BTreeMap<usize, Damage>,
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The table, over the tables of all sources.
    pub table: usize,
    pub address: u64,
    pub reason: String,
}

/// What rows are read with.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub plan: &'a PlanInner,
    pub scan: &'a ChunkScan,
    pub clock: &'a UnitClock,
    /// How whole blocks are read, if they are.
    pub blocks: Option<&'a BlockReads>,
}

/// Reads rows: dense columns into `claims`, one list of slots for each column, the others as arrays.
pub(crate) async fn read_rows(reader: Reader<'_>, visits: &[Visit], claims: Vec<Vec<SlotMut>>) -> Result<Rows> {
    let plan = reader.plan;
    if plan.sources.len() == 1 {
        let ordinals: Vec<u64> = visits.iter().map(|visit| visit.ordinal).collect();
        return reader.read_source(0, &ordinals, claims).await;
    }
    let num_sources = plan.sources.len();
    // For each visit, its place among those of its source; for each source, the places of its visits.
    let mut places = Vec::with_capacity(visits.len());
    let mut mine: Vec<Vec<usize>> = vec![Vec::new(); num_sources];
    for (index, visit) in visits.iter().enumerate() {
        places.push((visit.source, mine[visit.source].len()));
        mine[visit.source].push(index);
    }
    let mut slots: Vec<Vec<Vec<SlotMut>>> =
        (0..num_sources).map(|_| claims.iter().map(|_| Vec::new()).collect()).collect();
    for (column, claims) in claims.into_iter().enumerate() {
        for (visit, slot) in visits.iter().zip(claims) {
            slots[visit.source][column].push(slot);
        }
    }
    let reads = mine.iter().zip(slots).enumerate().map(|(source, (mine, slots))| async move {
        let ordinals: Vec<u64> = mine.iter().map(|index| visits[*index].ordinal).collect();
        reader.read_source(source, &ordinals, slots).await
    });
    let parts = try_join_all(reads).await?;
    let mut rows = Rows { light: Vec::new(), addrs: Vec::new(), bad: BTreeMap::new() };
    for column in 0..plan.columns().len() {
        let arrays: Vec<&dyn Array> = parts.iter().filter_map(|part| part.light[column].as_deref()).collect();
        rows.light.push(match arrays.is_empty() {
            true => None,
            false => Some(interleave(&arrays, &places).map_err(Error::arrow)?),
        });
    }
    for (part, mine) in parts.into_iter().zip(&mine) {
        let first_table = rows.addrs.len();
        for found in part.addrs {
            let mut addrs = vec![NO_ROW; visits.len()];
            mine.iter().zip(found).for_each(|(index, addr)| addrs[*index] = addr);
            rows.addrs.push(addrs);
        }
        for (place, damage) in part.bad {
            rows.bad.insert(mine[place], Damage { table: first_table + damage.table, ..damage });
        }
    }
    Ok(rows)
}

impl Reader<'_> {
    /// Reads rows of one source by their ordinals.
    async fn read_source(self, source: usize, ordinals: &[u64], claims: Vec<Vec<SlotMut>>) -> Result<Rows> {
        let Self { plan, scan, clock, .. } = self;
        let order = &plan.spec.sources[source].order;
        let (number, source) = (source, &plan.sources[source]);
        let blocks = self.blocks.and_then(|reads| {
            let rows_per_block = rows_per_block(reads, order, source.row_bytes, scan.has_cache())?;
            Some((reads, Blocks { source, rows_per_block }))
        });
        let (resolved, rows) = clock.read(resolve(source, ordinals)).await?;
        let addrs: Vec<Vec<u64>> = resolved.addrs.iter().map(|addrs| pick(addrs, &rows)).collect();
        let mut gathers = Vec::new();
        for (output, (column, slots)) in source.columns.iter().zip(claims).enumerate() {
            let ColumnPlan::Dense { sources, .. } = column else { continue };
            let tables: Vec<usize> = sources.iter().map(|(table, ..)| *table).collect();
            let mut wanted: Vec<Vec<(u64, SlotMut)>> = sources.iter().map(|_| Vec::new()).collect();
            let mut wanted_ordinals: Vec<Vec<u64>> = sources.iter().map(|_| Vec::new()).collect();
            for (place, slot) in slots.into_iter().enumerate() {
                let supplier = supplier(tables.iter().copied(), &addrs, place)?;
                wanted[supplier].push((addrs[tables[supplier]][place], slot));
                if blocks.is_some() {
                    wanted_ordinals[supplier].push(ordinals[place]);
                }
            }
            let wanted = wanted.into_iter().zip(wanted_ordinals).enumerate();
            for ((table, name, dense), (supplier, (wanted, ordinals))) in sources.iter().zip(wanted) {
                let tables = tables.clone();
                gathers.push(async move {
                    let bad = match blocks {
                        Some((reads, blocks)) => {
                            let column = BlockColumn { source: number, table: *table, output, name, column: dense };
                            let addresses = |number| blocks.addresses(&tables, supplier, number);
                            let wanted = blocks.of(&ordinals, wanted);
                            clock.read(scan.gather_blocks(reads, column, wanted, addresses)).await?
                        }
                        None => clock.read(scan.gather(name, dense, wanted)).await?,
                    };
                    Ok::<_, Error>((*table, bad))
                });
            }
        }
        let light = read_light(source, scan, clock, &resolved.columns, &rows, &addrs);
        let ((light, bad_light), gathered) = futures::try_join!(light, try_join_all(gathers))?;
        let mut damaged: HashMap<(usize, u64), String> = bad_light;
        for (table, bad_rows) in gathered {
            for BadRow { address, reason, slots } in bad_rows {
                slots.into_iter().for_each(SlotMut::fill);
                damaged.entry((table, address)).or_insert(reason);
            }
        }
        let mut bad = BTreeMap::new();
        if !damaged.is_empty() {
            for (table, addrs) in addrs.iter().enumerate() {
                for (place, address) in addrs.iter().enumerate() {
                    if let Some(reason) = damaged.get(&(table, *address)) {
                        bad.insert(place, Damage { table, address: *address, reason: reason.clone() });
                    }
                }
            }
        }
        Ok(Rows { light, addrs, bad })
    }
}

/// The rows with these ordinals, each once, and for each ordinal its place among them.
pub(crate) async fn resolve(source: &SourcePlan, ordinals: &[u64]) -> Result<(ResolvedRows, Vec<u64>)> {
    if ordinals.is_sorted_by(|one, next| one < next) {
        return Ok((source.row_set.resolve(ordinals).await?, (0..ordinals.len() as u64).collect()));
    }
    let mut sorted: Vec<(u64, usize)> = ordinals.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut unique: Vec<u64> = Vec::with_capacity(sorted.len());
    let mut places = vec![0; sorted.len()];
    for (ordinal, index) in sorted {
        if unique.last() != Some(&ordinal) {
            unique.push(ordinal);
        }
        places[index] = unique.len() as u64 - 1;
    }
    Ok((source.row_set.resolve(&unique).await?, places))
}

/// The values at these places.
fn pick(values: &[u64], places: &[u64]) -> Vec<u64> {
    places.iter().map(|place| values[*place as usize]).collect()
}

/// Which of these tables supplies a row: the first one that has it. `addrs` is `[table][row]`.
pub(crate) fn supplier(mut tables: impl Iterator<Item = usize>, addrs: &[Vec<u64>], row: usize) -> Result<usize> {
    let supplier = tables.position(|table| addrs[table][row] != NO_ROW);
    supplier.ok_or_else(|| Error::Internal { reason: "a row without a source".into() })
}

/// The row addresses of visits, `[table][visit]`, over the tables of all sources.
pub(crate) async fn row_addrs(plan: &PlanInner, visits: &[Visit]) -> Result<Vec<Vec<u64>>> {
    let mut all = Vec::new();
    for (index, source) in plan.sources.iter().enumerate() {
        let mine: Vec<usize> = (0..visits.len()).filter(|place| visits[*place].source == index).collect();
        let ordinals: Vec<u64> = mine.iter().map(|place| visits[*place].ordinal).collect();
        let (resolved, rows) = resolve(source, &ordinals).await?;
        for found in resolved.addrs {
            let mut addrs = vec![NO_ROW; visits.len()];
            mine.iter().zip(&rows).for_each(|(place, row)| addrs[*place] = found[*row as usize]);
            all.push(addrs);
        }
    }
    Ok(all)
}
