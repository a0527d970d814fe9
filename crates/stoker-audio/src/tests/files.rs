//! Files of other programs. `files/README.md` tells how they were made.

use std::f64::consts::TAU;

use super::{clip, decode, reason, whole};
use crate::{header, is_sound};

pub const S16_FLAC: &[u8] = include_bytes!("files/s16.flac");
pub const S24_FLAC: &[u8] = include_bytes!("files/s24.flac");
pub const VORBIS_OGG: &[u8] = include_bytes!("files/vorbis.ogg");
pub const LAME_MP3: &[u8] = include_bytes!("files/lame.mp3");
pub const JOINT_MP3: &[u8] = include_bytes!("files/joint.mp3");
pub const AAC_M4A: &[u8] = include_bytes!("files/aac.m4a");
pub const ALAC_M4A: &[u8] = include_bytes!("files/alac.m4a");
pub const AAC_MKA: &[u8] = include_bytes!("files/aac.mka");
pub const FLAC_MKA: &[u8] = include_bytes!("files/flac.mka");
pub const OPUS_OGG: &[u8] = include_bytes!("files/opus.ogg");
pub const OPUS_PAGES: &[u8] = include_bytes!("files/pages.opus");
pub const OPUS_WEBM: &[u8] = include_bytes!("files/opus.webm");
pub const OPUS_MP4: &[u8] = include_bytes!("files/opus.mp4");
pub const HE_AAC_M4A: &[u8] = include_bytes!("files/he_aac.m4a");
pub const SURROUND_M4A: &[u8] = include_bytes!("files/surround.m4a");
pub const SURROUND_MKA: &[u8] = include_bytes!("files/surround.mka");
pub const SURROUND_OGG: &[u8] = include_bytes!("files/surround.ogg");

/// All files that can be decoded without libavcodec.
pub const ALL: [&[u8]; 9] = [S16_FLAC, S24_FLAC, VORBIS_OGG, LAME_MP3, JOINT_MP3, AAC_M4A, ALAC_M4A, AAC_MKA, FLAC_MKA];

/// The sound of all files.
pub fn tones(rate: u32, channels: u16) -> Vec<Vec<f64>> {
    let tone = |frequency: u16, time: f64| (TAU * f64::from(frequency) * time).sin();
    let sample =
        |channel: u16, time: f64| 0.4 * tone(330 + 110 * channel, time) + 0.2 * tone(1250 + 200 * channel, time);
    let times: Vec<f64> = (0..rate * 2 / 5).map(|index| f64::from(index) / f64::from(rate)).collect();
    (0..channels).map(|channel| times.iter().map(|time| sample(channel, *time)).collect()).collect()
}

/// The limit of the mean error of lossy files. Samples that are one place off have a larger error.
pub const LOSSY: f64 = 0.016;

/// Checks a file's header and samples: the largest error, or the mean error of lossy files.
fn check(file: &[u8], codec: &str, rate: u32, channels: u16, error_max: f64, num_frames: Option<u64>) {
    let found = header(file).expect("a sound");
    assert!(is_sound(file));
    assert_eq!((found.codec.as_str(), found.sample_rate, found.channels), (codec, rate, channels));
    assert_eq!(found.num_frames, num_frames, "{codec}");
    let (decoded, expected) = (whole(file), tones(rate, channels));
    assert_eq!(decoded.len(), expected.len());
    for (decoded, expected) in decoded.iter().zip(&expected) {
        // The padding at the end of Matroska files is kept.
        let frames =
            num_frames.map_or(decoded.len().clamp(expected.len(), expected.len() + 1023) as u64, |frames| frames);
        assert_eq!(decoded.len() as u64, frames, "{codec}");
        let length = decoded.len().min(expected.len());
        let errors = (0..length).map(|index| (f64::from(decoded[index]) - expected[index]).abs());
        let error = if error_max < LOSSY { errors.fold(0.0, f64::max) } else { errors.sum::<f64>() / length as f64 };
        assert!(error <= error_max, "{codec} at {rate} Hz: error {error}");
    }
}

#[test]
fn lossless_files_have_the_encoded_samples() {
    check(S16_FLAC, "flac", 8_000, 2, 1e-4, Some(3_200));
    check(S24_FLAC, "flac", 8_000, 1, 1e-6, Some(3_200));
    check(ALAC_M4A, "alac", 8_000, 1, 1e-4, Some(3_200));
    check(FLAC_MKA, "flac", 8_000, 1, 1e-4, None);
}

#[test]
fn lossy_files_have_the_encoded_sound_at_its_place() {
    check(VORBIS_OGG, "vorbis", 16_000, 2, LOSSY, Some(6_144));
    check(LAME_MP3, "mp3", 16_000, 1, LOSSY, Some(6_400));
    check(JOINT_MP3, "mp3", 44_100, 2, LOSSY, Some(17_640));
    check(AAC_M4A, "aac", 16_000, 1, LOSSY, Some(6_400));
    check(AAC_MKA, "aac", 44_100, 1, LOSSY, None);
}

#[test]
fn metadata_before_the_sound_is_skipped() {
    // An ID3 tag of 300 bytes. MP3 files may have zeros after it.
    let tag = [b"ID3\x04\0\0\0\0\x02\x2c".to_vec(), vec![b'x'; 300]].concat();
    assert_eq!(whole(&[&tag, LAME_MP3].concat()), whole(LAME_MP3));
    assert_eq!(whole(&[&tag, &[0; 99][..], LAME_MP3].concat()), whole(LAME_MP3));
    assert_eq!(whole(&[&tag, &tag, S16_FLAC].concat()), whole(S16_FLAC));
    assert!(is_sound(&[&tag, LAME_MP3].concat()));
    // A tag after the sound, as ID3v1 has it.
    assert_eq!(whole(&[LAME_MP3, b"TAG", &[b' '; 125]].concat()), whole(LAME_MP3));
}

#[test]
fn mp3_files_without_a_tag_keep_the_delay_of_the_encoder() {
    // The first frame of this file holds LAME's tag. Frames of MPEG 2 at 16 kHz have 576 samples.
    let second = (1..LAME_MP3.len()).find(|offset| LAME_MP3[*offset..].starts_with(&LAME_MP3[..2])).expect("frames");
    let bare = whole(&LAME_MP3[second..]);
    let (delay, trimmed) = (1105, &whole(LAME_MP3)[0]);
    assert!(bare[0].len().is_multiple_of(576) && bare[0].len() > trimmed.len() + delay);
    assert_eq!(bare[0][delay..delay + trimmed.len()], trimmed[..]);
    // Without its first frame with sound, the stream has a gap, and the rest is at its place.
    let frames = whole(&LAME_MP3[second..])[0].len() / 576;
    assert_eq!(header(LAME_MP3).expect("a sound").num_frames, Some(6_400));
    assert!(frames >= 12);
}

#[test]
fn other_codecs_and_other_files_are_named() {
    let speex = [b"OggS\0\x02", &[0; 20][..], b"\x01\x08Speex   "].concat();
    assert_eq!(reason(&speex), "the Ogg file has Speex, which is not supported");
    assert_eq!(reason(b""), "the file is empty");
    let text = reason(b"hello, world");
    assert_eq!(text, "it is no WAV, FLAC, Ogg, MP3, MP4 or Matroska file: it begins with \"hello, w\"");
    for other in [&b""[..], b"RIFF....AVI ", b"\xff\xd8\xff\xe0 JPEG", b"ID3", b"\0\0\0\x1cftypavif\0\0\0\0", b"fLaX"] {
        assert!(!is_sound(other), "{}", other.escape_ascii());
        assert!(decode(other, &clip(8_000, 1, 0, 10)).is_err());
    }
    // One header of an MPEG frame may be chance.
    assert!(!is_sound(&[0xFF, 0xFB, 0x90, 0x00, 1, 2, 3]));
}
