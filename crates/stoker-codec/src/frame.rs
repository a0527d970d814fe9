//! The header of frames.

use zstd::zstd_safe::get_dict_id_from_frame;

use crate::{Dictionary, Dtype, Error, Result, RowType};

/// The version of the format, in the upper four bits of the first byte.
const VERSION: u8 = 1;

/// The codecs, in the lower four bits of the first byte.
pub(crate) const PLAIN: u8 = 0;
pub(crate) const ZSTD: u8 = 1;
pub(crate) const LZ4: u8 = 2;
pub(crate) const BYTE_STREAM_SPLIT: u8 = 3;
pub(crate) const PCO: u8 = 4;
pub(crate) const ZSTD_SHARED: u8 = 5;
pub(crate) const BYTE_STREAM_SPLIT_SHARED: u8 = 6;

/// The bytes with which a frame of Zstandard begins (RFC 8878, 3.1.1). Those of its drafts begin with others, and are not
/// decoded.
pub(crate) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The most bytes of a number of elements.
const NUMBER_BYTES_MAX: usize = 5;

/// The most bytes of a header.
pub(crate) const HEADER_BYTES_MAX: usize = 2 + NUMBER_BYTES_MAX;

/// Adds the header of a frame.
pub(crate) fn put_header(codec: u8, row: &RowType, frames: &mut Vec<u8>) {
    frames.extend([VERSION << 4 | codec, row.dtype().code()]);
    let mut number = row.num_elements();
    while number >= 0x80 {
        frames.push(0x80 | low_bits(number));
        number >>= 7;
    }
    frames.push(low_bits(number));
}

/// Splits a frame into its codec and its payload.
///
/// # Errors
/// [`Error::BadFrame`] for a header that is damaged, or that is one of other rows.
pub(crate) fn split<'a>(row: &RowType, frame: &'a [u8]) -> Result<(u8, &'a [u8])> {
    let Some((&[first, dtype], rest)) = frame.split_first_chunk::<2>() else {
        return Err(Error::bad_frame(format!("a frame has at least 3 bytes, and this one {}", frame.len())));
    };
    if first >> 4 != VERSION {
        let found = first >> 4;
        let reason = format!("it has version {found} of the format of frames, and this build reads version {VERSION}");
        return Err(Error::bad_frame(reason));
    }
    let (number, payload) = number(rest).ok_or_else(|| Error::bad_frame("its number of elements is damaged"))?;
    if dtype == row.dtype().code() && number == row.num_elements() as u64 {
        return Ok((first & 0x0f, payload));
    }
    let found = Dtype::ALL.into_iter().find(|known| known.code() == dtype);
    let found = found.map_or_else(|| format!("the unknown type {dtype}"), |dtype| dtype.name().to_string());
    Err(Error::bad_frame(format!("the frame declares {number} elements of {found}, and the column has {row}")))
}

/// Checks the header of a frame, and which dictionary it names, and does not decode it.
///
/// # Errors
/// [`Error::BadFrame`] for bytes that are no frame, for a frame of other rows, and for one with another dictionary.
pub fn check_header(row: &RowType, dictionary: Option<&Dictionary>, frame: &[u8]) -> Result<()> {
    match split(row, frame)? {
        (PLAIN..=PCO, _) => Ok(()),
        (ZSTD_SHARED | BYTE_STREAM_SPLIT_SHARED, payload) => named_dictionary(dictionary, payload).map(drop),
        (other, _) => Err(unknown(other)),
    }
}

/// Returns the dictionary of a column if it is the one that a payload names.
///
/// # Errors
/// [`Error::BadFrame`] if the column has another one, or none.
pub(crate) fn named_dictionary<'a>(dictionary: Option<&'a Dictionary>, payload: &[u8]) -> Result<&'a Dictionary> {
    let named = if payload.starts_with(&ZSTD_MAGIC) { get_dict_id_from_frame(payload) } else { None };
    let Some(named) = named else { return Err(Error::bad_frame("its payload names no dictionary")) };
    match dictionary {
        Some(dictionary) if dictionary.id() == named.get() => Ok(dictionary),
        Some(other) => {
            let reason = format!("it needs the dictionary {named}, and that of the column is {}", other.id());
            Err(Error::bad_frame(reason))
        }
        None => Err(Error::bad_frame(format!("it needs the dictionary {named}, and the column has none"))),
    }
}

/// The error of a codec that does not exist.
pub(crate) fn unknown(codec: u8) -> Error {
    Error::bad_frame(format!("it has the unknown codec {codec}"))
}

/// Reads the number of elements. A number with needless bytes is none.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(NUMBER_BYTES_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let is_needless = *byte == 0 && at > 0;
            return (!is_needless).then_some((number, bytes.get(at + 1..)?));
        }
    }
    None
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits are left")]
fn low_bits(number: usize) -> u8 {
    (number & 0x7f) as u8
}
