//! Seeds and draws have the golden values of `RANDOMNESS.md`.

use crate::random::{Draw, Draws};
use crate::{bucket_row_seed, sample_seed};

#[test]
fn seeds_of_rows_are_what_they_always_were() {
    let check = |seed, epoch, position, column, expected: u64| {
        assert_eq!(sample_seed(seed, epoch, position, column), expected, "{seed} {epoch} {position} {column}");
    };
    check(0, 0, 0, "image", 0x28f9_5e72_fcb6_39f5);
    check(7, 0, 0, "image", 0x4bcd_24a9_b094_f480);
    check(7, 1, 0, "image", 0xa83f_6b48_f98c_8642);
    check(7, 0, 1, "image", 0x57f4_8233_e326_9176);
    check(7, 0, 0, "image_left", 0x3147_0ea5_6b74_03a5);
    check(u64::MAX, 3, 123_456_789, "image", 0x0123_53e5_b2b5_3492);
    check(7, 0, 0, "stoker.PerRow", 0x2a06_37da_1675_61ee);
    check(7, 1, 3, "stoker.PerRow", 0xe257_28bb_af5c_fd2d);
    let position_seed = sample_seed(7, 0, 0, "image");
    assert_eq!(bucket_row_seed(position_seed, 0), 0xf617_3b92_1575_5648);
    assert_eq!(bucket_row_seed(position_seed, 3), 0x04ba_957e_1058_b863);
}

#[test]
fn draws_are_what_they_always_were() {
    let draws = Draws::new(sample_seed(7, 0, 0, "image"));
    let check = |draw, expected: f64| assert_eq!(draws.unit(draw, 0), expected, "{draw:?}");
    check(Draw::Flip, 0.490_394_200_461_328_87);
    check(Draw::Left, 0.249_867_157_881_528_58);
    check(Draw::Top, 0.778_459_901_470_360_9);
    check(Draw::Area, 0.407_637_866_114_68);
    check(Draw::Ratio, 0.380_309_154_786_033);
    check(Draw::RegionLeft, 0.647_740_413_566_507);
    check(Draw::RegionTop, 0.315_669_722_601_975_9);
    check(Draw::Brightness, 0.278_191_063_093_784_7);
    check(Draw::Contrast, 0.022_220_207_871_371_356);
    check(Draw::Saturation, 0.844_714_666_100_954_4);
    check(Draw::Hue, 0.374_684_417_281_424_54);
    check(Draw::JitterOrder, 0.335_737_323_554_645_7);
    check(Draw::Angle, 0.777_351_490_583_127_8);
}

#[test]
fn crops_and_images_of_lists_have_seeds_of_their_own() {
    let seed = sample_seed(7, 0, 0, "image");
    let flip = |draws: Draws| draws.unit(Draw::Flip, 0);
    assert_eq!(flip(Draws::of_crop(seed, 0)), flip(Draws::new(seed)));
    assert_eq!(flip(Draws::of_crop(seed, 1)), flip(Draws::new(0xc7b4_236d_d825_f4d2)));
    assert_eq!(Draws::seed_of_image(seed, 0), seed);
    assert_eq!(Draws::seed_of_image(seed, 2), 0x6e00_3437_fd12_d253);
}

#[test]
fn whole_numbers_reach_both_ends() {
    let all: Vec<u32> = (0..200).map(|seed| Draws::new(seed).up_to(Draw::Left, 0, 3)).collect();
    assert!((0..=3).all(|value| all.contains(&value)) && all.iter().all(|value| *value <= 3));
}
