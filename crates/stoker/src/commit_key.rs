//! Keys of writes as commits take them.

use stoker_lake::CommitKey;
use stoker_types::calls::WriteKey;

/// The key as commits take it.
pub(crate) fn commit_key(key: &WriteKey) -> CommitKey<'_> {
    CommitKey { key: &key.key, since_version: key.since_version, chosen_at: None }
}
