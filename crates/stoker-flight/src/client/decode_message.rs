//! Decoding messages without keeping other tasks waiting.

use crate::decode::{MessageHead, is_compressed};
use crate::{Error, Result};

/// Decodes a message: at once, or a compressed one on a thread for work that takes long. Cancelling the future does not stop such a
/// thread, which then finishes its message.
pub(crate) async fn decode_message<T: Send + 'static>(
    head: MessageHead,
    decode: impl FnOnce(MessageHead) -> Result<T> + Send + 'static,
) -> Result<T> {
    match is_compressed(&head)? {
        false => decode(head),
        true => tokio::task::spawn_blocking(move || decode(head)).await.map_err(Error::internal)?,
    }
}
