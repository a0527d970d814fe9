//! Decodes frames.

use lz4::block::decompress_to_buffer;
use zstd::zstd_safe::{DCtx, find_frame_compressed_size, get_error_name};

use crate::frame::{
    BYTE_STREAM_SPLIT, BYTE_STREAM_SPLIT_SHARED, LZ4, PCO, PLAIN, ZSTD, ZSTD_MAGIC, ZSTD_SHARED, named_dictionary,
    split, unknown,
};
use crate::{Dictionary, Error, Result, RowType, byte_streams, numbers};

/// The size in bytes from which a buffer is freed after use, so that a large row does not hold its memory forever.
const KEPT_BYTES: usize = 32 << 20;

/// Decodes frames of all codecs, one after the other.
pub struct Decoder {
    zstd: DCtx<'static>,
    /// The streams of bytes of a row.
    streams: Vec<u8>,
}

impl Decoder {
    /// Makes a decoder.
    ///
    /// # Errors
    /// [`Error::Internal`] if Zstandard has no memory.
    pub fn try_new() -> Result<Self> {
        let zstd = DCtx::try_create().ok_or_else(|| Error::internal("Zstandard has no memory"))?;
        Ok(Self { zstd, streams: Vec::new() })
    }

    /// Decodes a frame to `row`, which has the bytes of `row_type`, with the dictionary of the column. After an error, the
    /// content of `row` is undefined.
    ///
    /// # Errors
    /// [`Error::BadFrame`] for a frame that is damaged, that is one of other rows, or that needs another dictionary;
    /// [`Error::Internal`] for a `row` of another size.
    pub fn decode(
        &mut self,
        row_type: &RowType,
        dictionary: Option<&Dictionary>,
        frame: &[u8],
        row: &mut [u8],
    ) -> Result<()> {
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
            ZSTD => self.unzstd(None, payload, row),
            ZSTD_SHARED => self.unzstd(Some(named_dictionary(dictionary, payload)?), payload, row),
            LZ4 => {
                let length = i32::try_from(row.len()).map_err(Error::internal)?;
                i32::try_from(payload.len()).map_err(|_| Error::bad_frame("LZ4: its payload is too long"))?;
                let length = decompress_to_buffer(payload, Some(length), row);
                check_length(length.map_err(|error| Error::bad_frame(format!("LZ4: {error}")))?, row.len())
            }
            BYTE_STREAM_SPLIT | BYTE_STREAM_SPLIT_SHARED => {
                let shared = match codec {
                    BYTE_STREAM_SPLIT_SHARED => Some(named_dictionary(dictionary, payload)?),
                    _ => None,
                };
                let mut streams = std::mem::take(&mut self.streams);
                streams.resize(row.len(), 0);
                let decoded = self.unzstd(shared, payload, &mut streams);
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

    fn unzstd(&mut self, dictionary: Option<&Dictionary>, payload: &[u8], bytes: &mut [u8]) -> Result<()> {
        let is_one_frame = || find_frame_compressed_size(payload).is_ok_and(|length| length == payload.len());
        if !(payload.starts_with(&ZSTD_MAGIC) && is_one_frame()) {
            return Err(Error::bad_frame("its payload is no Zstandard frame"));
        }
        let length = match dictionary {
            Some(dictionary) => self.zstd.decompress_using_ddict(bytes, payload, dictionary.decoding()),
            None => self.zstd.decompress(bytes, payload),
        };
        let length = length.map_err(|code| Error::bad_frame(format!("Zstandard: {}", get_error_name(code))))?;
        check_length(length, bytes.len())
    }
}

fn check_length(found: usize, expected: usize) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::bad_frame(format!("its payload has {found} bytes, and the row has {expected}"))),
    }
}
