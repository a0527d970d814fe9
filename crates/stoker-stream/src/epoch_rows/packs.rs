//! Rows that are packed into sequences.

use arrow_schema::FieldRef;
use stoker_order::{DocumentPiece, PackSize, PackedGroup, Packer, Packing};
use stoker_types::{PACK_VERSION, PackOptions, PackSpec, to_usize};

use super::column::{ColumnRows, EpochColumn};
use super::lengths::RowLengths;
use super::numbers::RowNumbers;
use super::outside;
use super::packed_columns::PackedColumns;
use super::recent::Recent;
use crate::Result;
use crate::source::SourcePlan;

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
    /// [`Error::EpochColumn`](crate::Error::EpochColumn) for columns that the query does not have or that have other values;
    /// [`Error::BadRow`](crate::Error::BadRow); errors of reading.
    pub async fn read(source: &SourcePlan, options: &PackOptions, group_packs: u64, seed: u64) -> Result<Self> {
        let fields: Vec<FieldRef> = source.query.columns().iter().map(|column| column.field.clone()).collect();
        let columns = PackedColumns::new(&fields, options)?;
        let tokens = options.columns.first().map_or("", String::as_str);
        let column = match &options.lengths {
            Some(lengths) => EpochColumn::find(source, "pack lengths", lengths)?,
            None => EpochColumn::find(source, "pack", tokens)?,
        };
        if options.lengths.is_some() && !column.data_type().is_integer() {
            return Err(column.error(format!("it is {}; lengths are whole numbers", column.data_type())));
        }
        let num_rows = source.row_set.num_rows();
        let mut packer = Packer::new(PackSize { length: options.length, group_packs });
        let wanted = "packs are filled from lists of numbers";
        let add = |_: &ColumnRows<'_>, lengths: &[u32]| {
            lengths.iter().for_each(|length| packer.add(*length));
            Ok(())
        };
        let RowLengths { lengths, digest } = RowLengths::read(column, wanted, add).await?;
        let packing = packer.finish();
        tracing::info!(
            documents = packing.num_documents(),
            packs = packing.num_packs(),
            fill = packing.fill(),
            "packed"
        );
        let (version, options) = (PACK_VERSION, options.clone());
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
    /// [`Error::Internal`](crate::Error::Internal) for packs that the epoch does not have; errors of the temporary file.
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
