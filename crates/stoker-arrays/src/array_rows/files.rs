//! Files of arrays, whose rows come after one another.

use std::fmt;

use arrow_schema::SchemaRef;

use super::ArrayReader;
use crate::Result;
use stoker_files::{RowFiles, RowReader};

/// Files, or groups of files, whose rows come after one another.
pub(crate) trait ArrayParts: fmt::Debug + Send + Sync {
    /// The names of the parts.
    fn names(&self) -> &[String];

    /// Opens a part.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for a part that cannot be read, or is not what its format says.
    fn open(&self, part: usize) -> Result<ArrayReader>;
}

/// Parts with the same columns.
#[derive(Debug)]
pub(crate) struct ArrayFiles<P> {
    parts: P,
    schema: SchemaRef,
}

impl<P: ArrayParts> ArrayFiles<P> {
    /// Opens the first part, whose columns all parts must have.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for a first part that cannot be read, and if there is none.
    pub fn try_new(parts: P) -> Result<Self> {
        let schema = parts.open(0)?.schema().clone();
        Ok(Self { parts, schema })
    }
}

impl<P: ArrayParts> RowFiles for ArrayFiles<P> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn files(&self) -> &[String] {
        self.parts.names()
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let first = self.parts.names().first().map_or("", String::as_str);
        Ok(Box::new(self.parts.open(file)?.arranged(&self.schema, first)?))
    }
}
