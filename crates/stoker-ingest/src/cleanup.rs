//! Cleans up the journals of ingests that nobody will resume.

use std::collections::BTreeMap;
use std::time::Duration;

use stoker_lake::{LakeStore, ObjectEntry};
use stoker_types::{ErrorKind, SnapshotRef, TableName};

use crate::Result;
use crate::journal::{FOLDER, KEPT_FOLDERS, UNIT_AGE_MAX};
use crate::known_files::FileLists;

/// The folder of the journals of computed columns among the lake's objects. Each of them has a folder in it.
pub const COLUMN_JOURNALS: &str = "columns";

/// Returns the version of a table after which a cleanup must keep all versions, so that ingests can tell which files
/// the table has: the last version whose ingest had lists of all files of the table. Returns `None` for a table without
/// such lists, and 0 when no list is complete.
///
/// # Errors
/// A damaged list; storage errors.
pub async fn last_listed(lake: &LakeStore, name: &TableName) -> Result<Option<u64>> {
    match lake.table(name, &SnapshotRef::Latest).await {
        Ok(table) => FileLists::new(lake.objects(), name).last_complete(&table).await,
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes the lists of files that ingests wrote for a branch which is gone, or for an earlier one of the same name.
///
/// # Errors
/// Storage errors. The call may be repeated.
pub async fn forget_ingests(lake: &LakeStore, branch: &TableName) -> stoker_lake::Result<()> {
    FileLists::new(lake.unlimited().objects(), branch).remove().await
}

/// Removes the journals of ingests and of computed columns that did nothing for `age` and whose units are too old to be used. A dry run only
/// counts them. Returns the number of journals.
///
/// # Errors
/// Storage errors. Journals that were removed before the error stay removed.
pub async fn clean_journals(lake: &LakeStore, age: Duration, dry_run: bool) -> Result<u64> {
    let objects = lake.objects();
    let mut journals: BTreeMap<String, Vec<ObjectEntry>> = BTreeMap::new();
    for entry in objects.entries(COLUMN_JOURNALS).await? {
        if let Some(job) = entry.path.split('/').nth(1) {
            journals.entry(format!("{COLUMN_JOURNALS}/{job}")).or_default().push(entry);
        }
    }
    for entry in objects.entries(FOLDER).await? {
        let mut parts = entry.path.split('/').skip(1);
        if let (Some(run), Some(_)) = (parts.next(), parts.next())
            && !KEPT_FOLDERS.contains(&run)
        {
            journals.entry(run.to_string()).or_default().push(entry);
        }
    }
    let age = age.max(UNIT_AGE_MAX);
    journals.retain(|_, entries| entries.iter().all(|entry| entry.is_older_than(age)));
    if !dry_run {
        for entry in journals.values().flatten() {
            objects.delete(&entry.path).await?;
        }
    }
    Ok(journals.len() as u64)
}
