//! The randomness of augmentations, as pure functions of a row's position in a stream. `RANDOMNESS.md` specifies it.

use stoker_order::Key;

/// A constant that separates these keys from the keys that order rows: the bytes of "augment".
const AUGMENT: u64 = u64::from_le_bytes(*b"augment\0");

/// A constant that separates the rows of a bucket from draws: the bytes of "bucket".
const BUCKET: u64 = u64::from_le_bytes(*b"bucket\0\0");

/// Returns the seed of the augmentations of one row's image.
///
/// The seed depends on the seed of the stream, the epoch, the row's position in the order of the epoch, and the name of
/// the column. The name is absorbed as its length in bytes and then in groups of 8 bytes, little-endian, the last group
/// padded with zeros. The seed is therefore the same on any number of ranks, for any batch size and after any resume.
pub fn sample_seed(stream_seed: u64, epoch: u64, position: u64, column: &str) -> u64 {
    let mut key = Key::new(stream_seed).with(AUGMENT).with(column.len() as u64);
    for group in column.as_bytes().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..group.len()].copy_from_slice(group);
        key = key.with(u64::from_le_bytes(bytes));
    }
    key.with(epoch).with(position).bits()
}

/// Returns the seed of a row of a bucket, from that of the bucket's position and from the number of the row in its bucket.
pub fn bucket_row_seed(position_seed: u64, row: u64) -> u64 {
    Key::new(position_seed).with(BUCKET).with(row).bits()
}

/// The random start of a clip of sound or video: 64 bits, and the multiple of 2^-53 from 0 to below 1 that their upper 53
/// bits are.
pub fn draw_start(seed: u64) -> (u64, f64) {
    let bits = Key::new(seed).with(Draw::Start as u64).bits();
    (bits, Draws::new(seed).unit(Draw::Start, 0))
}

/// Constants that separate the seeds of the crops of an image, and of the images of a list.
const CROP: u64 = u64::from_le_bytes(*b"crop\0\0\0\0");
const IMAGE: u64 = u64::from_le_bytes(*b"image\0\0\0");

fn nth_seed(seed: u64, purpose: u64, number: usize) -> u64 {
    match number {
        0 => seed,
        _ => Key::new(seed).with(purpose).with(number as u64).bits(),
    }
}

/// The purposes of the draws of one image. Each purpose has its own numbers, so that an option does not change other
/// draws.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Draw {
    Flip = 0,
    Left = 1,
    Top = 2,
    Area = 16,
    Ratio = 32,
    RegionLeft = 48,
    RegionTop = 64,
    Brightness = 80,
    Contrast = 81,
    Saturation = 82,
    Hue = 83,
    JitterOrder = 84,
    Angle = 85,
    Start = 96,
}

/// The random numbers of one image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws(Key);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(Key::new(seed))
    }

    /// Returns the random numbers of a crop of an image; those of the first crop are those of an image with one crop.
    pub fn of_crop(seed: u64, number: usize) -> Self {
        Self::new(nth_seed(seed, CROP, number))
    }

    /// Returns the seed of an image of a list; that of the first image is the seed of its row.
    pub fn seed_of_image(seed: u64, number: usize) -> u64 {
        nth_seed(seed, IMAGE, number)
    }

    /// Returns a multiple of 2^-53 from 0 to below 1. `attempt`, which must be below 16, counts draws for the same
    /// purpose.
    pub fn unit(&self, draw: Draw, attempt: u64) -> f64 {
        let bits = self.0.with(draw as u64 + attempt).bits();
        (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a number that is uniform in a range.
    pub fn uniform(&self, draw: Draw, attempt: u64, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.unit(draw, attempt)
    }

    /// Returns an integer from 0 to `max`, both included.
    #[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
    pub fn up_to(&self, draw: Draw, attempt: u64, max: u32) -> u32 {
        ((self.unit(draw, attempt) * (f64::from(max) + 1.0)) as u32).min(max)
    }
}
