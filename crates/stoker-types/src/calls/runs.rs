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

    /// The most characters of a key.
    pub const CHARS_MAX: usize = 256;

    /// Checks that the key has from 1 to [`WriteKey::CHARS_MAX`] characters.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        match self.key.chars().count() {
            1..=Self::CHARS_MAX => Ok(()),
            found => Err(format!("the key of a write has {found} characters; it must have 1 to {}", Self::CHARS_MAX)),
        }
    }
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

/// Asks which version of a table a write under a key became; `None` if none of the versions that exist is of this write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindWrite {
    /// The name of the table.
    pub table: String,
    /// The key of the write.
    pub write_key: WriteKey,
}

impl Checked for FindWrite {
    fn checked(&self) -> Result<(), String> {
        self.write_key.check()
    }
}

/// Asks what the receipts of all ranks of one stream say about each epoch that they name, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyReceipts {
    /// The receipts of all ranks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
}

impl Checked for VerifyReceipts {}
