//! The delay of an encoder in Matroska files (RFC 9559, section 5.1.4.1.27: `CodecDelay`), and its padding (section
//! 5.1.3.5.7: `DiscardPadding`).
//!
//! Symphonia subtracts the delay from timestamps, which have a resolution of a millisecond. The delay itself is in
//! nanoseconds, which tells the exact number of samples.

use crate::BadSound;

const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1F43_B675;
const TRACKS: u32 = 0x1654_AE6B;
const TRACK_ENTRY: u32 = 0xAE;
const TRACK_NUMBER: u32 = 0xD7;
const CODEC_DELAY: u32 = 0x56AA;
const SIMPLE_BLOCK: u32 = 0xA3;
const BLOCK_GROUP: u32 = 0xA0;
const BLOCK: u32 = 0xA1;
const DISCARD_PADDING: u32 = 0x75A2;

/// Returns the delay of a track in samples; zero if there is none.
pub(crate) fn samples(file: &[u8], track_number: u32, sample_rate: u32) -> u64 {
    to_samples(nanoseconds(file, track_number), sample_rate)
}

/// Returns how many samples at the end of a track are padding: what its last block tells.
///
/// # Errors
/// [`BadSound`] for padding in the middle of the track.
pub(crate) fn end_padding(file: &[u8], track_number: u32, sample_rate: u32) -> Result<u64, BadSound> {
    let is_of_track = |block: &[u8]| vint(block).is_some_and(|(number, _)| number == u64::from(track_number));
    let (mut padding, mut rest) = (0, file);
    while let Some((id, size, content)) = element(rest) {
        if matches!(id, SEGMENT | CLUSTER) {
            // Their elements follow; their sizes may be unknown.
            rest = content;
            continue;
        }
        let (body, after) = content.split_at(size.min(content.len()));
        rest = after;
        let (block, told) = match id {
            SIMPLE_BLOCK => (body, 0),
            BLOCK_GROUP => {
                let block = elements(body).find(|(id, _)| *id == BLOCK).map_or(&[][..], |(_, block)| block);
                let told = elements(body).find(|(id, _)| *id == DISCARD_PADDING).map_or(&[][..], |(_, told)| told);
                // Negative numbers stand for padding at the beginning of the block, which nobody uses.
                let is_negative = told.first().is_some_and(|first| *first >= 0x80);
                (block, if is_negative { 0 } else { unsigned(told) })
            }
            _ => continue,
        };
        if is_of_track(block) {
            if padding > 0 {
                return Err(BadSound::new("the Matroska file has padding in the middle, which is not supported"));
            }
            padding = told;
        }
    }
    Ok(to_samples(padding, sample_rate))
}

fn to_samples(nanoseconds: u64, sample_rate: u32) -> u64 {
    let samples = (u128::from(nanoseconds) * u128::from(sample_rate) + 500_000_000) / 1_000_000_000;
    u64::try_from(samples).unwrap_or(u64::MAX)
}

fn nanoseconds(file: &[u8], track_number: u32) -> u64 {
    let segment = elements(file).find(|(id, _)| *id == SEGMENT).map_or(&[][..], |(_, body)| body);
    let before_sound = elements(segment).take_while(|(id, _)| *id != CLUSTER);
    let mut tracks = before_sound.filter(|(id, _)| *id == TRACKS).flat_map(|(_, body)| elements(body));
    let track = tracks.find(|(id, entry)| *id == TRACK_ENTRY && number(entry, TRACK_NUMBER) == u64::from(track_number));
    track.map_or(0, |(_, entry)| number(entry, CODEC_DELAY))
}

/// Returns an unsigned number among the elements of a track.
fn number(entry: &[u8], wanted: u32) -> u64 {
    elements(entry).find(|(id, _)| *id == wanted).map_or(0, |(_, body)| unsigned(body))
}

/// Returns an unsigned number; zero for one of more than eight bytes.
fn unsigned(body: &[u8]) -> u64 {
    let body = if body.len() <= 8 { body } else { &[] };
    body.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Iterates over the IDs and bodies of elements (RFC 8794, section 4). The last body may be cut off.
fn elements(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (id, size, content) = element(rest)?;
        let (body, after) = content.split_at(size.min(content.len()));
        rest = after;
        Some((id, body))
    })
}

/// Returns the ID and the size of the element with which bytes begin, and the bytes after both. An unknown size is the
/// largest number.
fn element(bytes: &[u8]) -> Option<(u32, usize, &[u8])> {
    let id_bytes = usize::try_from(bytes.first()?.leading_zeros()).ok()? + 1;
    let id = bytes.get(..id_bytes.min(4))?.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
    let (size, content) = vint(bytes.get(id_bytes..)?)?;
    Some((id, usize::try_from(size).unwrap_or(usize::MAX), content))
}

/// Returns the number of variable length with which bytes begin, and the bytes after it.
fn vint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let num_bytes = usize::try_from(bytes.first()?.leading_zeros()).ok()? + 1;
    let field = bytes.get(..num_bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let mask = 1u64.checked_shl(u32::try_from(7 * num_bytes).ok()?)?.wrapping_sub(1);
    // All ones mean that a size is unknown.
    let number = if field & mask == mask { u64::MAX } else { field & mask };
    Some((number, bytes.get(num_bytes..)?))
}
