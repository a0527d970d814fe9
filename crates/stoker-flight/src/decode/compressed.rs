//! Compressed messages.

use arrow_ipc::{Buffer, FieldNode, root_as_message};
use arrow_schema::Schema;
use bytes::Bytes;

use crate::Result;
use crate::buffer_codec::BufferDecoder;
use crate::decode::buffer_counts::column_of;
use crate::decode::{MessageBody, MessageHead, Place, malformed, rows};
use crate::encode::{BatchLayout, record_batch_header};
use crate::wire::MESSAGE_BYTES_MAX;

/// Decompressed buffers begin at multiples of this.
const ALIGNMENT: usize = 64;

/// A compressed message, whole, and what it will be without compression.
///
/// ```text
/// head, body (compressed) ─try_new: lengths are checked─► plain_head ─► places ─decompress─► MessageBody
/// ```
///
/// No memory is taken before all lengths are known to be within the limit, and those of values in places to fit these.
pub(crate) struct CompressedMessage<'a> {
    schema: &'a Schema,
    decoder: BufferDecoder,
    /// The compressed buffers.
    sources: Vec<Bytes>,
    /// Where they will be.
    buffers: Vec<Buffer>,
    head: MessageHead,
}

impl<'a> CompressedMessage<'a> {
    /// A message with rows of a schema.
    ///
    /// # Errors
    /// A codec that is not known; buffers beyond the body, or longer without compression than a message may be.
    pub fn try_new(head: &MessageHead, body: MessageBody, schema: &'a Schema) -> Result<Self> {
        let parsed = root_as_message(&head.header).map_err(malformed)?;
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

    /// The head of the message without compression.
    pub fn plain_head(&self) -> MessageHead {
        self.head.clone()
    }

    /// The body without compression: parts of it go to their places, which must ascend.
    ///
    /// # Errors
    /// Buffers that do not hold what they declare, or not what their place takes.
    pub fn decompress(mut self, places: Vec<Place<'_>>) -> Result<MessageBody> {
        let num_placed: usize = places.iter().map(|place| place.memory.len()).sum();
        let mut rest = vec![0; self.head.body_bytes.saturating_sub(num_placed)];
        let (mut placed, mut missing) = (Vec::with_capacity(places.len()), 0);
        let mut places = places.into_iter().peekable();
        for (index, (source, buffer)) in self.sources.iter().zip(&self.buffers).enumerate() {
            let (begin, length) = (buffer.offset() as usize, buffer.length() as usize);
            if length == 0 {
                continue;
            }
            let named = |reason: &str| malformed(format!("{} {reason}", name(self.schema, index)));
            let out = match places.next_if(|place| place.begin == begin) {
                None => &mut rest[begin - missing..][..length],
                Some(Place { memory, .. }) if memory.len() == length => {
                    placed.push(begin..begin + length);
                    missing += length;
                    memory
                }
                Some(Place { memory, .. }) => {
                    return Err(named(&format!("declares {length} bytes, its rows have {}", memory.len())));
                }
            };
            self.decoder.decode(source, out).map_err(|reason| named(&reason))?;
        }
        Ok(MessageBody::new(rest.into(), placed))
    }
}

/// The column of a buffer, for errors.
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
