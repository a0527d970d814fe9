//! Buffers of compressed messages, as Arrow's `BodyCompression` has them.
//!
//! ```text
//! length of what was compressed: 8 bytes, little endian │ one LZ4 frame, or a Zstandard frame
//! -1                                                    │ the bytes themselves
//! ```
//!
//! An empty buffer stays empty. Source: <https://github.com/apache/arrow/blob/main/format/Message.fbs>.

use std::io::{Read, Write};

use arrow_ipc::{BodyCompression, BodyCompressionMethod, CompressionType};
use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use stoker_stream::Compression;

use crate::{Error, Result};

/// Bytes of the length before a buffer.
const LENGTH_BYTES: usize = 8;
/// In place of the length: what follows is not compressed.
const STORED: i64 = -1;
/// Smaller buffers are stored: a frame has a head and an end of its own.
const COMPRESSED_BYTES_MIN: usize = 128;
/// Blocks of large LZ4 frames: matches reach back 64 KiB, and a block of this size stays in a processor's cache.
const LZ4_BLOCK_SIZE: BlockSize = BlockSize::Max256KB;
/// Arrow's C++ writers use this level too.
const ZSTD_LEVEL: i32 = 1;

/// The codec in Arrow's words.
pub(crate) fn compression_type(compression: Compression) -> CompressionType {
    match compression {
        Compression::Lz4 => CompressionType::LZ4_FRAME,
        Compression::Zstd => CompressionType::ZSTD,
    }
}

/// Compresses the buffers of a message.
pub(crate) enum BufferEncoder {
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl BufferEncoder {
    pub fn try_new(compression: Compression) -> Result<Self> {
        Ok(match compression {
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(Error::internal)?),
        })
    }

    /// What comes before the bytes of a buffer that is not empty, and the bytes if compression makes them fewer; else the buffer itself
    /// is to follow.
    pub fn encode(&mut self, buffer: &[u8]) -> Result<([u8; LENGTH_BYTES], Option<Vec<u8>>)> {
        let compressed = match buffer.len() >= COMPRESSED_BYTES_MIN {
            true => Some(self.compress(buffer).map_err(Error::internal)?),
            false => None,
        };
        let fewer = compressed.filter(|compressed| compressed.len() < buffer.len());
        let length = if fewer.is_some() { buffer.len() as i64 } else { STORED };
        Ok((length.to_le_bytes(), fewer))
    }

    fn compress(&mut self, buffer: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Lz4 => {
                let is_large = buffer.len() > 64 << 10;
                let block_size = if is_large { LZ4_BLOCK_SIZE } else { BlockSize::Max64KB };
                let info = FrameInfo::new().block_size(block_size);
                let mut frame = FrameEncoder::with_frame_info(info, Vec::with_capacity(buffer.len() / 2));
                frame.write_all(buffer)?;
                Ok(frame.finish()?)
            }
            Self::Zstd(compressor) => compressor.compress(buffer),
        }
    }
}

/// Decompresses the buffers of a message. Reasons of failures are for the caller to complete: it knows whose buffer it is.
pub(crate) enum BufferDecoder {
    Lz4,
    Zstd(zstd::bulk::Decompressor<'static>),
}

impl BufferDecoder {
    /// For what a message says about its compression.
    pub fn try_new(compression: &BodyCompression<'_>) -> Result<Self, String> {
        match (compression.method(), compression.codec()) {
            (BodyCompressionMethod::BUFFER, CompressionType::LZ4_FRAME) => Ok(Self::Lz4),
            (BodyCompressionMethod::BUFFER, CompressionType::ZSTD) => {
                Ok(Self::Zstd(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?))
            }
            (method, codec) => Err(format!("it is compressed by method {method:?} with codec {codec:?}")),
        }
    }

    /// Bytes of a buffer without compression, as it says itself.
    pub fn bytes(buffer: &[u8]) -> Result<usize, String> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let Some((length, stored)) = buffer.split_first_chunk() else {
            return Err(format!("has {} bytes, too few for a length", buffer.len()));
        };
        match i64::from_le_bytes(*length) {
            STORED => Ok(stored.len()),
            length => usize::try_from(length).map_err(|_| format!("declares {length} bytes")),
        }
    }

    /// Writes a buffer to memory of just the size that [`BufferDecoder::bytes`] tells, and never beyond it. An LZ4 frame takes
    /// up to 24 MiB for its blocks meanwhile.
    pub fn decode(&mut self, buffer: &[u8], out: &mut [u8]) -> Result<(), String> {
        let Some((length, data)) = buffer.split_first_chunk() else { return Ok(()) };
        if i64::from_le_bytes(*length) == STORED {
            out.copy_from_slice(data);
            return Ok(());
        }
        let bytes = out.len();
        let damaged = |reason: std::io::Error| format!("cannot be decompressed to {bytes} bytes: {reason}");
        match self {
            Self::Lz4 => {
                let mut frame = FrameDecoder::new(data);
                frame.read_exact(out).map_err(damaged)?;
                match frame.read(&mut [0]) {
                    Ok(0) => Ok(()),
                    Ok(_) => Err(format!("holds more than the {bytes} bytes that it declares")),
                    Err(error) => Err(damaged(error)),
                }
            }
            Self::Zstd(decompressor) => match decompressor.decompress_to_buffer(data, out) {
                Ok(written) if written == bytes => Ok(()),
                Ok(written) => Err(format!("holds {written} bytes and declares {bytes}")),
                Err(error) => Err(damaged(error)),
            },
        }
    }
}
