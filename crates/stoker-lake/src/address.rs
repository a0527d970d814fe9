//! Row addresses, as Lance defines them: the id of a fragment in the upper 32 bits, and the row's index in the fragment
//! in the lower 32 bits.

/// Returns the index in its fragment of the row at this address.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the index is in the lower bits")]
pub fn row_offset(address: u64) -> u32 {
    address as u32
}

/// Converts the id of a fragment in a manifest to the id in row addresses. Lance gives no fragment an id of more than 32
/// bits; such an id becomes the largest one.
pub(crate) fn fragment_id(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}
