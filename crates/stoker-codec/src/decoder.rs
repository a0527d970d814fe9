//! Decodes frames.

use lz4::block::decompress_to_buffer;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::find_frame_compressed_size;

use crate::frame::{BYTE_STREAM_SPLIT, LZ4, PCO, PLAIN, ZSTD, split, unknown};
use crate::{Error, Result, RowType, byte_streams, numbers};

/// The size in bytes from which a buffer is freed after use, so that a large row does not hold its memory forever.
const KEPT_BYTES: usize = 32 << 20;

/// The bytes with which a frame of Zstandard begins (RFC 8878, 3.1.1). Those of its drafts begin with others, and are not
/// decoded.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Decodes frames of all codecs, one after the other.
pub struct Decoder {
    zstd: Decompressor<'static>,
    /// The streams of bytes of a row.
    streams: Vec<u8>,
}

impl Decoder {
    /// Makes a decoder.
    ///
    /// # Errors
    /// [`Error::Internal`] if Zstandard has no memory.
    pub fn try_new() -> Result<Self> {
        Ok(Self { zstd: Decompressor::new().map_err(Error::internal)?, streams: Vec::new() })
    }

    /// Decodes a frame to `row`, which has the bytes of `row_type`. After an error, the content of `row` is undefined.
    ///
    /// # Errors
    /// [`Error::BadFrame`] for a frame that is damaged, or that is one of other rows; [`Error::Internal`] for a `row` of
    /// another size.
    pub fn decode(&mut self, row_type: &RowType, frame: &[u8], row: &mut [u8]) -> Result<()> {
        if row.len() != row_type.num_bytes() {
            return Err(Error::internal(format!("memory of {} bytes is none of {row_type}", row.len())));
        }
        let (codec, payload) = split(row_type, frame)?;
        match codec {
            PLAIN => {
                check_length(payload.len(), row.len())?;
                row.copy_from_slice(payload);
                Ok(())
            }
            ZSTD => self.unzstd(payload, row),
            LZ4 => {
                let length = i32::try_from(row.len()).map_err(Error::internal)?;
                i32::try_from(payload.len()).map_err(|_| Error::bad_frame("LZ4: its payload is too long"))?;
                let length = decompress_to_buffer(payload, Some(length), row);
                check_length(length.map_err(|error| Error::bad_frame(format!("LZ4: {error}")))?, row.len())
            }
            BYTE_STREAM_SPLIT => {
                let mut streams = std::mem::take(&mut self.streams);
                streams.resize(row.len(), 0);
                let decoded = self.unzstd(payload, &mut streams);
                if decoded.is_ok() {
                    byte_streams::join(row_type.dtype().width(), &streams, row);
                }
                if streams.capacity() <= KEPT_BYTES {
                    self.streams = streams;
                }
                decoded
            }
            PCO => numbers::decompress(row_type.dtype(), payload, row),
            other => Err(unknown(other)),
        }
    }

    fn unzstd(&mut self, payload: &[u8], bytes: &mut [u8]) -> Result<()> {
        let is_one_frame = || find_frame_compressed_size(payload).is_ok_and(|length| length == payload.len());
        if !(payload.starts_with(&ZSTD_MAGIC) && is_one_frame()) {
            return Err(Error::bad_frame("its payload is no Zstandard frame"));
        }
        let length = self.zstd.decompress_to_buffer(payload, bytes);
        check_length(length.map_err(|error| Error::bad_frame(format!("Zstandard: {error}")))?, bytes.len())
    }
}

fn check_length(found: usize, expected: usize) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::bad_frame(format!("its payload has {found} bytes, and the row has {expected}"))),
    }
}
