//! Pixels are split into the same planes with any instructions of the processor.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::planes::split_planes;
use crate::{Channels, Frame, Layout, write_tensor};

proptest! {
    #[test]
    fn each_value_of_a_pixel_goes_to_its_place(
        (width, pixels) in (1..200usize, 1..5usize).prop_flat_map(|(width, height)| {
            (Just(width), vec(any::<[u8; 3]>(), width * height))
        }),
        is_flipped: bool,
    ) {
        let frame = Frame { width: width as u32, channels: Channels::Rgb, layout: Layout::Chw, is_flipped };
        let mut tensor = vec![0; 3 * pixels.len()];
        write_tensor(pixels.as_flattened(), &frame, &mut tensor);
        for (channel, plane) in tensor.chunks_exact(pixels.len()).enumerate() {
            for (place, value) in plane.iter().enumerate() {
                let (row, column) = (place / width, place % width);
                let column = if is_flipped { width - 1 - column } else { column };
                prop_assert_eq!(*value, pixels[row * width + column][channel]);
            }
        }
    }
}

#[test]
fn no_pixels_have_no_planes() {
    split_planes(&[], [&mut [], &mut [], &mut []]);
}
