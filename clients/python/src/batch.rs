//! A training batch for Python.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow_array::{ArrayRef, BooleanArray, Int64Array, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{Field, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stoker_batch::{BatchBuckets, BufferPool, RowMemory, Windows};
use stoker_columns::ragged::{Padding, RaggedValues, ragged_values};
use stoker_columns::{MASK_KEY, Mismatch, column_validity, dense_values};
use stoker_decode::{bucket_row_seed, sample_seed};
use stoker_session::session::{BatchKey, Fetched};
use stoker_types::{Digest, ErrorKind, Share, StreamSpec};

use crate::arrow_export::{ArrowArray, ArrowSchema};
use crate::batch_columns::BatchColumns;
use crate::dlpack::TensorColumn;
use crate::exceptions::error;
use crate::stream_handle::pairs;

/// The name with which the seeds of rows are made, where the seeds of decoders have the name of a column. Not a column.
const ROW_DRAWS: &str = "stoker.PerRow";

/// The bytes of memory for padded rows that are kept for the next batches.
const PADDED_BYTES_KEPT: usize = 64 << 20;

/// The memory of padded rows. New memory costs more than what is written to it.
static PADDED_MEMORY: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(PADDED_BYTES_KEPT));

/// One rank's rows of one global batch.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct Batch {
    columns: BatchColumns,
    /// The step, epoch, position and row addresses of the batch.
    #[pyo3(get)]
    place: Py<BatchPlace>,
    /// What a session needs to count the batch.
    pub(crate) key: BatchKey,
}

/// The name of a column, a capsule with its tensor, and the type as which its numbers are to be seen.
type NamedTensor<'a, 'py> = (&'a str, Option<Bound<'py, PyAny>>, Option<&'static str>);

/// The offsets of each level of lists, the elements, and the sizes of tensors of which each has its own shape.
type RaggedColumn = (Vec<Py<ArrowArray>>, Py<ArrowArray>, Option<Py<ArrowArray>>);

/// The elements of padded rows, the sizes of the stored dimensions, the lengths of the rows, and the mask.
type PaddedColumn = (Py<ArrowArray>, Vec<usize>, Py<ArrowArray>, Option<Py<ArrowArray>>);

/// The identity of a batch's rows: their addresses, step, epoch and position, without the columns.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct BatchPlace {
    row_addrs: Vec<Arc<UInt64Array>>,
    spec: Arc<StreamSpec>,
    stream_id: Digest,
    share: Share,
    /// The buckets that the rows belong to, if they are those of buckets.
    buckets: Option<Arc<BatchBuckets>>,
    /// The columns of the batch.
    schema: SchemaRef,
    /// Which rows have a value, for each column in which some have none.
    masks: Vec<(String, Arc<BooleanArray>)>,
    /// The substituted rows, one entry each: the row's index in the batch, the addresses of the bad row that it
    /// replaces, and what is wrong with that bad row.
    #[pyo3(get)]
    substituted: Vec<(usize, Vec<u64>, String)>,
    /// The zero-based number of the global batch, counted from the start of the training.
    #[pyo3(get)]
    step: u64,
    /// The epoch.
    #[pyo3(get)]
    epoch: u64,
    /// The first position of the order after this global batch.
    #[pyo3(get)]
    position: u64,
    /// The number of rows that are not padding; these rows come first.
    #[pyo3(get)]
    num_valid: usize,
    /// The number of rows, padding included.
    #[pyo3(get)]
    num_rows: usize,
}

impl Batch {
    /// Wraps a batch of a session.
    pub(crate) fn try_new(py: Python<'_>, fetched: Fetched) -> PyResult<Self> {
        let Fetched { batch, packs, share, step, key, spec } = fetched;
        let bad = batch.substituted.into_iter().map(|found| (found.row, found.row_addrs, found.reason));
        let masks = (0..batch.data.num_columns()).filter_map(|index| {
            let valid = column_validity(&batch.data, index)?;
            let name = batch.data.schema_ref().field(index).name().clone();
            Some((name, Arc::new(BooleanArray::new(valid.into_inner(), None))))
        });
        let masks: Vec<(String, Arc<BooleanArray>)> = masks.collect();
        let num_rows = batch.data.num_rows();
        let columns = BatchColumns::new(batch.data, packs);
        let place = BatchPlace {
            schema: columns.schema(),
            masks,
            row_addrs: batch.row_addrs.into_iter().map(|addrs| Arc::new(UInt64Array::from(addrs))).collect(),
            spec,
            stream_id: batch.cursor.stream_id,
            share,
            buckets: batch.buckets,
            substituted: bad.collect(),
            step,
            epoch: batch.cursor.epoch,
            position: batch.cursor.position,
            num_valid: batch.num_valid,
            num_rows,
        };
        Ok(Self { columns, place: Py::new(py, place)?, key })
    }
}

#[pymethods]
impl Batch {
    /// Whether this is the last batch of its epoch.
    #[getter]
    fn is_last(&self) -> bool {
        self.key.is_last
    }

    /// Returns the name of each column, a DLPack capsule with its tensor, which shares the memory of the batch unless the
    /// column has nulls, and the name of the type as which the tensor is to be seen, if that is not its own. Columns whose
    /// rows are no numbers of one shape have no capsule.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Vec<NamedTensor<'_, 'py>>> {
        let columns = self.columns.whole(py)?;
        let mut tensors = Vec::with_capacity(columns.num_columns());
        for (field, array) in self.columns.schema_ref().fields().iter().zip(columns.columns()) {
            let tensor = TensorColumn::of(field);
            let capsule = tensor.as_ref().map(|tensor| tensor.export(py, array)).transpose()?;
            tensors.push((field.name().as_str(), capsule.flatten(), tensor.and_then(|tensor| tensor.view)));
        }
        Ok(tensors)
    }

    /// The columns of the batch.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema(self.columns.schema())
    }

    /// Returns the numbers of all rows of a column, row-major and without nulls; booleans are uint8. `None` for a column
    /// whose rows are no numbers of one shape.
    fn numbers(&self, py: Python<'_>, index: usize) -> PyResult<Option<Py<ArrowArray>>> {
        let array = self.column(py, index)?.1;
        let values = py.detach(|| dense_values(&array));
        values.map(|values| Py::new(py, ArrowArray::from_values(values))).transpose()
    }

    /// Returns the rows of a column of rows of different lengths, which share the memory of the batch unless it has nulls.
    fn ragged(&self, py: Python<'_>, index: usize) -> PyResult<RaggedColumn> {
        let ragged = self.ragged_values(py, index)?;
        let array = |values: ArrayRef| Py::new(py, ArrowArray::from_values(values));
        let integers = |values: ScalarBuffer<i64>| array(Arc::new(Int64Array::new(values, None)));
        let offsets = ragged.offsets.into_iter().map(integers).collect::<PyResult<Vec<_>>>()?;
        Ok((offsets, array(ragged.values)?, ragged.sizes.map(integers).transpose()?))
    }

    /// Returns the rows of such a column in one array. `element_len` is the number of values of an element of its lists,
    /// `first_axis` the number of the stored dimension that is the first one of a row.
    fn padded(
        &self,
        py: Python<'_>,
        index: usize,
        padding: PaddingRequest,
        element_len: usize,
        first_axis: usize,
    ) -> PyResult<PaddedColumn> {
        let ragged = self.ragged_values(py, index)?;
        let padding = Padding {
            fill: padding.fill,
            multiple: padding.multiple,
            length: padding.length,
            truncates: padding.truncate,
            needs_mask: padding.mask,
        };
        let take = |bytes| RowMemory::of_bytes(bytes, Some(&PADDED_MEMORY)).map_err(|refused| refused.to_string());
        let padded = py.detach(|| ragged.padded_in(&padding, element_len, first_axis, take));
        let padded = padded.map_err(|wrong| self.refuse(py, index, &wrong))?;
        let array = |values: ArrayRef| Py::new(py, ArrowArray::from_values(values));
        let lengths = array(Arc::new(Int64Array::from(padded.lengths)))?;
        Ok((array(padded.values)?, padded.sizes, lengths, padded.mask.map(array).transpose()?))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        ArrowArray::from_batch(self.columns.whole(py)?.clone()).__arrow_c_array__(py, requested_schema)
    }
}

impl Batch {
    fn column(&self, py: Python<'_>, index: usize) -> PyResult<(&Field, ArrayRef)> {
        let field = self.columns.schema_ref().fields().get(index);
        let missing = || error(py, ErrorKind::Internal, &format!("the batch has no column {index}"));
        Ok((field.ok_or_else(missing)?.as_ref(), self.columns.column(py, index)?))
    }

    fn ragged_values(&self, py: Python<'_>, index: usize) -> PyResult<RaggedValues> {
        let (field, array) = self.column(py, index)?;
        match py.detach(|| ragged_values(field, &array)) {
            Ok(Some(ragged)) => Ok(ragged),
            Ok(None) => {
                let message =
                    format!("column {} ({}) has no rows of different lengths", field.name(), array.data_type());
                Err(error(py, ErrorKind::InvalidRequest, &message))
            }
            Err(wrong) => Err(self.refuse(py, index, &wrong)),
        }
    }

    fn refuse(&self, py: Python<'_>, index: usize, wrong: &Mismatch) -> PyErr {
        let name = self.column(py, index).map_or("?", |(field, _)| field.name().as_str());
        let row = wrong.row.map_or_else(String::new, |row| format!(", row {row} of the batch"));
        error(py, ErrorKind::InvalidRequest, &format!("column {name}{row}: {wrong}"))
    }
}

/// How rows are padded, as `PaddingRequest` in `_native.pyi` says.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PaddingRequest {
    fill: Vec<u8>,
    multiple: usize,
    length: Option<usize>,
    truncate: bool,
    mask: bool,
}

#[pymethods]
impl BatchPlace {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// The names of the columns that were written with a mask.
    #[getter]
    fn masked(&self) -> Vec<&str> {
        let fields = self.schema.fields().iter().filter(|field| field.metadata().contains_key(MASK_KEY));
        fields.map(|field| field.name().as_str()).collect()
    }

    /// For each column whose mask is a column that the batch lacks, the name of that column.
    #[getter]
    fn missing_masks(&self) -> HashMap<&str, &str> {
        let fields = self.schema.fields().iter();
        let masked = fields.filter_map(|field| Some((field.name().as_str(), field.metadata().get(MASK_KEY)?.as_str())));
        masked.filter(|(_, mask)| self.schema.field_with_name(mask).is_err()).collect()
    }

    /// For each column in which some rows have no value, its name and which rows have one.
    fn masks(&self, py: Python<'_>) -> PyResult<Vec<(&str, Py<ArrowArray>)>> {
        self.masks
            .iter()
            .map(|(name, mask)| Ok((name.as_str(), Py::new(py, ArrowArray::from_values(mask.clone()))?)))
            .collect()
    }

    /// The stream id: 64 hexadecimal digits.
    #[getter]
    fn stream_id(&self) -> String {
        self.stream_id.to_string()
    }

    /// For each query, the tables that supply its rows, as pairs of table and version, in the order of row addresses.
    #[getter]
    fn row_tables(&self) -> Vec<Vec<(String, u64)>> {
        self.spec.sources.iter().map(|source| pairs(&source.tables)).collect()
    }

    /// Returns the row addresses: one array for each table that supplies rows, with one address per row of the batch.
    fn row_addrs(&self, py: Python<'_>) -> PyResult<Vec<Py<ArrowArray>>> {
        let array = |addrs: &Arc<UInt64Array>| Py::new(py, ArrowArray::from_values(addrs.clone()));
        self.row_addrs.iter().map(array).collect()
    }

    /// Returns the position of a row of the batch in the order of its epoch.
    fn row_position(&self, row: usize) -> u64 {
        self.place_of(row).0
    }

    /// Returns a seed for each row, with which transforms of single rows draw.
    fn row_seeds(&self, py: Python<'_>) -> PyResult<Py<ArrowArray>> {
        let seed = |row| {
            let (position, of_bucket) = self.place_of(row);
            let seed = sample_seed(self.spec.seed, self.epoch, position, ROW_DRAWS);
            of_bucket.map_or(seed, |row| bucket_row_seed(seed, row))
        };
        let seeds = UInt64Array::from_iter_values((0..self.num_rows).map(seed));
        Py::new(py, ArrowArray::from_values(Arc::new(seeds)))
    }

    /// Returns, for indices of rows in the batch, the index of the mixture's query that each row comes from.
    fn sources(&self, rows: Vec<usize>) -> Vec<usize> {
        let windows = Windows::new(&self.spec, self.epoch);
        rows.into_iter().map(|row| windows.of(self.place_of(row).0).row(0).source).collect()
    }
}

impl BatchPlace {
    /// Returns the position of a row and, for a row of a bucket, the number of the row in its bucket.
    fn place_of(&self, row: usize) -> (u64, Option<u64>) {
        let Some(buckets) = &self.buckets else { return (self.share.position(row as u64), None) };
        let (bucket, row) = buckets.place_of(row);
        (self.share.position(bucket as u64), Some(row as u64))
    }
}
