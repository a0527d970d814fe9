//! The columns of buckets, made from those of their rows: a list for each bucket, with one value for each row.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, UInt64Array};
use arrow_schema::{DataType, FieldRef, SchemaRef};
use stoker_batch::{BUCKET_ROW_ADDRS, BufferPool, interleave_column};
use stoker_sql::NO_ROW;
use stoker_types::to_usize;

use super::packed_columns::PackedRows;
use crate::{Error, Result};

/// How the columns of buckets are made.
#[derive(Default)]
pub(crate) struct BucketColumns {
    /// The columns of the stream.
    fields: Vec<FieldRef>,
    /// The tables of the source, among those of all sources.
    tables: Range<usize>,
    num_tables: usize,
}

impl BucketColumns {
    /// Makes the columns of a source of a stream that has the columns `schema` and `num_tables` tables over all sources.
    pub fn new(schema: &SchemaRef, tables: Range<usize>, num_tables: usize) -> Self {
        Self { fields: schema.fields().to_vec(), tables, num_tables }
    }

    /// Returns the columns of buckets from those of the rows that were read. A column of the query that is missing stays
    /// so.
    pub fn arrays(
        &self,
        rows: PackedRows<'_>,
        read: &[Option<ArrayRef>],
        pool: &BufferPool,
    ) -> Result<Vec<Option<ArrayRef>>> {
        let places: Vec<(usize, usize)> = rows.places.iter().map(|place| (0, to_usize(*place))).collect();
        let bucket = |(field, array): (&FieldRef, &Option<ArrayRef>)| -> Result<Option<ArrayRef>> {
            if field.name() == BUCKET_ROW_ADDRS {
                return self.row_addrs(rows, field).map(Some);
            }
            let Some(array) = array else { return Ok(None) };
            rows.lists(interleave_column(&[array.as_ref()], &places, Some(pool))?, field).map(Some)
        };
        self.fields.iter().zip(read).map(bucket).collect()
    }

    /// Returns the column with the addresses of the rows, in the tables of all sources.
    fn row_addrs(&self, rows: PackedRows<'_>, field: &FieldRef) -> Result<ArrayRef> {
        let mut addrs = Vec::with_capacity(rows.places.len().saturating_mul(self.num_tables));
        for place in rows.places {
            let of_table = |table: usize| {
                let mine = table.checked_sub(self.tables.start).and_then(|mine| rows.addrs.get(mine));
                mine.and_then(|addrs| addrs.get(to_usize(*place))).copied().unwrap_or(NO_ROW)
            };
            addrs.extend((0..self.num_tables).map(of_table));
        }
        let DataType::List(item) = field.data_type() else {
            return Err(Error::Internal { reason: format!("the addresses of buckets are {}", field.data_type()) });
        };
        let DataType::FixedSizeList(address, length) = item.data_type() else {
            return Err(Error::Internal { reason: format!("the addresses of a bucket are {}", item.data_type()) });
        };
        let values = Arc::new(UInt64Array::from(addrs));
        let num_rows = rows.places.len();
        let lists = FixedSizeListArray::try_new_with_length(address.clone(), *length, values, None, num_rows);
        rows.lists(Arc::new(lists.map_err(Error::arrow)?), field)
    }
}
