//! Buffers that clips reuse.

use fast_image_resize::Resizer;

use crate::convert::Rows;

/// The buffers of one thread.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Planes of red, green and blue.
    pub rgb: [Vec<u8>; 3],
    /// A plane after rotation.
    pub rotated: Vec<u8>,
    /// Planes after resizing, where they do not go to the tensor at once.
    pub resized: [Vec<u8>; 3],
    pub rows: Rows,
    pub resizer: Resizer,
}
