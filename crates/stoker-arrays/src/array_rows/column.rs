//! Columns of arrays.

use arrow_schema::{DataType, Field};
use stoker_columns::{DTYPE_KEY, TensorType, kind_of};

use super::{ArrayElement, ElementLayout, ElementOrder};
use crate::column_names::check_column_name;
use crate::{Error, Result};

/// The most bytes of a row of an array, and of all arrays that lie side by side, so that a row fits into memory.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 30;

/// The most dimensions of a row. NumPy's arrays have at most 64.
const DIMENSIONS_MAX: usize = 64;

/// A column of an array, and where its values lie in the rows of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArrayColumn {
    pub name: String,
    pub layout: ElementLayout,
    /// The shape of a row; empty for scalars.
    pub shape: Vec<usize>,
    /// The offset of the value in a row, in bytes.
    pub offset: usize,
    /// The number of bytes of a value.
    pub num_bytes: usize,
}

impl ArrayColumn {
    /// Makes a column of values that lie `offset` bytes behind the start of each row.
    ///
    /// # Errors
    /// [`Error::Column`] for a name that a table cannot have, for rows without elements, and for shapes that a table cannot
    /// have.
    pub fn try_new(file: &str, name: &str, layout: ElementLayout, shape: &[u64], offset: usize) -> Result<Self> {
        check_column_name(file, name)?;
        let fail = |reason: String| Err(Error::Column { file: file.into(), column: name.into(), reason });
        if !layout.element.is_number() && !shape.is_empty() {
            return fail(
                "texts and times with more dimensions than the rows cannot be stored; save one array of each".into(),
            );
        }
        if shape.len() > DIMENSIONS_MAX {
            return fail(format!("a row has {} dimensions; the most are {DIMENSIONS_MAX}", shape.len()));
        }
        if layout.element.num_bytes() == 0 || shape.contains(&0) {
            return fail(format!("the rows have no elements: their shape is {shape:?}"));
        }
        let sizes: Option<Vec<usize>> = shape.iter().map(|size| usize::try_from(*size).ok()).collect();
        let start = Some(layout.element.num_bytes());
        let num_bytes = sizes.iter().flatten().fold(start, |product, size| product?.checked_mul(*size));
        match (sizes, num_bytes) {
            (Some(shape), Some(num_bytes)) if num_bytes <= ROW_BYTES_MAX => {
                Ok(Self { name: name.into(), layout, shape, offset, num_bytes })
            }
            (_, num_bytes) => {
                let found = num_bytes.map_or("more than 2^64".to_string(), |bytes| bytes.to_string());
                fail(format!("a row has the shape {shape:?} and {found} bytes; the most are {ROW_BYTES_MAX}"))
            }
        }
    }

    /// Returns the number of elements of a row.
    pub fn num_elements(&self) -> usize {
        self.num_bytes / self.layout.element.num_bytes().max(1)
    }

    /// Returns the column of a table. Only times can be null.
    pub fn field(&self) -> Field {
        let element = &self.layout.element;
        let is_time = !matches!(element, ArrayElement::Utf32(_) | ArrayElement::Utf8(_)) && !element.is_number();
        let mut field = match (&self.shape[..], element) {
            ([], _) => Field::new(&self.name, element.scalar_type(), is_time),
            ([_], ArrayElement::Number(number)) if number.is_floating() => self.vector(),
            _ => {
                let tensor = TensorType { element: element.tensor_type(), shape: self.shape.clone() };
                let field = tensor.to_field(&self.name);
                kind_of(&field).canonical(&field)
            }
        };
        if let ArrayElement::Small(float) = element {
            let mut metadata = field.metadata().clone();
            metadata.insert(DTYPE_KEY.into(), float.name().into());
            field = field.with_metadata(metadata);
        }
        field
    }

    fn vector(&self) -> Field {
        let item = Field::new("item", self.layout.element.tensor_type(), false);
        let length = i32::try_from(self.num_elements()).unwrap_or(i32::MAX);
        Field::new(&self.name, DataType::FixedSizeList(item.into(), length), false)
    }

    /// Whether the bytes of the rows are those of the column.
    pub(super) fn is_whole(&self, row_bytes: usize) -> bool {
        self.offset == 0 && self.num_bytes == row_bytes
    }

    /// Whether the bytes of numbers lie in the other order than in memory.
    pub(super) fn is_swapped(&self) -> bool {
        self.layout.order == ElementOrder::Big && self.layout.element.number_bytes() > 1
    }
}
