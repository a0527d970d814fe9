//! Rows of arrays in Fortran's order, of which the first index changes first.
//!
//! The elements of one place in all rows lie together, and those of a row far from each other. A batch of rows is read
//! with one read for each place in a row, whose elements are then put into their rows.

use std::io;
use std::sync::Arc;

use super::RowBytes;
use stoker_files::FileBytes;

/// The most elements of a row, each of which costs a read for each batch, unless the array is in memory.
pub(crate) const FORTRAN_READS_MAX: usize = 1024;

/// Rows of an array in Fortran's order.
#[derive(Debug)]
pub(crate) struct FortranRows {
    file: Arc<dyn FileBytes>,
    /// The offset of the array in the file.
    offset: u64,
    num_rows: u64,
    next_row: u64,
    element_bytes: usize,
    /// The shape of a row.
    shape: Vec<usize>,
    strip: Vec<u8>,
}

impl FortranRows {
    /// Makes rows of an array at an offset of a file. The memory is that of one element of all rows of a batch.
    pub fn new(file: Arc<dyn FileBytes>, offset: u64, num_rows: u64, element_bytes: usize, shape: &[usize]) -> Self {
        let element_bytes = element_bytes.max(1);
        Self { file, offset, num_rows, next_row: 0, element_bytes, shape: shape.to_vec(), strip: Vec::new() }
    }
}

impl RowBytes for FortranRows {
    fn fill(&mut self, rows: &mut [u8]) -> io::Result<u64> {
        let row_bytes = self.element_bytes.saturating_mul(self.shape.iter().product()).max(1);
        let count = rows.len() / row_bytes;
        self.strip.resize(count.saturating_mul(self.element_bytes), 0);
        for (strip, index) in FortranOrder::new(&self.shape).enumerate() {
            let first = (strip as u64).saturating_mul(self.num_rows).saturating_add(self.next_row);
            let at = self.offset.saturating_add(first.saturating_mul(self.element_bytes as u64));
            self.file.read_at(at, &mut self.strip)?;
            let start = index.saturating_mul(self.element_bytes);
            let elements = self.strip.chunks_exact(self.element_bytes);
            for (row, element) in rows.chunks_exact_mut(row_bytes).zip(elements) {
                if let Some(into) = row.get_mut(start..start.saturating_add(element.len())) {
                    into.copy_from_slice(element);
                }
            }
        }
        self.next_row = self.next_row.saturating_add(count as u64);
        Ok(rows.len() as u64)
    }
}

/// The elements of an array in Fortran's order; for each, its index in C's order.
struct FortranOrder<'a> {
    shape: &'a [usize],
    /// For each dimension, the distance of neighbours in C's order.
    steps: Vec<usize>,
    /// The place of the next element in each dimension.
    at: Vec<usize>,
    index: usize,
    left: usize,
}

impl<'a> FortranOrder<'a> {
    fn new(shape: &'a [usize]) -> Self {
        let mut step = 1usize;
        let mut steps: Vec<usize> = Vec::with_capacity(shape.len());
        for size in shape.iter().rev() {
            steps.push(step);
            step = step.saturating_mul(*size);
        }
        steps.reverse();
        Self { shape, steps, at: vec![0; shape.len()], index: 0, left: step }
    }
}

impl Iterator for FortranOrder<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let index = self.index;
        for ((at, size), step) in self.at.iter_mut().zip(self.shape).zip(&self.steps) {
            *at += 1;
            self.index = self.index.saturating_add(*step);
            if *at < *size {
                break;
            }
            self.index = self.index.saturating_sub(at.saturating_mul(*step));
            *at = 0;
        }
        Some(index)
    }
}
