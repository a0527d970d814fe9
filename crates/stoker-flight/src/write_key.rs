//! Writes that happen once, however often they are asked for.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stoker_lake::CommitKey;
use stoker_types::DigestBuilder;

/// Tells one write to a table apart from all others. Servers of older versions refuse requests that have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteKey {
    /// The key that the commit keeps.
    pub key: String,
    /// The table's newest version before the first attempt; 0 where there is no table.
    pub since_version: u64,
}

impl WriteKey {
    /// The field of requests that holds it.
    pub const FIELD: &str = "write_key";

    /// The key of a new write.
    pub fn new(since_version: u64) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        // After a fork, both processes have the same random numbers.
        let process = std::process::id();
        let random = [RandomState::new().hash_one(0), RandomState::new().hash_one(1)];
        let digest = DigestBuilder::new("stoker.write_key.v1").part(&time.to_le_bytes()).part(&process.to_le_bytes());
        let digest = random.iter().fold(digest, |digest, number| digest.part(&number.to_le_bytes()));
        Self { key: digest.finish().to_string(), since_version }
    }

    /// The same for a commit.
    pub fn commit_key(&self) -> CommitKey<'_> {
        CommitKey { key: &self.key, since_version: self.since_version, chosen_at: None }
    }
}
