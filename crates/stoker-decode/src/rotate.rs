//! Rotates images.
//!
//! ```text
//! image ──resize──► the part that the rotated tensor covers ──sample──► tensor's pixels
//!                   (at the scale of the tensor, antialiased)  bilinear or nearest; `fill` outside the image
//! ```

use fast_image_resize::Resizer;

use crate::geometry::{Placement, Region};
use crate::{BadValue, ImageTransform, Interpolation, Pixels, Samples, resize};

/// A rotation of the tensor around the centre of the image's rectangle.
pub(crate) struct Rotation {
    sin: f64,
    cos: f64,
    /// The centre in the tensor, in pixels.
    center: (f64, f64),
}

impl Rotation {
    /// Creates a rotation by an angle in degrees, counter-clockwise.
    pub fn new(degrees: f64, placement: &Placement) -> Self {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let x = f64::from(placement.left) + f64::from(placement.width) / 2.0;
        let y = f64::from(placement.top) + f64::from(placement.height) / 2.0;
        Self { sin, cos, center: (x, y) }
    }

    /// Returns where a point of the tensor lies before it is rotated.
    fn before(&self, x: f64, y: f64) -> (f64, f64) {
        let (x, y) = (x - self.center.0, y - self.center.1);
        (x * self.cos - y * self.sin + self.center.0, x * self.sin + y * self.cos + self.center.1)
    }

    /// Returns where a point lies in the tensor once it is rotated.
    pub fn after(&self, x: f64, y: f64) -> (f64, f64) {
        let (x, y) = (x - self.center.0, y - self.center.1);
        (x * self.cos + y * self.sin + self.center.0, y * self.cos - x * self.sin + self.center.1)
    }

    /// Writes the rotated image to `canvas`, which gets the pixels of the whole tensor. `part` is a buffer.
    ///
    /// # Errors
    /// As [`resize`].
    pub fn draw(
        &self,
        transform: &ImageTransform,
        placement: &Placement,
        source: &Pixels<'_>,
        resizer: &mut Resizer,
        (part, canvas): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<(), BadValue> {
        let pixel_bytes = source.pixel_bytes();
        canvas.clear();
        canvas.resize(transform.height as usize * transform.width as usize * pixel_bytes, 0);
        source.samples.fill(canvas, transform.fill);
        let Some(covered) = self.covered(transform, placement, source) else { return Ok(()) };
        part.clear();
        part.resize(covered.height as usize * covered.width as usize * pixel_bytes, 0);
        resize(resizer, source, &covered.region, transform.interpolation, (covered.height, covered.width), part)?;
        let is_nearest = transform.interpolation == Interpolation::Nearest;
        let sampler = Sampler { part, covered: &covered, channels: source.channels.count(), fill: transform.fill };
        for (y, line) in canvas.chunks_exact_mut(transform.width as usize * pixel_bytes).enumerate() {
            for (x, pixel) in line.chunks_exact_mut(pixel_bytes).enumerate() {
                let (from_x, from_y) = self.before(x as f64 + 0.5, y as f64 + 0.5);
                match source.samples {
                    Samples::UInt8 => sampler.write::<u8>(from_x, from_y, is_nearest, pixel),
                    Samples::UInt16 => sampler.write::<u16>(from_x, from_y, is_nearest, pixel),
                }
            }
        }
        Ok(())
    }

    /// Returns the part of the image that the rotated tensor covers, in whole pixels at the scale of the tensor; `None`
    /// if it covers nothing of the image.
    fn covered(&self, transform: &ImageTransform, placement: &Placement, source: &Pixels<'_>) -> Option<Covered> {
        let (height, width) = (f64::from(transform.height), f64::from(transform.width));
        let corners = [(0.0, 0.0), (width, 0.0), (0.0, height), (width, height)].map(|(x, y)| self.before(x, y));
        let Region { left, top, width, height } = placement.region;
        let (scale_x, scale_y) = (f64::from(placement.width) / width, f64::from(placement.height) / height);
        // The edges of the image at the scale of the tensor.
        let edge = |at: f64, first: f64, scale: f64, origin: u32| f64::from(origin) + (at - first) * scale;
        let x_edges =
            (edge(0.0, left, scale_x, placement.left), edge(f64::from(source.width), left, scale_x, placement.left));
        let y_edges =
            (edge(0.0, top, scale_y, placement.top), edge(f64::from(source.height), top, scale_y, placement.top));
        let (x, width) = whole(corners.map(|corner| corner.0), x_edges)?;
        let (y, height) = whole(corners.map(|corner| corner.1), y_edges)?;
        let region = Region {
            left: ((x - x_edges.0) / scale_x).max(0.0),
            top: ((y - y_edges.0) / scale_y).max(0.0),
            width: f64::from(width) / scale_x,
            height: f64::from(height) / scale_y,
        };
        let region = Region {
            width: region.width.min(f64::from(source.width) - region.left),
            height: region.height.min(f64::from(source.height) - region.top),
            ..region
        };
        Some(Covered { left: x, top: y, width, height, region })
    }
}

/// A part of the image at the scale of the tensor.
struct Covered {
    left: f64,
    top: f64,
    width: u32,
    height: u32,
    region: Region,
}

/// Returns the first of the whole pixels between corners that lie within the edges, and their number. One more pixel on
/// each side is for interpolation.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tensor has less than 2^17 pixels a side"
)]
fn whole(corners: [f64; 4], (first_edge, last_edge): (f64, f64)) -> Option<(f64, u32)> {
    let least = corners.into_iter().fold(f64::INFINITY, f64::min) - 1.0;
    let most = corners.into_iter().fold(f64::NEG_INFINITY, f64::max) + 1.0;
    let first = least.max(first_edge).ceil();
    let last = most.min(last_edge).floor();
    (last >= first + 1.0).then_some((first, (last - first) as u32))
}

/// The numbers of pixels.
trait Sample: Copy {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> f64;
    fn write(value: f64, bytes: &mut [u8]);
}

impl Sample for u8 {
    const BYTES: usize = 1;
    fn read(bytes: &[u8]) -> f64 {
        f64::from(bytes[0])
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
    fn write(value: f64, bytes: &mut [u8]) {
        bytes[0] = value.round() as u8;
    }
}

impl Sample for u16 {
    const BYTES: usize = 2;
    fn read(bytes: &[u8]) -> f64 {
        f64::from(u16::from_ne_bytes([bytes[0], bytes[1]]))
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
    fn write(value: f64, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&(value.round() as u16).to_ne_bytes());
    }
}

struct Sampler<'a> {
    part: &'a [u8],
    covered: &'a Covered,
    channels: usize,
    fill: u8,
}

impl Sampler<'_> {
    /// Writes the pixel at a point of the tensor before its rotation.
    #[expect(clippy::cast_possible_truncation, reason = "a tensor has less than 2^17 pixels a side")]
    fn write<S: Sample>(&self, x: f64, y: f64, is_nearest: bool, pixel: &mut [u8]) {
        let (x, y) = (x - self.covered.left, y - self.covered.top);
        if is_nearest {
            let (x, y) = (x.floor() as i64, y.floor() as i64);
            for channel in 0..self.channels {
                S::write(self.value::<S>(x, y, channel), &mut pixel[channel * S::BYTES..]);
            }
            return;
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (right_share, lower_share) = (x - left, y - top);
        let (left, top) = (left as i64, top as i64);
        for channel in 0..self.channels {
            let at = |dx, dy| self.value::<S>(left + dx, top + dy, channel);
            let upper = at(0, 0) * (1.0 - right_share) + at(1, 0) * right_share;
            let lower = at(0, 1) * (1.0 - right_share) + at(1, 1) * right_share;
            S::write(upper * (1.0 - lower_share) + lower * lower_share, &mut pixel[channel * S::BYTES..]);
        }
    }

    fn value<S: Sample>(&self, x: i64, y: i64, channel: usize) -> f64 {
        let (width, height) = (i64::from(self.covered.width), i64::from(self.covered.height));
        if !(0..width).contains(&x) || !(0..height).contains(&y) {
            return f64::from(self.fill);
        }
        let (x, y) = (usize::try_from(x).unwrap_or(0), usize::try_from(y).unwrap_or(0));
        let index = (y * self.covered.width as usize + x) * self.channels + channel;
        S::read(&self.part[index * S::BYTES..])
    }
}
