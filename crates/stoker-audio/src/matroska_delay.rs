//! The delay of an encoder in Matroska files (RFC 9559, section 5.1.4.1.27: `CodecDelay`).
//!
//! Symphonia subtracts the delay from timestamps, which have a resolution of a millisecond. The delay itself is in
//! nanoseconds, which tells the exact number of samples.

const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1F43_B675;
const TRACKS: u32 = 0x1654_AE6B;
const TRACK_ENTRY: u32 = 0xAE;
const TRACK_NUMBER: u32 = 0xD7;
const CODEC_DELAY: u32 = 0x56AA;

/// Returns the delay of a track in samples; zero if there is none.
pub(crate) fn samples(file: &[u8], track_number: u32, sample_rate: u32) -> u64 {
    let nanoseconds = u128::from(nanoseconds(file, track_number));
    let samples = (nanoseconds * u128::from(sample_rate) + 500_000_000) / 1_000_000_000;
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
    let found = elements(entry).find(|(id, body)| *id == wanted && body.len() <= 8);
    found.map_or(0, |(_, body)| body.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Iterates over the IDs and bodies of elements (RFC 8794, section 4). The last body may be cut off.
fn elements(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let id_bytes = usize::try_from(rest.first()?.leading_zeros()).ok()? + 1;
        let id = rest.get(..id_bytes.min(4))?.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
        let after_id = rest.get(id_bytes..)?;
        let size_bytes = usize::try_from(after_id.first()?.leading_zeros()).ok()? + 1;
        let field = after_id.get(..size_bytes)?.iter().fold(0, |size, byte| size << 8 | u64::from(*byte));
        let mask = 1u64.checked_shl(u32::try_from(7 * size_bytes).ok()?)?.wrapping_sub(1);
        // All ones mean that the size is unknown.
        let size = if field & mask == mask { u64::MAX } else { field & mask };
        let body = after_id.get(size_bytes..)?;
        let (body, after) = body.split_at(usize::try_from(size).unwrap_or(usize::MAX).min(body.len()));
        rest = after;
        Some((id, body))
    })
}
