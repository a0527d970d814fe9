//! Findings about the fragments of a table.

use stoker_lake::Table;
use stoker_types::Finding;

use super::example;

/// The smallest number of fragments for a finding: fewer fragments have few footers to read.
const FRAGMENTS_MIN: usize = 32;

/// Fragments are small when they have fewer rows and fewer bytes than these on average.
const ROWS_MIN: u64 = 1 << 16;
const BYTES_MIN: u64 = 64 << 20;

/// Deleted rows are a finding from a tenth of all rows on, because a local read may contain unwanted bytes up to a
/// tenth of the wanted ones.
const DELETED_DIVISOR: u64 = 10;

/// What a compaction does.
const COMPACTION: &str = "checksums stay and indexes follow, and older versions keep their fragments. Lance's own \
                          compaction drops the checksums";

/// All findings about the fragments of a table.
pub(super) fn findings(table: &Table) -> Vec<Finding> {
    [deleted_rows(table), small_fragments(table)].into_iter().flatten().collect()
}

fn deleted_rows(table: &Table) -> Option<Finding> {
    let stored: u64 = table.fragments().iter().map(|fragment| fragment.physical_rows).sum();
    let deleted = stored - table.num_rows();
    if deleted == 0 || deleted < stored.div_ceil(DELETED_DIVISOR) {
        return None;
    }
    let share = deleted as f64 * 100.0 / stored as f64;
    let remedy = format!("compact the table: {COMPACTION}");
    Some(Finding {
        column: None,
        code: "deleted_rows".into(),
        what: format!("{deleted} of {stored} rows are deleted ({share:.0} %)"),
        cost: "their bytes stay in the files: large reads include these bytes or are split around them".into(),
        remedy,
        example: Some(example::compact(table.name().as_str())),
    })
}

fn small_fragments(table: &Table) -> Option<Finding> {
    let num = table.fragments().len();
    let (rows, bytes) = (table.num_rows() / num.max(1) as u64, table.data_bytes() / num.max(1) as u64);
    if num < FRAGMENTS_MIN || rows >= ROWS_MIN || bytes >= BYTES_MIN {
        return None;
    }
    let remedy = format!("append more rows at once, and compact the table: {COMPACTION}");
    Some(Finding {
        column: None,
        code: "small_fragments".into(),
        what: format!("there are {num} fragments, of {rows} rows and {} KiB on average", bytes >> 10),
        cost: "each has files of its own: their footers are read before the first batch, and no read spans two files"
            .into(),
        remedy,
        example: Some(example::compact(table.name().as_str())),
    })
}
