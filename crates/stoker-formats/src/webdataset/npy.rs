//! Values from NPY files of one type and shape.

use std::borrow::Cow;

use arrow_schema::Field;

use super::npy_header::{self, NpyHeader, NpyType};
use crate::values::{FieldValue, tensor};

/// The type and the shape of the arrays of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NpyArrays {
    pub element: NpyType,
    /// Empty for single numbers.
    pub shape: Vec<usize>,
}

impl NpyArrays {
    /// Returns the type and the shape of a file, if a column can have them: arrays without elements are no tensors.
    pub fn of(file: &[u8]) -> Option<Self> {
        let header = npy_header::parse(file).ok()?;
        let num_elements = header.data_bytes / header.element.width();
        let fits = (1..=i32::MAX as usize).contains(&num_elements);
        fits.then_some(Self { element: header.element, shape: header.shape })
    }

    /// Returns the column: tensors, which are never null, or numbers.
    pub fn field(&self, name: &str) -> Field {
        let element = self.element.element();
        match self.shape.is_empty() {
            true => Field::new(name, element, true),
            false => tensor(name, element, self.shape.clone()),
        }
    }

    /// Returns the elements of a file in row-major order, with the least significant byte first.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn read<'a>(&self, file: &'a [u8]) -> Result<FieldValue<'a>, String> {
        let header = npy_header::parse(file)?;
        if (header.element, &header.shape) != (self.element, &self.shape) {
            let shown = |element: NpyType, shape: &[usize]| format!("{:?}{shape:?}", element).to_lowercase();
            let (found, expected) = (shown(header.element, &header.shape), shown(self.element, &self.shape));
            return Err(format!("it has the type and shape {found}, and the first samples have {expected}"));
        }
        let data = file.get(header.data_offset..).unwrap_or_default();
        if data.len() != header.data_bytes {
            return Err(format!("it has {} bytes of elements instead of {}", data.len(), header.data_bytes));
        }
        if header.element == NpyType::Bool && data.iter().any(|byte| *byte > 1) {
            return Err("it has a boolean that is neither 0 nor 1".into());
        }
        Ok(FieldValue::Bytes(ordered(&header, data)))
    }
}

/// Returns elements in row-major order, with the least significant byte first. They are copied only if they are stored in
/// another way.
fn ordered<'a>(header: &NpyHeader, data: &'a [u8]) -> Cow<'a, [u8]> {
    let width = header.element.width();
    let data = match header.is_fortran && header.shape.len() > 1 {
        true => Cow::Owned(row_major(data, &header.shape, width)),
        false => Cow::Borrowed(data),
    };
    if !header.is_big_endian || width == 1 {
        return data;
    }
    let mut data = data.into_owned();
    data.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    Cow::Owned(data)
}

/// Copies the elements of an array whose first dimension varies fastest, so that its last one does.
fn row_major(data: &[u8], shape: &[usize], width: usize) -> Vec<u8> {
    let strides: Vec<usize> = shape
        .iter()
        .scan(1usize, |stride, size| {
            let this = *stride;
            *stride = stride.saturating_mul(*size);
            Some(this)
        })
        .collect();
    let mut at = vec![0usize; shape.len()];
    let mut ordered = Vec::with_capacity(data.len());
    while ordered.len() < data.len() {
        let element: usize = at.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
        let start = element.saturating_mul(width);
        let Some(bytes) = data.get(start..start.saturating_add(width)) else { break };
        ordered.extend_from_slice(bytes);
        for (index, size) in at.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < *size {
                break;
            }
            *index = 0;
        }
    }
    ordered
}
