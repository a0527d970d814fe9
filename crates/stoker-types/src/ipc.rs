//! Checks of Arrow IPC streams from untrusted sources, made before a reader parses them.

use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::{Message, MessageHeader, root_as_message_with_opts};
use arrow_schema::Schema;
use flatbuffers::{InvalidFlatbuffer, VerifierOptions};

use crate::catch_panic;

/// The continuation marker with which each message begins.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The size of the continuation marker and of the metadata length before each message's metadata, in bytes.
const PREFIX_BYTES: usize = 8;

/// Parts of a header may be referenced from several places. Counted at each reference, they may take this multiple of the
/// header's bytes. Writers reference only the short descriptions of tables more than once.
const UNFOLDED_FACTOR: usize = 16;

/// Parses the header of a message. It is refused if parts of it are referenced so often that what is made of it, with a
/// copy for each reference, would take far more memory than the header.
///
/// # Errors
/// Bytes that are not such a header.
pub fn ipc_message(header: &[u8]) -> Result<Message<'_>, InvalidFlatbuffer> {
    let max_apparent_size = header.len().saturating_mul(UNFOLDED_FACTOR);
    let options = VerifierOptions { max_apparent_size, ..VerifierOptions::default() };
    root_as_message_with_opts(&options, header)
}

/// Decodes the schema in an encapsulated message: a marker, which older writers leave out, the length, the message.
///
/// # Errors
/// What is wrong with the message.
pub fn encapsulated_schema(message: &[u8]) -> Result<Schema, String> {
    let message = message.strip_prefix(&CONTINUATION).unwrap_or(message);
    let header =
        message.split_first_chunk().and_then(|(length, rest)| rest.get(..u32::from_le_bytes(*length) as usize));
    let header = ipc_message(header.ok_or("its schema is cut off")?).map_err(|source| source.to_string())?;
    let schema = header.header_as_schema().ok_or("it has no schema")?;
    // Arrow's decoder panics on malformed input that it does not check.
    catch_panic(|| Ok(fb_to_schema(schema)), |reason| reason)
}

/// Checks that a stream is complete, that its messages lie within its bytes, and that no message is compressed, because
/// a few compressed bytes could expand to very many. A reader of a stream that passes takes no more memory than the
/// stream has bytes. Returns the kinds of the messages in order.
///
/// # Errors
/// What is wrong, worded to follow the stream's name in a sentence.
pub fn check_ipc_stream(stream: &[u8]) -> Result<Vec<MessageHeader>, String> {
    let cut_off = || "it is cut off".to_string();
    let (mut rest, mut kinds) = (stream, Vec::new());
    loop {
        let (prefix, after) = rest.split_first_chunk::<PREFIX_BYTES>().ok_or_else(cut_off)?;
        let [marker @ .., l0, l1, l2, l3] = *prefix;
        if marker != CONTINUATION {
            return Err("it is not an Arrow IPC stream".to_string());
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length == 0 {
            return Ok(kinds);
        }
        let (message, after) = after.split_at_checked(length).ok_or_else(cut_off)?;
        let message = ipc_message(message).map_err(|source| source.to_string())?;
        let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let batches = [message.header_as_record_batch(), dictionary];
        if batches.iter().flatten().any(|batch| batch.compression().is_some()) {
            return Err("it is compressed".to_string());
        }
        kinds.push(message.header_type());
        let body = usize::try_from(message.bodyLength()).map_err(|_| cut_off())?;
        rest = after.get(body..).ok_or_else(cut_off)?;
    }
}
