//! Headers and trailers of an answer.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::frame::{END_STREAM, FrameHead, PADDED, WITH_PRIORITY};
use super::hpack::{Decoder, HEADER_BYTES_MAX};
use super::violation;
use crate::Result;

const STATUS: &[u8] = b":status";

/// A header block, which may extend over several frames.
pub(super) struct HeaderBlock {
    bytes: BytesMut,
    /// Whether the stream ends after this block.
    pub ends_stream: bool,
}

impl HeaderBlock {
    /// Begins a block with the payload of a HEADERS frame, without its padding and priority.
    pub fn begin(head: FrameHead, payload: &[u8]) -> Result<Self> {
        let padded = usize::from(head.has(PADDED));
        let padding = if head.has(PADDED) { payload.first().map_or(0, |bytes| usize::from(*bytes)) } else { 0 };
        let begin = padded + if head.has(WITH_PRIORITY) { 5 } else { 0 };
        let part = payload.len().checked_sub(padding).and_then(|end| payload.get(begin..end));
        let part = part.ok_or_else(|| violation("its headers are shorter than their padding"))?;
        let mut block = Self { bytes: BytesMut::new(), ends_stream: head.has(END_STREAM) };
        block.extend(part)?;
        Ok(block)
    }

    /// Appends the payload of a CONTINUATION frame.
    pub fn extend(&mut self, part: &[u8]) -> Result<()> {
        if self.bytes.len() + part.len() > HEADER_BYTES_MAX {
            return Err(violation("its headers are too long"));
        }
        self.bytes.put_slice(part);
        Ok(())
    }

    pub fn decode(&self, decoder: &mut Decoder) -> Result<Headers> {
        let mut headers = Headers::default();
        for (name, value) in decoder.decode(&self.bytes).map_err(violation)? {
            headers.add(&name, value)?;
        }
        Ok(headers)
    }
}

/// The decoded headers or trailers of an answer.
#[derive(Debug, Default)]
pub struct Headers {
    /// The HTTP status; `None` for trailers.
    pub status: Option<StatusCode>,
    /// All other fields.
    pub fields: HeaderMap,
}

impl Headers {
    fn add(&mut self, name: &[u8], value: Bytes) -> Result<()> {
        if name == STATUS {
            let status = StatusCode::from_bytes(&value).map_err(|_| violation("its status is not a number"))?;
            return match self.status.replace(status) {
                None if self.fields.is_empty() => Ok(()),
                _ => Err(violation("its status does not come first")),
            };
        }
        let name = HeaderName::from_lowercase(name).map_err(|_| violation("a header has an impossible name"))?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| violation("a header has an impossible value"))?;
        self.fields.try_append(name, value).map_err(violation)?;
        Ok(())
    }
}
