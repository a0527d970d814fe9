//! Pixels against Pillow's and against zune-jpeg's.

use stoker_decode::{Channels, ImageFile, Window};

use super::{DENOMINATORS, FILES, LIMIT, TURBO, decode, difference};

#[test]
fn pixels_are_those_of_pillow_at_each_scale() {
    let mut decompressor = None;
    for (name, sample) in FILES.iter() {
        for (denominator, expected) in DENOMINATORS.into_iter().zip(&sample.pixels) {
            let (.., pixels) = decode(&mut decompressor, &sample.file, denominator).unwrap();
            let (_, largest) = difference(&pixels, expected);
            // Pillow rounds the product of colour and black otherwise.
            let allowed = u8::from(name.starts_with("cmyk") || name.starts_with("ycck"));
            assert!(largest <= allowed, "{name} at 1/{denominator}: differs by {largest}");
        }
    }
}

#[test]
fn both_decoders_agree_on_sizes_and_nearly_on_pixels() {
    let mut decompressor = None;
    for (name, sample) in FILES.iter() {
        let opened = ImageFile::open(&sample.file, LIMIT).unwrap();
        let header = opened.header();
        let mut zune = Vec::new();
        opened.decode(if header.has_color { Channels::Rgb } else { Channels::Gray }, &mut zune).unwrap();
        let (height, width, pixels) = decode(&mut decompressor, &sample.file, 1).unwrap();
        assert_eq!((height, width), (header.height, header.width), "{name}");
        let (mean, largest) = difference(&pixels, &zune);
        // The decoders interpolate smaller colour planes differently, by far the most in files of 4:4:0.
        let allowed = if name.starts_with("440") { 60 } else { 6 };
        assert!(mean < 0.6 && largest <= allowed, "{name}: mean {mean:.3}, largest {largest}");
    }
}

#[test]
fn windows_have_the_pixels_of_the_whole_image() {
    let mut decompressor = None;
    for (name, sample) in FILES.iter() {
        for denominator in DENOMINATORS {
            let (height, width, whole) = decode(&mut decompressor, &sample.file, denominator).unwrap();
            let channels = if name.contains("gray") { Channels::Gray } else { Channels::Rgb };
            for turn in 0..24u32 {
                let (top, left) = (height * (turn % 4) / 7, width * (turn % 5) / 6);
                let window = Window {
                    top,
                    left,
                    height: (height - top).div_ceil(1 + turn % 3),
                    width: (width - left).div_ceil(1 + turn % 2 * 2),
                };
                let mut opened = TURBO.open(&mut decompressor, &sample.file, LIMIT).unwrap();
                opened.shrink(denominator);
                let mut pixels = Vec::new();
                let found = opened.decode_window(channels, &window, &mut pixels).unwrap();
                assert!(found.left <= left && found.left + found.width >= left + window.width);
                assert_eq!((found.top, found.height), (top, window.height));
                for row in 0..window.height {
                    let of = |pixels: &[u8], row: u32, width: u32, column: u32| {
                        let at = (row as usize * width as usize + column as usize) * channels.count();
                        pixels[at..at + window.width as usize * channels.count()].to_vec()
                    };
                    let expected = of(&whole, top + row, width, left);
                    let window_row = of(&pixels, row, found.width, left - found.left);
                    assert_eq!(window_row, expected, "{name} at 1/{denominator}, {window:?}, row {row}");
                }
            }
        }
    }
}
