//! Tests of decoding, with files that the tests write and with files in `tests/files`.

use crate::{AudioClip, BadSound, Scratch, Start};

mod bad;
mod clips;
mod files;
mod fuzz;
mod libav;
mod options;
mod opus;
mod resampling;
mod wave;

/// A decoded clip: the number of samples that are sound, and all samples, channel by channel.
type Decoded = (usize, Vec<f32>);

/// A clip of a number of samples that starts at a sample.
fn clip(sample_rate: u32, channels: u16, start: u64, samples: u64) -> AudioClip {
    let rate = f64::from(sample_rate);
    let mut clip = AudioClip::new(sample_rate, samples as f64 / rate);
    clip.start = Start::Seconds(start as f64 / rate);
    clip.channels = channels;
    clip
}

/// Decodes with given buffers.
fn decode_with(scratch: &mut Scratch, file: &[u8], clip: &AudioClip, draw: f64) -> Result<Decoded, BadSound> {
    clip.validate().expect("a valid clip");
    let mut out = vec![0xA5; clip.row_bytes()];
    let valid = clip.decode(scratch, file, Some(0.0), draw, &mut out)?;
    let (samples, rest) = out.as_chunks::<4>();
    assert!(rest.is_empty());
    let samples: Vec<f32> = samples.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
    let [channels, length] = clip.shape();
    assert_eq!(samples.len(), channels * length);
    assert!((1..=length).contains(&valid), "{valid} of {length}");
    for channel in samples.chunks(length) {
        assert!(channel[valid..].iter().all(|sample| sample.to_bits() == 0), "the rest is zero");
    }
    Ok((valid, samples))
}

fn decode(file: &[u8], clip: &AudioClip) -> Result<Decoded, BadSound> {
    decode_with(&mut Scratch::default(), file, clip, 0.0)
}

/// Decodes a whole file at its own rate. Returns one vector per channel.
fn whole(file: &[u8]) -> Vec<Vec<f32>> {
    let header = crate::header(file).expect("a sound");
    let (valid, samples) = decode(file, &clip(header.sample_rate, header.channels, 0, 20_000)).expect("a sound");
    samples.chunks(20_000).map(|channel| channel[..valid].to_vec()).collect()
}

/// The reason why a file is refused.
fn reason(file: &[u8]) -> String {
    decode(file, &clip(8_000, 1, 0, 4_000)).map(|(valid, _)| valid).expect_err("a bad file").to_string()
}

/// Checks that a file needs libavcodec for what messages call `kind`. Returns the error that it gives without the library.
fn missing_libav(file: &[u8], kind: &str) -> BadSound {
    let error = decode(file, &clip(16_000, 1, 0, 100)).expect_err("no library");
    let expected = format!("the file has {kind}, which libavcodec decodes: no library was given");
    assert!(error.is_fatal && error.reason == expected, "{error}");
    error
}
