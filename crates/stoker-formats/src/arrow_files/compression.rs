//! Decompresses the buffers of record batches.

use std::io::Read;

use arrow::ipc::CompressionType;
use arrow_buffer::Buffer;

/// The bytes before each compressed buffer, with its length when decompressed.
const LENGTH_BYTES: usize = 8;

/// The length that marks a buffer that is not compressed.
const NOT_COMPRESSED: i64 = -1;

/// The memory that is taken for a buffer before its bytes come.
const CAPACITY_MAX: usize = 1 << 20;

/// How the buffers of a record batch are compressed.
#[derive(Clone, Copy, Debug)]
pub(super) enum BufferCodec {
    Lz4,
    Zstd,
}

impl BufferCodec {
    /// # Errors
    /// The reason, for other codecs.
    pub fn of(compression: CompressionType) -> Result<Self, String> {
        match compression {
            CompressionType::LZ4_FRAME => Ok(Self::Lz4),
            CompressionType::ZSTD => Ok(Self::Zstd),
            other => Err(format!("buffers are compressed by {other:?}; lz4 and zstd are read")),
        }
    }

    /// Decompresses a buffer, which may have as many bytes as `left`, and takes them from `left`.
    ///
    /// # Errors
    /// The reason, for damaged buffers and for lengths that are false or too large.
    pub fn decompress(self, buffer: &Buffer, left: &mut u64) -> Result<Buffer, String> {
        if buffer.is_empty() {
            return Ok(buffer.clone());
        }
        let Some((length, compressed)) = buffer.as_slice().split_first_chunk::<LENGTH_BYTES>() else {
            return Err("a compressed buffer has no length".into());
        };
        let length = i64::from_le_bytes(*length);
        if length == NOT_COMPRESSED {
            return Ok(buffer.slice(LENGTH_BYTES));
        }
        let wanted = u64::try_from(length).map_err(|_| format!("a compressed buffer declares {length} bytes"))?;
        *left = left.checked_sub(wanted).ok_or_else(|| {
            format!("a buffer declares {wanted} bytes; {left} bytes are left for its record batch: write smaller ones")
        })?;
        let capacity = usize::try_from(wanted).unwrap_or(usize::MAX).min(CAPACITY_MAX);
        let mut values = Vec::with_capacity(capacity);
        // One byte more than declared tells whether there are more.
        let limit = wanted.saturating_add(1);
        let read = match self {
            Self::Lz4 => lz4::Decoder::new(compressed).and_then(|decoder| decoder.take(limit).read_to_end(&mut values)),
            Self::Zstd => zstd::stream::read::Decoder::with_buffer(compressed)
                .and_then(|decoder| decoder.take(limit).read_to_end(&mut values)),
        };
        read.map_err(|error| format!("a compressed buffer is damaged: {error}"))?;
        match values.len() as u64 == wanted {
            true => Ok(Buffer::from_vec(values)),
            false => Err(format!("a compressed buffer declares {wanted} bytes, and has others")),
        }
    }
}
