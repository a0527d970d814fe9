//! The columns of a batch, of which those of packs are made when they are asked for.

use std::sync::{Arc, LazyLock, OnceLock};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use stoker_batch::{BufferPool, PackColumns};

use crate::exceptions::Raise;

/// The bytes of memory for columns of packs that are kept for the next batches.
const PACK_BYTES_KEPT: usize = 64 << 20;

/// The memory of columns of packs. New memory costs more than what is written to it.
static PACK_MEMORY: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(PACK_BYTES_KEPT));

/// The columns of a batch.
pub(crate) struct BatchColumns {
    stored: RecordBatch,
    /// Makes the columns that are not stored.
    packs: Option<Arc<PackColumns>>,
    /// Each column, once it was asked for; only for batches with `packs`.
    made: Vec<OnceLock<ArrayRef>>,
    whole: OnceLock<RecordBatch>,
}

impl BatchColumns {
    /// Takes the columns of a batch, and what makes those that it lacks.
    pub fn new(stored: RecordBatch, packs: Option<Arc<PackColumns>>) -> Self {
        let num_columns = packs.as_ref().map_or(0, |packs| packs.schema().fields().len());
        Self { stored, packs, made: (0..num_columns).map(|_| OnceLock::new()).collect(), whole: OnceLock::new() }
    }

    /// The schema of all columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema_ref().clone()
    }

    /// The schema of all columns.
    pub fn schema_ref(&self) -> &SchemaRef {
        self.packs.as_ref().map_or(self.stored.schema_ref(), |packs| packs.schema())
    }

    /// Returns a column, which must be one of the schema.
    pub fn column(&self, py: Python<'_>, index: usize) -> PyResult<ArrayRef> {
        let Some((packs, made)) = self.packs.as_ref().zip(self.made.get(index)) else {
            return Ok(self.stored.column(index).clone());
        };
        if let Some(made) = made.get() {
            return Ok(made.clone());
        }
        let array = py.detach(|| packs.column(&self.stored, index, Some(&PACK_MEMORY)));
        let array = array.map_err(stoker_session::Error::from).raise(py)?;
        Ok(made.get_or_init(|| array).clone())
    }

    /// Returns all columns.
    pub fn whole(&self, py: Python<'_>) -> PyResult<&RecordBatch> {
        if self.packs.is_none() {
            return Ok(&self.stored);
        }
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let schema = self.schema();
        let arrays = (0..schema.fields().len()).map(|index| self.column(py, index)).collect::<PyResult<_>>()?;
        let whole = RecordBatch::try_new(schema, arrays).raise(py)?;
        Ok(self.whole.get_or_init(|| whole))
    }
}
