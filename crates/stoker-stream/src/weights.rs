//! Weights of rows: how often each row of a query comes in an epoch.
//!
//! ```text
//! plan     weight column ──read once, in the order of the rows──► 4 bytes per row, in memory or in a temporary file
//! stream   position ──order──► weighted ordinal ──weights of its group of 1,024 rows──► ordinal of a row
//! ```

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::DataType;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use stoker_chunks::ChunkScan;
use stoker_order::{WEIGHT_GROUP_ROWS, WEIGHT_MAX, WeightSums, WeightedGroup};
use stoker_sql::{NO_ROW, ResolvedRows};
use stoker_types::{DigestBuilder, ReadOptions, WEIGHT_VERSION, WeightSpec, to_usize};

use crate::light::{Bad, read_tables};
use crate::options::chunk_scan;
use crate::source::{ColumnPlan, SourcePlan};
use crate::unit_clock::UnitClock;
use crate::{Error, Resources, Result};

/// The number of rows whose weights are read together.
const ROWS_AT_ONCE: u64 = 64 * WEIGHT_GROUP_ROWS;

/// The number of such reads at the same time.
const READS_AT_ONCE: usize = 4;

/// The bytes of the weights of a query that are kept in memory. More of them are kept in a temporary file.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// The number of groups whose rows are kept. A group takes 2 to 5 KiB.
const GROUPS_MAX: usize = 2_048;

/// The weights of the rows of a query.
pub(crate) struct RowWeights {
    spec: WeightSpec,
    sums: WeightSums,
    values: Values,
    /// The seed of the source's orders.
    seed: u64,
    groups: Mutex<Groups>,
}

/// One weight for each row.
enum Values {
    Memory(Vec<f32>),
    /// In a file that has no name, as little-endian numbers.
    File(File),
}

/// The groups that were used last, by epoch and number.
#[derive(Default)]
struct Groups {
    known: HashMap<(u64, u64), Arc<WeightedGroup>>,
    oldest: VecDeque<(u64, u64)>,
}

impl RowWeights {
    /// Reads the weights of a query from its column `column`. `seed` is that of the source's orders.
    ///
    /// # Errors
    /// [`Error::Weight`] for a column that the query does not have or that has no numbers, and for a value that is no
    /// weight; [`Error::BadRow`]; errors of reading.
    pub async fn read(source: &SourcePlan, column: &str, seed: u64) -> Result<Self> {
        let index = source.query.columns().iter().position(|known| known.field.name() == column);
        let Some(index) = index else {
            let names: Vec<&str> = source.query.columns().iter().map(|known| known.field.name().as_str()).collect();
            return Err(invalid(column, format!("the query has no such column; it has {}", names.join(", "))));
        };
        let data_type = source.query.columns()[index].field.data_type();
        if !(data_type.is_numeric() || *data_type == DataType::Boolean) {
            return Err(invalid(column, format!("it is {data_type}; weights are numbers")));
        }
        let num_rows = source.row_set.num_rows();
        let scan = chunk_scan(&ReadOptions::default(), &Resources::default());
        let clock = UnitClock::start(scan.clock());
        let reads = (0..num_rows).step_by(to_usize(ROWS_AT_ONCE)).map(|start| {
            let ordinals: Vec<u64> = (start..num_rows.min(start + ROWS_AT_ONCE)).collect();
            let (scan, clock) = (&scan, &clock);
            async move {
                let rows = source.row_set.resolve(&ordinals).await?;
                let values = read_column(source, (scan, clock), index, &rows).await?;
                let weights = Column { source, name: column, rows: &rows }.numbers(&values)?;
                Ok::<_, Error>((rows, weights))
            }
        });
        let mut reads = stream::iter(reads).buffered(READS_AT_ONCE);
        let (mut sums, mut values) = (WeightSums::default(), Values::for_rows(num_rows, MEMORY_BYTES_MAX)?);
        let mut digest = DigestBuilder::new("stoker.weights.v1");
        while let Some((rows, weights)) = reads.try_next().await? {
            for (group, of_group) in weights.chunks(to_usize(WEIGHT_GROUP_ROWS)).enumerate() {
                sums.add(of_group).map_err(|row| {
                    let row = group * to_usize(WEIGHT_GROUP_ROWS) + row;
                    Column { source, name: column, rows: &rows }.no_weight(row, &weights[row].to_string())
                })?;
            }
            let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
            digest.update(&bytes);
            values.add(&weights, &bytes)?;
        }
        if num_rows > 0 && sums.num_rows() == 0 {
            let reason = format!("the weights of {num_rows} rows add up to {}, so that an epoch has no row", sums.total());
            return Err(invalid(column, format!("{reason}; multiply them")));
        }
        let spec = WeightSpec { version: WEIGHT_VERSION, column: column.into(), num_rows, digest: digest.finish() };
        Ok(Self { spec, sums, values, seed, groups: Mutex::default() })
    }

    /// Returns what the specification of a stream has about the weights.
    pub fn spec(&self) -> &WeightSpec {
        &self.spec
    }

    /// Returns the number of rows in an epoch.
    pub fn epoch_rows(&self) -> u64 {
        self.sums.num_rows()
    }

    /// Returns the ordinals of the rows at weighted ordinals of an epoch of the source.
    ///
    /// # Errors
    /// [`Error::Internal`] for weighted ordinals that the epoch does not have; errors of the temporary file.
    pub fn ordinals(&self, epoch: u64, weighted: &[u64]) -> Result<Vec<u64>> {
        let mut ordinals = Vec::with_capacity(weighted.len());
        let order = self.sums.epoch(self.seed, epoch);
        let mut last: Option<(u64, Arc<WeightedGroup>)> = None;
        for ordinal in weighted {
            let of_last = last.as_ref().and_then(|(number, group)| Some((*number, group.row(*ordinal)?)));
            let (number, row) = match of_last {
                Some(found) => found,
                None if *ordinal >= self.epoch_rows() => return Err(self.outside(*ordinal)),
                None => {
                    let number = order.group_of(*ordinal);
                    let group = self.group(epoch, number)?;
                    let row = group.row(*ordinal).ok_or_else(|| self.outside(*ordinal))?;
                    last = Some((number, group));
                    (number, row)
                }
            };
            ordinals.push(number * WEIGHT_GROUP_ROWS + row);
        }
        Ok(ordinals)
    }

    /// Returns how often the rows of a group come in an epoch.
    fn group(&self, epoch: u64, number: u64) -> Result<Arc<WeightedGroup>> {
        if let Some(group) = self.groups.lock().known.get(&(epoch, number)) {
            return Ok(group.clone());
        }
        let start = number * WEIGHT_GROUP_ROWS;
        let weights = self.values.get(start, to_usize(WEIGHT_GROUP_ROWS.min(self.spec.num_rows - start)))?;
        let group = Arc::new(self.sums.epoch(self.seed, epoch).group(number, &weights));
        let mut groups = self.groups.lock();
        if groups.known.insert((epoch, number), group.clone()).is_none() {
            groups.oldest.push_back((epoch, number));
        }
        while groups.oldest.len() > GROUPS_MAX
            && let Some(oldest) = groups.oldest.pop_front()
        {
            groups.known.remove(&oldest);
        }
        Ok(group)
    }

    fn outside(&self, ordinal: u64) -> Error {
        Error::Internal { reason: format!("weighted ordinal {ordinal} of an epoch of {} rows", self.epoch_rows()) }
    }
}

impl Values {
    /// Makes room for the weights of so many rows.
    fn for_rows(num_rows: u64, memory_bytes_max: u64) -> Result<Self> {
        match num_rows.saturating_mul(4) <= memory_bytes_max {
            true => Ok(Values::Memory(Vec::with_capacity(to_usize(num_rows)))),
            false => tempfile::tempfile().map(Values::File).map_err(|source| Error::WeightFile { source }),
        }
    }

    /// Adds weights, which are given as numbers and as little-endian bytes.
    fn add(&mut self, weights: &[f32], bytes: &[u8]) -> Result<()> {
        match self {
            Values::Memory(values) => values.extend_from_slice(weights),
            Values::File(file) => file.write_all(bytes).map_err(|source| Error::WeightFile { source })?,
        }
        Ok(())
    }

    /// Returns the weights of neighbouring rows.
    fn get(&self, start: u64, num_rows: usize) -> Result<Vec<f32>> {
        match self {
            Values::Memory(values) => {
                let start = to_usize(start);
                Ok(values.get(start..start + num_rows).unwrap_or_default().to_vec())
            }
            Values::File(file) => {
                let mut bytes = vec![0; num_rows * 4];
                file.read_exact_at(&mut bytes, start * 4).map_err(|source| Error::WeightFile { source })?;
                Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
            }
        }
    }
}

/// The weight column of some resolved rows.
struct Column<'a> {
    source: &'a SourcePlan,
    name: &'a str,
    rows: &'a ResolvedRows,
}

impl Column<'_> {
    /// Returns values as 32-bit floats.
    fn numbers(&self, values: &ArrayRef) -> Result<Vec<f32>> {
        if let Some(row) = (0..values.len()).find(|row| values.is_null(*row)) {
            return Err(self.no_weight(row, "NULL"));
        }
        let floats = cast(values, &DataType::Float32).map_err(Error::arrow)?;
        Ok(floats.as_primitive::<Float32Type>().values().to_vec())
    }

    /// Returns the error for a value that is no weight.
    fn no_weight(&self, row: usize, value: &str) -> Error {
        let address = self.rows.addrs.iter().map(|addrs| addrs[row]).zip(self.source.row_set.sources());
        let named = address.filter(|(address, _)| *address != NO_ROW).map(|(address, table)| {
            let snapshot = table.snapshot();
            format!("row {address:#x} of {snapshot} has {value}")
        });
        let named = named.take(1).collect::<String>();
        invalid(self.name, format!("{named}; weights are numbers from 0 to {WEIGHT_MAX}, and add up to less than 2^40"))
    }
}

/// Reads one column of resolved rows.
async fn read_column(
    source: &SourcePlan,
    (scan, clock): (&ChunkScan, &UnitClock),
    column: usize,
    rows: &ResolvedRows,
) -> Result<ArrayRef> {
    let ColumnPlan::RowSet { index } = &source.columns[column] else {
        let mut bad = Bad::new();
        let read = read_tables(source, scan, clock, &[column], &rows.addrs, &mut bad).await?;
        if let Some(((table, address), reason)) = bad.into_iter().min() {
            let table = source.row_set.sources()[table].snapshot().to_string();
            return Err(Error::BadRow { table, address, reason });
        }
        let missing = || Error::Internal { reason: "a weight column was not read".into() };
        return read.into_iter().next().ok_or_else(missing);
    };
    Ok(rows.columns[*index].clone())
}

fn invalid(column: &str, reason: String) -> Error {
    Error::Weight { column: column.into(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights in a file are those in memory.
    #[test]
    fn weights_of_many_rows_are_in_a_file() {
        let weights: Vec<f32> = (0..5_000).map(|row| row as f32 / 7.0).collect();
        let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        for (memory_bytes_max, in_memory) in [(20_000, true), (19_999, false)] {
            let mut values = Values::for_rows(5_000, memory_bytes_max).expect("room");
            values.add(&weights[..3_000], &bytes[..12_000]).expect("added");
            values.add(&weights[3_000..], &bytes[12_000..]).expect("added");
            assert_eq!(matches!(values, Values::Memory(_)), in_memory);
            for range in [0..1_024, 2_900..3_100, 4_096..5_000, 5_000..5_000] {
                assert_eq!(values.get(range.start as u64, range.len()).expect("weights"), weights[range]);
            }
        }
    }
}
