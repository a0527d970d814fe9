//! The columns of packs that follow from where their documents begin: they are made where a batch is used.
//!
//! ```text
//! on its way:    query …,                             cu_seqlens, document_row_ids
//! for its user:  query …, position_ids, document_ids, cu_seqlens, document_row_ids
//! ```
//!
//! They would triple the bytes of packs in memory and between hosts.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use stoker_order::{write_documents, write_positions};
use stoker_types::to_usize;

use crate::{BufferPool, Error, Result, RowMemory};

/// The column with the index of each token in its document.
const POSITION_IDS: &str = "position_ids";

/// The column with the number of the document of each token, from 1.
const DOCUMENT_IDS: &str = "document_ids";

/// The columns of packs beside those of their documents, in their order. The first two are made where a batch is used.
pub const PACK_COLUMNS: [&str; 4] = [POSITION_IDS, DOCUMENT_IDS, "cu_seqlens", "document_row_ids"];

/// The columns of batches of packs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackColumns {
    /// All columns.
    schema: SchemaRef,
    /// The number of tokens in a pack.
    length: usize,
    /// The index of the first of [`PACK_COLUMNS`] among all columns.
    first: usize,
}

/// Where the values of a column come from.
enum Source {
    /// The column with this index, on its way.
    Stored(usize),
    Positions,
    Documents,
}

impl PackColumns {
    /// Returns the columns of packs of `length` tokens which have the columns `stored` on their way. Returns `None` if
    /// these are all columns, as earlier servers send them.
    pub fn of(stored: &Schema, length: u64) -> Option<Self> {
        let [.., ends, row_ids] = stored.fields().as_ref() else { return None };
        let names = [ends.name().as_str(), row_ids.name().as_str()];
        if names != PACK_COLUMNS[2..] || stored.field_with_name(POSITION_IDS).is_ok() {
            return None;
        }
        let first = stored.fields().len() - names.len();
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        let of_tokens = DataType::FixedSizeList(item, i32::try_from(length).ok()?);
        let mut fields: Vec<FieldRef> = stored.fields().to_vec();
        let made = [POSITION_IDS, DOCUMENT_IDS].map(|name| Arc::new(Field::new(name, of_tokens.clone(), false)));
        fields.splice(first..first, made);
        let schema = Arc::new(Schema::new_with_metadata(fields, stored.metadata().clone()));
        Some(Self { schema, length: to_usize(length), first })
    }

    /// Returns all columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a column of a batch by its index among all columns. Memory comes from `pool`, if there is one.
    ///
    /// # Errors
    /// `Internal` for a batch without such columns; [`Error::OutOfMemory`].
    pub fn column(&self, stored: &RecordBatch, index: usize, pool: Option<&BufferPool>) -> Result<ArrayRef> {
        match self.source(index) {
            Source::Stored(index) => stored.columns().get(index).cloned().ok_or_else(|| misfit(stored)),
            Source::Positions => self.of_tokens(stored, pool, |lengths, tokens| write_positions(lengths, tokens)),
            Source::Documents => self.of_tokens(stored, pool, |lengths, tokens| write_documents(lengths, tokens)),
        }
    }

    /// Returns a batch with all columns.
    ///
    /// # Errors
    /// As for [`PackColumns::column`].
    pub fn complete(&self, stored: &RecordBatch, pool: Option<&BufferPool>) -> Result<RecordBatch> {
        let arrays = (0..self.schema.fields().len()).map(|index| self.column(stored, index, pool));
        let options = RecordBatchOptions::new().with_row_count(Some(stored.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays.collect::<Result<_>>()?, &options)
            .map_err(Error::internal)
    }

    fn source(&self, index: usize) -> Source {
        match index.checked_sub(self.first) {
            None => Source::Stored(index),
            Some(0) => Source::Positions,
            Some(1) => Source::Documents,
            Some(_) => Source::Stored(index - 2),
        }
    }

    /// Returns a column with a number for each token, which `write` writes for the documents of a pack.
    fn of_tokens(
        &self,
        stored: &RecordBatch,
        pool: Option<&BufferPool>,
        write: impl Fn(DocumentLengths<'_>, &mut [i32]),
    ) -> Result<ArrayRef> {
        let lists = |index: usize| stored.columns().get(index).and_then(|lists| lists.as_list_opt::<i32>());
        let (Some(ends), Some(row_ids)) = (lists(self.first), lists(self.first + 1)) else {
            return Err(misfit(stored));
        };
        let Some(values) = ends.values().as_primitive_opt::<Int32Type>() else { return Err(misfit(stored)) };
        let num_values = stored.num_rows().checked_mul(self.length).ok_or_else(|| misfit(stored))?;
        let num_bytes = num_values.checked_mul(size_of::<i32>()).ok_or_else(|| misfit(stored))?;
        let mut memory = RowMemory::of_bytes(num_bytes, pool)?;
        let packs = as_numbers(&mut memory)?.chunks_exact_mut(self.length.max(1));
        for (pack, tokens) in packs.enumerate() {
            let (ends, count) = (range(ends.offsets(), pack), range(row_ids.offsets(), pack).len());
            let ends = values.values().get(ends).ok_or_else(|| misfit(stored))?;
            write(DocumentLengths { ends, left: count }, tokens);
        }
        let numbers = ScalarBuffer::<i32>::new(memory.freeze(), 0, num_values);
        let numbers = Arc::new(PrimitiveArray::<Int32Type>::new(numbers, None));
        let lists = self.sequences(numbers).map_err(Error::internal)?;
        Ok(Arc::new(lists))
    }

    fn sequences(&self, numbers: ArrayRef) -> std::result::Result<FixedSizeListArray, ArrowError> {
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        FixedSizeListArray::try_new(item, i32::try_from(self.length).unwrap_or(i32::MAX), numbers, None)
    }
}

/// The lengths of the documents of a pack.
struct DocumentLengths<'a> {
    /// Where the documents begin, and where the last one ends.
    ends: &'a [i32],
    /// The documents that are left. What comes after the last one is padding.
    left: usize,
}

impl Iterator for DocumentLengths<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let [start, rest @ ..] = self.ends else { return None };
        self.ends = rest;
        rest.first().map(|end| usize::try_from(end.saturating_sub(*start)).unwrap_or(0))
    }
}

fn as_numbers(memory: &mut RowMemory) -> Result<&mut [i32]> {
    bytemuck::try_cast_slice_mut(memory).map_err(|_| Error::internal("memory of a pool is not aligned"))
}

/// Returns the range of the values of a list.
fn range(offsets: &OffsetBuffer<i32>, index: usize) -> std::ops::Range<usize> {
    let at = |index: usize| offsets.get(index).and_then(|at| usize::try_from(*at).ok()).unwrap_or(0);
    at(index)..at(index + 1)
}

fn misfit(stored: &RecordBatch) -> Error {
    Error::internal(format!("a batch of {} packs has other columns than packs", stored.num_rows()))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, ListArray, UInt64Array};

    use super::*;

    /// Two packs of six tokens: documents of 2 and 3 tokens and padding; a document of 6 tokens.
    fn packs() -> RecordBatch {
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        let tokens = Int32Array::from_iter_values(0..12);
        let tokens = FixedSizeListArray::new(item.clone(), 6, Arc::new(tokens), None);
        let ends = Int32Array::from(vec![0, 2, 5, 6, 0, 6]);
        let ends = ListArray::new(item, OffsetBuffer::from_lengths([4, 2]), Arc::new(ends), None);
        let rows = Arc::new(Field::new("item", DataType::UInt64, false));
        let rows =
            ListArray::new(rows, OffsetBuffer::from_lengths([2, 1]), Arc::new(UInt64Array::from(vec![7, 8, 9])), None);
        let columns: [(&str, ArrayRef, bool); 3] = [
            ("tokens", Arc::new(tokens), false),
            ("cu_seqlens", Arc::new(ends), false),
            ("document_row_ids", Arc::new(rows), false),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).expect("packs")
    }

    fn numbers(batch: &RecordBatch, name: &str) -> Vec<i32> {
        batch[name].as_fixed_size_list().values().as_primitive::<Int32Type>().values().to_vec()
    }

    #[test]
    fn columns_follow_from_the_ends_of_documents() {
        let stored = packs();
        let columns = PackColumns::of(&stored.schema(), 6).expect("columns");
        for (stored, positions, documents) in [
            (stored.clone(), vec![0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 4, 5], vec![1, 1, 2, 2, 2, 0, 1, 1, 1, 1, 1, 1]),
            (stored.slice(1, 1), vec![0, 1, 2, 3, 4, 5], vec![1; 6]),
            (stored.slice(1, 0), vec![], vec![]),
        ] {
            let whole = columns.complete(&stored, None).expect("all columns");
            let names: Vec<&str> = whole.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
            assert_eq!(names, ["tokens", "position_ids", "document_ids", "cu_seqlens", "document_row_ids"]);
            assert_eq!((numbers(&whole, "position_ids"), numbers(&whole, "document_ids")), (positions, documents));
            assert_eq!(whole["cu_seqlens"].as_ref(), stored["cu_seqlens"].as_ref());
            assert_eq!(PackColumns::of(&whole.schema(), 6), None, "it has all columns");
        }
    }

    #[test]
    fn batches_without_documents_are_refused() {
        let stored = packs();
        let columns = PackColumns::of(&stored.schema(), 6).expect("columns");
        for indexes in [&[0][..], &[0, 2], &[1, 2, 0]] {
            let other = stored.project(indexes).expect("columns");
            columns.complete(&other, None).expect_err("other columns");
            assert_eq!(PackColumns::of(&other.schema(), 6), None);
        }
        // Ends that a server invents fill the pack, and nothing else.
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        let ends = Int32Array::from(vec![-5, i32::MAX, i32::MIN, 4, 9, 1]);
        let ends = ListArray::new(item, OffsetBuffer::from_lengths([4, 2]), Arc::new(ends), None);
        let arrays = vec![stored.column(0).clone(), Arc::new(ends) as ArrayRef, stored.column(2).clone()];
        let invented = RecordBatch::try_new(stored.schema(), arrays).expect("packs");
        assert_eq!(numbers(&columns.complete(&invented, None).expect("columns"), "document_ids")[..6], [1; 6]);
    }
}
