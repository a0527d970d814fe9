//! The columns of packs, made from those of their documents.
//!
//! ```text
//! tokens: list<int32>   ──► tokens: fixed_size_list<int32>[length], filled up with the padding
//! source: text          ──► source: list<text>, one for each document
//!                           cu_seqlens, document_row_ids
//! ```
//!
//! The positions and documents of tokens follow from these, and are made where a batch is used ([`PackColumns`]).
//!
//! [`PackColumns`]: stoker_batch::PackColumns

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, Int64Array, ListArray, OffsetSizeTrait, PrimitiveArray,
    UInt64Array, make_array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, FieldRef};
use arrow_select::take::take;
use stoker_batch::{BufferPool, PACK_COLUMNS, Pooled};
use stoker_order::DocumentPiece;
use stoker_types::{PackOptions, to_usize};

use super::column::{index_of, named_row};
use crate::source::SourcePlan;
use crate::{Error, Result};

/// The types of the columns that packs have beside those of the query, which are the last of [`PACK_COLUMNS`].
const EXTRA: [DataType; 2] = [DataType::Int32, DataType::UInt64];

/// How the columns of packs are made.
pub(crate) struct PackedColumns {
    length: usize,
    /// For each column of the query, the column of tokens, or `None` for one that has a value for each document.
    tokens: Vec<Option<Tokens>>,
    fields: Vec<FieldRef>,
}

/// A column of lists that are put side by side.
struct Tokens {
    name: String,
    item: DataType,
    /// The bytes of a value, and those of the padding.
    width: usize,
    pad: Vec<u8>,
}

/// Documents that were read, and the packs that they belong to.
#[derive(Clone, Copy)]
pub(crate) struct PackedRows<'a> {
    pub packs: &'a [Vec<DocumentPiece>],
    /// For each document of each pack, the index of its row among those that were read.
    pub places: &'a [u64],
    /// The addresses of the rows that were read, as `[table][row]`.
    pub addrs: &'a [Vec<u64>],
}

/// Returns the columns of packs of a query with these columns.
///
/// # Errors
/// [`Error::EpochColumn`] for columns that are missing, are not lists of numbers, or have a name of the columns that packs
/// have in addition; for padding that does not fit.
pub(crate) fn packed_fields(fields: &[FieldRef], options: &PackOptions) -> Result<Vec<Field>> {
    let packed = PackedColumns::new(fields, options)?;
    Ok(packed.fields.iter().map(|field| field.as_ref().clone()).collect())
}

impl PackedColumns {
    /// Decides how each column is made.
    ///
    /// # Errors
    /// As [`packed_fields`].
    pub fn new(fields: &[FieldRef], options: &PackOptions) -> Result<Self> {
        let length = i32::try_from(options.length).unwrap_or(i32::MAX);
        let refused =
            |column: &str, reason: String| Error::EpochColumn { option: "pack", column: column.into(), reason };
        let list_of = |data_type: DataType, name: &str| {
            let item = Arc::new(Field::new("item", data_type, false));
            Field::new(name, DataType::FixedSizeList(item, length), false)
        };
        for name in &options.columns {
            index_of(fields.iter(), "pack", name)?;
        }
        let (mut tokens, mut packed) = (Vec::new(), Vec::new());
        for field in fields {
            if PACK_COLUMNS.contains(&field.name().as_str()) {
                let reason = "packs have a column of this name; give the column another name in the query";
                return Err(refused(field.name(), reason.into()));
            }
            if !options.columns.contains(field.name()) {
                // The queries of a mixture may differ in whether a column has NULLs.
                let item = field.as_ref().clone().with_name("item").with_nullable(true);
                packed.push(Field::new(field.name(), DataType::List(Arc::new(item)), false));
                tokens.push(None);
                continue;
            }
            let item = match field.data_type() {
                DataType::List(item) | DataType::LargeList(item) => item.data_type().clone(),
                other => return Err(refused(field.name(), no_lists(other))),
            };
            let column =
                Tokens::new(field.name(), item.clone(), options.pad).map_err(|reason| refused(field.name(), reason))?;
            tokens.push(Some(column));
            packed.push(list_of(item, field.name()));
        }
        for (name, data_type) in PACK_COLUMNS[PACK_COLUMNS.len() - EXTRA.len()..].iter().zip(EXTRA) {
            packed.push(Field::new(*name, DataType::List(Arc::new(Field::new("item", data_type, false))), false));
        }
        let fields = packed.into_iter().map(Arc::new).collect();
        Ok(Self { length: to_usize(options.length), tokens, fields })
    }

    /// Returns the bytes that a pack takes about, beside the columns that have a value for each document.
    pub fn pack_bytes(&self) -> u64 {
        let of_tokens: usize = self.tokens.iter().flatten().map(|tokens| tokens.width).sum();
        (self.length as u64).saturating_mul(of_tokens as u64)
    }

    /// Returns the number of columns that packs have beside those of the query.
    pub const fn num_extra() -> usize {
        EXTRA.len()
    }

    /// Returns the columns of packs from those of the rows that were read. A column of the query that is missing stays
    /// so.
    ///
    /// # Errors
    /// [`Error::EpochColumn`] for a row with another number of values than its length says, or with a NULL among its
    /// tokens.
    pub fn arrays(
        &self,
        source: &SourcePlan,
        rows: PackedRows<'_>,
        read: &[Option<ArrayRef>],
        pool: &BufferPool,
    ) -> Result<Vec<Option<ArrayRef>>> {
        let places = UInt64Array::from(rows.places.to_vec());
        let mut arrays = Vec::with_capacity(self.fields.len());
        for ((array, tokens), field) in read.iter().zip(&self.tokens).zip(&self.fields) {
            let Some(array) = array else {
                arrays.push(None);
                continue;
            };
            arrays.push(Some(match tokens {
                Some(tokens) => self.packed(tokens, source, rows, array, field, pool)?,
                None => rows.lists(take(array, &places, None).map_err(Error::arrow)?, field)?,
            }));
        }
        let [.., ends, row_ids] = self.fields.as_slice() else {
            return Err(Error::Internal { reason: "packs without their own columns".into() });
        };
        arrays.push(Some(self.ends(rows, ends)?));
        let addrs = rows.places.iter().map(|place| rows.address(to_usize(*place)));
        let addrs = PrimitiveArray::<UInt64Type>::from_iter_values(addrs);
        arrays.push(Some(rows.lists(Arc::new(addrs), row_ids)?));
        Ok(arrays)
    }

    /// Returns a column of tokens.
    fn packed(
        &self,
        tokens: &Tokens,
        source: &SourcePlan,
        rows: PackedRows<'_>,
        array: &ArrayRef,
        field: &FieldRef,
        pool: &BufferPool,
    ) -> Result<ArrayRef> {
        let memory = pool.take(self.length * rows.packs.len() * tokens.width)?;
        let values = match array.data_type() {
            DataType::List(_) => self.side_by_side(tokens, source, rows, array.as_list::<i32>(), memory)?,
            _ => self.side_by_side(tokens, source, rows, array.as_list::<i64>(), memory)?,
        };
        self.sequences(values, field)
    }

    fn side_by_side<O: OffsetSizeTrait>(
        &self,
        tokens: &Tokens,
        source: &SourcePlan,
        rows: PackedRows<'_>,
        lists: &GenericListArray<O>,
        mut memory: Pooled,
    ) -> Result<ArrayRef> {
        let data = lists.values().to_data();
        let stored =
            data.buffers().first().map_or(&[][..], |buffer| &buffer.as_slice()[data.offset() * tokens.width..]);
        let mut places = rows.places.iter().map(|place| to_usize(*place));
        let of_packs = memory.as_mut().chunks_exact_mut(self.length * tokens.width);
        for (pieces, pack) in rows.packs.iter().zip(of_packs) {
            let mut at = 0;
            for (piece, place) in pieces.iter().zip(places.by_ref()) {
                let offsets = lists.value_offsets();
                let first = offsets[place].as_usize();
                let found = if lists.is_null(place) { 0 } else { offsets[place + 1].as_usize() - first };
                let (start, length) = (to_usize(piece.start), to_usize(piece.length));
                let fits = if piece.is_whole { found == length } else { found >= start + length };
                let range = first + start..first + start + length;
                if !fits
                    || (lists.values().null_count() > 0 && range.clone().any(|value| lists.values().is_null(value)))
                {
                    return Err(tokens.refused(source, rows, place, found, piece));
                }
                let stored = &stored[range.start * tokens.width..range.end * tokens.width];
                pack[at..at + stored.len()].copy_from_slice(stored);
                at += stored.len();
            }
            pack[at..].chunks_exact_mut(tokens.width).for_each(|value| value.copy_from_slice(&tokens.pad));
        }
        let num_values = self.length * rows.packs.len();
        let data = ArrayData::builder(tokens.item.clone()).len(num_values).add_buffer(memory.freeze());
        Ok(make_array(data.build().map_err(Error::arrow)?))
    }

    /// Returns the column with the ends of the documents of each pack, after a zero. The padding is the last document.
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "packs have at most 2^24 tokens")]
    fn ends(&self, rows: PackedRows<'_>, field: &FieldRef) -> Result<ArrayRef> {
        let (mut all, mut counts) = (Vec::new(), Vec::with_capacity(rows.packs.len()));
        for pieces in rows.packs {
            let first = all.len();
            let mut end = 0;
            all.push(0);
            for piece in pieces {
                end += piece.length;
                all.push(end as i32);
            }
            if end < self.length as u64 {
                all.push(self.length as i32);
            }
            counts.push(all.len() - first);
        }
        let values = Arc::new(PrimitiveArray::<Int32Type>::new(ScalarBuffer::from(all), None));
        lists(values, OffsetBuffer::from_lengths(counts), field)
    }

    /// Returns values as sequences of the length of packs.
    fn sequences(&self, values: ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
        let DataType::FixedSizeList(item, length) = field.data_type() else {
            return Err(Error::Internal {
                reason: format!("column {} of packs is {}", field.name(), field.data_type()),
            });
        };
        let lists = FixedSizeListArray::try_new(item.clone(), *length, values, None);
        Ok(Arc::new(lists.map_err(Error::arrow)?))
    }
}

impl Tokens {
    /// Returns the column, or why its lists cannot be put side by side.
    fn new(name: &str, item: DataType, pad: i64) -> Result<Self, String> {
        let Some(width) = item.primitive_width() else {
            return Err(format!("its values are {item}; packs are filled from lists of numbers"));
        };
        let unfit = || format!("the padding {pad} is no {item}; choose another");
        let value = cast(&Int64Array::from(vec![pad]), &item).map_err(|_| unfit())?;
        if value.is_null(0) {
            return Err(unfit());
        }
        let data = value.to_data();
        let pad = data.buffers().first().map(|buffer| buffer.as_slice()[..width].to_vec()).ok_or_else(unfit)?;
        Ok(Self { name: name.into(), item, width, pad })
    }

    fn refused(
        &self,
        source: &SourcePlan,
        rows: PackedRows<'_>,
        row: usize,
        found: usize,
        piece: &DocumentPiece,
    ) -> Error {
        let named = named_row(rows.addrs.iter().map(|addrs| addrs[row]), source.row_set.sources());
        let wanted = match piece.is_whole {
            true => format!("{}", piece.length),
            false => format!("at least {}", piece.start + piece.length),
        };
        let reason =
            format!("{named} has {found} values, or a NULL among them; its length says {wanted} values without NULL");
        Error::EpochColumn { option: "pack", column: self.name.clone(), reason }
    }
}

/// Returns why a column of this type cannot be packed.
pub(super) fn no_lists(data_type: &DataType) -> String {
    format!("it is {data_type}; packs are filled from lists of numbers")
}

impl PackedRows<'_> {
    /// Returns the address of a row in the first table that supplies it.
    fn address(&self, row: usize) -> u64 {
        self.addrs.iter().map(|addrs| addrs[row]).find(|address| *address != stoker_sql::NO_ROW).unwrap_or(u64::MAX)
    }

    /// Returns values, one for each document, as a list for each pack.
    pub fn lists(&self, values: ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
        lists(values, OffsetBuffer::from_lengths(self.packs.iter().map(Vec::len)), field)
    }

    /// Returns the index of the pack of each document with a value, by the index of the document. Of several documents of
    /// a pack, the first one counts.
    pub fn by_pack<T>(&self, mut by_document: BTreeMap<usize, T>) -> BTreeMap<usize, T> {
        let mut by_pack = BTreeMap::new();
        let mut first = 0;
        for (pack, pieces) in self.packs.iter().enumerate() {
            let found = (first..first + pieces.len()).find_map(|document| by_document.remove(&document));
            by_pack.extend(found.map(|found| (pack, found)));
            first += pieces.len();
        }
        by_pack
    }
}

fn lists(values: ArrayRef, offsets: OffsetBuffer<i32>, field: &FieldRef) -> Result<ArrayRef> {
    let DataType::List(item) = field.data_type() else {
        return Err(Error::Internal { reason: format!("column {} of packs is {}", field.name(), field.data_type()) });
    };
    Ok(Arc::new(ListArray::try_new(item.clone(), offsets, values, None).map_err(Error::arrow)?))
}
