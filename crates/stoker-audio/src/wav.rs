//! WAV files with uncompressed samples: RIFF and RF64 of the form WAVE (EBU Tech 3306; Microsoft's `WAVEFORMATEX` and
//! `WAVEFORMATEXTENSIBLE`).

use std::ops::Range;

use crate::BadSound;
use crate::planes::Planes;

/// The end of the GUIDs of `WAVEFORMATEXTENSIBLE` whose first two bytes are a format tag.
const GUID_TAIL: [u8; 14] = [0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80, 0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71];

/// How one sample is stored, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Unsigned.
    U8,
    S16,
    S24,
    S32,
    F32,
    F64,
    ALaw,
    MuLaw,
}

impl Encoding {
    fn bytes(self) -> usize {
        match self {
            Encoding::U8 | Encoding::ALaw | Encoding::MuLaw => 1,
            Encoding::S16 => 2,
            Encoding::S24 => 3,
            Encoding::S32 | Encoding::F32 => 4,
            Encoding::F64 => 8,
        }
    }

    /// The name of the codec.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::U8 => "pcm_u8",
            Encoding::S16 => "pcm_s16le",
            Encoding::S24 => "pcm_s24le",
            Encoding::S32 => "pcm_s32le",
            Encoding::F32 => "pcm_f32le",
            Encoding::F64 => "pcm_f64le",
            Encoding::ALaw => "pcm_alaw",
            Encoding::MuLaw => "pcm_mulaw",
        }
    }
}

/// A WAV file whose chunks were read. Samples are converted directly from the file.
#[derive(Debug)]
pub(crate) struct Wav<'a> {
    pub sample_rate: u32,
    pub num_channels: u16,
    pub encoding: Encoding,
    data: &'a [u8],
}

impl<'a> Wav<'a> {
    /// Reads the chunks of a file. The data may end before the size that the header tells, as in libsndfile and FFmpeg: the
    /// file then has fewer samples. Incomplete samples at the end are left out.
    ///
    /// # Errors
    /// [`BadSound`] for damaged headers.
    pub fn open(file: &'a [u8]) -> Result<Self, BadSound> {
        let mut rest = file.get(12..).unwrap_or_default();
        let (mut format, mut data_bytes_64) = (None, None);
        while let Some((header, body)) = rest.split_first_chunk::<8>() {
            let [name @ .., s0, s1, s2, s3] = *header;
            let size = u32::from_le_bytes([s0, s1, s2, s3]);
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            match &name {
                b"data" => {
                    let format: Format = format.ok_or_else(|| BadSound::new("the WAV file has no fmt chunk"))?;
                    // The size is unknown in files that were written to a pipe, and in the ds64 chunk in RF64.
                    let bytes = if size == u32::MAX { data_bytes_64.unwrap_or(usize::MAX) } else { bytes };
                    return format.wav(body.get(..bytes.min(body.len())).unwrap_or_default());
                }
                b"fmt " => format = Some(Format::read(body.get(..bytes.min(body.len())).unwrap_or_default())?),
                b"ds64" => {
                    let size = body.get(8..).and_then(|body| body.first_chunk::<8>());
                    data_bytes_64 = size.map(|size| usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX));
                }
                _ => {}
            }
            rest = body.get(bytes.saturating_add(bytes & 1)..).unwrap_or_default();
        }
        Err(BadSound::new("the WAV file has no data chunk"))
    }

    fn frame_bytes(&self) -> usize {
        usize::from(self.num_channels) * self.encoding.bytes()
    }

    /// The number of samples of each channel.
    pub fn num_samples(&self) -> u64 {
        (self.data.len() / self.frame_bytes()) as u64
    }

    /// Converts a range of samples into `planes`. Returns the position after the last one.
    pub fn read(&self, range: Range<u64>, planes: &mut Planes) -> u64 {
        let end = range.end.min(self.num_samples());
        let offset = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).saturating_mul(self.frame_bytes());
        let data = self.data.get(offset(range.start)..offset(end)).unwrap_or_default();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "samples become float32")]
        match self.encoding {
            Encoding::U8 => self.convert(data, planes, |[byte]| (f32::from(byte) - 128.0) / 128.0),
            Encoding::S16 => self.convert(data, planes, |bytes| f32::from(i16::from_le_bytes(bytes)) / 32_768.0),
            Encoding::S24 => {
                self.convert(data, planes, |[a, b, c]| (i32::from_le_bytes([0, a, b, c]) >> 8) as f32 / 8_388_608.0)
            }
            Encoding::S32 => {
                self.convert(data, planes, |bytes| i32::from_le_bytes(bytes) as f32 / 2_147_483_648.0);
            }
            Encoding::F32 => self.convert(data, planes, f32::from_le_bytes),
            Encoding::F64 => self.convert(data, planes, |bytes| f64::from_le_bytes(bytes) as f32),
            Encoding::ALaw => self.convert(data, planes, |[byte]| f32::from(from_a_law(byte)) / 32_768.0),
            Encoding::MuLaw => self.convert(data, planes, |[byte]| f32::from(from_mu_law(byte)) / 32_768.0),
        }
        end
    }

    fn convert<const N: usize>(&self, data: &[u8], planes: &mut Planes, value: impl Fn([u8; N]) -> f32) {
        let (samples, _) = data.as_chunks::<N>();
        let num_channels = usize::from(self.num_channels);
        for channel in 0..num_channels {
            let samples = samples.get(channel..).unwrap_or_default();
            match num_channels {
                1 => planes.put(channel, 0, samples.iter().map(|bytes| value(*bytes))),
                _ => planes.put(channel, 0, samples.iter().step_by(num_channels).map(|bytes| value(*bytes))),
            }
        }
    }
}

/// Expands a sample of A-law (ITU-T G.711, table 1) to 16 bits. Every second bit of the byte is inverted.
fn from_a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let (exponent, mantissa) = (byte >> 4 & 7, i16::from(byte & 15) << 4);
    let magnitude = if exponent == 0 { mantissa + 0x8 } else { (mantissa + 0x108) << (exponent - 1) };
    if byte & 0x80 != 0 { magnitude } else { -magnitude }
}

/// Expands a sample of µ-law (ITU-T G.711, table 2) to 16 bits. All bits of the byte are inverted.
fn from_mu_law(byte: u8) -> i16 {
    const BIAS: i16 = 0x84;
    let byte = !byte;
    let magnitude = (((i16::from(byte & 15) << 3) + BIAS) << (byte >> 4 & 7)) - BIAS;
    if byte & 0x80 != 0 { -magnitude } else { magnitude }
}

/// A `fmt ` chunk.
#[derive(Clone, Copy)]
struct Format {
    tag: u16,
    num_channels: u16,
    sample_rate: u32,
    sample_bytes: usize,
}

impl Format {
    fn read(chunk: &[u8]) -> Result<Self, BadSound> {
        let Some(&[t0, t1, c0, c1, r0, r1, r2, r3, _, _, _, _, a0, a1, b0, b1]) = chunk.first_chunk::<16>() else {
            return Err(BadSound::new("the fmt chunk of the WAV file is too short"));
        };
        let mut tag = u16::from_le_bytes([t0, t1]);
        if tag == 0xFFFE {
            let guid = chunk.get(24..40).and_then(|guid| guid.split_first_chunk::<2>());
            tag = match guid {
                Some((tag, tail)) if tail == GUID_TAIL => u16::from_le_bytes(*tag),
                _ => return Err(BadSound::new("the WAV file has an extensible format that is not supported")),
            };
        }
        let num_channels = u16::from_le_bytes([c0, c1]);
        if num_channels == 0 {
            return Err(BadSound::new("the header of the WAV file says that it has 0 channels"));
        }
        let bits = usize::from(u16::from_le_bytes([b0, b1]));
        let align = usize::from(u16::from_le_bytes([a0, a1]));
        let channels = usize::from(num_channels);
        // Samples with few bits may be stored in more bytes.
        let sample_bytes = if align.is_multiple_of(channels) { align / channels } else { 0 };
        let sample_bytes = if sample_bytes * 8 >= bits && sample_bytes > 0 { sample_bytes } else { bits.div_ceil(8) };
        Ok(Self { tag, num_channels, sample_rate: u32::from_le_bytes([r0, r1, r2, r3]), sample_bytes })
    }

    fn wav(self, data: &[u8]) -> Result<Wav<'_>, BadSound> {
        let Self { tag, num_channels, sample_rate, sample_bytes } = self;
        let encoding = match (tag, sample_bytes) {
            (1, 1) => Encoding::U8,
            (1, 2) => Encoding::S16,
            (1, 3) => Encoding::S24,
            (1, 4) => Encoding::S32,
            (3, 4) => Encoding::F32,
            (3, 8) => Encoding::F64,
            (6, 1) => Encoding::ALaw,
            (7, 1) => Encoding::MuLaw,
            (2 | 0x11, _) => return Err(BadSound::new("the WAV file has ADPCM, which is not supported")),
            _ => {
                let reason = format!("the WAV file has samples of format {tag:#x} in {sample_bytes} bytes");
                return Err(BadSound::new(format!("{reason}, which is not supported")));
            }
        };
        Ok(Wav { sample_rate, num_channels, encoding, data })
    }
}
