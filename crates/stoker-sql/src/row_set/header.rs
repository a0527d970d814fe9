//! The header of a stored row set.

use datafusion::arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use stoker_types::{Digest, DigestBuilder, Snapshot};

use crate::{Error, Result};

/// The version of the format of headers and pages.
const FORMAT_VERSION: u32 = 1;

/// The metadata of a row set: everything except its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: u32,
    pub(super) ranked: bool,
    pub(super) sources: Vec<Snapshot>,
    pub(super) columns: Vec<Column>,
    pub(super) num_rows: u64,
    pub(super) pages: Vec<PageEntry>,
}

/// A column of the row set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Column {
    name: String,
    data_type: String,
}

/// A page: the digest of its content, which is also its name in the lake, and its number of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PageEntry {
    pub(super) digest: Digest,
    pub(super) num_rows: u64,
}

impl Header {
    /// Creates a header. `schema` is that of the selection: one address column for each source, then the columns.
    pub(super) fn new(ranked: bool, sources: Vec<Snapshot>, schema: &SchemaRef, pages: Vec<PageEntry>) -> Self {
        let columns = schema
            .fields()
            .iter()
            .skip(sources.len())
            .map(|field| Column { name: field.name().clone(), data_type: field.data_type().to_string() });
        let columns = columns.collect();
        let num_rows = pages.iter().map(|page| page.num_rows).sum();
        Self { format: FORMAT_VERSION, ranked, sources, columns, num_rows, pages }
    }

    /// Returns the digest of the row set: SHA-256 over the header, which contains the digest of every page.
    pub(super) fn digest(&self) -> Result<Digest> {
        Ok(DigestBuilder::new("stoker.row_set").part(&self.to_bytes()?).finish())
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|source| Error::internal(format!("a row set header as JSON: {source}")))
    }

    /// Reads a header, or returns why the bytes are not one.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let header: Header = serde_json::from_slice(bytes).map_err(|source| source.to_string())?;
        match header.format {
            FORMAT_VERSION => Ok(header),
            other => Err(format!("its format is {other}; this build of Stoker reads {FORMAT_VERSION}")),
        }
    }
}
