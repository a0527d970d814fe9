//! Decompresses messages.

use arrow_ipc::{Buffer, FieldNode};
use arrow_schema::Schema;
use bytes::Bytes;

use crate::Result;
use crate::buffer_codec::BufferDecoder;
use crate::decode::buffer_counts::column_of;
use crate::decode::{BufferSlot, MessageBody, MessageHead, malformed, message, rows};
use crate::encode::{BatchLayout, record_batch_header};
use crate::protocol::MESSAGE_BYTES_MAX;

/// The alignment of buffers in the decompressed body, in bytes.
const ALIGNMENT: usize = 64;

/// A compressed message that was received whole, and the layout that its body has after decompression.
///
/// ```text
/// head, body (compressed) ─try_new: lengths are checked─► plain_head ─► places ─decompress─► MessageBody
/// ```
///
/// Memory is allocated only after all declared lengths were found to be within the limit. Lengths of values that go to
/// buffer slots are compared with those of the slots.
pub struct CompressedMessage<'a> {
    schema: &'a Schema,
    decoder: BufferDecoder,
    /// The compressed buffers.
    sources: Vec<Bytes>,
    /// The ranges of the buffers in the decompressed body.
    buffers: Vec<Buffer>,
    head: MessageHead,
}

impl<'a> CompressedMessage<'a> {
    /// Parses a compressed message with rows of `schema`.
    ///
    /// # Errors
    /// An unknown codec; buffers beyond the end of the body, or larger after decompression than a message may be.
    pub fn try_new(head: &MessageHead, body: MessageBody, schema: &'a Schema) -> Result<Self> {
        let parsed = message(&head.header)?;
        let batch = rows(&parsed)?;
        let compression = batch.compression().ok_or_else(|| malformed("it is not compressed"))?;
        let decoder = BufferDecoder::try_new(&compression).map_err(malformed)?;
        let body = body.into_rest();
        let (mut sources, mut buffers) = (Vec::new(), Vec::new());
        let (mut bytes, mut body_bytes) = (0_usize, 0);
        for (index, buffer) in batch.buffers().into_iter().flatten().enumerate() {
            let named = |reason: &str| malformed(format!("{} {reason}", name(schema, index)));
            let source = slice(&body, buffer).ok_or_else(|| named("lies beyond the body"))?;
            let length = BufferDecoder::bytes(&source).map_err(|reason| named(&reason))?;
            bytes = bytes.saturating_add(length);
            if bytes > MESSAGE_BYTES_MAX {
                let reason = format!("declares {length} bytes; all buffers may have {MESSAGE_BYTES_MAX} together");
                return Err(named(&reason));
            }
            sources.push(source);
            buffers.push(Buffer::new(body_bytes as i64, length as i64));
            body_bytes += length.next_multiple_of(ALIGNMENT);
        }
        let nodes: Vec<FieldNode> = batch.nodes().into_iter().flatten().copied().collect();
        let variadic_counts: Vec<i64> = batch.variadicBufferCounts().into_iter().flatten().collect();
        let header = record_batch_header(&BatchLayout {
            rows: usize::try_from(batch.length()).map_err(malformed)?,
            nodes: &nodes,
            buffers: &buffers,
            variadic_counts: &variadic_counts,
            body_bytes,
            compression: None,
        });
        let head = MessageHead { header, metadata: head.metadata.clone(), body_bytes };
        Ok(Self { schema, decoder, sources, buffers, head })
    }

    /// Returns the head that the message has after decompression.
    pub fn plain_head(&self) -> MessageHead {
        self.head.clone()
    }

    /// Decompresses the body. Parts of it are written to buffer slots, which must be sorted by their offset in the
    /// body.
    ///
    /// # Errors
    /// Buffers whose length after decompression is not the declared one, or not that of their slot.
    pub fn decompress(mut self, places: Vec<BufferSlot<'_>>) -> Result<MessageBody> {
        let num_placed: usize = places.iter().map(|place| place.memory.len()).sum();
        let mut rest = vec![0; self.head.body_bytes.saturating_sub(num_placed)];
        let (mut placed, mut missing) = (Vec::with_capacity(places.len()), 0);
        let mut places = places.into_iter().peekable();
        for (index, (source, buffer)) in self.sources.iter().zip(&self.buffers).enumerate() {
            #[expect(clippy::cast_possible_truncation, reason = "both were of type `usize` in `try_new`")]
            let (begin, length) = (buffer.offset() as usize, buffer.length() as usize);
            if length == 0 {
                continue;
            }
            let named = |reason: &str| malformed(format!("{} {reason}", name(self.schema, index)));
            let out = match places.next_if(|place| place.begin == begin) {
                None => &mut rest[begin - missing..][..length],
                Some(BufferSlot { memory, .. }) if memory.len() == length => {
                    placed.push(begin..begin + length);
                    missing += length;
                    memory
                }
                Some(BufferSlot { memory, .. }) => {
                    return Err(named(&format!("declares {length} bytes, its rows have {}", memory.len())));
                }
            };
            self.decoder.decode(source, out).map_err(|reason| named(&reason))?;
        }
        Ok(MessageBody::new(rest.into(), placed))
    }
}

/// Returns the name of a buffer's column, for errors.
fn name(schema: &Schema, index: usize) -> String {
    match column_of(schema, index) {
        Some(column) => format!("column {column:?}"),
        None => format!("buffer {index}"),
    }
}

fn slice(body: &Bytes, buffer: &Buffer) -> Option<Bytes> {
    let (begin, length) = (usize::try_from(buffer.offset()).ok()?, usize::try_from(buffer.length()).ok()?);
    let end = begin.checked_add(length).filter(|end| *end <= body.len())?;
    Some(body.slice(begin..end))
}
