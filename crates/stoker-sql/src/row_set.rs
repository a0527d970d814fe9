//! Row sets: the rows that a sample query selects.
//!
//! ```text
//! unranked   header ── page: bitmaps of fragments, loaded whole (at most one bit per table row, run-length coded)
//! ranked     header ── page ── page ── …  65,536 rows each, loaded on demand: row addresses, light columns
//! ```
//!
//! The digest of a row set covers its sources (table and version), its columns and the content of its pages, in a form
//! that does not depend on Arrow's padding or compression. The header and each page are separate objects in the lake
//! (`_stoker/rowsets/<digest>` and `_stoker/rowsets/pages/<digest>`), each with a checksum, so that a damaged or lost
//! object is detected and the row set is computed again.
//!
//! A [`RowSource`] selects the rows. Where the selection splits by fragment, its rows go through a [`PartialRowSet`]:
//! in one process through one that covers all fragments, and whose full pages are stored while it gets its rows.

mod bitmaps;
mod build;
mod cleanup;
mod header;
mod page;
mod paged;
mod partial;
mod source;
mod store;

pub(crate) use build::{compute, load_or_compute};
pub use cleanup::unused_objects;
pub use partial::PartialRowSet;
pub use source::{FragmentRows, RowSource};

use std::fmt;

use arrow_array::ArrayRef;
use stoker_lake::Table;
use stoker_types::Digest;

use crate::{Engine, Error, Result, SampleQuery};
use bitmaps::Bitmaps;
use paged::Paged;

/// The value in [`ResolvedRows::addrs`] for a row that the source does not supply.
pub const NO_ROW: u64 = u64::MAX;

/// The rows that a sample query selects, at pinned snapshots.
pub struct RowSet {
    digest: Digest,
    num_rows: u64,
    sources: Vec<Table>,
    rows: Rows,
    recipe: Recipe,
}

/// The inputs that compute the rows again when a stored page is damaged or missing.
struct Recipe {
    engine: Engine,
    query: SampleQuery,
}

enum Rows {
    Unranked(Bitmaps),
    Ranked(Paged),
}

/// The addresses and values of some rows of a row set, in the order of the requested ordinals.
#[derive(Clone, Debug)]
pub struct ResolvedRows {
    /// Row addresses, indexed `[source][row]`; [`NO_ROW`] where a source does not supply a row.
    pub addrs: Vec<Vec<u64>>,
    /// The columns of the row set, each with one value for each row.
    pub columns: Vec<ArrayRef>,
}

impl RowSet {
    /// The digest of the snapshots, columns and rows.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The number of rows; duplicates count.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// The tables that supply rows, in the order of [`ResolvedRows::addrs`].
    pub fn sources(&self) -> &[Table] {
        &self.sources
    }

    /// Returns the addresses and light columns of the rows with these ordinals, which must be strictly ascending.
    ///
    /// In an unranked row set, ordinals count rows by ascending address, and a run of neighbouring ordinals costs one
    /// search. In a ranked row set, each page that is not cached costs one request.
    ///
    /// # Errors
    /// `InvalidRequest` for ordinals that are out of range or not ascending; `DataCorrupt` or storage errors when a
    /// page cannot be loaded.
    pub async fn resolve(&self, ordinals: &[u64]) -> Result<ResolvedRows> {
        let ascending = ordinals.windows(2).find(|pair| pair[0] >= pair[1]).map(|pair| pair[1]);
        let outside = ordinals.last().copied().filter(|last| *last >= self.num_rows);
        if let Some(ordinal) = ascending.or(outside) {
            return Err(Error::OrdinalOutOfRange { ordinal, num_rows: self.num_rows });
        }
        match &self.rows {
            Rows::Unranked(bitmaps) => {
                Ok(ResolvedRows { addrs: vec![bitmaps.addresses(ordinals)?], columns: Vec::new() })
            }
            Rows::Ranked(paged) => match paged.resolve(ordinals).await {
                Err(error @ Error::RowSetCorrupt { .. }) => {
                    tracing::warn!(%error, "computing the row set again");
                    self.restore().await?;
                    paged.resolve(ordinals).await
                }
                resolved => resolved,
            },
        }
    }

    /// Evaluates the query again, which replaces damaged and missing pages in the lake.
    async fn restore(&self) -> Result<()> {
        let actual = compute(&self.recipe.engine, &self.recipe.query).await?.digest();
        match actual == self.digest {
            true => Ok(()),
            false => Err(Error::RowSetMismatch { expected: self.digest, actual }),
        }
    }

    /// Returns the bytes that the row set holds in memory now, including its cached pages.
    pub fn bytes_in_memory(&self) -> usize {
        match &self.rows {
            Rows::Unranked(bitmaps) => bitmaps.bytes_in_memory(),
            Rows::Ranked(paged) => paged.bytes_in_memory(),
        }
    }
}

impl fmt::Debug for RowSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSet")
            .field("digest", &self.digest)
            .field("num_rows", &self.num_rows)
            .field("sources", &self.sources.iter().map(Table::snapshot).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
