//! Rotates planes of bytes.

use crate::Rotation;

/// Writes a plane of `height` x `width` bytes to `target`, rotated. A quarter turn exchanges height and width.
pub(crate) fn rotate(plane: &[u8], (height, width): (usize, usize), rotation: Rotation, target: &mut Vec<u8>) {
    target.clear();
    let columns = |column: usize| plane.iter().skip(column).step_by(width.max(1)).copied();
    match rotation {
        Rotation::None => target.extend_from_slice(plane),
        Rotation::Half => target.extend(plane.iter().rev()),
        // The first row is the first column from the bottom up.
        Rotation::Clockwise90 => (0..width).for_each(|column| {
            let start = target.len();
            target.extend(columns(column));
            target.get_mut(start..).unwrap_or_default().reverse();
        }),
        // The first row is the last column from the top down.
        Rotation::Clockwise270 => (0..width).rev().for_each(|column| target.extend(columns(column))),
    }
    debug_assert_eq!(target.len(), height * width);
}
