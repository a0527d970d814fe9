//! Decodes what a placement needs of an image.

use image::metadata::Orientation as Tag;

use crate::geometry::{Placement, place};
use crate::image_file::oriented;
use crate::random::Draws;
use crate::shrink::{denominator, shrunk};
use crate::{BadValue, ImageFile, ImageTransform, Jpeg, Orientation, Window};

/// A decoded image, or the decoded part of it.
pub(crate) struct Placed {
    /// Where the image lies in the tensor.
    pub in_image: Placement,
    /// The same, with a region of the decoded pixels.
    pub in_pixels: Placement,
    /// Height and width of the decoded pixels.
    pub size: (u32, u32),
}

/// Places an image in the tensor and decodes it into `pixels`: at a smaller scale if the transform asks for it, and only
/// the part that the resizer reads if the decoder can.
pub(crate) fn read_placed(
    mut file: ImageFile<'_>,
    transform: &ImageTransform,
    draws: &Draws,
    pixels: &mut Vec<u8>,
) -> Result<Placed, BadValue> {
    let orientation = match transform.orientation {
        Orientation::Ignore => Tag::NoTransforms,
        Orientation::Apply => file.orientation(),
    };
    let full = oriented(file.header(), orientation);
    let in_image = place(transform, full.0, full.1, draws);
    let mut placement = in_image;
    let denominator = match transform.jpeg {
        Jpeg::TurboScaled => denominator(&placement, Jpeg::REDUCTION_MIN),
        Jpeg::Zune | Jpeg::Turbo => 1,
    };
    if denominator > 1 && file.shrink(denominator) {
        let small = oriented(file.header(), orientation);
        placement.region = shrunk(placement.region, denominator, full, small, orientation);
    }
    if orientation != Tag::NoTransforms {
        let size = file.decode_oriented(transform.channels, orientation, pixels)?;
        return Ok(Placed { in_image, in_pixels: placement, size });
    }
    let size = (placement.height, placement.width);
    let window = Window::around(&placement.region, size, transform.interpolation, file.header());
    let found = file.decode_window(transform.channels, &window, pixels)?;
    placement.region.top -= f64::from(found.top);
    placement.region.left -= f64::from(found.left);
    Ok(Placed { in_image, in_pixels: placement, size: (found.height, found.width) })
}
