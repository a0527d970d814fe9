//! Compresses and decompresses single buffers of messages, in the format of Arrow's `BodyCompression`. A non-empty
//! buffer has one of two forms:
//!
//! ```text
//! uncompressed length in bytes: 8 bytes, little endian  │ one LZ4 frame, or one Zstandard frame
//! -1: 8 bytes, little endian                            │ the uncompressed bytes
//! ```
//!
//! An empty buffer stays empty. Source: <https://github.com/apache/arrow/blob/main/format/Message.fbs>.

use std::io::{Read, Write};

use arrow_ipc::{BodyCompression, BodyCompressionMethod, CompressionType};
use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use stoker_types::Compression;

use crate::{Error, Result};

/// The size of the length prefix of a buffer, in bytes.
const LENGTH_BYTES: usize = 8;
/// The length prefix of a buffer whose bytes are not compressed.
const STORED: i64 = -1;
/// Smaller buffers are sent uncompressed, because the header and trailer of a frame would outweigh the saving.
const COMPRESSED_BYTES_MIN: usize = 128;
/// The block size of LZ4 frames for buffers of more than 64 KiB. Matches reach back 64 KiB only, so larger blocks
/// compress hardly better, and a block of this size stays in a processor's cache.
const LZ4_BLOCK_SIZE: BlockSize = BlockSize::Max256KB;
/// The Zstandard level, which Arrow's C++ writers use too.
const ZSTD_LEVEL: i32 = 1;

/// Returns Arrow's name of a codec.
pub fn compression_type(compression: Compression) -> CompressionType {
    match compression {
        Compression::Lz4 => CompressionType::LZ4_FRAME,
        Compression::Zstd => CompressionType::ZSTD,
    }
}

/// Compresses the buffers of a message.
pub enum BufferEncoder {
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd(zstd::bulk::Compressor<'static>),
}

impl BufferEncoder {
    /// Creates an encoder for a codec.
    ///
    /// # Errors
    /// `Internal` if the codec cannot be set up.
    pub fn try_new(compression: Compression) -> Result<Self> {
        Ok(match compression {
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(Error::internal)?),
        })
    }

    /// Returns the length prefix of a non-empty buffer, and its compressed bytes if compression makes it smaller. With
    /// `None`, the caller sends the buffer itself after the prefix.
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

/// Decompresses the buffers of a message. Its errors are texts without a subject: the caller knows the column of the
/// buffer and completes them.
pub enum BufferDecoder {
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd(zstd::bulk::Decompressor<'static>),
}

impl BufferDecoder {
    /// Creates a decoder for the compression that a message declares.
    pub fn try_new(compression: &BodyCompression<'_>) -> Result<Self, String> {
        match (compression.method(), compression.codec()) {
            (BodyCompressionMethod::BUFFER, CompressionType::LZ4_FRAME) => Ok(Self::Lz4),
            (BodyCompressionMethod::BUFFER, CompressionType::ZSTD) => {
                Ok(Self::Zstd(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?))
            }
            (method, codec) => Err(format!("it is compressed by method {method:?} with codec {codec:?}")),
        }
    }

    /// Returns the uncompressed size of a buffer in bytes, as its prefix declares it.
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

    /// Decompresses a buffer to `out`, whose length must be that of [`BufferDecoder::bytes`], and never writes beyond
    /// it. Decompressing an LZ4 frame takes up to 24 MiB more for its blocks.
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
