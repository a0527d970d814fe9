//! Chooses the region of an image and the rectangle of the tensor that the region fills.

use stoker_types::round_to_u32;

use crate::random::{Draw, Draws};
use crate::transform::{Crop, Fit, ImageTransform, RandomResizedCrop};

/// A region of an image, in pixels. Its edges may lie between pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// The distance from the image's left edge.
    pub left: f64,
    /// The distance from the image's top edge.
    pub top: f64,
    /// The width of the region.
    pub width: f64,
    /// The height of the region.
    pub height: f64,
}

impl Region {
    /// Returns the region of a whole image.
    pub fn whole(height: u32, width: u32) -> Self {
        Self { left: 0.0, top: 0.0, width: f64::from(width), height: f64::from(height) }
    }
}

/// A region, and the rectangle of the tensor that it fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placement {
    pub region: Region,
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
}

/// The number of draws of a region before the region at the centre is used, as in torchvision.
const ATTEMPTS: u64 = 10;

/// Places an image of `height` x `width` pixels in the tensor.
pub(crate) fn place(transform: &ImageTransform, height: u32, width: u32, draws: &Draws) -> Placement {
    let full = |region| Placement { region, left: 0, top: 0, width: transform.width, height: transform.height };
    if let Some(crop) = &transform.random_resized_crop {
        return full(random_region(crop, height, width, draws));
    }
    match transform.fit {
        Fit::Stretch => full(Region::whole(height, width)),
        Fit::Cover => full(covering(transform, height, width, draws)),
        Fit::Contain => contained(transform, height, width),
    }
}

fn covering(transform: &ImageTransform, height: u32, width: u32, draws: &Draws) -> Region {
    let (to_height, to_width) = (f64::from(transform.height), f64::from(transform.width));
    let (height, width) = (f64::from(height), f64::from(width));
    let scale = match transform.shorter_side {
        Some(side) => f64::from(side) / height.min(width),
        None => (to_height / height).max(to_width / width),
    };
    let (kept_height, kept_width) = ((to_height / scale).min(height), (to_width / scale).min(width));
    let (free_height, free_width) = (height - kept_height, width - kept_width);
    let (top, left) = match transform.crop {
        Crop::Center => (free_height / 2.0, free_width / 2.0),
        Crop::Random => (free_height * draws.unit(Draw::Top, 0), free_width * draws.unit(Draw::Left, 0)),
    };
    Region { left, top, width: kept_width, height: kept_height }
}

fn contained(transform: &ImageTransform, height: u32, width: u32) -> Placement {
    let (to_height, to_width) = (f64::from(transform.height), f64::from(transform.width));
    let scale = (to_height / f64::from(height)).min(to_width / f64::from(width));
    let fitted = |from: u32, to: u32| round_to_u32(f64::from(from) * scale).clamp(1, to);
    let (in_height, in_width) = (fitted(height, transform.height), fitted(width, transform.width));
    Placement {
        region: Region::whole(height, width),
        left: (transform.width - in_width) / 2,
        top: (transform.height - in_height) / 2,
        width: in_width,
        height: in_height,
    }
}

fn random_region(crop: &RandomResizedCrop, height: u32, width: u32, draws: &Draws) -> Region {
    let area = f64::from(height) * f64::from(width);
    let log_ratio = (crop.ratio.0.ln(), crop.ratio.1.ln());
    for attempt in 0..ATTEMPTS {
        let kept = area * draws.uniform(Draw::Area, attempt, crop.scale);
        let ratio = draws.uniform(Draw::Ratio, attempt, log_ratio).exp();
        let (kept_width, kept_height) = ((kept * ratio).sqrt().round(), (kept / ratio).sqrt().round());
        if kept_width >= 1.0 && kept_height >= 1.0 && kept_width <= f64::from(width) && kept_height <= f64::from(height)
        {
            let left = draws.up_to(Draw::RegionLeft, attempt, width - round_to_u32(kept_width));
            let top = draws.up_to(Draw::RegionTop, attempt, height - round_to_u32(kept_height));
            return Region { left: f64::from(left), top: f64::from(top), width: kept_width, height: kept_height };
        }
    }
    central_region(crop, height, width)
}

/// Returns the largest region at the centre whose aspect ratio is allowed.
fn central_region(crop: &RandomResizedCrop, height: u32, width: u32) -> Region {
    let ratio = f64::from(width) / f64::from(height);
    let (kept_width, kept_height) = if ratio < crop.ratio.0 {
        (width, round_to_u32(f64::from(width) / crop.ratio.0))
    } else if ratio > crop.ratio.1 {
        (round_to_u32(f64::from(height) * crop.ratio.1), height)
    } else {
        (width, height)
    };
    let (kept_width, kept_height) = (kept_width.clamp(1, width), kept_height.clamp(1, height));
    Region {
        left: f64::from((width - kept_width) / 2),
        top: f64::from((height - kept_height) / 2),
        width: f64::from(kept_width),
        height: f64::from(kept_height),
    }
}
