//! Which rows of a column have a value.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait, RecordBatch};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field};

use crate::MASK_KEY;
use crate::numpy::element_name;
use crate::ragged::VariableShape;

/// Returns which rows of a column are neither null nor, in lists and tensors of numbers, have a null among their numbers;
/// `None` if all are.
pub fn row_validity(field: &Field, array: &ArrayRef) -> Option<NullBuffer> {
    let of_rows = array.logical_nulls();
    let of_values = match array.data_type() {
        DataType::Struct(_) if VariableShape::of(field).is_some() => {
            let members = array.as_struct_opt()?.columns().iter().map(of_elements);
            members.fold(None, |all, nulls| NullBuffer::union(all.as_ref(), nulls.as_ref()))
        }
        DataType::FixedSizeList(..) | DataType::List(_) | DataType::LargeList(_) => of_elements(array),
        _ => None,
    };
    NullBuffer::union(of_rows.as_ref(), of_values.as_ref()).filter(|nulls| nulls.null_count() > 0)
}

/// Returns which rows of a column of a batch have a value, as [`row_validity`] does. Those of a column with a mask
/// ([`MASK_KEY`]) have one where the mask is true, if the batch has the mask.
pub fn column_validity(batch: &RecordBatch, index: usize) -> Option<NullBuffer> {
    let schema = batch.schema_ref();
    let field = schema.fields().get(index)?;
    let of_rows = row_validity(field, batch.columns().get(index)?);
    let mask = field.metadata().get(MASK_KEY).and_then(|name| batch.column_by_name(name));
    let mask = mask.and_then(|mask| mask.as_boolean_opt()).map(|mask| {
        let flags = NullBuffer::new(mask.values().clone());
        NullBuffer::union(Some(&flags), mask.nulls()).unwrap_or(flags)
    });
    NullBuffer::union(of_rows.as_ref(), mask.as_ref()).filter(|nulls| nulls.null_count() > 0)
}

/// Returns which lists are not null and have no null among their numbers, at any depth.
fn of_elements(array: &ArrayRef) -> Option<NullBuffer> {
    let inner = match array.data_type() {
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).ok()?;
            of_elements(array.as_fixed_size_list().values()).map(|nulls| {
                let is_whole = |row: usize| nulls.slice(row * length, length).null_count() == 0;
                NullBuffer::new(BooleanBuffer::collect_bool(array.len(), is_whole))
            })
        }
        DataType::List(_) => of_lists(array.as_list::<i32>()),
        DataType::LargeList(_) => of_lists(array.as_list::<i64>()),
        element => return element_name(element).and_then(|_| array.logical_nulls()),
    };
    NullBuffer::union(array.nulls(), inner.as_ref())
}

fn of_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Option<NullBuffer> {
    let nulls = of_elements(lists.values()).filter(|nulls| nulls.null_count() > 0)?;
    let is_whole = |row: usize| {
        let (start, length) = (lists.value_offsets()[row].as_usize(), lists.value_length(row).as_usize());
        nulls.slice(start, length).null_count() == 0
    };
    Some(NullBuffer::new(BooleanBuffer::collect_bool(lists.len(), is_whole)))
}
