//! The metadata blocks of FLAC files (RFC 9639, section 8).

use crate::BadSound;

/// The bytes of the marker, a block's header, and the stream information.
const MARKER: &[u8; 4] = b"fLaC";
const BLOCK_HEADER_BYTES: usize = 4;
const INFO_BYTES: usize = 34;

/// Returns a file's marker and stream information, as if it had no other metadata, and the frames.
///
/// Other metadata, such as pictures and tables of seek points, is not needed. A wrong table could even send a reader into
/// an endless loop.
///
/// # Errors
/// [`BadSound`] for damaged metadata.
pub(crate) fn without_metadata(file: &[u8]) -> Result<(Vec<u8>, &[u8]), BadSound> {
    let damaged = || BadSound::new("the metadata of the FLAC file is damaged");
    let mut rest = file.strip_prefix(MARKER).ok_or_else(damaged)?;
    let mut info = None;
    loop {
        let (&[kind, a, b, c], body) = rest.split_first_chunk::<BLOCK_HEADER_BYTES>().ok_or_else(damaged)?;
        let bytes = u32::from_be_bytes([0, a, b, c]) as usize;
        let (body, after) = body.split_at_checked(bytes).ok_or_else(damaged)?;
        if kind & 0x7F == 0 && info.is_none() {
            info = Some(body);
        }
        rest = after;
        if kind & 0x80 != 0 {
            break;
        }
    }
    let info = info.filter(|info| info.len() == INFO_BYTES).ok_or_else(damaged)?;
    #[expect(clippy::cast_possible_truncation, reason = "the length has eight bits")]
    let header = [0x80, 0, 0, INFO_BYTES as u8];
    Ok(([MARKER, &header[..], info].concat(), rest))
}
