//! Changed files give an error or a sound; they never panic, hang, or take more memory than they may.

use std::cell::RefCell;

use stoker_fuzz::Target;

use super::files::{
    AAC_M4A, AAC_MKA, ALAC_M4A, FLAC_MKA, JOINT_MP3, LAME_MP3, OPUS_MP4, OPUS_OGG, OPUS_PAGES, OPUS_WEBM, S16_FLAC,
    S24_FLAC, VORBIS_OGG,
};
use super::opus::positions;
use super::wave::{wave16, wave32f};
use crate::{AudioClip, Scratch, Start, header, is_sound};

/// The most bytes of samples.
const BYTES_MAX: u64 = 4 << 20;

/// The most bytes that decoding holds beside them: the codebooks of Vorbis, and tables.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Decodes some clips of a file. Returns whether the first one is a sound.
fn decodes(scratch: &mut Scratch, file: &[u8]) -> bool {
    let clip =
        |sample_rate, seconds, start| AudioClip { start, bytes_max: BYTES_MAX, ..AudioClip::new(sample_rate, seconds) };
    let clips = [
        clip(16_000, 0.3, Start::Seconds(0.0)),
        clip(16_000, 0.1, Start::Seconds(0.25)),
        clip(8_000, 0.01, Start::Random),
    ];
    let results = clips.map(|clip| {
        let mut out = vec![0; clip.row_bytes()];
        clip.decode(scratch, file, None, 0.7, &mut out).is_ok()
    });
    assert!(!results[0] || is_sound(file) && header(file).map_or_else(|error| error.is_fatal, |_| true));
    results[0]
}

fn fuzz(name: &str, seeds: &[&[u8]], tokens: &[&[u8]]) {
    fuzz_with(Scratch::default(), name, seeds, tokens);
}

fn fuzz_with(scratch: Scratch, name: &str, seeds: &[&[u8]], tokens: &[&[u8]]) {
    let scratch = RefCell::new(scratch);
    let target = Target::new(name).seeds(seeds.iter().map(|seed| seed.to_vec())).tokens(tokens);
    target.memory_bytes_max(MEMORY_BYTES_MAX).run(|file| decodes(&mut scratch.borrow_mut(), file));
}

#[cfg(feature = "libav-tests")]
#[test]
fn libav() {
    fuzz_with(
        super::opus::samples::scratch(),
        "libav",
        &super::libav::KINDS.map(|(seed, _)| seed),
        &[b"esds", b"OggS"],
    );
}

#[test]
fn wav() {
    let (stereo, float) = (wave16(16_000, 2, &[7; 16_000]), wave32f(8_000, 1, &[0.5; 4_000]));
    let tokens: [&[u8]; 6] = [b"RIFF", b"RF64", b"fmt ", b"data", b"ds64", b"LIST"];
    fuzz("WAV", &[&stereo, &float], &tokens);
}

#[test]
fn flac() {
    fuzz("FLAC", &[S16_FLAC, S24_FLAC], &[b"fLaC", b"ID3\x04", b"\xff\xf8", b"\x84\0\0\x10"]);
}

#[test]
fn mp3() {
    fuzz("MP3", &[LAME_MP3, JOINT_MP3], &[b"ID3\x04", b"\xff\xfb", b"\xff\xf3", b"Xing", b"Info", b"LAME", b"VBRI"]);
}

#[test]
fn ogg() {
    fuzz("Ogg", &[VORBIS_OGG], &[b"OggS", b"\x01vorbis", b"\x05vorbis", b"BCV", b"OpusHead"]);
}

#[test]
fn mp4() {
    let tokens: [&[u8]; 12] =
        [b"moov", b"trak", b"mdia", b"stbl", b"stsz", b"stsc", b"stco", b"stts", b"elst", b"esds", b"alac", b"mdat"];
    fuzz("MP4", &[AAC_M4A, ALAC_M4A], &tokens);
}

#[test]
fn matroska() {
    fuzz("Matroska", &[AAC_MKA, FLAC_MKA], &[b"\x1a\x45\xdf\xa3", b"\x1f\x43\xb6\x75", b"\xa3", b"\xae", b"A_VORBIS"]);
}

/// Reads the packets of Opus, which libavcodec would decode, from two places on.
#[test]
fn opus() {
    let seeds = [OPUS_OGG, OPUS_PAGES, OPUS_WEBM, OPUS_MP4].map(<[u8]>::to_vec);
    let tokens: [&[u8]; 8] =
        [b"OggS", b"OpusHead", b"OpusTags", b"dOps", b"A_OPUS", b"\x75\xa2", b"\x1f\x43\xb6\x75", b"\xa0"];
    Target::new("Opus").seeds(seeds).tokens(tokens).memory_bytes_max(MEMORY_BYTES_MAX).run(|file| {
        let found = [0, 9_600].map(|position| positions(file, position));
        assert!(found.iter().all(Result::is_err) || is_sound(file));
        let has_samples = header(file).is_ok();
        has_samples && found.iter().all(Result::is_ok)
    });
}
