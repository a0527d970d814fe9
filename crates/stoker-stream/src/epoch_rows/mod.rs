//! The rows of an epoch: each row of the row set once, as often as its weight says, or packed into sequences.
//!
//! ```text
//! plan     column of numbers ──read once, in the order of the rows──► 4 bytes per row, in memory or in a temporary file
//! stream   position ──order──► ordinal in the epoch ──weights, packs──► ordinals of rows ──read──► rows, or packs
//! ```

mod column;
mod numbers;
mod packed_columns;
mod packs;
mod recent;
mod weights;

use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_order::DocumentPiece;
use stoker_types::{PackSpec, SourceSpec, StreamOptions, WeightSpec};

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
}

/// The rows of the row set at some ordinals of an epoch.
#[derive(Default)]
pub(crate) struct EpochOrdinals {
    /// The ordinals of the rows. For packs, those of all documents, pack by pack.
    pub rows: Vec<u64>,
    /// The documents of each pack, or `None` for rows that are not packed.
    pub packs: Option<Vec<Vec<DocumentPiece>>>,
}

impl EpochOrdinals {
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
            match (&options.weight, &options.pack) {
                (None, None) => Ok(Self::Each),
                (Some(column), _) => Ok(Self::Weighted(RowWeights::read(source, column, seed).await?)),
                (None, Some(pack)) => Ok(Self::Packed(RowPacks::read(source, pack, pack.group_packs(), seed).await?)),
            }
        };
        read.boxed()
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
            let rows = match (&spec.weight, &spec.pack) {
                (None, None) => return Ok(Ok(Self::Each)),
                (Some(weight), _) => Self::Weighted(RowWeights::read(source, &weight.column, seed).await?),
                (None, Some(pack)) => {
                    Self::Packed(RowPacks::read(source, &pack.options, pack.group_packs, seed).await?)
                }
            };
            let is_same = rows.weight() == spec.weight.as_ref()
                && rows.pack() == spec.pack.as_ref()
                && rows.num_rows(source) == spec.num_rows;
            Ok(match is_same {
                true => Ok(rows),
                false => Err(format!("its weights or lengths are others: an epoch has {} rows", rows.num_rows(source))),
            })
        };
        read.boxed()
    }

    /// Returns the number of rows in an epoch.
    pub fn num_rows(&self, source: &SourcePlan) -> u64 {
        match self {
            Self::Each => source.row_set.num_rows(),
            Self::Weighted(weights) => weights.epoch_rows(),
            Self::Packed(packs) => packs.num_packs(),
        }
    }

    /// Returns what a specification has about weights.
    pub fn weight(&self) -> Option<&WeightSpec> {
        match self {
            Self::Weighted(weights) => Some(weights.spec()),
            Self::Each | Self::Packed(_) => None,
        }
    }

    /// Returns what a specification has about packs.
    pub fn pack(&self) -> Option<&PackSpec> {
        match self {
            Self::Packed(packs) => Some(packs.spec()),
            Self::Each | Self::Weighted(_) => None,
        }
    }

    /// Returns how the columns of packs are made, or `None` for rows that are not packed.
    pub fn packed_columns(&self) -> Option<&PackedColumns> {
        match self {
            Self::Packed(packs) => Some(packs.columns()),
            Self::Each | Self::Weighted(_) => None,
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
            Self::Packed(packs) => {
                let packs = packs.packs(epoch, &ordinals)?;
                let rows = packs.iter().flatten().map(|piece| piece.document).collect();
                Ok(EpochOrdinals { rows, packs: Some(packs) })
            }
        }
    }
}

fn outside(ordinal: u64, num_rows: u64) -> Error {
    Error::Internal { reason: format!("ordinal {ordinal} in an epoch of {num_rows} rows") }
}
