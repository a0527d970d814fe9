//! Reads and decodes image files in memory.

use std::io::Cursor;

use image::{ColorType, DynamicImage, GrayImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage, metadata};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::{BadImage, Channels};

/// The content of an image's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of rows of pixels.
    pub height: u32,
    /// The number of pixels in a row.
    pub width: u32,
    /// Whether pixels have colours.
    pub has_color: bool,
}

/// A JPEG, PNG or WebP file whose header was read. The format is detected from the content of the file.
///
/// JPEG files are decoded by zune-jpeg's SIMD code, which cannot decode at a smaller scale or decode a part of an
/// image. As in other decoders, damage inside the compressed pixels may go unnoticed, because JPEG has no checksums; a
/// file that ends early is detected. PNG and WebP files are decoded by the `image` crate. Samples of 16 bits are scaled
/// to 8 bits; colour profiles are not applied.
pub struct ImageFile<'a> {
    header: Header,
    decoder: Decoder<'a>,
}

enum Decoder<'a> {
    Jpeg(&'a [u8], Box<JpegDecoder<ZCursor<&'a [u8]>>>),
    Other(Box<dyn ImageDecoder + 'a>),
}

impl<'a> ImageFile<'a> {
    /// Reads the header. An image of more than `bytes_max` bytes after decoding is refused. The decoders themselves use
    /// at most about twice as many bytes in addition.
    ///
    /// # Errors
    /// [`BadImage`] for damaged headers, other formats, and images that are too large or have no pixels.
    pub fn open(file: &'a [u8], bytes_max: u64) -> Result<Self, BadImage> {
        let opened = match image::guess_format(file) {
            Ok(ImageFormat::Jpeg) => open_jpeg(file)?,
            Ok(format) => open_other(file, format, bytes_max)?,
            Err(_) => {
                let start = file.get(..file.len().min(8)).unwrap_or_default().escape_ascii();
                return Err(BadImage::new(format!("it is no PNG, JPEG or WebP file: it begins with \"{start}\"")));
            }
        };
        let (Header { height, width, .. }, bytes) = (opened.header, opened.decoded_bytes());
        if bytes > bytes_max {
            let reason = format!("{height}x{width} pixels take {bytes} bytes, more than the limit of {bytes_max}");
            return Err(BadImage::new(reason));
        }
        if height == 0 || width == 0 {
            return Err(BadImage::new("the image has no pixels"));
        }
        Ok(opened)
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Decodes the image into `pixels`, whose previous content is replaced. The pixels are in row-major order, with the
    /// channels of a pixel next to each other. Orientation tags are not applied.
    ///
    /// # Errors
    /// [`BadImage`] for damaged files.
    pub fn decode(self, channels: Channels, pixels: &mut Vec<u8>) -> Result<(), BadImage> {
        let header = self.header;
        match self.decoder {
            Decoder::Jpeg(file, mut decoder) => {
                if !has_end(file) {
                    return Err(BadImage::new("the JPEG file ends before its image does"));
                }
                // The buffer is zeroed, because the parts that the decoder leaves out of a damaged image must not
                // depend on the previous image.
                zeroed(pixels, decoder.output_buffer_size().unwrap_or(0));
                decoder.decode_into(pixels).map_err(BadImage::new)?;
                let decoded = if header.has_color { Channels::Rgb } else { Channels::Gray };
                convert(pixels, header, decoded, channels)
            }
            Decoder::Other(decoder) => match (decoder.color_type(), channels) {
                (ColorType::Rgb8, Channels::Rgb) | (ColorType::L8, Channels::Gray) => {
                    zeroed(pixels, usize::try_from(decoder.total_bytes()).unwrap_or(0));
                    decoder.read_image(pixels).map_err(BadImage::new)
                }
                _ => {
                    *pixels = flat(DynamicImage::from_decoder(decoder).map_err(BadImage::new)?, channels);
                    Ok(())
                }
            },
        }
    }

    /// Decodes the image as [`ImageFile::decode`] does, then applies the orientation tag. Returns height and width.
    ///
    /// # Errors
    /// As [`ImageFile::decode`]. A tag that cannot be read is ignored.
    pub fn decode_oriented(mut self, channels: Channels, pixels: &mut Vec<u8>) -> Result<(u32, u32), BadImage> {
        let (header, orientation) = (self.header, self.orientation());
        self.decode(channels, pixels)?;
        if orientation == metadata::Orientation::NoTransforms {
            return Ok((header.height, header.width));
        }
        let mut image = dynamic(std::mem::take(pixels), header, channels)?;
        image.apply_orientation(orientation);
        let size = (image.height(), image.width());
        *pixels = flat(image, channels);
        Ok(size)
    }

    fn orientation(&mut self) -> metadata::Orientation {
        let found = match &mut self.decoder {
            Decoder::Jpeg(_, decoder) => decoder.exif().and_then(|exif| metadata::Orientation::from_exif_chunk(exif)),
            Decoder::Other(decoder) => decoder.orientation().ok(),
        };
        found.unwrap_or(metadata::Orientation::NoTransforms)
    }

    /// Returns the bytes of the decoded pixels, with the samples and channels of the file.
    fn decoded_bytes(&self) -> u64 {
        let Header { height, width, has_color } = self.header;
        match &self.decoder {
            Decoder::Jpeg(..) => u64::from(height) * u64::from(width) * if has_color { 3 } else { 1 },
            Decoder::Other(decoder) => decoder.total_bytes(),
        }
    }
}

/// The most bytes of memory for the data of a file besides its pixels. Colour profiles have a few kibibytes.
const BESIDE_PIXELS_BYTES: u64 = 1 << 20;

/// Decodes a JPEG file into `pixels` with zune-jpeg and no further checks: the baseline of benchmarks.
///
/// # Errors
/// [`BadImage`] for files that the decoder refuses.
pub fn decode_jpeg_alone(file: &[u8], pixels: &mut [u8]) -> Result<(), BadImage> {
    JpegDecoder::new(ZCursor::new(file)).decode_into(pixels).map_err(BadImage::new)
}

fn open_jpeg(file: &[u8]) -> Result<ImageFile<'_>, BadImage> {
    let options = DecoderOptions::default().set_strict_mode(false).set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(BadImage::new)?;
    let (width, height) = decoder.dimensions().unwrap_or_default();
    let has_color = !matches!(decoder.input_colorspace(), Some(ColorSpace::Luma | ColorSpace::LumaA));
    let options = decoder.options().jpeg_set_out_colorspace(if has_color { ColorSpace::RGB } else { ColorSpace::Luma });
    decoder.set_options(options);
    #[expect(clippy::cast_possible_truncation, reason = "a header of a JPEG file has 16 bits for each")]
    let (height, width) = (height as u32, width as u32);
    let header = Header { height, width, has_color };
    Ok(ImageFile { header, decoder: Decoder::Jpeg(file, Box::new(decoder)) })
}

fn open_other(file: &[u8], format: ImageFormat, bytes_max: u64) -> Result<ImageFile<'_>, BadImage> {
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let mut limits = Limits::default();
    let bytes = if format == ImageFormat::Png { png_bytes(file).unwrap_or(bytes_max) } else { bytes_max };
    limits.max_alloc = Some(bytes.min(bytes_max).saturating_mul(2).saturating_add(BESIDE_PIXELS_BYTES));
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(BadImage::new)?;
    let (width, height) = decoder.dimensions();
    let header = Header { height, width, has_color: decoder.color_type().has_color() };
    Ok(ImageFile { header, decoder: Decoder::Other(Box::new(decoder)) })
}

/// Returns the bytes of a PNG file's decoded pixels according to its header (PNG specification, 11.2.1), with palettes
/// as colours. The limit on memory is computed from these bytes, because other data of the file, such as a colour
/// profile, is compressed and may expand to any size.
fn png_bytes(file: &[u8]) -> Option<u64> {
    let (width, rest) = file.get(16..26)?.split_first_chunk::<4>()?;
    let (height, rest) = rest.split_first_chunk::<4>()?;
    let &[depth, color_type] = rest else { return None };
    let samples = match color_type {
        0 => 1,
        4 => 2,
        2 => 3,
        _ => 4,
    };
    let pixels = u64::from(u32::from_be_bytes(*width)).saturating_mul(u64::from(u32::from_be_bytes(*height)));
    Some(pixels.saturating_mul(samples * u64::from(depth.div_ceil(8))))
}

/// Tells whether an end-of-image marker (ITU-T T.81, B.1.1.3) comes after the start of the first scan. Previews in the
/// segments before the scan have their own markers. Compressed pixels contain no marker, as 0xFF is stuffed there
/// (F.1.2.3).
fn has_end(file: &[u8]) -> bool {
    let scan = file.get(first_scan(file)..).unwrap_or_default();
    scan.windows(2).rev().any(|pair| pair == [0xFF, 0xD9])
}

/// Returns the offset of the first scan, or of the first segment that is not well-formed.
fn first_scan(file: &[u8]) -> usize {
    let mut at = 2;
    while let Some(&[0xFF, marker, high, low]) = file.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        at += match marker {
            0xDA => return at,
            0xFF => 1,
            0x01 | 0xD0..=0xD8 => 2,
            _ => 2 + usize::from(u16::from_be_bytes([high, low])),
        };
    }
    at.min(file.len())
}

fn zeroed(pixels: &mut Vec<u8>, length: usize) {
    pixels.clear();
    pixels.resize(length, 0);
}

fn convert(pixels: &mut Vec<u8>, header: Header, from: Channels, to: Channels) -> Result<(), BadImage> {
    if from != to {
        *pixels = flat(dynamic(std::mem::take(pixels), header, from)?, to);
    }
    Ok(())
}

fn dynamic(
    pixels: Vec<u8>,
    Header { height, width, .. }: Header,
    channels: Channels,
) -> Result<DynamicImage, BadImage> {
    let image = match channels {
        Channels::Gray => GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8),
        Channels::Rgb => RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8),
    };
    image.ok_or_else(|| BadImage::new("the decoder gave fewer pixels than the header says"))
}

fn flat(image: DynamicImage, channels: Channels) -> Vec<u8> {
    match channels {
        Channels::Gray => image.into_luma8().into_raw(),
        Channels::Rgb => image.into_rgb8().into_raw(),
    }
}

#[cfg(test)]
mod tests {
    use image::codecs::png::PngEncoder;
    use image::{ExtendedColorType, ImageEncoder as _};

    use super::{Decoder, ImageFile};
    use crate::Channels;

    /// Returns a file with a colour profile of this many bytes, all zero.
    fn with_profile(profile_bytes: usize, color: ExtendedColorType, pixels: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = PngEncoder::new(&mut file);
        encoder.set_icc_profile(vec![0; profile_bytes]).expect("PNG files have profiles");
        encoder.write_image(pixels, 4, 2, color).expect("the pixels are those of the image");
        file
    }

    /// Returns the bytes of the profile that a decoder holds.
    fn profile_bytes(file: &[u8]) -> Option<usize> {
        match ImageFile::open(file, 256 << 20).expect("an image").decoder {
            Decoder::Other(mut decoder) => {
                decoder.icc_profile().expect("profiles are optional").map(|bytes| bytes.len())
            }
            Decoder::Jpeg(..) => unreachable!("it is a PNG file"),
        }
    }

    #[test]
    fn a_profile_takes_no_more_memory_than_the_image() {
        let gray: Vec<u8> = (0..8).collect();
        let colors: Vec<u8> = (0..8 * 8).collect();
        for (color, pixels) in [(ExtendedColorType::L8, &gray[..]), (ExtendedColorType::Rgba16, &colors[..])] {
            assert_eq!(profile_bytes(&with_profile(3_000, color, pixels)), Some(3_000), "real profiles are as small");
            let bomb = with_profile(64 << 20, color, pixels);
            assert!(bomb.len() < 1 << 20);
            assert_eq!(profile_bytes(&bomb), None);
            let mut decoded = Vec::new();
            let file = ImageFile::open(&bomb, 256 << 20).expect("an image");
            file.decode(Channels::Gray, &mut decoded).expect("the pixels are good");
            assert_eq!(decoded.len(), 8);
        }
    }
}
