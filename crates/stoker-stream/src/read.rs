//! Reads the rows of visits.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_select::take::take;
use futures::future::try_join_all;
use stoker_batch::{SlotMut, interleave_column};
use stoker_chunks::{BadRow, BlockColumn, BlockReads, ChunkScan};
use stoker_lake::DenseColumn;
use stoker_sql::NO_ROW;
use stoker_types::to_usize;

use crate::blocks::{Blocks, rows_per_block};
use crate::clips::read_clips;
use crate::found_rows::{FoundRows, SourceRows};
use crate::light::read_light;
use crate::part_builder::Piece;
use crate::plan::PlanInner;
use crate::source::{ColumnPlan, SourcePlan};
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The rows of some visits, in their order, without the dense columns, which were read into slots.
pub(crate) struct Rows {
    /// The columns. A column that is not dense has one array, a dense column has `None`.
    pub light: Vec<Option<ArrayRef>>,
    /// The row addresses as `[table][row]`, over the tables of all sources. An address is [`NO_ROW`] if the table does
    /// not supply the row.
    pub addrs: Vec<Vec<u64>>,
    /// The rows that are bad, by their index. Their slots have undefined content.
    pub bad: BTreeMap<usize, Damage>,
}

impl Rows {
    /// Returns the rows in a range of indexes.
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self {
            light: self.light.iter().map(|array| Some(array.as_ref()?.slice(range.start, range.len()))).collect(),
            addrs: self.addrs.iter().map(|addrs| addrs[range.clone()].to_vec()).collect(),
            bad: self.bad.range(range.clone()).map(|(place, bad)| (place - range.start, bad.clone())).collect(),
        }
    }
}

/// What is wrong with a bad row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The index of the table, over the tables of all sources.
    pub table: usize,
    pub address: u64,
    pub reason: String,
}

/// Everything that is needed to read rows.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub plan: &'a PlanInner,
    pub scan: &'a ChunkScan,
    pub clock: &'a UnitClock,
    /// How whole blocks are read, or `None` if rows are read one by one.
    pub blocks: Option<&'a BlockReads>,
    /// Whether the rows are those of a first batch.
    pub is_first: bool,
}

/// Rows of a dense column that one table supplies.
pub(crate) struct DenseRequest {
    /// The index of the column in the stream.
    pub column: usize,
    /// The index of the table among those that can supply the column.
    pub supplier: usize,
    /// For each run of neighbouring rows, the ordinal of the first row.
    pub ordinals: Vec<u64>,
    /// For each run, the address of the first row, and the slots of all of its rows.
    pub wanted: Vec<(u64, SlotMut)>,
}

impl DenseRequest {
    /// Makes a request without rows.
    pub fn new(column: usize, supplier: usize) -> Self {
        Self { column, supplier, ordinals: Vec::new(), wanted: Vec::new() }
    }
}

/// Reads rows that were resolved: dense columns into `claims`, which has one list of slots for each column, and the
/// others as arrays.
pub(crate) async fn read_rows(reader: Reader<'_>, found: FoundRows, claims: Vec<Vec<SlotMut>>) -> Result<Rows> {
    let plan = reader.plan;
    let FoundRows { sources, mut by_source } = found;
    if by_source.len() == 1
        && let Some(only) = by_source.pop()
    {
        return reader.read_source(0, only, claims).await;
    }
    let num_sources = plan.sources.len();
    // `places` has, for each row, its source and its index among the rows of that source. `mine` has, for each source,
    // the indexes of its rows.
    let mut places = Vec::with_capacity(sources.len());
    let mut mine: Vec<Vec<usize>> = vec![Vec::new(); num_sources];
    for (index, source) in sources.iter().enumerate() {
        places.push((*source, mine[*source].len()));
        mine[*source].push(index);
    }
    let mut slots: Vec<Vec<Vec<SlotMut>>> =
        (0..num_sources).map(|_| claims.iter().map(|_| Vec::new()).collect()).collect();
    for (column, claims) in claims.into_iter().enumerate() {
        for (source, slot) in sources.iter().zip(single(claims)?) {
            slots[*source][column].push(slot);
        }
    }
    let reads = by_source.into_iter().zip(slots).enumerate();
    let reads = reads.map(|(source, (found, slots))| reader.read_source(source, found, slots));
    let parts = try_join_all(reads).await?;
    let mut rows = Rows { light: Vec::new(), addrs: Vec::new(), bad: BTreeMap::new() };
    for column in 0..plan.columns().len() {
        let arrays: Vec<&dyn Array> = parts.iter().filter_map(|part| part.light[column].as_deref()).collect();
        rows.light.push(match arrays.is_empty() {
            true => None,
            false => Some(interleave_column(&arrays, &places, Some(reader.scan.pool()))?),
        });
    }
    for (part, mine) in parts.into_iter().zip(&mine) {
        let first_table = rows.addrs.len();
        for found in part.addrs {
            let mut addrs = vec![NO_ROW; sources.len()];
            mine.iter().zip(found).for_each(|(index, addr)| addrs[*index] = addr);
            rows.addrs.push(addrs);
        }
        for (place, damage) in part.bad {
            rows.bad.insert(mine[place], Damage { table: first_table + damage.table, ..damage });
        }
    }
    Ok(rows)
}

/// Reads the dense columns of rows of the only source into `claims`. `rows` has everything else of these rows.
pub(crate) async fn read_dense(reader: Reader<'_>, mut rows: Rows, claims: Vec<Vec<SlotMut>>) -> Result<Rows> {
    let mut requests = Vec::new();
    for (column, (how, slots)) in reader.plan.sources[0].columns.iter().zip(claims).enumerate() {
        let ColumnPlan::Dense { sources, .. } = how else { continue };
        requests.extend(run_requests(column, sources, &rows.addrs, None, slots)?);
    }
    let mut damaged = Damaged::new();
    note(&mut damaged, reader.gather(0, requests).await?);
    for (place, damage) in bad_places(&rows.addrs, &damaged) {
        rows.bad.entry(place).or_insert(damage);
    }
    Ok(rows)
}

/// Reads the light columns of rows of the only source.
pub(crate) async fn read_light_rows(reader: Reader<'_>, found: FoundRows) -> Result<Rows> {
    let missing = || Error::Internal { reason: "no table supplies these rows".into() };
    let found = found.by_source.into_iter().next().ok_or_else(missing)?;
    let light = reader.read_light(&reader.plan.sources[0], &found);
    let (light, damaged) = light.await?;
    let (addrs, bad) = (found.addrs().into_owned(), found.bad(&damaged));
    Ok(Rows { light: found.arrays(&reader.plan.sources[0], light, reader.scan.pool())?, addrs, bad })
}

impl Reader<'_> {
    /// Reads rows of the dense columns of one source into their slots. Returns the bad rows of each request, with their
    /// table.
    pub async fn gather(self, source: usize, requests: Vec<DenseRequest>) -> Result<Vec<(usize, Vec<BadRow>)>> {
        let Self { plan, scan, clock, .. } = self;
        let order = &plan.spec.sources[source].order;
        let (number, source) = (source, &plan.sources[source]);
        let blocks = self.blocks.and_then(|reads| {
            let rows_per_block = rows_per_block(reads, order, source.row_bytes, scan.has_cache())?;
            Some((reads, Blocks { source, rows_per_block }))
        });
        let gathers = requests.into_iter().map(|request| async move {
            let DenseRequest { column: output, supplier, ordinals, wanted } = request;
            let ColumnPlan::Dense { sources, .. } = &source.columns[output] else { return Ok((0, Vec::new())) };
            let (table, name, dense) = &sources[supplier];
            let bad = match blocks {
                Some((reads, blocks)) => {
                    let tables: Vec<usize> = sources.iter().map(|(table, ..)| *table).collect();
                    let column = BlockColumn { source: number, table: *table, output, name, column: dense };
                    let addresses = |number| blocks.addresses(&tables, supplier, number);
                    let wanted = blocks.of(&ordinals, wanted)?;
                    clock.read(scan.gather_blocks(reads, column, wanted, addresses)).await?
                }
                None => clock.read(scan.gather(name, dense, wanted)).await?,
            };
            Ok::<_, Error>((*table, bad))
        });
        try_join_all(gathers).await
    }

    /// Reads the light columns of rows of a source.
    pub async fn read_light(self, source: &SourcePlan, found: &SourceRows) -> Result<(Vec<Option<ArrayRef>>, Damaged)> {
        let Self { plan, scan, clock, is_first, .. } = self;
        read_light(source, &plan.clips, scan, clock, found, is_first).await
    }

    /// Reads rows of one source.
    async fn read_source(self, source: usize, found: SourceRows, claims: Vec<Vec<SlotMut>>) -> Result<Rows> {
        let (number, source) = (source, &self.plan.sources[source]);
        let SourceRows { rows, places, ascending, .. } = &found;
        let mut requests = Vec::new();
        for (column, (how, slots)) in source.columns.iter().zip(claims).enumerate() {
            let ColumnPlan::Dense { sources, .. } = how else { continue };
            let Some(ascending) = ascending else {
                requests.extend(run_requests(column, sources, &rows.addrs, Some(&found.ordinals), slots)?);
                continue;
            };
            let in_order = ascending.iter().map(|place| (*place, to_usize(places[*place])));
            let wanted = wanted(sources, &rows.addrs, in_order, single(slots)?)?;
            for (supplier, (places, wanted)) in wanted.into_iter().enumerate() {
                let ordinals = if self.blocks.is_some() { pick(&found.ordinals, &places) } else { Vec::new() };
                requests.push(DenseRequest { column, supplier, ordinals, wanted });
            }
        }
        let light = self.read_light(source, &found);
        let ((light, mut damaged), gathered) = futures::try_join!(light, self.gather(number, requests))?;
        note(&mut damaged, gathered);
        let (addrs, mut bad, mut light) =
            (found.addrs().into_owned(), found.bad(&damaged), found.arrays(source, light, self.scan.pool())?);
        if !self.plan.clips.is_empty() {
            read_clips(self, source, &found, &mut light, &mut bad).await?;
        }
        Ok(Rows { light, addrs, bad })
    }
}

/// Returns arrays with the values at these indexes.
pub(crate) fn at_places(arrays: Vec<Option<ArrayRef>>, places: &[u64]) -> Result<Vec<Option<ArrayRef>>> {
    if places.iter().copied().eq(0..places.len() as u64) {
        return Ok(arrays);
    }
    let places = UInt64Array::from(places.to_vec());
    let at = |array: ArrayRef| take(&array, &places, None).map_err(Error::arrow);
    arrays.into_iter().map(|array| array.map(at).transpose()).collect()
}

/// The damaged rows, by table and address, with what is wrong with them.
pub(crate) type Damaged = HashMap<(usize, u64), String>;

/// Adds the rows that a chunk scan found to be bad in a table. Their slots are marked as filled.
pub(crate) fn note(damaged: &mut Damaged, gathered: impl IntoIterator<Item = (usize, Vec<BadRow>)>) {
    for (table, bad_rows) in gathered {
        for BadRow { address, reason, slots } in bad_rows {
            slots.into_iter().for_each(SlotMut::fill);
            damaged.entry((table, address)).or_insert(reason);
        }
    }
}

/// Returns the indexes of the rows that are bad in one of their tables.
pub(crate) fn bad_places(addrs: &[Vec<u64>], damaged: &Damaged) -> BTreeMap<usize, Damage> {
    let mut bad = BTreeMap::new();
    if damaged.is_empty() {
        return bad;
    }
    for (table, addrs) in addrs.iter().enumerate() {
        for (place, address) in addrs.iter().enumerate() {
            if let Some(reason) = damaged.get(&(table, *address)) {
                bad.insert(place, Damage { table, address: *address, reason: reason.clone() });
            }
        }
    }
    bad
}

/// Indexes of rows, and the address and slot of each of these rows.
type RowRequest = (Vec<u64>, Vec<(u64, SlotMut)>);

/// Returns, for each source of a dense column, the indexes of the rows that it supplies, with their addresses and
/// slots.
///
/// `places` has two indexes for each row, in the order in which the rows are to be read: one into `slots`, and one into
/// each table of `addrs`.
fn wanted(
    sources: &[(usize, String, Arc<DenseColumn>)],
    addrs: &[Vec<u64>],
    places: impl Iterator<Item = (usize, usize)>,
    slots: Vec<SlotMut>,
) -> Result<Vec<RowRequest>> {
    let mut slots: Vec<Option<SlotMut>> = slots.into_iter().map(Some).collect();
    let mut wanted: Vec<RowRequest> = sources.iter().map(|_| RowRequest::default()).collect();
    for (place, found) in places {
        let supplier = supplier(sources.iter().map(|(table, ..)| *table), addrs, found);
        let supplier = supplier.ok_or_else(|| {
            let names: Vec<&str> = sources.iter().map(|(_, name, _)| name.as_str()).collect();
            Error::Internal { reason: format!("a row has no tensor {}: no table supplies it", names.join(" or ")) }
        })?;
        let missing = || Error::Internal { reason: format!("row {place} of a unit has no memory slot, or two") };
        let slot = slots.get_mut(place).and_then(Option::take).ok_or_else(missing)?;
        wanted[supplier].0.push(place as u64);
        wanted[supplier].1.push((addrs[sources[supplier].0][found], slot));
    }
    Ok(wanted)
}

/// Returns slots as slots of one row each.
fn single(slots: Vec<SlotMut>) -> Result<Vec<SlotMut>> {
    if slots.iter().all(|slot| slot.num_rows() == 1) {
        return Ok(slots);
    }
    let mut single = Vec::with_capacity(slots.iter().map(SlotMut::num_rows).sum());
    for mut slot in slots {
        while slot.num_rows() > 1 {
            let rest = slot.split_off(1)?;
            single.push(std::mem::replace(&mut slot, rest));
        }
        single.push(slot);
    }
    Ok(single)
}

/// Returns the requests for the rows of a dense column, one for each of its sources. `slots` are those of all rows, in
/// order, and neighbours among the rows are requested together. The rows are neighbours if their addresses are, and
/// their `ordinals`, where these are needed.
fn run_requests(
    column: usize,
    sources: &[(usize, String, Arc<DenseColumn>)],
    addrs: &[Vec<u64>],
    ordinals: Option<&[u64]>,
    slots: Vec<SlotMut>,
) -> Result<Vec<DenseRequest>> {
    let tables: Vec<usize> = sources.iter().map(|(table, ..)| *table).collect();
    let mut requests: Vec<DenseRequest> =
        (0..sources.len()).map(|supplier| DenseRequest::new(column, supplier)).collect();
    let mut row = 0;
    for slot in slots {
        let rows = row..row + slot.num_rows();
        row = rows.end;
        add_runs(&tables, addrs, ordinals, rows, slot, &mut requests)?;
    }
    Ok(requests)
}

/// Adds neighbouring rows of a dense column to the requests for its sources. `slot` has the slots of these rows.
pub(crate) fn add_runs(
    tables: &[usize],
    addrs: &[Vec<u64>],
    ordinals: Option<&[u64]>,
    rows: Range<usize>,
    slot: SlotMut,
    requests: &mut [DenseRequest],
) -> Result<()> {
    let mut rest = Some(slot);
    let mut row = rows.start;
    while let Some(mut slot) = rest.take() {
        let (supplier, num_rows) = neighbours(tables, addrs, ordinals, row..rows.end)?;
        if num_rows < slot.num_rows() {
            rest = Some(slot.split_off(num_rows)?);
        }
        let request = &mut requests[supplier];
        request.ordinals.extend(ordinals.map(|ordinals| ordinals[row]));
        request.wanted.push((addrs[tables[supplier]][row], slot));
        row += num_rows;
    }
    Ok(())
}

/// Returns which table supplies the first of some rows, and how many rows from there on are its neighbours in that
/// table.
fn neighbours(
    tables: &[usize],
    addrs: &[Vec<u64>],
    ordinals: Option<&[u64]>,
    rows: Range<usize>,
) -> Result<(usize, usize)> {
    let supplied_by = |row| supplier(tables.iter().copied(), addrs, row);
    let missing = || Error::Internal { reason: "a row has no tensor: no table supplies it".into() };
    let mine = supplied_by(rows.start).ok_or_else(missing)?;
    let follows =
        |values: &[u64], row: usize| values[row].checked_sub(values[rows.start]) == Some((row - rows.start) as u64);
    let is_neighbour = |row: &usize| {
        follows(&addrs[tables[mine]], *row)
            && ordinals.is_none_or(|ordinals| follows(ordinals, *row))
            && (tables.len() == 1 || supplied_by(*row) == Some(mine))
    };
    Ok((mine, rows.clone().take_while(is_neighbour).count().max(1)))
}

/// Returns the values at these indexes.
pub(crate) fn pick(values: &[u64], places: &[u64]) -> Vec<u64> {
    places.iter().map(|place| values[to_usize(*place)]).collect()
}

/// Returns which of these tables supplies a row. It is the first one that has an address for the row, or `None`, after
/// an outer join. `addrs` is `[table][row]`.
pub(crate) fn supplier(mut tables: impl Iterator<Item = usize>, addrs: &[Vec<u64>], row: usize) -> Option<usize> {
    tables.position(|table| addrs[table][row] != NO_ROW)
}

/// Cuts the rows of a unit into pieces at the boundaries of parts. `parts` has the part number of each row.
pub(crate) fn split(rows: Rows, parts: &[u64]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for run in parts.chunk_by(|one, next| one == next) {
        let range = start..start + run.len();
        let Rows { light, addrs, bad } = rows.slice(range.clone());
        pieces.push(Piece { part: run[0], light, addrs, bad, range });
        start += run.len();
    }
    pieces
}
