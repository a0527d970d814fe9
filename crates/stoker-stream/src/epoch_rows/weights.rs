//! Rows that come as often as a column says.

use std::pin::pin;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::DataType;
use futures::TryStreamExt;
use stoker_order::{WEIGHT_GROUP_ROWS, WEIGHT_MAX, WeightSums, WeightedGroup};
use stoker_types::{DigestBuilder, WEIGHT_VERSION, WeightSpec, to_usize};

use super::column::EpochColumn;
use super::numbers::RowNumbers;
use super::outside;
use super::recent::Recent;
use crate::source::SourcePlan;
use crate::{Error, Result};

/// The number of rows whose weights are read together.
const ROWS_AT_ONCE: u64 = 64 * WEIGHT_GROUP_ROWS;

/// The number of groups whose rows are kept. A group takes 2 to 5 KiB.
const GROUPS_MAX: usize = 2_048;

/// The weights of the rows of a query.
pub(crate) struct RowWeights {
    spec: WeightSpec,
    sums: WeightSums,
    /// The weights, as the bits of 32-bit floats.
    weights: RowNumbers,
    /// The seed of the source's orders.
    seed: u64,
    /// The groups that were used last, by epoch and number.
    groups: Recent<(u64, u64), WeightedGroup>,
}

impl RowWeights {
    /// Reads the weights of a query from one of its columns. `seed` is that of the source's orders.
    ///
    /// # Errors
    /// [`Error::EpochColumn`] for a column that the query does not have or that has no numbers, and for a value that is
    /// no weight; [`Error::BadRow`]; errors of reading.
    pub async fn read(source: &SourcePlan, column: &str, seed: u64) -> Result<Self> {
        let found = EpochColumn::find(source, "weight", column)?;
        let data_type = found.data_type();
        if !(data_type.is_numeric() || *data_type == DataType::Boolean) {
            return Err(found.error(format!("it is {data_type}; weights are numbers")));
        }
        let num_rows = source.row_set.num_rows();
        let (mut sums, mut weights) = (WeightSums::default(), RowNumbers::for_rows(num_rows)?);
        let mut digest = DigestBuilder::new("stoker.weights.v1");
        let mut reads = pin!(found.read(ROWS_AT_ONCE));
        while let Some(rows) = reads.try_next().await? {
            let wanted = format!("weights are numbers from 0 to {WEIGHT_MAX}, and add up to less than 2^40");
            let read = floats(&rows.values).map_err(|null| rows.error(null, "NULL", &wanted))??;
            for (first, of_group) in
                (0..).step_by(to_usize(WEIGHT_GROUP_ROWS)).zip(read.chunks(to_usize(WEIGHT_GROUP_ROWS)))
            {
                let no_weight = |row: usize| rows.error(first + row, &of_group[row].to_string(), &wanted);
                sums.add(of_group).map_err(no_weight)?;
            }
            let bits: Vec<u32> = read.iter().map(|weight| weight.to_bits()).collect();
            digest.update(&weights.add(&bits)?);
        }
        if num_rows > 0 && sums.num_rows() == 0 {
            let sum = sums.total();
            let reason =
                format!("the weights of {num_rows} rows add up to {sum}, so that an epoch has no row; multiply them");
            return Err(found.error(reason));
        }
        let spec = WeightSpec { version: WEIGHT_VERSION, column: column.into(), num_rows, digest: digest.finish() };
        Ok(Self { spec, sums, weights, seed, groups: Recent::new(GROUPS_MAX) })
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
        let mut last: Option<(u64, Arc<WeightedGroup>)> = None;
        for ordinal in weighted {
            let of_last = last.as_ref().and_then(|(number, group)| Some((*number, group.row(*ordinal)?)));
            let (number, row) = match of_last {
                Some(found) => found,
                None if *ordinal >= self.epoch_rows() => return Err(outside(*ordinal, self.epoch_rows())),
                None => {
                    let number = self.sums.epoch(self.seed, epoch).group_of(*ordinal);
                    let group = self.groups.get((epoch, number), || self.group(epoch, number))?;
                    let row = group.row(*ordinal).ok_or_else(|| outside(*ordinal, self.epoch_rows()))?;
                    last = Some((number, group));
                    (number, row)
                }
            };
            ordinals.push(number * WEIGHT_GROUP_ROWS + row);
        }
        Ok(ordinals)
    }

    fn group(&self, epoch: u64, number: u64) -> Result<WeightedGroup> {
        let start = number * WEIGHT_GROUP_ROWS;
        let bits = self.weights.get(start, to_usize(WEIGHT_GROUP_ROWS.min(self.spec.num_rows - start)))?;
        let weights: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        Ok(self.sums.epoch(self.seed, epoch).group(number, &weights))
    }
}

/// Returns numbers as 32-bit floats, or the index of the first NULL.
fn floats(values: &ArrayRef) -> Result<Result<Vec<f32>>, usize> {
    if let Some(null) = (0..values.len()).find(|row| values.is_null(*row)) {
        return Err(null);
    }
    let floats = cast(values, &DataType::Float32).map_err(Error::arrow);
    Ok(floats.map(|floats| floats.as_primitive::<Float32Type>().values().to_vec()))
}
