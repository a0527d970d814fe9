//! Keys that make a write happen once, however often a client retries it.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use stoker_types::DigestBuilder;
use stoker_types::calls::WriteKey;

/// The key of a new write to a table whose newest version is `since_version`; 0 where there is no table.
pub fn new_write_key(since_version: u64) -> WriteKey {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    // After a fork, both processes have the same random numbers: the process id tells them apart.
    let process = std::process::id();
    let random = [RandomState::new().hash_one(0), RandomState::new().hash_one(1)];
    let digest = DigestBuilder::new("stoker.write_key.v1").part(&time.to_le_bytes()).part(&process.to_le_bytes());
    let digest = random.iter().fold(digest, |digest, number| digest.part(&number.to_le_bytes()));
    WriteKey { key: digest.finish().to_string(), since_version }
}
