//! What the rows of a column are.

use std::fmt;

use crate::{Dtype, Error, Result};

/// The most bytes of a row that is compressed: 1 GiB.
pub const ROW_BYTES_MAX: usize = 1 << 30;

/// The type of the elements of a row, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowType {
    dtype: Dtype,
    num_elements: usize,
}

impl RowType {
    /// Returns the rows of a shape.
    ///
    /// # Errors
    /// [`Error::NoRow`] for shapes without elements, and of more than [`ROW_BYTES_MAX`] bytes.
    pub fn try_new(dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let num_elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        let num_bytes = num_elements.and_then(|elements| elements.checked_mul(dtype.width()));
        let shown = || format!("{}{shape:?}", dtype.name());
        match (num_elements, num_bytes) {
            (Some(0), _) => Err(Error::NoRow { reason: format!("a tensor {} has no elements", shown()) }),
            (Some(num_elements), Some(..=ROW_BYTES_MAX)) => Ok(Self { dtype, num_elements }),
            _ => {
                let reason = format!("a tensor {} has more than {ROW_BYTES_MAX} bytes", shown());
                Err(Error::NoRow { reason })
            }
        }
    }

    /// The type of an element.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The number of elements: at least 1.
    pub fn num_elements(&self) -> usize {
        self.num_elements
    }

    /// The number of bytes: at most [`ROW_BYTES_MAX`].
    pub fn num_bytes(&self) -> usize {
        self.num_elements * self.dtype.width()
    }
}

impl fmt::Display for RowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements of {}", self.num_elements, self.dtype.name())
    }
}
