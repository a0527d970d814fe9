//! The part of an image that a decoder must give.

use stoker_types::round_to_u32;

use crate::geometry::Region;
use crate::{Header, Interpolation};

/// Whole pixels of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The number of rows above.
    pub top: u32,
    /// The number of pixels to the left.
    pub left: u32,
    /// The number of rows.
    pub height: u32,
    /// The number of pixels in a row.
    pub width: u32,
}

impl Window {
    /// Returns the window of a whole image.
    pub fn whole(header: Header) -> Self {
        Self { top: 0, left: 0, height: header.height, width: header.width }
    }

    /// Returns the pixels that a filter reads to resize a region to `size` (height, width). A filter reaches beyond the
    /// region by its radius.
    pub(crate) fn around(region: &Region, size: (u32, u32), filter: Interpolation, header: Header) -> Self {
        let radius = match filter {
            Interpolation::Nearest => 0.0,
            Interpolation::Box => 0.5,
            Interpolation::Bilinear => 1.0,
            Interpolation::Bicubic => 2.0,
            Interpolation::Lanczos => 3.0,
        };
        // One pixel more, because the resizer rounds positions.
        let edges = |start: f64, length: f64, to: u32, edge: u32| {
            let reach = (radius * (length / f64::from(to)).max(1.0)).ceil() + 1.0;
            let first = round_to_u32((start.floor() - reach).max(0.0)).min(edge.saturating_sub(1));
            let end = round_to_u32((start + length).ceil() + reach).clamp(first + 1, edge.max(first + 1));
            (first, end - first)
        };
        let (top, height) = edges(region.top, region.height, size.0, header.height);
        let (left, width) = edges(region.left, region.width, size.1, header.width);
        Self { top, left, height, width }
    }
}
