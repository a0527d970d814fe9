//! Decodes the headers that servers send.

use std::collections::VecDeque;

use bytes::Bytes;

use super::static_table::STATIC_TABLE;
use super::{BadBlock, HEADER_BYTES_MAX, huffman};

/// The largest dynamic table. The client asks for an empty one, but a server may use the default size until it knows
/// that.
const TABLE_BYTES_MAX: usize = 4096;
/// The size of a table entry beyond its name and value: <https://www.rfc-editor.org/rfc/rfc7541#section-4.1>.
const FIELD_BYTES: usize = 32;

type Field = (Bytes, Bytes);

/// Decodes the header blocks of one connection, which must be passed in their order.
pub struct Decoder {
    /// The dynamic table: the fields to which blocks may refer, the newest first.
    table: VecDeque<Field>,
    table_bytes: usize,
    table_bytes_max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Makes a decoder with an empty table.
    pub fn new() -> Self {
        Self { table: VecDeque::new(), table_bytes: 0, table_bytes_max: TABLE_BYTES_MAX }
    }

    /// Decodes a block into names and values.
    ///
    /// # Errors
    /// A block that cannot be decoded, or is too long. After an error the connection cannot be used any more.
    pub fn decode(&mut self, block: &[u8]) -> Result<Vec<Field>, BadBlock> {
        let mut rest = Rest(block);
        let mut fields = Vec::new();
        let mut bytes = 0;
        while let Some(&first) = rest.0.first() {
            let (name, value) = match first {
                0x80.. => self.field(rest.number(7)?)?,
                0x40..0x80 => {
                    let field = self.literal(&mut rest, 6)?;
                    self.insert(field.clone());
                    field
                }
                0x20..0x40 => {
                    self.resize(rest.number(5)?, fields.is_empty())?;
                    continue;
                }
                // These fields are not put into the table.
                _ => self.literal(&mut rest, 4)?,
            };
            bytes += size(&name, &value);
            if bytes > HEADER_BYTES_MAX {
                return Err(BadBlock::TooLong);
            }
            fields.push((name, value));
        }
        Ok(fields)
    }

    /// Decodes a field whose value is a literal, and whose name is a literal or an index into the tables.
    fn literal(&self, rest: &mut Rest<'_>, prefix_bits: u32) -> Result<Field, BadBlock> {
        let name = match rest.number(prefix_bits)? {
            0 => rest.text()?,
            index => self.field(index)?.0,
        };
        Ok((name, rest.text()?))
    }

    /// Returns a field of the static or the dynamic table: <https://www.rfc-editor.org/rfc/rfc7541#section-2.3.3>.
    fn field(&self, index: usize) -> Result<Field, BadBlock> {
        let index = index.checked_sub(1).ok_or(BadBlock::Index)?;
        if let Some((name, value)) = STATIC_TABLE.get(index) {
            return Ok((Bytes::from_static(name.as_bytes()), Bytes::from_static(value.as_bytes())));
        }
        self.table.get(index - STATIC_TABLE.len()).cloned().ok_or(BadBlock::Index)
    }

    fn insert(&mut self, field: Field) {
        let bytes = size(&field.0, &field.1);
        self.shrink(self.table_bytes_max.saturating_sub(bytes));
        // A field that is larger than the table leaves it empty.
        if bytes <= self.table_bytes_max {
            self.table_bytes += bytes;
            self.table.push_front(field);
        }
    }

    /// Changes the size of the table, which is allowed only at the beginning of a block.
    fn resize(&mut self, bytes: usize, at_begin: bool) -> Result<(), BadBlock> {
        if bytes > TABLE_BYTES_MAX || !at_begin {
            return Err(BadBlock::Resize);
        }
        self.table_bytes_max = bytes;
        self.shrink(bytes);
        Ok(())
    }

    /// Evicts the oldest fields until the table has at most `bytes` bytes.
    fn shrink(&mut self, bytes: usize) {
        while self.table_bytes > bytes
            && let Some((name, value)) = self.table.pop_back()
        {
            self.table_bytes -= size(&name, &value);
        }
    }
}

fn size(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + FIELD_BYTES
}

/// The bytes of a block that were not decoded yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> Result<u8, BadBlock> {
        let (byte, rest) = self.0.split_first().ok_or(BadBlock::CutOff)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// Decodes a number that begins in the last bits of a byte: <https://www.rfc-editor.org/rfc/rfc7541#section-5.1>.
    fn number(&mut self, prefix_bits: u32) -> Result<usize, BadBlock> {
        let prefix_max = (1 << prefix_bits) - 1;
        let prefix = usize::from(self.byte()?) & prefix_max;
        if prefix < prefix_max {
            return Ok(prefix);
        }
        let mut number = prefix;
        // Three bytes of seven bits hold every length and index that is allowed here.
        for shift in [0, 7, 14] {
            let byte = usize::from(self.byte()?);
            number += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadBlock::Number)
    }

    /// Decodes a plain or Huffman-coded string: <https://www.rfc-editor.org/rfc/rfc7541#section-5.2>.
    fn text(&mut self) -> Result<Bytes, BadBlock> {
        let is_coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.number(7)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(BadBlock::CutOff)?;
        self.0 = rest;
        match is_coded {
            true => huffman::decode(text).map(Bytes::from),
            false => Ok(Bytes::copy_from_slice(text)),
        }
    }
}
