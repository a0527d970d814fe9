//! Damaged files.

use super::files::{AAC_M4A, ALL, FLAC_MKA, JOINT_MP3, LAME_MP3, S16_FLAC, VORBIS_OGG};
use super::{clip, decode, reason, whole};
use crate::header;

#[test]
fn cut_files_give_the_samples_before_the_cut_or_an_error() {
    for file in ALL {
        let full = whole(file);
        let found = header(file).expect("a sound");
        for length in (0..file.len()).step_by(7) {
            let wanted = clip(found.sample_rate, found.channels, 0, 20_000);
            let Ok((valid, decoded)) = decode(&file[..length], &wanted) else { continue };
            for (channel, decoded) in full.iter().zip(decoded.chunks(20_000)) {
                // Without the end of the file, its padding is not known.
                let same = valid.min(channel.len());
                assert!(valid < channel.len() + 1_200, "{} of {length} bytes", found.codec);
                assert_eq!(decoded[..same], channel[..same], "{} of {length} bytes", found.codec);
            }
        }
    }
}

#[test]
fn damage_is_an_error_only_inside_the_clip() {
    let check = |file: &[u8], at: usize, expected: &str| {
        let mut damaged = file.to_vec();
        damaged[at] ^= 0x10;
        let found = header(file).expect("a sound");
        let (rate, channels, full) = (found.sample_rate, found.channels, whole(file));
        let length = full[0].len() as u64;
        let error = decode(&damaged, &clip(rate, channels, 0, length)).expect_err("damage").to_string();
        assert_eq!(error, expected);
        for start in [0, length * 7 / 8] {
            let (valid, samples) = decode(&damaged, &clip(rate, channels, start, length / 8)).expect("a good part");
            let (start, samples) = (start as usize, &samples[..valid]);
            assert_eq!(*samples, full[0][start..start + valid]);
        }
    };
    // The frame at sample 1,536, and the page in the middle.
    check(S16_FLAC, S16_FLAC.len() / 2, "samples 1536 to 2048 are missing or damaged");
    check(VORBIS_OGG, 4_300, "page 5 of the Ogg file is damaged");
}

#[test]
fn headers_that_lie_are_no_danger() {
    // FLAC: the header tells 2^36 - 1 samples.
    let mut file = S16_FLAC.to_vec();
    file[21] |= 0x0F;
    file[22..26].fill(0xFF);
    assert_eq!(header(&file).map(|header| header.num_frames), Ok(Some((1 << 36) - 1)));
    assert_eq!(decode(&file, &clip(8_000, 2, 100, 3_000)).map(|(valid, _)| valid), Ok(3_000));
    let error = decode(&file, &clip(8_000, 2, 100, 4_000)).expect_err("it ends before").to_string();
    assert_eq!(error, "the file ends early");
    assert!(decode(&file, &clip(8_000, 2, 8_000 * 3_600, 100)).is_err());
    // FLAC: the rate is zero.
    let mut file = S16_FLAC.to_vec();
    file[18..20].fill(0);
    file[20] &= 0x0F;
    assert!(decode(&file, &clip(8_000, 2, 0, 100)).is_err());
    // Ogg: the last page tells a later end.
    let mut file = VORBIS_OGG.to_vec();
    let page = (0..file.len()).rev().find(|offset| file[*offset..].starts_with(b"OggS")).expect("pages");
    file[page + 6..page + 13].fill(0xFF);
    assert!(decode(&file, &clip(16_000, 2, 0, 20_000)).is_err());
}

#[test]
fn a_change_of_the_format_is_an_error() {
    // The second file begins with an ID3 tag.
    assert!(JOINT_MP3.starts_with(b"ID3"));
    let other_rate = [LAME_MP3, JOINT_MP3].concat();
    assert_eq!(reason(&other_rate), "the sample rate changes from 16000 to 44100 Hz");
    let mut stereo = LAME_MP3.to_vec();
    let frames: Vec<usize> = (0..stereo.len()).filter(|offset| stereo[*offset..].starts_with(&LAME_MP3[..2])).collect();
    for offset in &frames[4..] {
        stereo[offset + 3] &= 0x3F;
    }
    assert_eq!(reason(&stereo), "the number of channels changes from 1 to 2");
    let chained = [VORBIS_OGG, VORBIS_OGG].concat();
    assert_eq!(reason(&chained), "the Ogg file has several streams one after the other");
}

#[test]
fn missing_ogg_pages_are_noticed() {
    let mut pages: Vec<usize> = (0..VORBIS_OGG.len()).filter(|at| VORBIS_OGG[*at..].starts_with(b"OggS")).collect();
    pages.push(VORBIS_OGG.len());
    assert!(pages.len() > 7, "{pages:?}");
    let without: Vec<u8> = [&VORBIS_OGG[..pages[4]], &VORBIS_OGG[pages[5]..]].concat();
    let error = decode(&without, &clip(16_000, 2, 0, 6_400)).expect_err("a gap").to_string();
    assert_eq!(error, "pages before page 5 of the Ogg file are missing");
}

#[test]
fn files_without_sound_are_refused() {
    assert!(decode(&AAC_M4A[..24], &clip(8_000, 1, 0, 10)).is_err());
    assert!(decode(&FLAC_MKA[..40], &clip(8_000, 1, 0, 10)).is_err());
    assert_eq!(reason(b"ID3\x04\0\0\0\0\0\0"), "the MP3 file has no frames");
    assert_eq!(reason(&VORBIS_OGG[..60]), "the Ogg file ends before the headers of its Vorbis stream do");
    assert_eq!(reason(b"OggS"), "the Ogg file has no pages");
    assert_eq!(reason(b"fLaC\0\0"), "the metadata of the FLAC file is damaged");
}
