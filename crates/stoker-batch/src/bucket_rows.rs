//! The rows of buckets: how a bucket is one row of a record batch on its way, and rows again for the consumer.
//!
//! ```text
//! tokens: list<int32>  ──► tokens: list<list<int32>>, one for each bucket      ──► tokens: list<int32>
//! label: int64         ──► label: list<int64>                                  ──► label: int64
//!                          stoker.bucket_row_addrs: list<list<uint64>>         ──► Batch::row_addrs
//! ```
//!
//! Orders, slices, cursors and receipts count buckets. Only the last step before the consumer knows rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::{Batch, Error, Result, Substitution};

/// The last column of buckets: for each row of a bucket, its address in each table of the stream.
pub const BUCKET_ROW_ADDRS: &str = "stoker.bucket_row_addrs";

/// The buckets whose rows a batch has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchBuckets {
    /// For each bucket, the index of the row after its last row.
    pub ends: Vec<usize>,
    /// The number of buckets that are not padding. Padding comes last.
    pub num_valid: usize,
    /// For each table of the stream, the address of the first row of each bucket.
    pub row_addrs: Vec<Vec<u64>>,
    /// The buckets that replace buckets with a bad row. Their indexes are counted in buckets.
    pub substituted: Vec<Substitution>,
}

impl BatchBuckets {
    /// Returns the bucket of a row of the batch, and the number of the row in its bucket.
    pub fn place_of(&self, row: usize) -> (usize, usize) {
        let bucket = self.ends.partition_point(|end| *end <= row);
        let start = bucket.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        (bucket, row - start)
    }
}

impl Batch {
    /// Returns the number of the position of a row among those of the batch, and the number of the row at this position:
    /// a bucket has several rows at one position, and other rows have a position each.
    pub fn place_of(&self, row: usize) -> (usize, usize) {
        self.buckets.as_ref().map_or((row, 0), |buckets| buckets.place_of(row))
    }
}

/// Returns the columns of buckets whose rows have these columns and come from `num_tables` tables.
pub fn bucket_schema(rows: &Schema, num_tables: usize) -> Schema {
    let list = |field: &FieldRef| {
        // The field of the list has the flag of the row's field, because no bucket is null.
        let item = field.as_ref().clone().with_name("item").with_nullable(true);
        Field::new(field.name(), DataType::List(Arc::new(item)), field.is_nullable())
    };
    let mut fields: Vec<Field> = rows.fields().iter().map(list).collect();
    let address = Arc::new(Field::new("item", DataType::UInt64, false));
    let of_row = DataType::FixedSizeList(address, i32::try_from(num_tables).unwrap_or(i32::MAX));
    let of_bucket = DataType::List(Arc::new(Field::new("item", of_row, false)));
    fields.push(Field::new(BUCKET_ROW_ADDRS, of_bucket, false));
    Schema::new_with_metadata(fields, rows.metadata().clone())
}

/// Returns the columns of the rows of buckets with these columns.
pub fn bucket_row_schema(buckets: &Schema) -> Schema {
    let rows = buckets.fields().iter().filter(|field| field.name() != BUCKET_ROW_ADDRS);
    let row = |field: &FieldRef| match field.data_type() {
        DataType::List(item) => item.as_ref().clone().with_name(field.name()).with_nullable(field.is_nullable()),
        _ => field.as_ref().clone(),
    };
    Schema::new_with_metadata(rows.map(row).collect::<Vec<Field>>(), buckets.metadata().clone())
}

/// Returns a batch of buckets as a batch of their rows, whose columns are `schema`, without copying columns.
///
/// # Errors
/// `Internal` for a batch that has no buckets, or buckets of different sizes in its columns.
pub fn bucket_rows(batch: Batch, schema: &SchemaRef) -> Result<Batch> {
    let Some((addrs, columns)) = batch.data.columns().split_last() else {
        return Err(Error::internal("a batch of buckets has no columns"));
    };
    let lists = |array: &ArrayRef| -> Result<ListArray> {
        let list = array.as_list_opt::<i32>().filter(|list| list.null_count() == 0).cloned();
        list.ok_or_else(|| Error::internal(format!("a column of buckets is {}", array.data_type())))
    };
    let addrs = lists(addrs)?;
    let lengths: Vec<usize> = addrs.offsets().lengths().collect();
    if lengths.contains(&0) {
        return Err(Error::internal("a bucket has no rows"));
    }
    let rows_of = |column: &ArrayRef| {
        let list = lists(column)?;
        match list.offsets().lengths().eq(lengths.iter().copied()) {
            true => Ok(values_of(&list)),
            false => Err(Error::internal("the columns of a bucket have different numbers of rows")),
        }
    };
    let arrays: Vec<ArrayRef> = columns.iter().map(rows_of).collect::<Result<_>>()?;
    let add = |end: &mut usize, length: &usize| {
        *end += length;
        Some(*end)
    };
    let ends: Vec<usize> = lengths.iter().scan(0, add).collect();
    let num_rows = ends.last().copied().unwrap_or(0);
    let row_addrs = row_addrs_of(&addrs, batch.row_addrs.len(), num_rows)?;
    let first_row = |bucket: usize| ends.get(bucket).zip(lengths.get(bucket)).map(|(end, length)| end - length);
    let substitution = |found: &Substitution| Some(Substitution { row: first_row(found.row)?, ..found.clone() });
    let substituted = batch.substituted.iter().filter_map(substitution).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    let data = RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(Error::internal)?;
    let num_valid = batch.num_valid.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or(0);
    let Batch { step, cursor, .. } = batch;
    let buckets =
        BatchBuckets { ends, num_valid: batch.num_valid, row_addrs: batch.row_addrs, substituted: batch.substituted };
    Ok(Batch { step, cursor, data, num_valid, row_addrs, substituted, buckets: Some(Arc::new(buckets)) })
}

/// Returns the values of all lists.
fn values_of(lists: &ListArray) -> ArrayRef {
    let offsets = lists.value_offsets();
    let at = |offset: Option<&i32>| offset.map_or(0, |offset| offset.as_usize());
    let (first, last) = (at(offsets.first()), at(offsets.last()));
    lists.values().slice(first, last - first)
}

/// Returns the addresses of all rows of buckets, as `[table][row]`.
fn row_addrs_of(addrs: &ListArray, num_tables: usize, num_rows: usize) -> Result<Vec<Vec<u64>>> {
    let of_rows = values_of(addrs);
    let of_rows = of_rows.as_fixed_size_list_opt();
    let of_rows = of_rows.filter(|rows| usize::try_from(rows.value_length()) == Ok(num_tables));
    let values = of_rows.and_then(|rows| rows.values().as_primitive_opt::<UInt64Type>());
    let values = values.filter(|values| values.len() == num_rows * num_tables);
    let values = values.ok_or_else(|| Error::internal("a bucket has other row addresses than its tables"))?.values();
    let of_table = |table| values.iter().skip(table).step_by(num_tables.max(1)).copied().collect();
    Ok((0..num_tables).map(of_table).collect())
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{FixedSizeListArray, Int32Array, UInt64Array};
    use arrow_buffer::OffsetBuffer;
    use stoker_types::{Cursor, Digest};

    use super::*;

    /// Two tables; buckets of three, one and two rows, of which the last one is padding.
    fn buckets(addr_lengths: [usize; 3]) -> Batch {
        let rows = Schema::new(vec![Field::new("n", DataType::Int32, true)]);
        let schema = Arc::new(bucket_schema(&rows, 2));
        let item = |index: usize| match schema.field(index).data_type() {
            DataType::List(item) => item.clone(),
            other => unreachable!("{other}"),
        };
        let numbers = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4), Some(5), Some(6)]));
        let numbers = ListArray::new(item(0), OffsetBuffer::from_lengths([3, 1, 2]), numbers, None);
        let addrs = Arc::new(UInt64Array::from_iter_values(0..12));
        let addrs = FixedSizeListArray::new(Arc::new(Field::new("item", DataType::UInt64, false)), 2, addrs, None);
        let addrs = ListArray::new(item(1), OffsetBuffer::from_lengths(addr_lengths), Arc::new(addrs), None);
        let data = RecordBatch::try_new(schema, vec![Arc::new(numbers), Arc::new(addrs)]).expect("buckets");
        let substituted = vec![Substitution { row: 1, row_addrs: vec![9, 9], reason: "bad".into() }];
        let cursor = Cursor { stream_id: Digest::of(b"stream"), epoch: 0, position: 3 };
        let row_addrs = vec![vec![0, 6, 8], vec![1, 7, 9]];
        Batch { step: 0, cursor, data, num_valid: 2, row_addrs, substituted, buckets: None }
    }

    #[test]
    fn buckets_become_rows() {
        let batch = buckets([3, 1, 2]);
        let schema = Arc::new(bucket_row_schema(&batch.data.schema()));
        assert_eq!(schema.fields()[..], [Arc::new(Field::new("n", DataType::Int32, true))]);
        let rows = bucket_rows(batch.clone(), &schema).expect("rows");
        let numbers = rows.data["n"].as_primitive::<Int32Type>();
        assert_eq!(numbers, &Int32Array::from(vec![Some(1), None, Some(3), Some(4), Some(5), Some(6)]));
        assert_eq!(rows.row_addrs, [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]);
        assert_eq!((rows.num_valid, rows.substituted[0].row), (4, 3));
        let places: Vec<(usize, usize)> = (0..6).map(|row| rows.place_of(row)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]);
        let kept = rows.buckets.expect("buckets");
        assert_eq!((kept.num_valid, &kept.row_addrs, &kept.substituted), (2, &batch.row_addrs, &batch.substituted));
        // Slices of lists have the values of other lists in memory.
        let sliced = Batch { data: batch.data.slice(1, 2), num_valid: 1, substituted: Vec::new(), ..batch };
        let rows = bucket_rows(sliced, &schema).expect("rows");
        assert_eq!(rows.data["n"].as_primitive::<Int32Type>(), &Int32Array::from(vec![4, 5, 6]));
        assert_eq!((rows.num_valid, rows.row_addrs[1].as_slice()), (1, &[7, 9, 11][..]));
    }

    #[test]
    fn buckets_that_do_not_fit_are_refused() {
        let schema = Arc::new(bucket_row_schema(&buckets([3, 1, 2]).data.schema()));
        let refused = |batch: Batch, reason: &str| {
            let error = bucket_rows(batch, &schema).expect_err("other sizes").to_string();
            assert!(error.contains(reason), "{error}");
        };
        refused(buckets([3, 2, 1]), "different numbers of rows");
        refused(buckets([3, 3, 0]), "a bucket has no rows");
        let batch = buckets([3, 1, 2]);
        refused(Batch { row_addrs: vec![vec![0, 6, 8]], ..batch.clone() }, "other row addresses");
        let data = batch.data.project(&[0]).expect("a column");
        refused(Batch { data, ..batch }, "other row addresses");
    }
}
