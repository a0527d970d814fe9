//! Arrays that hold a memory reservation for as long as their buffers live.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, GenericListArray, OffsetSizeTrait, StringViewArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::DataType;
use bytes::Bytes;
use datafusion::common::Result as DfResult;
use datafusion::execution::memory_pool::MemoryReservation;

/// A buffer and the reservation for its memory.
struct Held {
    buffer: Buffer,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

/// Returns the same texts, binary values or lists of them, with a buffer that owns the reservation. The reservation is
/// released when the last copy of the buffer is dropped; for other types it is released immediately.
pub(crate) fn held(array: &ArrayRef, reservation: MemoryReservation) -> DfResult<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Utf8 => Arc::new(held_bytes::<Utf8Type>(array.as_bytes(), reservation)?),
        DataType::LargeUtf8 => Arc::new(held_bytes::<LargeUtf8Type>(array.as_bytes(), reservation)?),
        DataType::Binary => Arc::new(held_bytes::<BinaryType>(array.as_bytes(), reservation)?),
        DataType::LargeBinary => Arc::new(held_bytes::<LargeBinaryType>(array.as_bytes(), reservation)?),
        DataType::List(_) => Arc::new(held_list::<i32>(array.as_list(), reservation)?),
        DataType::LargeList(_) => Arc::new(held_list::<i64>(array.as_list(), reservation)?),
        DataType::Utf8View => Arc::new(held_views(array.as_string_view(), reservation)?),
        _ => array.clone(),
    })
}

fn held_bytes<T: ByteArrayType>(
    array: &GenericByteArray<T>,
    reservation: MemoryReservation,
) -> DfResult<GenericByteArray<T>> {
    let (offsets, buffer, nulls) = array.clone().into_parts();
    let values = Buffer::from(Bytes::from_owner(Held { buffer, _reservation: reservation }));
    Ok(GenericByteArray::try_new(offsets, values, nulls)?)
}

fn held_views(array: &StringViewArray, reservation: MemoryReservation) -> DfResult<StringViewArray> {
    let (views, buffers, nulls) = array.clone().into_parts();
    let num_views = views.len();
    let held = Held { buffer: views.into_inner(), _reservation: reservation };
    let views = ScalarBuffer::new(Buffer::from(Bytes::from_owner(held)), 0, num_views);
    Ok(StringViewArray::try_new(views, buffers, nulls)?)
}

fn held_list<T: OffsetSizeTrait>(
    array: &GenericListArray<T>,
    reservation: MemoryReservation,
) -> DfResult<GenericListArray<T>> {
    let (field, offsets, values, nulls) = array.clone().into_parts();
    Ok(GenericListArray::try_new(field, offsets, held(&values, reservation)?, nulls)?)
}
