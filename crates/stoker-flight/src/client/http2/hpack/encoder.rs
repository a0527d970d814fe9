//! Headers without compression.

use bytes::{BufMut, BytesMut};

/// Whether those who pass a field on may put it in a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Indexing {
    /// It is not put in one here: <https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2>.
    Without = 0x00,
    /// Nor anywhere, because it is secret: <https://www.rfc-editor.org/rfc/rfc7541#section-6.2.3>.
    Never = 0x10,
}

/// Appends a field with its name and value in full.
pub(crate) fn put_field(block: &mut BytesMut, indexing: Indexing, name: &str, value: &[u8]) {
    block.put_u8(indexing as u8);
    for text in [name.as_bytes(), value] {
        put_number(block, text.len());
        block.put_slice(text);
    }
}

/// A number after a bit that is zero: <https://www.rfc-editor.org/rfc/rfc7541#section-5.1>.
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
