//! Encodes headers without compression.

use bytes::{BufMut, BytesMut};

/// Whether receivers may put a field into a table.
#[derive(Clone, Copy, Debug)]
pub enum Indexing {
    /// This connection's table does not get the field: <https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2>.
    Without = 0x00,
    /// No table gets the field, also not that of a proxy, because it is secret:
    /// <https://www.rfc-editor.org/rfc/rfc7541#section-6.2.3>.
    Never = 0x10,
}

/// Appends a field, with its name and value as literals.
pub fn put_field(block: &mut BytesMut, indexing: Indexing, name: &str, value: &[u8]) {
    block.put_u8(indexing as u8);
    for text in [name.as_bytes(), value] {
        put_number(block, text.len());
        block.put_slice(text);
    }
}

/// Appends a number after one bit that is zero: <https://www.rfc-editor.org/rfc/rfc7541#section-5.1>.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the numbers are below 0x80, or only their lower seven bits are used"
)]
fn put_number(block: &mut BytesMut, number: usize) {
    const PREFIX_MAX: usize = 0x7f;
    if number < PREFIX_MAX {
        block.put_u8(number as u8);
        return;
    }
    block.put_u8(PREFIX_MAX as u8);
    let mut rest = number - PREFIX_MAX;
    while rest >= 0x80 {
        block.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.put_u8(rest as u8);
}
