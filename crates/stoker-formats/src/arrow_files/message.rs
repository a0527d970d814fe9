//! The messages of a file: their metadata and bodies.

use std::sync::Arc;

use arrow::ipc::{self, MetadataVersion, root_as_footer, root_as_message};
use arrow_buffer::Buffer;

use super::schema::IpcSchema;
use crate::{Error, FileBytes, Folder, Result};

/// The bytes at the beginning and the end of files with a footer.
const MAGIC: &[u8; 6] = b"ARROW1";

/// The most bytes of a footer or of the metadata of a message.
const METADATA_BYTES_MAX: u64 = 64 << 20;

/// The most bytes of the body of a message, which is in memory at once.
const BODY_BYTES_MAX: u64 = 2 << 30;

/// The messages of a file after its schema.
#[derive(Debug)]
pub(super) struct IpcMessages {
    name: String,
    file: Arc<dyn FileBytes>,
    next: NextMessage,
    /// The schema of the file.
    pub schema: IpcSchema,
}

/// Where the next message is.
#[derive(Debug)]
enum NextMessage {
    /// In a stream, at an offset.
    At(u64),
    /// At the first of these offsets, which are in reverse: dictionaries first.
    Blocks(Vec<i64>),
    End,
}

/// A message.
#[derive(Debug)]
pub(super) struct IpcMessage {
    metadata: Vec<u8>,
    pub body: Buffer,
    /// The number of bytes of the file.
    pub bytes: u64,
    end: u64,
}

impl IpcMessages {
    /// Opens a file and reads its schema.
    ///
    /// # Errors
    /// `Read` for files that cannot be read, `Malformed` for files that are no Arrow IPC.
    pub fn open(folder: &dyn Folder, name: &str) -> Result<Self> {
        let file = folder.open(name).map_err(|source| Error::read(name, source))?;
        let fail = |reason: String| Error::malformed(name, reason);
        let mut head = [0; 8];
        let known = usize::try_from(file.size()).unwrap_or(usize::MAX).min(head.len());
        file.read_at(0, head.get_mut(..known).unwrap_or_default()).map_err(|source| Error::read(name, source))?;
        match head.get(..known).unwrap_or_default() {
            [] => Err(fail("the file is empty".into())),
            head if head.starts_with(MAGIC) => Self::with_footer(name, file),
            head if head.starts_with(b"FEA1") => {
                Err(fail("the file is Feather version 1; write it again as version 2, or as Arrow IPC".into()))
            }
            head => {
                let shown = head.escape_ascii().to_string();
                Self::stream(name, file).map_err(|error| match error {
                    Error::Malformed { reason, .. } => {
                        fail(format!("no Arrow IPC file or stream ({reason}); it begins with \"{shown}\""))
                    }
                    other => other,
                })
            }
        }
    }

    fn stream(name: &str, file: Arc<dyn FileBytes>) -> Result<Self> {
        let first = read_message(name, file.as_ref(), 0)?;
        let first = first.ok_or_else(|| Error::malformed(name, "the stream has no schema"))?;
        let message = first.message(name)?;
        let schema =
            message.header_as_schema().ok_or_else(|| Error::malformed(name, "the stream begins without a schema"))?;
        let schema = IpcSchema::read(schema).map_err(|reason| Error::malformed(name, reason))?;
        Ok(Self { name: name.into(), file, next: NextMessage::At(first.end), schema })
    }

    fn with_footer(name: &str, file: Arc<dyn FileBytes>) -> Result<Self> {
        let fail = |reason: &str| Error::malformed(name, reason);
        let read =
            |offset: u64, into: &mut [u8]| file.read_at(offset, into).map_err(|source| Error::read(name, source));
        let cut = || fail("the file has no footer at its end: it is cut off, or was not closed");
        let mut tail = [0; 10];
        let tail_at = file.size().checked_sub(tail.len() as u64).ok_or_else(cut)?;
        read(tail_at, &mut tail)?;
        let ([a, b, c, d], true) = (split_tail(&tail), tail.ends_with(MAGIC)) else { return Err(cut()) };
        let length = u64::try_from(i32::from_le_bytes([a, b, c, d])).map_err(|_| cut())?;
        let start = tail_at.checked_sub(length).filter(|_| length <= METADATA_BYTES_MAX);
        let start = start.ok_or_else(|| fail("the length of the footer is wrong"))?;
        let mut footer = vec![0; usize::try_from(length).unwrap_or(0)];
        read(start, &mut footer)?;
        let footer = root_as_footer(&footer).map_err(|error| Error::malformed(name, format!("the footer: {error}")))?;
        let schema = footer.schema().ok_or_else(|| fail("the footer has no schema"))?;
        let schema = IpcSchema::read(schema).map_err(|reason| fail(&reason))?;
        let dictionaries = footer.dictionaries().into_iter().flatten();
        let batches = footer.recordBatches().into_iter().flatten();
        let mut blocks: Vec<i64> = dictionaries.chain(batches).map(ipc::Block::offset).collect();
        blocks.reverse();
        Ok(Self { name: name.into(), file, next: NextMessage::Blocks(blocks), schema })
    }

    /// Reads the next message, or returns `None` at the end.
    ///
    /// # Errors
    /// `Read` for files that cannot be read, `Malformed` for lengths that the file does not have.
    pub fn next(&mut self) -> Result<Option<IpcMessage>> {
        let offset = match &mut self.next {
            NextMessage::End => return Ok(None),
            NextMessage::At(offset) => *offset,
            NextMessage::Blocks(blocks) => match blocks.pop() {
                None => return Ok(None),
                Some(offset) => u64::try_from(offset)
                    .map_err(|_| Error::malformed(&self.name, "a record batch begins before the file"))?,
            },
        };
        let message = read_message(&self.name, self.file.as_ref(), offset)?;
        match (&mut self.next, &message) {
            (NextMessage::At(next), Some(message)) => *next = message.end,
            (NextMessage::Blocks(_), None) => {
                return Err(Error::malformed(&self.name, format!("there is no message at byte {offset}")));
            }
            (next @ NextMessage::At(_), None) => *next = NextMessage::End,
            _ => {}
        }
        Ok(message)
    }
}

fn split_tail(tail: &[u8; 10]) -> [u8; 4] {
    tail.first_chunk::<4>().copied().unwrap_or_default()
}

impl IpcMessage {
    /// Verifies the metadata.
    ///
    /// # Errors
    /// `Malformed` for metadata that is none, or of another version.
    pub fn message(&self, name: &str) -> Result<ipc::Message<'_>> {
        let message = root_as_message(&self.metadata);
        let message = message.map_err(|error| Error::malformed(name, format!("the metadata of a message: {error}")))?;
        match message.version() {
            MetadataVersion::V4 | MetadataVersion::V5 => Ok(message),
            other => Err(Error::malformed(name, format!("the version of a message is {other:?}; V4 and V5 are read"))),
        }
    }
}

/// Reads the message at an offset; `None` at the end of the file and at the mark of the end of a stream.
fn read_message(name: &str, file: &dyn FileBytes, offset: u64) -> Result<Option<IpcMessage>> {
    let fail = |reason: &str| Error::malformed(name, format!("the message at byte {offset} {reason}"));
    let read = |offset: u64, into: &mut [u8]| file.read_at(offset, into).map_err(|source| Error::read(name, source));
    let size = file.size();
    let left = size.saturating_sub(offset);
    if left == 0 {
        return Ok(None);
    }
    if left < 4 {
        return Err(fail("is cut off"));
    }
    let mut prefix = [0; 8];
    let known = if left < 8 { 4 } else { 8 };
    read(offset, prefix.get_mut(..known).unwrap_or_default())?;
    // Streams before version 0.15 have no mark before the length.
    let [a, b, c, d, e, f, g, h] = prefix;
    let has_mark = [a, b, c, d] == [0xff; 4];
    if has_mark && known < 8 {
        return Err(fail("is cut off"));
    }
    let (length, prefix_bytes) = if has_mark { ([e, f, g, h], 8u64) } else { ([a, b, c, d], 4) };
    let length = u64::try_from(i32::from_le_bytes(length)).map_err(|_| fail("has a negative length"))?;
    if length == 0 {
        return Ok(None);
    }
    let at = offset.saturating_add(prefix_bytes);
    if length > METADATA_BYTES_MAX || at.saturating_add(length) > size {
        return Err(fail(&format!("is cut off, or its metadata is no metadata: it should have {length} bytes")));
    }
    let mut metadata = vec![0; usize::try_from(length).unwrap_or(0)];
    read(at, &mut metadata)?;
    let mut message = IpcMessage { metadata, body: Buffer::from_vec(Vec::<u8>::new()), bytes: 0, end: 0 };
    let body_bytes = message.message(name)?.bodyLength();
    let body_bytes = u64::try_from(body_bytes).map_err(|_| fail("has a body of a negative length"))?;
    let body_at = at.saturating_add(length);
    let end = body_at.saturating_add(body_bytes);
    if end > size {
        return Err(fail(&format!("is cut off: its body should have {body_bytes} bytes")));
    }
    if body_bytes > BODY_BYTES_MAX {
        let limit =
            format!("has a body of {body_bytes} bytes; the limit is {BODY_BYTES_MAX}: write smaller record batches");
        return Err(fail(&limit));
    }
    let mut body = vec![0u8; usize::try_from(body_bytes).unwrap_or(0)];
    read(body_at, &mut body)?;
    message.body = Buffer::from_vec(body);
    (message.bytes, message.end) = (end.saturating_sub(offset), end);
    Ok(Some(message))
}
