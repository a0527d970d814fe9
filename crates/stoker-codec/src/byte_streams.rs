//! Splits elements into streams of their bytes.

use std::array::from_fn;

/// Writes the first byte of each element, then the second byte of each, and so on. Both slices have the same length, a
/// multiple of `width`.
pub(crate) fn split(width: usize, row: &[u8], streams: &mut [u8]) {
    match width {
        2 => split_elements::<2>(row, streams),
        4 => split_elements::<4>(row, streams),
        8 => split_elements::<8>(row, streams),
        _ => streams.copy_from_slice(row),
    }
}

/// Does the opposite of [`split`].
pub(crate) fn join(width: usize, streams: &[u8], row: &mut [u8]) {
    match width {
        2 => join_two(streams, row),
        4 => join_four(streams, row),
        8 => join_eight(streams, row),
        _ => row.copy_from_slice(streams),
    }
}

fn split_elements<const WIDTH: usize>(row: &[u8], streams: &mut [u8]) {
    let (elements, _) = row.as_chunks::<WIDTH>();
    for (place, stream) in streams.chunks_exact_mut(elements.len().max(1)).enumerate() {
        stream.iter_mut().zip(elements).for_each(|(byte, element)| *byte = element[place % WIDTH]);
    }
}

/// Returns the streams, each of `length` bytes.
fn parts<const WIDTH: usize>(streams: &[u8], length: usize) -> [&[u8]; WIDTH] {
    let mut parts = streams.chunks_exact(length.max(1));
    from_fn(|_| parts.next().unwrap_or_default())
}

// These loops name each stream, so that the compiler writes several elements with one instruction.

fn join_two(streams: &[u8], row: &mut [u8]) {
    let (elements, _) = row.as_chunks_mut::<2>();
    let [a, b] = parts(streams, elements.len());
    elements.iter_mut().zip(a.iter().zip(b)).for_each(|(element, (a, b))| *element = [*a, *b]);
}

fn join_four(streams: &[u8], row: &mut [u8]) {
    let (elements, _) = row.as_chunks_mut::<4>();
    let [a, b, c, d] = parts(streams, elements.len());
    let bytes = a.iter().zip(b).zip(c.iter().zip(d));
    elements.iter_mut().zip(bytes).for_each(|(element, ((a, b), (c, d)))| *element = [*a, *b, *c, *d]);
}

fn join_eight(streams: &[u8], row: &mut [u8]) {
    let (elements, _) = row.as_chunks_mut::<8>();
    let [a, b, c, d, e, f, g, h] = parts(streams, elements.len());
    let first = a.iter().zip(b).zip(c.iter().zip(d));
    let last = e.iter().zip(f).zip(g.iter().zip(h));
    for (element, (((a, b), (c, d)), ((e, f), (g, h)))) in elements.iter_mut().zip(first.zip(last)) {
        *element = [*a, *b, *c, *d, *e, *f, *g, *h];
    }
}
