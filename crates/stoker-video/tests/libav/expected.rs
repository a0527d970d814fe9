//! Reads `fixtures/expected.txt`, whose form `fixtures/make.py` describes.

/// What PyAV said about a file.
pub struct Expected {
    pub name: String,
    pub width: u32,
    pub height: u32,
    pub format: String,
    pub time_base: (u32, u32),
    pub frames: Vec<ExpectedFrame>,
}

/// What PyAV said about a frame.
pub struct ExpectedFrame {
    pub pts: i64,
    pub is_key: bool,
    /// The checksum of the planes.
    pub crc: u32,
    /// Four pixels, at the centres of the picture's quarters.
    pub rgb: Vec<u8>,
}

pub fn all() -> Vec<Expected> {
    let mut files: Vec<Expected> = Vec::new();
    for line in include_str!("../fixtures/expected.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["file", name, _, width, height, format, time_base] => {
                let (numerator, denominator) = time_base.split_once('/').expect("a fraction");
                files.push(Expected {
                    name: name.to_string(),
                    width: width.parse().expect("a number"),
                    height: height.parse().expect("a number"),
                    format: format.to_string(),
                    time_base: (numerator.parse().expect("a number"), denominator.parse().expect("a number")),
                    frames: Vec::new(),
                });
            }
            [pts, key, crc, rgb] => files.last_mut().expect("a file").frames.push(ExpectedFrame {
                pts: pts.parse().expect("a number"),
                is_key: key == "1",
                crc: u32::from_str_radix(crc, 16).expect("a number"),
                rgb: (0..rgb.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&rgb[at..at + 2], 16).expect("hex"))
                    .collect(),
            }),
            _ => panic!("the line {line:?} of expected.txt"),
        }
    }
    files
}

/// The checksum of ISO/IEC 3309, as in zlib.
pub fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!crc, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}
