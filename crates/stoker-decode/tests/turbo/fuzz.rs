//! Changed files: a decoder that has decoded other files gives the same as a new one.

use stoker_decode::{Channels, Header, Window};
use stoker_fuzz::Target;

use super::{FILES, LIMIT, TURBO, decode};

#[test]
fn any_bytes_decode_alike_with_a_used_and_a_new_decoder() {
    let seeds = FILES.iter().filter(|(name, _)| name.ends_with("64x48") || name.ends_with("17x9"));
    let seeds = seeds.map(|(_, sample)| sample.file.clone());
    let tokens: [&[u8]; 8] =
        [b"\xFF\xD9", b"\xFF\xDA", b"\xFF\xC0", b"\xFF\xC2", b"\xFF\xC4", b"\xFF\xD0", b"\xFF\xDB", b"\xFF\xDC"];
    let (mut used, mut turn) = (None, 0);
    Target::new("JPEG files for libjpeg-turbo").seeds(seeds).tokens(tokens).memory_bytes_max(256 << 20).run(|input| {
        turn = (turn + 1) % 4;
        let denominator = 1 << turn;
        let found = decode(&mut used, input, denominator);
        assert_eq!(decode(&mut None, input, denominator), found);
        // Whether a file is refused does not depend on the window.
        if let Ok(mut opened) = TURBO.open(&mut used, input, LIMIT) {
            opened.shrink(denominator);
            let Header { height, width, .. } = opened.header();
            let window =
                Window { top: height / 3, left: width / 3, height: height.div_ceil(3), width: width.div_ceil(3) };
            let in_window = opened.decode_window(Channels::Rgb, &window, &mut Vec::new());
            assert_eq!(in_window.is_ok(), found.is_ok(), "{in_window:?}");
        }
        found.is_ok()
    });
}
