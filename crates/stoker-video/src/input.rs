//! Reads numbers from bytes that may end early.

use crate::BadVideo;

/// The rest of some bytes, with the name of what they are for error messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    name: &'static str,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8], name: &'static str) -> Self {
        Self { bytes, name }
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the next bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], BadVideo> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(|| self.early())?;
        self.bytes = rest;
        Ok(taken)
    }

    pub fn skip(&mut self, length: usize) -> Result<(), BadVideo> {
        self.take(length).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadVideo> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.early())?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, BadVideo> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, BadVideo> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, BadVideo> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, BadVideo> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, BadVideo> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a number of 64 bits if `is_wide`, else of 32 bits.
    pub fn word(&mut self, is_wide: bool) -> Result<u64, BadVideo> {
        if is_wide { self.u64() } else { self.u32().map(u64::from) }
    }

    /// Reads an unsigned number in groups of 7 bits, the lowest group first, with a high bit in all bytes but the last.
    pub fn varint(&mut self) -> Result<u64, BadVideo> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BadVideo::new(format!("{} has a number of more than 64 bits", self.name)))
    }

    /// Reads a signed number: even numbers stand for 0, 1, 2 and so on, odd numbers for -1, -2 and so on.
    pub fn signed(&mut self) -> Result<i64, BadVideo> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn early(&self) -> BadVideo {
        BadVideo::new(format!("{} ends early", self.name))
    }
}

/// Writes what [`Input::varint`] reads.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push((value & 0x7F) as u8);
}

/// Writes what [`Input::signed`] reads.
pub(crate) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put_varint(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
}
