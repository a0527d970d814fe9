//! Partial row sets: the selected rows of some fragments of a table.
//!
//! ```text
//! bytes   magic, checksum ─ section: head (JSON) ─ section: covered fragments (bitmap)
//!                         ─ section: rows (bitmaps of fragments) ─ section: columns (Arrow IPC stream; only if ranked)
//! ```
//!
//! The bytes travel between processes that run the same build, and are stored nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use stoker_types::{Digest, Snapshot};

use super::FragmentRows;
use super::bitmaps::{Bitmaps, BitmapsBuilder};
use super::store::{frame, unframe};
use crate::{Error, Result};

/// The version of the format of the bytes.
const FORMAT_VERSION: u32 = 1;

/// The most fragment ids in an error message.
const IDS_SHOWN: usize = 8;

/// The rows that a sample query selects from some fragments of a table.
///
/// A [`crate::RowSource`] computes partial row sets, and makes a row set of one that covers all fragments.
pub struct PartialRowSet {
    selection: Digest,
    table: Snapshot,
    /// The ids of the fragments whose rows were selected, also if no row was.
    covered: RoaringBitmap,
    columns: SchemaRef,
    rows: PartialRows,
}

/// The rows of a partial row set.
pub(super) enum PartialRows {
    /// A set of addresses, for an unranked row set.
    Set(BitmapsBuilder),
    /// Addresses and columns by fragment, for a ranked row set. The rows of a fragment are in ascending order.
    Sequence(BTreeMap<u32, Vec<FragmentRows>>),
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    selection: Digest,
    table: Snapshot,
}

impl PartialRowSet {
    /// Creates a partial row set without rows.
    pub(super) fn new(
        selection: Digest,
        table: Snapshot,
        covered: RoaringBitmap,
        columns: SchemaRef,
        ranked: bool,
    ) -> Self {
        let rows = match ranked {
            false => PartialRows::Set(BitmapsBuilder::default()),
            true => PartialRows::Sequence(BTreeMap::new()),
        };
        Self { selection, table, covered, columns, rows }
    }

    /// Adds rows of a covered fragment.
    pub(super) fn add(&mut self, rows: FragmentRows) -> Result<()> {
        if !self.covered.contains(rows.fragment()) {
            return Err(Error::internal(format!(
                "a scan gave rows of fragment {}, which it left out",
                rows.fragment()
            )));
        }
        match &mut self.rows {
            PartialRows::Set(bitmaps) => bitmaps.insert(rows.addrs()),
            PartialRows::Sequence(fragments) => fragments.entry(rows.fragment()).or_default().push(rows),
        }
        Ok(())
    }

    /// Removes the rows of a ranked row set, and returns them by ascending address. The rows of an unranked row set
    /// stay.
    pub(super) fn take_sequence(&mut self) -> impl Iterator<Item = FragmentRows> + use<> {
        let taken = match &mut self.rows {
            PartialRows::Set(_) => BTreeMap::new(),
            PartialRows::Sequence(fragments) => std::mem::take(fragments),
        };
        taken.into_values().flatten()
    }

    pub(super) fn into_rows(self) -> PartialRows {
        self.rows
    }

    /// The schema of the columns of the row set.
    pub(super) fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    pub(super) fn selection(&self) -> Digest {
        self.selection
    }

    /// The table whose rows are selected.
    pub fn table(&self) -> &Snapshot {
        &self.table
    }

    /// Returns the ids of the fragments whose rows were selected, in ascending order.
    pub fn fragments(&self) -> impl Iterator<Item = u32> + '_ {
        self.covered.iter()
    }

    /// Returns the number of selected rows.
    pub fn num_rows(&self) -> u64 {
        match &self.rows {
            PartialRows::Set(bitmaps) => bitmaps.num_rows(),
            PartialRows::Sequence(fragments) => fragments.values().flatten().map(|rows| rows.num_rows() as u64).sum(),
        }
    }

    /// Returns the rows of both partial row sets. The result does not depend on the order in which several are merged.
    ///
    /// # Errors
    /// `InvalidRequest` when both cover the same fragment, or when they belong to different selections.
    pub fn merge(mut self, other: Self) -> Result<Self> {
        if self.selection != other.selection || self.table != other.table {
            return Err(self.refusal("they belong to different queries or snapshots"));
        }
        let both = &self.covered & &other.covered;
        if !both.is_empty() {
            return Err(self.refusal(format!("they overlap: both have {}", ids(&both))));
        }
        let different = "they have different columns";
        if self.columns != other.columns {
            return Err(self.refusal(different));
        }
        self.rows = match (self.rows, other.rows) {
            (PartialRows::Set(one), PartialRows::Set(other)) => PartialRows::Set(one.merge(other)),
            (PartialRows::Sequence(mut one), PartialRows::Sequence(other)) => {
                one.extend(other);
                PartialRows::Sequence(one)
            }
            _ => return Err(refusal(&self.table, different)),
        };
        self.covered |= other.covered;
        Ok(self)
    }

    /// Checks that exactly these fragments are covered.
    pub(super) fn check_covers(&self, fragments: &BTreeSet<u32>) -> Result<()> {
        let expected: RoaringBitmap = fragments.iter().copied().collect();
        let (missing, unknown) = (&expected - &self.covered, &self.covered - &expected);
        if !missing.is_empty() {
            return Err(self.refusal(format!("they are incomplete: {} missing", are(&missing))));
        }
        match unknown.is_empty() {
            true => Ok(()),
            false => Err(self.refusal(format!("the table does not have {}", ids(&unknown)))),
        }
    }

    /// Returns the error that this and other partial row sets make no row set.
    pub(super) fn refusal(&self, reason: impl Into<String>) -> Error {
        refusal(&self.table, reason)
    }

    /// Returns a compact binary form: a bitmap of addresses for each fragment, then the columns.
    ///
    /// # Errors
    /// `Internal` when the rows cannot be serialized.
    pub fn into_bytes(self) -> Result<Bytes> {
        let Self { selection, table, covered, columns: schema, rows } = self;
        let head = Head { format: FORMAT_VERSION, selection, table };
        let head = serde_json::to_vec(&head).map_err(|source| Error::internal(format!("a head as JSON: {source}")))?;
        let mut fragments = Vec::with_capacity(covered.serialized_size());
        let written = covered.serialize_into(&mut fragments);
        written.map_err(|source| Error::internal(format!("a bitmap as bytes: {source}")))?;
        let (bitmaps, columns) = match rows {
            PartialRows::Set(bitmaps) => (bitmaps.finish().to_bytes()?, Vec::new()),
            PartialRows::Sequence(fragments) => sequence_to_bytes(&schema, &fragments)?,
        };
        let mut content = Vec::with_capacity(head.len() + fragments.len() + bitmaps.len() + columns.len() + 32);
        for section in [head, fragments, bitmaps, columns] {
            content.extend((section.len() as u64).to_le_bytes());
            content.extend(section);
        }
        Ok(frame(&content))
    }

    /// Reads the bytes of [`PartialRowSet::into_bytes`].
    ///
    /// # Errors
    /// `DataCorrupt` for bytes that are damaged or of another format.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self> {
        unframe(bytes).and_then(|content| read(&content)).map_err(|reason| Error::PartialRowSetCorrupt { reason })
    }
}

fn refusal(table: &Snapshot, reason: impl Into<String>) -> Error {
    Error::PartialRowSets { table: table.clone(), reason: reason.into() }
}

/// Returns the text `fragment 1` or `fragments 1, 2, 3`.
fn ids(fragments: &RoaringBitmap) -> String {
    let shown: Vec<String> = fragments.iter().take(IDS_SHOWN).map(|id| id.to_string()).collect();
    let more = match fragments.len().saturating_sub(IDS_SHOWN as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if fragments.len() == 1 { "fragment" } else { "fragments" };
    format!("{noun} {}{more}", shown.join(", "))
}

fn are(fragments: &RoaringBitmap) -> String {
    format!("{} {}", ids(fragments), if fragments.len() == 1 { "is" } else { "are" })
}

/// Returns the addresses and the columns of a sequence as bytes.
fn sequence_to_bytes(schema: &SchemaRef, fragments: &BTreeMap<u32, Vec<FragmentRows>>) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut bitmaps = BitmapsBuilder::default();
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    let mut num_rows = 0;
    for rows in fragments.values().flatten() {
        num_rows += rows.num_rows() as u64;
        bitmaps.insert(rows.addrs());
        writer.write(&RecordBatch::try_new(schema.clone(), rows.columns().to_vec())?)?;
    }
    match bitmaps.num_rows() == num_rows {
        true => Ok((bitmaps.finish().to_bytes()?, writer.into_inner()?)),
        false => Err(Error::internal("a selection that splits by fragment gave a row twice")),
    }
}

/// Reads the content of [`PartialRowSet::into_bytes`], or returns why it is not valid.
fn read(content: &[u8]) -> Result<PartialRowSet, String> {
    let mut rest = content;
    let mut section = || -> Result<&[u8], String> {
        let (length, after) = rest.split_at_checked(8).ok_or("it ends inside a length")?;
        let length = length.iter().rev().fold(0, |length, byte| (length << 8) | u64::from(*byte));
        let length = usize::try_from(length).map_err(|source| source.to_string())?;
        let (section, after) = after.split_at_checked(length).ok_or("it ends inside a section")?;
        rest = after;
        Ok(section)
    };
    let (head, covered, bitmaps, columns) = (section()?, section()?, section()?, section()?);
    let Head { format, selection, table } = serde_json::from_slice(head).map_err(|source| source.to_string())?;
    if format != FORMAT_VERSION {
        return Err(format!("its format is {format}; this build of Stoker reads {FORMAT_VERSION}"));
    }
    let covered = RoaringBitmap::deserialize_from(covered).map_err(|source| source.to_string())?;
    let bitmaps = Bitmaps::from_bytes(bitmaps)?;
    if let Some(fragment) = bitmaps.fragment_ids().find(|id| !covered.contains(*id)) {
        return Err(format!("it has rows of fragment {fragment}, which it does not cover"));
    }
    let (columns, rows) = match columns.is_empty() {
        true => (Arc::new(Schema::empty()), PartialRows::Set(bitmaps.into_builder())),
        false => read_sequence(&bitmaps, columns)?,
    };
    Ok(PartialRowSet { selection, table, covered, columns, rows })
}

/// Reads columns, and gives each row the next address.
fn read_sequence(bitmaps: &Bitmaps, columns: &[u8]) -> Result<(SchemaRef, PartialRows), String> {
    let text = |source: &dyn fmt::Display| source.to_string();
    let reader = StreamReader::try_new(columns, None).map_err(|source| text(&source))?;
    let schema = reader.schema();
    let mut fragments: BTreeMap<u32, Vec<FragmentRows>> = BTreeMap::new();
    let mut addrs = bitmaps.iter().peekable();
    for batch in reader {
        let batch = batch.map_err(|source| text(&source))?;
        let Some(fragment) = addrs.peek().map(|addr| (addr >> 32) as u32) else {
            return Err("it has more values than rows".to_string());
        };
        let of_batch = std::iter::from_fn(|| addrs.next_if(|addr| (addr >> 32) as u32 == fragment));
        let of_batch = UInt64Array::from_iter_values(of_batch.take(batch.num_rows()));
        if of_batch.values().len() != batch.num_rows() {
            return Err(format!("it has more values than rows of fragment {fragment}"));
        }
        let rows = FragmentRows::new(fragment, of_batch, batch.columns().to_vec());
        fragments.entry(fragment).or_default().push(rows);
    }
    match addrs.next() {
        None => Ok((schema, PartialRows::Sequence(fragments))),
        Some(_) => Err("it has more rows than values".to_string()),
    }
}

impl fmt::Debug for PartialRowSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialRowSet")
            .field("table", &self.table)
            .field("fragments", &self.covered)
            .field("num_rows", &self.num_rows())
            .finish_non_exhaustive()
    }
}
