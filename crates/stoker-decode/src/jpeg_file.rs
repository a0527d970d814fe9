//! JPEG files whose header was read, for both decoders.

use image::metadata::Orientation;
use zune_jpeg::JpegDecoder as ZuneDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::segments::{has_end, is_lossless, orientation};
use crate::turbo::Opened;
use crate::{BadValue, Channels, Decompressor, Header, Window};

/// The most bytes that libjpeg takes beside a limit of bytes for the rounding of edges: one row of units of 32 pixels,
/// two bytes for each sample, at the largest width.
const EDGES_BYTES: u64 = 16 << 20;

pub(crate) struct JpegFile<'a> {
    file: &'a [u8],
    decoder: Decoder<'a>,
}

enum Decoder<'a> {
    Zune(Box<ZuneDecoder<ZCursor<&'a [u8]>>>),
    Turbo(Opened<'a>, u32),
}

impl<'a> JpegFile<'a> {
    pub fn open_zune(file: &'a [u8]) -> Result<Self, BadValue> {
        let options =
            DecoderOptions::default().set_strict_mode(false).set_max_width(usize::MAX).set_max_height(usize::MAX);
        let mut decoder = ZuneDecoder::new_with_options(ZCursor::new(file), options);
        decoder.decode_headers().map_err(BadValue::new)?;
        Ok(Self { file, decoder: Decoder::Zune(Box::new(decoder)) })
    }

    /// Opens a file with libjpeg-turbo. Files whose coefficients take more than twice `bytes_max` are refused before
    /// libjpeg takes this memory.
    pub fn open_turbo(decompressor: &'a mut Decompressor, file: &'a [u8], bytes_max: u64) -> Result<Self, BadValue> {
        if is_lossless(file) {
            return Err(BadValue::new("lossless JPEG files are not supported"));
        }
        let opened = decompressor.open(file)?;
        let (bytes, limit) = (opened.coefficient_bytes(), bytes_max.saturating_mul(2).saturating_add(EDGES_BYTES));
        if bytes > limit {
            return Err(BadValue::new(format!("coefficients take {bytes} bytes, more than the limit of {limit}")));
        }
        Ok(Self { file, decoder: Decoder::Turbo(opened, 1) })
    }

    pub fn header(&self) -> Header {
        match &self.decoder {
            Decoder::Zune(decoder) => {
                let (width, height) = decoder.dimensions().unwrap_or_default();
                let has_color = !matches!(decoder.input_colorspace(), Some(ColorSpace::Luma | ColorSpace::LumaA));
                #[expect(clippy::cast_possible_truncation, reason = "a header of a JPEG file has 16 bits for each")]
                let (height, width) = (height as u32, width as u32);
                Header { height, width, has_color }
            }
            Decoder::Turbo(opened, _) => {
                let shape = opened.shape();
                Header { height: shape.height, width: shape.width, has_color: shape.channels > 1 }
            }
        }
    }

    pub fn orientation(&self) -> Option<Orientation> {
        match &self.decoder {
            Decoder::Zune(decoder) => decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif)),
            Decoder::Turbo(..) => orientation(self.file),
        }
    }

    /// Sets the scale. Returns whether the decoder has it.
    pub fn shrink(&mut self, to: u32) -> bool {
        match &mut self.decoder {
            Decoder::Zune(_) => false,
            Decoder::Turbo(_, denominator) => {
                *denominator = to;
                true
            }
        }
    }

    /// Whether [`JpegFile::decode_into`] decodes the file: if libjpeg-turbo does, at full size and to three channels.
    pub fn decodes_into(&self) -> bool {
        matches!(&self.decoder, Decoder::Turbo(opened, 1) if opened.shape().channels == 3)
    }

    /// Decodes the whole image to three channels into `pixels`, which has as many bytes.
    pub fn decode_into(self, header: Header, pixels: &mut [u8]) -> Result<(), BadValue> {
        match self.decoder {
            Decoder::Turbo(opened, _) if !opened.has_end() => Err(cut_off()),
            Decoder::Turbo(opened, _) => opened.decode_into(header, pixels),
            Decoder::Zune(_) => Err(BadValue::new("zune-jpeg does not decode into a tensor")),
        }
    }

    /// Decodes at least a window to one channel for gray images, else to three. `header` has the size of the whole
    /// image at the scale. Returns the window that was decoded.
    pub fn decode(self, header: Header, window: &Window, pixels: &mut Vec<u8>) -> Result<(Channels, Window), BadValue> {
        let has_end = match &self.decoder {
            Decoder::Zune(_) => has_end(self.file),
            Decoder::Turbo(opened, _) => opened.has_end(),
        };
        if !has_end {
            return Err(cut_off());
        }
        let channels = if header.has_color { Channels::Rgb } else { Channels::Gray };
        match self.decoder {
            Decoder::Zune(mut decoder) => {
                let colors = if header.has_color { ColorSpace::RGB } else { ColorSpace::Luma };
                let options = decoder.options().jpeg_set_out_colorspace(colors);
                decoder.set_options(options);
                // The buffer is zeroed, because the parts that the decoder leaves out of a damaged image must not
                // depend on the previous image.
                pixels.clear();
                pixels.resize(decoder.output_buffer_size().unwrap_or(0), 0);
                decoder.decode_into(pixels).map_err(BadValue::new)?;
                Ok((channels, Window::whole(header)))
            }
            Decoder::Turbo(opened, denominator) => {
                let found = opened.decode(denominator, header, window, pixels)?;
                if pixels.len() == found.height as usize * found.width as usize * 4 {
                    cmyk_to_rgb(pixels);
                }
                Ok((channels, found))
            }
        }
    }
}

fn cut_off() -> BadValue {
    BadValue::new("the JPEG file ends before its image does")
}

/// Decodes a JPEG file into `pixels` with zune-jpeg and no further checks: the baseline of benchmarks.
///
/// # Errors
/// [`BadValue`] for files that the decoder refuses.
pub fn decode_jpeg_alone(file: &[u8], pixels: &mut [u8]) -> Result<(), BadValue> {
    ZuneDecoder::new(ZCursor::new(file)).decode_into(pixels).map_err(BadValue::new)
}

/// Converts inverted CMYK, which is what Adobe's programs write, to RGB in place, as zune-jpeg does: each colour times
/// black, divided by 255.
fn cmyk_to_rgb(pixels: &mut Vec<u8>) {
    let times = |a: u8, b: u8| {
        let product = u32::from(a) * u32::from(b) + 128;
        #[expect(clippy::cast_possible_truncation, reason = "the quotient is at most 255")]
        let quotient = ((product + (product >> 8)) >> 8) as u8;
        quotient
    };
    let num_pixels = pixels.len() / 4;
    for index in 0..num_pixels {
        let Some(&[cyan, magenta, yellow, black]) = pixels[index * 4..].first_chunk::<4>() else { break };
        let rgb = [times(cyan, black), times(magenta, black), times(yellow, black)];
        pixels[index * 3..index * 3 + 3].copy_from_slice(&rgb);
    }
    pixels.truncate(num_pixels * 3);
}
