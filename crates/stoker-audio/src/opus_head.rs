//! The identification header of Opus (RFC 7845, section 5.1), and the lengths of packets (RFC 6716, section 3).

use stoker_libav::SOUND_CHANNELS_MAX;

use crate::BadSound;

/// The rate of all Opus, in Hz: decoders give 48 kHz, whatever the rate before encoding was.
pub(crate) const OPUS_RATE: u32 = 48_000;

/// With which the header begins.
pub(crate) const MAGIC: &[u8; 8] = b"OpusHead";

/// The most samples of a packet: 120 ms.
const PACKET_SAMPLES_MAX: u64 = 5_760;

/// The order of bytes in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    /// That of Ogg and Matroska.
    Little,
    /// That of MP4 (`dOps`).
    Big,
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpusHead {
    pub num_channels: u16,
    /// The samples at the beginning that are not part of the sound.
    pub pre_skip: u16,
    /// Decibels in steps of 1/256, which the decoder applies.
    gain: i16,
    /// The family, and for other families than 0 the numbers of streams and what each channel has of them.
    mapping: Vec<u8>,
}

impl OpusHead {
    /// Parses a header.
    ///
    /// # Errors
    /// [`BadSound`] for damaged headers, and for layouts of channels that are not supported.
    pub fn parse(header: &[u8], order: ByteOrder) -> Result<Self, BadSound> {
        let damaged = |reason: &str| BadSound::new(format!("the header of the Opus stream is damaged: {reason}"));
        let fields = header.strip_prefix(MAGIC).and_then(|fields| fields.split_first_chunk::<10>());
        let (&[version, num_channels, p0, p1, _, _, _, _, g0, g1], rest) =
            fields.ok_or_else(|| damaged("it is too short"))?;
        if version >> 4 != 0 {
            let reason = format!("the file has Opus of the version {version}, which is not supported");
            return Err(BadSound::new(reason));
        }
        let (pre_skip, gain) = match order {
            ByteOrder::Little => (u16::from_le_bytes([p0, p1]), i16::from_le_bytes([g0, g1])),
            ByteOrder::Big => (u16::from_be_bytes([p0, p1]), i16::from_be_bytes([g0, g1])),
        };
        let channels = usize::from(num_channels);
        let mapping = match rest {
            [] => return Err(damaged("it is too short")),
            [0, ..] if (1..=2).contains(&channels) => vec![0],
            [0, ..] => return Err(damaged(&format!("it tells {channels} channels, not 1 or 2"))),
            [1, num_streams, num_coupled, after @ ..] if (1..=SOUND_CHANNELS_MAX).contains(&channels) => {
                let sources = after.get(..channels).ok_or_else(|| damaged("it is too short"))?;
                let num_sources = usize::from(*num_streams) + usize::from(*num_coupled);
                let is_known = |source: &u8| *source == 255 || usize::from(*source) < num_sources;
                if *num_streams == 0 || num_coupled > num_streams || !sources.iter().all(is_known) {
                    return Err(damaged("its channels are those of no stream"));
                }
                [&[1, *num_streams, *num_coupled], sources].concat()
            }
            [1] | [1, _] => return Err(damaged("it is too short")),
            [1, ..] => return Err(damaged(&format!("it tells {channels} channels, not 1 to {SOUND_CHANNELS_MAX}"))),
            [family, ..] => {
                let reason = format!(
                    "the file has Opus of {channels} channels of the mapping family {family}; only 0 and 1 are supported"
                );
                return Err(BadSound::new(reason));
            }
        };
        Ok(Self { num_channels: num_channels.into(), pre_skip, gain, mapping })
    }

    /// Returns the header for a decoder that keeps the samples at the beginning: their number is zero.
    pub fn without_skip(&self) -> Vec<u8> {
        let num_channels = u8::try_from(self.num_channels).unwrap_or(u8::MAX);
        let fields = [&[1, num_channels, 0, 0][..], &OPUS_RATE.to_le_bytes(), &self.gain.to_le_bytes()].concat();
        [MAGIC, &fields[..], &self.mapping].concat()
    }
}

/// Returns the number of samples of each channel in a packet.
///
/// # Errors
/// [`BadSound`] for damaged packets.
pub(crate) fn packet_samples(packet: &[u8]) -> Result<u64, BadSound> {
    let config = packet.first().map(|first| first >> 3);
    let frame = match config {
        Some(config @ ..12) => [480, 960, 1_920, 2_880].get(usize::from(config & 3)),
        Some(config @ 12..16) => [480, 960].get(usize::from(config & 1)),
        Some(config) => [120, 240, 480, 960].get(usize::from(config & 3)),
        None => None,
    };
    let num_frames = match packet {
        [first, ..] if first & 3 == 0 => 1,
        [first, ..] if first & 3 < 3 => 2,
        [_, second, ..] => u64::from(second & 0x3F),
        _ => 0,
    };
    let num_samples = frame.copied().unwrap_or(0) * num_frames;
    match num_samples {
        1..=PACKET_SAMPLES_MAX => Ok(num_samples),
        _ => Err(BadSound::new(format!("an Opus packet of {} bytes is damaged", packet.len()))),
    }
}
