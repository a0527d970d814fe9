//! Opus: headers, packets and positions; with the feature `libav-tests` also samples. Those tests need libavcodec, whose
//! file or folder the variable `STOKER_LIBAV` names:
//!
//! ```text
//! STOKER_LIBAV=…/site-packages/av.libs cargo test -p stoker-audio --features libav-tests
//! ```

use super::files::{OPUS_MP4, OPUS_OGG, OPUS_PAGES, OPUS_WEBM};
use super::missing_libav;
use crate::container::Container;
use crate::ogg_packets::Stream;
use crate::ogg_pages::checksum;
use crate::opus::OpusPackets;
use crate::opus_head::{ByteOrder, OpusHead, packet_samples};
use crate::opus_ogg::OggPackets;
use crate::opus_track::TrackPackets;
use crate::stream::{self, SoundTrack};
use crate::{BadSound, Header, header, is_sound};

/// The samples of the tests' files at 48 kHz.
const NUM_SAMPLES: u64 = 19_200;

fn packets<'a>(file: &'a [u8]) -> Result<Box<dyn OpusPackets + 'a>, BadSound> {
    let container = match Container::detect(file)? {
        Container::Mp4 => stream::Container::Mp4,
        Container::Matroska => stream::Container::Matroska,
        _ => {
            let (stream, headers) = Stream::open(file)?;
            return Ok(Box::new(OggPackets::open(stream, &headers)?.0));
        }
    };
    Ok(Box::new(TrackPackets::open(SoundTrack::open(file, container)?)?.0))
}

/// Returns where the packets begin that are read for a position, and their bytes.
pub fn positions(file: &[u8], position: i64) -> Result<Vec<(i64, Vec<u8>)>, BadSound> {
    let mut packets = packets(file)?;
    let (mut at, mut found) = (packets.seek(position)?, Vec::new());
    assert!(at <= position.max(0), "{at} is after {position}");
    while let Some(packet) = packets.next()? {
        found.push((at, packet.to_vec()));
        at += packet_samples(packet)? as i64;
    }
    Ok(found)
}

/// Writes an Ogg page. Each packet ends on it.
fn page(sequence: u32, flags: u8, granule: i64, packets: &[&[u8]]) -> Vec<u8> {
    let mut segments = Vec::new();
    for packet in packets {
        segments.extend(vec![255; packet.len() / 255]);
        segments.push((packet.len() % 255) as u8);
    }
    let head = [b"OggS\0", &[flags][..], &granule.to_le_bytes(), &7u32.to_le_bytes(), &sequence.to_le_bytes()].concat();
    let mut page = [&head[..], &[0; 4], &[segments.len() as u8], &segments, &packets.concat()].concat();
    let crc = checksum(0, &page);
    page[22..26].copy_from_slice(&crc.to_le_bytes());
    page
}

fn head(fields: &[u8]) -> Vec<u8> {
    [b"OpusHead", fields].concat()
}

/// An Ogg file of one channel: 20 ms of silence in each packet, and the granules of its pages.
fn ogg(pages: &[(i64, usize)]) -> Vec<u8> {
    let head = head(&[1, 1, 56, 1, 0x80, 0xBB, 0, 0, 0, 0, 0]);
    let mut file = [page(0, 2, 0, &[&head]), page(1, 0, 0, &[b"OpusTags\0\0\0\0\0\0\0\0"])].concat();
    for (index, (granule, num_packets)) in pages.iter().enumerate() {
        file.extend(page(2 + index as u32, 0, *granule, &vec![&[0xF8, 0xFF, 0xFE][..]; *num_packets]));
    }
    file
}

#[test]
fn headers_tell_channels_and_skipped_samples() {
    let parse = |fields: &[u8], order| OpusHead::parse(&head(fields), order);
    let found = parse(&[1, 2, 56, 1, 0x80, 0xBB, 0, 0, 0xFF, 0, 0], ByteOrder::Little).expect("a header");
    assert_eq!((found.num_channels, found.pre_skip), (2, 312));
    // The samples at the beginning stay, and the gain does.
    assert_eq!(found.without_skip(), head(&[1, 2, 0, 0, 0x80, 0xBB, 0, 0, 0xFF, 0, 0]));
    let of_mp4 = parse(&[0, 2, 1, 56, 0, 0, 0xBB, 0x80, 0, 0xFF, 0], ByteOrder::Big).expect("a header");
    assert_eq!(of_mp4, found);
    let surround = [1, 6, 56, 1, 0, 0, 0, 0, 0, 0, 1, 4, 2, 0, 4, 1, 2, 3, 5];
    let found = parse(&surround, ByteOrder::Little).expect("a header");
    assert_eq!(found.num_channels, 6);
    assert!(found.without_skip().ends_with(&surround[10..]));
}

#[test]
fn damaged_headers_and_other_layouts_are_named() {
    let check = |fields: &[u8], expected: &str| {
        let error = OpusHead::parse(&head(fields), ByteOrder::Little).expect_err("a bad header").to_string();
        assert!(error.ends_with(expected), "{error}");
    };
    for length in 0..11 {
        check(&[1, 2, 56, 1, 0x80, 0xBB, 0, 0, 0, 0, 0][..length], "is damaged: it is too short");
    }
    check(&[16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], "the file has Opus of the version 16, which is not supported");
    check(&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], "it tells 3 channels, not 1 or 2");
    check(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "it tells 0 channels, not 1 or 2");
    check(&[1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, 9, 0], "it tells 9 channels, not 1 to 8");
    check(&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 1], "it is too short");
    check(&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1], "it is too short");
    check(&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 1, 3], "its channels are those of no stream");
    check(&[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 1, 2], "its channels are those of no stream");
    let ambisonics = "Opus of 4 channels of the mapping family 2; only 0 and 1 are supported";
    check(&[1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 1, 2, 3], ambisonics);
}

#[test]
fn packets_tell_their_lengths() {
    let check = |packet: &[u8], expected| assert_eq!(packet_samples(packet).ok(), expected, "{packet:?}");
    check(&[0x08], Some(960));
    check(&[0x18], Some(2_880));
    check(&[0x60], Some(480));
    check(&[0x80], Some(120));
    check(&[0xF8], Some(960));
    check(&[0xF9], Some(1_920));
    check(&[0xFA, 0], Some(1_920));
    check(&[0xFB, 6], Some(5_760));
    check(&[0xFB, 7], None);
    check(&[0xFB, 0], None);
    check(&[0xFB], None);
    check(&[], None);
}

#[test]
fn files_tell_their_format_and_length_without_libavcodec() {
    for (file, channels) in [(OPUS_OGG, 1), (OPUS_PAGES, 2), (OPUS_WEBM, 2), (OPUS_MP4, 1)] {
        assert!(is_sound(file));
        let num_frames = Some(NUM_SAMPLES);
        let expected = Header { sample_rate: 48_000, channels, num_frames, codec: "opus".to_string() };
        assert_eq!(header(file), Ok(expected));
        missing_libav(file, "Opus");
    }
}

#[test]
fn packets_are_the_same_from_all_places() {
    for file in [OPUS_OGG, OPUS_PAGES, OPUS_WEBM, OPUS_MP4] {
        let all = positions(file, -1).expect("packets");
        assert_eq!(all.len(), 21);
        assert_eq!(all.last().map(|(at, _)| *at), Some(20 * 960));
        for position in [0, 1, 2_879, 2_880, 2_881, 9_000, 19_000, 30_000] {
            let found = positions(file, position).expect("packets");
            assert_eq!(found, all[all.len() - found.len()..]);
        }
    }
    // Reading begins on the page of the position.
    assert_eq!(positions(OPUS_PAGES, 9_000).expect("packets").first().map(|(at, _)| *at), Some(8_640));
}

#[test]
fn granules_place_the_sound() {
    let frames = |pages: &[(i64, usize)]| header(&ogg(pages)).map(|header| header.num_frames.unwrap_or(0));
    assert_eq!(frames(&[(4_800, 5), (9_600, 5)]), Ok(9_600 - 312));
    // Padding at the end, on one page or several.
    assert_eq!(frames(&[(4_800, 5), (9_000, 5)]), Ok(9_000 - 312));
    assert_eq!(frames(&[(4_000, 5)]), Ok(4_000 - 312));
    // A part of a longer stream.
    let cut = &[(1_000_000, 5), (1_004_800, 5)];
    assert_eq!(frames(cut), Ok(9_600 - 312));
    assert_eq!(positions(&ogg(cut), 5_000).expect("packets").first().map(|(at, _)| *at), Some(4_800));
    // Pages on which no packet ends, and none at all.
    assert_eq!(frames(&[]), Err(BadSound::new("the sound has no samples")));
    assert_eq!(frames(&[(100, 1)]), Err(BadSound::new("the sound has no samples")));
}

#[test]
fn granules_that_lie_are_errors_where_they_are_read() {
    let error = |pages: &[(i64, usize)]| positions(&ogg(pages), 0).expect_err("a lie").to_string();
    let early = "the first page of the Ogg file ends at sample 4000, and has 4800";
    assert_eq!(error(&[(4_000, 5), (9_600, 5)]), early);
    let gap = "a page of the Ogg file ends at sample 9600, and tells 9700";
    assert_eq!(error(&[(4_800, 5), (9_700, 5), (14_500, 5)]), gap);
    let huge = &[(4_800, 5), (9_600, 5), (1 << 40, 1)];
    assert_eq!(error(huge), format!("a page of the Ogg file ends at sample 10560, and tells {}", 1u64 << 40));
    assert_eq!(header(&ogg(huge)).map(|header| header.num_frames), Ok(Some((1 << 40) - 312)));
}

#[test]
fn damaged_pages_and_packets_are_errors() {
    let good = ogg(&[(4_800, 5), (9_600, 5), (14_400, 5)]);
    let starts: Vec<usize> = (0..good.len()).filter(|at| good[*at..].starts_with(b"OggS")).collect();
    let damaged = |at: usize| {
        let mut file = good.clone();
        file[at] ^= 1;
        positions(&file, 0).expect_err("damage").to_string()
    };
    assert_eq!(damaged(starts[3] + 40), "page 3 of the Ogg file is damaged");
    assert_eq!(damaged(starts[1] + 30), "page 1 of the Ogg file is damaged");
    let missing = [&good[..starts[3]], &good[starts[4]..]].concat();
    let error = positions(&missing, 0).expect_err("a page is missing").to_string();
    assert_eq!(error, "pages before page 4 of the Ogg file are missing");
    for cut in (0..good.len()).step_by(3) {
        let whole = starts.iter().filter(|start| **start + 27 < cut).count();
        let found = positions(&good[..cut], 0).map(|packets| packets.len()).unwrap_or(0);
        assert!(found <= 5 * whole.saturating_sub(2), "{found} packets of {cut} bytes");
    }
    // Another stream after the first one.
    let error = header(&[&good[..], &good].concat()).expect_err("two streams").to_string();
    assert_eq!(error, "the Ogg file has several streams one after the other");
    let without_tags = [&good[..starts[1]], &page(1, 0, 0, &[b"OpusTagz"]), &good[starts[2]..]].concat();
    assert_eq!(header(&without_tags).expect_err("no tags").reason, "the Opus stream has no comments after its header");
}

/// Samples, which libavcodec decodes.
#[cfg(feature = "libav-tests")]
pub mod samples {
    use std::path::PathBuf;

    use stoker_libav::Libav;

    use super::super::files::{LOSSY, tones};
    use super::super::{Decoded, clip, decode_with};
    use super::*;
    use crate::{AudioClip, LibavSource, Scratch};

    pub fn scratch() -> Scratch {
        let place = std::env::var_os("STOKER_LIBAV").expect("these tests need libavcodec: set STOKER_LIBAV");
        let load = move || Libav::load(&[PathBuf::from(&place)]).map_err(|error| error.to_string());
        Scratch::new(LibavSource::new(load))
    }

    pub fn decoded(file: &[u8], clip: &AudioClip) -> Result<Decoded, BadSound> {
        decode_with(&mut scratch(), file, clip, 0.0)
    }

    #[test]
    fn the_sound_is_at_its_place() {
        for (file, channels) in [(OPUS_OGG, 1), (OPUS_PAGES, 2), (OPUS_WEBM, 2), (OPUS_MP4, 1)] {
            let (valid, samples) = decoded(file, &clip(48_000, channels, 0, 20_000)).expect("a sound");
            assert_eq!(valid as u64, NUM_SAMPLES);
            for (found, expected) in samples.chunks(20_000).zip(tones(48_000, channels)) {
                let errors = found.iter().zip(&expected).map(|(found, expected)| (f64::from(*found) - expected).abs());
                let error = errors.sum::<f64>() / expected.len() as f64;
                assert!(error < LOSSY, "{error}");
            }
            let (_, part) = decoded(file, &clip(48_000, channels, 5_000, 1_000)).expect("a sound");
            for (part, whole) in part.chunks(1_000).zip(samples.chunks(20_000)) {
                assert_eq!(part, &whole[5_000..6_000]);
            }
        }
    }

    #[test]
    fn long_files_are_decoded_from_two_seconds_before_the_clip() {
        // The sound again and again, with packets of the same bytes as before.
        let all = positions(OPUS_OGG, -1).expect("packets");
        let packets: Vec<&[u8]> = (0..30).flat_map(|_| all.iter().map(|(_, packet)| &packet[..])).collect();
        let head = head(&[1, 1, 56, 1, 0x80, 0xBB, 0, 0, 0, 0, 0]);
        let mut file = [page(0, 2, 0, &[&head]), page(1, 0, 0, &[b"OpusTags\0\0\0\0\0\0\0\0"])].concat();
        for (index, packets) in packets.chunks(21).enumerate() {
            file.extend(page(2 + index as u32, 0, (index as i64 + 1) * 21 * 960, packets));
        }
        let (whole, part) = (clip(48_000, 1, 0, 600_000), clip(48_000, 1, 400_000, 9_600));
        let (valid, whole) = decoded(&file, &whole).expect("a sound");
        assert_eq!(valid, 600_000);
        let (_, part) = decoded(&file, &part).expect("a sound");
        let errors = part.iter().zip(&whole[400_000..]).map(|(found, expected)| (found - expected).abs());
        let error = errors.fold(0.0, f32::max);
        assert!(error < 1e-6, "{error}");
        // Damage before the part that is decoded does no harm.
        let at = (0..file.len()).filter(|at| file[*at..].starts_with(b"OggS")).nth(4).expect("pages");
        file[at + 100] ^= 1;
        let (_, again) = decoded(&file, &clip(48_000, 1, 400_000, 9_600)).expect("a sound");
        assert_eq!(again, part);
        assert!(decoded(&file, &clip(48_000, 1, 0, 600_000)).is_err());
    }
}
