//! Looks into packets of H.264 (ITU-T H.264, 7.3.1; ISO/IEC 14496-15, 5.3).

/// The type of units that hold a picture which refreshes the decoder: nothing after it depends on anything before it.
const REFRESH: u8 = 5;

/// Returns whether a packet holds a picture that refreshes the decoder. Other key frames begin an open group of pictures.
/// `extradata` is the content of avcC, which tells how many bytes the length before each unit has.
pub(crate) fn is_refresh(extradata: &[u8], packet: &[u8]) -> bool {
    let [1, _, _, _, lengths, ..] = extradata else { return false };
    let length_bytes = usize::from(lengths & 3) + 1;
    let mut rest = packet;
    while let Some((length, units)) = rest.split_at_checked(length_bytes) {
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if units.first().is_some_and(|header| header & 0x1F == REFRESH) {
            return true;
        }
        rest = units.get(length..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
    }
    false
}
