//! Declarations of tensor and vector columns: `image=uint8[3,224,224]`, `embedding=768`.

use std::str::FromStr;

use serde::{Serialize, Serializer};
use stoker_columns::TensorSpec;
use stoker_columns::tensor::WRONG_SIZES;

use crate::{Error, Result};

/// A column that becomes a fixed-shape tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorColumn {
    /// The name of the column.
    pub column: String,
    /// The type of an element, and the shape.
    pub spec: TensorSpec,
}

impl TensorColumn {
    /// Parses a type such as `uint8[3,224,224]` for a column.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], which names what is wrong with the type.
    pub fn try_new(column: &str, tensor: &str) -> Result<Self> {
        let fail = |reason: &str| Error::option("--tensor", format!("{column}={tensor}: {reason}"));
        let spec = TensorSpec::parse(tensor).map_err(|reason| fail(&reason))?;
        if column.is_empty() {
            return Err(fail(WRONG_SIZES));
        }
        Ok(Self { column: column.into(), spec })
    }
}

impl FromStr for TensorColumn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.rsplit_once('=') {
            Some((column, tensor)) => Self::try_new(column.trim(), tensor),
            None => Err(Error::option("--tensor", format!("{text:?} should be COLUMN=TYPE[SIZES]"))),
        }
    }
}

impl Serialize for TensorColumn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}={}", self.column, self.spec))
    }
}

/// A list column that becomes a vector, which is a FixedSizeList of the list's element type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VectorColumn {
    /// The name of the column.
    pub column: String,
    /// The number of elements per row.
    pub length: usize,
}

impl FromStr for VectorColumn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed =
            text.rsplit_once('=').and_then(|(column, length)| Some((column.trim(), length.trim().parse().ok()?)));
        match parsed {
            Some((column, length @ 1..=0x7fff_ffff)) if !column.is_empty() => {
                Ok(Self { column: column.into(), length })
            }
            _ => Err(Error::option("--vector", format!("{text:?} should be COLUMN=LENGTH, such as embedding=768"))),
        }
    }
}
