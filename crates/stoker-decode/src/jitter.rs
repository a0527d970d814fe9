//! Changes the colours of images at random.

use crate::random::{Draw, Draws};
use crate::transform::{Channels, ColorJitter};

/// The weights of red, green and blue in luminance (ITU-R BT.601).
const LUMINANCE: [f32; 3] = [0.299, 0.587, 0.114];

/// Changes brightness, contrast, saturation and hue of pixels, in an order that is drawn, by factors that are drawn. The
/// values are rounded after each change. Images with one channel have brightness and contrast only.
#[expect(clippy::cast_possible_truncation, reason = "factors need no more bits")]
pub(crate) fn jitter(options: &ColorJitter, channels: Channels, draws: &Draws, pixels: &mut [u8]) {
    let factor = |draw, range| draws.uniform(draw, 0, range) as f32;
    for change in order(draws) {
        match (change, channels) {
            (Change::Brightness, _) => brighten(factor(Draw::Brightness, options.brightness), pixels),
            (Change::Contrast, _) => contrast(factor(Draw::Contrast, options.contrast), channels, pixels),
            (Change::Saturation, Channels::Rgb) => saturate(factor(Draw::Saturation, options.saturation), pixels),
            (Change::Hue, Channels::Rgb) => rotate_hue(factor(Draw::Hue, options.hue), pixels),
            (Change::Saturation | Change::Hue, Channels::Gray) => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Change {
    Brightness,
    Contrast,
    Saturation,
    Hue,
}

/// Returns one of the 24 orders of the changes.
fn order(draws: &Draws) -> [Change; 4] {
    let mut order = [Change::Brightness, Change::Contrast, Change::Saturation, Change::Hue];
    let mut number = draws.up_to(Draw::JitterOrder, 0, 23) as usize;
    for left in (2..=4).rev() {
        order.swap(left - 1, number % left);
        number /= left;
    }
    order
}

fn brighten(factor: f32, pixels: &mut [u8]) {
    look_up(pixels, |value| value * factor);
}

/// Blends pixels with the mean luminance of the image.
#[expect(clippy::cast_possible_truncation, reason = "the mean is at most 255")]
fn contrast(factor: f32, channels: Channels, pixels: &mut [u8]) {
    let sum: f64 = match channels {
        Channels::Gray => pixels.iter().map(|value| f64::from(*value)).sum(),
        Channels::Rgb => pixels.as_chunks::<3>().0.iter().map(|pixel| f64::from(luminance(*pixel))).sum(),
    };
    let mean = (sum / (pixels.len() / channels.count()).max(1) as f64) as f32;
    look_up(pixels, |value| value * factor + mean * (1.0 - factor));
}

/// Blends each pixel with its luminance.
fn saturate(factor: f32, pixels: &mut [u8]) {
    if factor == 1.0 {
        return;
    }
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let gray = luminance(*pixel) * (1.0 - factor);
        *pixel = pixel.map(|value| rounded(f32::from(value) * factor + gray));
    }
}

/// Rotates the hue of each pixel by a share of the circle of colours.
fn rotate_hue(share: f32, pixels: &mut [u8]) {
    if share == 0.0 {
        return;
    }
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let [red, green, blue] = pixel.map(f32::from);
        let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
        let range = most - least;
        if range == 0.0 {
            continue;
        }
        // The hue in sixths of the circle, from red (0) over green (2) to blue (4).
        let hue = if most == red {
            (green - blue) / range
        } else if most == green {
            2.0 + (blue - red) / range
        } else {
            4.0 + (red - green) / range
        };
        let hue = (hue + share * 6.0).rem_euclid(6.0);
        // A channel has its greatest value within one sixth of its own hue, its least one beyond two sixths.
        let channel = |own: f32| {
            let distance = (hue - own).abs();
            let distance = distance.min(6.0 - distance);
            rounded(least + range * (2.0 - distance).clamp(0.0, 1.0))
        };
        *pixel = [channel(0.0), channel(2.0), channel(4.0)];
    }
}

fn luminance([red, green, blue]: [u8; 3]) -> f32 {
    f32::from(red) * LUMINANCE[0] + f32::from(green) * LUMINANCE[1] + f32::from(blue) * LUMINANCE[2]
}

/// Replaces each value by what `change` makes of it.
fn look_up(pixels: &mut [u8], change: impl Fn(f32) -> f32) {
    let table: [u8; 256] = std::array::from_fn(|value| rounded(change(value as f32)));
    pixels.iter_mut().for_each(|value| *value = table[usize::from(*value)]);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is from 0 to 255")]
fn rounded(value: f32) -> u8 {
    value.round().clamp(0.0, 255.0) as u8
}
