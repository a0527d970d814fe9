//! Smaller scales, and the parts of an image that a resizer reads.

use fast_image_resize::Resizer;
use image::metadata::Orientation;

use super::picture;
use crate::geometry::{Placement, Region};
use crate::shrink::{denominator, shrunk};
use crate::{Channels, Header, ImageTransform, Interpolation, Jpeg, Pixels, Samples, Window, resize};

#[test]
fn the_smallest_sufficient_scale_is_chosen() {
    let of = |height: f64, width: f64, reduction_min: f64| {
        let region = Region { left: 3.0, top: 5.0, width, height };
        denominator(&Placement { region, left: 0, top: 0, width: 100, height: 100 }, reduction_min)
    };
    assert_eq!(
        [100.0, 199.0, 200.0, 399.0, 400.0, 800.0, 9_000.0].map(|edge| of(edge, 9_000.0, 1.0)),
        [1, 1, 2, 2, 4, 8, 8]
    );
    assert_eq!([399.0, 400.0, 800.0, 1_600.0].map(|edge| of(9_000.0, edge, 2.0)), [1, 2, 4, 8]);
    assert_eq!(of(50.0, 9_000.0, 2.0), 1);
}

#[test]
fn regions_keep_their_place_at_smaller_scales() {
    // The file has 21 x 37 pixels; 1/8 of it has 3 x 5, which is 24 x 40 pixels of the file.
    let region = Region { left: 8.0, top: 4.0, width: 16.0, height: 12.0 };
    let upright = shrunk(region, 8, (21, 37), (3, 5), Orientation::NoTransforms);
    assert_eq!(upright, Region { left: 1.0, top: 0.5, width: 2.0, height: 1.5 });
    let mirrored = shrunk(region, 8, (21, 37), (3, 5), Orientation::Rotate180);
    assert_eq!(mirrored, Region { left: 1.375, top: 0.875, width: 2.0, height: 1.5 });
    assert_eq!(shrunk(region, 1, (21, 37), (21, 37), Orientation::Rotate180), region);
}

#[test]
fn a_window_has_all_pixels_that_a_filter_reads() {
    let image = picture(90, 120).into_raw();
    let whole = Pixels { bytes: &image, height: 90, width: 120, channels: Channels::Rgb, samples: Samples::UInt8 };
    let header = Header { height: 90, width: 120, has_color: true };
    // The nearest pixel of a position halfway between two depends on rounding, and therefore on the window.
    let filters = [Interpolation::Box, Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos];
    for filter in filters {
        for (size, region) in [
            ((10, 20), Region { left: 31.5, top: 20.25, width: 55.5, height: 33.0 }),
            ((40, 70), Region { left: 70.0, top: 50.0, width: 20.0, height: 10.0 }),
            ((9, 9), Region { left: 0.0, top: 0.0, width: 120.0, height: 90.0 }),
        ] {
            let window = Window::around(&region, size, filter, header);
            let rows = image.chunks_exact(120 * 3).skip(window.top as usize).take(window.height as usize);
            let (from, to) = (window.left as usize * 3, (window.left + window.width) as usize * 3);
            let part: Vec<u8> = rows.flat_map(|row| &row[from..to]).copied().collect();
            let part = Pixels {
                bytes: &part,
                height: window.height,
                width: window.width,
                channels: Channels::Rgb,
                samples: Samples::UInt8,
            };
            let moved = Region {
                left: region.left - f64::from(window.left),
                top: region.top - f64::from(window.top),
                ..region
            };
            let mut resized = [(); 2].map(|()| vec![0; size.0 as usize * size.1 as usize * 3]);
            resize(&mut Resizer::new(), &whole, &region, filter, size, &mut resized[0]).unwrap();
            resize(&mut Resizer::new(), &part, &moved, filter, size, &mut resized[1]).unwrap();
            assert_eq!(resized[0], resized[1], "{filter:?}, {region:?}");
        }
    }
}

#[test]
fn transforms_from_before_the_option_keep_zune_and_their_text() {
    let transform = ImageTransform::new(8, 8);
    let text = serde_json::to_string(&transform).unwrap();
    assert!(!text.contains("jpeg"), "{text}");
    assert_eq!(serde_json::from_str::<ImageTransform>(&text).unwrap(), transform);
    let scaled = ImageTransform { jpeg: Jpeg::TurboScaled, ..transform };
    let text = serde_json::to_string(&scaled).unwrap();
    assert!(text.contains("\"jpeg\":\"turbo_scaled\""), "{text}");
    assert_eq!(serde_json::from_str::<ImageTransform>(&text).unwrap(), scaled);
}
