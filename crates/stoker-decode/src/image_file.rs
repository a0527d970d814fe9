//! Reads and decodes image files in memory.

use std::io::Cursor;

use image::{ColorType, DynamicImage, GrayImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage, metadata};

use crate::jpeg_file::JpegFile;
use crate::{BadValue, Channels, Decompressor, Window};

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
/// JPEG files are decoded by zune-jpeg's SIMD code or, if the caller has loaded it, by libjpeg-turbo. Only the latter
/// decodes at smaller scales, or a part of an image. As in other decoders, damage inside the compressed pixels may go
/// unnoticed, because JPEG has no checksums; a file that ends early is detected. PNG and WebP files are decoded by the
/// `image` crate. Samples of 16 bits are scaled to 8 bits; colour profiles are not applied.
pub struct ImageFile<'a> {
    header: Header,
    decoder: Decoder<'a>,
}

enum Decoder<'a> {
    Jpeg(JpegFile<'a>),
    Other(Box<dyn ImageDecoder + 'a>),
}

impl<'a> ImageFile<'a> {
    /// Reads the header. An image of more than `bytes_max` bytes after decoding is refused. The decoders themselves use
    /// at most about twice as many bytes in addition.
    ///
    /// # Errors
    /// [`BadValue`] for damaged headers, other formats, and images that are too large or have no pixels.
    pub fn open(file: &'a [u8], bytes_max: u64) -> Result<Self, BadValue> {
        let opened = match format(file)? {
            ImageFormat::Jpeg => of_jpeg(JpegFile::open_zune(file)?),
            format => open_other(file, format, bytes_max)?,
        };
        opened.checked(bytes_max)
    }

    /// Reads the header as [`ImageFile::open`] does. JPEG files are decoded by libjpeg-turbo.
    ///
    /// # Errors
    /// As [`ImageFile::open`].
    pub fn open_with(decompressor: &'a mut Decompressor, file: &'a [u8], bytes_max: u64) -> Result<Self, BadValue> {
        let opened = match format(file)? {
            ImageFormat::Jpeg => of_jpeg(JpegFile::open_turbo(decompressor, file, bytes_max)?),
            format => open_other(file, format, bytes_max)?,
        };
        opened.checked(bytes_max)
    }

    /// Refuses images that are too large or have no pixels.
    fn checked(self, bytes_max: u64) -> Result<Self, BadValue> {
        let (Header { height, width, .. }, bytes) = (self.header, self.decoded_bytes());
        if bytes > bytes_max {
            let reason = format!("{height}x{width} pixels take {bytes} bytes, more than the limit of {bytes_max}");
            return Err(BadValue::new(reason));
        }
        if height == 0 || width == 0 {
            return Err(BadValue::new("the image has no pixels"));
        }
        Ok(self)
    }

    /// Chooses 1/`denominator` of the size, rounded up, which becomes the size in the header: 1, 2, 4 or 8. Returns
    /// whether the decoder of this file has this scale; if not, the size stays.
    pub fn shrink(&mut self, denominator: u32) -> bool {
        let has_scale = match &mut self.decoder {
            Decoder::Jpeg(file) => file.shrink(denominator),
            Decoder::Other(_) => false,
        };
        if has_scale {
            self.header.height = self.header.height.div_ceil(denominator);
            self.header.width = self.header.width.div_ceil(denominator);
        }
        has_scale
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Decodes the image into `pixels`, whose previous content is replaced. The pixels are in row-major order, with the
    /// channels of a pixel next to each other. Orientation tags are not applied.
    ///
    /// # Errors
    /// [`BadValue`] for damaged files.
    pub fn decode(self, channels: Channels, pixels: &mut Vec<u8>) -> Result<(), BadValue> {
        let whole = Window::whole(self.header);
        self.decode_window(channels, &whole, pixels).map(drop)
    }

    /// Decodes at least a window of the image as [`ImageFile::decode`] decodes the whole, with the same pixels. Returns
    /// the window that was decoded, which is the whole image unless libjpeg-turbo decodes it.
    ///
    /// # Errors
    /// As [`ImageFile::decode`].
    pub fn decode_window(self, channels: Channels, window: &Window, pixels: &mut Vec<u8>) -> Result<Window, BadValue> {
        let header = self.header;
        match self.decoder {
            Decoder::Jpeg(file) => {
                let (decoded, found) = file.decode(header, window, pixels)?;
                let header = Header { height: found.height, width: found.width, ..header };
                convert(pixels, header, decoded, channels)?;
                return Ok(found);
            }
            Decoder::Other(decoder) => match (decoder.color_type(), channels) {
                (ColorType::Rgb8, Channels::Rgb) | (ColorType::L8, Channels::Gray) => {
                    zeroed(pixels, usize::try_from(decoder.total_bytes()).unwrap_or(0));
                    decoder.read_image(pixels).map_err(BadValue::new)?;
                }
                _ => *pixels = flat(DynamicImage::from_decoder(decoder).map_err(BadValue::new)?, channels),
            },
        }
        Ok(Window::whole(header))
    }

    /// Whether [`ImageFile::decode_into`] decodes this file to these channels.
    pub(crate) fn decodes_into(&self, channels: Channels) -> bool {
        matches!(&self.decoder, Decoder::Jpeg(file) if channels == Channels::Rgb && file.decodes_into())
    }

    /// Decodes the image as [`ImageFile::decode`] does, into memory that has as many bytes as the pixels. After an error,
    /// some of them are written.
    pub(crate) fn decode_into(self, pixels: &mut [u8]) -> Result<(), BadValue> {
        match self.decoder {
            Decoder::Jpeg(file) => file.decode_into(self.header, pixels),
            Decoder::Other(_) => Err(BadValue::new("only JPEG files are decoded into a tensor")),
        }
    }

    /// Decodes the image as [`ImageFile::decode`] does, then applies an orientation. Returns height and width.
    pub(crate) fn decode_oriented(
        self,
        channels: Channels,
        orientation: metadata::Orientation,
        pixels: &mut Vec<u8>,
    ) -> Result<(u32, u32), BadValue> {
        let header = self.header;
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

    /// Returns the orientation tag. A tag that cannot be read is ignored.
    pub(crate) fn orientation(&mut self) -> metadata::Orientation {
        let found = match &mut self.decoder {
            Decoder::Jpeg(file) => file.orientation(),
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

/// Returns height and width of an image after an orientation.
pub(crate) fn oriented(Header { height, width, .. }: Header, orientation: metadata::Orientation) -> (u32, u32) {
    use metadata::Orientation as Tag;
    match orientation {
        Tag::NoTransforms | Tag::FlipHorizontal | Tag::FlipVertical | Tag::Rotate180 => (height, width),
        Tag::Rotate90 | Tag::Rotate270 | Tag::Rotate90FlipH | Tag::Rotate270FlipH => (width, height),
    }
}

/// The most bytes of memory for the data of a file besides its pixels. Colour profiles have a few kibibytes.
const BESIDE_PIXELS_BYTES: u64 = 1 << 20;

fn format(file: &[u8]) -> Result<ImageFormat, BadValue> {
    image::guess_format(file).map_err(|_| {
        let start = file.get(..file.len().min(8)).unwrap_or_default().escape_ascii();
        BadValue::new(format!("it is no PNG, JPEG or WebP file: it begins with \"{start}\""))
    })
}

fn of_jpeg(file: JpegFile<'_>) -> ImageFile<'_> {
    ImageFile { header: file.header(), decoder: Decoder::Jpeg(file) }
}

fn open_other(file: &[u8], format: ImageFormat, bytes_max: u64) -> Result<ImageFile<'_>, BadValue> {
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let mut limits = Limits::default();
    let bytes = if format == ImageFormat::Png { png_bytes(file).unwrap_or(bytes_max) } else { bytes_max };
    limits.max_alloc = Some(bytes.min(bytes_max).saturating_mul(2).saturating_add(BESIDE_PIXELS_BYTES));
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(BadValue::new)?;
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

fn zeroed(pixels: &mut Vec<u8>, length: usize) {
    pixels.clear();
    pixels.resize(length, 0);
}

fn convert(pixels: &mut Vec<u8>, header: Header, from: Channels, to: Channels) -> Result<(), BadValue> {
    if from != to {
        *pixels = flat(dynamic(std::mem::take(pixels), header, from)?, to);
    }
    Ok(())
}

fn dynamic(
    pixels: Vec<u8>,
    Header { height, width, .. }: Header,
    channels: Channels,
) -> Result<DynamicImage, BadValue> {
    let image = match channels {
        Channels::Gray => GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8),
        Channels::Rgb => RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8),
    };
    image.ok_or_else(|| BadValue::new("the decoder gave fewer pixels than the header says"))
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
