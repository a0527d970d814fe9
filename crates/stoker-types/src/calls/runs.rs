//! Calls about runs: their logs, their bad rows, their receipts.

use serde::{Deserialize, Serialize};

use super::about_tables::Checked;
use crate::{BadRowEntry, Receipt, RunEntry, RunId};

/// Tells one write to a table apart from all others, so that it may be repeated. Servers of older versions refuse requests
/// that have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteKey {
    /// The key that the commit keeps.
    pub key: String,
    /// The table's newest version before the first attempt; 0 where there is no table.
    pub since_version: u64,
}

impl WriteKey {
    /// The field of requests that holds it.
    pub const FIELD: &str = "write_key";
}

/// Asks for the log of a run, oldest entry first; empty for a run without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadRunLog {
    /// The run.
    pub run_id: RunId,
}

impl Checked for ReadRunLog {}

/// Adds an entry to the log of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogRun {
    /// The entry.
    pub entry: RunEntry,
    /// The key of the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_key: Option<WriteKey>,
}

impl Checked for LogRun {}

/// Adds rows to the table of bad rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogBadRows {
    /// The rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bad_rows: Vec<BadRowEntry>,
    /// The key of the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_key: Option<WriteKey>,
}

impl Checked for LogBadRows {}

/// Asks what the receipts of all ranks of one stream say about each epoch that they name, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyReceipts {
    /// The receipts of all ranks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
}

impl Checked for VerifyReceipts {}
