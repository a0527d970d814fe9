//! AAC and Vorbis that libavcodec decodes; with the feature `libav-tests` also samples, see `opus.rs`.

use super::files::{HE_AAC_M4A, SURROUND_M4A, SURROUND_MKA, SURROUND_OGG};
use super::missing_libav;
use crate::{header, is_sound, vorbis_setup};

/// The files, and what messages call their sound.
pub const KINDS: [(&[u8], &str); 4] = [
    (HE_AAC_M4A, "HE-AAC"),
    (SURROUND_M4A, "AAC of 6 channels"),
    (SURROUND_MKA, "AAC of 6 channels"),
    (SURROUND_OGG, "Vorbis of 6 channels"),
];

#[test]
fn a_missing_library_is_named_and_fatal() {
    for (file, kind) in KINDS {
        assert!(is_sound(file));
        assert_eq!(header(file).expect_err("no library"), missing_libav(file, kind));
    }
}

#[test]
fn headers_of_vorbis_have_lengths() {
    let (ident, setup) = ([1; 30], [5; 3]);
    assert_eq!(vorbis_setup::with_lengths(&ident, &setup), [&[2, 30, 0][..], &ident, &setup].concat());
    let long = [1; 300];
    assert_eq!(vorbis_setup::with_lengths(&long, &setup), [&[2, 255, 45, 0][..], &long, &setup].concat());
}

#[cfg(feature = "libav-tests")]
mod samples {
    use super::super::files::{AAC_M4A, tones};
    use super::super::opus::samples::decoded;
    use super::super::{clip, decode};
    use super::*;

    /// The limit of the mean error. FFmpeg's encoder has one of 0.033 in a channel at the back.
    const MEAN_ERROR_MAX: f64 = 0.04;

    /// The delay of the filters of SBR, in samples of 32 kHz, which FFmpeg leaves in the sound.
    const SBR_DELAY: usize = 962;

    fn mean_error(found: &[f32], expected: &[f64]) -> f64 {
        let errors = found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs());
        errors.sum::<f64>() / found.len().min(expected.len()) as f64
    }

    #[test]
    fn all_channels_have_their_sound() {
        // The files of AAC have the channels in FFmpeg's order, and that of Vorbis in its own. The fourth one is for low
        // frequencies only.
        for (file, order, length) in [
            (SURROUND_M4A, [0, 1, 2, 3, 4, 5], 6_400),
            (SURROUND_MKA, [0, 1, 2, 3, 4, 5], 7_168),
            (SURROUND_OGG, [0, 2, 1, 5, 3, 4], 6_144),
        ] {
            let (valid, samples) = decoded(file, &clip(16_000, 6, 0, 20_000)).expect("a sound");
            assert_eq!(valid, length);
            let expected = tones(16_000, 6);
            for (channel, from) in order.into_iter().enumerate() {
                let found = &samples[channel * 20_000..][..valid.min(6_400)];
                let error = mean_error(found, &expected[from]);
                assert!(error < MEAN_ERROR_MAX || file != SURROUND_OGG && channel == 3, "{channel}: {error}");
            }
        }
    }

    #[test]
    fn high_efficiency_has_twice_the_rate_and_two_channels() {
        let (valid, samples) = decoded(HE_AAC_M4A, &clip(32_000, 2, 0, 20_000)).expect("a sound");
        // The padding at the end is kept where the times of packets do not count samples.
        assert!((12_800..=14_336).contains(&valid), "{valid}");
        let expected = &tones(32_000, 1)[0];
        for channel in samples.chunks(20_000) {
            let error = mean_error(&channel[SBR_DELAY..valid], expected);
            assert!(error < MEAN_ERROR_MAX, "{error}");
        }
        // What symphonia decodes stays with it.
        let (_, own) = decode(AAC_M4A, &clip(16_000, 1, 0, 6_400)).expect("a sound");
        assert_eq!(decoded(AAC_M4A, &clip(16_000, 1, 0, 6_400)).expect("a sound").1, own);
    }

    #[test]
    fn clips_are_slices_of_the_whole() {
        for (file, rate, channels) in
            [(HE_AAC_M4A, 32_000, 2), (SURROUND_M4A, 16_000, 6), (SURROUND_MKA, 16_000, 6), (SURROUND_OGG, 16_000, 6)]
        {
            let (valid, whole) = decoded(file, &clip(rate, channels, 0, 20_000)).expect("a sound");
            for start in [0, 1, 1_023, 2_500, 3_900, valid as u64 - 500] {
                let (found, part) = decoded(file, &clip(rate, channels, start, 500)).expect("a clip");
                assert_eq!(found, 500);
                for (part, whole) in part.chunks(500).zip(whole.chunks(20_000)) {
                    assert!(part == &whole[start as usize..][..500], "{start} of {channels} channels");
                }
            }
            assert!(decoded(file, &clip(rate, channels, valid as u64, 10)).is_err());
        }
    }

    #[test]
    fn other_channels_and_cut_files_are_bad_sounds() {
        let error = decoded(SURROUND_M4A, &clip(16_000, 2, 0, 100)).expect_err("six channels");
        assert_eq!((error.reason.as_str(), error.is_fatal), ("it has 6 channels, and the clip 2", false));
        for (file, _) in KINDS {
            for length in (0..file.len()).step_by(97) {
                if let Err(error) = decoded(&file[..length], &clip(16_000, 1, 0, 20_000)) {
                    assert!(!error.is_fatal, "{error}");
                }
            }
        }
    }
}
