//! Reads the messages of a `DoGet` answer.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use stoker_net::http2::Connection;
use stoker_wire::decode::{BufferSlot, MessageBody, MessageHead, malformed};
use stoker_wire::encode::{APP_METADATA, DATA_BODY, DATA_HEADER};
use stoker_wire::protocol::MESSAGE_BYTES_MAX;
use stoker_wire::{Error, Result};

use crate::grpc::finish;

/// Bytes of a gRPC frame before its message: the compression flag and the length.
const PREFIX_BYTES: usize = 5;
/// The Protobuf wire type of length-delimited fields.
const LENGTH_DELIMITED: u64 = 2;
/// The most memory that is allocated before its bytes arrive.
const RESERVED_BYTES_MAX: usize = 16 << 20;
/// Bytes that are zeroed and then read at a time: few enough to stay in the processor's cache.
const STEP_BYTES: usize = 256 << 10;
/// Bytes that are skipped at a time.
const SKIP_BYTES: usize = 16 << 10;

/// Reads the messages of one answer. Dropping the reader cancels the call.
///
/// A message is read in two parts, head and body, so that the socket fills the buffers of a batch directly.
pub(crate) struct MessageReader {
    connection: Connection,
    /// Bytes of the current message that were not read yet.
    left: usize,
    /// The body, when it came before other fields.
    early_body: Option<Bytes>,
    /// Whether a read failed or was cancelled in the middle.
    is_broken: bool,
}

impl MessageReader {
    pub fn new(connection: Connection) -> Self {
        Self { connection, left: 0, early_body: None, is_broken: false }
    }

    /// Sets the longest time without a byte of the answer, after which the connection counts as broken.
    pub fn set_silence_max(&mut self, silence_max: Duration) {
        self.connection.set_silence_max(silence_max);
    }

    /// Reads the head of the next message; returns `None` when the server ended the answer. The unread rest of the
    /// message before is skipped. After the future is cancelled, all later calls fail.
    ///
    /// # Errors
    /// The server's error; `Unavailable` when the connection breaks; `Internal` for a message that cannot be read.
    pub async fn next(&mut self) -> Result<Option<MessageHead>> {
        self.begin()?;
        let head = self.read_head().await?;
        self.is_broken = false;
        Ok(head)
    }

    /// Reads the body of the current message. The bytes of each buffer slot in `places` are read into the slot's
    /// memory; the slots must be in ascending order of their offsets. After the future is cancelled, all later calls
    /// fail.
    ///
    /// # Errors
    /// As for [`MessageReader::next`]; `Internal` for slots that overlap or lie beyond the body.
    pub async fn body(&mut self, places: Vec<BufferSlot<'_>>) -> Result<MessageBody> {
        self.begin()?;
        let body = self.read_body(places).await?;
        self.is_broken = false;
        Ok(body)
    }

    fn begin(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.is_broken, true) {
            false => Ok(()),
            true => Err(Error::broken("an earlier error ended this answer")),
        }
    }

    async fn read_head(&mut self) -> Result<Option<MessageHead>> {
        self.early_body = None;
        self.skip(self.left).await?;
        let mut prefix = [0; PREFIX_BYTES];
        match self.connection.read(&mut prefix).await? {
            0 => {
                finish(&mut self.connection)?;
                return Ok(None);
            }
            read => self.fill(&mut prefix[read..]).await?,
        }
        let [compressed, length @ ..] = prefix;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 || length > MESSAGE_BYTES_MAX {
            return Err(malformed(format!("it has {length} bytes and compression flag {compressed}")));
        }
        self.left = length;
        self.read_fields().await.map(Some)
    }

    /// Reads the fields of `FlightData`, in any order. A body that comes last, which is the usual case, is left for
    /// [`MessageReader::body`].
    async fn read_fields(&mut self) -> Result<MessageHead> {
        let mut head = MessageHead::default();
        while self.left > 0 {
            let key = self.varint().await?;
            if key & 7 != LENGTH_DELIMITED {
                return Err(malformed("a field has an unknown type"));
            }
            let length = usize::try_from(self.varint().await?).ok().filter(|length| *length <= self.left);
            let length = length.ok_or_else(|| malformed("a field is longer than its message"))?;
            match u32::try_from(key >> 3) {
                Ok(DATA_HEADER) => head.header = self.collect(length).await?,
                Ok(APP_METADATA) => head.metadata = self.collect(length).await?,
                Ok(DATA_BODY) if length == self.left => {
                    self.early_body = None;
                    head.body_bytes = length;
                    return Ok(head);
                }
                Ok(DATA_BODY) => self.early_body = Some(self.collect(length).await?),
                // Descriptors, and fields of later protocol versions.
                _ => self.skip(length).await?,
            }
        }
        head.body_bytes = self.early_body.as_ref().map_or(0, Bytes::len);
        Ok(head)
    }

    async fn read_body(&mut self, places: Vec<BufferSlot<'_>>) -> Result<MessageBody> {
        let body_bytes = self.early_body.as_ref().map_or(self.left, Bytes::len);
        let num_placed = places.iter().map(|place| place.memory.len()).sum();
        let mut rest = BytesMut::with_capacity(body_bytes.saturating_sub(num_placed).min(RESERVED_BYTES_MAX));
        let mut placed = Vec::with_capacity(places.len());
        let mut at = 0;
        for BufferSlot { begin, memory } in places {
            let end = begin.checked_add(memory.len()).filter(|end| begin >= at && *end <= body_bytes);
            let end = end.ok_or_else(|| malformed("its columns overlap or lie beyond its body"))?;
            self.append(begin - at, &mut rest).await?;
            self.fill(memory).await?;
            placed.push(begin..end);
            at = end;
        }
        self.append(body_bytes - at, &mut rest).await?;
        Ok(MessageBody::new(rest.freeze(), placed))
    }

    async fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            if self.left == 0 {
                return Err(malformed("a field is longer than its message"));
            }
            self.fill(&mut byte).await?;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number has too many bytes"))
    }

    async fn collect(&mut self, bytes: usize) -> Result<Bytes> {
        let mut collected = BytesMut::with_capacity(bytes.min(RESERVED_BYTES_MAX));
        self.append(bytes, &mut collected).await?;
        Ok(collected.freeze())
    }

    /// Appends the next bytes of the message to `out`. Memory grows only as bytes arrive.
    async fn append(&mut self, mut bytes: usize, out: &mut BytesMut) -> Result<()> {
        while bytes > 0 {
            let begin = out.len();
            let step = bytes.min(STEP_BYTES);
            out.resize(begin + step, 0);
            self.fill(&mut out[begin..]).await?;
            bytes -= step;
        }
        Ok(())
    }

    /// Fills `out` with the next bytes of the message.
    async fn fill(&mut self, mut out: &mut [u8]) -> Result<()> {
        if let Some(body) = &mut self.early_body
            && self.left == 0
        {
            body.copy_to_slice(out);
            return Ok(());
        }
        while !out.is_empty() {
            let read = self.connection.read(out).await?;
            if read == 0 {
                finish(&mut self.connection)?;
                return Err(Error::broken("the answer ended before it was complete"));
            }
            self.left = self.left.saturating_sub(read);
            out = &mut out[read..];
        }
        Ok(())
    }

    async fn skip(&mut self, mut bytes: usize) -> Result<()> {
        let mut skipped = vec![0; bytes.min(SKIP_BYTES)];
        while bytes > 0 {
            let step = bytes.min(skipped.len());
            self.fill(&mut skipped[..step]).await?;
            bytes -= step;
        }
        Ok(())
    }
}
