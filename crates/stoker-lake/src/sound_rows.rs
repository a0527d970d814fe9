//! Reads of rows where sectors of a file are damaged: they separate damaged rows from sound ones.

use std::collections::{BTreeMap, HashMap};

use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_select::interleave::interleave;

use crate::{Error, Result, Table};

/// The maximum number of damaged rows that one read separates; with more, the read fails.
const DAMAGED_MAX: usize = 1 << 10;

/// Rows of a table, some of which may be damaged.
#[derive(Debug)]
pub struct SoundRows {
    /// One array for each requested column, with one value for each address; the value of a damaged row is null.
    pub columns: Vec<ArrayRef>,
    /// The addresses of the damaged rows, each with a description of its damage.
    pub damaged: BTreeMap<u64, String>,
}

impl Table {
    /// Reads the rows at these addresses, as [`Table::take`] does. If damaged bytes prevent that, a binary search
    /// separates the rows that cannot be read alone from the others. Cost: one read, and for each damaged row about as
    /// many more reads as the binary logarithm of the number of rows.
    ///
    /// # Errors
    /// As for [`Table::take`]; [`Error::DamagedRows`] where more than 1,024 rows are damaged.
    pub async fn take_sound(&self, columns: &[String], row_addrs: &[u64]) -> Result<SoundRows> {
        match self.take(columns, row_addrs).await {
            Ok(batch) => Ok(SoundRows { columns: in_order(&batch, columns)?, damaged: BTreeMap::new() }),
            Err(Error::DamagedRows { .. }) => self.take_apart(columns, row_addrs).await,
            Err(error) => Err(error),
        }
    }

    async fn take_apart(&self, columns: &[String], row_addrs: &[u64]) -> Result<SoundRows> {
        let mut sorted = row_addrs.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut parts, mut damaged) = (Vec::new(), BTreeMap::new());
        // For each address that was read: the index of its part and its row in that part.
        let mut places = HashMap::new();
        let mut left = vec![sorted.as_slice()];
        while let Some(addrs) = left.pop() {
            match self.take(columns, addrs).await {
                Ok(batch) => {
                    places.extend(addrs.iter().zip(0..).map(|(addr, row)| (*addr, (parts.len(), row))));
                    parts.push(in_order(&batch, columns)?);
                }
                Err(Error::DamagedRows { attempted, reason }) => match addrs {
                    [] => {}
                    [addr] if damaged.len() < DAMAGED_MAX => {
                        damaged.insert(*addr, reason);
                    }
                    [_] => return Err(Error::DamagedRows { attempted, reason }),
                    many => left.extend([&many[many.len() / 2..], &many[..many.len() / 2]]),
                },
                Err(error) => return Err(error),
            }
        }
        let null = (parts.len(), 0);
        let places: Vec<(usize, usize)> =
            row_addrs.iter().map(|addr| places.get(addr).copied().unwrap_or(null)).collect();
        let schema = self.schema();
        let mut joined = Vec::with_capacity(columns.len());
        for (index, name) in columns.iter().enumerate() {
            let arrow = |source| Error::storage(format!("joining rows of {}", self.snapshot()), source);
            let field = schema.field_with_name(name).map_err(arrow)?;
            let nulls = new_null_array(field.data_type(), 1);
            let mut arrays: Vec<&dyn Array> = parts.iter().map(|part| part[index].as_ref()).collect();
            arrays.push(nulls.as_ref());
            joined.push(interleave(&arrays, &places).map_err(arrow)?);
        }
        Ok(SoundRows { columns: joined, damaged })
    }
}

/// Returns the columns of a batch in the requested order.
fn in_order(batch: &RecordBatch, columns: &[String]) -> Result<Vec<ArrayRef>> {
    let column = |name: &String| batch.schema().index_of(name).map(|index| batch.column(index).clone());
    let arrays = columns.iter().map(column).collect::<Result<_, _>>();
    arrays.map_err(|source| Error::storage("reading the columns of a batch", source))
}
