//! The first bytes of media files.

use stoker_video::VideoIndex;

use super::FolderMedia;

/// The number of bytes that a message shows.
const BYTES_SHOWN: usize = 12;

impl FolderMedia {
    /// Checks that a file is of this kind. The endings of names may lie: a sound is any file of a known container of sounds.
    /// Nothing is decoded.
    ///
    /// # Errors
    /// Why the file is of another kind.
    pub(super) fn check(self, file: &[u8]) -> Result<(), String> {
        match self {
            FolderMedia::Any => Ok(()),
            FolderMedia::Audio if is_sound(file) => Ok(()),
            FolderMedia::Audio => Err(format!("it is no sound: it {}", shown(file))),
            // Writers refuse videos without an index.
            FolderMedia::Video => match VideoIndex::read(file) {
                Ok(_) => Ok(()),
                Err(bad) => Err(format!("it is no video whose frames are known: {}; it {}", bad.reason, shown(file))),
            },
        }
    }
}

/// Whether the first bytes are those of a container of sounds.
fn is_sound(file: &[u8]) -> bool {
    let form = file.get(8..12).unwrap_or_default();
    match file {
        // WAV (RIFF; RF64 of EBU Tech 3306), FLAC (RFC 9639), Ogg with any codec (RFC 3533), MP3 or FLAC behind an ID3 tag.
        [b'R', b'I', b'F', b'F', ..] | [b'R', b'F', b'6', b'4', ..] => form == b"WAVE",
        [b'f', b'L', b'a', b'C', ..] | [b'O', b'g', b'g', b'S', ..] | [b'I', b'D', b'3', ..] => true,
        // AAC behind an ADIF header (ISO/IEC 13818-7), and MP4 (ISO/IEC 14496-12).
        [b'A', b'D', b'I', b'F', ..] | [_, _, _, _, b'f', b't', b'y', b'p', ..] => true,
        // The sync word of ADTS, whose layer is 0, and of frames of MPEG audio, whose version 1 and layer 0 are reserved.
        [0xff, second, third, ..] => {
            let is_adts = second & 0xf6 == 0xf0;
            let is_mpeg = second & 0xe0 == 0xe0 && second & 0x18 != 0x08 && second & 0x06 != 0 && third & 0xf0 != 0xf0;
            is_adts || is_mpeg
        }
        _ => false,
    }
}

fn shown(file: &[u8]) -> String {
    match file.len() {
        0 => "has no bytes".into(),
        length => {
            let start = file.get(..length.min(BYTES_SHOWN)).unwrap_or_default();
            format!("has {length} bytes that begin with \"{}\"", start.escape_ascii())
        }
    }
}
