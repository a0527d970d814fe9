//! The rows of an epoch: each row of the row set once, as often as its weight says, packed into sequences, or in buckets.
//!
//! ```text
//! plan     column of numbers ──read once, in the order of the rows──► 4 bytes per row, in memory or in a temporary file
//! stream   position ──order──► ordinal in the epoch ──weights, …──► ordinals of rows ──read──► rows, packs, …
//! ```

mod bucket_columns;
mod buckets;
mod column;
mod lengths;
mod numbers;
mod packed_columns;
mod packs;
mod recent;
mod weights;

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_batch::BufferPool;
use stoker_order::DocumentPiece;
use stoker_types::{
    BucketOptions, BucketSpec, PackOptions, PackSpec, ShuffleMode, SourceSpec, StreamOptions, WeightSpec,
};

use bucket_columns::BucketColumns;
use buckets::RowBuckets;
pub(crate) use packed_columns::{PackedColumns, PackedRows, packed_fields};
use packs::RowPacks;
use weights::RowWeights;

use crate::source::SourcePlan;
use crate::{Error, Result};

/// What the ordinals of an epoch's order name.
#[derive(Default)]
pub(crate) enum EpochRows {
    /// The rows of the row set.
    #[default]
    Each,
    /// Rows that come as often as they weigh.
    Weighted(RowWeights),
    /// Packs of rows.
    Packed(RowPacks),
    /// Buckets of rows.
    Bucketed(RowBuckets),
}

/// The rows of the row set at some ordinals of an epoch.
#[derive(Default)]
pub(crate) struct EpochOrdinals {
    /// The ordinals of the rows. For packs, those of all documents, pack by pack; so for buckets.
    pub rows: Vec<u64>,
    /// The documents of each pack, or the rows of each bucket; `None` for rows that are neither.
    pub packs: Option<Vec<Vec<DocumentPiece>>>,
}

impl EpochOrdinals {
    /// Returns the rows of packs or buckets.
    fn of(groups: Vec<Vec<DocumentPiece>>) -> Self {
        let rows = groups.iter().flatten().map(|piece| piece.document).collect();
        Self { rows, packs: Some(groups) }
    }

    /// Adds the rows at further ordinals.
    pub fn add(&mut self, more: Self) {
        self.rows.extend(more.rows);
        if let Some(packs) = more.packs {
            self.packs.get_or_insert_default().extend(packs);
        }
    }
}

impl EpochRows {
    /// Reads what the options ask for. `seed` is that of the source's orders.
    ///
    /// # Errors
    /// [`Error::EpochColumn`] for columns that are missing or have other values; errors of reading.
    pub fn of_options<'a>(
        source: &'a SourcePlan,
        options: &'a StreamOptions,
        seed: u64,
    ) -> BoxFuture<'a, Result<Self>> {
        let read = async move {
            let is_shuffled = options.shuffle != ShuffleMode::Sequential;
            let pack = options.pack.as_ref().map(|pack| (pack, pack.group_packs()));
            Self::read(source, options.weight.as_deref(), pack, options.bucket.as_ref(), is_shuffled, seed).await
        };
        read.boxed()
    }

    /// Reads what there are options for. A pack has the number of packs in its groups.
    async fn read(
        source: &SourcePlan,
        weight: Option<&str>,
        pack: Option<(&PackOptions, u64)>,
        bucket: Option<&BucketOptions>,
        is_shuffled: bool,
        seed: u64,
    ) -> Result<Self> {
        Ok(match (weight, pack, bucket) {
            (Some(column), ..) => Self::Weighted(RowWeights::read(source, column, seed).await?),
            (None, Some((options, packs)), _) => Self::Packed(RowPacks::read(source, options, packs, seed).await?),
            (None, None, Some(options)) => Self::Bucketed(RowBuckets::read(source, options, is_shuffled, seed).await?),
            (None, None, None) => Self::Each,
        })
    }

    /// Reads what a specification has.
    ///
    /// # Errors
    /// As [`EpochRows::of_options`]; the reason as text if the columns have other values than those that the
    /// specification was made from.
    pub fn of_spec<'a>(
        source: &'a SourcePlan,
        spec: &'a SourceSpec,
        seed: u64,
    ) -> BoxFuture<'a, Result<Result<Self, String>>> {
        let read = async move {
            let is_shuffled = spec.order.mode != ShuffleMode::Sequential;
            let weight = spec.weight.as_ref().map(|weight| weight.column.as_str());
            let pack = spec.pack.as_ref().map(|pack| (&pack.options, pack.group_packs));
            let bucket = spec.bucket.as_ref().map(|bucket| &bucket.options);
            let rows = Self::read(source, weight, pack, bucket, is_shuffled, seed).await?;
            Ok(match rows.change(source, spec) {
                None => Ok(rows),
                Some(change) => Err(format!("{change}; plan the stream again from its query")),
            })
        };
        read.boxed()
    }

    /// Returns what the values of columns changed since a specification was made from them.
    fn change(&self, source: &SourcePlan, spec: &SourceSpec) -> Option<String> {
        let changed = |what: &str, column: &str| Some(format!("{what} in column {column:?} are others"));
        match spec {
            SourceSpec { weight: Some(weight), .. } if self.weight() != Some(weight) => {
                changed("the weights", &weight.column)
            }
            SourceSpec { pack: Some(pack), .. } if self.pack() != Some(pack) => {
                let PackOptions { lengths, columns, .. } = &pack.options;
                let column = lengths.as_ref().or(columns.first());
                changed("the lengths of documents", column.map_or("", String::as_str))
            }
            SourceSpec { bucket: Some(bucket), .. } if self.bucket() != Some(bucket) => {
                changed("the lengths of rows", &bucket.options.column)
            }
            _ if self.num_rows(source) != spec.num_rows => {
                Some(format!("an epoch has {} rows, {} were planned", self.num_rows(source), spec.num_rows))
            }
            _ => None,
        }
    }

    /// Returns the number of rows in an epoch.
    pub fn num_rows(&self, source: &SourcePlan) -> u64 {
        match self {
            Self::Each => source.row_set.num_rows(),
            Self::Weighted(weights) => weights.epoch_rows(),
            Self::Packed(packs) => packs.num_packs(),
            Self::Bucketed(buckets) => buckets.num_buckets(),
        }
    }

    /// Returns what a specification has about weights.
    pub fn weight(&self) -> Option<&WeightSpec> {
        match self {
            Self::Weighted(weights) => Some(weights.spec()),
            Self::Each | Self::Packed(_) | Self::Bucketed(_) => None,
        }
    }

    /// Returns what a specification has about packs.
    pub fn pack(&self) -> Option<&PackSpec> {
        match self {
            Self::Packed(packs) => Some(packs.spec()),
            Self::Each | Self::Weighted(_) | Self::Bucketed(_) => None,
        }
    }

    /// Returns what a specification has about buckets.
    pub fn bucket(&self) -> Option<&BucketSpec> {
        match self {
            Self::Bucketed(buckets) => Some(buckets.spec()),
            Self::Each | Self::Weighted(_) | Self::Packed(_) => None,
        }
    }

    /// Returns how many neighbouring ordinals are read together at the cost of a few of them.
    pub fn group_rows(&self) -> u64 {
        match self {
            Self::Packed(packs) => packs.spec().group_packs,
            Self::Each | Self::Weighted(_) | Self::Bucketed(_) => 1,
        }
    }

    /// Returns whether an ordinal names several rows: a pack, or a bucket.
    pub fn has_groups(&self) -> bool {
        matches!(self, Self::Packed(_) | Self::Bucketed(_))
    }

    /// Sets how the columns of buckets are made: those of the stream are `schema`, and the source has `tables` of the
    /// stream's `num_tables` tables.
    pub fn set_columns(&mut self, schema: &SchemaRef, tables: Range<usize>, num_tables: usize) {
        if let Self::Bucketed(buckets) = self {
            buckets.set_columns(BucketColumns::new(schema, tables, num_tables));
        }
    }

    /// Returns the columns of packs or buckets from those of the rows that were read. A column of the query that is missing
    /// stays so. The memory of lists and packs comes from `pool`.
    ///
    /// # Errors
    /// [`Error::EpochColumn`] for documents of packs with other tokens than their lengths say; [`Error::Internal`] for rows
    /// that are neither packed nor in buckets.
    pub fn arrays(
        &self,
        source: &SourcePlan,
        rows: PackedRows<'_>,
        read: &[Option<ArrayRef>],
        pool: &BufferPool,
    ) -> Result<Vec<Option<ArrayRef>>> {
        match self {
            Self::Packed(packs) => packs.columns().arrays(source, rows, read, pool),
            Self::Bucketed(buckets) => buckets.columns().arrays(rows, read, pool),
            Self::Each | Self::Weighted(_) => Err(Error::Internal { reason: "groups of rows that have none".into() }),
        }
    }

    /// Returns the rows at some ordinals of an epoch of the source.
    ///
    /// # Errors
    /// [`Error::Internal`] for ordinals that the epoch does not have; errors of a temporary file.
    pub fn ordinals(&self, epoch: u64, ordinals: Vec<u64>) -> Result<EpochOrdinals> {
        match self {
            Self::Each => Ok(EpochOrdinals { rows: ordinals, packs: None }),
            Self::Weighted(weights) => Ok(EpochOrdinals { rows: weights.ordinals(epoch, &ordinals)?, packs: None }),
            Self::Packed(packs) => Ok(EpochOrdinals::of(packs.packs(epoch, &ordinals)?)),
            Self::Bucketed(buckets) => Ok(EpochOrdinals::of(buckets.buckets(epoch, &ordinals)?)),
        }
    }
}

fn outside(ordinal: u64, num_rows: u64) -> Error {
    Error::Internal { reason: format!("ordinal {ordinal} in an epoch of {num_rows} rows") }
}
