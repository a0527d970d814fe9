//! Reads the format and the size of an image file from its header. Pixels are not decoded.
//!
//! The formats are JPEG (ITU-T T.81), PNG (W3C PNG, third edition), WebP (RFC 9649 and, for lossy images, RFC 6386),
//! GIF (GIF89a), BMP (the headers of Windows and of OS/2) and TIFF (revision 6.0). The format is found from the
//! content. Any bytes may be given: offsets are checked, and the time is at most linear in the length of the file.

/// The format and the size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageHeader {
    /// The name of the format: `jpeg`, `png`, `webp`, `gif`, `bmp` or `tiff`.
    pub(crate) format: &'static str,
    /// The number of pixels in a row, as stored: orientation tags are not applied.
    pub(crate) width: u32,
    /// The number of rows of pixels, as stored.
    pub(crate) height: u32,
}

impl ImageHeader {
    /// Reads the header of a file. Returns `None` for other content, for a header that is cut off or contradicts its
    /// format, and for an image without pixels.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        let (format, (width, height)) = match file {
            [0xFF, 0xD8, 0xFF, ..] => ("jpeg", jpeg(file)?),
            [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => ("png", png(file)?),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ("webp", webp(file)?),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => ("gif", gif(file)?),
            [b'B', b'M', ..] => ("bmp", bmp(file)?),
            [b'I', b'I', 42, 0, ..] => ("tiff", tiff(file, u16::from_le_bytes, u32::from_le_bytes)?),
            [b'M', b'M', 0, 42, ..] => ("tiff", tiff(file, u16::from_be_bytes, u32::from_be_bytes)?),
            _ => return None,
        };
        (width > 0 && height > 0).then_some(Self { format, width, height })
    }
}

/// The width and the height of an image in pixels.
type Size = (u32, u32);

/// Returns `N` bytes at an offset.
fn bytes_at<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
    file.get(at..)?.first_chunk().copied()
}

/// Reads the first frame header (T.81, B.2.2). The segments before it are skipped by their lengths, so that the
/// thumbnails inside of them do not count. Stray bytes before a marker are skipped as decoders do. A frame whose number
/// of lines follows the scan (B.2.5) has no height.
fn jpeg(file: &[u8]) -> Option<Size> {
    let mut at = 2;
    loop {
        // A marker may have any number of fill bytes 0xFF before it (B.1.1.2).
        at += file.get(at..)?.iter().position(|byte| *byte == 0xFF)?;
        at += file.get(at..)?.iter().position(|byte| *byte != 0xFF)?;
        let marker = *file.get(at)?;
        at += 1;
        match marker {
            // A stuffed byte, and the markers without a segment: TEM, RSTn and SOI.
            0x00 | 0x01 | 0xD0..=0xD8 => {}
            // The image or its first scan, before which the frame header stands.
            0xD9 | 0xDA => return None,
            // Huffman tables, an extension and arithmetic conditioning have the other numbers of this range.
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                // The length of the segment (2 bytes) and the precision of samples (1 byte) come first.
                let height = u16::from_be_bytes(bytes_at(file, at + 3)?);
                let width = u16::from_be_bytes(bytes_at(file, at + 5)?);
                return Some((width.into(), height.into()));
            }
            _ => at += usize::from(u16::from_be_bytes(bytes_at(file, at)?)).max(2),
        }
    }
}

/// Reads the chunk IHDR, which is the first one (PNG, 11.2.1).
fn png(file: &[u8]) -> Option<Size> {
    if bytes_at::<8>(file, 8)? != *b"\0\0\0\x0DIHDR" {
        return None;
    }
    Some((u32::from_be_bytes(bytes_at(file, 16)?), u32::from_be_bytes(bytes_at(file, 20)?)))
}

/// Reads the first chunk of a WebP file (RFC 9649, sections 2.5 to 2.7 and 3.4; RFC 6386, section 9.1).
fn webp(file: &[u8]) -> Option<Size> {
    match file.get(12..16)? {
        b"VP8 " => {
            // The first bit of a key frame's tag is zero, and a start code follows the tag.
            if file.get(20)? & 1 != 0 || bytes_at::<3>(file, 23)? != [0x9D, 0x01, 0x2A] {
                return None;
            }
            // The two bits above are a scale for display.
            let size = |bytes| u32::from(u16::from_le_bytes(bytes) & 0x3FFF);
            Some((size(bytes_at(file, 26)?), size(bytes_at(file, 28)?)))
        }
        b"VP8L" => {
            if *file.get(20)? != 0x2F {
                return None;
            }
            let bits = u32::from_le_bytes(bytes_at(file, 21)?);
            Some(((bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1))
        }
        b"VP8X" => {
            let size = |[low, middle, high]: [u8; 3]| u32::from_le_bytes([low, middle, high, 0]) + 1;
            Some((size(bytes_at(file, 24)?), size(bytes_at(file, 27)?)))
        }
        _ => None,
    }
}

/// Reads the size of the logical screen (GIF89a, 18).
fn gif(file: &[u8]) -> Option<Size> {
    let width = u16::from_le_bytes(bytes_at(file, 6)?);
    let height = u16::from_le_bytes(bytes_at(file, 8)?);
    Some((width.into(), height.into()))
}

/// Reads a BITMAPCOREHEADER, a BITMAPINFOHEADER or a longer header that begins as the latter does. A negative height
/// means that the rows are stored from top to bottom.
fn bmp(file: &[u8]) -> Option<Size> {
    match u32::from_le_bytes(bytes_at(file, 14)?) {
        12 => {
            let width = u16::from_le_bytes(bytes_at(file, 18)?);
            let height = u16::from_le_bytes(bytes_at(file, 20)?);
            Some((width.into(), height.into()))
        }
        16 | 40 | 52 | 56 | 64 | 108 | 124 => {
            let width = i32::from_le_bytes(bytes_at(file, 18)?);
            let height = i32::from_le_bytes(bytes_at(file, 22)?);
            Some((u32::try_from(width).ok()?, height.unsigned_abs()))
        }
        _ => None,
    }
}

/// Reads the fields ImageWidth (256) and ImageLength (257) of the first directory, which are SHORT (3) or LONG (4)
/// (TIFF 6.0, section 2).
fn tiff(file: &[u8], short: fn([u8; 2]) -> u16, long: fn([u8; 4]) -> u32) -> Option<Size> {
    let directory = usize::try_from(long(bytes_at(file, 4)?)).ok()?;
    let num_fields = short(bytes_at(file, directory)?);
    let (mut width, mut height) = (None, None);
    for field in file.get(directory.checked_add(2)?..)?.chunks_exact(12).take(num_fields.into()) {
        let value = match short(bytes_at(field, 2)?) {
            3 => u32::from(short(bytes_at(field, 8)?)),
            4 => long(bytes_at(field, 8)?),
            _ => continue,
        };
        match short(bytes_at(field, 0)?) {
            256 => width = Some(value),
            257 => height = Some(value),
            _ => {}
        }
    }
    Some((width?, height?))
}

#[cfg(test)]
mod tests {
    use super::ImageHeader;

    /// Returns files of 640x480 pixels that consist of their headers.
    fn headers() -> Vec<(&'static str, Vec<u8>)> {
        let webp = |chunk: &[u8]| [b"RIFF\0\0\0\0WEBP".as_slice(), chunk].concat();
        let bits: u32 = 639 | (479 << 14);
        let lossless = [b"VP8L\0\0\0\0\x2F".as_slice(), bits.to_le_bytes().as_slice()].concat();
        let bmp = |header: &[u8]| [b"BM".as_slice(), &[0; 12], header].concat();
        // A thumbnail of 1x1 pixels in an Exif segment, a restart marker, a Huffman table, a stray byte, fill bytes.
        let jpeg = b"\xFF\xD8\xFF\xE1\x00\x0D\xFF\xD8\xFF\xC0\x00\x11\x08\x00\x01\x00\x01\xFF\xD0\
            \xFF\xC4\x00\x03\x01\x07\xFF\xFF\xFF\xC2\x00\x11\x08\x01\xE0\x02\x80";
        let little_endian = b"II\x2A\0\x0A\0\0\0\0\0\x02\0\
            \0\x01\x03\0\x01\0\0\0\x80\x02\0\0\x01\x01\x04\0\x01\0\0\0\xE0\x01\0\0";
        let big_endian = b"MM\0\x2A\0\0\0\x08\0\x02\
            \x01\0\0\x03\0\0\0\x01\x02\x80\0\0\x01\x01\0\x04\0\0\0\x01\0\0\x01\xE0";
        vec![
            ("jpeg", jpeg.to_vec()),
            ("png", b"\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR\0\0\x02\x80\0\0\x01\xE0".to_vec()),
            ("webp", webp(b"VP8 \0\0\0\0\x10\0\0\x9D\x01\x2A\x80\x42\xE0\x01")),
            ("webp", webp(&lossless)),
            ("webp", webp(b"VP8X\x0A\0\0\0\0\0\0\0\x7F\x02\0\xDF\x01\0")),
            ("gif", b"GIF89a\x80\x02\xE0\x01".to_vec()),
            ("bmp", bmp(b"\x0C\0\0\0\x80\x02\xE0\x01")),
            ("bmp", bmp(b"\x28\0\0\0\x80\x02\0\0\x20\xFE\xFF\xFF")),
            ("tiff", little_endian.to_vec()),
            ("tiff", big_endian.to_vec()),
        ]
    }

    #[test]
    fn headers_tell_format_and_size() {
        for (format, file) in headers() {
            assert_eq!(ImageHeader::read(&file), Some(ImageHeader { format, width: 640, height: 480 }), "{file:02X?}");
        }
    }

    #[test]
    fn headers_that_are_cut_off_are_no_images() {
        for (format, file) in headers() {
            for length in 0..file.len() {
                assert_eq!(ImageHeader::read(&file[..length]), None, "{length} bytes of {format}");
            }
        }
    }

    #[test]
    fn any_bytes_can_be_read() {
        for (_, file) in headers() {
            for at in 0..file.len() {
                for value in 0..=u8::MAX {
                    let mut damaged = file.clone();
                    damaged[at] = value;
                    if let Some(header) = ImageHeader::read(&damaged) {
                        assert!(header.width > 0 && header.height > 0, "{damaged:02X?}");
                    }
                }
            }
        }
    }

    #[test]
    fn other_content_is_no_image() {
        let files: [&[u8]; 8] = [
            b"",
            b"a text",
            b"BMW",
            b"\xFF\xD8\xFF\xD9",
            // The scan begins before a frame header.
            b"\xFF\xD8\xFF\xDA\x00\x02\xFF\xC0\x00\x11\x08\x00\x01\x00\x01",
            // No pixels.
            b"GIF89a\0\0\x01\0",
            // The directory lies behind the end.
            b"II\x2A\0\xFF\xFF\xFF\xFF",
            b"\x89PNG\r\n\x1A\n\0\0\0\x04CgBI\0\0\0\0\0\0\x02\x80\0\0\x01\xE0",
        ];
        for file in files {
            assert_eq!(ImageHeader::read(file), None, "{file:02X?}");
        }
        let fill = [b"\xFF\xD8".as_slice(), &[0xFF; 1000]].concat();
        assert_eq!(ImageHeader::read(&fill), None);
    }
}
