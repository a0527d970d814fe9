//! A Flight message before it is framed.

use arrow_flight::FlightData;
use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint};

use super::Segments;

/// The field number of `FlightData.data_header`.
pub const DATA_HEADER: u32 = 2;
/// The field number of `FlightData.app_metadata`.
pub const APP_METADATA: u32 = 3;
/// The field number of `FlightData.data_body`.
pub const DATA_BODY: u32 = 1000;

/// The maximum size of a field's key and length, in bytes.
const FIELD_HEAD_BYTES: usize = 12;

/// A Flight message whose body is a list of segments.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The IPC message without its body.
    pub header: Bytes,
    /// The `app_metadata`; may be empty.
    pub metadata: Bytes,
    /// The segments of the body, in order.
    pub body: Vec<Bytes>,
}

impl Message {
    /// Returns the size of the body in bytes.
    pub fn body_bytes(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }

    /// Returns the size of the whole message in bytes. It is an upper bound, a few bytes above the exact size.
    pub fn wire_bytes(&self) -> usize {
        self.header.len() + self.metadata.len() + self.body_bytes() + 3 * FIELD_HEAD_BYTES
    }

    /// Converts the message to a gRPC frame: a head with all fields but the body, then the segments of the body without
    /// copying them.
    ///
    /// The head is a zero byte for "not compressed", the length in four bytes, big endian
    /// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>), and the protobuf fields of `FlightData`.
    pub fn into_frame(self) -> Segments {
        let body_bytes = self.body_bytes();
        let mut fields = BytesMut::with_capacity(self.header.len() + self.metadata.len() + 3 * FIELD_HEAD_BYTES);
        for (tag, value) in [(DATA_HEADER, &self.header), (APP_METADATA, &self.metadata)] {
            if !value.is_empty() {
                encode_key(tag, WireType::LengthDelimited, &mut fields);
                encode_varint(value.len() as u64, &mut fields);
                fields.put_slice(value);
            }
        }
        if body_bytes > 0 {
            encode_key(DATA_BODY, WireType::LengthDelimited, &mut fields);
            encode_varint(body_bytes as u64, &mut fields);
        }
        let mut head = BytesMut::with_capacity(5 + fields.len());
        head.put_u8(0);
        #[expect(clippy::cast_possible_truncation, reason = "messages have at most `MESSAGE_BYTES_MAX` bytes")]
        let length = (fields.len() + body_bytes) as u32;
        head.put_u32(length);
        head.put_slice(&fields);
        std::iter::once(head.freeze()).chain(self.body).collect()
    }

    /// Converts the message to one with a contiguous body. Copies the body if it has several segments.
    pub fn into_flight_data(mut self) -> FlightData {
        let data_body = match self.body.len() {
            0 => Bytes::new(),
            1 => self.body.swap_remove(0),
            _ => {
                let mut body = Vec::with_capacity(self.body_bytes());
                self.body.iter().for_each(|segment| body.extend_from_slice(segment));
                body.into()
            }
        };
        FlightData { flight_descriptor: None, data_header: self.header, app_metadata: self.metadata, data_body }
    }
}

impl From<FlightData> for Message {
    fn from(data: FlightData) -> Self {
        let body = if data.data_body.is_empty() { Vec::new() } else { vec![data.data_body] };
        Self { header: data.data_header, metadata: data.app_metadata, body }
    }
}
