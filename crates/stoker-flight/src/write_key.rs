//! Keys that make a write happen once, however often a client retries it.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stoker_lake::CommitKey;
use stoker_types::DigestBuilder;

/// Distinguishes one write to a table from all others. Servers of older versions refuse requests that have this field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteKey {
    /// The key that the commit stores.
    pub key: String,
    /// The table's newest version before the first attempt; 0 if the table does not exist.
    pub since_version: u64,
}

impl WriteKey {
    /// The name of the field in the JSON of requests.
    pub const FIELD: &str = "write_key";

    /// Creates the key of a new write.
    pub fn new(since_version: u64) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        // After a fork, both processes have the same random numbers; their process ids differ.
        let process = std::process::id();
        let random = [RandomState::new().hash_one(0), RandomState::new().hash_one(1)];
        let digest = DigestBuilder::new("stoker.write_key.v1").part(&time.to_le_bytes()).part(&process.to_le_bytes());
        let digest = random.iter().fold(digest, |digest, number| digest.part(&number.to_le_bytes()));
        Self { key: digest.finish().to_string(), since_version }
    }

    /// Returns the key in the form that a commit takes.
    pub fn commit_key(&self) -> CommitKey<'_> {
        CommitKey { key: &self.key, since_version: self.since_version, chosen_at: None }
    }
}
