//! Decoding at a smaller scale: which scale suffices, and where a region lies in the smaller image.

use image::metadata::Orientation;

use crate::geometry::{Placement, Region};

/// The scales at which libjpeg-turbo has fast transforms, as denominators; the smallest image first.
const DENOMINATORS: [u32; 4] = [8, 4, 2, 1];

/// Returns the denominator of the smallest scale at which the region still has at least `reduction_min` pixels for each
/// pixel of its rectangle, in both directions; 1 if none has. Pillow's `draft` does the same with a factor of 1.
pub(crate) fn denominator(placement: &Placement, reduction_min: f64) -> u32 {
    let Placement { region, width, height, .. } = placement;
    let reduction = (region.width / f64::from(*width)).min(region.height / f64::from(*height));
    let suffices = |denominator: &u32| reduction / f64::from(*denominator) >= reduction_min;
    DENOMINATORS.into_iter().find(suffices).unwrap_or(1)
}

/// Returns where a region of an oriented image of `full` height and width lies in the same image at the size `small`,
/// which is 1/`denominator` of it, rounded up before the orientation was applied. At the right and lower edges of the
/// file, the last pixels of the smaller image reach beyond the image; after mirroring they are at the other edges.
pub(crate) fn shrunk(
    region: Region,
    denominator: u32,
    full: (u32, u32),
    small: (u32, u32),
    orientation: Orientation,
) -> Region {
    if denominator == 1 {
        return region;
    }
    let denominator = f64::from(denominator);
    let (is_mirrored_down, is_mirrored_across) = match orientation {
        Orientation::NoTransforms | Orientation::Rotate90FlipH => (false, false),
        Orientation::FlipHorizontal | Orientation::Rotate90 => (false, true),
        Orientation::FlipVertical | Orientation::Rotate270 => (true, false),
        Orientation::Rotate180 | Orientation::Rotate270FlipH => (true, true),
    };
    let edge = |start: f64, length: f64, full: u32, small: u32, is_mirrored: bool| {
        let beyond = if is_mirrored { f64::from(small) - f64::from(full) / denominator } else { 0.0 };
        let start = start / denominator + beyond;
        (start, (length / denominator).min(f64::from(small) - start))
    };
    let (top, height) = edge(region.top, region.height, full.0, small.0, is_mirrored_down);
    let (left, width) = edge(region.left, region.width, full.1, small.1, is_mirrored_across);
    Region { left, top, width, height }
}
