//! Reads the light columns, which are not read by chunk scan.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use arrow_array::{Array, ArrayRef, BooleanArray, new_empty_array, new_null_array};
use arrow_select::filter::filter;
use stoker_batch::interleave_column;
use stoker_chunks::{ChunkScan, verify_values, with_retries};
use stoker_lake::{SoundRows, Table};

use crate::clips::StreamClips;
use crate::found_rows::SourceRows;
use crate::read::supplier;
use crate::source::{ColumnPlan, SourcePlan};
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The bad rows by table and address, with what is wrong with them.
pub(crate) type Bad = HashMap<(usize, u64), String>;

/// Reads the light columns of rows. Returns one array for each column that is not dense and has no `clips`, with a value for
/// each position, or for each document of packs once, and the rows that are bad. `is_first` says whether the rows are those
/// of a first batch.
pub(crate) async fn read_light(
    source: &SourcePlan,
    clips: &StreamClips,
    scan: &ChunkScan,
    clock: &UnitClock,
    found: &SourceRows,
    is_first: bool,
) -> Result<(Vec<Option<ArrayRef>>, Bad)> {
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; source.columns.len()];
    let mut bad = Bad::new();
    let kept = source.light.read(source, scan, clock, &found.unique_ordinals(), is_first).await?;
    let has_kept = kept.is_some();
    kept.into_iter().flatten().for_each(|(column, array)| arrays[column] = Some(array));
    let mut others = Vec::new();
    for (index, column) in source.columns.iter().enumerate() {
        match column {
            ColumnPlan::Dense { .. } | ColumnPlan::Packed => {}
            ColumnPlan::RowSet { index: place } => {
                arrays[index] = Some(found.rows.columns[*place].clone());
            }
            ColumnPlan::Table { .. } if clips.has(index) => {}
            ColumnPlan::Table { .. } if has_kept && source.light.has(index) => {}
            ColumnPlan::Table { .. } => others.push(index),
        }
    }
    // Tables return rows in any order, so that no second copy puts them where they belong.
    let mut arrays = found.arrays_at_positions(arrays)?;
    let read = read_tables(source, scan, clock, &others, &found.addrs_to_read(), &mut bad).await?;
    others.into_iter().zip(read).for_each(|(column, array)| arrays[column] = Some(array));
    Ok((arrays, bad))
}

/// Reads some columns, which come from tables, of rows with these addresses. Returns an array for each of the columns.
pub(crate) async fn read_tables(
    source: &SourcePlan,
    scan: &ChunkScan,
    clock: &UnitClock,
    columns: &[usize],
    addrs: &[Vec<u64>],
    bad: &mut Bad,
) -> Result<Vec<ArrayRef>> {
    let mut groups: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for index in columns {
        if let ColumnPlan::Table { sources } = &source.columns[*index] {
            groups.entry(sources.iter().map(|(table, _)| *table).collect()).or_default().push(*index);
        }
    }
    let mut read: HashMap<usize, ArrayRef> = HashMap::new();
    for (tables, columns) in groups {
        let group = Group { source, tables: &tables, columns: &columns, clock, scan };
        read.extend(columns.iter().copied().zip(group.read(addrs, bad).await?));
    }
    Ok(columns.iter().filter_map(|column| read.remove(column)).collect())
}

/// Reads columns of these rows of a table, and compares the values with their checksums. Returns the values, and the rows that
/// are damaged in two reads, with what is wrong with them.
pub(crate) async fn take_verified(
    table: &Table,
    names: &[String],
    addrs: &[u64],
    scan: &ChunkScan,
    clock: &UnitClock,
) -> Result<(Vec<ArrayRef>, Vec<(u64, String)>)> {
    let (retry, by) = (scan.retry(), scan.clock());
    let attempt = async || {
        // Lance reads and decodes in one call. On a local disk, decoding takes most of the time; from an object store,
        // reading does.
        let taken = table.take_sound(names, addrs, scan.pool());
        let taken = if table.is_local() { taken.await? } else { clock.read(taken).await? };
        let mut damaged: Vec<(u64, String)> = Vec::new();
        if scan.verifies() {
            let (addrs, columns) = sound_rows(addrs, &taken);
            for (name, array) in names.iter().zip(columns.as_ref()) {
                damaged.extend(verify_values(table, name, &addrs, array, retry, by).await?);
            }
        }
        damaged.extend(taken.damaged);
        Ok::<_, stoker_chunks::Error>((taken.columns, damaged))
    };
    Ok(with_retries(retry, by, |_| {}, attempt).await?)
}

/// Returns an array without values that has the type of a column.
fn no_values(table: &Table, column: &str) -> Result<ArrayRef> {
    let schema = table.schema();
    let field = schema.field_with_name(column).map_err(Error::arrow)?;
    Ok(new_empty_array(field.data_type()))
}

/// Returns the addresses and values of the rows that are not damaged.
fn sound_rows<'a>(addrs: &'a [u64], taken: &'a SoundRows) -> (Cow<'a, [u64]>, Cow<'a, [ArrayRef]>) {
    if taken.damaged.is_empty() {
        return (addrs.into(), taken.columns.as_slice().into());
    }
    let is_sound: BooleanArray = addrs.iter().map(|addr| Some(!taken.damaged.contains_key(addr))).collect();
    let addrs = addrs.iter().copied().filter(|addr| !taken.damaged.contains_key(addr)).collect();
    // `filter` fails only for arrays of different lengths, and these have the same length.
    let columns = taken.columns.iter().filter_map(|column| filter(column, &is_sound).ok()).collect();
    (Cow::Owned(addrs), Cow::Owned(columns))
}

/// Columns that come from the same tables. They are read by one request per table.
struct Group<'a> {
    source: &'a SourcePlan,
    tables: &'a [usize],
    columns: &'a [usize],
    clock: &'a UnitClock,
    scan: &'a ChunkScan,
}

impl Group<'_> {
    async fn read(&self, addrs: &[Vec<u64>], bad: &mut Bad) -> Result<Vec<ArrayRef>> {
        let num_rows = addrs.first().map_or(0, Vec::len);
        // `places` has, for each row, the table that supplies it and the row's index among the rows of that table. A
        // row that no table supplies has the index of NULL, which comes after the values of all tables.
        let null = (self.tables.len(), 0);
        let mut supplied: Vec<Vec<u64>> = vec![Vec::new(); self.tables.len()];
        let mut places = Vec::with_capacity(num_rows);
        for row in 0..num_rows {
            match supplier(self.tables.iter().copied(), addrs, row) {
                Some(supplier) => {
                    places.push((supplier, supplied[supplier].len()));
                    supplied[supplier].push(addrs[self.tables[supplier]][row]);
                }
                None => places.push(null),
            }
        }
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.columns.len()];
        for (supplier, addrs) in supplied.iter().enumerate() {
            for (part, array) in parts.iter_mut().zip(self.read_table(supplier, addrs, bad).await?) {
                part.push(array);
            }
        }
        let has_null = places.contains(&null);
        let join = |mut parts: Vec<ArrayRef>| {
            if let (true, Some(part)) = (has_null, parts.first()) {
                parts.push(new_null_array(part.data_type(), 1));
            }
            match parts.as_slice() {
                [one] => Ok(one.clone()),
                many => {
                    let many: Vec<&dyn Array> = many.iter().map(AsRef::as_ref).collect();
                    Ok(interleave_column(&many, &places, Some(self.scan.pool()))?)
                }
            }
        };
        parts.into_iter().map(join).collect()
    }

    /// Reads the columns of these rows of one table.
    async fn read_table(&self, supplier: usize, addrs: &[u64], bad: &mut Bad) -> Result<Vec<ArrayRef>> {
        let names: Vec<String> = self.columns.iter().map(|column| self.name(*column, supplier)).collect();
        let table = &self.source.row_set.sources()[self.tables[supplier]];
        if addrs.is_empty() {
            return names.iter().map(|name| no_values(table, name)).collect();
        }
        let (arrays, damaged) = take_verified(table, &names, addrs, self.scan, self.clock).await?;
        for (address, reason) in damaged {
            bad.entry((self.tables[supplier], address)).or_insert(reason);
        }
        Ok(arrays)
    }

    fn name(&self, column: usize, supplier: usize) -> String {
        match &self.source.columns[column] {
            ColumnPlan::Table { sources } => sources[supplier].1.clone(),
            ColumnPlan::Dense { .. } | ColumnPlan::RowSet { .. } | ColumnPlan::Packed => String::new(),
        }
    }
}
