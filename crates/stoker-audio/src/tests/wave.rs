//! WAV files of all encodings, which the tests write.

use super::{clip, decode, reason, whole};
use crate::{header, is_sound};

/// A file to write.
pub struct Wave {
    pub tag: u16,
    pub bits: u16,
    pub channels: u16,
    pub sample_rate: u32,
    /// The chunks between `fmt ` and `data`, with their headers.
    pub between: Vec<u8>,
    /// The size in the header of the data, if it is not the true one.
    pub claimed_bytes: Option<u32>,
    pub data: Vec<u8>,
}

impl Wave {
    pub fn new(tag: u16, bits: u16, channels: u16, sample_rate: u32, data: Vec<u8>) -> Self {
        Self { tag, bits, channels, sample_rate, between: Vec::new(), claimed_bytes: None, data }
    }

    fn format(&self) -> Vec<u8> {
        let align = self.channels * self.bits.div_ceil(8);
        let mut chunk = Vec::new();
        chunk.extend(self.tag.to_le_bytes());
        chunk.extend(self.channels.to_le_bytes());
        chunk.extend(self.sample_rate.to_le_bytes());
        chunk.extend((u64::from(self.sample_rate) * u64::from(align)).to_le_bytes()[..4].iter());
        chunk.extend(align.to_le_bytes());
        chunk.extend(self.bits.to_le_bytes());
        chunk
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WAVE".to_vec();
        chunk(&mut file, b"fmt ", &self.format());
        file.extend(&self.between);
        let size = self.claimed_bytes.unwrap_or(self.data.len() as u32);
        file.extend(b"data");
        file.extend(size.to_le_bytes());
        file.extend(&self.data);
        let size = (file.len() - 8) as u32;
        file[4..8].copy_from_slice(&size.to_le_bytes());
        file
    }
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], body: &[u8]) {
    file.extend(name);
    file.extend((body.len() as u32).to_le_bytes());
    file.extend(body);
    file.resize(file.len().next_multiple_of(2), 0);
}

/// A file of 16-bit samples, which are given frame by frame.
pub fn wave16(sample_rate: u32, channels: u16, samples: &[i16]) -> Vec<u8> {
    let data = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Wave::new(1, 16, channels, sample_rate, data).bytes()
}

/// A file of float samples, which are given frame by frame.
pub fn wave32f(sample_rate: u32, channels: u16, samples: &[f32]) -> Vec<u8> {
    let data = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Wave::new(3, 32, channels, sample_rate, data).bytes()
}

fn check(tag: u16, bits: u16, data: &[u8], expected: &[f32]) {
    let file = Wave::new(tag, bits, 1, 8_000, data.to_vec()).bytes();
    assert!(is_sound(&file));
    assert_eq!(whole(&file), [expected], "format {tag} of {bits} bits");
}

#[test]
fn all_encodings_give_exact_samples() {
    check(1, 8, &[0, 128, 129, 255], &[-1.0, 0.0, 1.0 / 128.0, 127.0 / 128.0]);
    check(1, 16, &[0, 0x80, 0, 0, 1, 0, 0xFF, 0x7F], &[-1.0, 0.0, 1.0 / 32_768.0, 32_767.0 / 32_768.0]);
    check(1, 24, &[0, 0, 0x80, 1, 0, 0, 0xFF, 0xFF, 0xFF], &[-1.0, 1.0 / 8_388_608.0, -1.0 / 8_388_608.0]);
    check(1, 20, &[0, 0, 0x40], &[0.5]);
    check(1, 32, &[0, 0, 0, 0x80, 0, 0, 0, 0x40], &[-1.0, 0.5]);
    check(3, 32, &[1.5f32.to_le_bytes(), (-1e-20f32).to_le_bytes()].concat(), &[1.5, -1e-20]);
    check(3, 64, &[0.1f64.to_le_bytes(), (-2.0f64).to_le_bytes()].concat(), &[0.1, -2.0]);
    // Extreme and smallest values of ITU-T G.711.
    let law = |value: i16| f32::from(value) / 32_768.0;
    check(6, 8, &[0xAA, 0x2A, 0xD5, 0x55], &[law(32_256), law(-32_256), law(8), law(-8)]);
    check(7, 8, &[0x80, 0x00, 0xFF, 0x7F, 0xFE], &[law(32_124), law(-32_124), 0.0, 0.0, law(8)]);
}

#[test]
fn headers_of_all_kinds_are_read() {
    let data = [100i16, -100, 200, -200].map(i16::to_le_bytes).concat();
    let expected = [100.0, -100.0, 200.0, -200.0].map(|value: f32| value / 32_768.0);
    let plain = Wave::new(1, 16, 1, 8_000, data.clone());
    let found = header(&plain.bytes()).expect("a sound");
    assert_eq!((found.sample_rate, found.channels, found.num_frames), (8_000, 1, Some(4)));
    assert_eq!(found.codec, "pcm_s16le");

    // Other chunks, also of odd length, are skipped.
    let mut between = Vec::new();
    chunk(&mut between, b"LIST", b"odd");
    chunk(&mut between, b"fact", &4u32.to_le_bytes());
    assert_eq!(whole(&Wave { between, ..Wave::new(1, 16, 1, 8_000, data.clone()) }.bytes()), [expected]);

    // An extensible format, with the GUID of PCM.
    let mut file = b"RIFF\xFF\xFF\xFF\xFFWAVE".to_vec();
    let mut format = plain.format();
    format[..2].copy_from_slice(&0xFFFEu16.to_le_bytes());
    format.extend([22, 0, 16, 0, 4, 0, 0, 0]);
    format.extend(b"\x01\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71");
    chunk(&mut file, b"fmt ", &format);
    chunk(&mut file, b"data", &data);
    assert_eq!(whole(&file), [expected]);

    // RF64, whose sizes are in another chunk.
    let mut file = b"RF64\xFF\xFF\xFF\xFFWAVE".to_vec();
    let sizes = [1_000u64, data.len() as u64, 4].map(u64::to_le_bytes).concat();
    chunk(&mut file, b"ds64", &[&sizes[..], &[0; 4]].concat());
    chunk(&mut file, b"fmt ", &plain.format());
    chunk(&mut file, b"data", &data);
    let size_offset = file.len() - data.len() - 4;
    file[size_offset..size_offset + 4].fill(0xFF);
    chunk(&mut file, b"junk", &[7; 16]);
    assert!(is_sound(&file));
    assert_eq!(whole(&file), [expected]);
}

#[test]
fn data_may_end_early() {
    let samples: Vec<i16> = (0..1_000).collect();
    let file = wave16(8_000, 2, &samples);
    let full = whole(&file);
    // The last frame is incomplete.
    let cut = whole(&file[..file.len() - 399]);
    assert_eq!((cut[0].len(), full[0].len()), (400, 500));
    assert_eq!((&cut[0][..], &cut[1][..]), (&full[0][..400], &full[1][..400]));
    // Programs that write to a pipe do not know the size.
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let piped = Wave { claimed_bytes: Some(u32::MAX), ..Wave::new(1, 16, 2, 8_000, data) };
    assert_eq!(whole(&piped.bytes()), full);
}

#[test]
fn channels_are_mixed_and_repeated() {
    let file = wave16(8_000, 3, &[3, 6, 30, -3, -6, -30]);
    let (_, mean) = decode(&file, &clip(8_000, 1, 0, 2)).expect("a sound");
    assert_eq!(mean, [13.0 / 32_768.0, -13.0 / 32_768.0]);
    let (_, all) = decode(&file, &clip(8_000, 3, 0, 2)).expect("a sound");
    assert_eq!(all, [3.0, -3.0, 6.0, -6.0, 30.0, -30.0].map(|value: f32| value / 32_768.0));
    let error = decode(&file, &clip(8_000, 2, 0, 2)).expect_err("three channels are not two");
    assert_eq!(error.to_string(), "it has 3 channels, and the clip 2");

    let mono = wave16(8_000, 1, &[5, 6, 7]);
    let (valid, repeated) = decode(&mono, &clip(8_000, 2, 1, 4)).expect("a sound");
    let expected = [6.0, 7.0, 0.0, 0.0, 6.0, 7.0, 0.0, 0.0].map(|value: f32| value / 32_768.0);
    assert_eq!((valid, &repeated[..]), (2, &expected[..]));
}

#[test]
fn damaged_headers_are_refused() {
    let data = vec![0; 64];
    let with = |tag, bits, channels, rate| reason(&Wave::new(tag, bits, channels, rate, data.clone()).bytes());
    assert_eq!(with(1, 16, 0, 8_000), "the header of the WAV file says that it has 0 channels");
    assert_eq!(with(1, 16, 1, 0), "its header tells a sample rate of 0 Hz, not 1 to 768000");
    assert_eq!(with(1, 16, 1, 1 << 31), "its header tells a sample rate of 2147483648 Hz, not 1 to 768000");
    assert_eq!(with(2, 4, 1, 8_000), "the WAV file has ADPCM, which is not supported");
    assert_eq!(with(1, 64, 1, 8_000), "the WAV file has samples of format 0x1 in 8 bytes, which is not supported");
    assert_eq!(with(0x55, 0, 1, 8_000), "the WAV file has samples of format 0x55 in 0 bytes, which is not supported");
    assert_eq!(reason(&wave16(8_000, 1, &[])), "the sound has no samples");
    let file = wave16(8_000, 1, &[1]);
    assert_eq!(reason(&file[..30]), "the fmt chunk of the WAV file is too short");
    assert_eq!(reason(&file[..36]), "the WAV file has no data chunk");
    assert_eq!(reason(&[&file[..12], &file[36..]].concat()), "the WAV file has no fmt chunk");
}
