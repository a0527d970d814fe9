//! Frames the content of objects with a magic number and a checksum.

use bytes::{BufMut as _, Bytes, BytesMut};
use stoker_types::Digest;

const MAGIC: &[u8; 8] = b"STKRROWS";
const DIGEST_BYTES: usize = 32;

/// Returns the magic number, the SHA-256 digest of the content, and the content, as one buffer.
pub(super) fn frame(content: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(MAGIC.len() + DIGEST_BYTES + content.len());
    framed.put_slice(MAGIC);
    framed.put_slice(Digest::of(content).as_bytes());
    framed.put_slice(content);
    framed.freeze()
}

/// Returns the content of a framed object, or what is wrong with the object.
pub(super) fn unframe(framed: &Bytes) -> Result<Bytes, String> {
    let start = MAGIC.len() + DIGEST_BYTES;
    if framed.len() < start || &framed[..MAGIC.len()] != MAGIC {
        return Err("it does not begin like a row set object".to_string());
    }
    let content = framed.slice(start..);
    match &framed[MAGIC.len()..start] == Digest::of(&content).as_bytes() {
        true => Ok(content),
        false => Err("its checksum does not match: it is truncated or changed".to_string()),
    }
}
