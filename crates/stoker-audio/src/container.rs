//! Detects the format of a file.

use crate::BadSound;
use crate::mpeg_frame::Frame;

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// RIFF or RF64 of the form WAVE (EBU Tech 3306).
    Wav,
    /// Native FLAC (RFC 9639), which begins at this offset, after ID3 tags.
    Flac(usize),
    /// Ogg (RFC 3533).
    Ogg,
    /// Frames of MPEG audio (ISO/IEC 11172-3), which begin at this offset or later, after ID3 tags.
    Mpeg(usize),
    /// ISO base media (ISO/IEC 14496-12): MP4, M4A, MOV.
    Mp4,
    /// Matroska and WebM (RFC 9559).
    Matroska,
}

/// The brands of image files that have the container of MP4.
const IMAGE_BRANDS: [&[u8; 4]; 8] = [b"avif", b"avis", b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1"];

/// Tells whether bytes are a sound file, by their first bytes: WAV, FLAC, Ogg, MP3, MP4 or Matroska.
///
/// An MP3 file begins with an ID3 tag, or with two frames that follow each other and have the same format. A file of
/// the right container may still have no track of sound, or one that is not supported; [`header`](crate::header) reads
/// more.
pub fn is_sound(bytes: &[u8]) -> bool {
    Container::detect(bytes).is_ok()
}

impl Container {
    /// Detects the format.
    ///
    /// # Errors
    /// [`BadSound`] for files of other formats.
    pub fn detect(file: &[u8]) -> Result<Self, BadSound> {
        let found = match file {
            [b'R', b'I' | b'F', b'F' | b'6', b'F' | b'4', _, _, _, _, b'W', b'A', b'V', b'E', ..]
                if file.starts_with(b"RIFF") || file.starts_with(b"RF64") =>
            {
                Some(Self::Wav)
            }
            [b'O', b'g', b'g', b'S', ..] => Some(Self::Ogg),
            [0x1A, 0x45, 0xDF, 0xA3, ..] => Some(Self::Matroska),
            [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => {
                let is_image = brand.first_chunk::<4>().is_some_and(|brand| IMAGE_BRANDS.contains(&brand));
                (!is_image).then_some(Self::Mp4)
            }
            _ => {
                let start = id3_bytes(file);
                let rest = file.get(start..).unwrap_or_default();
                if rest.starts_with(b"fLaC") {
                    Some(Self::Flac(start))
                } else {
                    (start > 0 || Frame::follows(rest)).then_some(Self::Mpeg(start))
                }
            }
        };
        found.ok_or_else(|| match file {
            [] => BadSound::new("the file is empty"),
            _ => {
                let start = file.get(..file.len().min(8)).unwrap_or_default().escape_ascii();
                BadSound::new(format!("it is no WAV, FLAC, Ogg, MP3, MP4 or Matroska file: it begins with \"{start}\""))
            }
        })
    }
}

/// Returns the bytes of the ID3v2 tags at the start of bytes (ID3v2.4.0, section 3.1), which may be more than there
/// are.
pub(crate) fn id3_bytes(file: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&[b'I', b'D', b'3', 2..=4, revision, flags, a, b, c, d]) =
        file.get(at..).and_then(|rest| rest.first_chunk::<10>())
    {
        let digits = [a, b, c, d];
        if revision == 0xFF || digits.iter().any(|digit| *digit >= 0x80) {
            break;
        }
        let size = digits.iter().fold(0, |size, digit| size << 7 | usize::from(*digit));
        let footer = if flags & 0x10 != 0 { 10 } else { 0 };
        at += 10 + size + footer;
    }
    at
}
