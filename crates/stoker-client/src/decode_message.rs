//! Decodes messages without blocking other tasks.

use stoker_wire::decode::{MessageHead, is_compressed};
use stoker_wire::{Error, Result};

/// Decodes an uncompressed message on the current thread and a compressed one on a thread for blocking work. When the
/// future is cancelled, such a thread still finishes its message.
pub(crate) async fn decode_message<T: Send + 'static>(
    head: MessageHead,
    decode: impl FnOnce(MessageHead) -> Result<T> + Send + 'static,
) -> Result<T> {
    match is_compressed(&head)? {
        false => decode(head),
        true => tokio::task::spawn_blocking(move || decode(head)).await.map_err(Error::internal)?,
    }
}
