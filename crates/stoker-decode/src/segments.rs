//! The segments of a JPEG file before its first scan.

use image::metadata::Orientation;

const START_OF_SCAN: u8 = 0xDA;
const LOSSLESS_FRAME: u8 = 0xC3;
const APP1: u8 = 0xE1;

/// Tells whether an end-of-image marker (ITU-T T.81, B.1.1.3) comes after the start of the first scan. Previews in the
/// segments before the scan have their own markers. Compressed pixels contain no marker, as 0xFF is stuffed there
/// (F.1.2.3).
pub(crate) fn has_end(file: &[u8]) -> bool {
    has_end_marker(file.get(first_scan(file)..).unwrap_or_default())
}

/// Tells whether there is an end-of-image marker in the scans of a file.
pub(crate) fn has_end_marker(scans: &[u8]) -> bool {
    scans.windows(2).rev().any(|pair| pair == [0xFF, 0xD9])
}

/// Tells whether the image is compressed without loss (ITU-T T.81, annex H). Such files have no smaller scales.
pub(crate) fn is_lossless(file: &[u8]) -> bool {
    Segments { file, at: 2 }.any(|(marker, _)| marker == LOSSLESS_FRAME)
}

/// Returns the orientation in the last EXIF segment (CIPA DC-008, 4.5.4 and 4.6.5).
pub(crate) fn orientation(file: &[u8]) -> Option<Orientation> {
    let chunks = Segments { file, at: 2 }.filter(|(marker, _)| *marker == APP1);
    let exif = chunks.filter_map(|(_, content)| content.strip_prefix(b"Exif\0\0")).last()?;
    Orientation::from_exif_chunk(exif)
}

/// Returns the offset of the first scan, or of the first segment that is not well-formed.
fn first_scan(file: &[u8]) -> usize {
    let mut segments = Segments { file, at: 2 };
    segments.by_ref().for_each(drop);
    segments.at.min(file.len())
}

/// Markers and contents of segments, up to the first scan or to the first segment that is not well-formed.
struct Segments<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.file.get(self.at..)?;
            let &[0xFF, marker, high, low] = rest.first_chunk::<4>()? else { return None };
            match marker {
                START_OF_SCAN => return None,
                0xFF => self.at += 1,
                0x01 | 0xD0..=0xD8 => self.at += 2,
                _ => {
                    let length = usize::from(u16::from_be_bytes([high, low]));
                    self.at += 2 + length;
                    return Some((marker, rest.get(4..2 + length).unwrap_or_default()));
                }
            }
        }
    }
}
