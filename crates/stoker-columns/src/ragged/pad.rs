//! Rows of different lengths in an array of one shape.

use std::iter;
use std::ops::DerefMut;

use arrow_array::{Array, ArrayRef, UInt8Array, make_array};
use arrow_buffer::{Buffer, MutableBuffer, ScalarBuffer};

use super::RaggedValues;
use crate::Mismatch;

/// The maximum number of bytes of a padded column, without its mask: one long row makes all others as long.
pub const PADDED_BYTES_MAX: usize = 4 << 30;

/// How rows are padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The bytes of the element that fills the array where rows end.
    pub fill: Vec<u8>,
    /// The first dimension of rows is a multiple of this number, unless `length` is given.
    pub multiple: usize,
    /// The size of the first dimension of rows; `None` for that of the longest row.
    pub length: Option<usize>,
    /// Whether rows that are longer than `length` lose their end. Otherwise they are refused.
    pub truncates: bool,
    /// Whether a mask is needed.
    pub needs_mask: bool,
}

/// Rows of one shape.
#[derive(Clone, Debug)]
pub struct Padded {
    /// The elements of all rows, row-major.
    pub values: ArrayRef,
    /// The sizes of the dimensions in the stored order, the number of rows first, without those of elements.
    pub sizes: Vec<usize>,
    /// The sizes of each row as far as the array has it: one number for each row, or one for each dimension of a tensor
    /// of which each has its own shape.
    pub lengths: Vec<i64>,
    /// One for each element that is in a row, and zero for the others, as UInt8.
    pub mask: Option<ArrayRef>,
}

impl RaggedValues {
    /// Returns the number of rows.
    pub fn num_rows(&self) -> usize {
        self.offsets.first().map_or(0, |offsets| offsets.len().saturating_sub(1))
    }

    /// Returns all rows in one array. `element_len` is the number of values of an element, and `first_axis` the number of
    /// the stored dimension that is the first one of a row.
    ///
    /// # Errors
    /// A row that is too long, and padded rows of more than [`PADDED_BYTES_MAX`].
    pub fn padded(&self, padding: &Padding, element_len: usize, first_axis: usize) -> Result<Padded, Mismatch> {
        self.padded_in(padding, element_len, first_axis, |bytes| Ok(MutableBuffer::from_len_zeroed(bytes)))
    }

    /// Returns all rows in one array, as [`RaggedValues::padded`] does. `take` takes the memory of a number of bytes, whose
    /// content may be arbitrary.
    ///
    /// # Errors
    /// As [`RaggedValues::padded`]; the reason of `take`.
    pub fn padded_in<M: DerefMut<Target = [u8]> + Into<Buffer>>(
        &self,
        padding: &Padding,
        element_len: usize,
        first_axis: usize,
        take: impl FnOnce(usize) -> Result<M, String>,
    ) -> Result<Padded, Mismatch> {
        let (num_rows, mut dims) = (self.num_rows(), self.longest());
        if let Some(longest) = dims.get_mut(first_axis) {
            match padding.length {
                Some(length) if *longest > length && !padding.truncates => {
                    let row = (0..num_rows).find(|row| self.size(*row, first_axis) > length);
                    let found = row.map_or(*longest, |row| self.size(row, first_axis));
                    let expected = format!("at most {length} values, which is the length of padded rows");
                    return Err(Mismatch::new(row, expected, format!("{found}")));
                }
                Some(length) => *longest = length,
                None => *longest = longest.checked_next_multiple_of(padding.multiple.max(1)).unwrap_or(usize::MAX),
            }
        }
        let width = padding.fill.len().max(1);
        let num_slots = dims.iter().try_fold(num_rows, |product, size| product.checked_mul(*size));
        let num_bytes = num_slots.and_then(|slots| slots.checked_mul(element_len)?.checked_mul(width));
        let Some((num_slots, num_bytes)) = num_slots.zip(num_bytes.filter(|bytes| *bytes <= PADDED_BYTES_MAX)) else {
            let found = format!("{num_rows} rows of {dims:?} elements");
            return Err(Mismatch::new(None, format!("at most {PADDED_BYTES_MAX} bytes of padded rows"), found));
        };

        let data = self.values.to_data();
        let stored = data.buffers().first().map_or(&[][..], |buffer| buffer.as_slice());
        let stored = stored.get(data.offset() * width..).unwrap_or_default();
        let refused = |reason| Mismatch::new(None, format!("{num_bytes} bytes of memory for padded rows"), reason);
        let mut memory = take(num_bytes).map_err(refused)?;
        let bytes = memory.get_mut(..num_bytes).ok_or_else(|| refused("less".into()))?;
        let unit = element_len * width;
        let mut mask = padding.needs_mask.then(|| vec![0u8; num_slots]);
        let mut filled = 0;
        self.runs(&dims, &mut |from, to, count| {
            let source = stored.get(from * unit..(from + count) * unit).unwrap_or_default();
            let (start, end) = (to * unit, to * unit + source.len());
            if let Some(gap) = bytes.get_mut(filled..start) {
                fill(gap, &padding.fill);
            }
            if let Some(target) = bytes.get_mut(start..end) {
                target.copy_from_slice(source);
            }
            filled = end;
            if let Some(slots) = mask.as_mut().and_then(|mask| mask.get_mut(to..to + count)) {
                slots.fill(1);
            }
        });
        if let Some(gap) = bytes.get_mut(filled..) {
            fill(gap, &padding.fill);
        }

        let values =
            data.into_builder().len(num_slots * element_len).offset(0).nulls(None).buffers(vec![memory.into()]);
        let values = values.build().map_err(|error| Mismatch::new(None, "padded rows", error.to_string()))?;
        let axes = if self.sizes.is_some() { 0..dims.len() } else { 0..1 };
        let lengths = (0..num_rows).flat_map(|row| axes.clone().map(move |axis| (row, axis)));
        let kept = |(row, axis): (usize, usize)| self.size(row, axis).min(dims.get(axis).copied().unwrap_or(0));
        Ok(Padded {
            values: make_array(values),
            lengths: lengths.map(|place| i64::try_from(kept(place)).unwrap_or(i64::MAX)).collect(),
            sizes: iter::once(num_rows).chain(dims.iter().copied()).collect(),
            mask: mask.map(|mask| std::sync::Arc::new(UInt8Array::from(mask)) as ArrayRef),
        })
    }

    /// Returns the largest size of each dimension.
    fn longest(&self) -> Vec<usize> {
        match &self.sizes {
            Some(_) => (0..self.num_dims)
                .map(|axis| (0..self.num_rows()).map(|row| self.size(row, axis)).max().unwrap_or(0))
                .collect(),
            None => self.offsets.iter().map(|offsets| lengths(offsets).max().unwrap_or(0)).collect(),
        }
    }

    /// Returns the size of one dimension of a row; for lists, only the first one is a property of the row.
    fn size(&self, row: usize, axis: usize) -> usize {
        let size = match &self.sizes {
            Some(sizes) => sizes.get(row * self.num_dims + axis).copied().unwrap_or(0),
            None => return at(&self.offsets, 0, row + 1) - at(&self.offsets, 0, row),
        };
        usize::try_from(size).unwrap_or(0)
    }

    /// Calls `visit` for each run of neighbouring elements that stay neighbours: where it begins among the elements, where
    /// it goes in an array of rows of the sizes `dims`, and the number of elements. Where they go ascends.
    fn runs(&self, dims: &[usize], visit: &mut impl FnMut(usize, usize, usize)) {
        if self.sizes.is_none() {
            return self.list_runs(0, 0..self.num_rows(), 0, dims, visit);
        }
        let row_slots = dims.iter().product::<usize>();
        for row in 0..self.num_rows() {
            let sizes: Vec<usize> = (0..dims.len()).map(|axis| self.size(row, axis)).collect();
            box_runs(&sizes, dims, at(&self.offsets, 0, row), row * row_slots, visit);
        }
    }

    fn list_runs(
        &self,
        level: usize,
        lists: std::ops::Range<usize>,
        to: usize,
        dims: &[usize],
        visit: &mut impl FnMut(usize, usize, usize),
    ) {
        let slots: usize = dims.get(level..).unwrap_or_default().iter().product();
        for (slot, list) in lists.enumerate() {
            let (start, end) = (at(&self.offsets, level, list), at(&self.offsets, level, list + 1));
            let count = (end - start).min(dims.get(level).copied().unwrap_or(0));
            let to = to + slot * slots;
            if level + 1 == dims.len() {
                visit(start, to, count);
            } else {
                self.list_runs(level + 1, start..start + count, to, dims, visit);
            }
        }
    }
}

/// Fills memory with an element.
fn fill(memory: &mut [u8], element: &[u8]) {
    fn repeat<const WIDTH: usize>(memory: &mut [u8], element: &[u8]) {
        if let Some(element) = element.first_chunk::<WIDTH>() {
            memory.as_chunks_mut::<WIDTH>().0.fill(*element);
        }
    }
    match element.len() {
        _ if element.iter().all(|byte| *byte == 0) => memory.fill(0),
        1 => repeat::<1>(memory, element),
        2 => repeat::<2>(memory, element),
        4 => repeat::<4>(memory, element),
        8 => repeat::<8>(memory, element),
        width => memory.chunks_exact_mut(width).for_each(|slot| slot.copy_from_slice(element)),
    }
}

/// Visits the runs of one tensor of the given sizes in a box of the sizes `dims`.
fn box_runs(sizes: &[usize], dims: &[usize], from: usize, to: usize, visit: &mut impl FnMut(usize, usize, usize)) {
    let (Some((size, sizes)), Some((dim, dims))) = (sizes.split_first(), dims.split_first()) else { return };
    let count = *size.min(dim);
    if sizes.is_empty() {
        return visit(from, to, count);
    }
    if count == 0 {
        return;
    }
    let (step, slots) = (sizes.iter().product::<usize>(), dims.iter().product::<usize>());
    for index in 0..count {
        box_runs(sizes, dims, from + index * step, to + index * slots, visit);
    }
}

fn at(offsets: &[ScalarBuffer<i64>], level: usize, index: usize) -> usize {
    let offset = offsets.get(level).and_then(|offsets| offsets.get(index)).copied().unwrap_or(0);
    usize::try_from(offset).unwrap_or(0)
}

fn lengths(offsets: &ScalarBuffer<i64>) -> impl Iterator<Item = usize> {
    offsets.windows(2).map(|pair| usize::try_from(pair[1] - pair[0]).unwrap_or(0))
}
