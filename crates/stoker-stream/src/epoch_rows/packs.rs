//! Rows that are packed into sequences.

use std::pin::pin;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef};
use futures::TryStreamExt;
use stoker_order::{DocumentPiece, PackSize, PackedGroup, Packer, Packing};
use stoker_types::{DigestBuilder, PACK_VERSION, PackOptions, PackSpec, to_usize};

use super::column::{ColumnRows, EpochColumn};
use super::numbers::RowNumbers;
use super::outside;
use super::packed_columns::PackedColumns;
use super::recent::Recent;
use crate::source::SourcePlan;
use crate::{Error, Result};

/// The number of rows whose lengths are read together from a column of numbers.
const LENGTHS_AT_ONCE: u64 = 1 << 16;

/// The number of rows, and about the bytes of tokens, that are read together to count them.
const TOKEN_ROWS_AT_ONCE: u64 = 1 << 12;
const TOKEN_BYTES_AT_ONCE: u64 = 16 << 20;

/// The number of groups whose packs are kept. A group has 32 bytes for each document, which is some ten kilobytes.
const GROUPS_MAX: usize = 128;

/// The documents of a query, and the packs that they fill.
pub(crate) struct RowPacks {
    spec: PackSpec,
    packing: Packing,
    columns: PackedColumns,
    /// The number of tokens of each document.
    lengths: RowNumbers,
    /// The seed of the source's orders.
    seed: u64,
    /// The groups that were used last, by epoch and number.
    groups: Recent<(u64, u64), PackedGroup>,
}

impl RowPacks {
    /// Reads the lengths of the documents and fills the packs. `seed` is that of the source's orders.
    ///
    /// # Errors
    /// [`Error::EpochColumn`] for columns that the query does not have or that have other values; [`Error::BadRow`];
    /// errors of reading.
    pub async fn read(source: &SourcePlan, options: &PackOptions, group_packs: u64, seed: u64) -> Result<Self> {
        let fields: Vec<FieldRef> = source.query.columns().iter().map(|column| column.field.clone()).collect();
        let columns = PackedColumns::new(&fields, options)?;
        let tokens = options.columns.first().map_or("", String::as_str);
        let (column, rows_at_once) = match &options.lengths {
            Some(lengths) => (EpochColumn::find(source, "pack lengths", lengths)?, LENGTHS_AT_ONCE),
            None => {
                let rows = (TOKEN_BYTES_AT_ONCE / source.row_bytes).clamp(1, TOKEN_ROWS_AT_ONCE);
                (EpochColumn::find(source, "pack", tokens)?, rows)
            }
        };
        if options.lengths.is_some() && !column.data_type().is_integer() {
            return Err(column.error(format!("it is {}; lengths are whole numbers", column.data_type())));
        }
        let num_rows = source.row_set.num_rows();
        let mut lengths = RowNumbers::for_rows(num_rows)?;
        let mut packer = Packer::new(PackSize { length: options.length, group_packs });
        let mut digest = DigestBuilder::new("stoker.lengths.v1");
        let mut reads = pin!(column.read(rows_at_once));
        while let Some(rows) = reads.try_next().await? {
            let read = lengths_of(column, &rows)?;
            read.iter().for_each(|length| packer.add(*length));
            digest.update(&lengths.add(&read)?);
        }
        let packing = packer.finish();
        tracing::info!(
            documents = packing.num_documents(),
            packs = packing.num_packs(),
            fill = packing.fill(),
            "packed"
        );
        let (version, options, digest) = (PACK_VERSION, options.clone(), digest.finish());
        let spec = PackSpec { version, options, group_packs, num_rows, digest };
        Ok(Self { spec, packing, columns, lengths, seed, groups: Recent::new(GROUPS_MAX) })
    }

    /// Returns what the specification of a stream has about the packs.
    pub fn spec(&self) -> &PackSpec {
        &self.spec
    }

    /// Returns how the columns of packs are made.
    pub fn columns(&self) -> &PackedColumns {
        &self.columns
    }

    /// Returns the bytes that a pack takes about while its documents, which have `document_bytes` each, are read.
    pub fn pack_bytes(&self, document_bytes: u64) -> u64 {
        let documents = self.packing.num_documents().div_ceil(self.packing.num_packs().max(1));
        self.columns.pack_bytes().saturating_add(documents.saturating_mul(document_bytes))
    }

    /// Returns the number of packs in an epoch.
    pub fn num_packs(&self) -> u64 {
        self.packing.num_packs()
    }

    /// Returns the documents of some packs of an epoch of the source.
    ///
    /// # Errors
    /// [`Error::Internal`] for packs that the epoch does not have; errors of the temporary file.
    pub fn packs(&self, epoch: u64, numbers: &[u64]) -> Result<Vec<Vec<DocumentPiece>>> {
        let pack = |number: &u64| {
            let (group, index) = self.packing.group_of(*number);
            if *number >= self.num_packs() {
                return Err(outside(*number, self.num_packs()));
            }
            let group = self.groups.get((epoch, group), || self.group(epoch, group))?;
            group.packs().get(to_usize(index)).cloned().ok_or_else(|| outside(*number, self.num_packs()))
        };
        numbers.iter().map(pack).collect()
    }

    fn group(&self, epoch: u64, number: u64) -> Result<PackedGroup> {
        let documents = self.packing.group_documents(number);
        let lengths = self.lengths.get(documents.start, to_usize(documents.end - documents.start))?;
        Ok(self.packing.group(number, &lengths).in_epoch(self.seed, epoch))
    }
}

/// Returns the lengths of documents. A NULL has none.
fn lengths_of(column: EpochColumn<'_>, rows: &ColumnRows<'_>) -> Result<Vec<u32>> {
    let values = &rows.values;
    let length: Box<dyn Fn(usize) -> Option<i64> + '_> = match values.data_type() {
        DataType::List(_) => Box::new(|row| Some(i64::from(values.as_list::<i32>().value_length(row)))),
        DataType::LargeList(_) => Box::new(|row| Some(values.as_list::<i64>().value_length(row))),
        number if number.is_integer() => {
            let numbers = cast(values, &DataType::Int64).map_err(Error::arrow)?.as_primitive::<Int64Type>().clone();
            Box::new(move |row| numbers.is_valid(row).then(|| numbers.value(row)))
        }
        other => return Err(column.error(format!("it is {other}; packs are filled from lists of numbers"))),
    };
    let of_row = |row: usize| {
        let length = if values.is_null(row) { Some(0) } else { length(row) };
        let shown = || length.map_or_else(|| "a number beyond 2^63".into(), |length| length.to_string());
        let fits = length.and_then(|length| u32::try_from(length).ok());
        fits.ok_or_else(|| rows.error(row, &shown(), "lengths are numbers from 0 to 2^32 - 1"))
    };
    (0..values.len()).map(of_row).collect()
}
