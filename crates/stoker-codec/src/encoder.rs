//! Compresses rows.

use lz4::block::{compress_bound, compress_to_buffer};
use zstd::bulk::Compressor;
use zstd::zstd_safe;

use crate::frame::{HEADER_BYTES_MAX, PLAIN, put_header};
use crate::{Codec, Dictionary, Error, Result, RowType, byte_streams, numbers};

/// Compresses rows, one after the other. Its buffers are as large as the longest row.
pub struct Encoder {
    codec: Codec,
    zstd: Option<Compressor<'static>>,
    /// Whether rows are compressed with a dictionary.
    is_shared: bool,
    /// The streams of bytes of a row.
    streams: Vec<u8>,
    payload: Vec<u8>,
}

impl Encoder {
    /// Makes an encoder. Codecs without Zstandard ignore the dictionary.
    ///
    /// # Errors
    /// [`Error::Internal`] if Zstandard has no memory.
    pub fn try_new(codec: Codec, dictionary: Option<&Dictionary>) -> Result<Self> {
        let dictionary = dictionary.map_or(&[][..], Dictionary::bytes);
        let zstd = match codec {
            Codec::Zstd { level } | Codec::ByteStreamSplitZstd { level } => {
                Some(Compressor::with_dictionary(level, dictionary).map_err(Error::internal)?)
            }
            Codec::Lz4 | Codec::Pco { .. } => None,
        };
        Ok(Self { codec, zstd, is_shared: !dictionary.is_empty(), streams: Vec::new(), payload: Vec::new() })
    }

    /// Adds the frame of a row to `frames`. It is at most seven bytes longer than the row.
    ///
    /// # Errors
    /// [`Error::Internal`] for a row of another size than its type says, and if a library fails.
    pub fn encode(&mut self, row_type: &RowType, row: &[u8], frames: &mut Vec<u8>) -> Result<()> {
        if row.len() != row_type.num_bytes() {
            return Err(Error::internal(format!("a row of {} bytes is none of {row_type}", row.len())));
        }
        self.payload.clear();
        match self.codec {
            Codec::Zstd { .. } => self.put_zstd(row)?,
            Codec::Lz4 => {
                self.payload.resize(compress_bound(row.len()).map_err(Error::internal)?, 0);
                let length = compress_to_buffer(row, None, false, &mut self.payload).map_err(Error::internal)?;
                self.payload.truncate(length);
            }
            Codec::ByteStreamSplitZstd { .. } => {
                let mut streams = std::mem::take(&mut self.streams);
                streams.resize(row.len(), 0);
                byte_streams::split(row_type.dtype().width(), row, &mut streams);
                let put = self.put_zstd(&streams);
                self.streams = streams;
                put?;
            }
            Codec::Pco { level } => numbers::compress(row_type.dtype(), level, row, &mut self.payload)?,
        }
        let (code, payload) = match self.payload.len() < row.len() {
            true => (self.codec.code(self.is_shared), self.payload.as_slice()),
            false => (PLAIN, row),
        };
        frames.reserve(HEADER_BYTES_MAX + payload.len());
        put_header(code, row_type, frames);
        frames.extend_from_slice(payload);
        Ok(())
    }

    fn put_zstd(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(zstd) = &mut self.zstd else { return Err(Error::internal("an encoder without Zstandard")) };
        self.payload.reserve(zstd_safe::compress_bound(bytes.len()));
        zstd.compress_to_buffer(bytes, &mut self.payload).map_err(Error::internal)?;
        Ok(())
    }
}
